"""The machine room under load: steps of the clock, processes that hang, a database that fails over.

Every loop comes back, it is told meanwhile, and each reading is stored once. Run it with ``-s`` on
a machine that does nothing else to see how soon.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import urllib3

from bench.stack import Stack, new_state_dir, running_on
from config.loops import CONTROL
from tests.integration.faults.replicated import replicated
from tests.integration.faults.test_sigkill import Scene
from tests.standin.clock import StandInClock

pytestmark = pytest.mark.slow

#: A loop is back within this time.
_BACK_S = 30.0
_HOURS_S = 3 * 3600.0
#: How to tell processes by their command lines, where bench.stack does not.
_MARKS = {
    "worker": " worker@", "housekeeper": " housekeeper@", "agent": " headroom agent ",
    "demo": " lab demo ",
}  # fmt: skip
#: How old the newest reading is that a service has brought, s.
_READINGS = {
    "agent": "SELECT extract(epoch FROM now() - max(ts))::float8 FROM host_sample",
    "demo": """
        SELECT extract(epoch FROM now() - max(sample.ts))::float8 FROM gpu_sample AS sample
        JOIN fleet_gpu AS gpu ON gpu.id = sample.gpu_id
        JOIN telemetry_agent_nodes AS scope ON scope.node_id = gpu.node_id
        JOIN telemetry_agent AS agent ON agent.id = scope.agent_id
        WHERE agent.name NOT LIKE 'load-%'
    """,
}


@contextmanager
def scene(folder: Path, env: Mapping[str, str], *, demo: bool = False) -> Iterator[Scene]:
    without = () if demo else ("--no-demo",)
    with new_state_dir() as state, running_on(state, *without, env=env) as stack:
        token_file = folder / "operator-token"
        token_file.write_text(stack.credential("operator_token"))
        found = Scene(stack, token_file, folder)
        until(lambda: in_control(stack), 120, "the start")
        yield found


def readyz(stack: Stack) -> dict[str, Any]:
    """Return the checks; none when nobody answers."""
    with suppress(urllib3.exceptions.HTTPError, ValueError):
        answer = urllib3.request("GET", f"{stack.url}/readyz", timeout=3.0, retries=False)
        body: dict[str, Any] = json.loads(answer.data)
        return {"status": body["status"], **body["checks"]}
    return {"status": "silent"}


def in_control(stack: Stack, younger_than_s: float = 12.0, of: Sequence[str] = CONTROL) -> bool:
    """Say whether every loop of control was done a moment ago."""
    loops = readyz(stack).get("loops", {})
    return all(
        loops.get(name, {}).get("ok") and 0 <= loops[name]["age_s"] < younger_than_s for name in of
    )


def processes(stack: Stack, service: str) -> list[psutil.Process]:
    """Return the processes of a service, its main one first."""
    mark = _MARKS.get(service)
    if mark is None:
        return stack.family(service)
    found = []
    for process in stack.supervisor.children(recursive=True):
        with suppress(psutil.Error):
            if mark in " ".join(process.cmdline()):
                found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def is_back(stack: Stack, service: str, ended: float) -> bool:
    """Say whether what a service is for was done since ``ended``, by the monotonic clock."""
    since_s = time.monotonic() - ended
    if service in _READINGS:
        with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
            newest = database.execute(_READINGS[service]).fetchone()
        return newest is not None and newest[0] is not None and newest[0] < since_s
    # Of what the housekeeper does, this comes often.
    return in_control(stack, since_s, ["audit"] if service == "housekeeper" else CONTROL)


def until(condition: Callable[[], bool], limit_s: float, what: str) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.25)
    return time.monotonic() - began


@contextmanager
def loaded(scene: Scene, seconds: float) -> Iterator[None]:
    """Send readings meanwhile; in the end, each has to be there once."""
    load = scene._start_load(seconds)
    try:
        scene._wait_for_rows(load)
        yield
        output, _ = load.communicate(timeout=seconds + 180)
    finally:
        load.kill()
        load.wait()
        if load.stdout is not None:
            load.stdout.close()
    told = json.loads(output.strip().splitlines()[-1])
    assert load.returncode == 0, told
    assert scene._wrong_of_load(told) == []


def test_steps_and_drift_of_the_clock_stop_no_loop(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    clock = StandInClock(tmp_path)
    with scene(tmp_path, clock.environment) as found, loaded(found, 100):
        for step_s in (-_HOURS_S, _HOURS_S, 0.0):
            clock.set(step_s)
            took_s = until(lambda: not readyz(found.stack)["clock"]["ok"], 15, "told")
            print(f"step to {step_s:+.0f} s: told after {took_s:.1f} s")
            # For longer than the slack of a loop: it is not only that nobody has noticed.
            for _ in range(14):
                time.sleep(1)
                assert in_control(found.stack, _BACK_S)
        clock.set(0.0, drift=0.5)
        until(lambda: abs(readyz(found.stack)["clock"]["database_offset_s"] or 0) > 5, 40, "drift")
        assert in_control(found.stack, _BACK_S)
        clock.set()


@pytest.mark.parametrize(
    ("service", "which"),
    [
        ("worker", 0), ("worker", -1), ("housekeeper", 0), ("housekeeper", -1), ("beat", 0),
        ("web", 0), ("web", -1), ("agent", 0), ("demo", 0), ("postgres", 0), ("valkey", 0),
    ],
)  # fmt: skip
def test_a_frozen_process_is_replaced_within_half_a_minute(
    tmp_path: Path, service: str, which: int
) -> None:
    with scene(tmp_path, {}, demo=service == "demo") as found, loaded(found, 50):
        until(lambda: is_back(found.stack, service, time.monotonic() - 12), 60, "its work")
        process = processes(found.stack, service)[which]
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        until(lambda: not process.is_running() or process.status() == "zombie", 25, "its end")
        ended = time.monotonic()
        ended_s = ended - began
        until(lambda: is_back(found.stack, service, ended), 120, "its work again")
        back_s = time.monotonic() - began
        print(f"{service}[{which}]: ended after {ended_s:.1f} s, back after {back_s:.1f} s")
        logs = "".join(path.read_text() for path in (found.stack.state_dir / "logs").glob("*.log"))
        assert "ended by force" in logs
        if service not in ("postgres", "valkey"):
            until(lambda: readyz(found.stack).get("processes", {}).get("ok") is False, 10, "told")
        assert back_s <= _BACK_S


def test_a_database_that_fails_over_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    with (
        replicated() as pair,
        scene(tmp_path, {"DATABASE_URL": pair.url}) as found,
        loaded(found, 50),
    ):
        time.sleep(5)
        began = time.monotonic()
        pair.end_primary()
        until(lambda: readyz(found.stack)["status"] == "unavailable", 20, "told")
        told_s = time.monotonic() - began
        pair.promote()
        promoted = time.monotonic()
        # Each loop was done once more since then.
        until(lambda: in_control(found.stack, time.monotonic() - promoted), 60, "control")
        back_s = time.monotonic() - promoted
        print(f"told after {told_s:.1f} s, back {back_s:.1f} s after the promotion")
        assert back_s <= _BACK_S
