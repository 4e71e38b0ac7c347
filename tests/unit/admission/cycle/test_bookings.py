"""What is booked is free when it begins, and who has to wait for it is told so."""

from __future__ import annotations

import random

import numpy as np
import pytest

from admission.core.cycle.whatif import explain
from admission.core.placement.bookings import Booking, Bookings
from admission.core.reasons import ReasonToken
from admission.core.snapshot import Tuning
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request

HOUR = 3600.0
_HOST = Scope(ScopeKind.NODE, "n0")


def world_with(*bookings: tuple[float, float, str], nodes: int = 2) -> World:
    """Return a rack of nodes of eight GPUs, whose first one is booked: from, to (h), for whom."""
    world = World(make_arrays(racks=1, nodes=nodes), tuning=Tuning(stagger_above=2.0))
    mask = np.zeros(nodes, dtype=bool)
    mask[0] = True
    rows = tuple(
        Booking(NOW + begin * HOUR, NOW + end * HOUR, "node n0", project, _HOST)
        for begin, end, project in bookings
    )
    world.cluster.bookings = Bookings(rows, (mask,) * len(rows))
    return world


@pytest.mark.parametrize(
    ("walltime_h", "project", "starts"),
    [(1.9, "vision", True), (2.1, "vision", False), (6.0, "speech", True)],
)
def test_it_keeps_out_what_would_run_into_it_and_is_not_its(
    walltime_h: float, project: str, starts: bool
) -> None:
    world = world_with((2, 4, "speech"), nodes=1)
    world.submit(make_request("a/train", walltime_s=walltime_h * HOUR, project=project))
    assert bool(world.cycle().admitted) is starts


def test_maintenance_keeps_everybody_out() -> None:
    world = world_with((2, 4, ""), nodes=1)
    world.submit(make_request("a/train", walltime_s=3 * HOUR))
    assert not world.cycle().admitted


def test_other_hosts_are_taken_instead() -> None:
    world = world_with((2, 4, ""))
    world.submit(make_request("a/train", walltime_s=3 * HOUR))
    [one] = world.cycle().admitted
    assert one.placement.nodes == (1,)


def test_it_counts_until_it_ends_and_no_longer() -> None:
    world = world_with((-1, 1, ""), nodes=1)
    world.submit(make_request("a/train", walltime_s=60.0))
    assert not world.cycle().admitted
    world.now += HOUR
    world.cluster.bookings = Bookings(world.cluster.bookings.rows, world.cluster.bookings.nodes)
    assert world.cycle().admitted


def test_who_waits_is_told_of_what_from_when_until_when() -> None:
    world = world_with((2, 4, ""), nodes=1)
    world.submit(make_request("a/train", walltime_s=6 * HOUR))
    decisions = world.cycle()
    reason = decisions.waiting["a/train"].dominant
    assert reason.token is ReasonToken.BOOKED
    assert (reason.need, reason.have, reason.unit) == (6 * HOUR, 2 * HOUR, "s")
    assert reason.sentence.startswith("held back by maintenance of node n0 from ")
    assert reason.sentence.endswith(
        " UTC: its walltime, 6.00 h, does not fit into the 2.00 h before"
    )


def test_another_project_is_not_named() -> None:
    world = world_with((2, 4, "speech"), nodes=1)
    world.submit(make_request("a/train", walltime_s=6 * HOUR))
    reason = world.cycle().waiting["a/train"].dominant
    assert "a booking of node n0 by another project" in reason.sentence
    assert "speech" not in str(reason)


def test_a_walltime_that_fits_before_is_offered_and_starts() -> None:
    world = world_with((2, 4, ""), nodes=1)
    request = make_request("a/train", walltime_s=6 * HOUR)
    world.submit(request)
    found = explain(world.cycle(), "a/train").counterfactuals
    walltimes = [each.change.walltime_s for each in found if each.change.walltime_s is not None]
    assert walltimes
    assert max(walltimes) <= 2 * HOUR
    again = world_with((2, 4, ""), nodes=1)
    again.submit(make_request("a/train", walltime_s=max(walltimes)))
    assert again.cycle().admitted


def test_where_the_fleet_is_short_anyway_that_is_told() -> None:
    world = world_with((2, 4, ""), nodes=1)
    world.submit(make_request("a/train", walltime_s=6 * HOUR, gpus=64))
    token = world.cycle().waiting["a/train"].dominant.token
    assert token is ReasonToken.LOCALITY_UNSATISFIABLE


@pytest.mark.parametrize(
    ("booked", "begins_h", "node"),
    [((5.0, 6.0, ""), 4.5, 1), ((6.0, 7.0, ""), 4.0, 0), ((-1.0, 4.0, "speech"), 4.0, 0)],
)
def test_room_is_kept_where_nobody_has_booked_it_for_then(
    booked: tuple[float, float, str], begins_h: float, node: int
) -> None:
    world = world_with(booked)
    for key, hours in (("first", 4.0), ("second", 4.5)):
        project = booked[2] or "vision"
        world.submit(make_request(f"{key}/train", gpus=8, walltime_s=hours * HOUR, project=project))
    assert len(world.cycle().admitted) == 2
    world.submit(make_request("a/train", gpus=8, walltime_s=1.9 * HOUR))
    decisions = world.cycle()
    [kept] = decisions.after.reservations.kept
    assert (kept.at, kept.placement.nodes) == (NOW + begins_h * HOUR, (node,))
    [told] = explain(decisions, "a/train").counterfactuals
    assert told.change.begin_at is not None
    assert told.placement.nodes == (node,)
    world.now = kept.at
    world.end_due()
    assert [each.placement.nodes for each in world.cycle().admitted] == [(node,)]


@pytest.mark.parametrize("seed", range(20))
def test_no_job_ever_starts_that_may_still_run_when_what_it_stands_on_is_booked(
    seed: int,
) -> None:
    draw = random.Random(seed)
    nodes = 4
    world = World(make_arrays(racks=1, nodes=nodes), tuning=Tuning(stagger_above=2.0))
    rows, masks = [], []
    for _ in range(draw.randint(1, 4)):
        begin = NOW + draw.uniform(-2, 6) * HOUR
        project = draw.choice(["", "vision", "speech"])
        rows.append(Booking(begin, begin + draw.uniform(0.5, 4) * HOUR, "hosts", project))
        masks.append(np.array([draw.random() < 0.5 for _ in range(nodes)]))
    world.cluster.bookings = Bookings(tuple(rows), tuple(masks))
    for number in range(12):
        world.submit(
            make_request(
                f"j{number}/train", walltime_s=draw.uniform(0.2, 8) * HOUR,
                gpus=draw.choice([1, 2, 4, 8]), project=draw.choice(["vision", "speech"]),
            )
        )  # fmt: skip
    decisions = world.cycle()
    for each in decisions.admitted:
        end_at = NOW + each.request.walltime_s
        for row, mask in zip(rows, masks, strict=True):
            meets = row.begin_at < end_at and row.end_at > NOW
            if meets and row.project != each.request.project:
                assert not mask[list(each.placement.nodes)].any()
    assert len(decisions.admitted) + len(decisions.waiting) == 12
