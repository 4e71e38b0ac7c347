"""Loads of the last minutes, for all scopes at once, kept through restarts in Redis.

A slot is one array of float32 over all series at one moment. Slots are at least ``every_s`` apart,
whoever writes them: any process that evaluates headroom may. Each process keeps the slots that it
has seen, so it reads each of them once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays
from policies.headroom.columns import Floats, Ints
from telemetry import stream

Slot = NDArray[np.float32]


class History:
    """The slots of one set of series. Rows follow the tables ``tables`` of the inventory, in turn.

    When the inventory changes, series keep their past by the ids of what they are of.
    """

    def __init__(self, name: str, tables: tuple[str, ...], *, every_s: float, slots: int) -> None:
        self.name = name
        self.tables = tables
        self.every_s = every_s
        self.slots = slots
        #: Redis forgets a slot once it has left the window for good.
        self._kept_s = int(2 * every_s * slots)
        self._lock = threading.Lock()
        self._fleet: FleetArrays | None = None
        self._known: OrderedDict[float, Slot] = OrderedDict()

    def bounds(self, fleet: FleetArrays) -> dict[str, slice]:
        """Return where the rows of each table are in a slot."""
        found, first = {}, 0
        for name in self.tables:
            last = first + len(getattr(fleet, name))
            found[name] = slice(first, last)
            first = last
        return found

    def window(self, fleet: FleetArrays) -> tuple[Floats, NDArray[np.float32]]:
        """Return the times (Unix s, rising) and the slots of ``fleet``. One or two round trips."""
        with self._lock:
            self._follow(fleet)
            self._fetch()
            series = self.bounds(fleet)[self.tables[-1]].stop
            values = list(self._known.values())
            stacked = np.stack(values) if values else np.zeros((0, series), dtype=np.float32)
            return np.array(list(self._known)), stacked

    def note(self, fleet: FleetArrays, now: float, values: Slot) -> bool:
        """Add a slot, unless the newest is too young. Return whether it was added."""
        if now - self.every_s < self._newest() <= now + self.every_s:
            return False
        connection = stream.connection()
        with self._lock:
            self._follow(fleet)
            self._fetch()
            if self._newest() > now + self.every_s:
                self._begin_anew()
            if self._newest() > now - self.every_s:
                return False
            # Two processes may come to this at once: one of them writes.
            turn, turn_s = self._key(f"turn:{self._newest()!r}"), max(1, int(self.every_s))
            stream.forget_if_clock_was_set_back(turn, turn_s)
            if not connection.set(turn, 1, nx=True, ex=turn_s):
                return False
            self._write(now, values.astype(np.float32))
            return True

    def invalidate(self) -> None:
        """Forget the slots kept in this process. Those in Redis stay."""
        with self._lock:
            self._fleet = None
            self._known.clear()

    def _newest(self) -> float:
        return next(reversed(self._known), -np.inf)

    def _key(self, suffix: Any) -> str:
        generation = self._fleet.generation if self._fleet else 0
        return f"headroom:{self.name}:{generation}:{suffix}"

    def _write(self, at: float, slot: Slot) -> None:
        pipe = stream.connection().pipeline(transaction=True)
        pipe.set(self._key(repr(at)), slot.tobytes(), ex=self._kept_s)
        pipe.lpush(self._key("times"), repr(at))
        pipe.ltrim(self._key("times"), 0, self.slots - 1)
        pipe.expire(self._key("times"), self._kept_s)
        pipe.execute()
        self._add(at, slot)

    def _add(self, at: float, slot: Slot) -> None:
        self._known[at] = slot
        while len(self._known) > self.slots:
            self._known.popitem(last=False)

    def _begin_anew(self) -> None:
        """Forget slots of a time that is still to come: the clock was set back since."""
        stream.connection().delete(self._key("times"))
        self._known.clear()

    def _fetch(self) -> None:
        """Take over the slots that others wrote."""
        connection = stream.connection()
        found = cast(list[bytes], connection.lrange(self._key("times"), 0, self.slots - 1))
        times = sorted({float(at) for at in found} - self._known.keys())
        times = [at for at in times if at > self._newest()]
        if not times:
            return
        data = cast(list[bytes | None], connection.mget([self._key(repr(at)) for at in times]))
        for at, each in zip(times, data, strict=True):
            if each is not None:
                self._add(at, np.frombuffer(each, dtype=np.float32))

    def _follow(self, fleet: FleetArrays) -> None:
        """Turn to the rows of ``fleet``, and carry over the slots of rows known before."""
        before = self._fleet
        if before is not None and before.generation == fleet.generation:
            return
        self._fleet = fleet
        if before is None:
            return
        rows = _rows_of(self, before, fleet)
        self._known = OrderedDict(
            (at, np.append(slot, np.float32(np.nan))[rows]) for at, slot in self._known.items()
        )


def _rows_of(history: History, before: FleetArrays, after: FleetArrays) -> Ints:
    """Return for each series of ``after`` its row in the slots of ``before``, -1 for new ones."""
    places = history.bounds(before)
    found = []
    for name, place in places.items():
        old = getattr(before, name).index_by_id
        rows = [old.get(key, -1) for key in getattr(after, name).ids.tolist()]
        row = np.array(rows, dtype=np.int64)
        found.append(np.where(row < 0, -1, row + place.start))
    return np.concatenate(found)
