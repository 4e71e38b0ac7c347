"""Readings for the tracker, and what came of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from headroom.contracts import ThrottleCause
from telemetry import samples
from telemetry.samples import NULL_INT, Rows
from telemetry.throttle.events import Changes
from telemetry.throttle.readings import Ratings, Readings
from telemetry.throttle.rules import CAUSES, Array, Severity
from telemetry.throttle.tracker import Tracker

CAP, HOT = ThrottleCause.SW_POWER_CAP, ThrottleCause.SW_THERMAL
BRAKE, SLOW = ThrottleCause.HW_POWER_BRAKE, ThrottleCause.HW_SLOWDOWN
DISPLAY = ThrottleCause.DISPLAY_CLOCK
GPU = 7
RATINGS = Ratings(power_w=np.full(600, 700.0), sm_mhz=np.full(600, 1980.0))
#: Any moment will do.
T0 = 1_790_000_000.0


def reading(t: float, gpu: int = GPU, mask: int | None = None, **given: Any) -> dict[str, Any]:
    """A reading ``t`` seconds after T0. ``brake=3.5``: that counter stands at 3.5 s."""
    counters = {
        f"throttle_{cause.token}_ns": round(given.pop(cause.token) * 1e9)
        for cause in ThrottleCause
        if cause.token in given
    }
    return {"ts": T0 + t, "gpu_id": gpu, "throttle": mask, **counters, **given}


def make_rows(readings: list[dict[str, Any]]) -> Rows:
    """Return readings as rows of the sample table; what is not given is missing."""
    columns = {
        column.name: samples.as_array(column.dtype, [r.get(column.name) for r in readings])
        for column in samples.GPU.columns
    }
    return Rows(samples.GPU, columns)


def make_readings(readings: list[dict[str, Any]]) -> Readings:
    return Readings.of(make_rows(readings))


class Follower:
    """A tracker, and the events as a database would hold them after each round."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.closed: list[dict[str, Any]] = []
        self.open: dict[tuple[int, int], Any] = {}

    def take(self, *readings: dict[str, Any]) -> Follower:
        self.store(self.tracker.advance(make_readings(list(readings)), RATINGS))
        return self

    def store(self, changes: Changes) -> None:
        """Apply changes as the statements do: closing first, since an event may follow at once."""
        for record in changes.closed:
            del self.open[_key(record)]
            self.closed.append(as_dict(record))
        for record in changes.updated:
            assert _key(record) in self.open
            self.open[_key(record)] = record.copy()
        for record in changes.opened:
            if record["closed_us"]:
                self.closed.append(as_dict(record))
            else:
                assert _key(record) not in self.open
                self.open[_key(record)] = record.copy()

    @property
    def now(self) -> list[dict[str, Any]]:
        """The events that go on, as the tracker has them."""
        return [as_dict(record) for record in self.tracker.open_events()]

    @property
    def only(self) -> dict[str, Any]:
        """The only event of all."""
        (event,) = [*self.closed, *self.now]
        return event


def _key(record: Any) -> tuple[int, int]:
    return int(record["gpu_id"]), int(record["cause"])


def as_dict(record: Array) -> dict[str, Any]:
    """Return an event as tests look at it: times in s after T0, None where nothing is known."""
    at = {
        name: None if not record[f"{name}_us"] else record[f"{name}_us"] / 1e6 - T0
        for name in ("opened", "updated", "closed")
    }
    values = {
        name: _known(float(record[name]))
        for name in (
            "observed_s", "throttled_s", "capped_s", "sampled_s", "lost_mhz_s", "energy_j",
            "usual_mhz", "peak_temp_c", "peak_temp_mem_c", "peak_power_w", "min_sm_mhz",
        )
    }  # fmt: skip
    job = int(record["job_id"])
    return {
        "gpu": int(record["gpu_id"]),
        "cause": CAUSES[int(record["cause"])],
        "readings": int(record["readings"]),
        "expected": bool(record["expected"]),
        "severity": Severity(int(record["severity"])),
        "job": None if job == NULL_INT else job,
        **at,
        **values,
    }


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
