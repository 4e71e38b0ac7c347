import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.errors import ImpossibleArgumentError, PhysicsError
from physics.power import clock_under_cap, gpu_power_w, node_power_w

watts = st.floats(0.0, 2000.0)
clocks = st.floats(0.0, 1.0)
exponents = st.floats(1.0, 7.0)


def test_a_gpu_at_full_clock_draws_its_static_and_its_dynamic_power() -> None:
    assert gpu_power_w(static_w=190.0, dynamic_w=480.0, relative_clock=1.0) == 670.0


def test_at_half_clock_almost_all_dynamic_power_is_gone() -> None:
    assert gpu_power_w(static_w=190.0, dynamic_w=480.0, relative_clock=0.5) == 190.0 + 480.0 / 32


def test_floats_give_a_float_and_arrays_broadcast() -> None:
    scalar = gpu_power_w(static_w=100.0, dynamic_w=200.0, relative_clock=0.9)
    array = gpu_power_w(
        static_w=100.0, dynamic_w=np.full((3, 1), 200.0), relative_clock=np.full(4, 0.9)
    )
    assert isinstance(scalar, float)
    assert array.shape == (3, 4)
    assert np.allclose(array, scalar)


@given(static_w=watts, dynamic_w=watts, low=clocks, high=clocks, exponent=exponents)
def test_power_never_falls_when_the_clock_rises(
    static_w: float, dynamic_w: float, low: float, high: float, exponent: float
) -> None:
    low, high = sorted((low, high))

    def power(clock: float) -> float:
        return gpu_power_w(
            static_w=static_w, dynamic_w=dynamic_w, relative_clock=clock, exponent=exponent
        )

    assert power(low) <= power(high)


@given(cap_w=watts, static_w=watts, dynamic_w=watts, exponent=exponents)
def test_the_clock_under_a_cap_keeps_it_and_is_the_highest_that_does(
    cap_w: float, static_w: float, dynamic_w: float, exponent: float
) -> None:
    clock = clock_under_cap(cap_w=cap_w, static_w=static_w, dynamic_w=dynamic_w, exponent=exponent)
    power = gpu_power_w(
        static_w=static_w, dynamic_w=dynamic_w, relative_clock=clock, exponent=exponent
    )
    assert 0.0 <= clock <= 1.0
    if cap_w >= static_w:
        assert power <= cap_w + 1e-9 * max(cap_w, 1.0)
    if 0.0 < clock < 1.0:
        assert math.isclose(power, cap_w, rel_tol=1e-9)


def test_a_cap_under_the_static_power_cannot_be_kept() -> None:
    assert clock_under_cap(cap_w=100.0, static_w=190.0, dynamic_w=480.0) == 0.0


def test_a_gpu_without_dynamic_power_needs_no_lower_clock() -> None:
    clocks = clock_under_cap(cap_w=np.array([200.0, 100.0]), static_w=150.0, dynamic_w=0.0)
    assert clocks.tolist() == [1.0, 0.0]


def test_a_node_draws_its_gpus_and_its_host() -> None:
    node_w = node_power_w(gpus_w=5600.0, host_idle_w=1400.0, host_rated_w=4600.0, host_load=1.0)
    assert node_w == 10_200.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("argument", ["static_w", "dynamic_w", "relative_clock"])
def test_an_impossible_argument_is_named(argument: str, bad: float) -> None:
    good = {"static_w": 190.0, "dynamic_w": 480.0, "relative_clock": 0.9}
    with pytest.raises(ImpossibleArgumentError, match=f"^{argument} must be") as caught:
        gpu_power_w(**good | {argument: bad})
    assert caught.value.argument == argument
    assert isinstance(caught.value, PhysicsError)


def test_one_bad_value_of_many_is_enough() -> None:
    with pytest.raises(ImpossibleArgumentError, match="cap_w"):
        clock_under_cap(cap_w=np.array([500.0, np.nan]), static_w=190.0, dynamic_w=480.0)


def test_a_clock_above_one_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="relative_clock must be between 0 and 1"):
        gpu_power_w(static_w=1.0, dynamic_w=1.0, relative_clock=1.01)


def test_a_host_rated_under_its_idle_power_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="host_rated_w - host_idle_w"):
        node_power_w(gpus_w=0.0, host_idle_w=900.0, host_rated_w=800.0, host_load=0.5)
