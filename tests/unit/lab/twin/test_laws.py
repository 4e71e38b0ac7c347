"""A step has no time for the checks of ``physics``; what it computes is the same."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fleet.power_curves import power_curves_of
from lab.fleet import make_fleet
from lab.hardware import GPU_MODELS, GpuModel
from lab.twin import NO_FAILURES, Twin
from lab.twin.state import (
    HELD_SHARE,
    MEMORY_C_PER_W,
    MEMORY_OFFSET_C,
    MEMORY_SETTLES_S,
    THERMAL_MARGIN_C,
)
from physics.hardware.drivers import LEAST_CLOCK_SHARE, LEAST_POWER_SHARE
from physics.power import gpu_power_w, node_power_w, throughput_under_cap
from physics.thermal import power_at_temperature_w, rc_step_c

Array = NDArray[np.float64]


def make_twin(*, gpus: int = 1536, warm_up_s: float = 900.0) -> Twin:
    twin = Twin(make_fleet(gpus=gpus), seed=7, failures=NO_FAILURES)
    twin.advance(warm_up_s)
    return twin


def law_of(twin: Twin) -> dict[str, Array]:
    """Return the power curve of each GPU at what its work asks for."""
    parts = twin.parts
    static_w = np.minimum(parts.standing_w, twin._full_w)
    return {
        "static_w": static_w,
        "dynamic_w": twin._full_w - static_w,
        "linear_share": parts.linear_share,
        "exponent": parts.exponent,
    }


def test_power_at_a_clock_is_that_of_the_law() -> None:
    twin = make_twin()
    law_w = gpu_power_w(relative_throughput=twin.clock, **law_of(twin))
    assert (twin.clock < 1.0).sum() > 100
    np.testing.assert_allclose(twin.power_w, law_w, rtol=1e-5)


def test_its_curve_is_the_one_that_the_server_goes_by() -> None:
    fleet = make_fleet(gpus=1536)
    models = [rack.kind.gpu for rack in fleet.racks]
    curves = power_curves_of(
        [model.name for model in models], np.array([model.rated_w for model in models])
    )
    parts = Twin(fleet, seed=7).parts
    of_rack = {
        "linear_share": curves.linear_share,
        "exponent": curves.exponent,
        "standing_w": curves.static_w,
    }
    for name, by_rack in of_rack.items():
        expected = np.repeat(by_rack[fleet.rack_of_node], 8)
        # GPUs leak by 2 % more or less.
        np.testing.assert_allclose(getattr(parts, name), expected, rtol=0.101)
        assert np.median(getattr(parts, name) / expected) == pytest.approx(1.0, abs=0.005)


def test_the_server_knows_what_a_gpu_under_a_cap_does() -> None:
    """The controller's curves say the speed of the twin's GPUs as far as these are alike."""
    twin = make_twin()
    twin.set_caps(np.arange(1536), cap_w=0.55 * twin.parts.rated_w, cap_mhz=np.full(1536, np.inf))
    twin.advance(4.0)
    names = [rack.kind.gpu.name for rack in twin.fleet.racks]
    curves = power_curves_of(names, np.array([r.kind.gpu.rated_w for r in twin.fleet.racks]))
    told = curves.speed(np.repeat(twin.fleet.rack_of_node, 8), twin.power_w, twin._full_w)
    held = twin.busy & (twin.clock < 1.0)
    assert held.sum() > 300
    np.testing.assert_allclose(twin.clock[held], told[held], atol=0.04)


@pytest.mark.parametrize("model", GPU_MODELS, ids=lambda model: model.name)
def test_the_lowest_cap_holds_a_gpu_at_full_load(model: GpuModel) -> None:
    curve = model.power_curve
    static_w = curve.static_share * model.rated_w
    lowest_w = gpu_power_w(
        static_w=static_w,
        dynamic_w=model.rated_w - static_w,
        relative_throughput=LEAST_CLOCK_SHARE,
        exponent=curve.exponent,
        linear_share=curve.linear_share,
    )
    assert lowest_w <= HELD_SHARE * LEAST_POWER_SHARE * model.rated_w


def test_the_clock_under_a_cap_is_that_of_the_law() -> None:
    twin = make_twin()
    gpus = np.arange(twin.fleet.gpu_count)
    cap_w = np.full(len(gpus), 400.0)
    twin.set_caps(gpus, cap_w=cap_w, cap_mhz=np.full(len(gpus), np.inf))
    twin.advance(1.0)
    law = throughput_under_cap(cap_w=twin._held_w, **law_of(twin))
    # Those that nothing else holds back, and that the cap has not held back harder before.
    bound = (twin._power_clock == twin.clock) & (law < 0.95) & (twin.power_w > 0.98 * 400.0)
    assert bound.sum() > 100
    np.testing.assert_allclose(twin.clock[bound], law[bound], atol=0.01)


def test_under_a_cap_that_no_clock_keeps_work_goes_on_slowly() -> None:
    twin = make_twin(gpus=64)
    twin._least_cap_w[:] = 150.0
    gpus = np.arange(64)
    twin.set_caps(gpus, cap_w=np.zeros(64), cap_mhz=np.full(64, np.inf))
    # The pace is that of the step before.
    twin.advance(4.0)
    held = twin.busy & (twin.power_w > twin.power_limit_w)
    assert held.sum() > 10
    assert (twin.clock[held] == 0.1).all()
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
    twin._slow_the_hot(np.flatnonzero(twin.busy))
    cool_w = power_at_temperature_w(
        temp_c=twin.parts.slowdown_c - THERMAL_MARGIN_C,
        ambient_c=twin.ambient_c,
        resistance_c_per_w=twin.parts.resistance_c_per_w * 4.0,
    )
    law = throughput_under_cap(cap_w=cool_w, **law_of(twin))
    allowed = np.where(twin.busy, law.clip(0.2), 1.0)
    assert (allowed < 0.95).sum() > 10
    np.testing.assert_allclose(twin._thermal_clock, allowed, atol=1e-6)


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
