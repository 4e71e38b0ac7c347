"""People who answer the questions of playbooks, each after a while of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lab.training.noise import seed_of, standard_normal, uniform

Answer = Literal["approve", "reject"]

#: How much answers differ: one in six takes more than e**0.6, 1.8 times the median.
_SPREAD = 0.6


@dataclass
class Operators:
    """Operators on duty: half of their answers come within ``delay_s`` after the question.

    Delays are log-normal. ``approves`` is the share of questions that are approved, or says so of
    each. The same ``seed`` and question give the same answer and delay, whatever else is asked.
    """

    seed: int
    delay_s: float
    approves: float | Callable[[str], bool] = 1.0
    _asked_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.delay_s < np.inf:
            raise ValueError(f"delay_s: must be at least 0 and finite, not {self.delay_s}")
        if not callable(self.approves) and not 0.0 <= self.approves <= 1.0:
            raise ValueError(f"approves: must be a share from 0 to 1, not {self.approves}")

    def answer(self, step: str, now_s: float) -> Answer | None:
        """Return the answer to ``step`` at ``now_s``; None: nobody has answered yet.

        ``step`` names one question: a run and its step. It counts as asked when it is first seen.
        """
        asked_s = self._asked_s.setdefault(step, now_s)
        if now_s < asked_s + self.delay_of(step):
            return None
        return "approve" if self._says_yes(step) else "reject"

    def delay_of(self, step: str) -> float:
        """Return how long the answer to ``step`` takes."""
        drawn = standard_normal(seed_of(self.seed, step), np.zeros(1, dtype=np.uint64))
        return self.delay_s * float(np.exp(_SPREAD * drawn[0]))

    def _says_yes(self, step: str) -> bool:
        if callable(self.approves):
            return self.approves(step)
        drawn = uniform(seed_of(self.seed, step), np.array([7], dtype=np.uint64))
        return bool(drawn[0] < self.approves)
