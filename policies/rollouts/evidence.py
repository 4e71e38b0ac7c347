"""What a change did to the jobs on it: blocks of differences in differences. Pure, over arrays.

A unit is a job: what it does stays the same as time goes on, which of two different jobs nobody can
say. Each block of time after the change is paired with one before it, the nearest first, and of
both only jobs count that ran in both. A block of evidence is then

    (after - before) of jobs on what was changed  -  (after - before) of jobs on what was not,

within strata of the same GPU and kind of job, weighted by the GPUs on the change. What the arms
differ by anyway cancels, and so does what happens to both at once, such as a warm afternoon.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MEANS", "METRICS", "Metric", "Observed", "Units", "Work", "blocks_of", "contrast", "like_work",
    "measured", "paired",
]  # fmt: skip

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Metric:
    """A quantity that a guard may be about."""

    name: str
    help: str
    #: of the difference: a share of what it was before, or the unit of the quantity
    unit: str
    is_relative: bool = False
    #: -1: less of it is worse
    worse: float = 1.0
    #: it goes by what a job does: one that does something else tells nothing of it
    of_work: bool = False
    #: rare events, counted and compared by exposure; else means of blocks
    is_count: bool = False


METRICS = {
    each.name: each
    for each in (
        Metric("step_time", "Time of a step", "share", is_relative=True, of_work=True),
        Metric(
            "slow_steps", "Steps of over 1.5 times the job's usual", "per step",
            of_work=True, is_count=True,
        ),
        Metric("throttling", "Time of unexpected throttling", "share of time"),
        Metric("power", "Power of a GPU at like work", "share", is_relative=True, of_work=True),
        Metric("temperature", "Temperature of a GPU at like power", "°C", of_work=True),
        Metric("xids", "Xid errors", "per GPU-hour", is_count=True),
        Metric("goodput", "Share of the time in steps", "share of time", worse=-1.0),
        Metric("checkpoint_bytes", "Size of a checkpoint", "share", is_relative=True),
    )
}  # fmt: skip


#: What a job says of its steps may vary so much while it does the same.
_LIKE = 0.1
#: The metrics that are means of blocks, in the order of the last axis of arrays.
MEANS = tuple(each.name for each in METRICS.values() if not each.is_count)


@dataclass(frozen=True)
class Observed:
    """What was read of jobs: arrays of (blocks, jobs), NaN where a job did not run or nothing told.

    ``step_s`` is the mean of the steps of a block, ``throttled`` the share of the time,
    ``power_w`` and ``temp_c`` medians over the block of the mean of the job's GPUs, ``temp_c`` over
    what enters their rack where that is read, ``work`` their utilization as a share, ``in_steps``
    the share of the time spent in steps, ``checkpoint_bytes`` of the last one.
    """

    step_s: Array
    throttled: Array
    power_w: Array
    work: Array
    temp_c: Array
    in_steps: Array
    checkpoint_bytes: Array

    def of(self, blocks: NDArray[np.intp]) -> Observed:
        """Return these blocks of it, in this order."""
        return Observed(*(getattr(self, each.name)[blocks] for each in fields(self)))


@dataclass(frozen=True)
class Units:
    """The jobs of a judgement: on what was changed, on what was not, or on neither (or both)."""

    changed: Bools
    unchanged: Bools
    #: GPU model and kind of job, as a number
    stratum: Ints
    gpus: Array


@dataclass(frozen=True)
class Work:
    """What jobs themselves say of a step, and how many GPUs they had: arrays of (blocks, jobs).

    NaN where they tell nothing. No change of the platform changes any of it, but whoever runs the
    job: larger batches, longer sequences, or other GPUs.
    """

    samples: Array
    tokens: Array
    gpus: Array

    def backwards(self) -> Work:
        """Return the last block first."""
        return Work(*(getattr(self, each.name)[::-1] for each in fields(self)))


def like_work(after: Work, before: Work) -> Bools:
    """Say of which pairs of blocks a job did the usual in both, as far as it tells: (blocks, jobs).

    Usual is the median before the change. ``before`` runs backwards, as in :func:`blocks_of`.
    """
    found = np.ones(after.gpus.shape, dtype=np.bool_)
    for each in fields(Work):
        now, then = getattr(after, each.name), getattr(before, each.name)
        usual = medians(then)
        with np.errstate(invalid="ignore"):
            found &= ~(np.fmax(abs(now - usual), abs(then - usual)) > _LIKE * usual)
    return found


def medians(values: Array) -> Array:
    """Return the median of each column; NaN where nothing is known."""
    found = np.full(values.shape[1], np.nan)
    some = np.isfinite(values).any(axis=0)
    found[some] = np.nanmedian(values[:, some], axis=0)
    return found


def blocks_of(
    after: Observed, before: Observed, units: Units, like: Bools | None = None
) -> tuple[dict[str, Array], float]:
    """Return the blocks of evidence by metric, and the share of the changed GPUs that they cover.

    ``like``: in which blocks each job does what it did before; of the others only what does not go
    by its work counts, such as throttling: a job may do less since it is throttled.
    ``before`` runs backwards in time: its first block is the last before the change. What is not
    covered ran jobs that were not there before, or of a stratum that only one arm has.
    """
    differences = paired(*measured(after, before, units))
    if like is not None:
        of_work = np.array([METRICS[name].of_work for name in MEANS])
        differences[~like[: len(differences), :, None] & of_work] = np.nan
    found, covered = contrast(differences, units)
    power = covered[:, MEANS.index("power")]
    return dict(zip(MEANS, found.T, strict=True)), float(power.mean()) if len(power) else 0.0


def measured(after: Observed, before: Observed, units: Units) -> tuple[Array, Array]:
    """Return the means that guards are about, after and before: (blocks, jobs, metrics).

    Metrics are those of :data:`MEANS`, more being worse; relative ones as logs.
    Power is taken at like work and temperature at like power, by slopes found before the change.
    """
    power = [_log(each.power_w) for each in (after, before)]
    power = _at_like(power, [each.work for each in (after, before)], units.stratum)
    temp = _at_like(
        [each.temp_c for each in (after, before)],
        [each.power_w for each in (after, before)],
        units.stratum,
    )
    found = []
    for at, each in enumerate((after, before)):
        columns = {
            "step_time": _log(each.step_s),
            "throttling": each.throttled,
            "power": power[at],
            "temperature": temp[at],
            "goodput": each.in_steps,
            "checkpoint_bytes": _log(each.checkpoint_bytes),
        }
        signed = [METRICS[name].worse * columns[name] for name in MEANS]
        found.append(np.stack(signed, axis=-1))
    return found[0], found[1]


def _log(values: Array) -> Array:
    return np.log(np.where(values > 0.0, values, np.nan))


def _at_like(values: list[Array], beside: list[Array], stratum: Ints) -> list[Array]:
    """Return values less what they follow of another quantity, by the slope of each stratum.

    The slope is that within jobs before the change (the last of the lists): between jobs, other
    things differ.
    """
    before, other = (_centered(each[-1], values[-1] + beside[-1]) for each in (values, beside))
    strata = np.arange(int(stratum.max(initial=-1)) + 1)
    of = stratum == strata[:, None]
    both, square = (of @ np.nansum(each, axis=0) for each in (before * other, other**2))
    slope = np.divide(both, square, out=np.zeros(len(strata)), where=square > 1e-12)
    return [one - slope[stratum] * two for one, two in zip(values, beside, strict=True)]


def _centered(values: Array, known: Array) -> Array:
    """Return values less the mean of their job, where all that is ``known`` is."""
    values = np.where(np.isfinite(known), values, np.nan)
    count = np.isfinite(values).sum(axis=0)
    mean = np.nansum(values, axis=0) / np.maximum(count, 1)
    centered: Array = values - mean
    return centered


def paired(after: Array, before: Array) -> Array:
    """Return after less before, block by block, as far as there are both."""
    pairs = min(len(after), len(before))
    return np.asarray(after[:pairs] - before[:pairs])


def contrast(differences: Array, units: Units) -> tuple[Array, Array]:
    """Return the blocks of evidence, (blocks, metrics), and the share of the GPUs that they cover.

    ``differences`` is (blocks, jobs, metrics). A stratum counts in a block where both arms have
    jobs in it; the rest of what was changed is not covered. NaN: there is no such stratum.
    """
    known = np.isfinite(differences)
    values = np.where(known, differences, 0.0)
    strata = np.arange(int(units.stratum.max(initial=-1)) + 1)
    of = (units.stratum == strata[:, None]).astype(np.float64)
    sums, weights = [], []
    for arm in (units.changed, units.unchanged):
        weight = of * (arm * units.gpus)
        weights.append(np.einsum("su,bum->bsm", weight, known.astype(np.float64)))
        sums.append(np.einsum("su,bum->bsm", weight, values))
    here, there = weights
    both = (here > 0.0) & (there > 0.0)
    means = [
        np.divide(total, weight, out=np.zeros_like(total), where=weight > 0.0)
        for total, weight in zip(sums, weights, strict=True)
    ]
    covered = np.where(both, here, 0.0)
    total = covered.sum(axis=1)
    found = np.divide(
        (covered * (means[0] - means[1])).sum(axis=1), total,
        out=np.full_like(total, np.nan), where=total > 0.0,
    )  # fmt: skip
    everything = float((units.changed * units.gpus).sum())
    return found, total / everything if everything else np.zeros_like(total)
