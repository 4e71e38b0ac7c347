"""Real processes under load, killed with SIGKILL at random: every reading is stored exactly once.

For fourteen seconds on one host with one shard; for five minutes on two hosts with four shards. The
load goes in rows of fixed width, a batch for each node.

The seed is printed, and a run repeats its schedule with ``HEADROOM_FAULT_SEED``. Where
``HEADROOM_FAULT_REPORT`` names a file, what was killed and compared is written there as JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench import machine
from bench.stack import REPOSITORY, Stack, running
from tests.integration.faults import ledger
from tests.integration.faults.agents import RealAgent, enroll
from tests.integration.faults.assault import Assault
from tests.integration.faults.hosts import Hosts, running_on_two
from tests.integration.faults.schedule import VICTIMS, WIPES, How, make_schedule

#: The load goes on for this long after the last blow.
_AFTER_S = 2.0
#: Long enough for a mark that stands still to be noticed (10 to 15 s), and for all to be stored.
_SETTLE_S = 60.0
#: A minute, and the rounds in which it is rolled up.
_ROLLED_UP_S = 150.0
#: What of the load's own account is in the report.
_TOLD = ("agents", "agents_in_rows", "batches_made", "batches_stored", "rows_stored")


@dataclass(frozen=True)
class Plan:
    """How long, and how hard."""

    duration_s: float
    blows: int
    wipes: Sequence[How]
    agents: int
    #: Wait until the roll-ups, which come a minute later, are there, and compare them too.
    rollups: bool = False


def short(seed: int) -> Plan:
    """A blow for each victim, and one wipe."""
    return Plan(duration_s=14, blows=len(VICTIMS), wipes=[WIPES[seed % 2]], agents=2)


SHARDS = 4
LONG = Plan(duration_s=300, blows=75, wipes=WIPES, agents=4, rollups=True)


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HEADROOM_FAULT_SEED") or secrets.randbelow(1_000_000))
    print(f"HEADROOM_FAULT_SEED={chosen}")
    return chosen


@dataclass
class Scene:
    """What is attacked."""

    stack: Stack
    token_file: Path
    folder: Path

    def run(self, plan: Plan, seed: int) -> dict[str, Any]:
        """Attack, let all settle, compare, and return the report; its ``wrong`` is to be empty."""
        agents = enroll(self.stack, self.token_file, self.folder, plan.agents)
        assault = Assault(self.stack, agents)
        schedule = make_schedule(
            seed, duration_s=plan.duration_s, blows=plan.blows, wipes=plan.wipes
        )
        try:
            load = self._start_load(plan.duration_s + _AFTER_S)
            for agent in agents:
                agent.start()
            self._wait_for_rows(load)
            assault.carry_out(schedule)
            output, _ = load.communicate(timeout=plan.duration_s + 180)
            self.stack.wait_ready()
            for agent in agents:
                _hand_over(self.stack, agent)
        finally:
            for agent in agents:
                agent.close()
        loaded: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        assert load.returncode == 0, loaded
        return {
            "seed": seed,
            **assault.report(),
            "load": {key: loaded[key] for key in _TOLD},
            "hosts": self.stack.work() if isinstance(self.stack, Hosts) else [],
            "agents": [self._told(agent) for agent in agents],
            "wrong": [
                *self._wrong_of_load(loaded),
                *self._wrong_of(agents),
                *(self._wrong_of_rollups() if plan.rollups else ()),
            ],
        }

    def _start_load(self, duration_s: float) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "lab", "load", "--server", self.stack.url,
            "--token-file", str(self.token_file), "--gpus", "512", "--batch-gpus", "8",
            "--rate", "2000", "--duration-s", str(duration_s),
        ]  # fmt: skip
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)

    def _wait_for_rows(self, load: subprocess.Popen[str]) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and load.poll() is None:
            if ledger.rows_by_batch(self.stack):
                return
            time.sleep(0.2)
        raise AssertionError("no row arrived")

    def _told(self, agent: RealAgent) -> dict[str, Any]:
        """Return what ``agent`` went through."""
        return {
            "agent": agent.name,
            "lives": agent.lives,
            "sealed_batches": len(agent.sealed()),
            "gpu_readings": len(ledger.sealed_rows(agent, "gpus", ["energy_j"])),
        }

    def _wrong_of_load(self, loaded: dict[str, Any]) -> list[str]:
        """Say what of the load is not there exactly once."""
        wrong = [f"{n} readings are there twice" for n in [ledger.doubles(self.stack)] if n]
        if loaded["batches_refused"] or loaded["batches_stored"] != loaded["batches_made"]:
            wrong.append(f"the load was not taken whole: {loaded}")
        found = ledger.rows_by_batch(self.stack)
        for each in loaded["by_agent"]:
            of_batch = each["rows"] // each["batches"]
            stored = found.get(each["agent"], {})
            odd = {
                seq: stored.get(seq, 0)
                for seq in {*range(1, each["batches"] + 1), *stored}
                if stored.get(seq) != of_batch
            }
            if odd:
                wrong.append(f"{each['agent']}: {of_batch} rows were sent by each seq, not {odd}")
        return wrong

    def _wrong_of(self, agents: Sequence[RealAgent]) -> list[str]:
        """Say what of all that the agents sealed is not there exactly once."""
        wrong = []
        for agent in agents:
            seqs = sorted(agent.sealed())
            if seqs != list(range(1, len(seqs) + 1)):
                wrong.append(f"{agent.name} gave a seq twice, or left one out: {seqs}")
            if agent.dropped() or list(agent.folder.glob("*.damaged-*")):
                wrong.append(f"{agent.name} gave batches up, or lost its spool")
            for block, fields in (("gpus", ledger.GPU_FIELDS), ("host", ledger.HOST_FIELDS)):
                sealed = ledger.sealed_rows(agent, block, fields)
                stored = ledger.stored_rows(self.stack, agent, block, fields)
                said = ledger.differences(sealed, stored)[:3]
                wrong.extend(f"{agent.name}, {block}: {difference}" for difference in said)
        return wrong

    def _wrong_of_rollups(self) -> list[str]:
        """Say which minutes were not rolled up with each of their readings once."""
        end = time.monotonic() + _ROLLED_UP_S
        while True:
            stored, rolled_up = ledger.minutes(self.stack)
            wrong = [
                f"of {count} readings of {minute} {rolled_up.get(minute, 0)} are rolled up"
                for minute, count in stored.items()
                if rolled_up.get(minute) != count
            ]
            if not wrong or time.monotonic() > end:
                return wrong
            time.sleep(1.0)


def _hand_over(stack: Stack, agent: RealAgent) -> None:
    """Let ``agent`` live once more and end in peace, until the server has all that it sealed.

    A new life sends all that it holds; one that goes on would wait until it notices a loss.
    """
    end = time.monotonic() + _SETTLE_S
    while time.monotonic() < end:
        agent.stop()
        last = max(agent.sealed())
        wait_until = time.monotonic() + 5.0
        while time.monotonic() < wait_until:
            if ledger.mark(stack, agent) >= last:
                return
            time.sleep(0.1)
        agent.start()
        time.sleep(2.0)
    raise AssertionError(f"{agent.name} still holds {agent.held()} batches after {_SETTLE_S} s")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """An installation of its own for each test: both call their agents alike."""
    with running() as stack:
        yield _scene(stack, tmp_path)


@pytest.fixture
def scene_of_two_hosts(tmp_path: Path) -> Iterator[Scene]:
    with running_on_two(shards=SHARDS) as hosts:
        yield _scene(hosts, tmp_path)


def _scene(stack: Stack, folder: Path) -> Scene:
    token_file = folder / "operator-token"
    token_file.write_text(stack.credential("operator_token"))
    return Scene(stack, token_file, folder)


def _publish(report: dict[str, Any]) -> None:
    print(json.dumps(report, indent=1))
    if path := os.environ.get("HEADROOM_FAULT_REPORT"):
        Path(path).write_text(json.dumps({**report, "machine": machine.describe()}, indent=1))


@pytest.mark.slow(
    beside="tests/unit/headroom/test_delivery.py::"
    "test_every_batch_is_stored_once_or_refused_whatever_the_server_does"
)
def test_every_reading_is_there_once_whatever_is_killed(scene: Scene, seed: int) -> None:
    report = scene.run(short(seed), seed)
    _publish(report)
    assert set(report["by_victim"]) == set(VICTIMS)
    assert report["wrong"] == []


@pytest.mark.slow
def test_every_reading_is_there_once_after_five_minutes_of_kills_on_two_hosts(
    scene_of_two_hosts: Scene, seed: int
) -> None:
    report = scene_of_two_hosts.run(LONG, seed)
    _publish(report)
    assert set(report["by_victim"]) == set(VICTIMS)
    assert report["wrong"] == []
    assert report["load"]["agents_in_rows"] == report["load"]["agents"]
    for host in report["hosts"]:
        assert host["batches"] > 0
        assert host["rounds"] > 0
