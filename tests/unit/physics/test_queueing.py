from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics import queueing
from physics.errors import ImpossibleArgumentError
from physics.law import Array
from physics.queueing import (
    erlang_b,
    erlang_c,
    little_arrival_per_s,
    little_requests,
    little_time_s,
    mean_wait_s,
    queue,
    servers_for_wait,
    utilization,
    wait_longer_share,
    wait_percentile_s,
)
from tests.unit.physics.law_checks import check_arrays, check_refusals

servers_counts = st.integers(1, 500)
loads = st.floats(0.01, 0.99)
service_times = st.floats(1e-4, 1e4)
percentiles = st.floats(0.0, 0.9999)

STABLE = {"arrival_per_s": 3.2, "service_s": 1.0, "servers": 4.0}
VARIABLE = {"arrival_scv": 1.5, "service_scv": 0.5}
GOOD: dict[str, dict[str, Any]] = {
    "erlang_b": {"servers": 10, "offered_load": 7.0},
    "erlang_c": {"servers": 10, "offered_load": 7.0},
    "little_arrival_per_s": {"requests": 10.0, "time_s": 2.0},
    "little_requests": {"arrival_per_s": 5.0, "time_s": 2.0},
    "little_time_s": {"requests": 10.0, "arrival_per_s": 5.0},
    "mean_wait_s": STABLE | VARIABLE,
    "queue": STABLE | VARIABLE,
    "servers_for_wait": {
        "arrival_per_s": 3.2,
        "service_s": 1.0,
        "percentile": 0.95,
        "wait_s": 0.5,
        **VARIABLE,
    },
    "utilization": STABLE,
    "wait_longer_share": STABLE | VARIABLE | {"wait_s": 0.5},
    "wait_percentile_s": STABLE | VARIABLE | {"percentile": 0.95},
}


def erlang_b_by_recursion(servers: int, offered_load: float) -> float:
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = offered_load * blocked / (busy + offered_load * blocked)
    return blocked


def simulated_waits(gaps_s: Array, services_s: Array, servers: int, warm_up: int) -> Array:
    """Return the waits of requests of many independent queues, one a row, first come first served.

    The first ``warm_up`` requests of each queue met it too empty and are left out.
    """
    arrivals_s = np.cumsum(gaps_s, axis=1)
    free_s = np.zeros((len(gaps_s), servers))
    queues = np.arange(len(gaps_s))
    waits_s = np.empty_like(gaps_s)
    for request in range(gaps_s.shape[1]):
        first = free_s.argmin(axis=1)
        begins_s = np.maximum(arrivals_s[:, request], free_s[queues, first])
        waits_s[:, request] = begins_s - arrivals_s[:, request]
        free_s[queues, first] = begins_s + services_s[:, request]
    return waits_s[:, warm_up:]


def test_the_checks_below_cover_every_law() -> None:
    assert {name for name in queueing.__all__ if name[0].islower()} == GOOD.keys()


@pytest.mark.parametrize("name", GOOD)
def test_an_impossible_argument_is_named(name: str) -> None:
    check_refusals(getattr(queueing, name), GOOD[name])


@pytest.mark.parametrize("name", GOOD)
def test_arrays_give_what_their_elements_give_one_by_one(name: str) -> None:
    check_arrays(getattr(queueing, name), GOOD[name])


# Little


@given(arrival_per_s=st.floats(1e-3, 1e6), time_s=st.floats(1e-6, 1e6))
def test_each_form_of_littles_law_undoes_the_others(arrival_per_s: float, time_s: float) -> None:
    requests = little_requests(arrival_per_s=arrival_per_s, time_s=time_s)
    back_s = little_time_s(requests=requests, arrival_per_s=arrival_per_s)
    assert back_s == pytest.approx(time_s, rel=1e-12)
    back_per_s = little_arrival_per_s(requests=requests, time_s=time_s)
    assert back_per_s == pytest.approx(arrival_per_s, rel=1e-12)


def test_200_requests_a_second_of_half_a_second_are_100_at_once() -> None:
    assert little_requests(arrival_per_s=200.0, time_s=0.5) == 100.0


# Erlang


@pytest.mark.parametrize(
    ("servers", "offered_load", "blocked"),
    [(1, 1.0, 0.5), (2, 1.0, 0.2), (5, 3.0, 0.1100543), (10, 5.0, 0.0183846)],
)
def test_erlang_b_is_as_in_the_tables(servers: int, offered_load: float, blocked: float) -> None:
    assert erlang_b(servers=servers, offered_load=offered_load) == pytest.approx(blocked, abs=5e-8)


@pytest.mark.parametrize("servers", [1, 3, 100, 10_000])
@pytest.mark.parametrize("load", [0.3, 0.9, 0.999, 1.0, 1.1, 1.5, 10.0, 1e4])
def test_erlang_b_is_that_of_the_recursion(servers: int, load: float) -> None:
    expected = erlang_b_by_recursion(servers, load * servers)
    blocked = erlang_b(servers=servers, offered_load=load * servers)
    assert blocked == pytest.approx(expected, rel=1e-9, abs=1e-250)


def test_no_load_blocks_nothing_and_lets_nobody_wait() -> None:
    assert erlang_b(servers=3, offered_load=0.0) == 0.0
    assert erlang_c(servers=3, offered_load=0.0) == 0.0
    assert mean_wait_s(arrival_per_s=0.0, service_s=1.0) == 0.0


def test_ten_thousand_sizes_of_ten_thousand_servers_take_a_moment() -> None:
    servers = np.full(10_000, 10_000.0)
    arrivals_per_s = np.linspace(9_000.0, 9_999.0, servers.size)
    begin = time.perf_counter()
    waits_s = wait_percentile_s(
        arrival_per_s=arrivals_per_s, service_s=1.0, servers=servers, percentile=0.99
    )
    assert time.perf_counter() - begin < 30.0
    assert np.all(np.diff(waits_s) >= 0.0)


@given(servers=servers_counts, load=loads)
def test_with_one_server_more_fewer_wait(servers: int, load: float) -> None:
    offered = load * servers
    more, fewer = erlang_c(servers=np.array([servers, servers + 1.0]), offered_load=offered)
    assert more >= fewer
    assert erlang_b(servers=servers, offered_load=offered) <= more <= 1.0


@given(load=loads)
def test_with_one_server_the_share_that_waits_is_the_utilization(load: float) -> None:
    assert erlang_c(servers=1, offered_load=load) == pytest.approx(load, rel=1e-12)


# Waits


@given(load=loads, service_s=service_times, percentile=percentiles)
def test_one_server_waits_as_in_the_textbook(
    load: float, service_s: float, percentile: float
) -> None:
    line = {"arrival_per_s": load / service_s, "service_s": service_s}
    mean_s = load * service_s / (1.0 - load)
    assert mean_wait_s(**line) == pytest.approx(mean_s, rel=1e-9)
    state = queue(**line)
    assert state.in_system == pytest.approx(load / (1.0 - load), rel=1e-9)
    assert state.mean_time_s == pytest.approx(service_s / (1.0 - load), rel=1e-9)
    at_p_s = max(0.0, math.log(load / (1.0 - percentile))) * service_s / (1.0 - load)
    percentile_s = wait_percentile_s(**line, percentile=percentile)
    assert percentile_s == pytest.approx(at_p_s, rel=1e-9, abs=1e-9 * service_s)


def test_four_servers_at_80_percent() -> None:
    # Erlang C of 3.2 erlangs on 4 servers is 0.5964; the rest follows from it.
    state = queue(**STABLE)
    assert state.utilization == 0.8
    assert state.wait_probability == pytest.approx(0.59643, abs=5e-6)
    assert state.mean_wait_s == pytest.approx(0.74554, abs=5e-6)
    assert state.waiting == pytest.approx(2.38573, abs=5e-6)
    assert state.in_system == pytest.approx(5.58573, abs=5e-6)


@given(servers=servers_counts, load=loads, percentile=percentiles)
def test_the_percentile_and_the_share_that_waits_longer_undo_each_other(
    servers: int, load: float, percentile: float
) -> None:
    line = {"arrival_per_s": load * servers, "service_s": 1.0, "servers": servers}
    wait_s = wait_percentile_s(**line, percentile=percentile)
    longer = wait_longer_share(**line, wait_s=wait_s)
    if wait_s > 0.0:
        assert longer == pytest.approx(1.0 - percentile, rel=1e-6)
    else:
        assert longer <= (1.0 - percentile) * (1.0 + 1e-9)


def test_where_few_wait_the_median_wait_is_zero() -> None:
    line = {"arrival_per_s": 5.0, "service_s": 1.0, "servers": 10}
    assert erlang_c(servers=10, offered_load=5.0) == pytest.approx(0.0361, abs=5e-5)
    assert wait_percentile_s(**line, percentile=0.96) == 0.0
    assert wait_percentile_s(**line, percentile=0.97) > 0.0


@given(scale=st.floats(1e-6, 1e6), percentile=percentiles)
def test_another_unit_of_time_changes_nothing(scale: float, percentile: float) -> None:
    seconds = wait_percentile_s(**STABLE, percentile=percentile)
    scaled = wait_percentile_s(
        arrival_per_s=3.2 / scale, service_s=scale, servers=4, percentile=percentile
    )
    assert scaled == pytest.approx(seconds * scale, rel=1e-9)


@pytest.mark.parametrize("load", [1.0, 1.3])
def test_too_much_work_waits_for_ever(load: float) -> None:
    line = {"arrival_per_s": 4.0 * load, "service_s": 1.0, "servers": 4}
    state = queue(**line)
    assert utilization(**line) == state.utilization == pytest.approx(load)
    assert state.wait_probability == 1.0
    assert state.mean_wait_s == state.in_system == math.inf
    assert wait_percentile_s(**line, percentile=0.0) == math.inf
    assert wait_longer_share(**line, wait_s=1e9) == 1.0


def test_a_sweep_may_cross_the_limit() -> None:
    waits_s = mean_wait_s(arrival_per_s=np.array([3.9, 4.0, 4.1]), service_s=1.0, servers=4)
    assert np.isinf(waits_s).tolist() == [False, True, True]


def test_the_longest_wait_of_all_has_no_percentile() -> None:
    with pytest.raises(ImpossibleArgumentError, match="percentile must be at least 0 and below 1"):
        wait_percentile_s(**STABLE, percentile=1.0)


# How many servers


@given(
    offered=st.floats(0.0, 2_000.0),
    percentile=percentiles,
    wait_s=st.floats(0.0, 3.0),
    service_scv=st.floats(0.1, 4.0),
)
def test_the_fewest_servers_keep_the_wait(
    offered: float, percentile: float, wait_s: float, service_scv: float
) -> None:
    line = {"arrival_per_s": offered, "service_s": 1.0, "service_scv": service_scv}
    fewest = servers_for_wait(**line, percentile=percentile, wait_s=wait_s)
    assert fewest > offered
    assert wait_percentile_s(**line, percentile=percentile, servers=fewest) <= wait_s
    if fewest > 1:
        fewer_s = wait_percentile_s(**line, percentile=percentile, servers=fewest - 1)
        assert fewer_s > wait_s


def test_a_larger_service_needs_less_spare() -> None:
    def longer(servers: int, offered: float) -> float:
        blocked = erlang_b_by_recursion(servers, offered)
        waiting = blocked / (1.0 - offered / servers * (1.0 - blocked))
        return waiting * math.exp(-0.1 * (servers - offered))

    servers = servers_for_wait(
        arrival_per_s=np.array([10.0, 100.0, 1_000.0, 10_000.0]),
        service_s=1.0,
        percentile=0.99,
        wait_s=0.1,
    )
    for count, offered in zip(servers, (10, 100, 1_000, 10_000), strict=True):
        assert longer(int(count), offered) <= 0.01 < longer(int(count) - 1, offered)
    assert servers.tolist() == [18.0, 118.0, 1_032.0, 10_041.0]


# Against a simulation


def check_mean(by_queue: Array, expected: float, *, within: float) -> None:
    """Check that means of independent queues agree with a law, and are sharp enough to say so."""
    error = by_queue.std(ddof=1) / math.sqrt(by_queue.size)
    assert error < within * expected / 2.0
    assert abs(by_queue.mean() - expected) < within * expected


@pytest.mark.parametrize(
    ("servers", "load", "within"), [(1, 0.7, 0.03), (4, 0.8, 0.04), (10, 0.8, 0.05)]
)
def test_a_simulated_queue_waits_as_computed(servers: int, load: float, within: float) -> None:
    rng = np.random.default_rng(servers)
    gaps_s = rng.exponential(1.0 / (load * servers), (1_600, 1_500))
    waits_s = simulated_waits(gaps_s, rng.exponential(1.0, gaps_s.shape), servers, warm_up=400)
    line = {"arrival_per_s": load * servers, "service_s": 1.0, "servers": servers}
    check_mean(waits_s.mean(axis=1), mean_wait_s(**line), within=within)
    for wait_s in (0.0, 0.5):
        longer = (waits_s > wait_s + 1e-9).mean(axis=1)
        check_mean(longer, wait_longer_share(**line, wait_s=wait_s), within=within)
    p90_s = wait_percentile_s(**line, percentile=0.9)
    check_mean((waits_s > p90_s).mean(axis=1), 0.1, within=within)


@pytest.mark.parametrize(
    ("servers", "service_scv", "within"), [(1, 0.0, 0.03), (1, 4.0, 0.06), (4, 0.25, 0.06)]
)
def test_other_service_times_wait_as_computed_at_80_percent(
    servers: int, service_scv: float, within: float
) -> None:
    rng = np.random.default_rng(3)
    gaps_s = rng.exponential(1.0 / (0.8 * servers), (1_000, 2_500))
    shape = 1.0 / max(service_scv, 1e-9)
    services_s = rng.gamma(shape, 1.0 / shape, gaps_s.shape)
    waits_s = simulated_waits(gaps_s, services_s, servers, warm_up=1_000)
    computed_s = mean_wait_s(
        arrival_per_s=0.8 * servers, service_s=1.0, servers=servers, service_scv=service_scv
    )
    check_mean(waits_s.mean(axis=1), computed_s, within=within)
