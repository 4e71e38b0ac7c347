"""Follows every GPU's throttling through its readings: the pure core, over arrays.

All rows of a round are taken at once. Whatever depends on one reading and the one before alone is
computed over all rows together; only where something throttles do intervals of one GPU follow each
other step by step, those of all GPUs at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headroom.contracts import ThrottleCause
from telemetry.throttle.events import EVENT, Changes, Evidence, OpenEvents
from telemetry.throttle.intervals import Intervals, intervals, nothing_yet, remembered
from telemetry.throttle.readings import NO_RATINGS, Ratings, Readings
from telemetry.throttle.rules import (
    CAUSES,
    LOWERED_LIMIT,
    MAX_GAP_S,
    USUAL_CLOCK_S,
    Array,
)

_CAUSE_BITS = sum(int(cause) for cause in CAUSES)
_CAP = CAUSES.index(ThrottleCause.SW_POWER_CAP)


class Tracker:
    """The memory of each GPU, and its open events."""

    def __init__(self, last: Array | None = None, open_: Array | None = None) -> None:
        """``last``: records of ``intervals.LAST`` by database id; ``open_``: ``events.EVENT``."""
        self._last = nothing_yet(0) if last is None else last
        self._events = OpenEvents(np.zeros(0, EVENT) if open_ is None else open_)

    @classmethod
    def from_latest(cls, latest: Readings, open_: Array) -> Tracker:
        """Make a tracker of the newest reading of each GPU. Usual clocks are learned anew."""
        tracker = cls(open_=open_)
        tracker._reach(latest.gpu_id)
        tracker._last[latest.gpu_id] = remembered(latest)
        return tracker

    @property
    def last(self) -> Array:
        """The last record of each GPU, by database id."""
        return self._last

    def open_events(self) -> Array:
        """Return a copy of the open events."""
        return self._events.records()

    def advance(self, readings: Readings, ratings: Ratings = NO_RATINGS) -> Changes:
        """Take in readings and return the changes of events.

        Readings may come in any order and more than once. One that is not newer than what was
        taken in of its GPU before changes nothing.
        """
        self._reach(readings.gpu_id)
        readings = readings.take(np.lexsort((readings.us, readings.gpu_id)))
        fresh = readings.us > self._last["us"][readings.gpu_id]
        fresh[1:] &= (readings.us[1:] != readings.us[:-1]) | (
            readings.gpu_id[1:] != readings.gpu_id[:-1]
        )
        if not fresh.all():
            readings = readings.take(np.flatnonzero(fresh))
        if len(readings):
            self._follow(readings, ratings)
        return self._events.changes()

    def catch_up(self, readings: Readings, ratings: Ratings = NO_RATINGS) -> Changes:
        """Bring open events from where they were last stored to the newest readings.

        ``readings`` are those since each event was last seen to hold, with the one at that very
        moment. No event opens: all that these readings opened are among those read back.
        """
        self._reach(readings.gpu_id)
        readings = readings.take(np.lexsort((readings.us, readings.gpu_id)))
        if not len(readings):
            return self._events.changes()
        after = remembered(readings)
        gpu_id = readings.gpu_id
        firsts = _firsts(gpu_id)
        before = _shifted(after, firsts, nothing_yet(1))
        found = intervals(before, after)
        row, cause = np.nonzero(self._events.has(gpu_id) & found.told)
        held_us = self._events.updated_us(gpu_id[row], cause)
        new = readings.us[row] > held_us
        self._step(readings, before, found, row[new], cause[new], ratings)
        lasts = np.append(firsts[1:], len(gpu_id)) - 1
        lasts = lasts[after["us"][lasts] > self._last["us"][gpu_id[lasts]]]
        self._last[gpu_id[lasts]] = after[lasts]
        return self._events.changes()

    def _follow(self, readings: Readings, ratings: Ratings) -> None:
        gpu_id = readings.gpu_id
        firsts = _firsts(gpu_id)
        after = remembered(readings)
        before = _shifted(after, firsts, self._last[gpu_id[firsts]])
        busy = _throttles(before, after)
        self._learn_clocks(before, after, firsts, after["loaded"] & ~busy)
        open_ = self._events.has(gpu_id)
        # Of a GPU that throttles anywhere in these rows all rows count: one of them may be quiet.
        watched = np.flatnonzero(_any_of_run(busy, firsts) | open_.any(axis=1))
        if len(watched):
            part = readings.take(watched)
            found = intervals(before[watched], after[watched])
            row, cause = _pairs(part.gpu_id, open_[watched], found)
            self._step(part, before[watched], found, row, cause, ratings)
        lasts = np.append(firsts[1:], len(gpu_id)) - 1
        self._last[gpu_id[lasts]] = after[lasts]

    def _learn_clocks(self, before: Array, after: Array, firsts: Array, usual: Array) -> None:
        """Move usual clocks on, in place, by readings under load and free of throttling."""
        mhz = after["sm_mhz"]
        told = usual & ~np.isnan(mhz)
        dt_s = np.clip((after["us"] - before["us"]) * 1e-6, 0.0, MAX_GAP_S)
        weight = np.where(told, -np.expm1(-dt_s / USUAL_CLOCK_S), 0.0)
        known = before["usual_mhz"][firsts]
        for runs, rows in _in_turn(firsts, len(after)):
            earlier = known[runs]
            before["usual_mhz"][rows] = earlier
            moved = np.where(told[rows], earlier + weight[rows] * (mhz[rows] - earlier), earlier)
            known[runs] = np.where(np.isnan(earlier) & told[rows], mhz[rows], moved)
            after["usual_mhz"][rows] = known[runs]

    def _step(
        self,
        readings: Readings,
        before: Array,
        found: Intervals,
        row: Array,
        cause: Array,
        ratings: Ratings,
    ) -> None:
        """Apply the intervals of pairs of row and cause to the events, each GPU's in order."""
        if not len(row):
            return
        evidence = _evidence(readings, before, found, row, cause, ratings)
        order = np.lexsort((evidence.end_us, evidence.cause, evidence.gpu_id))
        evidence = evidence.take(order)
        firsts = _firsts(evidence.gpu_id * len(CAUSES) + evidence.cause)
        for _, rows in _in_turn(firsts, len(row)):
            self._events.take_in(evidence.take(rows))

    def _reach(self, gpu_id: Array) -> None:
        size, needed = len(self._last), int(gpu_id.max(initial=0)) + 1
        if needed > size:
            more = nothing_yet(max(needed - size, size // 4))
            self._last = np.concatenate([self._last, more])


def _firsts(key: Array) -> Array:
    """Return where runs of equal ``key`` begin."""
    return np.flatnonzero(np.append(True, key[1:] != key[:-1]))


def _any_of_run(flags: Array, firsts: Array) -> Array:
    """For every row: whether any row of its run has the flag."""
    lengths = np.diff(np.append(firsts, len(flags)))
    found: Array = np.repeat(np.logical_or.reduceat(flags, firsts, axis=0), lengths, axis=0)
    return found


def _in_turn(firsts: Array, count: int) -> Iterator[tuple[Array, Array]]:
    """Yield the runs that have a first row, and these rows; then those with a second; and so on."""
    lengths = np.diff(np.append(firsts, count))
    for turn in range(int(lengths.max(initial=0))):
        runs = np.flatnonzero(lengths > turn)
        yield runs, firsts[runs] + turn


def _shifted(after: Array, firsts: Array, earlier: Array) -> Array:
    """Return for each record the previous one of its GPU; ``earlier`` for the first of each."""
    before = np.empty_like(after)
    before[1:] = after[:-1]
    before[firsts] = earlier
    return before


def _throttles(before: Array, after: Array) -> Array:
    """Whether anything may have throttled in between: a bit at either end, or a counter moved."""
    bits = ((before["mask"] | after["mask"]) & _CAUSE_BITS) != 0
    moved: Array = (before["counters"] != after["counters"]).any(axis=1)
    found: Array = bits | moved
    return found


def _pairs(gpu_id: Array, open_: Array, found: Intervals) -> tuple[Array, Array]:
    """Return row and cause of all pairs that matter to events: those that are or get open."""
    row, cause = np.nonzero(_any_of_run(open_ | found.opens, _firsts(gpu_id)) & found.told)
    return row, cause


def _evidence(
    readings: Readings,
    before: Array,
    found: Intervals,
    row: Array,
    cause: Array,
    ratings: Ratings,
) -> Evidence:
    gpu_id = readings.gpu_id[row]
    usual_mhz = before["usual_mhz"][row].astype("f8")
    below = readings.power_limit_w[row] < LOWERED_LIMIT * ratings.rated_w(gpu_id)
    lowered = below | np.isin(gpu_id, ratings.capped)
    return Evidence(
        gpu_id=gpu_id,
        cause=cause,
        begin_us=before["us"][row],
        end_us=readings.us[row],
        length_s=found.length_s[row],
        held_s=found.held_s[row, cause],
        sampled_s=found.sampled_s[row, cause],
        seen=found.seen[row, cause],
        opens=found.opens[row, cause],
        keeps=found.keeps[row, cause],
        energy_j=np.where(found.seen[row, cause], found.energy_j[row], np.nan),
        low_mhz=found.low_mhz[row],
        usual_mhz=np.where(np.isnan(usual_mhz), ratings.rated_mhz(gpu_id), usual_mhz),
        lowered=lowered & (cause == _CAP),
        temp_c=readings.temp_c[row],
        temp_mem_c=readings.temp_mem_c[row],
        power_w=readings.power_w[row],
        sm_mhz=readings.sm_mhz[row],
        job_id=readings.job_id[row],
    )
