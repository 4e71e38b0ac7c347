"""Jobs are steered so that the mix on both arms of a rollout stays alike; nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.placement.cluster import Cluster
from admission.core.placement.mix import Arms
from admission.core.placement.place import place
from admission.core.request import Placement, Request
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import (
    make_cluster,
    make_request,
    make_restriction,
    placed,
)

#: Eight racks of two nodes with eight GPUs each, and watts for all.
FLEET = make_arrays(racks=8, budget_w=1e6, zone_w=1e7, pdu_w=1e7)
PATHS = FLEET.racks.paths.tolist()
CHANGED, CONTROL = PATHS[:2], PATHS[2:]
ON_CHANGED, ON_CONTROL = 1, 2


def arms_of(changed: Iterable[str] = CHANGED, control: Iterable[str] = CONTROL) -> Arms:
    found = Arms.of(FLEET, changed, control)
    assert found is not None
    return found


def steered(*held: tuple[Placement, Request], occupied: Iterable[int] = ()) -> Cluster:
    cluster = make_cluster(FLEET, occupied=occupied)
    return cluster.steered(arms_of(), held)


def start(cluster: Cluster, key: str, **values: object) -> set[int]:
    """Start a job; return the arms that it stands on."""
    request = make_request(f"{key}/train", **values)
    found = placed(place(cluster, request))
    cluster.allocate(found, request)
    return on(found)


def without_mix(cluster: Cluster) -> Cluster:
    """Return a copy that holds the same, and steers nobody."""
    plain = cluster.copy()
    plain.mix = None
    return plain


def on(found: Placement) -> set[int]:
    return set(arms_of().of_node[list(found.nodes)].tolist())


def test_arms_without_gpus_are_none() -> None:
    assert Arms.of(FLEET, CHANGED, []) is None
    assert Arms.of(FLEET, ["s1/gone"], CONTROL) is None


def test_each_class_takes_the_same_share_of_both_arms() -> None:
    cluster = steered()
    held: dict[str, list[int]] = {"training": [], "inference": []}
    # A quarter of the racks is changed.
    for number in range(8):
        name = ("training", "inference")[number % 2]
        (arm,) = start(cluster, f"job-{number}", gpus=8, job_class=name)
        held[name].append(arm)
    for arms in held.values():
        assert arms.count(ON_CHANGED) == 1
        assert arms.count(ON_CONTROL) == 3


def test_without_a_rollout_the_next_rack_is_taken() -> None:
    cluster = make_cluster(FLEET)
    arms = [start(cluster, f"job-{number}", gpus=16) for number in range(8)]
    assert arms == [{ON_CONTROL}] * 6 + [{ON_CHANGED}] * 2


def test_what_ends_is_no_longer_of_the_mix() -> None:
    cluster = steered()
    first = make_request("one/train", gpus=16)
    found = placed(place(cluster, first))
    cluster.allocate(found, first)
    again = cluster.copy()
    again.free(found, first)
    assert again.mix is not None
    assert not again.mix.held["training"].any()
    assert cluster.mix is not None
    assert cluster.mix.held["training"].sum() == 16
    cluster.free_all([(found, first)])
    assert not cluster.mix.held["training"].any()


def test_who_ran_before_counts() -> None:
    cluster = make_cluster(FLEET)
    requests = [make_request(f"old-{number}/train", gpus=16) for number in range(2)]
    held = []
    for request in requests:
        found = placed(place(cluster, request))
        cluster.allocate(found, request)
        held.append((found, request))
    # A third of the control racks runs it: the next one is for the others.
    cluster = cluster.steered(arms_of(), held)
    assert start(cluster, "new", gpus=16) == {ON_CHANGED}
    assert start(cluster, "next", gpus=16) == {ON_CONTROL}


def test_where_the_better_arm_is_full_it_starts_on_the_other_one() -> None:
    full = np.flatnonzero(np.isin(FLEET.nodes.rack[FLEET.gpus.node], range(2, 8)))
    cluster = steered(occupied=full.tolist())
    assert [start(cluster, f"job-{number}", gpus=16) for number in range(2)] == [{ON_CHANGED}] * 2


def test_a_gang_stands_on_one_arm_where_it_has_room_there() -> None:
    # A node is free in each of three racks, two of which were changed.
    node = FLEET.gpus.node
    taken = np.flatnonzero((node % 2 == 0) | (node >= 6)).tolist()
    plain = make_cluster(FLEET, occupied=taken)
    assert start(plain, "job", gpus=16) == {ON_CHANGED, ON_CONTROL}
    assert start(steered(occupied=taken), "job", gpus=16) == {ON_CHANGED}


def test_it_opens_no_new_node_for_the_mix() -> None:
    # Half of a node of the changed racks is free, and whole ones elsewhere.
    cluster = steered(occupied=range(4))
    assert [start(cluster, f"job-{number}", gpus=2) for number in range(2)] == [{ON_CHANGED}] * 2


def test_it_stands_as_close_together_as_without() -> None:
    # Of the control racks one node each is free; the changed ones are whole.
    node = FLEET.gpus.node
    rack = FLEET.nodes.rack[node]
    taken = np.flatnonzero(((rack >= 2) & (node % 2 == 0)) | (rack >= 6))
    cluster = steered(occupied=taken.tolist())
    assert start(cluster, "one", gpus=16) == {ON_CHANGED}
    assert start(cluster, "two", gpus=16) == {ON_CHANGED}


def test_a_restriction_goes_before_it() -> None:
    cluster = make_cluster(
        FLEET, restrictions=[make_restriction("prefer_away", f"rack {path}") for path in CONTROL]
    ).steered(arms_of(), [])
    assert ON_CONTROL not in start(cluster, "one", gpus=16)


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([1, 2, 4, 8, 16, 24, 32]), st.sampled_from(["a", "b"])),
        st.integers(0, 30),
    ),
    max_size=60,
)


@pytest.mark.parametrize("occupied", [(), range(4), range(0, 128, 9)])
@given(events=_EVENTS)
@settings(max_examples=40, deadline=None)
def test_whoever_starts_without_it_starts_with_it(
    occupied: Iterable[int], events: list[tuple[int, str] | int]
) -> None:
    plain = make_cluster(FLEET, occupied=occupied)
    mixed = plain.copy().steered(arms_of(), [])
    # Who stands where differs more and more between the two: how close together a gang could stand
    # is asked of the one that it starts in.
    held: list[tuple[Request, Placement, Placement]] = []
    for number, event in enumerate(events):
        if isinstance(event, int):
            if held:
                request, one, two = held.pop(event % len(held))
                plain.free(one, request)
                mixed.free(two, request)
            continue
        request = make_request(f"job-{number}/train", gpus=event[0], job_class=event[1])
        one_, two_ = place(plain, request), place(mixed, request)
        assert isinstance(two_, Placement) == isinstance(one_, Placement)
        if isinstance(one_, Placement) and isinstance(two_, Placement):
            without = placed(place(without_mix(mixed), request))
            assert two_.locality <= without.locality
            assert len(two_.nodes) <= len(without.nodes)
            plain.allocate(one_, request)
            mixed.allocate(two_, request)
            held.append((request, one_, two_))
