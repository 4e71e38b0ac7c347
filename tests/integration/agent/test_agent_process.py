"""The agent as a real process on a machine with GPUs, of which it reads and sets what it may."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headroom.contracts import LimitKind, LimitReport
from tests.integration.agent.processes import AgentProcess, LimitServer, wait_for
from tests.standin.nvml import StandIn

ALLOWED = "--allow-actuation"


@pytest.fixture
def server() -> Iterator[LimitServer]:
    made = LimitServer()
    yield made
    made.close()


@pytest.fixture
def start(machine: StandIn, server: LimitServer) -> Iterator[Callable[..., AgentProcess]]:
    """Return a function that starts an agent on ``machine``; it is gone in the end."""
    with ExitStack() as stack:

        def run(*options: str) -> AgentProcess:
            process = AgentProcess(machine, server, *options)
            return stack.enter_context(process.ended_in_the_end())

        yield run


def last(server: LimitServer, gpu: int = 0) -> LimitReport | None:
    return next((report for report in reversed(server.reports) if report.gpu == gpu), None)


def state(server: LimitServer, gpu: int = 0) -> str:
    report = last(server, gpu)
    return report.state.value if report else ""


# --- Readings -------------------------------------------------------------------------------------


def test_the_gpus_of_the_machine_arrive(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    machine.gpu(power_mw=420_000)
    machine.gpu(1, mig=1, instances=f"{2**30} {2**30}", fan=33)
    start()
    wait_for(lambda: len(server.gpu_blocks) >= 3)
    block = server.gpu_blocks[-1]
    assert set(block.gpu) == {0, 1}
    assert block.power_w is not None
    assert block.power_w == pytest.approx([420] * len(block), rel=0.02)
    assert set(block.mig_instances or []) == {None, 2}
    assert set(block.fan or []) == {None, 33}


def test_slow_gpus_hold_up_neither_the_host_nor_the_pushes(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    start()
    wait_for(lambda: server.gpu_blocks)
    machine.driver(slow_ms=60_000)
    taken = len(server.pushes)
    wait_for(lambda: len(server.pushes) >= taken + 6)
    host = server.pushes[-1].nodes[0].host
    assert host is not None
    assert len(host) >= 2
    status = server.pushes[-1].status
    assert status is not None
    assert status.errors > 0
    assert "has not answered" in status.last_error


# --- Limits ---------------------------------------------------------------------------------------


def test_without_permission_by_option_nothing_is_asked_for_and_nothing_set(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limit(400)
    machine.record_calls()
    agent = start()
    wait_for(lambda: len(server.pushes) >= 4)
    agent.terminate()
    assert server.asked_for_limits == 0
    assert not [line for line in machine.log.read_text().splitlines() if "DeviceSet" in line]
    assert server.reports == []


def test_a_limit_is_set_obeyed_and_undone_when_it_is_withdrawn(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    machine.gpu(power_mw=650_000)
    server.limit(400, gpu=0)
    start(ALLOWED)
    wait_for(lambda: state(server) == "applied")
    report = last(server)
    assert report is not None
    assert (report.original, report.applied, report.asked) == (700, 400, 400)
    assert (machine.limit_w(0), machine.limit_w(1)) == (400, None)
    wait_for(lambda: 400 in [round(w) for w in server.gpu_blocks[-1].power_w or [] if w])

    server.limits = []
    wait_for(lambda: state(server) == "restored")
    assert machine.limit_w(0) == 700
    assert last(server, gpu=1) is None


def test_clocks_are_locked_and_unlocked(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limit(1001, gpu=1)
    assert server.limits is not None
    server.limits[0].kind = LimitKind.CLOCK_CAP_MHZ
    agent = start(ALLOWED)
    wait_for(lambda: state(server, gpu=1) == "applied")
    assert machine.locked_mhz(1) == (
        210,
        990,
    )  # the highest of the card's steps below what is asked
    agent.terminate()
    assert machine.locked_mhz(1) is None


def test_a_server_that_knows_no_limits_has_none(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limits = None
    agent = start(ALLOWED)
    wait_for(lambda: server.asked_for_limits >= 3)
    agent.terminate()
    assert server.reports == []
    assert "level=warning" not in agent.log.read_text()


def test_a_lease_ends_in_time_while_the_server_is_away_and_by_the_servers_clock(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.ahead_s = 3600
    server.limit(400, for_s=4)
    ends_at = time.time() + 4
    start(ALLOWED)
    wait_for(lambda: state(server) == "applied")
    server.close()
    wait_for(lambda: machine.limit_w(0) == 700)
    assert time.time() == pytest.approx(ends_at, abs=1)


def test_a_stopped_agent_leaves_no_limit_and_says_so(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limit(400)
    agent = start(ALLOWED)
    wait_for(lambda: state(server, gpu=1) == "applied")
    agent.terminate()
    assert (machine.limit_w(0), machine.limit_w(1)) == (700, 700)
    assert (state(server, 0), state(server, 1)) == ("restored", "restored")


def test_limits_that_are_not_permitted_are_refused(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    machine.gpu(may_set=0)
    server.limit(400)
    start(ALLOWED)
    wait_for(lambda: state(server) == "refused")
    report = last(server)
    assert report is not None
    assert "CAP_SYS_ADMIN" in report.error
    assert machine.limit_w(0) is None


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_agent_that_is_killed_while_it_sets_a_limit_restores_it_at_its_next_start(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess], moment: str
) -> None:
    machine.gpu(0, limit_default_mw=650_500)
    machine.gpu(0, kill=f"nvmlDeviceSetPowerManagementLimit:{moment}")
    server.limit(400, gpu=0)
    agent = start(ALLOWED)
    agent.wait_until_killed()
    assert machine.limit_w(0) == (None if moment == "before" else 400)
    assert '"original":650.5' in agent.journal.read_text()

    machine.gpu(0, kill="")
    server.limits = []
    start(ALLOWED)
    wait_for(lambda: state(server) == "restored")
    assert machine.limit_w(0) == (None if moment == "before" else 650.5)
    assert '"entries":[]' in agent.journal.read_text()


def test_an_agent_without_the_option_says_what_an_earlier_one_left_and_leaves_it(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limit(400)
    agent = start(ALLOWED)
    wait_for(lambda: state(server, gpu=1) == "applied")
    agent.kill()
    taken = len(server.pushes)
    agent = start()
    wait_for(lambda: len(server.pushes) > taken + 2)
    assert "start with --allow-actuation to undo them" in agent.log.read_text()
    assert machine.limit_w(0) == 400


def test_a_damaged_journal_keeps_the_agent_from_setting_anything(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limit(400)
    machine.control.with_name("spool-limits.json").write_text("{")
    agent = start(ALLOWED)
    wait_for(lambda: len(server.pushes) >= 3)
    assert "limits cannot be set" in agent.log.read_text()
    assert (server.asked_for_limits, machine.limit_w(0)) == (0, None)


@pytest.mark.slow
def test_a_reloaded_driver_is_read_and_limited_again(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    server.limit(400)
    start(ALLOWED)
    wait_for(lambda: state(server) == "applied")
    machine.reload_driver()
    taken = len(server.gpu_blocks)
    wait_for(lambda: len(server.gpu_blocks) > taken + 2, limit_s=20)
    wait_for(lambda: machine.limit_w(0) == 400)


@pytest.mark.slow
def test_the_power_that_a_limit_saves_is_measured(
    machine: StandIn, server: LimitServer, start: Callable[..., AgentProcess]
) -> None:
    machine.gpu(power_mw=650_000)
    server.limits = []
    start(ALLOWED)
    wait_for(lambda: len(server.gpu_blocks) >= 5)
    server.limit(400)
    wait_for(lambda: any(r.watts_after is not None for r in server.reports), limit_s=30)
    report = last(server)
    assert report is not None
    assert report.watts_before == pytest.approx(650, rel=0.02)
    assert report.watts_after == pytest.approx(400, rel=0.02)
