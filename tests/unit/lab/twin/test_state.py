import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom.contracts import ThrottleCause
from lab.fleet import make_fleet
from lab.twin import COUNTED_CAUSES, GPU_IDLE, Twin


def make_twin(*, gpus: int = 512, seed: int = 7, warm_up_s: float = 0.0) -> Twin:
    twin = Twin(make_fleet(gpus=gpus), seed=seed)
    twin.advance(warm_up_s)
    return twin


def check_invariants(twin: Twin) -> None:
    """What holds after any steps from any seed."""
    parts = twin.parts
    assert (twin.power_w <= twin.power_limit_w + 1e-6).all()
    assert (twin.power_w > 0).all()
    assert ((twin.clock >= 0.2) & (twin.clock <= 1.0)).all()
    assert (twin.temp_c < parts.shutdown_c).all()
    assert (twin.temp_c > 15.0).all()
    assert ((twin.temp_mem_c > 15.0) & (twin.temp_mem_c < 100.0)).all()
    assert ((twin.inlet_c > 15.0) & (twin.inlet_c < 60.0)).all()
    # The mask and the state say the same.
    idle = (twin.throttle & GPU_IDLE) > 0
    assert (idle == ~twin.busy).all()
    throttled = twin.throttle > GPU_IDLE
    assert (twin.clock[throttled] < 1.0).all()
    slow = twin.clock < parts.top_clock - 1e-9
    assert (throttled[slow]).all()
    hardware = (ThrottleCause.HW_THERMAL | ThrottleCause.HW_POWER_BRAKE).value
    slowed = (twin.throttle & ThrottleCause.HW_SLOWDOWN.value) > 0
    assert (((twin.throttle & hardware) > 0) == slowed).all()
    # Sums are sums.
    assert np.isclose(twin.node_w.sum() + 900.0 * len(twin.rack_w), twin.rack_w.sum())
    assert np.isclose(twin.zone_heat_w.sum(), twin.rack_w.sum())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32 - 1),
    gpus=st.integers(1, 600),
    steps=st.lists(st.floats(0.1, 120.0), min_size=2, max_size=12),
)
def test_limits_hold_and_counters_never_go_back(seed: int, gpus: int, steps: list[float]) -> None:
    twin = make_twin(gpus=gpus, seed=seed)
    for dt_s in steps:
        energy_j = twin.energy_j.copy()
        rack_j = twin.rack_energy_j.copy()
        throttled_ns = {cause: ns.copy() for cause, ns in twin.throttle_ns.items()}
        ecc = twin.ecc.copy()
        twin.advance(dt_s)
        check_invariants(twin)
        assert (twin.energy_j > energy_j).all()
        assert (twin.energy_j - energy_j <= twin.parts.power_limit_w * dt_s * 1.001).all()
        assert (twin.rack_energy_j > rack_j).all()
        assert (twin.ecc >= ecc).all()
        for cause, before in throttled_ns.items():
            added = twin.throttle_ns[cause] - before
            assert ((added >= 0) & (added <= dt_s * 1e9 * 1.001)).all()


def test_the_same_seed_gives_the_same_fleet() -> None:
    a, b = make_twin(warm_up_s=900.0), make_twin(warm_up_s=900.0)
    for name in ("power_w", "temp_c", "throttle", "energy_j", "inlet_c", "silent_until_s"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.workload.names == b.workload.names


def test_another_seed_gives_another_fleet() -> None:
    a, b = make_twin(seed=1, warm_up_s=60.0), make_twin(seed=2, warm_up_s=60.0)
    assert not np.array_equal(a.power_w, b.power_w)


@pytest.mark.parametrize("dt_s", [-1.0, float("nan"), float("inf")])
def test_time_that_is_none_is_refused(dt_s: float) -> None:
    with pytest.raises(ValueError, match="dt_s"):
        make_twin().advance(dt_s)


def test_no_time_changes_nothing() -> None:
    twin = make_twin(warm_up_s=60.0)
    before = twin.power_w.copy()
    twin.advance(0.0)
    assert np.array_equal(before, twin.power_w)


def test_the_heatmap_has_a_story() -> None:
    """Most racks are comfortable, some tight, one row capped, one hot, at any time of the day."""
    twin = make_twin(gpus=1536, warm_up_s=1800.0)
    kind = np.array([rack.kind.name for rack in twin.fleet.racks])
    kind_of_gpu = np.repeat(kind[twin.fleet.rack_of_node], 8)
    used = np.zeros((120, len(kind)))
    capped = np.zeros((120, twin.fleet.gpu_count), dtype=bool)
    hot = np.zeros_like(capped)
    for minute in range(120):
        twin.advance(60.0)
        used[minute] = twin.rack_w / twin.parts.rack_budget_w
        capped[minute] = (twin.throttle & ThrottleCause.SW_POWER_CAP.value) > 0
        hot[minute] = (twin.throttle & ThrottleCause.SW_THERMAL.value) > 0
    mean = used.mean(axis=0)
    assert (mean < 0.8).sum() >= len(kind) / 2
    assert mean[kind == "comfortable"].max() < 0.8
    assert mean[kind == "tight"].max() > 0.88
    assert used.max() < 1.1
    assert capped[:, kind_of_gpu == "capped"].mean() > 0.4
    assert capped[:, kind_of_gpu == "comfortable"].mean() < 0.25
    assert 0.005 < hot[:, kind_of_gpu == "hot"].mean() < 0.5
    # What is hot elsewhere is the one bad GPU of the fleet.
    assert hot[:, kind_of_gpu != "hot"].any(axis=0).sum() <= 1


def test_heat_and_clock_settle_against_each_other() -> None:
    """A GPU that would overheat is slowed until it stays just under its limit."""
    twin = make_twin(gpus=64)
    twin.parts.resistance_c_per_w[:] = 0.12
    hot: list[float] = []
    for _ in range(60):
        twin.advance(10.0)
        slowed = (twin.throttle & ThrottleCause.SW_THERMAL.value) > 0
        hot.extend(twin.temp_c[slowed & twin.busy])
    assert hot
    assert max(hot) < 87.0 + 2.0
    assert np.mean(hot[-20:]) > 80.0
    assert twin.throttle_ns[ThrottleCause.SW_THERMAL].max() > 60e9


def test_a_sudden_loss_of_cooling_is_caught_by_the_hardware() -> None:
    twin = make_twin(gpus=64, warm_up_s=600.0)
    seen = 0
    for _ in range(60):
        # More than lower clocks can make good; faster than this, all would go off at once.
        twin.inlet_c += 1.5
        twin.advance(2.0)
        seen |= int(np.bitwise_or.reduce(twin.throttle))
    assert seen & ThrottleCause.HW_THERMAL.value
    assert seen & ThrottleCause.HW_SLOWDOWN.value
    assert twin.throttle_ns[ThrottleCause.HW_THERMAL].max() > 0


def test_a_rack_over_its_budget_is_braked_then_capped() -> None:
    twin = make_twin(gpus=64, warm_up_s=600.0)
    twin.parts.rack_budget_w[:] = twin.rack_w / 1.2
    braked_w = np.inf
    for _ in range(15):
        twin.advance(2.0)
        if (twin.throttle & ThrottleCause.HW_POWER_BRAKE.value).any():
            braked_w = min(braked_w, float(twin.rack_w[0]))
    assert braked_w < twin.parts.rack_budget_w[0]
    assert (twin.power_limit_w < twin.parts.power_limit_w).all()
    assert twin.throttle_ns[ThrottleCause.HW_POWER_BRAKE].max() > 0


def test_a_gang_works_in_step() -> None:
    twin = make_twin(gpus=64, warm_up_s=600.0)
    job = np.bincount(twin.job_of_gpu).argmax()
    gang = twin.job_of_gpu == job
    series = []
    for _ in range(60):
        twin.advance(2.0)
        series.append(twin.activity[gang].copy())
    step = np.array(series)
    # Over time all GPUs of the gang rise and fall together.
    if (twin.job_of_gpu[gang] == job).all() and step.mean(axis=1).std() > 0.05:
        assert np.corrcoef(step.T).min() > 0.5


def test_sometimes_an_agent_is_silent_and_comes_back() -> None:
    twin = Twin(make_fleet(gpus=1536), seed=7, substep_s=20.0)
    silent = np.zeros((120, len(twin.fleet.nodes)), dtype=bool)
    for i in range(120):
        twin.advance(60.0)
        silent[i] = twin.silent
    assert 0 < silent.mean() < 0.02
    assert not silent.all(axis=0).any()


def test_a_lost_gpu_ends_its_job() -> None:
    twin = make_twin(gpus=64, warm_up_s=600.0)
    slot = int(twin.job_of_gpu[0])
    name = twin.workload.names[slot]
    twin.workload.fail(slot, twin.now_s)
    twin.advance(1.0)
    assert twin.workload.names[int(twin.job_of_gpu[0])] != name


def test_all_counted_causes_have_a_counter() -> None:
    twin = make_twin()
    assert set(twin.throttle_ns) == set(COUNTED_CAUSES)
