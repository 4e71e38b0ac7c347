"""Real agents and a real server, and a network between them that is cut.

The job writes the time into a file all the while, by CLOCK_MONOTONIC of the machine that all of
this is on. So a gap in it is the time for which it stood still.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from bench.stack import Stack, running
from headroom.client import Client
from lab.matrix.faults.links import Link, Trouble
from lab.matrix.faults.relay import Relay
from tests.integration.agent.processes import wait_for
from tests.integration.faults.agents import RealAgent, enroll

LEASE_S = 20.0
FENCE_S = LEASE_S / 2
_CUT = 1
_SCRIPT = """
import os, time
with open(os.environ["LEDGER"], "a", buffering=1) as ledger:
    while True:
        ledger.write(f"{os.environ['HEADROOM_ATTEMPT']} {time.monotonic()}\\n")
        time.sleep(0.05)
"""


class Scene:
    """A job that ticks, on the first of two agents, and the link between that and the server."""

    def __init__(self, stack: Stack, agents: list[RealAgent], folder: Path) -> None:
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.link = Link("server")
        listening = socket.create_server(("127.0.0.1", 0))
        server = urlsplit(stack.url)
        to = (server.hostname or "", server.port or 0)
        self.relay = Relay(listening, to, self.link, has_trouble=True)
        self.first, self.second = agents
        self.first.server = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.client = Client(stack.url, stack.credential("operator_token"), timeout_s=30)

    def submit(self) -> None:
        phase = {
            "name": "run", "gang": {"gpus": 8, "gpus_per_node": 8}, "walltime_s": 600,
            "power": {"expected_peak_w": 200}, "locality": {"required": "rack"},
            "env": {"LEDGER": str(self.ledger)}, "command": [sys.executable, "-c", _SCRIPT],
            "artifacts": {
                "image": "ticks@sha256:" + "0" * 64, "code_revision": "0" * 40, "data": {},
            },
            "restart": {"tolerance": "disruption", "max_restarts": 3, "backoff_s": 0},
        }  # fmt: skip
        self.client.post("/api/v1/projects", {"name": "fence"})
        spec = {
            "name": "ticks", "project": "fence", "class": "low-power-experimentation",
            "phases": [phase],
        }  # fmt: skip
        self.client.post("/api/v1/jobs", spec)

    def unheard(self) -> str:
        """Return what is said of machines of the job that are not heard."""
        job = self.client.get("/api/v1/jobs/ticks")
        return " ".join(str(each["unheard"]) for each in job["phases"][0]["attempts"])

    def ticks(self, attempt: int) -> list[float]:
        """Return when the job wrote, in one of its attempts."""
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        return [float(at) for number, at in lines if int(number) == attempt]

    def last(self, attempt: int) -> float:
        return max(self.ticks(attempt), default=0.0)

    def close(self) -> None:
        self.relay.close()
        self.client.close()
        for agent in (self.first, self.second):
            agent.close()
        for process in psutil.process_iter(["cmdline"]):
            if str(self.ledger.parent) in " ".join(process.info["cmdline"] or ()):
                process.kill()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("WORK_LEASE_S", str(LEASE_S))
    monkeypatch.setenv("WORK_POLL_S", "0.5")
    monkeypatch.setenv("WORK_REPORT_S", "1")
    yield from _scene(tmp_path)


@pytest.fixture
def ordinary_scene(tmp_path: Path) -> Iterator[Scene]:
    """With leases, polls and reports as they are by default."""
    yield from _scene(tmp_path)


def _scene(tmp_path: Path) -> Iterator[Scene]:
    with running() as stack:
        token_file = tmp_path / "operator-token"
        token_file.write_text(stack.credential("operator_token"))
        agents = enroll(stack, token_file, tmp_path, 2, more=("--allow-jobs", "--shared-user"))
        made = Scene(stack, agents, tmp_path)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.slow
def test_a_machine_that_is_cut_off_stands_still_before_its_work_runs_elsewhere(
    scene: Scene,
) -> None:
    scene.first.machine.gpu(util=0, power_mw=40_000)
    scene.second.machine.gpu(util=0, power_mw=40_000)
    scene.first.start()
    scene.submit()
    wait_for(lambda: scene.ticks(1), 120.0)

    # Cut off for longer than the fence and shorter than the lease: it stands still and goes on.
    scene.link.begin(_CUT, Trouble(is_cut=True))
    cut_at = time.monotonic()
    wait_for(lambda: time.monotonic() - scene.last(1) > 1.5, 2 * FENCE_S)
    assert scene.last(1) - cut_at <= FENCE_S + 1.0
    scene.link.end(_CUT)
    stood_at = scene.last(1)
    wait_for(lambda: scene.last(1) > stood_at + 1.5, 30.0)
    assert scene.ticks(2) == []

    # Its agent is frozen, and another machine is there: the work goes there, and never overlaps.
    scene.second.start()
    time.sleep(5.0)
    assert scene.first.process is not None
    os.kill(scene.first.process.pid, signal.SIGSTOP)
    wait_for(lambda: scene.ticks(2), 120.0)
    assert scene.last(1) < scene.ticks(2)[0]
    gap_s = scene.ticks(2)[0] - scene.last(1)
    print(f"stood still for {gap_s:.1f} s before the next attempt began")

    # Back again, it ends what was given to others, without a line more.
    os.kill(scene.first.process.pid, signal.SIGCONT)
    folder = scene.first.folder / "jobs" / "attempts"
    wait_for(lambda: list(folder.glob("*/exit.json")), 60.0)
    assert scene.last(1) < scene.ticks(2)[0]
    assert scene.last(2) > scene.ticks(2)[0]


@pytest.mark.slow
def test_an_agent_that_is_killed_is_told_of_soon_and_its_work_restarts_after_the_lease(
    ordinary_scene: Scene,
) -> None:
    """SIGKILL, and what it watched runs on: the policy's lease of 60 s, as everybody has it."""
    scene = ordinary_scene
    for agent in (scene.first, scene.second):
        agent.machine.gpu(util=0, power_mw=40_000)
    scene.first.start()
    scene.submit()
    wait_for(lambda: scene.ticks(1), 120.0)
    scene.second.start()
    # It has confirmed the lease of the policy, and the other machine is ready.
    time.sleep(20.0)

    assert scene.first.process is not None
    scene.first.process.kill()
    killed_at = time.monotonic()
    wait_for(lambda: "unknown: nothing heard of" in scene.unheard(), 60.0)
    told_s = time.monotonic() - killed_at
    wait_for(lambda: scene.ticks(2), 120.0)
    stood_s, restarted_s = scene.last(1) - killed_at, scene.ticks(2)[0] - killed_at
    print(
        f"killed; told of after {told_s:.1f} s, stood still after {stood_s:.1f} s, "
        f"restarted after {restarted_s:.1f} s"
    )
    assert 30.0 <= told_s <= 60.0
    assert stood_s <= 31.0
    assert restarted_s <= 80.0
    assert scene.last(1) < scene.ticks(2)[0]
