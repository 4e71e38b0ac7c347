"""The account of a real run against what was forced on it, as its ranks wrote it down.

Two PyTorch ranks are a job of a real server on a real agent. One of them is slower for a while,
both wait for their data for a while, the job is killed twice, and in the end its GPUs are capped.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.stack import Stack, running
from headroom.client import Client
from tests.integration.agent.loops import Job, wait_for, written
from tests.integration.agent.plans import Plan, Wait
from tests.integration.faults.agents import RealAgent, enroll

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
    ),
    pytest.mark.slow,
]

#: What is said of each class may be off by so much of the GPU time of its attempt.
BAR = 0.02
RANKS = 2
CAPPED_W, DRAWN_W = 400.0, 600.0
FULL_MHZ, SLOW_MHZ = 1980, 1386
CAUSES = (
    "productive", "repeated", "starting", "restarting", "outside_steps", "data_wait",
    "synchronization", "capped", "unknown",
)  # fmt: skip


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("WORK_POLL_S", "0.3")
    with running() as started:
        yield started


@pytest.fixture
def agent(stack: Stack, operator: Client, tmp_path: Path) -> Iterator[RealAgent]:
    more = ("--allow-jobs", "--shared-user", "--allow-actuation")
    (made,) = enroll(stack, tmp_path / "operator-token", tmp_path, 1, more=more)
    # The stand-in counts no time at a limit, and says that it can: its reasons have to do.
    made.machine.gpu(sm_mhz=FULL_MHZ, sw_power_cap_ns=None)
    work(made, is_on=False)
    made.start()
    yield made
    made.close()


@dataclass
class ForcedJob(Job):
    """The example under a plan."""

    every: int = 150

    @property
    def plan(self) -> Plan:
        return Plan(
            folder=str(self.folder), compute_s=0.1, straggler=Wait(150, 400, 0.1),
            data=Wait(700, 950, 0.1),
        )  # fmt: skip

    def command(self) -> list[str]:
        plan = msgspec.json.encode(self.plan).decode()
        return [
            sys.executable, "-m", "tests.integration.agent.forced", plan, *self.options(),
            "--checkpoint-every", str(self.every), "--step-log", str(self.log),
            "--checkpoints", str(self.folder / "checkpoints"),
        ]  # fmt: skip

    def phase(self) -> dict[str, Any]:
        told = super().phase()
        told["power"] = {"expected_peak_w": 700}
        return told

    def reaches(self, step: int) -> None:
        wait_for(lambda: self.step >= step, f"step {step}")

    def set_speed(self, speed: float) -> None:
        draft = self.folder / "speed.new"
        draft.write_text(str(speed))
        draft.rename(self.folder / "speed")


def test_a_straggler_waits_for_data_kills_and_a_cap_are_told_as_they_were(
    operator: Client, tmp_path: Path, agent: RealAgent
) -> None:
    job = ForcedJob(operator, tmp_path, steps_to_make=1700)
    job.submit()
    for step in (520, 1100):
        job.goes_on()
        work(agent, is_on=True)
        job.reaches(step)
        job.ranks()[1].kill()
        work(agent, is_on=False)
    job.goes_on()
    work(agent, is_on=True)
    job.reaches(1250)
    cap(operator, agent, job)
    wait_for(lambda: job.told()["state"] == "succeeded", "the end")

    attempts = sorted(job.told()["phases"][0]["attempts"], key=lambda each: int(each["number"]))
    assert [each["outcome"] for each in attempts] == ["failed", "failed", "succeeded"]
    truths = truth_of(attempts, [written(tmp_path / f"rank-{rank}.jsonl") for rank in range(RANKS)])
    # An event that goes on is written down once a minute: it is whole when it is over.
    work(agent, is_on=False)
    wait_for(lambda: events(operator, is_open=False), "the end of throttling")
    wait_for(lambda: not events(operator, is_open=True), "the end of all throttling")
    found = operator.get(f"/api/v1/jobs/{job.name}/goodput")["attempts"]
    told = {each["attempt"]: {c["cause"]: c["gpu_s"] for c in each["causes"]} for each in found}
    off = {
        (number, cause): (told[number].get(cause, 0.0) - truth.get(cause, 0.0)) / held_s(truth)
        for number, truth in truths.items()
        for cause in CAUSES
    }
    table = [
        f"{number} {cause}: {truths[number].get(cause, 0.0):.2f} s, told "
        f"{told[number].get(cause, 0.0):.2f} s, off by {100 * share:+.2f} %"
        for (number, cause), share in off.items()
    ]
    print("\n".join(table))
    assert {cause for causes in told.values() for cause in causes} <= set(CAUSES)
    assert {cause: share for cause, share in off.items() if abs(share) > BAR} == {}, table
    # And each of them was there to be found.
    assert truths[1]["synchronization"] > 0.1 * held_s(truths[1])
    assert truths[2]["data_wait"] > 0.1 * held_s(truths[2])
    assert truths[3]["capped"] > 0.1 * held_s(truths[3])
    assert min(truths[2]["repeated"], truths[3]["repeated"]) > 0.02 * held_s(truths[2])


def work(agent: RealAgent, *, is_on: bool) -> None:
    """Have the GPUs do something, or nothing: nobody is given one that works for others."""
    power_w = DRAWN_W if is_on else 40.0
    agent.machine.gpu(util=95 if is_on else 0, power_mw=int(power_w * 1e3))


def cap(operator: Client, agent: RealAgent, job: ForcedJob) -> None:
    """Cap the node; as a card does, its GPUs slow down once the limit is set."""
    operator.post(
        "/api/v1/restrictions",
        {
            "kind": "power_cap_w", "scope": {"kind": "node", "name": agent.name},
            "value": CAPPED_W, "reason": "a test", "for_s": 3600,
        },
    )  # fmt: skip
    wait_for(lambda: agent.machine.limit_w() == CAPPED_W, "the cap")
    agent.machine.gpu(sm_mhz=SLOW_MHZ)
    job.set_speed(SLOW_MHZ / FULL_MHZ)


def events(operator: Client, *, is_open: bool) -> list[Any]:
    answer = operator.get("/api/v1/throttle-events", {"open": str(int(is_open))})
    return list(answer["results"])


def held_s(causes: Mapping[str, float]) -> float:
    return sum(causes.values())


def truth_of(
    attempts: Sequence[Mapping[str, Any]], ranks: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[int, dict[str, float]]:
    """Return what the time of each attempt's GPUs went to, GPU-s, by what ranks wrote down.

    Of what was between its last step and its end nobody could tell anything.
    """
    found: dict[int, dict[str, float]] = {}
    reached = 0
    for attempt in attempts:
        causes: dict[str, float] = defaultdict(float)
        start, end = (_unix(attempt[name]) for name in ("dispatched_at", "ended_at"))
        for lines in ranks:
            own = [each for each in lines if start < each["at"] < end]
            begun = "starting" if attempt["number"] == 1 else "restarting"
            causes[begun] += own[0]["at"] - start
            for before, line in itertools.pairwise(own):
                _add(causes, line, line["at"] - before["at"], is_new=line["step"] > reached)
            causes["unknown"] += end - own[-1]["at"]
        reached = max(reached, max(each["step"] for each in own))
        found[int(attempt["number"])] = dict(causes)
    return found


def _add(causes: dict[str, float], line: Mapping[str, Any], took_s: float, *, is_new: bool) -> None:
    """Add what a rank's step went to."""
    if not is_new:
        causes["repeated"] += took_s
        return
    causes["outside_steps"] += line["saved_s"]
    causes["data_wait"] += line["data_s"]
    causes["synchronization"] += line["sync_s"]
    computed_s = took_s - line["saved_s"] - line["data_s"] - line["sync_s"]
    causes["capped"] += computed_s * (1.0 - line["speed"])
    causes["productive"] += computed_s * line["speed"]


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
