"""What a job does in a second by its number of GPUs, as measured, and what another size would do.

Nothing is taken from a table. Sizes at which the job has run for long enough count as measured;
between and beyond two of them stands Amdahl's law through both, and from three on the Universal
Scalability Law (:mod:`physics.scaling`). Until there are two, the caller's own law counts, and
:class:`Expected` says so. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headroom.jobs.words import counted, lasting
from physics.errors import UnfittableError
from physics.scaling import fit_usl, usl_speedup

__all__ = [
    "BEGINS_S",
    "KEEPS_S",
    "SETTLED_S",
    "Basis",
    "Curve",
    "Expected",
    "Measured",
    "Unit",
    "noted",
]

Floats = npt.NDArray[np.float64]

#: What an attempt does so soon after its first work is left out, s: its first steps are slower.
BEGINS_S = 60.0
#: A size counts once it was measured for so long, s.
SETTLED_S = 240.0
#: The mean of a size is over no more than about so long, s: a job changes as it goes on.
KEEPS_S = 3600.0


class Unit(enum.StrEnum):
    """What a job's throughput is counted in: the first of these that its loop reports."""

    SAMPLES = "samples"
    TOKENS = "tokens"
    #: only where the batch is the same at every size
    STEPS = "steps"


class Basis(enum.StrEnum):
    """On what an expected throughput rests."""

    MEASURED = "measured"
    AMDAHL = "amdahl"
    USL = "usl"
    #: the law of whoever asks: too few sizes were measured
    PRIOR = "prior"


@dataclass(frozen=True)
class Measured:
    """The mean throughput at one size, a second, and for how long it was measured, s."""

    gpus: int
    per_s: float
    for_s: float

    @property
    def is_settled(self) -> bool:
        return self.for_s >= SETTLED_S and self.per_s > 0.0


@dataclass(frozen=True)
class Expected:
    """The throughput at ``gpus`` beside that at ``have`` GPUs: 1.0 is as much."""

    have: int
    gpus: int
    ratio: float
    basis: Basis
    #: at how many sizes the job was measured
    sizes: int

    @property
    def added_yield(self) -> float:
        """What an added GPU does beside one that it has: 1.0 is as much, below 0 it slows all."""
        return (self.ratio - 1.0) / (self.gpus / self.have - 1.0)

    def told(self) -> str:
        """Return the expectation and on what it rests, as in "1.9 times the work (measured…)"."""
        return f"{self.ratio:.2f} times the work ({self._rests_on()})"

    def _rests_on(self) -> str:
        if self.basis is Basis.MEASURED:
            return f"measured on {self.have} and on {self.gpus}"
        law = {Basis.AMDAHL: "Amdahl's law", Basis.USL: "the Universal Scalability Law"}
        if self.basis in law:
            return f"{law[self.basis]} through {self.sizes} measured sizes"
        return "by its stated communication alone: it was measured at too few sizes"


@dataclass(frozen=True)
class Curve:
    """The measured sizes of one job, the smallest first."""

    points: tuple[Measured, ...] = ()
    unit: Unit = Unit.SAMPLES

    @cached_property
    def _settled(self) -> tuple[Measured, ...]:
        return tuple(each for each in self.points if each.is_settled)

    @staticmethod
    def of(points: Iterable[Measured], unit: Unit = Unit.SAMPLES) -> Curve:
        return Curve(tuple(sorted(points, key=lambda each: each.gpus)), unit)

    @property
    def is_known(self) -> bool:
        """Whether enough sizes were measured for a law through them."""
        return len(self._settled) > 1

    def told(self) -> str:
        """Return what was measured, in words: "100 samples/s on 1 GPU over 30 min, …"."""
        return ", ".join(
            f"{_figure(each.per_s)} {self.unit}/s on {counted(each.gpus, 'GPU')}"
            f" over {lasting(each.for_s)}{'' if each.is_settled else ' (too short to count)'}"
            for each in self.points
        )

    def at(self, gpus: int) -> Measured | None:
        """Return what was measured at a size for long enough."""
        return next((each for each in self._settled if each.gpus == gpus), None)

    def below(self, gpus: int) -> tuple[Measured, ...]:
        """Return the smaller sizes that were measured for long enough, the largest first."""
        return tuple(each for each in reversed(self._settled) if each.gpus < gpus)

    def expected(self, have: int, gpus: int, *, prior: float) -> Expected:
        """Return the throughput at ``gpus`` beside that at ``have``; ``prior`` counts until then.

        ``prior`` is the ratio by the law of whoever asks.
        """
        sizes = len(self._settled)
        here, there = self.at(have), self.at(gpus)
        if here is not None and there is not None:
            return Expected(have, gpus, there.per_s / here.per_s, Basis.MEASURED, sizes)
        law = self._law
        if law is None:
            return Expected(have, gpus, prior, Basis.PRIOR, sizes)
        contention, coherency, basis = law
        speedup = usl_speedup(
            gpus=np.array([have, gpus], dtype=np.float64), contention=contention,
            coherency=coherency,
        )  # fmt: skip
        return Expected(have, gpus, float(speedup[1] / speedup[0]), basis, sizes)

    @cached_property
    def _law(self) -> tuple[float, float, Basis] | None:
        """Return contention, coherency and the name of the law through the measured sizes."""
        gpus = np.array([each.gpus for each in self._settled], dtype=np.float64)
        per_s = np.array([each.per_s for each in self._settled], dtype=np.float64)
        if len(gpus) < 2:
            return None
        if len(gpus) == 2:
            return _contention(gpus, per_s), 0.0, Basis.AMDAHL
        try:
            found = fit_usl(gpus=gpus, throughput=per_s)
        except UnfittableError:
            return _contention(gpus[-2:], per_s[-2:]), 0.0, Basis.AMDAHL
        return float(found.contention), float(found.coherency), Basis.USL


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 100.0 else f"{number:.3g}"


def _contention(gpus: Floats, per_s: Floats) -> float:
    """Return the contention of Amdahl's law through two sizes, at least 0.

    ``N / X(N) = (1 + a (N - 1)) / X₁`` is a line in N. Where the larger size does no more than the
    smaller one, no contention is enough: then more GPUs add next to nothing.
    """
    time = gpus / per_s
    slope = (time[1] - time[0]) / (gpus[1] - gpus[0])
    alone = time[0] - slope * (gpus[0] - 1.0)
    if alone <= 0.0:
        return _ALL_OF_IT
    return max(float(slope / alone), 0.0)


#: Of work that all GPUs have to wait for one another in: 1 % would still be won by more than that.
_ALL_OF_IT = 1e6


def noted(before: Measured, per_s: float, for_s: float) -> Measured:
    """Return the mean with ``for_s`` seconds more at ``per_s``; older ones fade (KEEPS_S)."""
    weight = min(before.for_s, KEEPS_S - for_s) if for_s < KEEPS_S else 0.0
    mean = (before.per_s * weight + per_s * for_s) / (weight + for_s)
    return replace(before, per_s=mean, for_s=before.for_s + for_s)
