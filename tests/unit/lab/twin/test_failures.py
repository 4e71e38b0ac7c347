from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.fleet import make_fleet
from lab.twin import NO_FAILURES, XIDS, FailureModel, Twin
from lab.twin.failures import XID_KINDS, YEAR_S, Failure, Failures

DAY_S = 86_400.0


def make_failures(*, seed: int = 1, gpus: int = 8000, **rates: Any) -> Failures:
    model = replace(NO_FAILURES, **rates)
    return Failures(model, np.random.default_rng(seed), gpus=gpus, feeds=4, sites=2)


def drawn(failures: Failures, until_s: float) -> list[Failure]:
    return list(failures.until(until_s))


@pytest.mark.parametrize("shape", [0.7, 1.0, 1.5])
def test_the_fleet_fails_at_its_mean_rate_whatever_the_shape(shape: float) -> None:
    rate = 4e-8
    found = drawn(make_failures(xid_per_gpu_s=rate, xid_shape=shape), 60 * DAY_S)
    expected = rate * 8000 * 60 * DAY_S
    assert len(found) == pytest.approx(expected, abs=5 * np.sqrt(expected) + 0.15 * expected)


def test_of_young_gpus_more_fail_where_the_shape_is_below_one() -> None:
    failures = make_failures(xid_per_gpu_s=4e-8, xid_shape=0.5)
    age_s = failures._age_s.copy()
    found = drawn(failures, 30 * DAY_S)
    young = np.mean([age_s[each.where] < 0.1 * YEAR_S for each in found])
    assert young > 2.0 * np.mean(age_s < 0.1 * YEAR_S)


def test_lemons_fail_far_more_often() -> None:
    failures = make_failures(xid_per_gpu_s=4e-8, lemon_share=0.02, lemon_factor=20.0)
    lemons = failures.lemons
    found = drawn(failures, 60 * DAY_S)
    of_lemons = np.mean([lemons[each.where // 8] for each in found])
    assert 0.005 < lemons.mean() < 0.05
    assert of_lemons > 8.0 * lemons.mean()


def test_failures_come_in_order_and_each_once() -> None:
    failures = make_failures(xid_per_gpu_s=1e-6, ecc_per_gpu_s=1e-6, loss_per_feed_s=1e-5)
    at_once = drawn(
        make_failures(xid_per_gpu_s=1e-6, ecc_per_gpu_s=1e-6, loss_per_feed_s=1e-5), DAY_S
    )
    in_steps = [each for hour in range(1, 25) for each in drawn(failures, hour * 3600.0)]
    assert in_steps == at_once
    times = [each.at_s for each in in_steps]
    assert times == sorted(times)
    assert {each.what for each in in_steps} == {"xid", "ecc", "feed"}


def test_repairs_last_and_other_xids_do_not() -> None:
    found = drawn(make_failures(xid_per_gpu_s=1e-6), 10 * DAY_S)
    lasting = [each.lasts_s for each in found if each.xid and each.xid.downs_node]
    assert len(lasting) > 20
    assert min(lasting) > 0.0
    assert 1800.0 < np.median(lasting) < 7200.0
    assert {each.lasts_s for each in found if each.xid and not each.xid.downs_node} == {0.0}


def test_nothing_fails_where_nothing_is_to() -> None:
    failures = Failures(NO_FAILURES, np.random.default_rng(1), gpus=800, feeds=4, sites=2)
    assert failures.next_s == np.inf


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rate=st.floats(1e-12, 1e-3),
    shape=st.floats(0.3, 4.0),
)
def test_no_failure_lies_in_the_past(seed: int, rate: float, shape: float) -> None:
    failures = make_failures(seed=seed, gpus=64, xid_per_gpu_s=rate, xid_shape=shape)
    assert failures.next_s >= 0.0
    before_s = 0.0
    for _ in range(50):
        if failures.next_s == np.inf:
            break
        for each in failures.until(failures.next_s):
            assert each.at_s >= before_s
            before_s = each.at_s


@pytest.mark.parametrize(
    ("field", "value"),
    [("xid_per_gpu_s", -1.0), ("repair_s", np.nan), ("silence_s", (-1.0, 2.0)), ("xid_shape", 0.0)],
)
def test_a_model_that_makes_no_sense_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        FailureModel(**{field: value})


def test_the_same_failures_come_whatever_the_fleet_is_made_to_do() -> None:
    unlucky = FailureModel(xid_per_gpu_s=5e-5, xid_shape=1.0)
    logs = []
    for capped in (False, True):
        twin = Twin(make_fleet(gpus=128), seed=3, failures=unlucky)
        if capped:
            twin.conditions.power_limit_share[:] = 0.5
        twin.advance(1200.0)
        logs.append(twin.xid_log)
    assert logs[0] == logs[1]
    assert len(logs[0]) > 3
    assert {line.xid for line in logs[0]} <= set(XIDS)


def test_a_gpu_off_the_bus_takes_its_node_out_until_it_is_repaired() -> None:
    twin = Twin(make_fleet(gpus=128), seed=3, failures=NO_FAILURES)
    twin.advance(60.0)
    node = int(np.flatnonzero(twin.job_of_node > 0)[0])
    name = twin.workload.names[twin.job_of_node[node]]
    kind = next(kind for kind in XID_KINDS if kind.code == 79)
    twin._happen(Failure(twin.now_s, "xid", 8 * node + 3, 600.0, kind))
    twin.advance(4.0)
    assert twin.down[node]
    assert twin.xid[8 * node + 3] == 79
    assert name not in twin.workload.names
    twin.advance(600.0)
    assert not twin.down[node]
    twin.advance(600.0)
    assert twin.xid[8 * node + 3] == 0


def test_a_site_that_loses_its_utility_is_dark_until_power_is_back() -> None:
    twin = Twin(make_fleet(gpus=128), seed=3, failures=NO_FAILURES)
    twin.advance(60.0)
    twin._happen(Failure(twin.now_s, "site", 0, 300.0))
    twin.advance(10.0)
    here = twin.fleet.site_of_rack[twin.fleet.rack_of_node] == 0
    assert (twin.down == here).all()
    twin.advance(600.0)
    assert not twin.down.any()
