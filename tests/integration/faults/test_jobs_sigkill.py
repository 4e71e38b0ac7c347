"""Real jobs on real agents while every process is killed: none lost, none run twice, none split.

The seed is printed, and a run repeats its schedule with ``HEADROOM_FAULT_SEED``. Where
``HEADROOM_FAULT_REPORT`` names a file, what was killed and found is written there as JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import machine
from bench.stack import Stack, running
from headroom.client import Client
from tests.integration.faults import jobs
from tests.integration.faults.agents import RealAgent, enroll
from tests.integration.faults.assault import Assault
from tests.integration.faults.schedule import VICTIMS, make_schedule

JOBS = int(os.environ.get("HEADROOM_FAULT_JOBS") or 500)
#: Blows come all the while that jobs run, about one every five seconds.
DURATION_S = 0.3 * JOBS
BLOWS = max(len(VICTIMS), int(DURATION_S / 5))
#: For what is left when the blows are over, and for what a blow had put off.
_SETTLE_S = 120.0 + 0.5 * JOBS


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """An installation whose machines ask often, so that more of the steps meet a blow."""
    monkeypatch.setenv("WORK_POLL_S", "0.5")
    with running() as started:
        yield started


@pytest.fixture
def agents(stack: Stack, tmp_path: Path) -> Iterator[list[RealAgent]]:
    token_file = tmp_path / "operator-token"
    token_file.write_text(stack.credential("operator_token"))
    more = ("--allow-jobs", "--shared-user", "--sample-s", "1")
    made = enroll(stack, token_file, tmp_path, 4, more=more)
    for agent in made:
        # Somebody's work would be left alone.
        agent.machine.gpu(util=0, power_mw=40_000)
        agent.start()
    yield made
    for agent in made:
        agent.close()


def _publish(report: dict[str, Any]) -> None:
    print(json.dumps(report, indent=1))
    if path := os.environ.get("HEADROOM_FAULT_REPORT"):
        Path(path).write_text(json.dumps({**report, "machine": machine.describe()}, indent=1))


@pytest.mark.slow
def test_no_job_is_lost_run_twice_or_split_whatever_is_killed(
    stack: Stack, agents: list[RealAgent], tmp_path: Path
) -> None:
    seed = int(os.environ.get("HEADROOM_FAULT_SEED") or secrets.randbelow(1_000_000))
    print(f"HEADROOM_FAULT_SEED={seed}")
    ledger = tmp_path / "ledger"
    ledger.touch()
    specs = [jobs.spec_of(number, ledger) for number in range(JOBS)]
    assault = Assault(stack, agents)
    schedule = make_schedule(seed, duration_s=DURATION_S, blows=BLOWS, wipes=[])
    blows = threading.Thread(target=assault.carry_out, args=[schedule])
    with Client(stack.url, (tmp_path / "operator-token").read_text(), timeout_s=10) as client:
        blows.start()
        try:
            jobs.submit(client, specs)
        finally:
            blows.join()
    stack.wait_ready()
    attempts = jobs.wait_until_over(stack, JOBS, _SETTLE_S)
    wrong = list(jobs.wrong_of(attempts, ledger, JOBS))
    lives = {agent.name: agent.lives for agent in agents}
    _publish(
        {
            "seed": seed, "jobs": JOBS, "outcomes": attempts.outcomes, "lives": lives,
            **assault.report(), "wrong": wrong,
        }
    )  # fmt: skip
    assert set(assault.report()["by_victim"]) == set(VICTIMS)
    assert wrong == []
