"""Flows that carry heat away."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.errors import ImpossibleArgumentError
from physics.thermal import (
    air_density_kg_per_m3,
    air_flow_m3_per_s,
    air_heat_w,
    air_rise_c,
    coolant_flow,
    coolant_heat_w,
    coolant_rise_c,
    cooling_left_w,
    liquid_share_needed,
    rack_cooling,
    residual_air_heat_w,
)
from tests.unit.physics.law_checks import Law, check_arrays, check_refusals

heats = st.floats(1.0, 1e6)
rises = st.floats(1.0, 40.0)

LIMITS = {
    "air_limit_w": 30e3,
    "rear_door_limit_w": 50e3,
    "direct_to_chip_limit_w": 120e3,
    "immersion_limit_w": 200e3,
}


def test_a_liter_of_water_a_second_carries_some_4_kw_per_degree() -> None:
    assert coolant_heat_w(flow_l_per_s=1.0, temp_rise_c=1.0) == pytest.approx(4160.0, rel=0.002)


def test_a_rack_of_100_kw_needs_two_and_a_half_liters_a_second() -> None:
    flow = coolant_flow(heat_w=100e3, temp_rise_c=10.0, coolant="pg25")
    assert flow.mass_kg_per_s == pytest.approx(2.54, abs=0.01)
    assert flow.volume_l_per_s == pytest.approx(2.49, abs=0.01)


@given(heats, rises, st.sampled_from(["water", "pg25"]))
def test_heat_flow_and_rise_of_a_coolant_agree(heat_w: float, rise_c: float, coolant: str) -> None:
    flow = coolant_flow(heat_w=heat_w, temp_rise_c=rise_c, coolant=coolant).volume_l_per_s
    back_c = coolant_rise_c(heat_w=heat_w, flow_l_per_s=flow, coolant=coolant)
    back_w = coolant_heat_w(flow_l_per_s=flow, temp_rise_c=rise_c, coolant=coolant)
    assert math.isclose(back_c, rise_c)
    assert math.isclose(back_w, heat_w)


def test_glycol_needs_more_flow_than_water() -> None:
    load: dict[str, Any] = {"heat_w": np.array([1e3, 1e5]), "temp_rise_c": 8.0}
    water, glycol = coolant_flow(**load), coolant_flow(coolant="pg25", **load)
    assert glycol.volume_l_per_s / water.volume_l_per_s == pytest.approx([1.036, 1.036], abs=1e-3)


def test_a_coolant_that_is_not_known_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="coolant must be one of water, pg25"):
        coolant_flow(heat_w=1e3, temp_rise_c=10.0, coolant="oil")


@pytest.mark.parametrize(
    ("altitude_m", "air_c", "density"),
    [(0.0, 15.0, 1.225), (0.0, 20.0, 1.204), (1000.0, 8.5, 1.1116), (5000.0, -17.5, 0.7361)],
)
def test_air_is_as_dense_as_in_the_standard_atmosphere(
    altitude_m: float, air_c: float, density: float
) -> None:
    found = air_density_kg_per_m3(altitude_m=altitude_m, air_c=air_c)
    assert found == pytest.approx(density, rel=1e-3)


def test_a_kilowatt_at_10_degrees_needs_some_175_cfm() -> None:
    assert air_flow_m3_per_s(heat_w=1e3, temp_rise_c=10.0) * 2118.88 == pytest.approx(175, abs=1)


@given(heats, rises, st.floats(0.0, 4000.0), st.floats(10.0, 40.0))
def test_heat_flow_and_rise_of_air_agree(
    heat_w: float, rise_c: float, altitude_m: float, air_c: float
) -> None:
    place = {"altitude_m": altitude_m, "air_c": air_c}
    flow = air_flow_m3_per_s(heat_w=heat_w, temp_rise_c=rise_c, **place)
    assert math.isclose(air_rise_c(heat_w=heat_w, flow_m3_per_s=flow, **place), rise_c)
    assert math.isclose(air_heat_w(flow_m3_per_s=flow, temp_rise_c=rise_c, **place), heat_w)


def test_thin_and_warm_air_carries_less() -> None:
    air: dict[str, Any] = {"flow_m3_per_s": 2.0, "temp_rise_c": 13.0}
    low = air_heat_w(**air)
    assert low == pytest.approx(31.5e3, rel=0.01)
    assert (
        low
        > air_heat_w(altitude_m=1600.0, **air)
        > air_heat_w(altitude_m=1600.0, air_c=35.0, **air)
    )


@pytest.mark.parametrize("altitude_m", [-600.0, 12_000.0])
def test_an_altitude_without_air_to_speak_of_is_refused(altitude_m: float) -> None:
    with pytest.raises(ImpossibleArgumentError, match="altitude_m must be between"):
        air_density_kg_per_m3(altitude_m=altitude_m)


def test_a_rack_gets_the_simplest_cooling_that_carries_it() -> None:
    found = rack_cooling(rack_w=np.array([12e3, 30e3, 45e3, 70e3, 150e3, 250e3]), **LIMITS)
    assert found.kind.tolist() == [
        "air",
        "air",
        "rear-door",
        "direct-to-chip",
        "immersion",
        "none",
    ]
    assert found.limit_w.tolist() == [30e3, 30e3, 50e3, 120e3, 200e3, 200e3]
    assert found.margin_w.tolist() == [18e3, 0.0, 5e3, 50e3, 50e3, -50e3]


def test_the_cooling_of_one_rack_is_one_word() -> None:
    found = rack_cooling(rack_w=70e3, **LIMITS)
    assert (found.kind, found.margin_w) == ("direct-to-chip", 50e3)


def test_what_liquid_does_not_take_is_left_to_the_air() -> None:
    assert residual_air_heat_w(rack_w=100e3, liquid_share=0.75) == 25e3
    assert liquid_share_needed(rack_w=100e3, air_limit_w=25e3) == 0.75
    assert liquid_share_needed(rack_w=12e3, air_limit_w=30e3) == 0.0


def test_cooling_left_may_be_negative() -> None:
    left_w = cooling_left_w(heat_w=np.array([400e3, 600e3]), capacity_w=500e3)
    assert left_w.tolist() == [100e3, -100e3]


@pytest.mark.parametrize(
    ("law", "good"),
    [
        (coolant_flow, {"heat_w": 1e5, "temp_rise_c": 10.0}),
        (coolant_rise_c, {"heat_w": 1e5, "flow_l_per_s": 2.0}),
        (coolant_heat_w, {"flow_l_per_s": 2.0, "temp_rise_c": 10.0}),
        (residual_air_heat_w, {"rack_w": 1e5, "liquid_share": 0.8}),
        (liquid_share_needed, {"rack_w": 1e5, "air_limit_w": 3e4}),
        (cooling_left_w, {"heat_w": 4e5, "capacity_w": 5e5}),
        (air_flow_m3_per_s, {"heat_w": 1e4, "temp_rise_c": 12.0}),
        (air_rise_c, {"heat_w": 1e4, "flow_m3_per_s": 1.0}),
        (air_heat_w, {"flow_m3_per_s": 1.0, "temp_rise_c": 12.0}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_every_law_takes_arrays_and_names_what_it_refuses(law: Law, good: dict[str, Any]) -> None:
    check_refusals(law, good)
    check_arrays(law, good)
