"""CPU cores of nodes without GPUs as something to hold: where they go, and what they draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.allocation.allocations import busy
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.reasons import ReasonToken
from admission.core.request import (
    Locality,
    Placement,
    Request,
    placement_as_json,
    placement_from_json,
)
from admission.core.slices import in_parts
from fleet.slicing import holdable, sliced
from fleet.tables import FleetArrays
from tests.builders.arrays import HOST_IDLE_W, HOST_RATED_W, make_arrays
from tests.unit.admission.placement.partitioned import cluster_of, held_by, read, with_cores
from tests.unit.admission.placement.scenes import make_request, placed, refused

CORES = 16
#: What a core may draw beyond its node's rest, W.
CORE_W = (HOST_RATED_W - HOST_IDLE_W) / CORES


def mixed(**given: object) -> FleetArrays:
    """Return a rack of four nodes: two with four GPUs, and two with sixteen cores."""
    made = make_arrays(racks=1, nodes=4, gpus=4, rack_meters=False, **given)  # type: ignore[arg-type]
    return with_cores(made, {1: CORES, 2: CORES})


def cluster(fleet: FleetArrays, *gangs: tuple[Request, Placement], host_w: float = HOST_IDLE_W) -> (
    Cluster
):  # fmt: skip
    return cluster_of(fleet, gangs, host={"power_w": host_w})


def cores(count: int = 4, number: int = 1, nodes: int = 1, **values: object) -> Request:
    values = {
        "gpus": count * nodes, "gpus_per_node": count, "cores": True, "gpu_share": 0.0,
        "required": Locality.SITE, **values,
    }  # fmt: skip
    return make_request(f"j{number}/prepare", **values)


def test_cores_are_rows_of_nodes_that_have_no_gpus() -> None:
    fleet = mixed()
    held = holdable(fleet)
    assert held.hands_out_cores.tolist() == [False, True, True, False]
    assert np.bincount(held.gpus.node).tolist() == [4, CORES, CORES, 4]
    assert held.node_gpus.tolist() == [4, 0, 0, 4]
    assert sliced(fleet) is fleet
    assert (np.diff(held.gpus.node) >= 0).all()


def test_a_fleet_without_cores_is_the_same_object() -> None:
    fleet = make_arrays(racks=1)
    assert holdable(fleet) is fleet


def test_a_phase_without_gpus_stands_on_cores_alone_and_one_with_gpus_on_none() -> None:
    fleet = mixed()
    found = placed(place(cluster(fleet), cores(4)))
    assert set(found.nodes) <= {1, 2}
    assert found.total_w == pytest.approx(4 * CORE_W + HOST_IDLE_W * 4 / CORES, abs=0.01)
    trained = placed(place(cluster(fleet), make_request(gpus=8)))
    assert trained.nodes == (0, 3)


def test_each_node_gives_as_many_cores_as_are_asked_of_it() -> None:
    found = placed(place(cluster(mixed()), cores(10, nodes=2)))
    assert found.nodes == (1, 2)
    assert len(found.gpus) == 20
    reason = refused(place(cluster(mixed()), cores(10, nodes=3)))[
        ReasonToken.LOCALITY_UNSATISFIABLE
    ]
    assert (reason.unit, reason.need, reason.have) == ("cores", 30.0, 20.0)


def test_each_core_is_given_to_one_job_and_reasons_count_cores() -> None:
    fleet = mixed()
    at_work, taken = cluster(fleet), list[int]()
    for number in range(8):
        found = placed(place(at_work, cores(4, number)))
        at_work.allocate(found, cores(4, number))
        taken += found.gpus
    assert len(set(taken)) == 2 * CORES
    reason = refused(place(at_work, cores(4, 9)))[ReasonToken.GPU_SHORTAGE]
    assert reason.sentence == "needs 4 cores, and 0 of 32 are free (32 held by jobs): short 4"
    assert at_work.free_gpus == 8.0


def test_cores_take_of_the_budget_of_their_rack() -> None:
    # Four hosts at rest, eight GPUs at rest, and room for five cores with their part of no host.
    room_w = 5.5 * CORE_W
    fleet = mixed(budget_w=4 * HOST_IDLE_W + 8 * 70.0 + room_w)
    at_work = cluster(fleet)
    found = placed(place(at_work, cores(5)))
    at_work.allocate(found, cores(5))
    reason = refused(place(at_work, cores(1, 2)))[ReasonToken.RACK_POWER]
    assert reason.short == pytest.approx(0.5 * CORE_W, abs=1.0)


def test_a_placement_on_cores_comes_back_from_what_is_kept() -> None:
    fleet = holdable(mixed())
    found = placed(place(cluster(mixed()), cores(3, nodes=2)))
    kept = placement_as_json(found, fleet)
    assert kept["gpus"] == {name: [] for name in kept["nodes"]}
    assert [len(numbers) for numbers in kept["cores"].values()] == [3, 3]
    assert placement_from_json(kept, fleet) == found


def test_what_a_node_draws_above_its_rest_is_of_those_who_hold_its_cores() -> None:
    fleet = mixed()
    one = placed(place(cluster(fleet), cores(4)))
    held = held_by(fleet, [(cores(4), one)])
    headroom = in_parts(read(fleet, host={"power_w": HOST_IDLE_W + 3 * CORE_W}), held)
    load_w = headroom.summary.gpus.load_w
    mine = load_w[list(one.gpus)]
    assert mine.sum() == pytest.approx(3 * CORE_W)
    others = headroom.fleet.gpus.node == one.nodes[0]
    assert load_w[others].sum() == pytest.approx(3 * CORE_W)
    assert busy(headroom)[list(one.gpus)].all()


def test_cores_of_a_node_that_fell_silent_are_not_free() -> None:
    fleet = mixed()
    silent = cluster_of(fleet, (), host={"ts": 0.0})
    found = refused(place(silent, cores(4)))
    assert ReasonToken.TELEMETRY_STALE in found or ReasonToken.GPU_SHORTAGE in found


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 2)), max_size=10), st.floats(0.0, 1.0))
def test_no_budget_is_exceeded_at_the_peaks_of_all_and_what_is_freed_is_as_before(
    asks: list[tuple[int, int]], spare: float
) -> None:
    fleet = mixed(budget_w=4 * HOST_IDLE_W + 8 * 70.0 + spare * 2 * CORES * CORE_W)
    at_work, stand = cluster(fleet), []
    before = at_work.copy()
    for number, (count, nodes) in enumerate(asks):
        request = cores(count, number, nodes)
        found = place(at_work, request)
        if isinstance(found, Placement):
            at_work.allocate(found, request)
            stand.append((found, request))
    used = sum(len(found.gpus) for found, _ in stand)
    assert used * CORE_W <= spare * 2 * CORES * CORE_W + 1.0
    for found, request in stand:
        at_work.free(found, request)
    assert np.array_equal(at_work.room_w, before.room_w)
    assert np.array_equal(at_work.gpu_free, before.gpu_free)


def test_work_of_others_is_seen_where_the_power_of_the_node_is_read() -> None:
    fleet = mixed()
    nobody = held_by(fleet, [])
    at_work = in_parts(read(fleet, host={"power_w": HOST_RATED_W}), nobody)
    assert busy(at_work)[at_work.fleet.gpus.node == 1].all()
    # Not read it counts at its rating, and its cores may be had.
    unread = in_parts(read(fleet, host={"cpu_util": 3.0}), nobody)
    assert not busy(unread)[unread.fleet.gpus.node == 1].any()
    assert unread.summary.nodes.load_w[1] == HOST_RATED_W
