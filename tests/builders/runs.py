"""Runs of a command, as the matrix records them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from lab.matrix.checkpoints import Checkpoints
from lab.matrix.injecting import Normal
from lab.matrix.playing import Run, StepSeen
from lab.matrix.steps import Step

__all__ = ["make_run"]


def make_run(
    times: Sequence[float] = (),
    *,
    steps: Sequence[tuple[int, float, int]] = (),
    **more: Any,
) -> Run:
    """Return a run whose steps took so long each, s; the first one is at the run's zero.

    Or of ``steps``: the number of each, when it was made, s, and at which start.
    """
    at_s = accumulate(times[1:], initial=0.0) if times else ()
    given = steps or [(number, at, 0) for number, at in enumerate(at_s, start=1)]
    seen = [StepSeen(Step(number, 1.0), at, i) for number, at, i in given]
    length_s = seen[-1].at_s if seen else 0.0
    values: dict[str, Any] = {
        "steps": seen,
        "faults": [],
        "exits": [0],
        "starts": max((each.start for each in seen), default=0) + 1,
        "timed_out": False,
        "length_s": length_s,
        "wall_s": length_s,
        "checkpoints": Checkpoints({}, 0, ()),
        "normal": Normal(),
        "log": "",
    }
    return Run(**(values | more))
