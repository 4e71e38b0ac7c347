"""Events under the condition of an objective: good, bad, or not decided yet. Pure.

The clock of an event runs only while the condition holds, and not while somebody holds the job. It
is *bad* as soon as its clock has passed what the objective allows, be it over or not, and *good*
when it is over before that. An event whose clock has never run is left out: nothing was promised
for the time that it took.

Of a cross-site loss each moment that was looked at is an event, and has no clock: it is good or bad
by the work at stake then, and left out unless the condition holds then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from admission.slos.document import Measure, Objective
from admission.slos.facts import Bools, Floats, Samples

__all__ = ["Event", "Judgment", "judge"]

Ints: TypeAlias = NDArray[np.int64]

#: A sample speaks for the time until the next one, but for no longer than this, s: when nobody
#: looked, nobody knows.
SPEAKS_FOR_S = 150.0


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that an objective may time. Times are Unix seconds."""

    #: unique among the events of one measure
    key: str
    job: str
    phase: str
    job_class: str
    project: str
    begun_at: float
    #: None: it is still waited for
    over_at: float | None = None
    #: it is not waited for any more, and has not come
    dropped_at: float | None = None
    checkpoint_interval_s: float | None = None
    #: of a moment: the work that a resume at another site would lose, in time that it ran
    lost_s: float = 0.0
    #: how long the checkpoint that it would resume from was on its way; inf: there is none yet
    sent_in_s: float = 0.0
    #: where it may happen; empty: anywhere
    sites: tuple[str, ...] = ()
    #: whether the condition has to hold at all of them, or at any
    at_all_sites: bool = False
    #: spans in which somebody held it
    held: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Judgment:
    """The outcome of an event."""

    event: Event
    is_good: bool
    #: when that was decided, Unix s
    at: float
    #: what its clock showed then, or the work at stake, s
    clock_s: float
    limit_s: float


def selected(objective: Objective, event: Event) -> bool:
    """Say whether ``objective`` judges ``event``."""
    if objective.classes and event.job_class not in objective.classes:
        return False
    if objective.projects and event.project not in objective.projects:
        return False
    # Without checkpoints nothing was promised within one of their intervals.
    return objective.within_s is not None or event.checkpoint_interval_s is not None


def judge(
    objective: Objective, events: Sequence[Event], samples: Samples, now: float
) -> list[Judgment]:
    """Return the judgments of those of ``events`` that are decided at ``now``."""
    mine = [event for event in events if selected(objective, event)]
    holding = samples.holding(objective.when) if objective.when is not None else None
    judged = _judged if objective.measure is not Measure.CROSS_SITE_LOSS else _judged_at_once
    groups: dict[tuple[tuple[str, ...], bool], list[Event]] = defaultdict(list)
    for event in mine:
        groups[event.sites, event.at_all_sites].append(event)
    return [
        judgment
        for (sites, at_all), group in groups.items()
        for judgment in judged(
            objective, group, _clock(samples, holding, sites, at_all=at_all), now
        )
    ]


# --- Clocks --------------------------------------------------------------------------------------


class Clock:
    """Seconds for which a condition has held, as a function of time: pieces of slope 0 and 1."""

    def __init__(self, times: Floats, holds: Bools) -> None:
        spans_s = np.minimum(np.diff(times, append=np.inf), SPEAKS_FOR_S)
        after = np.cumsum(np.where(holds, spans_s, 0.0))
        before = np.concatenate([[0.0], after[:-1]]) if len(after) else after
        self._at = np.stack([times, times + spans_s], axis=1).ravel()
        self._shows = np.stack([before, after], axis=1).ravel()

    def read(self, at: Floats) -> Floats:
        """Return the reading of the clock at each of the times."""
        if not len(self._at):
            return np.zeros(len(at))
        return np.asarray(np.interp(at, self._at, self._shows), dtype=np.float64)

    def runs(self, at: Floats) -> Bools:
        """Say of each of the times whether it runs from then on."""
        return np.asarray(self.read(at + 1e-3) > self.read(at))

    def reaches(self, shows: float) -> float:
        """Return the first time at which it reads ``shows``, which it has to reach."""
        after = int(np.searchsorted(self._shows, shows))
        return float(self._at[after] - (self._shows[after] - shows))


class _Always(Clock):
    """The clock that always runs."""

    def __init__(self) -> None:
        """Make a clock without samples."""

    def read(self, at: Floats) -> Floats:
        return at

    def reaches(self, shows: float) -> float:
        return shows


def _clock(
    samples: Samples, holding: Bools | None, sites: tuple[str, ...], *, at_all: bool
) -> Clock:
    if holding is None:
        return _Always()
    # A site that nobody sampled is not known to be well.
    known = {site: column for column, site in enumerate(samples.sites)}
    if at_all and any(site not in known for site in sites):
        return Clock(samples.times, np.zeros(len(samples.times), dtype=bool))
    columns = [known[site] for site in sites if site in known] if sites else list(known.values())
    every = np.all if at_all else np.any
    return Clock(samples.times, np.asarray(every(holding[:, columns], axis=1)))


# --- Judgments -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The spans in which events were waited for and not held, in order; ``event`` is the row."""

    event: Ints
    start: Floats
    end: Floats


def _pieces(events: Sequence[Event], now: float) -> _Pieces:
    rows = [(row, *span) for row, event in enumerate(events) for span in _spans(event, now)]
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return _Pieces(table[:, 0].astype(np.int64), table[:, 1], table[:, 2])


def _spans(event: Event, now: float) -> Iterator[tuple[float, float]]:
    """Yield when the clock of an event may run."""
    at = event.begun_at
    end = min(each for each in (event.over_at, event.dropped_at, now) if each is not None)
    for begun, ended in sorted(event.held):
        if at < begun <= end:
            yield at, begun
        at = max(at, ended)
    # Also where it is empty: what is over at once was waited for, if only for a moment.
    if at <= end:
        yield at, end


def _judged(
    objective: Objective, events: Sequence[Event], clock: Clock, now: float
) -> Iterator[Judgment]:
    pieces = _pieces(events, now)
    shown = clock.read(pieces.start), clock.read(pieces.end)
    ran_s = shown[1] - shown[0]
    # Of those that were over at once: whether it would have run.
    would_run = clock.runs(pieces.start)
    count = len(events)
    clock_s = np.bincount(pieces.event, weights=ran_s, minlength=count)
    counted = np.bincount(pieces.event, weights=would_run, minlength=count) > 0
    limit_s = np.array([_limit_s(objective, event) for event in events])
    for row in np.flatnonzero((clock_s > 0) | counted).tolist():
        event, limit = events[row], float(limit_s[row])
        if clock_s[row] > limit:
            here = slice(*np.searchsorted(pieces.event, [row, row + 1]).tolist())
            at = _passed_at(clock, pieces.start[here], pieces.end[here], limit)
            yield Judgment(event, is_good=False, at=at, clock_s=limit, limit_s=limit)
        elif event.over_at is not None and event.over_at <= now:
            yield Judgment(
                event, is_good=True, at=event.over_at, clock_s=float(clock_s[row]), limit_s=limit
            )


def _judged_at_once(
    objective: Objective, events: Sequence[Event], clock: Clock, now: float
) -> Iterator[Judgment]:
    at = np.array([event.begun_at for event in events])
    for row in np.flatnonzero(clock.runs(at) & (at <= now)).tolist():
        event = events[row]
        lost_s, limit = event.lost_s, _limit_s(objective, event)
        yield Judgment(
            event, is_good=lost_s <= limit, at=event.begun_at, clock_s=lost_s, limit_s=limit
        )


def _limit_s(objective: Objective, event: Event) -> float:
    if objective.within_s is not None:
        return objective.within_s
    interval_s = event.checkpoint_interval_s or 0.0
    # While a checkpoint is on its way, the one before it is the latest. But the next one must not
    # overtake it: what takes longer than an interval to send is not excused by that.
    return interval_s + min(event.sent_in_s, interval_s)


def _passed_at(clock: Clock, starts: Floats, ends: Floats, limit_s: float) -> float:
    """Return when the clock, running in these spans, reached ``limit_s``."""
    left_s = limit_s
    for start, end in zip(starts, ends, strict=True):
        shown, shows = clock.read(np.array([start, end])).tolist()
        if shows - shown > left_s:
            return min(max(clock.reaches(shown + left_s), float(start)), float(end))
        left_s -= shows - shown
    return float(ends[-1])
