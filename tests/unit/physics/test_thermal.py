"""Temperature of parts under power."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.errors import ImpossibleArgumentError
from physics.thermal import (
    burst_power_w,
    power_at_temperature_w,
    rc_step_c,
    steady_state_c,
    time_constant_s,
    time_to_cool_s,
    time_to_throttle_s,
)
from tests.unit.physics.law_checks import Law, check_arrays

temps = st.floats(-20.0, 120.0)
watts = st.floats(0.0, 1500.0)
resistances = st.floats(0.01, 1.0)
capacitances = st.floats(10.0, 5000.0)
durations = st.floats(0.0, 600.0)

#: An H100 in a hall of 25 °C.
H100 = {"ambient_c": 25.0, "resistance_c_per_w": 0.052, "capacitance_j_per_c": 480.0}


def step(**changes: float) -> float:
    part = H100 | {"temp_c": 30.0, "power_w": 632.0, "dt_s": 5.0}
    return float(rc_step_c(**part | changes))


def test_a_part_settles_at_ambient_plus_power_times_resistance() -> None:
    assert steady_state_c(power_w=600.0, ambient_c=25.0, resistance_c_per_w=0.05) == 55.0
    assert math.isclose(step(dt_s=1e4), 25.0 + 632.0 * 0.052)


def test_after_one_time_constant_63_percent_of_the_way_is_done() -> None:
    begun, settled = 30.0, 25.0 + 632.0 * 0.052
    tau_s = time_constant_s(resistance_c_per_w=0.052, capacitance_j_per_c=480.0)
    assert tau_s == pytest.approx(24.96)
    after = step(dt_s=tau_s)
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


@given(temps, temps, watts, temps, resistances, capacitances)
def test_at_the_time_to_a_limit_the_limit_is_met(
    temp_c: float, limit_c: float, power_w: float, ambient_c: float, resistance: float, heat: float
) -> None:
    part = {
        "temp_c": temp_c,
        "power_w": power_w,
        "ambient_c": ambient_c,
        "resistance_c_per_w": resistance,
        "capacitance_j_per_c": heat,
    }
    for wait_s in (
        time_to_throttle_s(limit_c=limit_c, **part),
        time_to_cool_s(limit_c=limit_c, **part),
    ):
        if 0.0 < wait_s < np.inf:
            assert math.isclose(rc_step_c(dt_s=wait_s, **part), limit_c, abs_tol=1e-5)


def test_a_hot_part_throttles_at_once_and_a_cool_one_never() -> None:
    now = time_to_throttle_s(temp_c=90.0, limit_c=87.0, power_w=0.0, **H100)
    never = time_to_throttle_s(temp_c=50.0, limit_c=87.0, power_w=700.0, **H100)
    # It settles just at the limit: it comes near it without end.
    just = time_to_throttle_s(temp_c=50.0, limit_c=25.0 + 700 * 0.052, power_w=700.0, **H100)
    assert (now, never, just) == (0.0, np.inf, np.inf)


def test_more_power_throttles_sooner() -> None:
    waits_s = time_to_throttle_s(
        temp_c=50.0, limit_c=60.0, power_w=np.linspace(700.0, 2000.0, 9), **H100
    )
    assert np.all(np.diff(waits_s) < 0.0)


def test_a_cool_part_has_cooled_and_a_loaded_one_never_does() -> None:
    done = time_to_cool_s(temp_c=40.0, limit_c=50.0, power_w=700.0, **H100)
    never = time_to_cool_s(temp_c=60.0, limit_c=50.0, power_w=700.0, **H100)
    soon = time_to_cool_s(temp_c=60.0, limit_c=50.0, power_w=0.0, **H100)
    assert (done, never) == (0.0, np.inf)
    assert soon == pytest.approx(24.96 * math.log(35.0 / 25.0))


@given(temps, temps, st.floats(1.0, 600.0))
def test_burst_power_brings_a_part_just_to_its_limit(
    temp_c: float, limit_c: float, dt_s: float
) -> None:
    burst_w = burst_power_w(temp_c=temp_c, limit_c=limit_c, dt_s=dt_s, **H100)
    after_c = step(temp_c=temp_c, power_w=burst_w, dt_s=dt_s)
    if burst_w > 0.0:
        assert after_c == pytest.approx(limit_c, abs=1e-6)
    else:
        assert after_c >= limit_c - 1e-6


def test_a_short_burst_may_be_stronger_and_a_long_one_is_the_steady_power() -> None:
    bursts_w = burst_power_w(
        temp_c=50.0, limit_c=80.0, dt_s=np.array([1.0, 10.0, 100.0, 1e5]), **H100
    )
    assert np.all(np.diff(bursts_w) < 0.0)
    steady_w = power_at_temperature_w(temp_c=80.0, ambient_c=25.0, resistance_c_per_w=0.052)
    assert bursts_w[-1] == pytest.approx(steady_w)


@pytest.mark.parametrize(
    ("law", "changes"),
    [
        (rc_step_c, {"temp_c": 50.0, "power_w": 500.0, "dt_s": 5.0}),
        (time_to_throttle_s, {"temp_c": 40.0, "limit_c": 50.0, "power_w": 900.0}),
        (time_to_cool_s, {"temp_c": 80.0, "limit_c": 70.0, "power_w": 200.0}),
        (burst_power_w, {"temp_c": 50.0, "limit_c": 70.0, "dt_s": 20.0}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_arrays_give_what_their_elements_give(law: Law, changes: dict[str, float]) -> None:
    check_arrays(law, H100 | changes)


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
