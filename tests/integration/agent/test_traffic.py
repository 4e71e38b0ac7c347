"""Real queues of the kernel, in network namespaces, set by a real agent."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.traffic import timed
from bench.traffic_line import (
    AgentProcess,
    FarEnd,
    Line,
    enter,
    limit_of,
    wait_until,
    why_not,
)
from headroom.agent.traffic.queues import Matches, queues
from headroom.agent.traffic.tc import Tc, TcError
from headroom.contracts import LinkColumns
from tests.integration.agent.processes import wait_for

BITS_PER_S = 20e6
OURS = "htb 4864:"


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    if why := why_not():
        pytest.skip(why)
    with Line(BITS_PER_S) as made:
        yield made


@pytest.fixture
def far(line: Line, tmp_path: Path) -> Iterator[FarEnd]:
    made = FarEnd(line, tmp_path)
    yield made
    made.close()


@pytest.fixture
def agent(line: Line, far: FarEnd, tmp_path: Path) -> Iterator[AgentProcess]:
    """An agent that has shared the line."""
    far.answer([limit_of(line)])
    made = AgentProcess(line, far, tmp_path)
    wait_until(line, shared=True)
    yield made
    made.kill()
    wait_until(line, shared=False)


def test_control_keeps_its_time_while_checkpoints_fill_the_line(
    line: Line, far: FarEnd, tmp_path: Path
) -> None:
    without = timed(line, far, 4.0, burst=True)
    far.answer([limit_of(line)])
    made = AgentProcess(line, far, tmp_path)
    try:
        wait_until(line, shared=True)
        shared = timed(line, far, 4.0, burst=True)
        wait_for(lambda: any(_rate(each, "checkpoint") for each in far.readings()))
    finally:
        made.terminate()
    assert shared["heartbeat"] < without["heartbeat"] / 2
    assert shared["orders"] < without["orders"] / 2
    # What control does not need is lent: the line is as full as before.
    assert shared["burst_share"] > 0.8 * without["burst_share"]
    assert max(_rate(each, "checkpoint") or 0 for each in far.readings()) > BITS_PER_S / 8 / 2
    assert any(_rate(each, "control") for each in far.readings())
    assert line.queues().startswith("qdisc noqueue")


def _rate(readings: LinkColumns, name: str) -> float | None:
    found: list[float | None] = getattr(readings, f"tx_{name}_bytes_per_s") or [None]
    return found[-1]


def test_shares_are_gone_after_kill_9_of_the_agent(line: Line, agent: AgentProcess) -> None:
    agent.process.send_signal(signal.SIGKILL)
    wait_until(line, shared=False)


def test_shares_are_gone_after_the_lease_with_the_server_away(
    line: Line, far: FarEnd, tmp_path: Path
) -> None:
    far.answer([limit_of(line)], valid_for_s=4.0)
    made = AgentProcess(line, far, tmp_path)
    wait_until(line, shared=True)
    far.answer(None)
    wait_until(line, shared=False)
    assert made.process.poll() is None
    assert made.terminate() == 0


def test_an_agent_that_stands_still_does_not_keep_shares_beyond_their_lease(
    line: Line, far: FarEnd, tmp_path: Path
) -> None:
    far.answer([limit_of(line)], valid_for_s=4.0)
    made = AgentProcess(line, far, tmp_path)
    wait_until(line, shared=True)
    made.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(line, shared=False)
    finally:
        made.kill()


def test_a_guard_that_dies_is_replaced(line: Line, agent: AgentProcess) -> None:
    (guard,) = _guards(agent.process.pid)
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: _guards(agent.process.pid) not in ([guard], []))
    assert OURS in line.queues()
    agent.kill()
    wait_until(line, shared=False)


def test_what_agent_and_guard_leave_behind_the_next_start_undoes(
    line: Line, far: FarEnd, tmp_path: Path, agent: AgentProcess
) -> None:
    (guard,) = _guards(agent.process.pid)
    os.kill(guard, signal.SIGKILL)
    agent.kill()
    assert OURS in line.queues()
    far.answer([])
    again = AgentProcess(line, far, tmp_path)
    wait_until(line, shared=False)
    again.kill()
    assert "shares of an earlier run undone" in again.log.read_text()


def test_a_restriction_that_ends_is_undone_and_told(
    line: Line, far: FarEnd, agent: AgentProcess
) -> None:
    far.answer([limit_of(line), limit_of(line, share=0.5)])
    wait_for(lambda: ("limit-0.5", "applied") in _told(far))
    ceil = f"ceil {0.5 * 0.98 * BITS_PER_S / 1e3:.0f}Kbit"
    # Less at first, until what waits in the router has gone.
    wait_for(lambda: ceil in _classes(line))
    far.answer([limit_of(line)])
    wait_for(lambda: ("limit-0.5", "restored") in _told(far))
    assert ceil not in _classes(line)


def _classes(line: Line) -> str:
    return line.at_node("tc", "class", "show", "dev", line.interface)


def _told(far: FarEnd) -> list[tuple[str, str]]:
    return [(each.limit, each.state) for each in far.reports()]


def test_queues_of_somebody_else_are_refused_and_left(
    line: Line, far: FarEnd, tmp_path: Path
) -> None:
    words = ("dev", line.interface, "root", "handle", "7:", "htb")
    line.at_node("tc", "qdisc", "add", *words)
    made = AgentProcess(line, far, tmp_path)
    try:
        far.answer([limit_of(line)])
        wait_for(lambda: ("limit-1", "refused") in _told(far))
        assert "somebody else" in far.reports()[-1].error
        assert made.terminate() == 0
        assert "htb 7:" in line.queues()
    finally:
        made.kill()
        line.at_node("tc", "qdisc", "del", "dev", line.interface, "root")


def test_without_the_option_nothing_is_asked_and_leftovers_are_told_of(
    line: Line, far: FarEnd, tmp_path: Path
) -> None:
    far.answer([limit_of(line)])
    words = ("dev", line.interface, "root", "handle", "4864:", "htb")
    line.at_node("tc", "qdisc", "add", *words)
    made = AgentProcess(line, far, tmp_path, enabled=False)
    try:
        wait_for(lambda: "shares of an earlier run remain in force" in made.log.read_text())
        wait_for(far.readings)
        assert OURS in line.queues()
    finally:
        made.kill()
        line.at_node("tc", "qdisc", "del", "dev", line.interface, "root")


def test_setting_the_same_again_changes_nothing_and_half_a_tree_is_never_left(line: Line) -> None:
    done = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    assert line.node in done
    pid = os.fork()
    if pid == 0:  # a namespace is a thread's, and this one is the tests'
        code = 1
        try:
            enter(line.node)
            _set_twice(line)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _set_twice(line: Line) -> None:
    tc, tree = Tc.find(), queues(limit_of(line))
    for _ in range(2):
        tc.set(line.interface, tree, Matches())
    standing = tc.standing(line.interface)
    assert {each.minor for each in tree} == set(standing)
    tc.remove(line.interface)
    bad = (*tree[:3], tree[3].__class__(0x77, 0x66, 1, 1))
    try:
        tc.set(line.interface, bad, Matches())
    except TcError:
        assert not tc.is_ours(line.interface)
        return
    raise AssertionError("a class without its parent was taken")


def _guards(pid: int) -> list[int]:
    """Return the guards that an agent has started: not what it asks ``tc`` meanwhile."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(each) for thread in threads for each in thread.read_text().split()]
    return [each for each in children if b"guard.py" in _command_of(each)]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""
