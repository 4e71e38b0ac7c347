"""The input of the tracker: readings of GPUs as arrays, and ratings from the inventory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from telemetry.samples import NULL_INT, Rows
from telemetry.throttle.rules import CAUSES, LOADED_UTIL, Array

_GPU_IDLE = 0x1
_POSTGRES_EPOCH_S = 946_684_800
#: Display clocks have no counter of their time.
_COUNTED = tuple(f"throttle_{cause.token}_ns" for cause in CAUSES[:-1])
COUNTERS = len(_COUNTED)
_AS_THEY_ARE = (
    "gpu_id", "energy_j", "power_w", "power_limit_w", "temp_c", "temp_mem_c", "sm_mhz", "util",
    "job_id",
)  # fmt: skip
#: Columns of the sample table that are read.
COLUMNS = ("ts", "throttle", *_COUNTED, *_AS_THEY_ARE)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of GPUs by database id, as of their models (NaN: unknown)."""

    power_w: Array
    sm_mhz: Array
    #: ids of GPUs whose power an agent says that it has capped
    capped: Array = field(default_factory=lambda: np.zeros(0, "i8"))

    def rated_w(self, gpu_id: Array) -> Array:
        """Return the rated power of each of ``gpu_id``."""
        return _of(self.power_w, gpu_id)

    def rated_mhz(self, gpu_id: Array) -> Array:
        """Return the highest clock of each of ``gpu_id``."""
        return _of(self.sm_mhz, gpu_id)


def _of(values: Array, gpu_id: Array) -> Array:
    known = gpu_id < len(values)
    return np.where(known, np.append(values, np.nan)[np.where(known, gpu_id, -1)], np.nan)


NO_RATINGS = Ratings(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of GPUs, a row each. Missing: NaN in floats, ``NULL_INT`` in integers.

    ``us`` is the time in whole microseconds, as the sample tables keep it, so that a reading that
    comes again is told from a new one also after it was read back.
    """

    us: Array
    gpu_id: Array
    mask: Array
    #: (rows, causes but the last): cumulative ns
    counters: Array
    energy_j: Array
    power_w: Array
    power_limit_w: Array
    temp_c: Array
    temp_mem_c: Array
    sm_mhz: Array
    util: Array
    job_id: Array

    def __len__(self) -> int:
        return len(self.us)

    @classmethod
    def of(cls, rows: Rows) -> Readings:
        """Return the rows that say anything about throttling."""
        columns = rows.columns
        mask = columns["throttle"]
        counters = np.stack([columns[name] for name in _COUNTED], axis=1)
        whole = cls(
            us=microseconds(columns["ts"]),
            mask=mask,
            counters=counters,
            **{name: columns[name] for name in _AS_THEY_ARE},
        )
        told = (mask != NULL_INT) | (counters != NULL_INT).any(axis=1)
        return whole if told.all() else whole.take(np.flatnonzero(told))

    def take(self, rows: Array) -> Readings:
        """Return the given rows, in the given order."""
        return Readings(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    @property
    def loaded(self) -> Array:
        """Whether the GPU is at work: by its use, else by not saying that it idles."""
        not_idle = (self.mask != NULL_INT) & ((self.mask & _GPU_IDLE) == 0)
        loaded: Array = np.where(np.isnan(self.util), not_idle, self.util >= LOADED_UTIL)
        return loaded


def microseconds(ts: Array) -> Array:
    """Return Unix seconds as whole microseconds, rounded as COPY rounds them."""
    since_2000: Array = np.round((ts - _POSTGRES_EPOCH_S) * 1e6).astype("i8")
    return since_2000 + _POSTGRES_EPOCH_S * 1_000_000
