"""A real loop of two PyTorch ranks, as a job of a real server on real agents, under directives."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.stack import Stack, running
from headroom.checkpoints import Store, restore
from headroom.client import Client
from tests.integration.agent.loops import (
    EXAMPLES,
    LIMIT_S,
    TOLERANCE,
    Job,
    assert_ledger_is_whole,
    off_by,
    undisturbed,
    wait_for,
    written,
)
from tests.integration.faults.agents import RealAgent, enroll

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
)

HOME, AWAY = "bergen", "oslo"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("WORK_POLL_S", "0.3")
    with running() as started:
        yield started


@pytest.fixture
def agents(stack: Stack, operator: Client, tmp_path: Path) -> Iterator[list[RealAgent]]:
    """One at each of two sites, the first of them at home."""
    more = ("--allow-jobs", "--shared-user")
    made = enroll(stack, tmp_path / "operator-token", tmp_path, 2, more=more, sites=(HOME, AWAY))
    for each in made:
        each.machine.gpu(util=0, power_mw=40_000)
        each.start()
    yield made
    for each in made:
        each.close()


class AtHome(Job):
    """Runs at home alone."""

    def phase(self) -> dict[str, Any]:
        return super().phase() | {"locality": {"required": "rack", "sites": [HOME]}}


@pytest.mark.slow
def test_a_loop_shrinks_grows_pauses_goes_on_and_survives_the_loss_of_a_rank(
    operator: Client, tmp_path: Path, agents: list[RealAgent], stack: Stack
) -> None:
    job = AtHome(operator, tmp_path, steps_to_make=1200)
    job.submit()
    wait_for(lambda: job.step >= 10, "the first steps")

    shrink = job.tell("set_batch_scale", value=0.5)
    applied = job.until(shrink, "applied")
    assert "after step" in applied
    job.goes_on()
    assert job.steps[-1]["parts"] == 2
    job.take_back(shrink)
    job.until(shrink, "undone")
    job.goes_on()
    assert job.steps[-1]["parts"] == 1

    pause = job.tell("pause")
    paused_after = int(job.until(pause, "applied").rpartition(" ")[2])
    assert job.step == paused_after
    agents[0].kill()
    time.sleep(1.0)
    assert job.step == paused_after
    job.take_back(pause)
    job.until(pause, "undone")
    job.goes_on()

    save = job.tell("checkpoint")
    saved_after = int(job.until(save, "applied").rpartition(" ")[2])
    assert (job.folder / "checkpoints" / f"step-{saved_after:06d}.pt").exists()
    job.goes_on()

    killed_at = job.step
    job.ranks()[1].kill()
    wait_for(lambda: job.told()["state"] == "succeeded", "the end")

    for directive in (shrink, pause, save):
        assert_ledger_is_whole(job, directive, lasts=directive != save)
    assert_no_step_is_missing_or_repeated(job, killed_at)
    assert off_by(job.steps, undisturbed(tmp_path, *job.options())) < TOLERANCE
    assert_progress_was_stored(stack, job)


def assert_no_step_is_missing_or_repeated(job: Job, killed_at: int) -> None:
    """One attempt went on to where it was killed, the next from its last checkpoint to the end."""
    numbers = [each["step"] for each in job.steps]
    (again,) = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    assert numbers[:again] == list(range(1, numbers[again - 1] + 1))
    assert numbers[again - 1] >= killed_at
    assert numbers[again:] == list(range(numbers[again], job.steps_to_make + 1))
    # As late as the newest checkpoint was: none is older than an interval.
    assert numbers[again - 1] - job.every < numbers[again] <= numbers[again - 1] + 1
    repeated = [number for number, times in Counter(numbers).items() if times > 1]
    assert repeated == list(range(numbers[again], numbers[again - 1] + 1))


def assert_progress_was_stored(stack: Stack, job: Job) -> None:
    """The agent's reports of the loop's steps are in Postgres, losses and speeds with them."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        rows = connection.execute(
            "SELECT job.name, max(step), count(loss), max(samples_per_s), min(step_time_s) "
            "FROM job_sample JOIN telemetry_reportedjob AS job ON job.id = job_id GROUP BY 1"
        ).fetchall()
    ((name, step, losses, samples_per_s, step_s),) = rows
    assert name == "ddp/train"
    assert step > job.steps_to_make - 5 / job.step_s
    assert losses > 5
    assert samples_per_s > 100
    assert step_s >= job.step_s * 0.9


@dataclass
class Travelling(AtHome):
    """Keeps its checkpoints at its site and sends them to the other one, whichever it is at."""

    @property
    def log(self) -> Path:
        return self.log_at("fault-n1" if not self.has_moved else "fault-n2")

    def log_at(self, node: str) -> Path:
        return self.folder / f"steps-{node}.jsonl"

    @property
    def has_moved(self) -> bool:
        return self.log_at("fault-n2").exists()

    def store_at(self, node: str) -> Path:
        """Return the store at the site of a node."""
        return self.folder / f"store-{node}"

    def command(self) -> list[str]:
        """Return a command that is the same at both sites: machines know which one they are."""
        store = f"{self.folder}/store-"
        train = shlex.join([sys.executable, str(EXAMPLES / "kept.py")])
        options = shlex.join([*self.options(), *self.pace()])
        script = (
            f"case $HEADROOM_NODES in fault-n1) to=fault-n2 site={AWAY};; "
            f"*) to=fault-n1 site={HOME};; esac\n"
            f"exec {sys.executable} -m headroom checkpoints keep {store}$HEADROOM_NODES "
            f"--to {store}$to --to-site $site -- {train} {options} "
            f"--checkpoints {store}$HEADROOM_NODES "
            f"--step-log {self.folder}/steps-$HEADROOM_NODES.jsonl"
        )
        return ["/bin/sh", "-c", script]

    def phase(self) -> dict[str, Any]:
        told = super().phase()
        told["throttling"]["responses"].append("migrate")
        return told


def kill_server(stack: Stack) -> None:
    for service in ("web", "worker", "beat"):
        stack.kill(service)


@pytest.mark.slow
def test_a_loop_survives_the_server_and_a_rank_and_goes_on_at_another_site(
    operator: Client, tmp_path: Path, agents: list[RealAgent], stack: Stack
) -> None:
    job = Travelling(operator, tmp_path, steps_to_make=6000)
    job.submit()
    wait_for(lambda: job.step >= 10, "the first steps")

    # The server dies with a directive that nobody has heard of yet.
    shrink = job.tell("set_batch_scale", value=0.5)
    kill_server(stack)
    job.goes_on()
    stack.wait_ready()
    assert "after step" in job.until(shrink, "applied")
    job.goes_on()
    assert job.steps[-1]["parts"] == 2
    job.take_back(shrink)
    job.until(shrink, "undone")
    job.goes_on()
    assert job.steps[-1]["parts"] == 1

    # And while ranks stand still.
    pause = job.tell("pause")
    paused_after = int(job.until(pause, "applied").rpartition(" ")[2])
    kill_server(stack)
    agents[0].kill()
    stack.wait_ready()
    assert job.step == paused_after
    job.take_back(pause)
    job.until(pause, "undone")
    job.goes_on()

    killed_at = job.step
    job.ranks()[1].kill()
    wait_for(lambda: job.step > killed_at + job.every, "steps of the next attempt")

    # Nothing says that its checkpoints are elsewhere but the keeper, who has seen them there.
    wait_for(lambda: job.known_at(AWAY) > killed_at, "a checkpoint at the other site")
    job.operator.post(
        "/api/v1/restrictions",
        {
            "kind": "drain", "scope": {"kind": "site", "name": HOME}, "reason": "maintenance",
            "for_s": 7200,
        },
    )  # fmt: skip
    wait_for(lambda: job.has_moved, "the other site")
    job.goes_on()
    wait_for(lambda: job.told()["state"] == "succeeded", "the end", 6 * LIMIT_S)

    assert job.known_at(HOME) == job.steps_to_make
    for directive in (shrink, pause):
        assert_ledger_is_whole(job, directive, lasts=True)
    assert_it_left_for_a_verified_checkpoint(job)
    assert_it_went_on_at_the_next_step(job, killed_at)
    steps = [*written(job.log_at("fault-n1")), *written(job.log_at("fault-n2"))]
    assert off_by(steps, undisturbed(tmp_path, *job.options())) < TOLERANCE


def assert_it_left_for_a_verified_checkpoint(job: Travelling) -> None:
    """One directive had it leave, its ledger is whole, and its cause is what a keeper has told."""
    (leave,) = [each for each in job.directives() if each["kind"] == "resume_at_site"]
    job.until(leave["id"], "verdict")
    kinds = [line["kind"] for line in job.ledger(leave["id"])]
    assert kinds == ["issued", "applied", "verdict"]
    assert leave["owner"] == "fallback"
    assert f"is whole at {AWAY}, verified" in leave["reason"]
    first, second, third = sorted(
        job.told()["phases"][0]["attempts"], key=lambda each: int(each["number"])
    )
    assert [each["outcome"] for each in (first, second, third)] == [
        "failed", "preempted", "succeeded",
    ]  # fmt: skip


def assert_it_went_on_at_the_next_step(job: Travelling, killed_at: int) -> None:
    """At home it was killed once and then left; there it began with the step after that."""
    numbers = [each["step"] for each in written(job.log_at("fault-n1"))]
    (again,) = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    assert numbers[:again] == list(range(1, numbers[again - 1] + 1))
    assert numbers[again - 1] >= killed_at
    assert numbers[again - 1] - job.every < numbers[again] <= numbers[again - 1] + 1
    left_at = numbers[-1]
    assert numbers[again:] == list(range(numbers[again], left_at + 1))
    there = [each["step"] for each in written(job.log_at("fault-n2"))]
    assert there == list(range(left_at + 1, job.steps_to_make + 1))
    assert ranks_left_at(job, left_at) == [left_at, left_at]


def ranks_left_at(job: Travelling, step: int) -> list[int]:
    """Return at which step each rank wrote its part of the checkpoint with which they left."""
    store, folder = Store.at(job.store_at("fault-n1")), job.folder / "left"
    (name,) = [each for each in store.names() if each.step == step]
    restore(store, folder, name.run, name=name)
    return [json.loads(path.read_bytes())["step"] for path in sorted(folder.glob("rank-*.json"))]
