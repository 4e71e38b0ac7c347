"""Uncorrected memory errors, from a counter that is read now and then. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from telemetry.samples import NULL_INT
from telemetry.throttle.readings import microseconds
from telemetry.throttle.rules import Array


@dataclass(frozen=True, eq=False)
class Increases:
    """Counters that rose, a row each. Times are Unix µs."""

    gpu_id: Array
    since_us: Array
    at_us: Array
    count: Array
    total: Array


_NONE = Increases(*[np.zeros(0, "i8")] * 5)


class EccCounters:
    """The last known count of each GPU, by database id."""

    def __init__(self, us: Array | None = None, count: Array | None = None) -> None:
        self.us: Array = np.zeros(0, "i8") if us is None else us
        self.count: Array = np.zeros(0, "i8") if count is None else count

    def advance(self, ts: Array, gpu_id: Array, ecc: Array) -> Increases:
        """Take in readings, in any order and more than once, and return the counters that rose.

        A counter that fell was reset; what it shows then came since. A GPU's first reading says
        nothing of when its errors came.
        """
        told = np.flatnonzero(ecc != NULL_INT)
        us, gpu_id, ecc = microseconds(ts[told]), gpu_id[told], ecc[told]
        self._reach(gpu_id)
        if (ecc == self.count[gpu_id]).all():  # as nearly always
            np.maximum.at(self.us, gpu_id, us)
            return _NONE
        order = np.lexsort((us, gpu_id))
        order = order[us[order] > self.us[gpu_id[order]]]
        us, gpu_id, ecc = us[order], gpu_id[order], ecc[order]
        is_first = np.append(True, gpu_id[1:] != gpu_id[:-1])[: len(gpu_id)]
        before_us = np.where(is_first, self.us[gpu_id], np.roll(us, 1))
        before = np.where(is_first, self.count[gpu_id], np.roll(ecc, 1))
        rose = np.flatnonzero((before_us > 0) & (before_us < us) & (ecc != before) & (ecc > 0))
        # The newest of each comes last, and stays.
        self.us[gpu_id], self.count[gpu_id] = us, ecc
        grown = np.where(ecc > before, ecc - before, ecc)
        return Increases(gpu_id[rose], before_us[rose], us[rose], grown[rose], ecc[rose])

    def _reach(self, gpu_id: Array) -> None:
        missing = int(gpu_id.max(initial=-1)) + 1 - len(self.us)
        if missing > 0:
            more = np.zeros(max(missing, len(self.us) // 4), "i8")
            self.us, self.count = (
                np.concatenate([self.us, more]),
                np.concatenate([self.count, more]),
            )
