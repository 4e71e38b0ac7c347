"""Collectives on leaf uplinks, spines and WAN: what is reserved, and that no link is overfilled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.allocation.allocations import link_traffic
from admission.core.placement.cluster import Cluster
from admission.core.placement.flows import MOST_OF_LINK, collectives_bits_per_s
from admission.core.placement.place import fits_empty, place
from admission.core.reasons import ReasonToken
from admission.core.request import Locality, Placement, Request
from fleet.tables import LINK_KINDS, FleetArrays
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import make_cluster, make_request, placed, refused

#: Eight GPUs a node, two nodes a rack; each rack has an uplink of 800 Gbit/s.
FLEET = make_arrays(sites=1)
UPLINK = 8e11
PER_RACK = int(np.diff(FLEET.node_bounds)[0]) * 8


def talking(gpus: int, gbit_per_s: float, key: str = "job/train", **values: object) -> Request:
    """A gang whose ranks each send so much, in steps of a second."""
    sent_bytes = gbit_per_s * 1e9 / 8
    return make_request(
        key,
        gpus=gpus,
        step_s=1.0,
        collective_bytes_per_step=sent_bytes / (2 * (gpus - 1) / gpus),
        **values,
    )


def narrowed(fleet: FleetArrays, bits_per_s: float, rack: int) -> FleetArrays:
    """Have the uplink of one rack be another one."""
    links = fleet.links
    capacity = np.where(links.rack == rack, bits_per_s, links.capacity_bits_per_s)
    return replace(fleet, links=replace(links, capacity_bits_per_s=capacity))


def test_each_rank_sends_what_a_ring_asks_of_it() -> None:
    assert collectives_bits_per_s(talking(32, 100.0), 32) == pytest.approx(1e11)
    assert collectives_bits_per_s(make_request(gpus=32), 32) == 0.0


def test_a_gang_within_a_rack_takes_no_uplink() -> None:
    cluster = make_cluster(FLEET)
    request = talking(PER_RACK, 100.0)
    found = placed(place(cluster, request))
    assert found.locality <= Locality.RACK
    assert link_traffic(request, found, FLEET) == ()


def test_a_gang_across_racks_takes_of_the_uplink_of_each() -> None:
    cluster = make_cluster(FLEET)
    request = talking(2 * PER_RACK, 100.0)
    found = placed(place(cluster, request))
    taken = dict(link_traffic(request, found, FLEET))
    racks = set(FLEET.nodes.rack[list(found.nodes)].tolist())
    assert {int(FLEET.links.rack[row]) for row in taken} == racks
    assert all(bits == pytest.approx(1e11) for bits in taken.values())
    before = cluster.link_room_bits_per_s.copy()
    cluster.allocate(found, request)
    assert before[list(taken)] - cluster.link_room_bits_per_s[list(taken)] == pytest.approx(1e11)
    cluster.free(found, request)
    assert (cluster.link_room_bits_per_s == before).all()


def test_a_rack_whose_uplink_is_full_is_passed_over() -> None:
    busy = np.where(FLEET.links.rack == 0, 0.95 * UPLINK / 8, 0.0)
    cluster = make_cluster(FLEET, links={"tx_bytes_per_s": busy})
    found = placed(place(cluster, talking(2 * PER_RACK, 100.0)))
    assert 0 not in FLEET.nodes.rack[list(found.nodes)]
    # A gang that says nothing of its collectives may stand there.
    everywhere = placed(place(cluster, make_request(gpus=len(FLEET.gpus))))
    assert 0 in FLEET.nodes.rack[list(everywhere.nodes)]


def test_where_all_uplinks_are_full_that_is_the_reason_and_a_rack_is_still_offered() -> None:
    full = np.where(FLEET.links.rack >= 0, 0.95 * UPLINK / 8, 0.0)
    cluster = make_cluster(FLEET, links={"tx_bytes_per_s": full})
    reason = refused(place(cluster, talking(2 * PER_RACK, 100.0)))[ReasonToken.LINK]
    assert reason.unit == "bit/s"
    assert reason.need == pytest.approx(1e11)
    assert reason.have == pytest.approx(0.05 * UPLINK)
    assert "/up" in reason.sentence
    elastic = talking(2 * PER_RACK, 100.0, min_gpus=8)
    assert placed(place(cluster, elastic)).locality <= Locality.RACK


def test_what_was_never_read_counts_by_what_is_reserved() -> None:
    cluster = make_cluster(FLEET, links={"ts": np.zeros(len(FLEET.links))})
    uplinks = FLEET.links.rack >= 0
    assert (cluster.link_room_bits_per_s[uplinks] == UPLINK).all()
    gangs = 0
    while isinstance(found := place(cluster, talking(8, 1.0, f"j{gangs}/t")), Placement):
        cluster.allocate(found, talking(8, 1.0, f"j{gangs}/t"))
        gangs += 1
    assert gangs == len(FLEET.gpus) // 8


def test_a_gang_that_a_link_makes_wait_still_starts_on_an_empty_fleet() -> None:
    greedy = talking(2 * PER_RACK, 10_000.0)
    found = placed(fits_empty(make_cluster(FLEET), greedy))
    assert max(dict(link_traffic(greedy, found, FLEET)).values()) == MOST_OF_LINK * UPLINK


def test_uplinks_side_by_side_share_by_their_capacity() -> None:
    links, wide = FLEET.links, narrowed(FLEET, 4e11, 0)
    request = talking(2 * PER_RACK, 100.0)
    found = placed(place(make_cluster(FLEET), request))
    rack = int(FLEET.nodes.rack[found.nodes[0]])
    other = int(np.flatnonzero(links.rack == -1)[0])
    both = replace(
        wide,
        links=replace(
            links,
            rack=np.where(np.arange(len(links)) == other, rack, links.rack),
            kind=np.where(
                np.arange(len(links)) == other, LINK_KINDS.index("leaf-uplink"), links.kind
            ),
            control_share=np.zeros(len(links)),
        ),
    )
    taken = dict(link_traffic(request, found, both))
    first = int(np.flatnonzero(links.rack == rack)[0])
    assert taken[first] + taken[other] == pytest.approx(1e11)
    ratio = links.capacity_bits_per_s[first] / links.capacity_bits_per_s[other]
    assert taken[first] / taken[other] == pytest.approx(ratio)


def with_spine(bits_per_s: float) -> FleetArrays:
    """Have the first WAN link be the spine of its site."""
    links = FLEET.links
    row = np.arange(len(links)) == int(np.flatnonzero(links.rack == -1)[0])
    spine = LINK_KINDS.index("spine")
    return replace(
        FLEET,
        links=replace(
            links,
            kind=np.where(row, spine, links.kind),
            peer_site=np.where(row, -1, links.peer_site),
            capacity_bits_per_s=np.where(row, bits_per_s, links.capacity_bits_per_s),
            control_share=np.where(row, 0.0, links.control_share),
        ),
    )


def test_a_spine_carries_the_ring_once_for_each_switch_domain() -> None:
    fleet = with_spine(1e12)
    request = talking(2 * PER_RACK, 100.0)
    found = placed(place(make_cluster(fleet), request))
    spine = int(np.flatnonzero(fleet.links.rack == -1)[0])
    assert dict(link_traffic(request, found, fleet))[spine] == pytest.approx(2e11)
    tight = with_spine(3e11)
    cluster = make_cluster(tight, links={"tx_bytes_per_s": np.where(
        tight.links.rack == -1, 0.6 * 3e11 / 8, 0.0)})  # fmt: skip
    reason = refused(place(cluster, request))[ReasonToken.LINK]
    assert reason.scope is not None
    assert reason.scope.name == str(tight.links.names[spine])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_gangs_together_overfill_a_link(data: st.DataObject) -> None:
    sites = data.draw(st.integers(1, 3))
    fleet = make_arrays(sites=sites)
    links = fleet.links
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    fleet = replace(
        fleet,
        links=replace(
            links,
            capacity_bits_per_s=rng.choice([1e10, 1e11, 8e11], len(links)),
            control_share=rng.choice([0.0, 0.1, 0.3], len(links)),
        ),
    )
    load = rng.uniform(0, 1.1, len(links)) * fleet.links.capacity_bits_per_s
    never = rng.random(len(links)) < 0.2
    cluster = make_cluster(
        fleet, links={"tx_bytes_per_s": load / 8, "ts": np.where(never, 0.0, 1_000_000.0)}
    )
    carried = np.zeros(len(links))
    held: list[tuple[Placement, Request]] = []
    start = cluster.link_room_bits_per_s.copy()
    for number in range(data.draw(st.integers(1, 14))):
        gpus = int(rng.choice([8, 16, 32, 64]))
        request = talking(
            gpus, float(rng.choice([1.0, 30.0, 300.0])), f"j{number}/t", min_gpus=min(gpus, 8)
        )
        found = place(cluster, request)
        if isinstance(found, Placement):
            cluster.allocate(found, request)
            held.append((found, request))
            for row, bits in link_traffic(request, found, fleet):
                carried[row] += bits
        elif held and rng.random() < 0.5:
            _let_go(cluster, held, carried, fleet)
        _check(fleet, load, never, carried)
    for placement, request in held:
        cluster.free(placement, request)
    assert (cluster.link_room_bits_per_s == start).all()


def _let_go(
    cluster: Cluster,
    held: list[tuple[Placement, Request]],
    carried: np.ndarray[tuple[int], np.dtype[np.float64]],
    fleet: FleetArrays,
) -> None:
    placement, request = held.pop(0)
    cluster.free(placement, request)
    for row, bits in link_traffic(request, placement, fleet):
        carried[row] -= bits


def _check(fleet: FleetArrays, load: object, never: object, carried: object) -> None:
    """What is carried fits beside what is read, within what jobs may have of each link."""
    links = fleet.links
    for row in range(len(links)):
        bulk = (1.0 - links.control_share[row]) * links.capacity_bits_per_s[row]
        others = 0.0 if never[row] else load[row]  # type: ignore[index]
        if carried[row] > 0:  # type: ignore[index]
            assert carried[row] + others <= bulk * (1 + 1e-9) + 1  # type: ignore[index]
