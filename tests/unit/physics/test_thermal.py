import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.errors import ImpossibleArgumentError
from physics.thermal import power_at_temperature_w, rc_step_c, steady_state_c

temps = st.floats(-20.0, 120.0)
watts = st.floats(0.0, 1500.0)
resistances = st.floats(0.01, 1.0)
capacitances = st.floats(10.0, 5000.0)
durations = st.floats(0.0, 600.0)


def step(**changes: float) -> float:
    part = {
        "temp_c": 30.0,
        "power_w": 632.0,
        "ambient_c": 25.0,
        "resistance_c_per_w": 0.052,
        "capacitance_j_per_c": 480.0,
        "dt_s": 5.0,
    }
    return rc_step_c(**part | changes)


def test_a_part_settles_at_ambient_plus_power_times_resistance() -> None:
    assert steady_state_c(power_w=600.0, ambient_c=25.0, resistance_c_per_w=0.05) == 55.0
    assert math.isclose(step(dt_s=1e4), 25.0 + 632.0 * 0.052)


def test_after_one_time_constant_63_percent_of_the_way_is_done() -> None:
    begun, settled = 30.0, 25.0 + 632.0 * 0.052
    after = step(dt_s=0.052 * 480.0)
    assert math.isclose((after - begun) / (settled - begun), 1 - math.exp(-1))


@given(temps, watts, temps, resistances, capacitances, durations)
def test_two_half_steps_make_a_whole_one(
    temp_c: float, power_w: float, ambient_c: float, resistance: float, heat: float, dt_s: float
) -> None:
    part = {
        "power_w": power_w,
        "ambient_c": ambient_c,
        "resistance_c_per_w": resistance,
        "capacitance_j_per_c": heat,
    }
    half = rc_step_c(temp_c=temp_c, dt_s=dt_s / 2, **part)
    whole = rc_step_c(temp_c=temp_c, dt_s=dt_s, **part)
    assert math.isclose(rc_step_c(temp_c=half, dt_s=dt_s / 2, **part), whole, abs_tol=1e-6)


@given(temps, watts, temps, resistances, capacitances, durations)
def test_temperature_never_passes_its_steady_state(
    temp_c: float, power_w: float, ambient_c: float, resistance: float, heat: float, dt_s: float
) -> None:
    settled = steady_state_c(power_w=power_w, ambient_c=ambient_c, resistance_c_per_w=resistance)
    after = rc_step_c(
        temp_c=temp_c,
        power_w=power_w,
        ambient_c=ambient_c,
        resistance_c_per_w=resistance,
        capacitance_j_per_c=heat,
        dt_s=dt_s,
    )
    assert min(temp_c, settled) - 1e-9 <= after <= max(temp_c, settled) + 1e-9


@given(temps, watts, resistances)
def test_the_power_at_a_steady_temperature_is_the_power_that_made_it(
    ambient_c: float, power_w: float, resistance: float
) -> None:
    settled = steady_state_c(power_w=power_w, ambient_c=ambient_c, resistance_c_per_w=resistance)
    back = power_at_temperature_w(
        temp_c=settled, ambient_c=ambient_c, resistance_c_per_w=resistance
    )
    assert math.isclose(back, power_w, rel_tol=1e-6, abs_tol=1e-6)


def test_a_part_in_air_hotter_than_it_may_be_may_draw_nothing() -> None:
    assert power_at_temperature_w(temp_c=80.0, ambient_c=85.0, resistance_c_per_w=0.05) == 0.0


def test_arrays_broadcast() -> None:
    after = rc_step_c(
        temp_c=np.full(4, 30.0),
        power_w=np.full((2, 1), 500.0),
        ambient_c=25.0,
        resistance_c_per_w=0.05,
        capacitance_j_per_c=480.0,
        dt_s=1.0,
    )
    assert after.shape == (2, 4)


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("temp_c", -300.0),
        ("power_w", -1.0),
        ("ambient_c", float("nan")),
        ("resistance_c_per_w", 0.0),
        ("capacitance_j_per_c", -480.0),
        ("dt_s", float("inf")),
    ],
)
def test_an_impossible_argument_is_named(argument: str, bad: float) -> None:
    with pytest.raises(ImpossibleArgumentError, match=f"^{argument} must be"):
        step(**{argument: bad})
