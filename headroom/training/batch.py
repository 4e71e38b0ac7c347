"""What a rank computes in one step, and at a time, under a scale of its batch. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

__all__ = ["Batch", "LrChoice", "LrRule", "Part", "Plan"]

#: What a product of shares may be off by before it counts as less than a whole row.
_EXACT = 1e-9


class LrRule(enum.StrEnum):
    """How the learning rate follows a smaller global batch."""

    #: as the batch
    LINEAR = "linear"
    #: as the root of the batch
    SQRT = "sqrt"
    #: it stays
    KEEP = "keep"


#: A rule, or a function from the share of the global batch to the factor of the learning rate.
LrChoice: TypeAlias = LrRule | Callable[[float], float]


@dataclass(frozen=True)
class Part:
    """Rows of a rank's batch that it computes at a time. ``weight`` is their share of that batch.

    The gradient of the batch is the sum over its parts of the mean gradient of each times its
    weight. Ranks need to exchange gradients after the part that ``is_last`` alone.
    """

    rows: slice
    weight: float
    is_last: bool


@dataclass(frozen=True)
class Plan:
    """A rank's batch under ``scale``: ``rows`` for each step, at most ``at_once`` at a time.

    ``lr_factor`` is what the learning rate is multiplied with.
    """

    scale: float
    rows: int
    at_once: int
    lr_factor: float = 1.0

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of a batch, of nearly equal size."""
        count = math.ceil(self.rows / self.at_once)
        ends = [number * self.rows // count for number in range(count + 1)]
        return tuple(
            Part(slice(begin, end), (end - begin) / self.rows, end == self.rows)
            for begin, end in pairwise(ends)
        )


@dataclass(frozen=True)
class Batch:
    """The batch of a rank: ``rows`` in each step, ``at_once`` of them at a time (0: all).

    With ``is_constant`` a smaller scale computes fewer rows at a time and as many in a step: the
    gradient is that of before. Otherwise a step has fewer rows, and ``lr`` says what becomes of the
    learning rate. Raises ValueError, which names the field.
    """

    rows: int
    at_once: int = 0
    is_constant: bool = True
    lr: LrChoice = LrRule.LINEAR

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows has to be at least 1, and is {self.rows}")
        if not 0 <= self.at_once <= self.rows:
            raise ValueError(
                f"at_once has to be between 1 and rows ({self.rows}), or 0 for all of them, "
                f"and is {self.at_once}"
            )
        if not callable(self.lr):
            LrRule(self.lr)

    def under(self, scale: float) -> Plan:
        """Return the plan under ``scale``, a share above 0 and at most 1. Raises ValueError."""
        if not 0 < scale <= 1:
            raise ValueError(f"scale has to be above 0 and at most 1, and is {scale:g}")
        at_once = self.at_once or self.rows
        if self.is_constant:
            return Plan(scale, self.rows, max(1, math.floor(at_once * scale + _EXACT)))
        rows = max(1, math.floor(self.rows * scale + _EXACT))
        return Plan(scale, rows, min(at_once, rows), self._factor(rows / self.rows))

    def _factor(self, share: float) -> float:
        if callable(self.lr):
            return self.lr(share)
        match LrRule(self.lr):
            case LrRule.LINEAR:
                return share
            case LrRule.SQRT:
                return math.sqrt(share)
            case LrRule.KEEP:
                return 1.0
