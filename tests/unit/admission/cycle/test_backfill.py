"""Room that is kept: where it comes from, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.cycle.decide import Decisions
from admission.core.cycle.estimates import ranges
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.reasons import ReasonToken
from admission.core.request import Locality, Placement, Request
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, idle_cluster, make_request

FLEET = make_arrays(sites=2, racks=4, nodes=2)

wants = st.lists(
    st.tuples(
        st.integers(1, 20), st.sampled_from([200.0, 350.0, 700.0]), st.sampled_from(Locality)
    ),
    min_size=1,
    max_size=8,
)


def _held(
    cluster: Cluster, some: list[tuple[int, float, Locality]]
) -> list[tuple[Placement, Request]]:
    held = []
    for n, (gpus, peak_w, required) in enumerate(some):
        request = make_request(
            f"j{n}/train", gpus=gpus, gpu_peak_w=peak_w, required=required,
            data_site="s1", cross_site_bits_per_s=1e9, storage="s1/nvme", storage_bytes_per_s=1e9,
        )  # fmt: skip
        found = place(cluster, request)
        if isinstance(found, Placement):
            cluster.allocate(found, request)
            held.append((found, request))
    return held


@given(wants, st.data())
@settings(max_examples=40, deadline=None)
def test_many_that_end_at_once_leave_what_they_would_leave_one_by_one(
    some: list[tuple[int, float, Locality]], data: st.DataObject
) -> None:
    cluster = idle_cluster(FLEET)
    held = _held(cluster, some)
    over = [each for each in held if data.draw(st.booleans())]
    one_by_one, at_once = cluster.copy(), cluster.copy()
    for placement, request in over:
        one_by_one.free(placement, request)
    at_once.free_all(over)
    for name in (
        "gpu_free", "node_free", "gangs", "room_w", "admit_w", "link_room_bits_per_s",
        "storage_room_bytes_per_s",
    ):  # fmt: skip
        np.testing.assert_array_equal(getattr(at_once, name), getattr(one_by_one, name), name)


# --- In the queue ---------------------------------------------------------------------------------


def _world(**values: Any) -> World:
    return World(make_arrays(racks=2, nodes=1, **values))


def _kept(decisions: Decisions) -> list[tuple[str, float]]:
    return [(each.request.key, each.at - NOW) for each in decisions.after.reservations.kept]


def test_room_is_kept_by_walltime_whatever_jobs_ran_for_before() -> None:
    world = _world()
    world.submit(make_request("old/train", gpus=8), runs_s=36.0)
    world.cycle()
    world.now += 36.0
    world.end_due()
    world.submit(make_request("runs/train", gpus=12, priority=1))
    world.submit(make_request("first/train", gpus=16))
    world.submit(make_request("short/train", gpus=4, submitted_at=world.now))
    decisions = world.cycle()
    assert decisions.snapshot.run_shares == {"vision": 0.01}
    # It ends with the one that runs, and puts nobody off: both count with their walltime.
    assert {each.request.key for each in decisions.admitted} == {"runs/train", "short/train"}
    assert _kept(decisions) == [("first/train", 36.0 + 3600.0)]
    # What is told of a start goes by what jobs ran for.
    assert ranges(decisions, 50 * list(world.ended))["first/train"].middle_s < 600.0


def test_room_is_kept_from_the_very_end_that_is_enough() -> None:
    world = _world()
    for n in range(16):
        world.submit(make_request(f"r{n:02}/train", walltime_s=600.0 + 60.0 * n))
    world.cycle()
    for gpus in (1, 6, 11, 16):
        world.pending.clear()
        world.submit(make_request("first/train", gpus=gpus))
        assert _kept(world.cycle()) == [("first/train", 600.0 + 60.0 * (gpus - 1))]


def test_what_ends_at_the_same_moment_is_left_to_others_where_the_first_needs_it_not() -> None:
    world = _world()
    world.submit(make_request("one/train", gpus=7))
    world.submit(make_request("two/train", gpus=8))
    world.cycle()
    world.submit(make_request("first/train", gpus=8))
    # One of the GPUs is free, and eight more are then than the first needs.
    world.submit(make_request("long/train", gpus=1, walltime_s=1e5, submitted_at=NOW + 1.0))
    assert [each.request.key for each in world.cycle().admitted] == ["long/train"]


def test_who_waits_gets_another_place_where_that_lets_others_go_ahead() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8, required=Locality.NODE))
    world.submit(make_request("b/train", gpus=4, required=Locality.NODE, walltime_s=7200.0))
    world.cycle()
    world.submit(make_request("first/train", gpus=5))
    world.submit(make_request("long/train", gpus=4, walltime_s=1e5, submitted_at=NOW + 1.0))
    decisions = world.cycle()
    assert [each.request.key for each in decisions.admitted] == ["long/train"]
    assert _kept(decisions) == [("first/train", 3600.0)]
    world.now += 3600.0
    world.end_due()
    assert [each.request.key for each in world.cycle().admitted] == ["first/train"]


def test_who_waits_keeps_its_place_where_there_is_no_other() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8, required=Locality.NODE))
    world.submit(make_request("b/train", gpus=4, required=Locality.NODE, walltime_s=7200.0))
    world.cycle()
    world.submit(make_request("first/train", gpus=9))
    world.submit(make_request("long/train", gpus=4, walltime_s=1e5, submitted_at=NOW + 1.0))
    decisions = world.cycle()
    assert decisions.admitted == ()
    assert decisions.waiting["long/train"].dominant.token is ReasonToken.BACKFILL_RESERVATION


def test_of_those_that_want_alike_room_is_kept_for_the_first_alone() -> None:
    world = World(make_arrays(sites=2, racks=1, nodes=1))
    world.submit(make_request("a/train", gpus=8, required=Locality.SITE))
    world.submit(make_request("b/train", gpus=8, required=Locality.SITE))
    world.cycle()
    for n, sites in enumerate([(), (), ("s2",), ("s2",)]):
        world.submit(make_request(f"w{n}/train", gpus=8, sites=sites))
    assert [key for key, _ in _kept(world.cycle())] == ["w0/train", "w2/train"]


def test_short_jobs_of_who_runs_much_take_nothing_from_one_for_whom_nothing_runs() -> None:
    for user, begins in (("ada", True), ("eve", False)):
        world = _world()
        world.submit(make_request("a/train", gpus=12, walltime_s=7200.0), user="ada")
        world.cycle()
        world.submit(make_request("first/train", gpus=16, priority=1), user=user)
        world.submit(make_request("short/train", gpus=2, walltime_s=600.0), user="ada")
        decisions = world.cycle()
        assert bool(decisions.admitted) is begins
        if not begins:
            why = decisions.waiting["short/train"].dominant
            assert why.token is ReasonToken.BACKFILL_RESERVATION
            assert why.sentence.endswith("of somebody for whom nothing runs")
