"""A step has no time for the checks of ``physics``; what it computes is the same."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.fleet import make_fleet
from lab.twin import NO_FAILURES, Twin
from lab.twin.state import MEMORY_C_PER_W, MEMORY_OFFSET_C, MEMORY_SETTLES_S, THERMAL_MARGIN_C
from physics.power import gpu_power_w, node_power_w, throughput_under_cap
from physics.thermal import power_at_temperature_w, rc_step_c

Array = NDArray[np.float64]


def make_twin(*, gpus: int = 1536, warm_up_s: float = 900.0) -> Twin:
    twin = Twin(make_fleet(gpus=gpus), seed=7, failures=NO_FAILURES)
    twin.advance(warm_up_s)
    return twin


def demand(twin: Twin) -> tuple[Array, Array]:
    """Return the static and the dynamic power that each GPU's work asks for."""
    return twin._static_w, twin._dynamic_w


def test_power_at_a_clock_is_that_of_the_law() -> None:
    twin = make_twin()
    static_w, dynamic_w = demand(twin)
    law_w = gpu_power_w(
        static_w=static_w,
        dynamic_w=dynamic_w,
        relative_throughput=twin.clock,
        exponent=twin.parts.exponent,
    )
    assert (twin.clock < 1.0).sum() > 100
    np.testing.assert_allclose(twin.power_w, law_w, rtol=1e-12)


def test_the_clock_under_a_cap_is_that_of_the_law() -> None:
    twin = make_twin()
    gpus = np.arange(twin.fleet.gpu_count)
    cap_w = np.full(len(gpus), 400.0)
    twin.set_caps(gpus, cap_w=cap_w, cap_mhz=np.full(len(gpus), np.inf))
    twin.advance(1.0)
    static_w, dynamic_w = demand(twin)
    law = throughput_under_cap(
        cap_w=twin._held_w, static_w=static_w, dynamic_w=dynamic_w, exponent=twin.parts.exponent
    )
    # Those that nothing else holds back, and that the cap has not held back harder before.
    bound = (twin._power_clock == twin.clock) & (law < 0.95) & (twin.power_w > 0.98 * 400.0)
    assert bound.sum() > 100
    np.testing.assert_allclose(twin.clock[bound], law[bound], atol=0.01)


def test_under_a_cap_that_no_clock_keeps_work_goes_on_slowly() -> None:
    twin = make_twin(gpus=64)
    gpus = np.arange(64)
    twin.set_caps(gpus, cap_w=np.zeros(64), cap_mhz=np.full(64, np.inf))
    # The pace is that of the step before.
    twin.advance(4.0)
    held = twin.busy & (twin._static_w > twin.power_limit_w)
    assert held.sum() > 10
    assert (twin.clock[held] == 0.1).all()
    assert twin.power_w[held] == pytest.approx(twin._static_w[held], rel=1e-4)
    assert twin.pace_by_slot.min() == 0.1


def test_heat_goes_by_the_law() -> None:
    """With a step of the same power, sink and die move as one RC each."""
    twin = make_twin()
    parts, heat = twin.parts, twin._heat
    before_c, before_die_c = twin._sink_c.copy(), twin._die_c.copy()
    ambient_c = twin.ambient_c.copy()
    twin.advance(1.0)
    sink_c = rc_step_c(
        temp_c=before_c,
        power_w=twin.power_w,
        ambient_c=ambient_c,
        resistance_c_per_w=twin._heat.slow_c_per_w,
        capacitance_j_per_c=parts.capacitance_j_per_c,
        dt_s=1.0,
    )
    np.testing.assert_allclose(twin._sink_c, sink_c, rtol=1e-12)
    settled_c = twin.power_w * parts.fast_resistance_c_per_w
    keep = np.exp(-1.0 / parts.fast_time_s)
    die_c = settled_c + (before_die_c - settled_c) * keep
    np.testing.assert_allclose(twin._die_c, die_c, rtol=1e-2, atol=0.2)
    np.testing.assert_allclose(twin.temp_c, twin._sink_c + twin._die_c, rtol=1e-12)
    assert heat.dt_s == 2.0


def test_memory_goes_by_the_law() -> None:
    twin = make_twin(gpus=64)
    before_c = twin.temp_mem_c.copy()
    twin._heat_memory(3.0)
    law_c = rc_step_c(
        temp_c=before_c,
        power_w=twin.power_w,
        ambient_c=twin.ambient_c + MEMORY_OFFSET_C,
        resistance_c_per_w=MEMORY_C_PER_W,
        capacitance_j_per_c=MEMORY_SETTLES_S / MEMORY_C_PER_W,
        dt_s=3.0,
    )
    np.testing.assert_allclose(twin.temp_mem_c, law_c, rtol=1e-12)


def test_a_hot_gpu_is_slowed_to_the_power_that_keeps_it_cool() -> None:
    twin = make_twin(gpus=64)
    twin.conditions.gpu_resistance_factor[:] = 4.0
    twin.advance(1.0)
    twin._hot[:] = True
    twin._slow_the_hot()
    static_w, dynamic_w = demand(twin)
    cool_w = power_at_temperature_w(
        temp_c=twin.parts.slowdown_c - THERMAL_MARGIN_C,
        ambient_c=twin.ambient_c,
        resistance_c_per_w=twin.parts.resistance_c_per_w * 4.0,
    )
    law = throughput_under_cap(
        cap_w=cool_w, static_w=static_w, dynamic_w=dynamic_w, exponent=twin.parts.exponent
    )
    allowed = np.where(twin.busy, law.clip(0.2), 1.0)
    assert (allowed < 0.95).sum() > 10
    np.testing.assert_allclose(twin._thermal_clock, allowed, rtol=1e-12)


def test_hot_gpus_end_up_just_under_their_limit() -> None:
    twin = make_twin(gpus=64)
    twin.conditions.gpu_resistance_factor[:] = 2.6
    hottest_c = []
    for _ in range(120):
        twin.advance(5.0)
        hottest_c.append(float(twin.temp_c.max()))
    assert 84.0 < max(hottest_c[30:]) < 89.0
    assert twin.shutdowns == 0
    assert twin.pace_by_slot[1:].min() < 0.93


def test_nodes_are_read_at_the_wall() -> None:
    twin = make_twin(gpus=512)
    gpus_w = twin.power_w.reshape(-1, 8).sum(axis=1)
    parts = twin.parts
    host_load = (twin.node_w * (1.0 - parts.node_psu_loss_share) - gpus_w) - parts.node_host_idle_w
    host_load /= parts.node_host_rated_w - parts.node_host_idle_w
    assert ((host_load >= 0.02 - 1e-9) & (host_load <= 0.6 + 1e-9)).all()
    law_w = node_power_w(
        gpus_w=gpus_w,
        host_idle_w=parts.node_host_idle_w,
        host_rated_w=parts.node_host_rated_w,
        host_load=host_load,
        psu_efficiency=1.0 - parts.node_psu_loss_share,
    )
    assert twin.node_w == pytest.approx(law_w)
    assert twin.host_w == pytest.approx(twin.node_w - gpus_w)
