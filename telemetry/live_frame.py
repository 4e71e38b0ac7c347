"""The latest readings of a fleet, as arrays by kind of thing.

``LiveFrame`` has that of now, ``RecordedFrame`` that of many moments at once. ``telemetry.frame``
keeps the first in Redis, ``telemetry.timeline.frames`` makes the second of samples; nothing here
needs either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.groups import at
from fleet.tables import FleetArrays
from telemetry import samples
from telemetry.samples import Table

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

KINDS: dict[str, Table] = {
    "gpu": samples.GPU,
    "host": samples.HOST,
    "link": samples.LINK,
    "meter": samples.METER,
    "storage": samples.STORAGE,
}


def _dtype(table: Table) -> np.dtype[Any]:
    """Time first; floats as float32 or float64; counters as float64, where NaN can say missing."""
    layout = [("ts", "f8"), ("received_at", "f8")]
    for column in table.fields:
        if column.name.startswith("throttle_"):
            continue  # cumulative counters are for the samples; the live mask is what pages show
        if column.name in ("throttle", "job_id"):
            layout.append((column.name, "i8"))  # 0 is "none" for both
        else:
            layout.append((column.name, "f4" if column.pg_type == "float4" else "f8"))
    return np.dtype(layout)


DTYPES = {kind: _dtype(table) for kind, table in KINDS.items()}


#: No reading is accepted that is further ahead than some seconds: one that is was read before the
#: clock was set back, s.
AHEAD_S = 60.0


def is_fresh(ts: Any, now: Any, stale_after_s: float) -> Any:
    """Say of each reading whether it is young enough, and not of a time that is still to come.

    ``ts`` and ``now``: Unix s, numbers or arrays that broadcast.
    """
    age_s = now - ts
    return (age_s <= stale_after_s) & (age_s >= -AHEAD_S)


def never_seen(kind: str, count: int) -> Array:
    """Return ``count`` records of things that were never heard of."""
    records = np.zeros(count, dtype=DTYPES[kind])
    _blank(records, slice(None))
    return records


def _blank(records: Array, where: Any) -> None:
    for name in records.dtype.names or ():
        if name not in ("ts", "received_at") and records.dtype[name].kind == "f":
            records[name][where] = np.nan


def unheard_blank(records: Array) -> Array:
    """Return ``records`` with NaN for every value of a thing that was never heard, read-only.

    They are the same array where they have that already.
    """
    unheard = np.flatnonzero(records["ts"] == 0.0)
    names = [name for name in records.dtype.names or () if records.dtype[name].kind == "f"]
    values = [name for name in names if name not in ("ts", "received_at")]
    if all(np.isnan(records[name][unheard]).all() for name in values):
        return records
    records = records.copy()
    _blank(records, unheard)
    records.flags.writeable = False
    return records


class Frame(Protocol):
    """The latest readings at one moment, or at each of many."""

    def fields(self, kind: str, ids: Ints, *names: str) -> Mapping[str, Array]:
        """Return fields of the things of ``kind`` that ``ids`` name: (things,) or (times, things).

        ``ts`` is 0 and values are NaN (codes: 0) where nothing was heard.
        """
        ...


@dataclass(frozen=True, eq=False)
class LiveFrame:
    """The latest readings at one version. Arrays are indexed by database id and read-only."""

    version: str
    arrays: dict[str, Array]

    @property
    def gpu(self) -> Array:
        return self.arrays["gpu"]

    @property
    def host(self) -> Array:
        return self.arrays["host"]

    @property
    def link(self) -> Array:
        return self.arrays["link"]

    @property
    def meter(self) -> Array:
        return self.arrays["meter"]

    def rows(self, kind: str, ids: Array) -> Array:
        """Return the records of ``ids``; ``ts`` is 0 and values are NaN where nothing was heard."""
        records = self.arrays[kind]
        inside = ids < len(records)
        if inside.all():
            return records[ids]
        out = never_seen(kind, len(ids))
        out[inside] = records[ids[inside]]
        return out

    def fields(self, kind: str, ids: Array, *names: str) -> dict[str, Array]:
        """Return of the records of ``ids`` the fields ``names`` alone: for whole fleets.

        Copying whole records costs several times as much.
        """
        records = self.arrays[kind]
        if len(ids) and ids.max() >= len(records):
            rows = self.rows(kind, ids)
            return {name: rows[name] for name in names}
        return {name: records[name][ids] for name in names}


@dataclass(frozen=True, eq=False)
class RecordedFrame:
    """The latest readings at each of many moments: live frames, one on top of the other.

    ``ids`` are those of each kind, ``arrays`` its fields as (times, things) in the same order. To
    ask for a field that was not read raises KeyError.
    """

    ids: Mapping[str, Ints]
    arrays: Mapping[str, Mapping[str, Array]]

    def moment(self, index: int) -> RecordedFrame:
        """Return the frame of one of the moments, whose fields are (things,)."""
        arrays = {
            kind: {name: values[index] for name, values in fields.items()}
            for kind, fields in self.arrays.items()
        }
        return RecordedFrame(self.ids, arrays)

    def fields(self, kind: str, ids: Ints, *names: str) -> Mapping[str, Array]:
        there, known = self.ids[kind], self.arrays[kind]
        if ids is there:
            return {name: known[name] for name in names}
        row_by_id = {key: row for row, key in enumerate(there.tolist())}
        rows = np.array([row_by_id.get(key, -1) for key in ids.tolist()], dtype=np.int64)
        unheard = never_seen(kind, 1)
        return {name: at(known[name], rows, unheard[name][0]) for name in names}


class AskedFrame:
    """A frame of things that were never heard, which notes the fields that it is asked for."""

    def __init__(self) -> None:
        #: by kind
        self.asked: dict[str, set[str]] = {}

    def fields(self, kind: str, ids: Ints, *names: str) -> Mapping[str, Array]:
        self.asked.setdefault(kind, set()).update(names)
        unheard = never_seen(kind, len(ids))
        return {name: unheard[name] for name in names}


@dataclass(frozen=True, eq=False)
class Readings:
    """A fleet as it is read at one moment, ``now`` (Unix s), or at many: ``now`` is (times, 1)."""

    fleet: FleetArrays
    frame: Frame
    now: float | Floats
    stale_after_s: float

    def is_fresh(self, ts: Array) -> Bools:
        """Say which readings count as of now."""
        fresh: Bools = is_fresh(ts, self.now, self.stale_after_s)
        return fresh

    def age_s(self, ts: Array) -> Floats:
        """Return the age of readings, NaN where there is none."""
        return np.where(ts > 0, self.now - ts, np.nan)
