"""What loops reported, as the spans of time that it tells of. Pure.

Reports are by job, not by attempt. They count for an attempt that had the job to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.account import PPM, Cause, Ints, Shares, Whole
from telemetry.rollups.spec import MAX_GAP_S

__all__ = ["FIELDS", "Attempts", "Reports", "Told", "alone", "starts", "times_us", "told"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: What is read of a report.
FIELDS = ("step", "step_time_s", "data_wait_s", "sync_s", "lost_share", "flops_per_step")
_US = 1e6


@dataclass(frozen=True, eq=False)
class Reports:
    """Reports of loops: of the job of a number ``job``, at Unix s ``at``, in this order.

    ``step_s``: they are means over buckets of that width, which begin at ``at``. None: reports as
    they came, which tell of the time before them.
    """

    job: Ints
    at: Floats
    step_s: float | None
    fields: Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class Attempts:
    """Attempts: the numbers of their jobs, and when their commands ran, Unix s.

    ``began`` is NaN where the command never began. ``counts``: what the job reports is of it.
    """

    job: Ints
    dispatched: Floats
    began: Floats
    ended: Floats
    counts: Bools

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True, eq=False)
class Told:
    """Reports of attempts, by their number, and the spans of time that they tell of, Unix s."""

    attempt: Ints
    start: Floats
    end: Floats
    fields: Mapping[str, Floats]

    @classmethod
    def joined(cls, parts: Sequence[Told]) -> Told:
        """Return all of several, which have the same fields."""
        return cls(
            np.concatenate([each.attempt for each in parts]),
            np.concatenate([each.start for each in parts]),
            np.concatenate([each.end for each in parts]),
            {name: np.concatenate([p.fields[name] for p in parts]) for name in parts[0].fields},
        )

    def firsts(self, attempts: int) -> Floats:
        """Return when the first report of each attempt begins, NaN: it has none."""
        found = np.full(attempts, np.inf)
        np.minimum.at(found, self.attempt, self.start)
        return np.where(np.isinf(found), np.nan, found)

    def reached(self, attempts: int) -> Floats:
        """Return the greatest step that each attempt told of, -1: none."""
        found = np.full(attempts, -1.0)
        np.maximum.at(found, self.attempt, np.nan_to_num(self.fields["step"], nan=-1.0))
        return found

    def steps(self, reached: Floats) -> list[Whole]:
        """Return the time of steps, by whether they are beyond what was ``reached`` before.

        ``reached`` is by attempt, -1: nothing.
        """
        again = self.fields["step"] <= reached[self.attempt]
        return [
            Whole(cause=cause, **times_us(self.attempt[of], self.start[of], self.end[of]))
            for cause, of in ((Cause.PRODUCTIVE, ~again), (Cause.REPEATED, again))
        ]

    def made(self, reached: Floats, start: float, end: float) -> tuple[Floats, Floats]:
        """Return by attempt the steps that moved its model on, and those that were made again.

        Of reports from ``start`` up to ``end``, Unix s: one stands for the moment at which the time
        that it tells of ends. ``reached`` is by attempt, as in :meth:`steps`.
        """
        step = self.fields["step"]
        some = np.flatnonzero(~np.isnan(step))
        attempt, step = self.attempt[some], step[some]
        before = np.concatenate([step[:1], step[:-1]])
        before = np.where(np.diff(attempt, prepend=-1) == 0, before, step)
        here = (self.end[some] > start) & (self.end[some] <= end)
        again = np.clip(np.minimum(step, reached[attempt]) - before, 0.0, None)
        made = np.clip(step - before, 0.0, None)
        count = len(reached)
        return (
            np.bincount(attempt, np.where(here, made - again, 0.0), count).astype(np.float64),
            np.bincount(attempt, np.where(here, again, 0.0), count).astype(np.float64),
        )

    def step_flop(self, attempts: int) -> Floats:
        """Return the mean of the FLOPs that each attempt told a step takes, NaN: it told none."""
        flop = self.fields["flops_per_step"]
        told = ~np.isnan(flop)
        times = np.bincount(self.attempt[told], minlength=attempts)
        total = np.bincount(self.attempt[told], flop[told], attempts)
        mean: Floats = np.divide(total, times, out=np.full(attempts, np.nan), where=times > 0)
        return mean

    def shares(self) -> list[Shares]:
        """Return the shares that loops tell of, each of what those before it left."""
        field = {name: np.nan_to_num(values) for name, values in self.fields.items()}
        step_s = np.where(field["step_time_s"] > 0.0, field["step_time_s"], np.inf)
        data = np.clip(field["data_wait_s"] / step_s, 0.0, 1.0)
        left = np.where(data < 1.0, 1.0 - data, np.inf)
        sync = np.clip(field["sync_s"] / step_s / left, 0.0, 1.0)
        where = times_us(self.attempt, self.start, self.end)
        by_cause = {
            Cause.OUTSIDE_STEPS: np.clip(field["lost_share"], 0.0, 1.0),
            Cause.DATA_WAIT: data,
            Cause.SYNCHRONIZATION: sync,
        }
        return [
            Shares(cause=cause, ppm=np.rint(part * PPM).astype(np.int64), **where)
            for cause, part in by_cause.items()
        ]


def alone(job: Ints, dispatched: Floats, ended: Floats) -> Bools:
    """Return which attempts no other one of their job overlaps: what it reports is of them."""
    order = np.lexsort((dispatched, job))
    starts_s, ends_s = dispatched[order], ended[order]
    new = np.diff(job[order], prepend=-1) != 0
    # All of one job after the other on one axis, so that the greatest end so far is of the job.
    apart = np.cumsum(new) * (1.0 + np.ptp(np.concatenate([starts_s, ends_s, [0.0]])))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ends_s + apart)[:-1]])
    after_all = new | (starts_s + apart >= before)
    before_next = np.append(new[1:] | (ends_s[:-1] <= starts_s[1:]), True)[: order.size]
    found = np.empty(order.size, dtype=np.bool_)
    found[order] = after_all & before_next
    return found


def told(reports: Reports, attempts: Attempts) -> Told:
    """Return of which time reports tell, and of which attempts: those that count and had begun."""
    middle = reports.at + 0.5 * (reports.step_s or 0.0)
    attempt = _attempt_of(reports.job, middle, attempts)
    which = attempt >= 0
    attempt, at = attempt[which], reports.at[which]
    same = np.diff(attempt) == 0
    gap_s = np.where(same, np.diff(at), np.inf)
    if reports.step_s is None:
        # The first tells of nothing: the time before it is that of the start.
        first = np.concatenate([at[:1], np.where(gap_s <= MAX_GAP_S, at[:-1], at[1:])])
        last = at
    else:
        # What has no report of its own is as long as usual between two, or nothing is known.
        step_s = reports.step_s
        joined = np.where(gap_s <= MAX_GAP_S, np.maximum(gap_s, step_s), step_s)
        first, last = at, at + np.concatenate([joined, np.full(at[-1:].size, step_s)])
    fields = {name: values[which] for name, values in reports.fields.items()}
    return Told(
        attempt,
        np.maximum(first, attempts.began[attempt]),
        np.minimum(last, attempts.ended[attempt]),
        fields,
    )


def _attempt_of(job: Ints, at: Floats, attempts: Attempts) -> Ints:
    """Return which attempt a moment of a job is of, -1: none."""
    some = np.flatnonzero(attempts.counts & ~np.isnan(attempts.began))
    if not some.size or not at.size:
        return np.full(at.size, -1, dtype=np.int64)
    # All jobs one after the other on one axis of time.
    since = min(float(at.min()), float(attempts.began[some].min()))
    width = 1.0 + max(float(at.max()), float(attempts.began[some].max())) - since
    begins = attempts.job[some] * width + (attempts.began[some] - since)
    order = np.argsort(begins)
    some = some[order]
    place = np.searchsorted(begins[order], job * width + (at - since), side="right") - 1
    found = some[np.maximum(place, 0)]
    is_of = (place >= 0) & (attempts.job[found] == job) & (at <= attempts.ended[found])
    return np.where(is_of, found, -1)


def starts(attempts: Attempts, numbers: Ints, first: Floats) -> list[Whole]:
    """Return the time until attempts made steps, or until they began where no loop tells of that.

    ``first`` is when the first report of each begins, NaN: there is none that says so.
    """
    begun = np.where(np.isnan(attempts.began), attempts.ended, attempts.began)
    until = np.where(np.isnan(first), begun, first)
    is_first = numbers == 1
    every = np.arange(len(attempts))
    return [
        Whole(cause=cause, **times_us(every[of], attempts.dispatched[of], until[of]))
        for cause, of in ((Cause.STARTING, is_first), (Cause.RESTARTING, ~is_first))
    ]


def times_us(
    number: Sequence[int] | Ints, start: Sequence[float] | Floats, end: Sequence[float] | Floats
) -> dict[str, Ints]:
    """Return spans, Unix s, as :class:`GpuSpans` has them."""
    return {
        "gpu": np.asarray(number, dtype=np.int64),
        "start_us": np.rint(np.asarray(start, dtype=np.float64) * _US).astype(np.int64),
        "end_us": np.rint(np.asarray(end, dtype=np.float64) * _US).astype(np.int64),
    }
