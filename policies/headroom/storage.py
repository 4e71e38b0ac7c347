"""Storage endpoints: the bandwidth reserved on each, and its latencies."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleet.groups import count_by, most_by, ratio
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.inputs import Past, Reservations
from policies.headroom.trend import percentile
from telemetry.live_frame import Readings

#: Of the mounts of an endpoint this share is at most as slow as what is shown.
PERCENTILE = 0.95


def columns(readings: Readings, past: Past, reservations: Reservations) -> dict[str, Any]:
    """Return the columns of storage endpoints.

    No reading says how much an endpoint carries, so its load is what jobs have reserved; as long as
    none has, it is unknown.
    """
    fleet, endpoint = readings.fleet, past.mounts.endpoint
    count = len(fleet.storage)
    record = readings.frame.fields("storage", past.mounts.ids, "ts", "fsync_s", "read_s")
    fresh = readings.is_fresh(record["ts"]) & (endpoint >= 0)
    age_s = most_by(np.where(fresh, readings.now - record["ts"], np.nan), endpoint, count)
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


def _slowest(values: Floats, fresh: Bools, endpoint: Ints, count: int) -> Floats:
    """Return the percentile of the fresh values of each endpoint: the one at or above it."""
    out = np.full((*values.shape[:-1], count), np.nan)
    known = np.where(fresh, values, np.nan)
    for row in np.unique(endpoint[endpoint >= 0]).tolist():
        of_mounts = np.moveaxis(known[..., endpoint == row], -1, 0)
        out[..., row] = percentile(of_mounts, PERCENTILE)
    return out
