"""The account of a fleet by what was recorded of it in a span of time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.account import Cause, GpuSpans, Ints, Shares, Whole
from admission.core.fleet_account import CAUSES, FleetAccount, Gangs, Parts, fleet_account
from admission.core.program import NOTHING, Stated, Work
from admission.core.restricted import Lost, Restricted, lost
from admission.goodput import steps
from admission.goodput.steps import Attempts, Floats, Reports, Told
from telemetry.rollups.spec import MAX_GAP_S

__all__ = ["Iterations", "Readings", "Records", "account", "lost_to_restrictions", "works"]

Bools = NDArray[np.bool_]

_US = 1e6
_PRODUCTIVE = CAUSES.index(Cause.PRODUCTIVE)
#: Causes of time in which a job would have made iterations.
_MISSED = [
    at
    for at, cause in enumerate(CAUSES)
    if cause in (Cause.RESTARTING, Cause.PAUSED, Cause.CAPPED) or cause.startswith("throttled_")
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Records:
    """All that was recorded of a fleet, from ``start`` up to ``end``, Unix s.

    Attempts are numbered by their place in ``attempts``; ``numbers`` are those in their ``phases``,
    1 for the first. ``held`` says which parts each place of ``gang``, an attempt, held when.
    ``reports`` reach three minutes further than the span, both ways. ``heard``: the attempt had
    reported before those; ``reached``: the step that those before it in its phase had reached by
    then, -1: none. ``pauses``, ``caps`` and ``low_draw`` are by attempt, the others by part.
    """

    start: float
    end: float
    parts: Parts
    attempts: Attempts
    numbers: Ints
    phases: Ints
    held: GpuSpans
    gang: Ints
    reports: Reports
    heard: Bools
    reached: Floats
    pauses: Whole
    caps: GpuSpans
    part_caps: GpuSpans
    throttle: Sequence[Shares]
    low_draw: Shares
    busy: GpuSpans
    idle: GpuSpans
    drained: GpuSpans
    #: by attempt; None: none of them states anything
    stated: Stated | None = None
    #: by part; None: nothing was
    restricted: Restricted | None = None


@dataclass(frozen=True, eq=False)
class Iterations:
    """Steps of attempts: that moved their model on, that were made again, that lost time took.

    Floats by attempt. Lost time is that of restarts, pauses, caps and throttling, at the mean time
    of the attempt's steps. ``sync_s`` is what a step waited for other ranks in the mean, s, and
    ``step_flop`` what one takes, as loops told; NaN: they did not.
    """

    moved: Floats
    repeated: Floats
    missed: Floats
    sync_s: Floats
    step_flop: Floats


def account(records: Records) -> tuple[FleetAccount, Iterations]:
    """Return where the time of all GPUs went, by scope and attempt, and what steps came of it."""
    count = len(records.attempts)
    told = steps.told(records.reports, records.attempts)
    first = np.where(records.heard, np.nan, told.firsts(count))
    reached = _reached(records, told)
    found = fleet_account(
        records.parts,
        Gangs(
            held=records.held,
            gang=records.gang,
            spans=[
                *told.steps(reached),
                *steps.starts(records.attempts, records.numbers, first),
                records.pauses,
            ],
            shares=[*told.shares(), records.low_draw],
            caps=[records.caps],
            part_shares=records.throttle,
            part_caps=[records.part_caps],
        ),
        busy=records.busy,
        idle=records.idle,
        drained=records.drained,
        start_us=round(records.start * _US),
        end_us=round(records.end * _US),
    )
    return found, _iterations(records, told, reached, found)


def works(records: Records, found: FleetAccount, made: Iterations) -> list[Work]:
    """Return the FLOPs of each attempt's productive steps, beside those of its GPUs' peak."""
    count = len(records.attempts)
    if records.stated is None:
        return [NOTHING] * count
    productive_us = np.zeros(count)
    held = found.gang >= 0
    np.add.at(productive_us, found.gang[held], found.us[held][:, _PRODUCTIVE])
    stated = records.stated.or_told(made.step_flop)
    return stated.works(made.moved, productive_us / _US)


def lost_to_restrictions(records: Records, found: FleetAccount) -> Lost | None:
    """Return what restrictions took of capped and drained time; None: nothing was restricted."""
    if records.restricted is None or not records.restricted.ids:
        return None
    return lost(
        found, records.parts, records.held, records.gang, records.caps, records.restricted,
        start_us=round(records.start * _US), end_us=round(records.end * _US),
    )  # fmt: skip


def _reached(records: Records, told: Told) -> Floats:
    """Return the step that earlier attempts of its phase had reached, by attempt."""
    top = told.reached(len(records.attempts))
    reached = records.reached.copy()
    order = np.lexsort((records.numbers, records.phases))
    for before, after in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
        if records.phases[before] == records.phases[after]:
            reached[after] = max(reached[after], reached[before], top[before])
    return reached


def _iterations(records: Records, told: Told, reached: Floats, found: FleetAccount) -> Iterations:
    moved, repeated = told.made(reached, records.start, records.end)
    return Iterations(
        moved, repeated, _missed(records, told, found), _sync_s(records, told),
        told.step_flop(len(records.attempts)),
    )  # fmt: skip


def _sync_s(records: Records, told: Told) -> Floats:
    count, sync_s = len(records.attempts), told.fields["sync_s"]
    some = ~np.isnan(sync_s) & (told.end > records.start) & (told.start < records.end)
    reports = _sums(told.attempt[some], np.ones(int(some.sum())), count)
    total = _sums(told.attempt[some], sync_s[some], count)
    mean: Floats = np.full(count, np.nan)
    np.divide(total, reports, out=mean, where=reports > 0.0)
    return mean


def _sums(number: Ints, values: Floats, count: int) -> Floats:
    return np.asarray(np.bincount(number, values, count), dtype=np.float64)


def _missed(records: Records, told: Told, found: FleetAccount) -> Floats:
    count = len(records.attempts)
    step_s = np.nan_to_num(told.fields["step_time_s"])
    timed = _sums(told.attempt, (step_s > 0.0).astype(np.float64), count)
    mean_s = _sums(told.attempt, step_s, count) / np.maximum(timed, 1.0)
    lost_us = np.zeros(count)
    held = found.gang >= 0
    np.add.at(lost_us, found.gang[held], found.us[held][:, _MISSED].sum(axis=1))
    gpus = np.maximum(_sums(records.gang, np.ones(records.gang.size), count), 1.0)
    return np.divide(lost_us / _US / gpus, mean_s, out=np.zeros(count), where=mean_s > 0.0)


# --- Readings ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Readings:
    """Means of readings of GPUs over buckets of ``step_s``, in order of GPU and time.

    ``gpu`` is a number, ``at`` when the bucket begins, Unix s. ``draw`` is that of
    :func:`admission.goodput.draws.draw`, and ``at_limit`` says whether the power limit held it.
    """

    gpu: Ints
    at: Floats
    step_s: float
    works: Bools
    draw: Floats
    at_limit: Bools

    @property
    def middle_us(self) -> Ints:
        """The middle of each bucket, Unix µs."""
        return np.rint((self.at + 0.5 * self.step_s) * _US).astype(np.int64)

    def spans(self, *, works: bool) -> GpuSpans:
        """Return when GPUs were read, and worked or did not.

        Buckets that follow each other with no more than three minutes between are one span.
        """
        if not self.gpu.size:
            return GpuSpans(**steps.times_us((), (), ()))
        joined = (np.diff(self.gpu) == 0) & (np.diff(self.at) <= MAX_GAP_S)
        is_new = np.append(True, ~joined | (np.diff(self.works) != 0))
        first = np.flatnonzero(is_new)
        last = np.append(first[1:] - 1, self.gpu.size - 1)
        # Up to the next bucket where that is joined, so that nothing is left between the two.
        follows = np.append(joined, False)[last]
        after = np.append(self.at[1:], 0.0)[last]
        end = np.where(follows, after, self.at[last] + self.step_s)
        of = self.works[first] == works
        return GpuSpans(**steps.times_us(self.gpu[first][of], self.at[first][of], end[of]))
