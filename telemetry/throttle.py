"""Throttle events from readings: the pure part.

An event is a span in which one GPU showed one cause. It opens with the first reading that has the
cause's bit, goes on with each further one, and closes with the first that has not. A GPU that falls
silent leaves its events open: silence is not recovery.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from headroom.contracts import ThrottleCause
from telemetry.samples import NULL_INT, Array, Rows

_CAUSES = tuple(int(cause) for cause in ThrottleCause)
#: Bits that say that a GPU is throttled; the others tell of idleness or settings.
THROTTLE_BITS = sum(_CAUSES)

Key: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Event:
    """A throttle event so far. Times are Unix seconds; None: never read."""

    gpu_id: int
    cause: int
    opened_at: float
    updated_at: float
    closed_at: float | None = None
    readings: int = 1
    peak_temp_c: float | None = None
    peak_power_w: float | None = None
    min_sm_mhz: float | None = None

    @property
    def key(self) -> Key:
        return (self.gpu_id, self.cause)


@dataclass(frozen=True)
class _Reading:
    gpu_id: int
    ts: float
    mask: int
    temp_c: float
    power_w: float
    sm_mhz: float


@dataclass
class Changes:
    """What readings did to the events. An event that opened and closed stands in ``opened``."""

    opened: list[Event] = field(default_factory=list)
    updated: list[Event] = field(default_factory=list)
    closed: list[Event] = field(default_factory=list)


class Tracker:
    """The open events of a fleet, moved on by readings."""

    def __init__(self, open_events: Iterable[Event]) -> None:
        self._open: dict[Key, Event] = {event.key: event for event in open_events}
        self._gpus_with_open = {gpu_id for gpu_id, _ in self._open}

    def advance(self, rows: Rows, known_until: Array) -> Changes:
        """Take in GPU rows and return what changed.

        ``known_until`` gives for each row the time (Unix seconds) up to which its GPU's readings
        were taken in before; older rows come late and change nothing.
        """
        before = dict(self._open)
        ended: list[Event] = []
        for reading in self._interesting(rows, known_until):
            ended += self._take(reading)
        changes = Changes()
        for event in ended:
            was_open = before.get(event.key)
            known = was_open is not None and was_open.opened_at == event.opened_at
            (changes.closed if known else changes.opened).append(event)
        for key, event in self._open.items():
            was_open = before.get(key)
            if was_open is None or was_open.opened_at != event.opened_at:
                changes.opened.append(event)
            elif was_open is not event:
                changes.updated.append(event)
        self._gpus_with_open = {gpu_id for gpu_id, _ in self._open}
        return changes

    def _interesting(self, rows: Rows, known_until: Array) -> Iterator[_Reading]:
        """Yield, in order of time, the readings that can open, prolong or close an event."""
        columns = rows.columns
        mask = columns["throttle"]
        # Of a GPU that throttles anywhere in these rows, all rows count: one of them may close it.
        throttled = columns["gpu_id"][(mask != NULL_INT) & ((mask & THROTTLE_BITS) != 0)]
        watched = np.union1d(throttled, list(self._gpus_with_open)).astype("i8")
        chosen = np.flatnonzero(
            (mask != NULL_INT) & (columns["ts"] > known_until) & np.isin(columns["gpu_id"], watched)
        )
        chosen = chosen[np.argsort(columns["ts"][chosen], kind="stable")]
        names = ("gpu_id", "ts", "throttle", "temp_c", "power_w", "sm_mhz")
        values = (columns[name][chosen].tolist() for name in names)
        return (_Reading(*row) for row in zip(*values, strict=True))

    def _take(self, reading: _Reading) -> list[Event]:
        """Move the GPU's events on and return those that the reading closes."""
        ended = []
        for cause in _CAUSES:
            key = (reading.gpu_id, cause)
            event = self._open.get(key)
            if reading.mask & cause:
                self._open[key] = _opened(reading, cause) if event is None else _on(event, reading)
            elif event is not None:
                ended.append(replace(event, closed_at=reading.ts))
                del self._open[key]
        return ended


def _opened(reading: _Reading, cause: int) -> Event:
    return Event(
        gpu_id=reading.gpu_id,
        cause=cause,
        opened_at=reading.ts,
        updated_at=reading.ts,
        peak_temp_c=_known(reading.temp_c),
        peak_power_w=_known(reading.power_w),
        min_sm_mhz=_known(reading.sm_mhz),
    )


def _on(event: Event, reading: _Reading) -> Event:
    return replace(
        event,
        updated_at=reading.ts,
        readings=event.readings + 1,
        peak_temp_c=_extreme(max, event.peak_temp_c, reading.temp_c),
        peak_power_w=_extreme(max, event.peak_power_w, reading.power_w),
        min_sm_mhz=_extreme(min, event.min_sm_mhz, reading.sm_mhz),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _extreme(
    choose: Callable[[list[float]], float], so_far: float | None, value: float
) -> float | None:
    known = [v for v in (so_far, _known(value)) if v is not None]
    return choose(known) if known else None
