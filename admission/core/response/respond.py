"""Graduated response to small margins: under A jobs shrink their batch, under B they pause.

Each job says what it agrees to and from which margin on (:class:`Throttling`); a margin is the
share of a budget that is left, and that of the tightest budget above a job counts. The decision is
made for all jobs at once, since they share budgets: :func:`respond` has as many of them give way as
are needed, those first that lose the least work for the watts, and has one go back only where what
it would draw again leaves its margin and a band. So an effect does not clear its own cause.

What a job was told a moment ago has not shown in the readings yet. Until it must have, the job
counts with what it will draw. Pure.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from policies.headroom.reach import Reach, Room

__all__ = [
    "Change",
    "Level",
    "Responded",
    "ResponseStatus",
    "Subject",
    "Throttling",
    "Tuning",
    "is_over",
    "respond",
]

Floats = npt.NDArray[np.float64]


class Level(enum.IntEnum):
    """How far a job has given way."""

    FULL = 0
    #: with its smallest batch, or else under the lowest cap that it accepts
    SHRUNK = 1
    #: stopped where it is, its memory kept
    PAUSED = 2


@dataclass(frozen=True)
class Throttling:
    """The throttling that a job agrees to. Margins are shares of a budget; None: it does not."""

    #: A
    shrink_below: float | None = None
    #: B
    pause_below: float | None = None
    #: share of its batch that it shrinks to, and by as much its speed
    batch_scale: float = 0.5
    #: in place of a smaller batch: the power cap under which it has that speed, W per GPU
    cap_w: float | None = None

    def below(self, level: Level) -> float | None:
        """Return the margin under which the job goes to ``level``."""
        return self.shrink_below if level is Level.SHRUNK else self.pause_below


@dataclass(frozen=True)
class Tuning:
    """How fast jobs respond, s, and how much room they want before they go back."""

    #: so long a margin has to be too small; one under nothing at all is acted on at once
    sustain_s: float = 10.0
    #: by then the readings show what a job does
    settle_s: float = 40.0
    #: the shortest time at a level before a job goes back; doubles as that turns out too early
    dwell_s: float = 120.0
    longest_dwell_s: float = 3600.0
    #: share of the budget that has to be left beyond the margin before a job goes back
    band: float = 0.05


@dataclass(frozen=True)
class ResponseStatus:
    """The state of a job's response, and its memory of past ones. Times are Unix seconds."""

    level: Level = Level.FULL
    since: float = 0.0
    #: since when its margin is too small for its level; None: it is not
    low_since: float | None = None
    #: when it last went back; None: never
    rose_at: float | None = None
    #: how often it has had to give way again soon after that
    relapses: int = 0
    #: what it drew on each of its nodes before it first gave way, W
    full_w: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A running job. Watts are by node of ``nodes``, its share of hosts included."""

    key: str
    throttling: Throttling
    status: ResponseStatus
    gpus: int
    nodes: tuple[int, ...]
    #: committed now
    draw_w: tuple[float, ...]
    #: what it draws while it is paused
    floor_w: tuple[float, ...]
    #: what it may draw at most
    peak_w: tuple[float, ...]
    #: what it draws under the cap that it shrinks to; None: it shrinks its batch
    capped_w: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Change:
    """A change of a job's level.

    ``margin`` is the share left of its tightest budget; inf: caps keep all that are above it.
    """

    key: str
    was: Level
    level: Level
    margin: float
    #: place of that budget in the :class:`Reach`
    place: int
    #: by which what is drawn is expected to change, W
    change_w: float
    sentence: str


@dataclass(frozen=True)
class Responded:
    """The changes to make, and the statuses to store, by key."""

    changes: tuple[Change, ...]
    statuses: Mapping[str, ResponseStatus]
    #: of each budget, once all of that has shown, W
    left_w: Floats


def is_over(status: ResponseStatus, now: float, tuning: Tuning) -> bool:
    """Say whether a status can be dropped: the job runs in full, and has for long."""
    rose_at = status.rose_at
    is_calm = rose_at is None or now - rose_at > 2.0 * tuning.dwell_s
    is_full = status.level is Level.FULL and status.low_since is None
    return is_full and is_calm and not status.relapses


def respond(
    subjects: Iterable[Subject], room: Room, reach: Reach, *, now: float, tuning: Tuning
) -> Responded:
    """Return which jobs give way, and which go back. Deterministic."""
    return _Round(sorted(subjects, key=lambda each: each.key), room, reach, now, tuning).done()


class _Job:
    """A subject with the budgets above it."""

    def __init__(self, subject: Subject, reach: Reach) -> None:
        self.subject = subject
        self.status = subject.status
        self._draw_w = np.array(subject.draw_w)
        self._floor_w = np.minimum(np.array(subject.floor_w), np.array(subject.peak_w))
        self._full_w = self._draw_w
        self.places, self._weights = reach.weights(subject.nodes)

    def assume(self, now: float, settle_s: float) -> None:
        """Assume the full draw that it had before, where the readings do not show it now."""
        status = self.status
        is_settled = now - status.since >= settle_s
        if status.full_w and not (status.level is Level.FULL and is_settled):
            self._full_w = np.array(status.full_w)
        self._full_w = np.clip(self._full_w, self._floor_w, self.subject.peak_w)

    def full_w(self) -> tuple[float, ...]:
        return tuple(self._full_w.tolist())

    def expected_w(self, level: Level) -> Floats:
        """Return its expected draw on each node at ``level``.

        By the batch in between: what of the power depends on it falls with it.
        """
        if level is Level.FULL:
            return self._full_w
        if level is Level.SHRUNK and self.subject.capped_w is not None:
            capped_w: Floats = np.minimum(self._full_w, self.subject.capped_w)
            return capped_w
        share = self.subject.throttling.batch_scale if level is Level.SHRUNK else 0.0
        expected_w: Floats = self._floor_w + share * np.maximum(self._full_w - self._floor_w, 0.0)
        return expected_w

    def draws_w(self, now: float, settle_s: float) -> Floats:
        """Return its draw now, or the one that it is about to reach."""
        if now - self.status.since < settle_s:
            return self.expected_w(self.status.level)
        return self._draw_w

    def to_come(self, now: float, settle_s: float) -> Floats:
        """Return the change still to come of each budget above it, W, aligned with ``places``."""
        return self.carried(self.draws_w(now, settle_s) - self._draw_w)

    def carried(self, watts: Floats) -> Floats:
        carried_w: Floats = watts @ self._weights
        return carried_w

    def work_lost_per_s(self, level: Level) -> float:
        """Return by how much slower it is at ``level`` than it is now, GPUs."""
        return self.subject.gpus * (self._speed(self.status.level) - self._speed(level))

    def _speed(self, level: Level) -> float:
        return {
            Level.FULL: 1.0,
            Level.SHRUNK: self.subject.throttling.batch_scale,
            Level.PAUSED: 0.0,
        }[level]


class _Round:
    """One decision. The power left of each budget moves along with each change."""

    def __init__(
        self, subjects: Sequence[Subject], room: Room, reach: Reach, now: float, tuning: Tuning
    ) -> None:
        self.now, self.tuning = now, tuning
        self.jobs = [_Job(each, reach) for each in subjects]
        self.budget_w, self.left_w = room.budget_w, room.left_w.copy()
        for job in self.jobs:
            job.assume(now, tuning.settle_s)
            self.left_w[job.places] -= job.to_come(now, tuning.settle_s)
        self.changes: list[Change] = []

    def done(self) -> Responded:
        for job in self.jobs:
            self._remember(job)
        for level in (Level.SHRUNK, Level.PAUSED):
            self._give_way(level)
        self._go_back()
        statuses = {job.subject.key: job.status for job in self.jobs}
        return Responded(tuple(self.changes), statuses, self.left_w)

    # --- Margins ----------------------------------------------------------------------------------

    def _margin(self, job: _Job, taken_w: Floats | float = 0.0) -> tuple[float, int]:
        """Return the least share left of the budgets above a job, and whose; NaN: none is known."""
        budget_w = self.budget_w[job.places]
        share = np.full(len(budget_w), np.nan)
        left_w = self.left_w[job.places] - taken_w
        np.divide(left_w, budget_w, out=share, where=budget_w > 0)
        if np.isnan(share).all():
            return float("nan"), -1
        tightest = int(np.nanargmin(share))
        return float(share[tightest]), int(job.places[tightest])

    def _remember(self, job: _Job) -> None:
        """Note since when a job's margin is too small, and forget relapses that are long ago."""
        status, margin = job.status, self._margin(job)[0]
        wanted = self._next_down(job, margin)
        low_since = None
        if wanted is not None:
            low_since = self.now if status.low_since is None else status.low_since
        calm = status.level is Level.FULL and not self._has_just_risen(status)
        relapses = 0 if calm else status.relapses
        job.status = replace(status, low_since=low_since, relapses=relapses)

    def _next_down(self, job: _Job, margin: float) -> Level | None:
        """Return the lower level that a margin calls for; None: none."""
        for level in (Level.PAUSED, Level.SHRUNK):
            below = job.subject.throttling.below(level)
            if below is not None and level > job.status.level and margin < below:
                return level
        return None

    # --- Giving way -------------------------------------------------------------------------------

    def _give_way(self, level: Level) -> None:
        """Have jobs go to ``level`` until the margins of the others are large enough."""
        found = []
        for job in self.jobs:
            if level <= job.status.level or job.subject.throttling.below(level) is None:
                continue
            freed_w = self._change_w(job, level)
            cost = max(job.work_lost_per_s(level), 1e-9)
            found.append((float(freed_w.sum()) / cost, job.subject.key, job))
        # What changes falls below 0: the most negative frees the most.
        for _, _, job in sorted(found, key=lambda each: each[:2]):
            self._down(job, level)

    def _down(self, job: _Job, level: Level) -> None:
        below = job.subject.throttling.below(level)
        margin, place = self._margin(job)
        if below is None or not margin < below or not self._is_due(job, margin):
            return
        change_w = self._change_w(job, level)
        if not change_w.sum() < 0:
            return
        relapses = job.status.relapses + self._has_just_risen(job.status)
        job.status = replace(job.status, relapses=relapses)
        self._move(job, level, margin, place, change_w)

    def _has_just_risen(self, status: ResponseStatus) -> bool:
        rose_at = status.rose_at
        return rose_at is not None and self.now - rose_at < 2.0 * self._dwell_s(status.relapses)

    def _is_due(self, job: _Job, margin: float) -> bool:
        low_since = job.status.low_since
        is_sustained = low_since is not None and self.now - low_since >= self.tuning.sustain_s
        return margin < 0.0 or is_sustained

    # --- Going back -------------------------------------------------------------------------------

    def _go_back(self) -> None:
        """Have jobs go back one level where there is room, those first that lose the most."""
        moved = {change.key for change in self.changes}
        back = [
            job
            for job in self.jobs
            if job.status.level > Level.FULL and job.subject.key not in moved
        ]
        for job in sorted(back, key=lambda job: (-job.status.level, job.subject.key)):
            self._up(job)

    def _up(self, job: _Job) -> None:
        status, throttling = job.status, job.subject.throttling
        if self.now - status.since < self._dwell_s(status.relapses):
            return
        can_shrink = throttling.shrink_below is not None and status.level is Level.PAUSED
        level = Level.SHRUNK if can_shrink else Level.FULL
        change_w = self._change_w(job, level)
        margin, place = self._margin(job, np.maximum(job.carried(change_w), 0.0))
        # What is above the level now decides, and what would be next: a job that goes back past
        # both margins has to keep clear of both.
        wanted = max(self._margins_down_to(throttling, level), default=0.0) + self.tuning.band
        if margin >= wanted:
            self._move(job, level, margin, place, change_w)

    @staticmethod
    def _margins_down_to(throttling: Throttling, level: Level) -> list[float]:
        asked = [throttling.below(each) for each in (Level.SHRUNK, Level.PAUSED) if each > level]
        return [each for each in asked if each is not None]

    # --- What comes of it -------------------------------------------------------------------------

    def _dwell_s(self, relapses: int) -> float:
        # Bounded before it is raised: it may be any number.
        factor = 2.0 ** min(relapses, 20)
        return min(self.tuning.dwell_s * factor, self.tuning.longest_dwell_s)

    def _change_w(self, job: _Job, level: Level) -> Floats:
        """Return the change of a job's draw with a level, W by node."""
        return job.expected_w(level) - job.draws_w(self.now, self.tuning.settle_s)

    def _move(self, job: _Job, level: Level, margin: float, place: int, change_w: Floats) -> None:
        was = job.status
        self.left_w[job.places] -= job.carried(change_w)
        total_w = float(change_w.sum())
        job.status = replace(
            was,
            level=level,
            since=self.now,
            low_since=None,
            rose_at=self.now if level < was.level else was.rose_at,
            full_w=job.full_w(),
        )
        self.changes.append(
            Change(
                key=job.subject.key,
                was=was.level,
                level=level,
                margin=margin,
                place=place,
                change_w=total_w,
                sentence=_sentence(job, was.level, level, margin, total_w),
            )
        )


def _sentence(job: _Job, was: Level, level: Level, margin: float, change_w: float) -> str:
    throttling = job.subject.throttling
    smaller = (
        f"its batch at {throttling.batch_scale:.2g}"
        if throttling.cap_w is None
        else f"at most {throttling.cap_w:.0f} W per GPU"
    )
    if level < was:
        how = "in full" if level is Level.FULL else f"with {smaller}"
        with_it = f"with its {change_w / 1e3:.1f} kW"
        left = f"{100 * margin:.1f} % of the tightest budget is left {with_it}"
        if math.isinf(margin):
            left = f"caps keep every budget above it, also {with_it}"
        return f"goes on {how}: {left}"
    does = "pauses" if level is Level.PAUSED else f"goes on with {smaller}"
    below = throttling.below(level) or 0.0
    return (
        f"{100 * margin:.1f} % of the tightest budget is left, under the {100 * below:.1f} % from "
        f"which on it {does}: frees about {-change_w / 1e3:.1f} kW"
    )
