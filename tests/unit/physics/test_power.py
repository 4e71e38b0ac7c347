"""Power of GPUs, nodes, racks, feeds and facilities."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from physics.errors import ImpossibleArgumentError, UnfittableError
from physics.power import (
    best_cap,
    cap_for_budget_w,
    cap_for_slowdown_w,
    cap_within_w,
    cue_kg_per_kwh,
    energy_per_work_j,
    facility_load_w,
    facility_overhead_w,
    failover,
    fit_host,
    gpu_power_w,
    gpus_admitted,
    grid_cue_kg_per_kwh,
    headroom_w,
    host_power_w,
    it_load_w,
    node_power_w,
    pair_budget_w,
    pue,
    pue_saving_w,
    rack_density_ratio,
    rack_power_w,
    slowdown_under_cap,
    throughput_under_cap,
    usable_w,
    wue_l_per_kwh,
)
from tests.unit.physics.law_checks import Law, check_arrays, check_refusals

watts = st.floats(0.0, 2000.0)
shares = st.floats(0.0, 1.0)
exponents = st.floats(1.0, 8.0)

H100 = {"static_w": 190.0, "dynamic_w": 480.0}


def test_a_gpu_at_full_speed_draws_its_static_and_its_dynamic_power() -> None:
    assert gpu_power_w(**H100, relative_throughput=1.0) == 670.0


def test_at_half_speed_almost_all_dynamic_power_is_gone() -> None:
    assert gpu_power_w(**H100, relative_throughput=0.5) == 190.0 + 480.0 / 32


def test_floats_give_a_float_and_arrays_broadcast() -> None:
    scalar = gpu_power_w(static_w=100.0, dynamic_w=200.0, relative_throughput=0.9)
    array = gpu_power_w(
        static_w=100.0, dynamic_w=np.full((3, 1), 200.0), relative_throughput=np.full(4, 0.9)
    )
    assert isinstance(scalar, float)
    assert array.shape == (3, 4)
    assert np.allclose(array, scalar)


@given(static_w=watts, dynamic_w=watts, low=shares, high=shares, exponent=exponents)
def test_power_never_falls_when_throughput_rises(
    static_w: float, dynamic_w: float, low: float, high: float, exponent: float
) -> None:
    low, high = sorted((low, high))
    power_w = gpu_power_w(
        static_w=static_w,
        dynamic_w=dynamic_w,
        relative_throughput=np.array([low, high]),
        exponent=exponent,
    )
    assert power_w[0] <= power_w[1]


@given(cap_w=watts, static_w=watts, dynamic_w=watts, exponent=exponents)
def test_the_throughput_under_a_cap_keeps_it_and_is_the_highest_that_does(
    cap_w: float, static_w: float, dynamic_w: float, exponent: float
) -> None:
    part = {"static_w": static_w, "dynamic_w": dynamic_w, "exponent": exponent}
    throughput = throughput_under_cap(cap_w=cap_w, **part)
    power_w = gpu_power_w(relative_throughput=throughput, **part)
    assert 0.0 <= throughput <= 1.0
    if cap_w >= static_w:
        assert power_w <= cap_w + 1e-9 * max(cap_w, 1.0)
    if 0.0 < throughput < 1.0:
        assert math.isclose(power_w, cap_w, rel_tol=1e-9)


def test_a_cap_under_the_static_power_cannot_be_kept() -> None:
    assert throughput_under_cap(cap_w=100.0, **H100) == 0.0
    assert slowdown_under_cap(cap_w=100.0, **H100) == np.inf
    assert energy_per_work_j(cap_w=100.0, **H100) == np.inf


def test_a_gpu_without_dynamic_power_needs_not_slow_down() -> None:
    found = throughput_under_cap(cap_w=np.array([200.0, 100.0]), static_w=150.0, dynamic_w=0.0)
    assert found.tolist() == [1.0, 0.0]


@given(slowdown=st.floats(1.0, 3.0), exponent=exponents)
def test_the_cap_for_a_slowdown_slows_down_by_it(slowdown: float, exponent: float) -> None:
    cap_w = cap_for_slowdown_w(slowdown=slowdown, exponent=exponent, **H100)
    assert math.isclose(
        slowdown_under_cap(cap_w=cap_w, exponent=exponent, **H100), slowdown, rel_tol=1e-6
    )


def test_a_slowdown_under_one_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="slowdown must be finite and at least 1"):
        cap_for_slowdown_w(slowdown=0.9, **H100)


def test_energy_per_work_is_power_over_throughput() -> None:
    full_j = energy_per_work_j(cap_w=700.0, work_per_s=5000.0, **H100)
    assert math.isclose(full_j, 670.0 / 5000.0)
    slow_w = gpu_power_w(relative_throughput=0.8, **H100)
    assert math.isclose(energy_per_work_j(cap_w=slow_w, **H100), slow_w / 0.8)


@given(
    static_w=st.floats(1.0, 500.0),
    dynamic_w=st.floats(1.0, 800.0),
    exponent=st.floats(1.5, 8.0),
    overhead_w=st.floats(0.0, 500.0),
)
def test_no_cap_needs_less_energy_per_work_than_the_best(
    static_w: float, dynamic_w: float, exponent: float, overhead_w: float
) -> None:
    part = {
        "static_w": static_w,
        "dynamic_w": dynamic_w,
        "exponent": exponent,
        "overhead_w": overhead_w,
    }
    best = best_cap(**part)
    least_j = energy_per_work_j(cap_w=best.cap_w, **part)
    caps_w = np.linspace(static_w, static_w + dynamic_w, 201)[1:]
    assert least_j <= energy_per_work_j(cap_w=caps_w, **part).min() * (1 + 1e-9)
    uncapped_j = energy_per_work_j(cap_w=static_w + dynamic_w, **part)
    assert math.isclose(best.saved_share, 1 - least_j / uncapped_j, abs_tol=1e-9)


def test_what_runs_anyway_speaks_for_a_higher_cap() -> None:
    alone = best_cap(**H100)
    with_host = best_cap(overhead_w=575.0, **H100)
    assert alone.cap_w < with_host.cap_w
    assert alone.saved_share > with_host.saved_share > 0.0


def test_the_best_cap_keeps_the_least_throughput() -> None:
    held = best_cap(least_throughput=0.95, **H100)
    assert held.relative_throughput == 0.95
    assert held.cap_w == gpu_power_w(relative_throughput=0.95, **H100)


@pytest.mark.parametrize(
    "part",
    [
        {"static_w": 190.0, "dynamic_w": 480.0, "exponent": 1.0},
        {"static_w": 190.0, "dynamic_w": 0.0},
        {"static_w": 0.0, "dynamic_w": 0.0},
    ],
)
def test_where_slowing_down_saves_nothing_full_speed_is_best(part: dict[str, float]) -> None:
    best = best_cap(**part)
    assert (best.relative_throughput, best.saved_share) == (1.0, 0.0)


def test_without_standing_power_the_slowest_is_best() -> None:
    best = best_cap(static_w=0.0, dynamic_w=480.0)
    assert (best.cap_w, best.relative_throughput, best.saved_share) == (0.0, 0.0, 1.0)


def test_a_node_draws_its_gpus_and_its_host() -> None:
    node = {"gpus_w": 5600.0, "host_idle_w": 1400.0, "host_rated_w": 4600.0}
    assert node_power_w(host_load=1.0, **node) == 10_200.0
    assert node_power_w(host_load=0.0, psu_efficiency=0.5, **node) == 14_000.0


def test_a_host_rated_under_its_idle_power_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="host_rated_w must be at least host_idle_w"):
        node_power_w(gpus_w=0.0, host_idle_w=900.0, host_rated_w=800.0, host_load=0.5)


def test_a_rack_draws_its_nodes_and_what_else_it_holds() -> None:
    assert rack_power_w(node_w=10_200.0, nodes=4) == 40_800.0
    assert rack_power_w(node_w=9_000.0, nodes=8, others_w=3_000.0, efficiency=0.75) == 100_000.0


def host_readings(seed: int, samples: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Return GPU sums and node power with host 1,100 W + 0.12 W/W under 25 W of noise."""
    rng = np.random.default_rng(seed)
    gpus_w = rng.uniform(600.0, 5600.0, samples)
    return gpus_w, gpus_w + 1100.0 + 0.12 * gpus_w + rng.normal(0.0, 25.0, samples)


@pytest.mark.parametrize("seed", range(4))
def test_the_fit_of_a_host_finds_what_made_the_readings(seed: int) -> None:
    gpus_w, node_w = host_readings(seed)
    host = fit_host(gpus_w=gpus_w, node_w=node_w)
    assert abs(host.host_idle_w - 1100.0) < 4 * host.host_idle_error_w < 20.0
    assert abs(host.host_share - 0.12) < 4 * host.host_share_error < 0.006
    assert host.spread_w == pytest.approx(25.0, rel=0.1)
    again_w = gpus_w + host_power_w(
        gpus_w=gpus_w, host_idle_w=host.host_idle_w, host_share=host.host_share
    )
    assert np.sqrt(np.mean((again_w - node_w) ** 2)) == pytest.approx(25.0, rel=0.1)


@pytest.mark.parametrize("flaw_w", [0.0, -300.0, 40_000.0])
def test_zeros_and_spikes_have_no_say_in_the_host(flaw_w: float) -> None:
    gpus_w, node_w = host_readings(7)
    node_w[::7] = flaw_w
    host = fit_host(gpus_w=gpus_w, node_w=node_w)
    assert host.host_idle_w == pytest.approx(1100.0, abs=10.0)
    assert host.host_share == pytest.approx(0.12, abs=0.004)
    assert host.left_out >= len(node_w) // 7


def test_gpus_that_read_zero_under_load_have_no_say_in_the_host() -> None:
    gpus_w, node_w = host_readings(8)
    gpus_w[::10] = 0.0
    host = fit_host(gpus_w=gpus_w, node_w=node_w)
    assert host.host_idle_w == pytest.approx(1100.0, abs=15.0)
    assert host.host_share == pytest.approx(0.12, abs=0.005)


def test_a_host_without_noise_is_found_exactly() -> None:
    gpus_w = np.array([1000.0, 2000.0, 4000.0, 5000.0])
    host = fit_host(gpus_w=gpus_w, node_w=gpus_w * 1.1 + 900.0)
    assert host.host_idle_w == pytest.approx(900.0)
    assert host.host_share == pytest.approx(0.1)
    assert host.left_out == 0


@pytest.mark.parametrize(
    "gpus_w", [[1000.0, 2000.0], [1000.0] * 50, [0.0] * 50, [1000.0] * 49 + [5000.0]]
)
def test_readings_that_do_not_determine_a_host_are_refused(gpus_w: list[float]) -> None:
    with pytest.raises(UnfittableError):
        fit_host(gpus_w=np.array(gpus_w), node_w=np.add(gpus_w, 1000.0))


def test_a_host_that_is_mostly_idle_is_found() -> None:
    rng = np.random.default_rng(2)
    gpus_w = np.where(rng.uniform(size=500) < 0.9, 600.0, 5000.0)
    node_w = 1.12 * gpus_w + 1100.0 + rng.normal(0.0, 20.0, 500)
    host = fit_host(gpus_w=gpus_w, node_w=node_w)
    assert host.host_share == pytest.approx(0.12, abs=0.005)


def test_busy_readings_that_contradict_each_other_do_not_determine_a_host() -> None:
    gpus_w = np.array([1000.0] * 36 + [5000.0] * 4)
    node_w = gpus_w + np.array([1100.0] * 36 + [100.0, 900.0, 2900.0, 9000.0])
    with pytest.raises(UnfittableError, match="but for outliers"):
        fit_host(gpus_w=gpus_w, node_w=node_w)


def test_a_feed_of_a_pair_carries_both_loads_when_the_other_fails() -> None:
    found = failover(
        load_a_w=120e3, load_b_w=150e3, capacity_a_w=400e3, capacity_b_w=300e3, derating=0.8
    )
    assert found.survivor_a_w == found.survivor_b_w == 270e3
    assert found.margin_a_w == pytest.approx(50e3)
    assert found.margin_b_w == pytest.approx(-30e3)
    assert found.holds is False


def test_what_has_one_cord_falls_with_its_feed() -> None:
    found = failover(
        load_a_w=100e3, load_b_w=50e3, capacity_a_w=150e3, capacity_b_w=150e3, transferred=0.5
    )
    assert (found.survivor_a_w, found.survivor_b_w) == (125e3, 100e3)
    assert found.holds is True


@given(load_a_w=watts, load_b_w=watts, capacity_a_w=watts, capacity_b_w=watts, derating=shares)
def test_a_pair_within_its_budget_holds_and_one_beyond_does_not(
    load_a_w: float, load_b_w: float, capacity_a_w: float, capacity_b_w: float, derating: float
) -> None:
    pair = {"capacity_a_w": capacity_a_w, "capacity_b_w": capacity_b_w, "derating": derating}
    spare_w = pair_budget_w(**pair) - (load_a_w + load_b_w)
    found = failover(load_a_w=load_a_w, load_b_w=load_b_w, **pair)
    if abs(spare_w) > 1e-6:
        assert found.holds is (spare_w > 0.0)


def test_pairs_are_judged_as_arrays() -> None:
    found = failover(
        load_a_w=np.array([10.0, 60.0]), load_b_w=50.0, capacity_a_w=100.0, capacity_b_w=100.0
    )
    assert found.holds.tolist() == [True, False]


def test_headroom_is_what_the_derated_capacity_leaves() -> None:
    assert usable_w(capacity_w=400e3, derating=0.8) == 320e3
    assert headroom_w(load_w=300e3, capacity_w=400e3, derating=0.8) == 20e3
    assert headroom_w(load_w=500e3, capacity_w=400e3) == -100e3


@pytest.mark.parametrize(
    ("pue_of_it", "overhead_w"), [(1.06, 60e3), (1.12, 120e3), (1.40, 400e3), (1.58, 580e3)]
)
def test_overhead_per_megawatt_of_it_load(pue_of_it: float, overhead_w: float) -> None:
    assert facility_overhead_w(it_w=1e6, pue=pue_of_it) == pytest.approx(overhead_w)


def test_the_load_of_10000_h100() -> None:
    it_w = it_load_w(gpus=10_000, tdp_w=700.0)
    assert it_w == 7e6
    assert facility_load_w(it_w=it_w, pue=1.4) == pytest.approx(9.8e6)
    # DGX H100 nameplates: 10.2 kW for eight.
    assert it_load_w(gpus=10_000, tdp_w=700.0, host_w=575.0) == 12.75e6


def test_a_better_pue_saves_the_difference() -> None:
    assert pue_saving_w(it_w=10e6, pue=1.58, better_pue=1.06) == pytest.approx(5.2e6)
    assert rack_density_ratio(rack_w=70e3, reference_w=12e3) == pytest.approx(5.83, abs=0.01)


@given(it_w=st.floats(1.0, 1e9), ratio=st.floats(1.0, 3.0))
def test_the_pue_of_a_facility_load_is_the_one_that_made_it(it_w: float, ratio: float) -> None:
    facility_w = facility_load_w(it_w=it_w, pue=ratio)
    assert math.isclose(pue(facility_w=facility_w, it_w=it_w), ratio)
    assert math.isclose(facility_w - it_w, facility_overhead_w(it_w=it_w, pue=ratio), abs_tol=1e-3)


def test_a_facility_under_its_it_load_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="facility_w must be at least it_w"):
        pue(facility_w=0.9e6, it_w=1e6)
    with pytest.raises(ImpossibleArgumentError, match="pue must be finite and at least 1"):
        facility_load_w(it_w=1e6, pue=0.99)


def test_water_and_carbon_are_by_kwh_of_it() -> None:
    assert wue_l_per_kwh(water_l=1800.0, it_j=1000 * 3.6e6) == pytest.approx(1.8)
    assert cue_kg_per_kwh(carbon_kg=400.0, it_j=1000 * 3.6e6) == pytest.approx(0.4)
    assert grid_cue_kg_per_kwh(intensity_g_per_kwh=350.0, pue=1.2) == pytest.approx(0.42)


@given(gpus=st.integers(1, 200_000), tdp_w=st.integers(1, 2000), ratio=st.floats(1.0, 2.0))
def test_a_site_admits_as_many_gpus_as_its_power_was_made_for(
    gpus: int, tdp_w: int, ratio: float
) -> None:
    budget_w = facility_load_w(it_w=it_load_w(gpus=gpus, tdp_w=tdp_w, host_w=75.0), pue=ratio)
    site = {"budget_w": budget_w, "pue": ratio, "host_w": 75.0}
    assert gpus_admitted(tdp_w=tdp_w, **site) == gpus
    assert math.isclose(cap_for_budget_w(gpus=gpus, **site), tdp_w, rel_tol=1e-9)


def test_a_budget_that_hosts_use_up_leaves_no_cap() -> None:
    assert cap_for_budget_w(budget_w=1e6, pue=1.25, gpus=2000, host_w=500.0) == 0.0


@given(r=st.floats(0.0, 1.0), exponent=st.floats(0.3, 30.0), linear_share=st.floats(0.0, 1.0))
@example(r=6e-13, exponent=0.307, linear_share=0.0013)
def test_two_slopes_are_undone(r: float, exponent: float, linear_share: float) -> None:
    curve = {"exponent": exponent, "linear_share": linear_share, **H100}
    power_w = gpu_power_w(relative_throughput=r, **curve)
    found = throughput_under_cap(cap_w=power_w, **curve)
    assert gpu_power_w(relative_throughput=found, **curve) == pytest.approx(power_w, abs=1e-6)


def test_a_job_that_would_be_capped_above_its_draw_is_not_capped() -> None:
    gpu = {"rated_w": 700.0, "static_w": 250.0}
    assert cap_within_w(max_slowdown=0.1, peak_w=700.0, **gpu) == pytest.approx(515.7, abs=0.1)
    assert cap_within_w(max_slowdown=0.1, peak_w=400.0, **gpu) == 700.0
    assert cap_within_w(max_slowdown=0.0, peak_w=700.0, **gpu) == 700.0
    assert cap_within_w(max_slowdown=0.1, peak_w=900.0, cap_factor=1.1, **gpu) == pytest.approx(
        567.3, abs=0.1
    )
    assert cap_within_w(max_slowdown=0.9, peak_w=700.0, lowest_w=350.0, **gpu) == 350.0


GPU = {"static_w": 190.0, "dynamic_w": 480.0, "exponent": 5.0, "linear_share": 0.4}
SITE = {"budget_w": 20e6, "pue": 1.3, "host_w": 500.0}
GOOD: list[tuple[Law, dict[str, Any]]] = [
    (gpu_power_w, GPU | {"relative_throughput": 0.8}),
    (throughput_under_cap, GPU | {"cap_w": 500.0}),
    (slowdown_under_cap, GPU | {"cap_w": 500.0}),
    (cap_for_slowdown_w, GPU | {"slowdown": 1.1}),
    (
        cap_within_w,
        {
            "max_slowdown": 0.2,
            "peak_w": 500.0,
            "rated_w": 700.0,
            "static_w": 190.0,
            "exponent": 5.0,
            "linear_share": 0.4,
            "cap_factor": 1.05,
            "lowest_w": 300.0,
        },
    ),
    (energy_per_work_j, GPU | {"cap_w": 500.0, "overhead_w": 300.0, "work_per_s": 50.0}),
    (best_cap, GPU | {"overhead_w": 300.0, "least_throughput": 0.6}),
    (
        node_power_w,
        {
            "gpus_w": 5e3,
            "host_idle_w": 1e3,
            "host_rated_w": 4e3,
            "host_load": 0.5,
            "psu_efficiency": 0.94,
        },
    ),
    (host_power_w, {"gpus_w": 5e3, "host_idle_w": 1e3, "host_share": 0.1}),
    (rack_power_w, {"node_w": 9e3, "nodes": 8.0, "others_w": 3e3, "efficiency": 0.97}),
    (usable_w, {"capacity_w": 4e5, "derating": 0.8}),
    (headroom_w, {"load_w": 3e5, "capacity_w": 4e5, "derating": 0.8}),
    (
        failover,
        {
            "load_a_w": 1e5,
            "load_b_w": 2e5,
            "capacity_a_w": 4e5,
            "capacity_b_w": 3e5,
            "derating": 0.8,
            "transferred": 0.9,
        },
    ),
    (pair_budget_w, {"capacity_a_w": 4e5, "capacity_b_w": 3e5, "derating": 0.8}),
    (it_load_w, {"gpus": 1024.0, "tdp_w": 700.0, "host_w": 500.0}),
    (facility_load_w, {"it_w": 1e6, "pue": 1.2}),
    (facility_overhead_w, {"it_w": 1e6, "pue": 1.2}),
    (pue_saving_w, {"it_w": 1e6, "pue": 1.5, "better_pue": 1.2}),
    (pue, {"facility_w": 3e6, "it_w": 1e6}),
    (wue_l_per_kwh, {"water_l": 1800.0, "it_j": 3.6e9}),
    (cue_kg_per_kwh, {"carbon_kg": 400.0, "it_j": 3.6e9}),
    (grid_cue_kg_per_kwh, {"intensity_g_per_kwh": 350.0, "pue": 1.2}),
    (gpus_admitted, SITE | {"tdp_w": 700.0}),
    (cap_for_budget_w, SITE | {"gpus": 10_000.0}),
    (rack_density_ratio, {"rack_w": 70e3, "reference_w": 12e3}),
]


@pytest.mark.parametrize(("law", "good"), GOOD, ids=lambda each: getattr(each, "__name__", ""))
def test_every_law_names_what_it_refuses(law: Law, good: dict[str, Any]) -> None:
    check_refusals(law, good)


@pytest.mark.parametrize(("law", "good"), GOOD, ids=lambda each: getattr(each, "__name__", ""))
def test_arrays_give_what_their_elements_give(law: Law, good: dict[str, Any]) -> None:
    check_arrays(law, good)


def test_one_bad_value_of_many_is_enough() -> None:
    with pytest.raises(ImpossibleArgumentError, match="cap_w"):
        throughput_under_cap(cap_w=np.array([500.0, np.nan]), **H100)
