"""Power curves of GPUs, fitted to jobs under power limits, and the slowdown that they promise.

The rule, written down before the first run (docs/reference/physics/power.md gives its results):

- Data: the power traces of Zeus (NSDI '23): time of an epoch and mean power of training jobs, each
  a data set, network, batch size and optimizer, under 6 to 9 limits on one card.
- Fitted are V100 and A40 with every other network in the order of their names: BERT, NCF,
  ShuffleNet. Unseen stay DeepSpeech 2 and ResNet-50 on these two, and the cards P100 and RTX 6000
  with all networks: for them counts what is built in for a GPU that nobody has measured.
- Full speed is that under the highest limit. A higher limit never makes a job slower, so speeds are
  the closest that rise with the limit (isotonic regression): epochs of small jobs scatter by 10 %.
- A curve is fitted by least squares of speeds at limits to jobs that some limit holds: their draw
  comes within 10 % of it. A job's peak is its mean draw under the highest limit. Errors are those
  of the jackknife over jobs. The built-in curve for other GPUs is that of both cards together.
- The margin at a slowdown is how many times the cap by the curve jobs need, at the level that keeps
  19 of 20 jobs of the same kind within it whatever their distribution: the ceil(0.95 (n + 1))-th of
  n (split conformal), at least 1, and at least that of the slowdowns beside it. Both cards count
  together. For the built-in curve, each card by
  the curve of the other one, at caps of half of the rating and more, which is where it may be used;
  two cards do not say how cards differ, so there the job that needs most counts.
- A job states its mean draw, or nothing (its rating counts), and agrees to 5 to 50 %. Slowed too
  much is a job whose measured speed under the cap, between limits on a line, is below what it
  agreed to by more than what a reading of four digits leaves open.
- The bar: at most 5 % of the jobs that a limit holds, of each card's unseen part, and of each card,
  for each slowdown.

docs/reference/physics/power.md says what the first run on the unseen part showed, and what was
changed after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, least_squares

from lab.calibration.sources import POWER_LIMITS, NoData
from physics.hardware import CURRENT, PowerCurveReference
from physics.hardware.entries import UNMEASURED
from physics.power import gpu_power_w, throughput_under_cap
from physics.power.agreed import UNTOLD_SHARE

__all__ = [
    "BAR_SHARE",
    "CARDS",
    "FITTED_NETWORKS",
    "CappedJob",
    "Card",
    "Fit",
    "Share",
    "built_in",
    "card_jobs",
    "fitted",
    "judged",
    "told",
]

Array = NDArray[np.float64]

#: At most this share of jobs may be slowed by more than they agreed to.
BAR_SHARE = 0.05
SLOWDOWNS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
FITTED_NETWORKS = ("bert_base_uncased", "ncf", "shufflenetv2")
#: A draw of this share of a limit is held by it.
_HELD_SHARE = 0.9
#: Caps below this share of the rating are not set on the word of a curve of other GPUs.
_UNMEASURED_FROM_SHARE = 0.5
_SPEED_ROUNDING = 1e-4
_MEANS = (pl.col("time_per_epoch").mean(), pl.col("average_power").mean())


@dataclass(frozen=True)
class Card:
    """One GPU that was measured: the name of its file, its name in inventories, its rating."""

    file: str
    name: str
    rated_w: float
    #: its networks of ``FITTED_NETWORKS`` are fitted
    fitted: bool

    @property
    def data_set(self) -> str:
        """Return the name of the folder that holds its measurements."""
        return POWER_LIMITS if self.fitted else f"{POWER_LIMITS}-others"


CARDS = (
    Card("v100", "V100", 250.0, True),
    Card("a40", "A40", 300.0, True),
    Card("p100", "P100", 250.0, False),
    Card("rtx6000", "RTX 6000", 260.0, False),
)


@dataclass(frozen=True, eq=False)
class CappedJob:
    """One job under each power limit of a card, W: speeds over that of the highest, mean draws."""

    card: Card
    network: str
    limits_w: Array
    speeds: Array
    power_w: Array

    @property
    def peak_w(self) -> float:
        return float(self.power_w[-1])

    @property
    def held(self) -> bool:
        """Say whether some limit holds it."""
        return bool((self.power_w > _HELD_SHARE * self.limits_w).any())

    @property
    def unseen(self) -> bool:
        return not (self.card.fitted and self.network in FITTED_NETWORKS)

    def speed(self, cap_w: float) -> float:
        """Return its measured speed under a cap, between limits on a line."""
        return float(np.interp(cap_w, self.limits_w, self.speeds))

    def needed_w(self, slowdown: float) -> float:
        """Return the lowest cap that leaves it so much speed, 0 where all limits do."""
        slowed = np.flatnonzero(self.speeds < 1.0 - slowdown)
        if not len(slowed):
            return 0.0
        last = slowed[-1]
        ends = slice(last, last + 2)
        return float(np.interp(1.0 - slowdown, self.speeds[ends], self.limits_w[ends]))


@dataclass(frozen=True)
class Fit:
    """A power curve in shares of the rating, each with its standard error, and its rms error."""

    static_share: float
    linear_share: float
    exponent: float
    errors: tuple[float, float, float]
    #: of speeds, as a share of full speed
    rms_share: float
    jobs: int

    def cap_w(self, job: CappedJob, stated_w: float, slowdown: float) -> float:
        """Return the cap by the curve alone, without a margin, W."""
        rated_w = job.card.rated_w
        full_w = stated_w + UNTOLD_SHARE * (rated_w - stated_w)
        static_w = min(self.static_share * rated_w, full_w)
        return float(
            gpu_power_w(
                static_w=static_w,
                dynamic_w=full_w - static_w,
                relative_throughput=1.0 - slowdown,
                exponent=self.exponent,
                linear_share=self.linear_share,
            )
        )


@dataclass(frozen=True)
class Share:
    """The jobs of a card that are slowed by more than they agreed to, of so many."""

    card: str
    curve: str
    part: str
    stated: str
    slowdown: float
    slowed: int
    jobs: int
    #: the mean cap as a share of what the jobs draw, 1 where none is set
    cap_share: float

    @property
    def share(self) -> float:
        return self.slowed / self.jobs

    @property
    def holds(self) -> bool:
        return self.share <= BAR_SHARE

    @property
    def counts(self) -> bool:
        """Say whether the bar is for it: jobs that no limit holds would make it easy."""
        return self.part != "all"


def card_jobs(data: Path, card: Card) -> list[CappedJob]:
    """Return the jobs of one card. Raises :class:`NoData`."""
    path = data / card.data_set / f"summary_power_{card.file}.csv"
    if not path.exists():
        raise NoData(path)
    rows = pl.read_csv(path)
    found = []
    key = ["dataset", "network", "batch_size", "optimizer"]
    for (_, network, *_), part in sorted(rows.group_by(key), key=lambda each: str(each[0])):
        runs = part.group_by("power_limit").agg(_MEANS).sort("power_limit")
        limits_w, time_s, power_w = (
            runs[column].to_numpy().astype(np.float64)
            for column in ("power_limit", "time_per_epoch", "average_power")
        )
        rising = np.asarray(isotonic_regression(time_s[-1] / time_s).x)
        found.append(CappedJob(card, str(network), limits_w, rising / rising[-1], power_w))
    return found


# --- The fit -------------------------------------------------------------------------------------


def fitted(jobs: Sequence[CappedJob]) -> Fit:
    """Return the curve that comes closest to the speeds of jobs that limits hold."""
    held = [each for each in jobs if each.held and not each.unseen]
    best, rms = _least(held)
    left_out = np.array([_least(held[:at] + held[at + 1 :])[0] for at in range(len(held))])
    spread = left_out - left_out.mean(axis=0)
    errors = np.sqrt((len(held) - 1) / len(held) * (spread**2).sum(axis=0))
    static, linear, exponent = best.tolist()
    return Fit(static, linear, exponent, tuple(errors.tolist()), rms, len(held))


def _least(jobs: Sequence[CappedJob]) -> tuple[Array, float]:
    limits_w = np.concatenate([each.limits_w for each in jobs])
    speeds = np.concatenate([each.speeds for each in jobs])
    runs = [len(each.limits_w) for each in jobs]
    peak_w = np.repeat([each.peak_w for each in jobs], runs)
    rated_w = np.repeat([each.card.rated_w for each in jobs], runs)

    def off(terms: Array) -> Array:
        static_w = np.minimum(terms[0] * rated_w, 0.95 * peak_w)
        told = throughput_under_cap(
            cap_w=limits_w,
            static_w=static_w,
            dynamic_w=peak_w - static_w,
            linear_share=float(terms[1]),
            exponent=float(terms[2]),
        )
        return np.asarray(told - speeds)

    bounds = ([0.0, 0.0, 1.0], [0.6, 1.0, 25.0])
    found = least_squares(off, [0.3, 0.3, 6.0], bounds=bounds, x_scale=[0.1, 0.1, 3.0])
    return np.asarray(found.x), float(np.sqrt(np.mean(found.fun**2)))


def margins(
    jobs: Sequence[CappedJob],
    curve_of: Callable[[CappedJob], Fit],
    most: Callable[[Sequence[float]], float],
    from_share: float,
) -> tuple[float, ...]:
    """Return for each of ``SLOWDOWNS`` how many times the cap by the curve jobs need.

    ``most`` says which of them counts. A job that states nothing counts beside one that states its
    mean draw. ``from_share`` of its rating is the lowest cap that is set.
    """
    held = [each for each in jobs if each.held and not each.unseen]
    found = []
    for slowdown in SLOWDOWNS:
        worst = max(
            most([_factor(each, curve_of(each), stated, slowdown, from_share) for each in held])
            for stated in _STATED
        )
        found.append(max(worst, 1.0))
    return tuple(max(found[max(at - 1, 0) : at + 2]) for at in range(len(found)))


def _conformal(values: Sequence[float]) -> float:
    """Return what 19 of 20 further values stay within, if they are of the same kind."""
    place = math.ceil((1.0 - BAR_SHARE) * (len(values) + 1))
    return sorted(values)[min(place, len(values)) - 1]


def _factor(job: CappedJob, curve: Fit, stated: str, slowdown: float, from_share: float) -> float:
    needed_w = job.needed_w(slowdown)
    if needed_w <= from_share * job.card.rated_w:
        return 0.0
    return needed_w / curve.cap_w(job, _STATED[stated](job), slowdown)


_STATED: dict[str, Callable[[CappedJob], float]] = {
    "its mean draw": lambda job: job.peak_w,
    "nothing": lambda job: job.card.rated_w,
}


def built_in(name: str) -> PowerCurveReference:
    """Return the curve that is built in for a GPU of that name."""
    return CURRENT.power_curve(name)


# --- What the curves promise ---------------------------------------------------------------------


def judged(jobs: Sequence[CappedJob], curve: PowerCurveReference) -> Iterator[Share]:
    """Yield how many jobs of a card a curve slows by more than they agree to."""
    held = [each for each in jobs if each.held]
    parts = {
        "held, unseen": [each for each in held if each.unseen],
        "held": held,
        "all": list(jobs),
    }
    for part, chosen in parts.items():
        for stated in _STATED:
            for slowdown in SLOWDOWNS if chosen else ():
                yield _share(chosen, curve, part, stated, slowdown)


def _share(
    jobs: Sequence[CappedJob], curve: PowerCurveReference, part: str, stated: str, slowdown: float
) -> Share:
    rated_w = jobs[0].card.rated_w
    stated_w = np.array([_STATED[stated](each) for each in jobs])
    caps_w = np.asarray(curve.cap_within_w(max_slowdown=slowdown, peak_w=stated_w, rated_w=rated_w))
    speeds = [each.speed(cap_w) for each, cap_w in zip(jobs, caps_w.tolist(), strict=True)]
    slowed = sum(speed < 1.0 - slowdown - _SPEED_ROUNDING for speed in speeds)
    draws_w = np.array([each.peak_w for each in jobs])
    cap_share = float(np.minimum(caps_w / draws_w, 1.0).mean())
    return Share(
        jobs[0].card.name, curve.name, part, stated, slowdown, slowed, len(jobs), cap_share
    )


def told(data: Path) -> tuple[dict[str, Fit], dict[str, tuple[float, ...]]]:
    """Return the curves by card and of both together, and the margins: own, of another card."""
    by_card = {each.name: card_jobs(data, each) for each in CARDS if each.fitted}
    jobs = [job for held in by_card.values() for job in held]
    fits = {name: fitted(held) for name, held in by_card.items()}
    other = dict(zip(fits, reversed(fits.values()), strict=True))
    lowest = min(float((job.limits_w / job.card.rated_w).min()) for job in jobs)
    return fits | {UNMEASURED: fitted(jobs)}, {
        "own": margins(jobs, lambda job: fits[job.card.name], _conformal, lowest),
        UNMEASURED: margins(jobs, lambda job: other[job.card.name], max, _UNMEASURED_FROM_SHARE),
    }
