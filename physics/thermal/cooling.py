"""Flows of air and coolant that carry heat away, and what kinds of cooling a rack admits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from physics._choice import chosen
from physics.law import Bound, Celsius, NonNegative, Positive, Share, Values, law

Altitude: TypeAlias = Annotated[
    Values, Bound("between -500 and 11000 m", low=-500.0, high=11_000.0)
]

#: Specific heat of dry air at constant pressure, and its gas constant.
AIR_J_PER_KG_C = 1006.0
_AIR_GAS_J_PER_KG_K = 287.05
_ZERO_C_IN_K = 273.15


@dataclass(frozen=True)
class Coolant:
    """A liquid that carries heat."""

    density_kg_per_m3: float
    specific_heat_j_per_kg_c: float


#: At 30 °C; between 20 and 45 °C both move by less than 1 %. PG25 is 25 % propylene glycol in
#: water. Source: table of design data in Airedale's manual of DeltaChill chillers.
COOLANTS = {
    "water": Coolant(density_kg_per_m3=995.6, specific_heat_j_per_kg_c=4180.0),
    "pg25": Coolant(density_kg_per_m3=1019.2, specific_heat_j_per_kg_c=3940.0),
}

COOLING_KINDS = ("air", "rear-door", "direct-to-chip", "immersion")


@dataclass(frozen=True)
class CoolantFlow:
    """A flow of coolant, by mass and by volume."""

    mass_kg_per_s: Values
    volume_l_per_s: Values


@dataclass(frozen=True)
class RackCooling:
    """The simplest kind of cooling that carries a rack's heat, its limit, and what is left of it.

    ``kind`` is ``none`` where no kind does: the limit is then the highest, the margin negative.
    """

    kind: Any
    limit_w: Values
    margin_w: Values


@law
def coolant_flow(
    *, heat_w: NonNegative, temp_rise_c: Positive, coolant: str = "water"
) -> CoolantFlow:
    """Return the flow of coolant that a heat load needs, kg/s and L/s: ``m = Q / (cp · ΔT)``.

    ``temp_rise_c`` ΔT is from supply to return, °C; ``coolant`` is ``water`` or ``pg25``
    (properties at 30 °C, which is within 1 % from 20 to 45 °C). Both numbers broadcast.
    """
    fluid = chosen("coolant", coolant, COOLANTS)
    mass = heat_w / (fluid.specific_heat_j_per_kg_c * temp_rise_c)
    return CoolantFlow(mass, 1000.0 * mass / fluid.density_kg_per_m3)


@law
def coolant_rise_c(
    *, heat_w: NonNegative, flow_l_per_s: Positive, coolant: str = "water"
) -> Values:
    """Return how much a heat load warms a flow of coolant, °C: ``ΔT = Q / (V · density · cp)``.

    ``flow_l_per_s`` V is in L/s. Coolants as in coolant_flow. Both numbers broadcast.
    """
    return heat_w / (flow_l_per_s * _heat_per_l(coolant))


@law
def coolant_heat_w(
    *, flow_l_per_s: NonNegative, temp_rise_c: NonNegative, coolant: str = "water"
) -> Values:
    """Return the heat that a flow of coolant carries, W: ``Q = V · density · cp · ΔT``.

    ``flow_l_per_s`` V is in L/s. Coolants as in coolant_flow. Both numbers broadcast.
    """
    return flow_l_per_s * _heat_per_l(coolant) * temp_rise_c


@law
def air_density_kg_per_m3(*, altitude_m: Altitude = 0.0, air_c: Celsius = 20.0) -> Values:
    """Return the density of dry air, kg/m³: ``density = p(h) / (287.05 · T)``.

    ``p(h) = 101325 · (1 - 2.25577e-5 · h)^5.25588`` Pa is the pressure of the International
    Standard Atmosphere at ``altitude_m`` h, -500 to 11,000 m; T is ``air_c`` in kelvin. Weather
    moves it by 3 %, humidity by 1 %. Both broadcast. Source: ISO 2533.
    """
    return _air_density(altitude_m, air_c)


@law
def air_flow_m3_per_s(
    *,
    heat_w: NonNegative,
    temp_rise_c: Positive,
    altitude_m: Altitude = 0.0,
    air_c: Celsius = 20.0,
) -> Values:
    """Return the flow of air that a heat load needs, m³/s: ``V = Q / (density · cp · ΔT)``.

    ``temp_rise_c`` ΔT is from inlet to outlet, °C, ``air_c`` the inlet. 1 m³/s is 2,118.9 CFM. All
    the air must pass the heat: what goes round it comes on top. All broadcast.
    """
    return heat_w / (_air_density(altitude_m, air_c) * AIR_J_PER_KG_C * temp_rise_c)


@law
def air_rise_c(
    *,
    heat_w: NonNegative,
    flow_m3_per_s: Positive,
    altitude_m: Altitude = 0.0,
    air_c: Celsius = 20.0,
) -> Values:
    """Return how much a heat load warms a flow of air, °C: ``ΔT = Q / (density · cp · V)``.

    Flow in m³/s at the inlet, whose temperature is ``air_c``. All broadcast.
    """
    return heat_w / (_air_density(altitude_m, air_c) * AIR_J_PER_KG_C * flow_m3_per_s)


@law
def air_heat_w(
    *,
    flow_m3_per_s: NonNegative,
    temp_rise_c: NonNegative,
    altitude_m: Altitude = 0.0,
    air_c: Celsius = 20.0,
) -> Values:
    """Return the heat that a flow of air carries, W: ``Q = density · cp · V · ΔT``.

    The limit of air cooling of a rack is what its tiles or fans can move: 2 m³/s (4,200 CFM)
    through one rack at a rise of 13 °C carry about 31 kW at sea level. All broadcast.
    """
    return _air_density(altitude_m, air_c) * AIR_J_PER_KG_C * flow_m3_per_s * temp_rise_c


@law
def rack_cooling(
    *,
    rack_w: NonNegative,
    air_limit_w: NonNegative,
    rear_door_limit_w: NonNegative,
    direct_to_chip_limit_w: NonNegative,
    immersion_limit_w: NonNegative,
) -> RackCooling:
    """Return the simplest cooling that carries a rack's heat, its limit and what is left, W.

    In the order air, rear-door, direct-to-chip, immersion, the first whose limit is at least
    ``rack_w``. The limits are those of a site; physics.hardware holds usual ones. All broadcast.
    """
    limits = np.stack(
        np.broadcast_arrays(
            air_limit_w + 0.0 * rack_w,
            rear_door_limit_w,
            direct_to_chip_limit_w,
            immersion_limit_w,
        )
    )
    carries = limits >= rack_w
    first = np.where(carries.any(axis=0), carries.argmax(axis=0), len(COOLING_KINDS))
    chosen = np.take_along_axis(limits, np.minimum(first, 3)[None], axis=0)[0]
    limit_w = np.where(first < len(COOLING_KINDS), chosen, limits.max(axis=0))
    return RackCooling(np.array([*COOLING_KINDS, "none"])[first], limit_w, limit_w - rack_w)


@law
def residual_air_heat_w(*, rack_w: NonNegative, liquid_share: Share) -> Values:
    """Return the heat that a liquid-cooled rack leaves to the air, W: ``P · (1 - liquid share)``.

    Direct-to-chip plates cover GPUs and CPUs, not all else: its share is 0.7 to 0.85 of the heat of
    most servers, so that even such a rack needs air. All broadcast.
    """
    return rack_w * (1.0 - liquid_share)


@law
def liquid_share_needed(*, rack_w: Positive, air_limit_w: NonNegative) -> Values:
    """Return the share of a rack's heat that liquid must take: ``1 - air limit / P``, 0 to 1.

    0 where air alone carries all of it. All broadcast.
    """
    return np.maximum(1.0 - np.divide(air_limit_w, rack_w), 0.0)


@law
def cooling_left_w(*, heat_w: NonNegative, capacity_w: NonNegative) -> Values:
    """Return the cooling that is left, W of heat: ``capacity - heat``; negative where it is short.

    All power that goes into a rack comes out as heat, so the heat load is its power. All broadcast.
    """
    return capacity_w - heat_w


def _heat_per_l(coolant: str) -> float:
    """Return the heat that warms a liter by a degree, J/(L °C)."""
    fluid = chosen("coolant", coolant, COOLANTS)
    return fluid.density_kg_per_m3 * fluid.specific_heat_j_per_kg_c / 1000.0


def _air_density(altitude_m: Values, air_c: Values) -> Values:
    pressure_pa = 101_325.0 * (1.0 - 2.25577e-5 * np.asarray(altitude_m)) ** 5.25588
    return np.asarray(pressure_pa / (_AIR_GAS_J_PER_KG_K * np.add(air_c, _ZERO_C_IN_K)))
