"""Recordings: the readings in a published file, and which of them are due when. Pure.

Nothing is mended: order, gaps, duplicate times, zero and negative readings stay as published.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headroom.errors import HeadroomError

__all__ = [
    "GAP_S",
    "Hardware",
    "JobPoint",
    "Recording",
    "RecordingError",
    "Schedule",
    "Span",
    "Summary",
    "slug",
    "summarize",
]

#: Silence of a meter for longer than this counts as a gap, s.
GAP_S = 10.0


class RecordingError(HeadroomError):
    """The recording cannot be read."""


@dataclass(frozen=True)
class Hardware:
    """The hardware of the recorded nodes, for the inventory."""

    gpu_model: str
    gpu_rated_w: float
    gpu_idle_w: float
    gpu_mem_bytes: int
    host_model: str
    host_rated_w: float
    host_idle_w: float
    gpus_per_node: int
    nodes_per_rack: int
    #: Share of the rack's budget for each of its nodes, W.
    node_budget_w: float
    cooling_kind: str
    supply_c: float
    vendor: str = "NVIDIA"
    #: Of the GPU: where its clocks are cut, where it stops, and its highest clock; None: not known.
    slowdown_c: float | None = 87
    slowdown_mem_c: float | None = 95
    shutdown_c: float | None = 92
    sm_max_mhz: float | None = 1980


@dataclass(frozen=True)
class JobPoint:
    """The progress that a training loop reported at one moment of the recording."""

    t_s: float
    step: int | None = None
    loss: float | None = None
    step_time_s: float | None = None
    samples_per_s: float | None = None


@dataclass(frozen=True)
class Recording:
    """Readings of one or more runs, as columns in order of time; none in a log of training steps.

    ``t_s`` is recorded time in seconds and never falls; ``node`` and ``run`` index ``nodes`` and
    ``runs``. Runs that are far apart in the source are moved together, so only differences of
    ``t_s`` within a run are the source's own.
    """

    #: Names the fleet that is made for it.
    title: str
    #: None where nothing says which machines were recorded, or none were.
    hardware: Hardware | None
    nodes: tuple[str, ...]
    runs: tuple[str, ...]
    t_s: array[float]
    node: array[int]
    run: array[int]
    power_w: array[float]
    #: The name of the training job, and what it reported; empty where the source has none.
    job: str = ""
    job_points: tuple[JobPoint, ...] = ()

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def start_s(self) -> float:
        """The time of the first reading; where there is none, that the job told of first."""
        return self.t_s[0] if self.t_s else self.job_points[0].t_s

    @property
    def duration_s(self) -> float:
        """The time from the first reading to the last, or that the job told of."""
        return (self.t_s[-1] if self.t_s else self.job_points[-1].t_s) - self.start_s

    def first(self, limit_s: float) -> Recording:
        """Return the part of the first ``limit_s`` recorded seconds."""
        end_s = self.start_s + limit_s
        stop = bisect_right(self.t_s, end_s)
        return replace(
            self,
            t_s=self.t_s[:stop],
            node=self.node[:stop],
            run=self.run[:stop],
            power_w=self.power_w[:stop],
            job_points=tuple(point for point in self.job_points if point.t_s <= end_s),
        )


@dataclass(frozen=True)
class Span:
    """Readings ``start`` to ``stop`` and the job points that go with them."""

    start: int
    stop: int
    job_start: int
    job_stop: int

    def __bool__(self) -> bool:
        return self.stop > self.start or self.job_stop > self.job_start


class Schedule:
    """Hands out a recording bit by bit, at ``speed`` recorded seconds a second from ``begin_s`` on.

    Times given and returned are those of the clock that ``begin_s`` was read from.
    """

    def __init__(self, recording: Recording, *, speed: float, begin_s: float) -> None:
        self._recording = recording
        self._job_t_s = [point.t_s for point in recording.job_points]
        self._speed = speed
        self._begin_s = begin_s
        #: How many readings and job points were handed out.
        self.position = 0
        self.job_position = 0

    @property
    def done(self) -> bool:
        """Whether all was handed out."""
        readings_left = self.position < len(self._recording)
        return not readings_left and self.job_position >= len(self._job_t_s)

    def recorded_s(self, now_s: float) -> float:
        """Return how far into the recording ``now_s`` is, s; no further than its end."""
        return min(max(0.0, (now_s - self._begin_s) * self._speed), self._recording.duration_s)

    def wall_s(self, t_s: float) -> float:
        """Return the moment at which recorded time ``t_s`` is due."""
        return self._begin_s + (t_s - self._recording.start_s) / self._speed

    def due(self, until_s: float, *, limit: int) -> Span:
        """Take the readings due up to ``until_s`` and not taken before, ``limit`` at most.

        What the limit holds back is due at the next call.
        """
        t_s = self._recording.t_s
        now = self._recording.start_s + (until_s - self._begin_s) * self._speed
        stop = min(bisect_right(t_s, now, self.position), self.position + limit)
        job_now = now if stop == len(t_s) or stop < self.position + limit else t_s[stop - 1]
        job_stop = max(bisect_right(self._job_t_s, job_now), self.job_position)
        span = Span(self.position, stop, self.job_position, job_stop)
        self.position, self.job_position = stop, job_stop
        return span


@dataclass(frozen=True)
class Summary:
    """The figures of a stretch of a recording."""

    readings: int
    #: By the trapezoid rule between good readings of a meter that follow each other, in recorded
    #: time: what was drawn beside a failed one is not known.
    energy_kwh: float
    #: Silences of one meter, within a run, of more than :data:`GAP_S`.
    gaps: int
    longest_gap_s: float
    #: Readings of zero or less: meters say so when they fail.
    non_positive: int


@dataclass
class _Meter:
    run: int
    t_s: float
    power_w: float


@dataclass
class _Tally:
    energy_j: float = 0.0
    gaps: int = 0
    longest_gap_s: float = 0.0
    last: dict[int, _Meter] = field(default_factory=dict)


def summarize(recording: Recording, count: int | None = None) -> Summary:
    """Sum up the first ``count`` readings, or all of them."""
    tally = _Tally()
    rows = list(_rows(recording, len(recording) if count is None else count))
    for run, node, t_s, power_w in rows:
        last = tally.last.get(node)
        if last is not None and last.run == run:
            span_s = t_s - last.t_s
            if power_w > 0 and last.power_w > 0:
                tally.energy_j += span_s * (power_w + last.power_w) / 2
            tally.gaps += span_s > GAP_S
            tally.longest_gap_s = max(tally.longest_gap_s, span_s)
        tally.last[node] = _Meter(run, t_s, power_w)
    return Summary(
        readings=len(rows),
        energy_kwh=tally.energy_j / 3.6e6,
        gaps=tally.gaps,
        longest_gap_s=tally.longest_gap_s,
        non_positive=sum(power_w <= 0 for *_, power_w in rows),
    )


def _rows(recording: Recording, count: int) -> Iterator[tuple[int, int, float, float]]:
    return zip(
        recording.run[:count],
        recording.node[:count],
        recording.t_s[:count],
        recording.power_w[:count],
        strict=True,
    )


def slug(text: str) -> str:
    """Return ``text`` as part of a name in the inventory: small letters, digits, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
