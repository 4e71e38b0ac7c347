"""The cluster: what is free, what limits have left, and that holding can be undone exactly."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.placement.cluster import Cluster, beside_w
from admission.core.placement.place import place
from admission.core.request import Locality, Placement, Request
from policies.headroom.inputs import Past, Reservations
from policies.restrictions.strictest import InForce
from policies.scopes import ScopeKind
from telemetry.summary import HostCurves
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import (
    AT,
    NOW,
    headroom_of,
    make_cluster,
    make_request,
    placed,
)

FLEET = make_arrays(sites=2, racks=6, nodes=2, gpus=8)
STATE = ("gpu_free", "node_free", "gangs", "room_w", "admit_w", "link_room_bits_per_s",
         "storage_room_bytes_per_s")  # fmt: skip


def state(cluster: Cluster) -> dict[str, bytes]:
    return {name: getattr(cluster, name).tobytes() for name in STATE}


def held(cluster: Cluster, **values: Any) -> tuple[Placement, Request]:
    request = make_request(**values)
    found = placed(place(cluster, request))
    cluster.allocate(found, request)
    return found, request


def test_what_is_stale_or_occupied_is_not_free() -> None:
    ts = np.full(len(FLEET.gpus), NOW)
    ts[16:24] = NOW - 120.0
    cluster = make_cluster(FLEET, gpu={"ts": ts}, occupied=[0, 1])
    assert not cluster.gpu_free[[0, 1, *range(16, 24)]].any()
    assert cluster.gpu_free.sum() == len(FLEET.gpus) - 10
    assert cluster.node_free[0, :3].tolist() == [6, 8, 0]


def test_a_node_of_which_one_gpu_is_silent_is_not_free() -> None:
    ts = np.full(len(FLEET.gpus), NOW)
    ts[3] = 0.0
    assert make_cluster(FLEET, gpu={"ts": ts}).node_free[0, 0] == 0


@settings(max_examples=25)
@given(
    draws=st.lists(
        st.tuples(
            st.integers(1, 40),
            st.floats(100.0, 700.0),
            st.booleans(),
            st.floats(0.0, 1e9),
        ),
        min_size=1,
        max_size=8,
    ),
    order=st.randoms(use_true_random=False),
)
def test_release_undoes_hold_to_the_last_bit(
    draws: list[tuple[int, float, bool, float]], order: Random
) -> None:
    cluster = make_cluster(FLEET)
    before, gangs = state(cluster), []
    for number, (gpus, peak_w, away, bytes_per_s) in enumerate(draws):
        request = make_request(
            f"j{number}/t", gpus=gpus, gpu_peak_w=peak_w, storage="s1/nvme" if not away else "",
            storage_bytes_per_s=round(bytes_per_s), data_site="s2" if away else "",
            cross_site_bits_per_s=round(bytes_per_s),
        )  # fmt: skip
        found = place(cluster, request)
        if isinstance(found, Placement):
            cluster.allocate(found, request)
            gangs.append((found, request))
    order.shuffle(gangs)
    for found, request in gangs:
        cluster.free(found, request)
    assert state(cluster) == before


def test_what_is_freed_at_once_at_many_sites_leaves_what_one_by_one_does() -> None:
    at_once = make_cluster(make_arrays(sites=6, racks=2, nodes=1, gpus=8))
    gangs = [held(at_once, gpus=8, sites=(f"s{number}",)) for number in range(1, 7)]
    one_by_one = at_once.copy()
    at_once.free_all(gangs)
    for placement, request in gangs:
        one_by_one.free(placement, request)
    assert state(at_once) == state(one_by_one)


def test_a_copy_is_independent() -> None:
    cluster = make_cluster(FLEET)
    before, other = state(cluster), cluster.copy()
    held(other, gpus=16)
    assert state(cluster) == before != state(other)


def test_holding_twice_and_releasing_what_is_free_are_refused() -> None:
    cluster = make_cluster(FLEET)
    found, request = held(cluster)
    with pytest.raises(ValueError, match="job/train: a GPU of its placement is not free"):
        cluster.allocate(found, request)
    cluster.free(found, request)
    with pytest.raises(ValueError, match="is free already"):
        cluster.free(found, request)


@pytest.mark.parametrize("gpus", [3, 8, 40])
def test_what_is_held_is_what_the_next_evaluation_counts(gpus: int) -> None:
    """After a cycle reservations say the same as the cluster did within it."""
    cluster = make_cluster(FLEET)
    found, _ = held(cluster, gpus=gpus, gpu_peak_w=650.0)
    gangs = np.zeros(len(FLEET.gpus), dtype=bool)
    gangs[list(found.gpus)] = True
    headroom = headroom_of(FLEET)
    node_w = np.zeros(len(FLEET.nodes))
    node_w[list(found.nodes)] = np.array(found.peak_w)
    node_w += np.where(node_w > 0, beside_w(headroom, gangs), 0.0)
    reserved = replace(Reservations.none(FLEET), node_w=node_w)
    later = make_cluster(FLEET, reservations=reserved, occupied=found.gpus)
    np.testing.assert_allclose(later.room_w, cluster.room_w, atol=0.01)
    np.testing.assert_allclose(later.admit_w, cluster.admit_w, atol=0.01)


def test_limits_are_those_of_headroom() -> None:
    cluster, headroom = make_cluster(FLEET), headroom_of(FLEET)
    racks, domains = len(FLEET.racks), len(FLEET.domains)
    expected = headroom.powers[ScopeKind.RACK].headroom_w
    np.testing.assert_allclose(cluster.room_w[:racks], expected, atol=0.001)
    alone = cluster.room_w[racks + domains : racks + 2 * domains]
    paired = FLEET.domains.pair >= 0
    np.testing.assert_allclose(alone[paired], headroom.failover.headroom_w[paired], atol=0.001)
    assert np.isinf(alone[~paired]).all()


def test_a_running_gang_frees_what_it_has_reserved() -> None:
    """Also where it draws less by now: reserved watts were nobody else's."""
    fleet = make_arrays(racks=1, nodes=2, gpus=8)
    gpus = tuple(range(8))
    running = Placement(
        gpus=gpus, nodes=(0,), peak_w=(9000.0,), power_cap_w=None, slowdown=0.0,
        locality=Locality.NODE, sites=("s1",), racks=("s1/A01",), switch_domains=("s1/rack A01",),
        storage="",
    )  # fmt: skip
    power_w = np.where(np.arange(16) < 8, 400.0, 70.0)
    node_w = np.array([9000.0, 0.0])
    reserved = replace(Reservations.none(fleet), node_w=node_w)
    cluster = make_cluster(
        fleet,
        gpu={"power_w": power_w},
        host={"power_w": np.array([2000.0, 1400.0])},
        reservations=reserved,
        occupied=gpus,
    )
    before = cluster.room_w[0]
    cluster.free(running, make_request())
    idle_w = 1400.0 + (1.0 + 3200.0 / 5600.0) * 8 * 70.0
    assert cluster.room_w[0] - before == pytest.approx(9000.0 - idle_w, abs=0.01)


def test_a_meter_that_reads_less_than_the_curves_gives_nothing_away() -> None:
    """The first gang on a node pays the difference: its reservation is made by the curves."""
    fleet = make_arrays(racks=1, nodes=1, gpus=8)
    cluster = make_cluster(fleet, host={"power_w": 400.0}, meter={"power_w": 960.0})
    request = make_request(gpus=4, gpu_peak_w=500.0)
    found = placed(place(cluster, request))
    before = cluster.room_w[0]
    cluster.allocate(found, request)
    rest_w = (1.0 + 3200.0 / 5600.0) * 4 * 70.0 + 700.0
    assert before - cluster.room_w[0] >= found.peak_w[0] + rest_w - 960.0 - 0.01
    cluster.free(found, request)
    assert cluster.room_w[0] == before


def test_hosts_count_as_they_were_fitted() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=8)
    hosts = HostCurves(np.array([1000.0]), np.array([0.25]))
    cluster = make_cluster(fleet, past=replace(Past.none(fleet), hosts=hosts))
    found = placed(place(cluster, make_request(gpus=4, gpu_peak_w=600.0)))
    assert found.total_w == pytest.approx(4 * 600.0 * 1.25 + 500.0, abs=0.01)


def test_it_admits_what_it_places_and_nothing_more() -> None:
    fleet = make_arrays(racks=1, nodes=2, gpus=8, budget_w=14_000.0)
    cluster = make_cluster(fleet)
    first = make_request("a/t")
    found = placed(place(cluster, first))
    assert cluster.admits(found, first)
    cluster.allocate(found, first)
    assert not cluster.admits(found, first)
    second = replace(
        found, gpus=tuple(range(8, 16)), nodes=(1,), peak_w=(10_200.0,), power_cap_w=None
    )
    assert not cluster.admits(second, make_request("b/t"))
    capped = replace(second, peak_w=(3_800.0,), power_cap_w=165.0)
    assert cluster.admits(capped, make_request("b/t"))


def test_it_admits_neither_what_would_be_too_hot_nor_what_no_link_carries() -> None:
    cluster = make_cluster(FLEET)
    request = make_request(data_site="s2", cross_site_bits_per_s=1e9, sites=("s1",))
    found = placed(place(cluster, request))
    assert cluster.admits(found, request)
    assert not cluster.admits(found, replace(request, thermal_margin_c=60.0))
    assert not cluster.admits(found, replace(request, cross_site_bits_per_s=1e12))
    slow = replace(request, storage="s1/nvme", storage_bytes_per_s=1e12)
    assert not cluster.admits(found, slow)


def test_an_empty_fleet_has_neither_load_nor_restriction() -> None:
    busy = np.where(np.arange(len(FLEET.gpus)) < 40, 690.0, 70.0)
    host = np.where(np.arange(len(FLEET.nodes)) < 5, 1400.0 + 3200.0 * 690 / 700, 1400.0 + 320.0)
    cluster = make_cluster(FLEET, gpu={"power_w": busy}, host={"power_w": host}, occupied=range(40))
    idle = make_cluster(FLEET)
    empty = cluster.empty()
    assert empty.gpu_free.all()
    np.testing.assert_allclose(empty.room_w, idle.room_w, atol=0.01)


def test_what_has_no_budget_limits_nothing() -> None:
    racks = replace(FLEET.racks, budget_w=np.full(len(FLEET.racks), np.nan))
    fleet = replace(FLEET, racks=racks)
    cluster = Cluster.of(headroom_of(fleet), InForce(AT), now=NOW)
    assert np.isinf(cluster.room_w[: len(racks)]).all()


# --- What is asked of limits ----------------------------------------------------------------------


@pytest.mark.parametrize("racks", [1, 3, 12])
def test_limits_need_what_the_racks_below_them_do_few_or_many(racks: int) -> None:
    cluster = make_cluster(FLEET)
    nodes = np.flatnonzero(FLEET.nodes.rack < racks)
    watts = np.arange(1.0, len(nodes) + 1.0) * 256.0
    by_limit_w = np.zeros(cluster.topology.limits + 1)
    for node, more_w in zip(nodes.tolist(), watts.tolist(), strict=True):
        for row, share in cluster.topology.terms[int(FLEET.nodes.rack[node])]:
            by_limit_w[row] += share * more_w
    rows, need_w = cluster.needs(nodes, watts)
    assert rows.tolist() == np.flatnonzero(by_limit_w).tolist()
    assert need_w.tolist() == by_limit_w[rows].tolist()


def test_a_mask_of_whole_racks_is_told_from_one_of_parts_of_them() -> None:
    constants = make_cluster(FLEET).constants
    whole, part = FLEET.nodes.rack < 2, np.arange(len(FLEET.nodes)) < 3
    found = constants.whole_racks(whole)
    assert found is not None
    assert found.tolist() == [True, True, *[False] * 10]
    assert constants.whole_racks(part) is None
