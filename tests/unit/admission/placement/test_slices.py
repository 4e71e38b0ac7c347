"""Slices of partitioned GPUs as something to hold: where they go, what they count for, and why not.

Plain loops count anew what GPUs draw at most; they know nothing of the rows of a sliced inventory.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.allocation.allocations import busy
from admission.core.placement.place import fits_empty, place
from admission.core.reasons import ReasonToken
from admission.core.request import (
    Placement,
    Refusal,
    Request,
    placement_as_json,
    placement_from_json,
)
from admission.core.slices import apportioned_w, in_parts
from fleet.slicing import sliced
from fleet.tables import FleetArrays
from tests.builders.arrays import GPU_IDLE_W, GPU_RATED_W, HOST_IDLE_W, HOST_RATED_W
from tests.unit.admission.placement.partitioned import (
    HALVES,
    MIXED,
    MODEL,
    SEVEN,
    cluster_of,
    held_by,
    partitioned,
    read,
)
from tests.unit.admission.placement.scenes import make_request, placed, refused


def a_slice(profile: str = "1g.10gb", number: int = 1, **values: object) -> Request:
    values = {"gpus": 1, "slice": profile, "gpu_share": 1 / 7, **values}
    return make_request(f"j{number}/train", **values)


def gpus_of(fleet: FleetArrays, placement: Placement) -> list[int]:
    """Return the GPUs that a placement has a part of, as rows of the whole inventory."""
    parts = sliced(fleet).parts
    return [row if parts is None else int(parts.gpu[row]) for row in placement.gpus]


# --- Where it goes --------------------------------------------------------------------------------


def test_a_slice_is_taken_of_a_gpu_that_is_split_into_such() -> None:
    fleet = partitioned({1: HALVES, 6: MIXED})
    assert gpus_of(fleet, placed(place(cluster_of(fleet), a_slice("2g.20gb")))) == [6]
    assert gpus_of(fleet, placed(place(cluster_of(fleet), a_slice("3g.40gb")))) in ([1], [6])


def test_a_gang_of_whole_gpus_takes_none_that_is_split() -> None:
    fleet = partitioned({1: HALVES})
    cluster = cluster_of(fleet)
    assert 1 not in gpus_of(fleet, placed(place(cluster, make_request(gpus=7))))
    found = refused(place(cluster, make_request(gpus=8)))
    reason = found[ReasonToken.LOCALITY_UNSATISFIABLE]
    assert (reason.need, reason.have, reason.unit) == (8.0, 7.0, "GPUs")


def test_each_slice_is_given_to_one_job() -> None:
    fleet = partitioned({0: SEVEN})
    cluster = cluster_of(fleet)
    taken: list[int] = []
    for number in range(7):
        found = placed(place(cluster, a_slice(number=number)))
        cluster.allocate(found, a_slice(number=number))
        taken += found.gpus
    assert len(set(taken)) == 7
    reason = refused(place(cluster, a_slice(number=7)))[ReasonToken.GPU_SHORTAGE]
    assert (reason.need, reason.have, reason.short, reason.unit) == (1.0, 0.0, 1.0, "slices")
    assert reason.sentence == "needs 1 1g.10gb slice, and 0 of 7 are free (7 held by jobs): short 1"


def test_what_is_freed_again_leaves_the_cluster_as_it_was() -> None:
    fleet = partitioned({0: MIXED})
    cluster = cluster_of(fleet)
    before = cluster.copy()
    found = placed(place(cluster, a_slice("3g.40gb")))
    cluster.allocate(found, a_slice("3g.40gb"))
    cluster.free(found, a_slice("3g.40gb"))
    assert (cluster.room_w == before.room_w).all()
    assert (cluster.gpu_free == before.gpu_free).all()
    assert (cluster.node_free == before.node_free).all()


def test_what_of_a_gpu_belongs_to_no_slice_is_given_to_nobody() -> None:
    fleet = partitioned({0: ("1g.10gb",)}, gpus=1)
    cluster = cluster_of(fleet)
    assert gpus_of(fleet, placed(place(cluster, make_request(gpus=1)))) == [1]
    assert isinstance(place(cluster, make_request(gpus=2)), Refusal)
    assert cluster.free_gpus == pytest.approx(1.0 + 1 / 7, abs=1e-5)


def test_a_slice_that_no_gpu_has_is_never_there() -> None:
    fleet = partitioned({0: SEVEN})
    found = refused(fits_empty(cluster_of(fleet), a_slice("7g.80gb")))
    reason = found[ReasonToken.HARDWARE_MISMATCH]
    assert reason.sentence == (
        "needs 1 7g.80gb slice of any model; there are none in the inventory"
    )
    whole = partitioned({})
    assert ReasonToken.HARDWARE_MISMATCH in refused(place(cluster_of(whole), a_slice()))


def test_a_slice_of_another_model_is_not_taken() -> None:
    fleet = partitioned({0: SEVEN})
    assert place(cluster_of(fleet), a_slice(models=(MODEL,)))
    found = refused(place(cluster_of(fleet), a_slice(models=("NVIDIA H200",))))
    assert ReasonToken.HARDWARE_MISMATCH in found


# --- Watts ----------------------------------------------------------------------------------------


def test_a_slice_reserves_its_share_of_the_gpus_peak_and_of_the_host() -> None:
    fleet = partitioned({0: SEVEN})
    found = placed(place(cluster_of(fleet), a_slice()))
    host_share = (HOST_RATED_W - HOST_IDLE_W) / (4 * GPU_RATED_W)
    expected_w = (1 + host_share) * GPU_RATED_W / 7 + HOST_IDLE_W / 4 / 7
    assert found.total_w == pytest.approx(expected_w, rel=1e-4)


def test_a_slice_reserves_what_it_states() -> None:
    fleet = partitioned({0: SEVEN})
    rated, stated = (
        placed(place(cluster_of(fleet), a_slice(gpu_peak_w=watts))).total_w
        for watts in (None, 50.0)
    )
    assert stated < rated


def test_a_slice_that_the_rack_has_no_watts_for_waits_and_a_smaller_one_starts() -> None:
    fleet = partitioned({0: HALVES, 1: SEVEN})
    idle_w = float(cluster_of(fleet).constants.empty_room_w[0])
    for spare_w in np.linspace(150.0, 400.0, 20):
        tight = partitioned({0: HALVES, 1: SEVEN}, budget_w=44_000.0 - idle_w + spare_w)
        cluster = cluster_of(tight)
        small, large = place(cluster, a_slice()), place(cluster, a_slice("3g.40gb"))
        assert not (isinstance(small, Refusal) and isinstance(large, Placement))
        if isinstance(small, Placement) and isinstance(large, Refusal):
            assert ReasonToken.RACK_POWER in refused(large)
            return
    pytest.fail("no budget told the two apart")


any_power = st.floats(0.0, 1_000.0)


@given(
    watts=st.lists(any_power, min_size=8, max_size=8),
    taken=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_what_slices_draw_adds_up_to_what_their_gpus_draw(
    watts: list[float], taken: list[bool]
) -> None:
    fleet = partitioned({0: SEVEN, 3: MIXED, 4: HALVES, 6: ("1g.10gb",)})
    parts = sliced(fleet).parts
    assert parts is not None
    held = np.array(taken[: len(parts.gpu)])
    load_w, rated_w = np.array(watts), np.full(8, GPU_RATED_W)
    found_w = apportioned_w(parts, load_w, rated_w, held)
    assert (found_w >= 0.0).all()
    assert np.bincount(parts.gpu, found_w) == pytest.approx(load_w, abs=1e-6)


def test_who_holds_a_slice_is_told_to_draw_what_the_gpu_draws_above_rest() -> None:
    fleet = partitioned({0: SEVEN}, gpus=1)
    parts = sliced(fleet).parts
    assert parts is not None
    held = np.zeros(len(parts.gpu), dtype=bool)
    held[:2] = True
    load_w = np.array([GPU_IDLE_W + 120.0, GPU_IDLE_W])
    found_w = apportioned_w(parts, load_w, np.full(2, GPU_RATED_W), held)
    assert found_w[:2] == pytest.approx([GPU_IDLE_W / 7 + 60.0] * 2, rel=1e-4)
    assert found_w[2:7] == pytest.approx([GPU_IDLE_W / 7] * 5, rel=1e-4)


def test_a_free_slice_beside_one_at_work_is_free_and_beside_more_work_than_that_it_is_not() -> None:
    fleet = partitioned({0: SEVEN}, gpus=1)
    held = np.zeros(len(sliced(fleet).gpus), dtype=bool)
    held[0] = True
    peak_w = GPU_IDLE_W + (GPU_RATED_W - GPU_IDLE_W) / 7
    alone = in_parts(read(fleet, power_w=peak_w), held)
    assert not busy(alone)[1:7].any()
    more = in_parts(read(fleet, power_w=500.0), held)
    assert busy(more)[1:7].all()


def test_a_slice_that_nvml_does_not_show_is_not_free() -> None:
    fleet = partitioned({0: SEVEN})
    cluster = cluster_of(fleet, mig_instances=0)
    assert ReasonToken.TELEMETRY_STALE in refused(place(cluster, a_slice()))


# --- As attempts keep it --------------------------------------------------------------------------


def test_a_placement_comes_back_from_the_database_as_it_was() -> None:
    fleet = sliced(partitioned({1: SEVEN, 6: MIXED}))
    found = placed(place(cluster_of(partitioned({1: SEVEN, 6: MIXED})), a_slice("2g.20gb")))
    document = placement_as_json(found, fleet)
    assert list(document["slices"].values()) == [[{"profile": "2g.20gb", "place": 1}]]
    assert placement_from_json(document, fleet) == found


def test_a_whole_gpu_that_was_split_since_is_held_with_all_of_its_slices() -> None:
    before = partitioned({})
    found = placed(place(cluster_of(before), make_request(gpus=8)))
    after = sliced(partitioned({1: HALVES}))
    kept = placement_from_json(placement_as_json(found, before), after)
    assert len(kept.gpus) == 9


def test_a_slice_that_is_no_longer_there_is_held_by_nobody() -> None:
    before = partitioned({0: SEVEN, 1: HALVES})
    cluster = cluster_of(before)
    found = placed(place(cluster, a_slice()))
    document = placement_as_json(found, sliced(before))
    document["slices"] = {name: [{"profile": "1g.10gb", "place": 6}] for name in document["nodes"]}
    assert placement_from_json(document, sliced(partitioned({0: HALVES}))).gpus == ()


# --- What must never happen -----------------------------------------------------------------------

PROFILES = ["1g.10gb", "2g.20gb", "3g.40gb", None]


@settings(max_examples=60, deadline=None)
@given(
    split=st.dictionaries(st.integers(0, 7), st.sampled_from([SEVEN, MIXED, HALVES]), max_size=5),
    asked=st.lists(st.sampled_from(PROFILES), min_size=1, max_size=25),
    ends=st.lists(st.booleans(), min_size=25, max_size=25),
    budget_w=st.floats(4_000.0, 16_000.0),
    idle_w=st.floats(40.0, GPU_IDLE_W),
)
def test_slices_and_whole_gpus_never_overlap_and_no_budget_is_exceeded(
    split: dict[int, tuple[str, ...]],
    asked: list[str | None],
    ends: list[bool],
    budget_w: float,
    idle_w: float,
) -> None:
    fleet = partitioned(split, budget_w=budget_w, zone_w=1e6, pdu_w=1e6)
    gangs: list[tuple[Request, Placement]] = []
    cluster, rest_w = cluster_of(fleet), GPU_IDLE_W
    for number, (profile, is_end) in enumerate(zip(asked, ends, strict=False)):
        request = (
            make_request(f"j{number}/train", gpus=1)
            if profile is None
            else a_slice(profile, number)
        )
        found = place(cluster, request)
        if isinstance(found, Placement):
            cluster.allocate(found, request)
            gangs.append((request, found))
            check_apart(fleet, gangs)
            check_budget(fleet, gangs, budget_w, rest_w)
        if is_end and gangs:
            # What runs is read at rest, and the next cycle sees the fleet anew.
            gangs.pop(0)
            rest_w = idle_w
            cluster = cluster_of(fleet, gangs, power_w=rest_w)


def check_apart(fleet: FleetArrays, gangs: list[tuple[Request, Placement]]) -> None:
    """Count by GPU who has it whole, and which of its slices are taken."""
    documents = [placement_as_json(placement, sliced(fleet)) for _, placement in gangs]
    whole, of_slices = [], []
    for document in documents:
        for node, gpus in document["gpus"].items():
            slices = document.get("slices", {}).get(node)
            for place_of, gpu in enumerate(gpus):
                if slices is None:
                    whole.append((node, gpu))
                else:
                    of_slices.append((node, gpu, slices[place_of]["place"]))
    assert len(set(whole)) == len(whole)
    assert len(set(of_slices)) == len(of_slices)
    assert not set(whole) & {key[:2] for key in of_slices}


def check_budget(
    fleet: FleetArrays, gangs: list[tuple[Request, Placement]], budget_w: float, rest_w: float
) -> None:
    """Have all gangs draw their peak at once: a GPU its share of it, and what it rests at."""
    held, parts = held_by(fleet, gangs), sliced(fleet).parts
    share = held.astype(float) if parts is None else np.bincount(parts.gpu, parts.share * held)
    draw_w = 0.0
    for node in range(len(fleet.nodes)):
        gpus_w = [
            of_gpu * GPU_RATED_W + (1.0 - of_gpu) * rest_w
            for of_gpu in share[np.asarray(fleet.gpus.node) == node].tolist()
        ]
        host_share = (HOST_RATED_W - HOST_IDLE_W) / (len(gpus_w) * GPU_RATED_W)
        draw_w += HOST_IDLE_W + (1 + host_share) * sum(gpus_w)
    assert draw_w <= budget_w + 1.0
