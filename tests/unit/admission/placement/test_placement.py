"""Where gangs stand: close together, in what is left over, and within all limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from admission.core.placement.cluster import Cluster
from admission.core.placement.place import fits_empty, place, shape_of
from admission.core.placement.topology import topology_of
from admission.core.reasons import ReasonToken
from admission.core.request import Locality, Placement, Refusal
from fleet.snapshot import COOLING_KINDS, FleetArrays
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import (
    make_cluster,
    make_request,
    make_restriction,
    parts_of,
    placed,
    with_resistance,
)

#: Two sites of two rows of four racks of two nodes of eight: 256 GPUs.
FLEET = make_arrays(sites=2, racks=8, nodes=2, gpus=8)


def find(cluster: Cluster, **values: Any) -> Placement:
    return placed(place(cluster, make_request(**values)))


def with_models(fleet: FleetArrays, other_nodes: list[int]) -> FleetArrays:
    """Have the GPUs of some nodes be A100s."""
    models = replace(
        fleet.models,
        ids=np.arange(3) + 1,
        names=np.array(["H100", "host", "A100"], dtype=np.object_),
        **{
            name: np.append(getattr(fleet.models, name), value)
            for name, value in {
                "rated_w": 400.0, "idle_w": 50.0, "slowdown_c": 87.0, "slowdown_mem_c": 95.0,
                "shutdown_c": 92.0, "sm_max_mhz": 1410.0,
            }.items()
        },
    )  # fmt: skip
    is_other = np.isin(fleet.gpus.node, other_nodes)
    gpus = replace(
        fleet.gpus,
        model=np.where(is_other, 2, 0),
        rated_w=np.where(is_other, 400.0, 700.0),
        idle_w=np.where(is_other, 50.0, 70.0),
    )
    return replace(fleet, models=models, gpus=gpus)


# --- Close together, and in what is left over ----------------------------------------------------


def test_where_room_counts_the_rack_with_most_watts_left_is_taken_of_nodes_as_full() -> None:
    cluster = make_cluster(FLEET)
    room_w = cluster.admit_w.copy()
    room_w[5] += 1_000.0
    constants = replace(cluster.constants, roomiest_first=True)
    cluster = replace(cluster, constants=constants, admit_w=room_w)
    assert FLEET.nodes.rack[list(find(cluster, gpus=4).nodes)].tolist() == [5]
    assert set(FLEET.nodes.rack[list(find(cluster, gpus=16).nodes)].tolist()) == {5}
    # What is left over of a node is taken before.
    free = cluster.node_free.copy()
    free[:, 3] = 4
    gpu_free = cluster.gpu_free.copy()
    gpu_free[24:28] = False
    cluster = replace(cluster, node_free=free, gpu_free=gpu_free, scratch={}, refused={})
    assert find(cluster, gpus=4).nodes == (3,)


@pytest.mark.parametrize(
    ("gpus", "locality", "nodes"),
    [
        (1, Locality.NODE, 1),
        (8, Locality.NODE, 1),
        (9, Locality.RACK, 2),
        (16, Locality.RACK, 2),
        (48, Locality.ZONE, 6),
        (128, Locality.SITE, 16),
        (130, Locality.FLEET, 17),
    ],
)
def test_a_gang_is_whole_and_as_close_as_it_can_be(
    gpus: int, locality: Locality, nodes: int
) -> None:
    found = find(make_cluster(FLEET), gpus=gpus)
    assert len(set(found.gpus)) == gpus
    assert (found.locality, len(found.nodes)) == (locality, nodes)
    assert set(FLEET.gpus.node[list(found.gpus)].tolist()) == set(found.nodes)
    assert list(found.gpus) == sorted(found.gpus)


def test_small_ones_go_where_little_is_left() -> None:
    cluster = make_cluster(FLEET, occupied=[*range(5), *range(8, 12)])
    assert find(cluster, gpus=3).nodes == (0,)
    assert find(cluster, gpus=4).nodes == (1,)
    assert find(cluster, gpus=7).nodes == (2,)


def test_a_rack_that_is_broken_into_is_used_up_first() -> None:
    cluster = make_cluster(FLEET, occupied=range(8))
    assert find(cluster, gpus=8).nodes == (1,)
    # The zone of that rack has the least to spare for three racks, too.
    assert find(cluster, gpus=48).racks == ("s1/A02", "s1/A03", "s1/A04")


def test_over_sites_it_stands_on_the_fewest() -> None:
    fleet = make_arrays(sites=4, racks=4, nodes=1, gpus=8)
    occupied = [gpu for gpu in range(len(fleet.gpus)) if gpu % 32 < 8]
    found = find(make_cluster(fleet, occupied=occupied), gpus=48)
    assert (len(found.sites), found.locality) == (2, Locality.FLEET)


def test_the_same_cluster_and_request_give_the_same_place() -> None:
    occupied = np.random.default_rng(3).choice(256, 60, replace=False).tolist()
    first, second = (make_cluster(FLEET, occupied=occupied) for _ in range(2))
    for gpus in (1, 5, 8, 24, 70):
        assert find(first, gpus=gpus) == find(second, gpus=gpus)


@pytest.mark.parametrize("level", list(Locality))
def test_required_locality_is_kept(level: Locality) -> None:
    # Two GPUs are free on each node.
    occupied = [gpu for gpu in range(256) if gpu % 8 >= 2]
    most = {
        Locality.NODE: 2,
        Locality.RACK: 4,
        Locality.SWITCH_DOMAIN: 4,
        Locality.ZONE: 16,
        Locality.SITE: 32,
        Locality.FLEET: 64,
    }[level]
    cluster = make_cluster(FLEET, occupied=occupied)
    assert find(cluster, gpus=most, required=level).locality <= level
    assert not isinstance(place(cluster, make_request(gpus=most + 1, required=level)), Placement)


def test_so_many_on_each_node() -> None:
    cluster = make_cluster(FLEET, occupied=range(0, 256, 8))
    found = find(cluster, gpus=8, gpus_per_node=4)
    assert len(found.nodes) == 2
    assert np.bincount(FLEET.gpus.node[list(found.gpus)])[list(found.nodes)].tolist() == [4, 4]
    assert not isinstance(place(cluster, make_request(gpus=16, gpus_per_node=8)), Placement)


def test_a_balanced_gang_takes_the_same_of_each_part() -> None:
    found = find(make_cluster(FLEET), gpus=24, balanced=True)
    assert np.bincount(FLEET.gpus.node[list(found.gpus)])[list(found.nodes)].tolist() == [6] * 4
    assert parts_of(FLEET, found, Locality.RACK) == 2
    uneven = find(make_cluster(FLEET), gpus=24)
    assert sorted(np.bincount(FLEET.gpus.node[list(uneven.gpus)]))[-3:] == [8, 8, 8]


def test_a_preference_that_is_not_met_is_said() -> None:
    found = find(make_cluster(FLEET), gpus=48, preferred=Locality.RACK)
    assert found.warnings == ("it prefers to stand within one rack, and stands within one zone",)
    assert find(make_cluster(FLEET), gpus=16, preferred=Locality.RACK).warnings == ()


def test_labels_say_where_it_stands() -> None:
    found = find(make_cluster(FLEET), gpus=32, sites=("s2",))
    assert found.sites == ("s2",)
    assert len(found.racks) == 2
    assert found.switch_domains == tuple(f"s2/rack {path[3:]}" for path in found.racks)
    assert found.storage == "s2/nvme"


def test_switch_domains_are_stated_or_leaves_or_rows() -> None:
    assert topology_of(FLEET).switch_domain[0] == "rack A01"
    none = replace(FLEET, links=replace(FLEET.links, rack=np.full(len(FLEET.links), -1)))
    assert topology_of(none).switch_domain[0] == "row A"
    stated = np.array(["leaf-1", "leaf-2"] * 16, dtype=np.object_)
    split = replace(FLEET, nodes=replace(FLEET.nodes, switch_domain=stated))
    assert topology_of(split).domains_split_racks
    cluster = make_cluster(split)
    found = find(cluster, gpus=24, required=Locality.SWITCH_DOMAIN)
    assert set(stated[list(found.nodes)]) in ({"leaf-1"}, {"leaf-2"})
    assert parts_of(split, found, Locality.SITE) == 1
    assert find(cluster, gpus=16, required=Locality.SWITCH_DOMAIN).locality <= 2


# --- What it takes --------------------------------------------------------------------------------


def test_a_gang_is_of_one_model_the_first_that_it_names() -> None:
    fleet = with_models(FLEET, [0, 1, 2])
    cluster = make_cluster(fleet)
    assert find(cluster, gpus=8, models=("A100", "H100")).nodes[0] in (0, 1, 2)
    assert find(cluster, gpus=8, models=("H100",)).nodes[0] > 2
    found = find(cluster, gpus=48, models=("A100", "H100"))
    assert set(fleet.gpus.model[list(found.gpus)].tolist()) == {0}
    # Without a word of its own a gang draws what its model is rated for.
    assert find(cluster, models=("A100",)).total_w < find(cluster, models=("H100",)).total_w


def test_cooling_and_sites_are_kept() -> None:
    kinds = [COOLING_KINDS.index(kind) for kind in ("air", "direct-to-chip", "air", "air")]
    fleet = replace(FLEET, zones=replace(FLEET.zones, kind=np.array(kinds)))
    cluster = make_cluster(fleet)
    assert find(cluster, cooling=("direct-to-chip",)).racks[0].startswith("s1/B")
    assert find(cluster, sites=("s2",)).sites == ("s2",)
    assert not isinstance(
        place(cluster, make_request(cooling=("direct-to-chip",), sites=("s2",))), Placement
    )


def test_storage_ties_it_to_the_site_of_the_endpoint() -> None:
    found = find(make_cluster(FLEET), storage="s2/nvme", storage_bytes_per_s=1e9)
    assert (found.sites, found.storage) == (("s2",), "s2/nvme")


# --- Within limits --------------------------------------------------------------------------------


def tight(**given: Any) -> FleetArrays:
    return make_arrays(**{"sites": 1, "racks": 4, "nodes": 2, "gpus": 8, **given})


def test_a_rack_takes_no_more_than_its_budget() -> None:
    # A busy node draws 10.2 kW, an idle one 2.3 kW.
    cluster = make_cluster(tight(budget_w=16_000.0, pdu_w=1e6))
    found = find(cluster, gpus=32)
    assert parts_of(cluster.fleet, found, Locality.RACK) >= 3
    assert len(found.gpus) == 32


def test_half_of_a_pair_carries_all_when_the_other_fails() -> None:
    """Either PDU alone takes 60 kW: what both carry together may not be more."""
    cluster = make_cluster(tight(pdu_w=60_000.0))
    gangs = []
    while isinstance(found := place(cluster, make_request(gpus=8)), Placement):
        cluster.allocate(found, make_request(gpus=8))
        gangs.append(found)
    # Idle nodes draw 8 x 2.3 kW of it, and each gang 7.9 kW more.
    assert len(gangs) == 5


def test_it_avoids_hot_gpus_of_a_node() -> None:
    resistance = np.full(len(FLEET.gpus), 0.05)
    resistance[:6] = 0.2
    cluster = make_cluster(FLEET, past=with_resistance(FLEET, resistance), occupied=range(8, 248))
    assert set(find(cluster, gpus=2).gpus) == {6, 7}
    assert min(find(cluster, gpus=8).gpus) == 248
    # 22 °C and 0.2 °C for each of 300 W are 5 °C below slowdown.
    assert find(cluster, gpus=14, gpu_peak_w=300.0, thermal_margin_c=4.0).nodes == (0, 31)
    margin = {"gpu_peak_w": 300.0, "thermal_margin_c": 6.0}
    assert find(cluster, gpus=10, **margin).gpus[0] == 6


def test_data_from_elsewhere_takes_room_on_the_way() -> None:
    cluster = make_cluster(FLEET, occupied=range(128))
    wants = {"data_site": "s1", "cross_site_bits_per_s": 5e10}
    request = make_request("a/t", **wants)
    found = placed(place(cluster, request))
    assert found.sites == ("s2",)
    cluster.allocate(found, request)
    assert not isinstance(place(cluster, make_request("b/t", **wants)), Placement)
    assert find(cluster, gpus=8).sites == ("s2",)


def test_it_would_rather_stand_where_its_data_is() -> None:
    # Site 1 would be the tighter fit.
    cluster = make_cluster(FLEET, occupied=range(4))
    assert find(cluster, gpus=4).sites == ("s1",)
    found = find(cluster, gpus=4, data_site="s2", cross_site_bits_per_s=1e9)
    assert found.sites == ("s2",)


# --- Restrictions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["no_new_launches", "drain", "hold_for_review"])
def test_closed_places_are_not_used(kind: str) -> None:
    restrictions = [
        make_restriction(kind, "site s1"),
        make_restriction(kind, "rack s2/A01", number=8),
    ]
    found = find(make_cluster(FLEET, restrictions=restrictions), gpus=112)
    assert found.sites == ("s2",)
    assert "s2/A01" not in found.racks


def test_places_to_be_avoided_are_used_last() -> None:
    restrictions = [make_restriction("prefer_away", "site s1")]
    cluster = make_cluster(FLEET, restrictions=restrictions, occupied=range(4))
    assert find(cluster, gpus=4).sites == ("s2",)
    assert find(cluster, gpus=140).sites == ("s1", "s2")


def test_a_class_a_job_and_a_storage_endpoint_may_be_closed() -> None:
    for kind, scope in (
        ("no_new_launches", "class training"),
        ("hold_for_review", "job job"),
        ("no_new_launches", "storage s1/nvme"),
    ):
        cluster = make_cluster(FLEET, restrictions=[make_restriction(kind, scope)])
        assert not isinstance(place(cluster, make_request(storage="s1/nvme")), Placement)
        assert find(cluster, key="other/t", job_class="light").gpus


def test_local_only_keeps_a_class_at_one_site() -> None:
    cluster = make_cluster(FLEET, restrictions=[make_restriction("local_only", "class training")])
    assert not isinstance(place(cluster, make_request(gpus=130)), Placement)
    assert find(cluster, gpus=130, job_class="light").locality is Locality.FLEET
    away = make_request(sites=("s1",), data_site="s2")
    assert not isinstance(place(cluster, away), Placement)


def test_local_only_keeps_a_site_to_itself() -> None:
    cluster = make_cluster(FLEET, restrictions=[make_restriction("local_only", "site s1")])
    assert not isinstance(place(cluster, make_request(gpus=130)), Placement)
    assert find(cluster, gpus=128).locality is Locality.SITE
    assert find(cluster, data_site="s2", cross_site_bits_per_s=1.0).sites == ("s2",)


def test_checkpoints_that_must_leave_need_a_site_that_lets_them() -> None:
    restrictions = [make_restriction("no_cross_site_checkpoint", "site s1")]
    cluster = make_cluster(FLEET, restrictions=restrictions, occupied=range(4))
    assert find(cluster, gpus=4).sites == ("s1",)
    assert find(cluster, gpus=4, cross_site_checkpoint=True).sites == ("s2",)


def test_a_capped_gpu_is_for_jobs_that_accept_the_cap() -> None:
    cluster = make_cluster(FLEET, restrictions=[make_restriction("power_cap_w", "site s1", 500.0)])
    assert find(cluster, gpus=8).sites == ("s2",)
    assert find(cluster, gpus=8, gpu_peak_w=450.0).sites == ("s1",)
    found = find(cluster, gpus=8, sites=("s1",), lowest_cap_w=400.0, max_slowdown=0.2)
    assert (found.sites, found.power_cap_w) == (("s1",), 500.0)


# --- Memory, and an empty fleet -------------------------------------------------------------------


def test_what_was_refused_is_refused_until_something_is_released() -> None:
    cluster = make_cluster(tight(racks=1))
    whole = make_request("a/t", gpus=16)
    found = placed(place(cluster, whole))
    cluster.allocate(found, whole)
    first = place(cluster, make_request("b/t"))
    assert place(cluster, make_request("c/t", priority=5)) is first
    cluster.free(found, whole)
    assert find(cluster, gpus=8).gpus


def test_what_a_request_wants_is_its_shape() -> None:
    one = make_request("a/t", priority=1)
    assert shape_of(one) == shape_of(replace(one, key="b/t", job="b", priority=2, submitted_at=0.0))
    assert shape_of(one) != shape_of(replace(one, gpus=9))
    assert len({shape_of(one), shape_of(replace(one, thermal_margin_c=1.0))}) == 2


def test_on_an_empty_fleet_nothing_is_taken_stale_or_closed() -> None:
    ts = np.where(np.arange(256) < 128, 0.0, 1e6)
    restrictions = [make_restriction("drain", "site s2")]
    cluster = make_cluster(FLEET, restrictions=restrictions, gpu={"ts": ts}, occupied=range(200))
    request = make_request(gpus=256)
    assert not isinstance(place(cluster, request), Placement)
    assert len(placed(fits_empty(cluster, request)).gpus) == 256
    assert not isinstance(fits_empty(cluster, make_request(gpus=257)), Placement)


# --- Inventories that lack something --------------------------------------------------------------


@pytest.mark.parametrize(("sites", "racks", "gpus"), [(0, 0, 8), (1, 0, 8), (1, 2, 0)])
def test_an_inventory_without_gpus_has_none(sites: int, racks: int, gpus: int) -> None:
    cluster = make_cluster(make_arrays(sites=sites, racks=racks, nodes=1, gpus=gpus))
    found = place(cluster, make_request(gpus=1))
    assert isinstance(found, Refusal)
    assert [each.token for each in found.reasons] == [ReasonToken.HARDWARE_MISMATCH]
    assert not isinstance(fits_empty(cluster, make_request(gpus=1)), Placement)


def test_gpus_and_hosts_without_ratings_are_taken_for_large_ones() -> None:
    gpus = replace(FLEET.gpus, rated_w=np.full(256, np.nan), idle_w=np.full(256, np.nan))
    nodes = replace(FLEET.nodes, host_rated_w=np.full(32, np.nan), host_idle_w=np.full(32, np.nan))
    models = replace(FLEET.models, rated_w=np.full(2, np.nan), idle_w=np.full(2, np.nan))
    cluster = make_cluster(replace(FLEET, gpus=gpus, nodes=nodes, models=models))
    request = make_request()
    found = placed(place(cluster, request))
    assert found.total_w == pytest.approx(8 * 700.0 + 1_000.0, abs=0.1)
    assert cluster.admits(found, request)
