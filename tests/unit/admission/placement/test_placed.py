"""The quick ways to ask whether there is a place say the same as the one that tells why not."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from admission.core.placement.candidates import CandidatePool, FreeGpus
from admission.core.placement.eligibility import Eligibility
from admission.core.placement.place import place, placed
from admission.core.placement.refusals import may_have_room
from admission.core.request import Locality, Refusal
from tests.builders.arrays import make_arrays
from tests.builders.promises import JOBS, WORLDS, RandomQueue
from tests.builders.queue_world import idle_cluster, make_request


def _asked(seed: int) -> tuple[int, int]:
    """Ask on the fleet of a random world; return how many had a place, and how many had no room."""
    dice, queue, found, hopeless = random.Random(seed), RandomQueue(), 0, 0
    queue.begin(**{name: dice.choice(each) for name, each in WORLDS.items()})
    for _ in range(4):
        some = [{name: dice.choice(each) for name, each in JOBS.items()} for _ in range(4)]
        queue.submit(some)
        requests = [each.request for each in queue.world.pending.values()]
        queue.world.cycle()
        for request in requests:
            cluster = queue.world.cluster
            told = place(cluster.copy(), request)
            has_place = not isinstance(told, Refusal)
            assert placed(cluster.copy(), request) == (told if has_place else None)
            has_room = may_have_room(cluster, request)
            assert has_room or not has_place
            found, hopeless = found + has_place, hopeless + (not has_room)
    return found, hopeless


def test_they_agree_on_the_fleets_of_random_worlds() -> None:
    found, hopeless = zip(*map(_asked, range(8)), strict=True)
    assert sum(found) > 10
    assert sum(hopeless) > 10


def test_room_at_other_sites_than_a_request_may_use_is_none() -> None:
    cluster, elsewhere = idle_cluster(make_arrays(sites=2, racks=1, nodes=1)), ("s2",)
    takes_all = make_request("there/train", gpus=8, sites=elsewhere)
    found = placed(cluster, takes_all)
    assert found is not None
    cluster.allocate(found, takes_all)
    assert may_have_room(cluster, make_request(gpus=1))
    assert not may_have_room(cluster, make_request(gpus=1, sites=elsewhere))


@given(
    taken=st.lists(st.sampled_from([1, 2, 4, 8, 12]), max_size=20),
    sites=st.sets(st.sampled_from(["s1", "s2", "s3"]), min_size=1, max_size=2),
    gpus=st.sampled_from([1, 2, 3, 7, 8, 9, 16, 30]),
    widest=st.sampled_from(Locality),
)
def test_a_part_of_a_fleet_has_what_it_has_whatever_all_of_it_has(
    taken: list[int], sites: set[str], gpus: int, widest: Locality
) -> None:
    fleet = make_arrays(sites=3, racks=2, nodes=2, budget_w=9_000.0)
    cluster = idle_cluster(fleet)
    for each in taken:
        request = make_request(gpus=each)
        if (found := placed(cluster, request)) is not None:
            cluster.allocate(found, request)
    asked = make_request(gpus=gpus, sites=tuple(sorted(sites)))
    mask = Eligibility.of(cluster, asked).reached
    pool = CandidatePool.of(cluster, asked, 0, 600.0, mask)
    assert pool.whole is not None
    alone = replace(
        pool,
        free_gpus=FreeGpus(pool.free_gpus.topology, pool.free_gpus.usable),
        key=None,
        whole=None,
        _group_fit={},
        _bounds={},
        _may_have={},
    )
    assert pool.free_gpus.nodes.tolist() == alone.free_gpus.nodes.tolist()
    assert pool.rack_most.tolist() == alone.rack_most.tolist()
    there = pool.find(gpus, Locality.NODE, widest)
    assert there == alone.find(gpus, Locality.NODE, widest)
