"""A real loop of two PyTorch ranks, as a job of a real server on a real agent, under directives."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from bench.stack import REPOSITORY, Stack, running
from headroom.client import Client
from tests.integration.faults.agents import RealAgent, enroll

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
)

_LIMIT_S = 90.0
_TRAIN = REPOSITORY / "examples" / "ddp" / "train.py"
_STEPS, _EVERY, _STEP_S = 1200, 20, 0.03
#: What rounding makes of losses when a batch is computed in parts.
_TOLERANCE = 1e-5


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("WORK_POLL_S", "0.3")
    with running() as started:
        yield started


@pytest.fixture
def operator(stack: Stack, tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "operator-token").write_text(stack.credential("operator_token"))
    with Client(stack.url, (tmp_path / "operator-token").read_text(), timeout_s=30) as client:
        yield client


@pytest.fixture
def agent(stack: Stack, operator: Client, tmp_path: Path) -> Iterator[RealAgent]:
    more = ("--allow-jobs", "--shared-user")
    (made,) = enroll(stack, tmp_path / "operator-token", tmp_path, 1, more=more)
    made.machine.gpu(util=0, power_mw=40_000)
    made.start()
    yield made
    made.close()


def wait_for(is_so: Callable[[], Any], what: str, limit_s: float = _LIMIT_S) -> Any:
    end = time.monotonic() + limit_s
    while not (found := is_so()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.1)
    return found


@dataclass
class Job:
    """The job of a test, what it wrote, and what its operator tells it."""

    operator: Client
    folder: Path
    name: str = "ddp"

    def arguments(self) -> list[str]:
        return [
            sys.executable, str(_TRAIN), "--steps", str(_STEPS), "--work", "1",
            "--checkpoint-every", str(_EVERY), "--checkpoints", str(self.folder / "checkpoints"),
            "--step-log", str(self.log),
        ]  # fmt: skip

    @property
    def log(self) -> Path:
        return self.folder / "steps.jsonl"

    def submit(self) -> None:
        phase = {
            "name": "train", "gang": {"gpus": 2}, "power": {"expected_peak_w": 200},
            "walltime_s": 600, "locality": {"required": "rack"},
            "restart": {"tolerance": "failure", "backoff_s": 1},
            "checkpoint": {"interval_s": 60},
            "throttling": {"responses": ["shrink-batch", "pause"], "min_batch_scale": 0.25},
            "env": {"PYTHONPATH": str(REPOSITORY)},
            "artifacts": {"image": f"sha256:{'0' * 64}", "code_revision": "0" * 40, "data": {}},
            "command": [*self.arguments(), "--step-s", str(_STEP_S)],
        }  # fmt: skip
        self.operator.post("/api/v1/projects", {"name": "loops"})
        spec = {
            "name": self.name, "project": "loops", "class": "low-power-experimentation",
            "phases": [phase],
        }  # fmt: skip
        self.operator.post("/api/v1/jobs", spec)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Return what it has written of its steps, without a line that is not whole yet."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines(True) if "\n" in line]

    @property
    def step(self) -> int:
        return int(self.steps[-1]["step"]) if self.steps else 0

    def goes_on(self) -> None:
        """See that it makes some more steps."""
        step = self.step
        wait_for(lambda: self.step >= step + 10, f"more steps than {step}")

    def tell(self, kind: str, **given: Any) -> int:
        (row,) = self.operator.post(
            f"/api/v1/jobs/{self.name}/directives", {"kind": kind, "reason": "a test", **given}
        )
        return int(row["id"])

    def take_back(self, directive: int) -> None:
        self.operator.post(f"/api/v1/directives/{directive}/withdraw", {"reason": "enough"})

    def ledger(self, directive: int) -> list[dict[str, Any]]:
        listed = self.operator.get(f"/api/v1/jobs/{self.name}/directives")
        (row,) = [each for each in listed if each["id"] == directive]
        return list(row["ledger"])

    def until(self, directive: int, line: str) -> str:
        """Wait for a line of a directive's ledger, and return what it says."""

        def found() -> str:
            lines = self.ledger(directive)
            return next((each["text"] or line for each in lines if each["kind"] == line), "")

        return str(wait_for(found, f"{line} of {directive}"))

    def ranks(self) -> list[psutil.Process]:
        """Return its ranks, the first one first, once both are up."""

        def found() -> list[psutil.Process]:
            lines = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]
            own = [p for p in lines if str(self.log) in p.info["cmdline"]]
            pids = {p.pid for p in own}
            made = [p for p in own if p.ppid() in pids]
            return made if len(made) == 2 else []

        return sorted(wait_for(found, "two ranks"), key=lambda p: p.pid)


@pytest.fixture
def job(operator: Client, tmp_path: Path) -> Job:
    return Job(operator, tmp_path)


def undisturbed(job: Job) -> dict[int, float]:
    """Return the losses of the same training without anybody about, by step."""
    alone = Job(job.operator, job.folder / "alone")
    alone.folder.mkdir()
    subprocess.run(alone.arguments(), check=True, timeout=_LIMIT_S)
    return {each["step"]: each["loss"] for each in alone.steps}


@pytest.mark.slow
def test_a_loop_shrinks_grows_pauses_goes_on_and_survives_the_loss_of_a_rank(
    job: Job, agent: RealAgent, stack: Stack
) -> None:
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
    agent.kill()
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
    wait_for(
        lambda: job.operator.get(f"/api/v1/jobs/{job.name}")["state"] == "succeeded", "the end"
    )

    for directive in (shrink, pause, save):
        job.until(directive, "verdict")
        kinds = [line["kind"] for line in job.ledger(directive)]
        assert kinds[:3] == ["issued", "acknowledged", "applied"]
        assert ("undone" in kinds) == (directive != save)
    assert_no_step_is_missing_or_repeated(job, killed_at)
    expected = undisturbed(job)
    off = max(abs(each["loss"] - expected[each["step"]]) for each in job.steps)
    assert off < _TOLERANCE
    assert_progress_was_stored(stack)


def assert_no_step_is_missing_or_repeated(job: Job, killed_at: int) -> None:
    """One attempt went on to where it was killed, the next from its last checkpoint to the end."""
    numbers = [each["step"] for each in job.steps]
    (again,) = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    assert numbers[:again] == list(range(1, numbers[again - 1] + 1))
    assert numbers[again - 1] >= killed_at
    assert numbers[again:] == list(range(numbers[again], _STEPS + 1))
    # As late as the newest checkpoint was: none is older than an interval.
    assert numbers[again - 1] - _EVERY < numbers[again] <= numbers[again - 1] + 1
    repeated = [number for number, times in Counter(numbers).items() if times > 1]
    assert repeated == list(range(numbers[again], numbers[again - 1] + 1))


def assert_progress_was_stored(stack: Stack) -> None:
    """The agent's reports of the loop's steps are in Postgres, losses and speeds with them."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        rows = connection.execute(
            "SELECT job.name, max(step), count(loss), max(samples_per_s), min(step_time_s) "
            "FROM job_sample JOIN telemetry_reportedjob AS job ON job.id = job_id GROUP BY 1"
        ).fetchall()
    ((name, step, losses, samples_per_s, step_s),) = rows
    assert name == "ddp/train"
    assert step > _STEPS - 5 / _STEP_S
    assert losses > 5
    assert samples_per_s > 100
    assert step_s >= _STEP_S * 0.9
