"""The latest reading of a GPU or host, beside the ratings of its model. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboard import causes, scale
from dashboard.causes import Cause
from fleet.models import Gpu, HardwareModel
from telemetry.live_frame import is_fresh
from telemetry.throttle import rules

#: A margin of this many degrees is all the scale shows, °C.
_FULL_HEAT_MARGIN_C = 50.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A record of the live frame at one moment. ``age_s`` is None where nothing was ever heard."""

    values: dict[str, float | None]
    age_s: float | None
    stale: bool

    @property
    def seen(self) -> bool:
        return self.age_s is not None

    def __getitem__(self, name: str) -> float | None:
        return self.values[name]


def read(record: Any, now: float, stale_after_s: float) -> Reading:
    """Make a reading of one record; missing values are None."""
    names = [name for name in record.dtype.names if name not in ("ts", "received_at")]
    ts = float(record["ts"])
    age_s = now - ts if ts > 0 else None
    return Reading(
        values={name: _known(float(record[name])) for name in names},
        age_s=age_s,
        stale=age_s is None or not is_fresh(ts, now, stale_after_s),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


@dataclass(frozen=True, slots=True)
class GpuNow:
    """The state of one GPU."""

    id: int
    index: int
    model: HardwareModel
    reading: Reading

    @property
    def limit_w(self) -> float | None:
        """The power limit in force; the model's rated power where the GPU does not report one."""
        return self.reading["power_limit_w"] or self.model.rated_w

    @property
    def slowdown_c(self) -> float | None:
        """The slowdown temperature: as the GPU reports, else as its model is rated."""
        return self.reading["temp_limit_c"] or self.model.slowdown_c

    @property
    def margin_c(self) -> float | None:
        """Degrees left to slowdown."""
        temp, limit = self.reading["temp_c"], self.slowdown_c
        return None if temp is None or limit is None else limit - temp

    @property
    def clock_ratio(self) -> float | None:
        clock, most = self.reading["sm_mhz"], self.model.sm_max_mhz
        return None if clock is None or not most else clock / most

    @property
    def causes(self) -> list[Cause]:
        """The throttle causes now; none are known when the reading is stale."""
        return [] if self.reading.stale else causes.in_mask(int(self.reading["throttle"] or 0))

    @property
    def is_unexpected(self) -> bool:
        """Whether it throttles now though nobody asked for it."""
        mask = 0 if self.reading.stale else self.reading["throttle"] or 0
        watts = np.array([[self.limit_w], [self.model.rated_w]], dtype=np.float64)
        return bool(rules.unexpected(np.array([mask], dtype=np.int64), *watts)[0])

    @property
    def heat_class(self) -> str:
        """CSS class of the margin to slowdown."""
        margin = None if self.margin_c is None else self.margin_c / _FULL_HEAT_MARGIN_C
        return scale.css(scale.level(margin, stale=self.reading.stale, seen=self.reading.seen))


def gpu_now(gpu: Gpu, record: Any, now: float, stale_after_s: float) -> GpuNow:
    """Return the state of ``gpu`` (with its model) by its record of the live frame."""
    return GpuNow(gpu.pk, gpu.index, gpu.model, read(record, now, stale_after_s))


def hottest(gpus: list[GpuNow]) -> GpuNow | None:
    """Return the GPU with the least margin to slowdown by a fresh reading."""
    known = [gpu for gpu in gpus if gpu.margin_c is not None and not gpu.reading.stale]
    return min(known, key=lambda gpu: gpu.margin_c or 0.0, default=None)


def total(gpus: list[GpuNow], name: str) -> float | None:
    """Return the sum of a value over fresh readings; None where none has it."""
    known = [v for gpu in gpus if not gpu.reading.stale and (v := gpu.reading[name]) is not None]
    return sum(known) if known else None


def mean_clock_ratio(gpus: list[GpuNow]) -> float | None:
    """Return the mean share of the highest SM clock over fresh readings."""
    known = [r for gpu in gpus if not gpu.reading.stale and (r := gpu.clock_ratio) is not None]
    return sum(known) / len(known) if known else None
