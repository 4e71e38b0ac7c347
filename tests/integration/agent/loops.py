"""Training loops as jobs of a real server on real agents: told by their operator, and looked at."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.stack import REPOSITORY
from headroom.client import Client

LIMIT_S = 300.0
EXAMPLES = REPOSITORY / "examples" / "ddp"
#: What rounding makes of losses when a batch is computed in parts, as a share of them: it makes
#: 0.00001. A momentum that is forgotten at step 1326 makes 0.02.
TOLERANCE = 1e-3


def wait_for(is_so: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    end = time.monotonic() + limit_s
    while not (found := is_so()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.1)
    return found


def written(log: Path) -> list[dict[str, Any]]:
    """Return what a loop has written of its steps, without a line that is not whole yet."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines(True) if "\n" in line]


def undisturbed(folder: Path, *options: str) -> dict[int, float]:
    """Return the losses of the same training without anybody about, by step."""
    log = folder / "alone.jsonl"
    command = [sys.executable, str(EXAMPLES / "train.py"), *options, "--step-log", str(log)]
    subprocess.run(
        [*command, "--checkpoints", str(folder / "alone")], check=True, timeout=4 * LIMIT_S
    )
    return {each["step"]: each["loss"] for each in written(log)}


@dataclass
class Job:
    """The job of a test, what it wrote, and what its operator tells it."""

    operator: Client
    folder: Path
    steps_to_make: int
    name: str = "ddp"
    every: int = 20
    step_s: float = 0.03

    def options(self) -> list[str]:
        """Return what the losses depend on."""
        return ["--steps", str(self.steps_to_make), "--work", "1"]

    def command(self) -> list[str]:
        return [
            sys.executable, str(EXAMPLES / "train.py"), *self.options(), *self.pace(),
            "--checkpoints", str(self.folder / "checkpoints"), "--step-log", str(self.log),
        ]  # fmt: skip

    def pace(self) -> list[str]:
        return ["--checkpoint-every", str(self.every), "--step-s", str(self.step_s)]

    @property
    def log(self) -> Path:
        return self.folder / "steps.jsonl"

    def phase(self) -> dict[str, Any]:
        return {
            "name": "train", "gang": {"gpus": 2}, "power": {"expected_peak_w": 200},
            "walltime_s": 3600, "locality": {"required": "rack"},
            "restart": {"tolerance": "failure", "backoff_s": 1},
            "checkpoint": {"interval_s": 60},
            "throttling": {"responses": ["shrink-batch", "pause"], "min_batch_scale": 0.25},
            "env": {"PYTHONPATH": str(REPOSITORY)},
            "artifacts": {"image": f"sha256:{'0' * 64}", "code_revision": "0" * 40, "data": {}},
            "command": self.command(),
        }  # fmt: skip

    def submit(self) -> None:
        self.operator.post("/api/v1/projects", {"name": "loops"})
        spec = {
            "name": self.name, "project": "loops", "class": "low-power-experimentation",
            "phases": [self.phase()],
        }  # fmt: skip
        self.operator.post("/api/v1/jobs", spec)

    def told(self) -> dict[str, Any]:
        """Return what the server says of it."""
        return dict(self.operator.get(f"/api/v1/jobs/{self.name}"))

    def known_at(self, site: str) -> int:
        """Return the step of its checkpoint that is known to be whole at a site."""
        found = [each["step"] for each in self.told()["checkpoints"] if each["site"] == site]
        return found[0] or 0 if found else 0

    @property
    def steps(self) -> list[dict[str, Any]]:
        return written(self.log)

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

    def directives(self) -> list[dict[str, Any]]:
        return list(self.operator.get(f"/api/v1/jobs/{self.name}/directives"))

    def ledger(self, directive: int) -> list[dict[str, Any]]:
        (row,) = [each for each in self.directives() if each["id"] == directive]
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
            # Who started them has the same line.
            parents = {p.ppid() for p in own}
            made = [p for p in own if p.pid not in parents]
            return made if len(made) == 2 else []

        return sorted(wait_for(found, "two ranks"), key=lambda p: p.pid)


def assert_ledger_is_whole(job: Job, directive: int, *, lasts: bool) -> None:
    """Each of its lines is there, in order, and what lasts was undone."""
    job.until(directive, "verdict")
    kinds = [line["kind"] for line in job.ledger(directive)]
    assert kinds[:3] == ["issued", "acknowledged", "applied"]
    assert ("undone" in kinds) == lasts


def off_by(steps: list[dict[str, Any]], expected: dict[int, float]) -> float:
    """Return how far any step's loss is from the expected one of that step, as a share of it."""
    return max(abs(float(each["loss"]) / expected[each["step"]] - 1.0) for each in steps)
