"""The example under what a test forces on it; each rank writes down what its time went to.

Until a step of the plan its ranks wait for data, one of them is slower than the other, or the GPUs
run at the speed that stands in a file. ``forced.py PLAN …``: PLAN is the JSON of a Plan.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import msgspec

from bench.stack import REPOSITORY
from headroom import training
from tests.integration.agent.plans import Plan

sys.path.insert(0, str(REPOSITORY / "examples" / "ddp"))

import train

__all__ = ["Forced"]


class Forced(train.Trainer):
    """A rank that does as the plan says, and writes each step into a file of its own."""

    plan: Plan
    saved_s = 0.0

    def resume(self) -> None:
        super().resume()
        self.write_down(begun=True)

    def make_step(self, run: training.Session) -> tuple[float, float]:
        began_s = time.perf_counter()
        with run.section(training.Section.DATA_LOADING):
            time.sleep(self.plan.data.at(self.step))
        data_s, speed = time.perf_counter() - began_s, self.plan.speed()
        slower_s = self.plan.straggler.at(self.step) if self.rank == 1 else 0.0
        time.sleep((self.plan.compute_s + slower_s) / speed)
        loss, sync_s = super().make_step(run)
        saved_s, self.saved_s = self.saved_s, 0.0
        self.write_down(data_s=data_s, sync_s=sync_s, saved_s=saved_s, speed=speed)
        return loss, sync_s

    def save(self, step: int) -> None:
        began_s = time.perf_counter()
        super().save(step)
        self.saved_s += time.perf_counter() - began_s

    def write_down(self, **facts: float) -> None:
        """Write a line: the step that is made, the moment, and what went on since the last one."""
        line = {"step": self.step + 1, "at": time.time(), **facts}
        with (Path(self.plan.folder) / f"rank-{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    Forced.plan = msgspec.json.decode(sys.argv.pop(1), type=Plan)
    sys.exit(train.main(Forced))
