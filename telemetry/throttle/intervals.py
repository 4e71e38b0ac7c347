"""From each reading of a GPU to the one before it: for how long did each cause hold? Pure.

Cumulative counters say so exactly, whatever happened in between. Without them the masks at both
ends have to do, half the interval each; and over a long silence they say nothing.

Drivers count no time of hardware slowdown. Where its bit comes with that of heat or of the power
brake, it held for no longer than those were counted; what nothing explains is sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headroom.contracts import ThrottleCause
from telemetry.samples import NULL_INT
from telemetry.throttle import EXPLAINS_SLOWDOWN
from telemetry.throttle.readings import COUNTERS, Readings
from telemetry.throttle.rules import (
    CAUSES,
    KEEP_S,
    KEEP_SHARE,
    MAX_GAP_S,
    MOST_WATTS,
    OPEN_S,
    OPEN_SHARE,
    Array,
)

_BITS = np.array([int(cause) for cause in CAUSES])
_SLOWDOWN = CAUSES.index(ThrottleCause.HW_SLOWDOWN)
_EXPLAIN = [CAUSES.index(cause) for cause in EXPLAINS_SLOWDOWN]

#: What is remembered of a GPU's last reading. ``us`` 0: there was none.
LAST = np.dtype(
    [
        ("us", "i8"),
        ("mask", "i8"),
        ("counters", "i8", (COUNTERS,)),
        ("energy_j", "f8"),
        ("power_w", "f4"),
        ("sm_mhz", "f4"),
        ("usual_mhz", "f4"),
        ("loaded", "?"),
    ]
)


def nothing_yet(count: int) -> Array:
    """Return the memory of ``count`` GPUs that were never heard of."""
    records = np.zeros(count, LAST)
    records["mask"] = records["counters"] = NULL_INT
    for name in ("energy_j", "power_w", "sm_mhz", "usual_mhz"):
        records[name] = np.nan
    return records


def remembered(readings: Readings) -> Array:
    """Return the readings as records of :data:`LAST`, their usual clocks still unknown."""
    records = np.empty(len(readings), LAST)
    for name in ("us", "mask", "counters", "energy_j", "power_w", "sm_mhz", "loaded"):
        records[name] = getattr(readings, name)
    records["usual_mhz"] = np.nan
    return records


@dataclass(frozen=True, eq=False)
class Intervals:
    """The time from one reading to the next. Arrays "by cause" are (rows, causes)."""

    #: s; 0 where there is no earlier reading
    length_s: Array
    #: by cause: for how long it held, s
    held_s: Array
    #: by cause: how much of that the masks alone say, s
    sampled_s: Array
    #: by cause: whether that is known; if not, only what the mask says at the end is
    seen: Array
    #: by cause: whether the mask at the end has it
    now: Array
    #: by cause: whether a counter will say more with the next reading
    countable: Array
    #: by cause: whether anything is known of it
    told: Array
    #: J; NaN: not known
    energy_j: Array
    #: the lower clock of the ends that were under load, MHz; NaN: neither was
    low_mhz: Array

    @property
    def opens(self) -> Array:
        """By cause: held long enough to open an event. A bit alone does only without a counter."""
        return self._reaches(OPEN_SHARE, OPEN_S, self.now & ~self.countable)

    @property
    def keeps(self) -> Array:
        """By cause: held for long enough for an event to go on."""
        return self._reaches(KEEP_SHARE, KEEP_S, self.now)

    def _reaches(self, share: float, seconds: float, unseen: Array) -> Array:
        needed_s = np.minimum(share * self.length_s, seconds)[:, None]
        enough = (self.held_s > 0.0) & (self.held_s >= needed_s)
        reached: Array = np.where(self.seen, enough, unseen)
        return reached


def intervals(before: Array, after: Array) -> Intervals:
    """Return the intervals between records of :data:`LAST`, row by row."""
    heard = before["us"] > 0
    length_s = np.where(heard, (after["us"] - before["us"]) * 1e-6, 0.0)
    near = heard & (length_s <= MAX_GAP_S)
    by_mask = near & (before["mask"] != NULL_INT) & (after["mask"] != NULL_INT)
    bit_before, bit_after = _bits(before["mask"]), _bits(after["mask"])
    half_s = 0.5 * length_s[:, None]
    held_s = np.where(by_mask[:, None], half_s * bit_before + half_s * bit_after, 0.0)
    seen = np.repeat(by_mask[:, None], len(CAUSES), axis=1)
    counted, counted_s = _counted(before["counters"], after["counters"], length_s, heard)
    held_s[:, :COUNTERS] = np.where(counted, counted_s, held_s[:, :COUNTERS])
    seen[:, :COUNTERS] |= counted
    countable = np.zeros_like(seen)
    countable[:, :COUNTERS] = after["counters"] != NULL_INT
    sampled_s = held_s.copy()
    sampled_s[:, :COUNTERS][counted] = 0.0
    # Of the slowdown what heat or brake explains, as far as their counters say.
    explained_s = half_s[:, 0] * _explained(bit_before) + half_s[:, 0] * _explained(bit_after)
    bounded = by_mask & ~counted[:, _SLOWDOWN] & counted[:, _EXPLAIN].all(axis=1)
    bound_s = counted_s[:, _EXPLAIN].sum(axis=1)
    unexplained_s = held_s[:, _SLOWDOWN] - explained_s
    held_s[bounded, _SLOWDOWN] = (unexplained_s + np.minimum(explained_s, bound_s))[bounded]
    sampled_s[bounded, _SLOWDOWN] = unexplained_s[bounded]
    countable[:, _SLOWDOWN] |= countable[:, _EXPLAIN].all(axis=1) & _explained(bit_after)
    return Intervals(
        length_s=length_s,
        held_s=held_s,
        sampled_s=sampled_s,
        seen=seen,
        now=bit_after,
        countable=countable,
        told=seen | (after["mask"] != NULL_INT)[:, None],
        energy_j=_energy_j(before, after, length_s, near),
        low_mhz=np.fmin(_loaded_mhz(before), _loaded_mhz(after)),
    )


def _bits(mask: Array) -> Array:
    """By cause: whether the mask has it. The null integer has no bit of a cause."""
    set_: Array = (mask[:, None] & _BITS) != 0
    return set_


def _explained(bits: Array) -> Array:
    """Say whether a mask has a hardware slowdown, and heat or the power brake with it."""
    found: Array = bits[:, _SLOWDOWN] & bits[:, _EXPLAIN].any(axis=1)
    return found


def _counted(before: Array, after: Array, length_s: Array, heard: Array) -> tuple[Array, Array]:
    """Return for which counters the interval is known, and the seconds that they counted.

    A counter that fell was reset, as by a new load of the driver: what it shows now was counted
    since then, so within the interval.
    """
    known = heard[:, None] & (before != NULL_INT) & (after != NULL_INT)
    grown = np.where(after >= before, after - np.where(known, before, 0), after)
    return known, np.where(known, np.minimum(grown * 1e-9, length_s[:, None]), 0.0)


def _energy_j(before: Array, after: Array, length_s: Array, near: Array) -> Array:
    """By the energy counter; where that is missing or was reset, by the power at both ends."""
    counted = after["energy_j"] - before["energy_j"]
    sane = (counted >= 0.0) & (counted <= MOST_WATTS * length_s)
    by_power = 0.5 * length_s * (before["power_w"].astype("f8") + after["power_w"])
    return np.where(sane, counted, np.where(near, by_power, np.nan))


def _loaded_mhz(records: Array) -> Array:
    return np.where(records["loaded"], records["sm_mhz"], np.nan)
