"""What is known of a fleet right now: the latest reading of every thing, as arrays by kind.

``telemetry.frame`` keeps them in Redis; nothing here needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from telemetry import samples
from telemetry.samples import Table

Array: TypeAlias = NDArray[Any]

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


def is_fresh(ts: Any, now: float, stale_after_s: float) -> Any:
    """Say of each reading whether it is young enough, and not of a time that is still to come.

    ``ts``: Unix s, a number or an array.
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
