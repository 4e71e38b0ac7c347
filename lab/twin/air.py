"""The inlets of racks: air or coolant, from their zone's supply and the racks' own heat.

A zone that takes more heat than its share of strain supplies warmer, and a zone that has lost its
chillers warms no faster than the heat that its room or loop can hold allows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.fleet import Fleet
from lab.twin.conditions import Conditions
from lab.twin.noise import Noise
from lab.twin.parts import COOLING, Parts, total

Array = NDArray[np.float64]

#: How far the supply temperature of a zone wanders, and how slowly.
SUPPLY_WANDER_C = 0.8
SUPPLY_WANDER_S = 600.0
#: Heat of a zone, as a share of its capacity, above which what it supplies grows warmer, and by how
#: much for each such share more, up to the most.
ZONE_STRAIN_SHARE = 0.85
ZONE_STRAIN_C = 45.0
ZONE_STRAIN_MOST_C = 60.0
#: A zone without any chillers still gives off this share of its capacity.
LEAST_ZONE_SHARE = 0.02
#: Of what is recirculated in a rack's aisle, its own share; the rest is its two neighbors'.
OWN_SHARE = 0.5


class Air:
    """The zones and the inlets of the racks of ``fleet``."""

    def __init__(self, fleet: Fleet, parts: Parts, noise: Noise) -> None:
        self._parts, self._noise = parts, noise
        self._zone_of_rack = fleet.row_of_rack
        self._zones = len(parts.zone_supply_c)
        kinds = [COOLING[rack.kind.cooling] for rack in fleet.racks]
        self._recirculation_c = np.array([kind.recirculation_c for kind in kinds])
        self._settles_s = np.array([kind.settles_s for kind in kinds])
        per_rack = np.array([kind.heat_j_per_c_per_rack for kind in kinds])
        self._heat_j_per_c = total(self._zone_of_rack, per_rack, self._zones)
        self._left, self._right = _neighbors(fleet)
        self._wander_c: Array = np.zeros(self._zones)
        self._constants = _Constants(0.0, self._settles_s)
        self.inlet_c: Array = parts.zone_supply_c[self._zone_of_rack] + parts.rack_offset_c

    def step(self, rack_w: Array, heat_w: Array, conditions: Conditions, dt_s: float) -> None:
        """Warm the inlet of each rack by its zone's strain and by recirculation.

        ``heat_w``: what each zone has to carry away.
        """
        if dt_s != self._constants.dt_s:
            self._constants = _Constants(dt_s, self._settles_s)
        zone = self._zone_of_rack
        target_c = self._supply_c(heat_w, conditions)[zone]
        target_c += self._parts.rack_offset_c
        target_c += self._recirculated_c(rack_w)
        most_c = dt_s * heat_w / self._heat_j_per_c
        rise_c = (target_c - self.inlet_c) * self._constants.follow
        self.inlet_c += np.minimum(rise_c, most_c[zone])

    def _supply_c(self, heat_w: Array, conditions: Conditions) -> Array:
        parts, constants = self._parts, self._constants
        self._wander_c *= constants.wander_keep
        self._wander_c += constants.wander_shock * self._noise.draw(self._zones)
        capacity_w = parts.zone_capacity_w * np.maximum(
            conditions.zone_capacity_share, LEAST_ZONE_SHARE
        )
        strain = np.maximum(heat_w / capacity_w - ZONE_STRAIN_SHARE, 0.0)
        warmer_c = np.minimum(ZONE_STRAIN_C * strain, ZONE_STRAIN_MOST_C)
        supply_c: Array = parts.zone_supply_c + conditions.supply_offset_c
        supply_c += self._wander_c
        supply_c += warmer_c
        return supply_c

    def _recirculated_c(self, rack_w: Array) -> Array:
        share = rack_w / self._parts.rack_budget_w
        others = share[self._left] + share[self._right]
        recirculated_c: Array = self._recirculation_c * (
            OWN_SHARE * share + (0.5 - 0.5 * OWN_SHARE) * others
        )
        return recirculated_c


class _Constants:
    """Constants that depend on the length of a step alone."""

    def __init__(self, dt_s: float, settles_s: Array) -> None:
        self.dt_s = dt_s
        self.follow: Array = 1.0 - np.exp(-dt_s / settles_s)
        self.wander_keep = float(np.exp(-dt_s / SUPPLY_WANDER_S))
        self.wander_shock = SUPPLY_WANDER_C * float(np.sqrt(1.0 - self.wander_keep**2))


def _neighbors(fleet: Fleet) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rack on each side of each rack in its row; at the ends, the rack itself."""
    at = np.arange(len(fleet.racks))
    row = fleet.row_of_rack
    left, right = at.copy(), at.copy()
    next_to = row[1:] == row[:-1]
    left[1:][next_to] = at[:-1][next_to]
    right[:-1][next_to] = at[1:][next_to]
    return left, right
