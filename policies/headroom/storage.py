"""Storage endpoints: what is promised of them, and how long they take."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleet.groups import count_by, least_by, ratio
from fleet.tables import FleetArrays
from policies.headroom.columns import Floats, Ints
from policies.headroom.inputs import Past, Reservations
from telemetry.live_frame import LiveFrame, is_fresh

#: Of the mounts of an endpoint this share is at most as slow as what is shown.
PERCENTILE = 0.95


def columns(
    fleet: FleetArrays,
    frame: LiveFrame,
    past: Past,
    reservations: Reservations,
    *,
    now: float,
    stale_after_s: float,
) -> dict[str, Any]:
    """Return the columns of storage endpoints.

    No reading says how much an endpoint carries, so its load is what jobs have reserved; as long as
    none has, it is unknown.
    """
    count, endpoint = len(fleet.storage), past.mounts.endpoint
    record = frame.fields("storage", past.mounts.ids, "ts", "fsync_s", "read_s")
    fresh = is_fresh(record["ts"], now, stale_after_s) & (endpoint >= 0)
    age_s = -least_by(np.where(fresh, record["ts"] - now, np.nan), endpoint, count)
    reserved = reservations.storage_bytes_per_s
    load = np.where(reserved > 0, reserved, np.nan)
    capacity = fleet.storage.capacity_bytes_per_s
    mounts = count_by(fresh, endpoint, count)
    return {
        "age_s": age_s,
        "stale": mounts == 0,
        "storage_capacity_bytes_per_s": capacity,
        "storage_load_bytes_per_s": load,
        "storage_headroom_bytes_per_s": capacity - load,
        "storage_use": ratio(load, np.nan_to_num(capacity)),
        "fsync_s": _slowest(record["fsync_s"], fresh, endpoint, count),
        "read_s": _slowest(record["read_s"], fresh, endpoint, count),
        "mounts": mounts,
    }


def _slowest(values: Floats, fresh: Any, endpoint: Ints, count: int) -> Floats:
    """Return the percentile of the fresh values of each endpoint: the one at or above it."""
    out = np.full(count, np.nan)
    known = np.flatnonzero(fresh & ~np.isnan(values))
    order = known[np.lexsort((values[known], endpoint[known]))]
    groups, first, size = np.unique(endpoint[order], return_index=True, return_counts=True)
    place = first + np.ceil(PERCENTILE * size).astype(np.int64) - 1
    out[groups] = values[order[place]]
    return out
