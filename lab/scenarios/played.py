"""The result of one run of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.matrix.result import Measure, Series

__all__ = ["Played"]


@dataclass(frozen=True)
class Played:
    """A run that came to its end. ``losses`` has the last loss of each job that is done."""

    series: tuple[Series, ...]
    measures: tuple[Measure, ...]
    losses: Mapping[str, float]
    #: useful work after the warm-up
    work_gpu_s: float
    #: what two runs have alike that decided the same and came to the same
    digest: str
    log: str
