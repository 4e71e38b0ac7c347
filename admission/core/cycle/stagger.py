"""Starts one after the other where much new heat would come to a cooling zone at once.

What carries heat away follows a step within minutes, not seconds. A zone that is well used takes up
so much new heat within a time, and the next job begins after it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from admission.core.placement.cluster import Cluster
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Placement
from admission.core.snapshot import Running, Tuning
from fleet.tables import FleetArrays
from policies.headroom.binding import quantity
from policies.scopes import Scope, ScopeKind

__all__ = ["Ramp"]

Floats = npt.NDArray[np.float64]


class Ramp:
    """New heat in each cooling zone: from the jobs that started of late."""

    def __init__(
        self, fleet: FleetArrays, running: Sequence[Running], now: float, tuning: Tuning
    ) -> None:
        self._fleet, self._tuning = fleet, tuning
        zones = len(fleet.zones)
        self._new_w = np.zeros(zones)
        #: when the oldest of what counts ceases to, Unix s
        self._until = np.full(zones, np.inf)
        self._now = now
        for each in running:
            if each.started_at > now - tuning.stagger_s:
                self._count(each.placement, each.started_at)

    def add(self, placement: Placement) -> None:
        """Count the heat of a job that starts now or next: those behind it wait for it."""
        self._count(placement, self._now)

    def without(self, placements: Sequence[Placement]) -> Ramp:
        """Return a ramp without the heat of these placements."""
        found = copy.copy(self)
        less_w = sum((_by_zone(self._fleet, each) for each in placements), 0.0 * self._new_w)
        found._new_w = self._new_w - less_w
        # Adding and taking away leaves some rounding.
        found._new_w[found._new_w < 1e-6] = 0.0
        return found

    def _count(self, placement: Placement, at: float) -> None:
        new_w = _by_zone(self._fleet, placement)
        self._new_w += new_w
        until = at + self._tuning.stagger_s
        self._until = np.where(new_w > 0, np.minimum(self._until, until), self._until)

    def refusal(self, cluster: Cluster, placement: Placement) -> Reason | None:
        """Return why a job should not start there just now. The first to start always may."""
        tuning, capacity_w = self._tuning, self._fleet.zones.capacity_w
        new_w = _by_zone(self._fleet, placement)
        step_w = tuning.stagger_share * capacity_w
        steep = (new_w > 0) & (self._new_w > 0) & (self._new_w + new_w > step_w)
        load_w = capacity_w - _zone_room_w(cluster)
        busy = load_w + new_w > tuning.stagger_above * capacity_w
        zones = np.flatnonzero(steep & busy)
        if not len(zones):
            return None
        zone = int(zones[np.argmax((self._new_w + new_w - step_w)[zones])])
        name = str(self._fleet.zones.paths[zone])
        wait_s = max(float(self._until[zone]) - self._now, 0.0)
        text = (
            f"would bring {quantity(float(new_w[zone]), 'W')} of heat to zone {name}, to which"
            f" {quantity(float(self._new_w[zone]), 'W')} came within the last"
            f" {tuning.stagger_s:.0f} s: begins within {wait_s:.0f} s"
        )
        left_w = max(float(step_w[zone] - self._new_w[zone]), 0.0)
        evidence = {"until": float(self._until[zone])}
        return Reason(
            ReasonToken.STAGGERED_START, float(new_w[zone]), left_w, "W",
            Scope(ScopeKind.ZONE, name), text, evidence,
        )  # fmt: skip


def _zone_room_w(cluster: Cluster) -> Floats:
    """Return how much more heat each zone carries away, W; inf where it has no limit."""
    zones = next(each for each in cluster.topology.kinds if each.scope is ScopeKind.ZONE)
    return cluster.room_w[zones.first : zones.first + zones.count]


def _by_zone(fleet: FleetArrays, placement: Placement) -> Floats:
    zone = fleet.racks.zone[fleet.nodes.rack[np.array(placement.nodes, dtype=np.int64)]]
    # Row 0 takes what is in no zone.
    watts = np.bincount(zone + 1, weights=placement.peak_w, minlength=len(fleet.zones) + 1)
    return watts[1:].astype(np.float64)
