"""How loads have moved: the history that is kept, and the trends within it. Pure. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays
from policies.headroom.columns import Floats
from policies.headroom.evaluate import Headroom
from policies.headroom.network import busiest_bits_per_s
from policies.headroom.trend import percentile, slope_per_s, still_for_s
from policies.scopes import ScopeKind

#: A slot has a value for each series; slots are one on top of the other.
Slot = NDArray[np.float32]
Slots = NDArray[np.float32]

#: Four minutes of loads, and ten of links.
LOADS_EVERY_S, LOAD_SLOTS = 20.0, 12
LINKS_EVERY_S, LINK_SLOTS = 10.0, 60
#: The tables whose loads stand in a slot, in turn.
LOAD_TABLES = ("sites", "zones", "domains", "racks", "nodes", "gpus")
#: Slots of links that their slope is made of.
_LINK_SLOPE_SLOTS = 24
#: The power of a GPU is still while it stays within this share of its rating.
_STILL_BAND = 0.05
#: Of the use of a link over the last ten minutes.
_LINK_PERCENTILE = 0.95
_KINDS = {
    "sites": ScopeKind.SITE,
    "zones": ScopeKind.ZONE,
    "domains": ScopeKind.POWER_DOMAIN,
    "racks": ScopeKind.RACK,
    "nodes": ScopeKind.NODE,
    "gpus": ScopeKind.GPU,
}


@dataclass
class Window:
    """The last slots of some series, at least ``every_s`` apart."""

    every_s: float
    slots: int
    times: deque[float] = field(default_factory=deque)
    values: deque[Slot] = field(default_factory=deque)

    def is_due(self, now: float) -> bool:
        return not self.times or now - self.times[-1] >= self.every_s - 1e-6

    def note(self, now: float, values: Slot) -> None:
        self.times.append(now)
        self.values.append(values)
        if len(self.times) > self.slots:
            self.times.popleft()
            self.values.popleft()

    def stacked(self) -> tuple[Floats, Slots]:
        """Return the times and the slots. Raises ValueError where there is none yet."""
        return np.array(self.times), np.stack(self.values)


def loads_of(headroom: Headroom) -> Slot:
    """Return the loads of all scopes of :data:`LOAD_TABLES`, one after the other, W."""
    powers, zone_w = headroom.powers, headroom.zone_load_w
    by_table = [
        zone_w if _KINDS[name] is ScopeKind.ZONE else powers[_KINDS[name]].drawn_w
        for name in LOAD_TABLES
    ]
    return np.concatenate(by_table, axis=-1).astype(np.float32)


def links_of(headroom: Headroom) -> Slot:
    """Return the traffic of the busier direction of each link, bit/s; NaN where it is not fresh."""
    bits_per_s, read_at = busiest_bits_per_s(headroom.readings)
    fresh = headroom.readings.is_fresh(read_at)
    return np.where(fresh, bits_per_s, np.nan).astype(np.float32)


def load_trends(
    fleet: FleetArrays, times: Floats, values: Slots
) -> tuple[dict[ScopeKind, Floats], Floats]:
    """Return slopes by kind of scope, W/s, and for how long each GPU is still, s.

    ``values`` are slots of :func:`loads_of` at ``times`` (Unix s, rising).
    """
    slope = slope_per_s(times, values)
    slopes, first = {}, 0
    for name in LOAD_TABLES:
        last = first + len(getattr(fleet, name))
        slopes[_KINDS[name]] = slope[first:last]
        first = last
    still_s = np.zeros(len(fleet.gpus))
    if len(times):
        band = _STILL_BAND * np.nan_to_num(fleet.gpus.rated_w)
        # GPUs come last. Counted from the front: there may be none.
        gpus = values[:, first - len(fleet.gpus) :]
        still_s = still_for_s(times, gpus, band, times[-1])
    return slopes, still_s


def link_trends(times: Floats, values: Slots) -> tuple[Floats, Floats]:
    """Return the slope of each link, bit/s², and a high percentile of its traffic, bit/s.

    ``values`` are slots of :func:`links_of` at ``times``.
    """
    used = percentile(values, _LINK_PERCENTILE)
    return slope_per_s(times[-_LINK_SLOPE_SLOTS:], values[-_LINK_SLOPE_SLOTS:]), used
