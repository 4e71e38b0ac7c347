"""Who gives way: the least work lost for the watts that are needed, at every scope."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from admission.core.response.shedding import Candidate, least_loss, lost_gpu_s, ranked
from policies.headroom.evaluate import evaluate
from policies.headroom.inputs import Limits, Reservations
from policies.headroom.power import Power, committed, failover
from policies.headroom.reach import Need, Reach, Room, needs_of
from policies.scopes import Scope, ScopeKind
from telemetry.summary import carried_w
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.admission.response.worlds import make_fleet

FLEET = make_fleet(racks=8)
REACH = Reach.of(FLEET)
RACK, OTHER_RACK = "s1/A01", "s1/A02"


def on(rack: str, watts: float, kind: ScopeKind = ScopeKind.RACK) -> Need:
    return Need(Scope(kind, rack), watts)


def job(key: str, node: int, watts: float, lost: float, tier: int = 0) -> Candidate:
    return Candidate(key=key, nodes=(node,), watts=(watts,), lost_gpu_s=lost, tier=tier)


def keys(candidates: tuple[Candidate, ...]) -> list[str]:
    return sorted(each.key for each in candidates)


def test_work_is_lost_back_to_the_last_checkpoint() -> None:
    assert lost_gpu_s(gpus=8, started_at=0, last_checkpoint_at=900, now=1000) == 800
    assert lost_gpu_s(gpus=8, started_at=0, last_checkpoint_at=None, now=1000) == 8000
    # A checkpoint of an attempt before this one saves nothing of it.
    assert lost_gpu_s(gpus=8, started_at=500, last_checkpoint_at=100, now=1000) == 4000


def test_rank_is_watts_for_each_gpu_second_and_tiers_come_first() -> None:
    order = ranked(
        [
            job("large", 0, 8000, 8000),
            job("fresh", 1, 2000, 10),
            job("protected", 2, 9000, 1, tier=1),
            job("small", 3, 100, 50),
        ]
    )
    assert [each.key for each in order] == ["fresh", "small", "large", "protected"]


def test_of_jobs_that_lose_nothing_the_fewest_go() -> None:
    choice = least_loss(
        [job("a", 0, 1000, 0), job("b", 0, 1000, 0), job("c", 1, 2000, 0)], [on(RACK, 1900)], REACH
    )
    assert keys(choice.chosen) == ["c"]


def test_only_jobs_that_help_where_it_is_needed_are_taken() -> None:
    # The job in the other rack would lose less, and frees nothing here.
    choice = least_loss(
        [job("here", 0, 3000, 500), job("there", 2, 9000, 1)], [on(RACK, 2000)], REACH
    )
    assert keys(choice.chosen) == ["here"]
    assert choice.is_enough


def test_one_job_that_helps_twice_beats_two() -> None:
    wide = Candidate(key="wide", nodes=(0, 2), watts=(3000.0, 3000.0), lost_gpu_s=150)
    needs = [on(RACK, 2000), on(OTHER_RACK, 2000)]
    choice = least_loss([job("a", 0, 3000, 100), job("b", 2, 3000, 100), wide], needs, REACH)
    assert keys(choice.chosen) == ["wide"]


def test_a_large_job_is_not_taken_where_two_small_ones_lose_less() -> None:
    # By rank alone the large one is first: most watts for its loss, and far more than needed.
    found = [job("large", 0, 10_000, 100), job("s1", 0, 600, 10), job("s2", 1, 600, 10)]
    choice = least_loss(found, [on(RACK, 1000)], REACH)
    assert keys(choice.chosen) == ["s1", "s2"]
    assert choice.lost_gpu_s == 20


def test_higher_tiers_go_only_for_what_the_lower_ones_leave() -> None:
    found = [job("low", 0, 1000, 9000), job("high", 1, 5000, 1, tier=1)]
    assert keys(least_loss(found, [on(RACK, 900)], REACH).chosen) == ["low"]
    assert keys(least_loss(found, [on(RACK, 1500)], REACH).chosen) == ["high", "low"]


def test_what_cannot_be_met_is_met_as_far_as_it_can_and_said_to_be_short() -> None:
    choice = least_loss([job("a", 0, 1000, 5), job("b", 2, 500, 5)], [on(RACK, 3000)], REACH)
    assert keys(choice.chosen) == ["a"]
    assert not choice.is_enough
    assert choice.short_w == pytest.approx((2000.0,))


def test_a_feed_is_relieved_by_half_and_by_all_when_its_pair_has_failed() -> None:
    feed = str(FLEET.domains.paths[0])
    half = least_loss([job("a", 0, 1000, 5)], [on(feed, 600, ScopeKind.POWER_DOMAIN)], REACH)
    alone = least_loss(
        [job("a", 0, 1000, 5)],
        [Need(Scope(ScopeKind.POWER_DOMAIN, feed), 600, is_failover=True)],
        REACH,
    )
    assert half.short_w == pytest.approx((100.0,))
    assert alone.is_enough


def test_the_reach_carries_what_headroom_says_that_domains_carry() -> None:
    fleet = make_arrays(sites=2, racks=6, nodes=3)
    reach = Reach.of(fleet)
    rack_w = np.linspace(1.0, 9.0, len(fleet.racks))
    nodes = np.arange(len(fleet.nodes))
    places, watts = reach.carried(nodes.tolist(), (rack_w[fleet.nodes.rack] / 3).tolist())
    got = np.zeros(reach.count)
    got[places] = watts
    first, count = len(fleet.racks), len(fleet.domains)
    carried = carried_w(fleet, rack_w)
    zeros = np.zeros(len(rack_w))
    power = Power(zeros, rack_w, rack_w, rack_w, rack_w, zeros)
    of_domains = Power(carried, carried, carried, carried, carried, carried)
    alone = failover(fleet, power, of_domains)
    paired = fleet.domains.pair >= 0
    assert got[first : first + count] == pytest.approx(carried)
    assert got[first + count : first + 2 * count][paired] == pytest.approx(alone.load_w[paired])


def test_room_is_by_what_is_drawn_and_not_by_what_is_reserved() -> None:
    fleet = make_arrays(racks=4, budget_w=12_000.0, rack_meters=False)
    frame = make_frame(fleet, now=1000.0, gpu={"power_w": 300.0})
    reserved = Reservations.none(fleet)
    reserved.node_w[:] = 9_000.0
    headroom = evaluate(fleet, frame, now=1000.0, reservations=reserved)
    assert headroom.powers[ScopeKind.RACK].headroom_w.max() < 0
    reach, room = Reach.of(fleet), Room.of(headroom)
    drawn = committed(fleet, headroom.summary, Reservations.none(fleet), Limits.none(fleet))
    assert room.left_w[: len(fleet.racks)] == pytest.approx(drawn[ScopeKind.RACK].headroom_w)
    assert needs_of(room, reach) == []


def test_what_silent_nodes_may_draw_keeps_others_out_and_ends_no_job() -> None:
    fleet = make_arrays(racks=4, nodes=2, budget_w=14_000.0, rack_meters=False)
    heard_at = np.where(np.arange(len(fleet.gpus)) < 8, 0.0, 1000.0)  # node 0 fell silent
    frame = make_frame(fleet, now=1000.0, gpu={"power_w": 400.0, "ts": heard_at})
    headroom, reach = evaluate(fleet, frame, now=1000.0), Reach.of(fleet)
    assert [need.scope.name for need in needs_of(Room.of(headroom), reach)] == [RACK]
    assert needs_of(Room.proven(headroom), reach) == []


def test_what_a_rack_meter_reads_is_proven_though_a_node_is_silent() -> None:
    fleet = make_arrays(racks=4, nodes=2, budget_w=14_000.0)
    heard_at = np.where(np.arange(len(fleet.gpus)) < 8, 0.0, 1000.0)
    meters = {"power_w": np.where(fleet.meters.target == 0, 14_500.0, 9_000.0)}
    frame = make_frame(fleet, now=1000.0, gpu={"power_w": 400.0, "ts": heard_at}, meter=meters)
    needs = needs_of(Room.proven(evaluate(fleet, frame, now=1000.0)), Reach.of(fleet))
    assert [need.scope.name for need in needs] == [RACK]
    assert needs[0].watts == pytest.approx(500.0)


def test_needs_say_where_and_how_much_and_leave_redundancy_out_unless_asked() -> None:
    room = Room(np.full(REACH.count, 1000.0), np.full(REACH.count, 10.0))
    racks, domains = len(FLEET.racks), len(FLEET.domains)
    room.left_w[1] = -250.0
    room.left_w[racks + domains] = -40.0
    room.left_w[REACH.count - 1] = np.nan
    assert needs_of(room, REACH) == [Need(Scope(ScopeKind.RACK, OTHER_RACK), 250.0)]
    assert needs_of(room, REACH, redundancy=True)[1:] == [
        Need(Scope(ScopeKind.POWER_DOMAIN, str(FLEET.domains.paths[0])), 40.0, is_failover=True)
    ]


# --- Against an exact optimum ---------------------------------------------------------------------

jobs = st.lists(
    st.tuples(st.integers(0, 15), st.integers(1, 40), st.integers(0, 60)), min_size=1, max_size=14
)
wanted = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(1, 90)), min_size=1, max_size=3,
    unique_by=lambda each: each[0],
)  # fmt: skip


def optimum(freed: np.ndarray, need: np.ndarray, cost: list[int]) -> float:
    """Return the least cost that meets every need, by CP-SAT. Watts are whole, in units of 0.5."""
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"x{row}") for row in range(len(cost))]
    for column in range(len(need)):
        watts = [round(2 * freed[row, column]) for row in range(len(cost))]
        model.add(sum(w * x for w, x in zip(watts, taken, strict=True)) >= round(2 * need[column]))
    model.minimize(sum(c * x for c, x in zip(cost, taken, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value


@settings(max_examples=40, deadline=None)
@given(jobs, wanted)
def test_no_set_of_jobs_loses_less(
    found: list[tuple[int, ...]], needs: list[tuple[int, ...]]
) -> None:
    candidates = [
        job(f"j{at}", node, float(watts), float(lost))
        for at, (node, watts, lost) in enumerate(found)
    ]
    scopes = [
        Scope(ScopeKind.RACK, RACK),
        Scope(ScopeKind.POWER_DOMAIN, str(FLEET.domains.paths[0])),
        Scope(ScopeKind.ZONE, str(FLEET.zones.paths[0])),
        Scope(ScopeKind.SITE, "s1"),
    ]
    asked = [Need(scopes[place], float(watts)) for place, watts in needs]
    choice = least_loss(candidates, asked, REACH)
    freed = np.zeros((len(candidates), len(asked)))
    for row, each in enumerate(candidates):
        places, watts = REACH.carried(each.nodes, each.watts)
        by_place = dict(zip(places.tolist(), watts.tolist(), strict=True))
        freed[row] = [by_place.get(REACH.place_of(need), 0.0) for need in asked]
    reachable = np.minimum([need.watts for need in asked], freed.sum(axis=0))
    got = sum(freed[row] for row, each in enumerate(candidates) if each in choice.chosen)
    assert (np.asarray(got) >= reachable - 1e-6).all()
    cost = [max(int(each.lost_gpu_s), 1) for each in candidates]
    paid = sum(max(each.lost_gpu_s, 1.0) for each in choice.chosen)
    assert paid == pytest.approx(optimum(freed, reachable, cost))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_with_hundreds_of_jobs_it_frees_enough_and_is_never_worse_than_by_rank(seed: int) -> None:
    rng = np.random.default_rng(seed)
    candidates = [
        job(f"j{at:03}", int(rng.integers(16)), float(rng.uniform(200, 9000)),
            float(rng.uniform(0, 1e5)))
        for at in range(250)
    ]  # fmt: skip
    needs = [on(RACK, 20_000.0), on("s1", 100_000.0, ScopeKind.SITE)]
    choice = least_loss(candidates, needs, REACH)
    assert choice.is_enough
    left = np.array([need.watts for need in needs])
    lost = 0.0
    for each in ranked(candidates):
        if (left <= 0).all():
            break
        here = np.array([each.total_w * (each.nodes[0] < 2), each.total_w])
        if (here[left > 0] > 0).any():
            left = left - here
            lost += each.lost_gpu_s
    assert choice.lost_gpu_s <= lost


def test_where_all_that_thousands_free_is_needed_they_all_go_whatever_sums_are_rounded_to() -> None:
    """Taken off one by one, what all free together leaves a rest that nobody is left to meet."""
    rng = np.random.default_rng(1)
    candidates = [
        job(f"j{at:04}", int(rng.integers(16)), float(rng.uniform(1.0, 9e7)),
            float(rng.uniform(0, 1e5)))
        for at in range(3_000)
    ]  # fmt: skip
    racks = [on(str(path), 1e12) for path in FLEET.racks.paths[1:]]
    choice = least_loss(candidates, [*racks, on("s1", 1e12, ScopeKind.SITE)], REACH)
    assert keys(choice.chosen) == [each.key for each in candidates]
    assert not choice.is_enough
