"""Who gives way to whom: what is asked back of quotas and shares, and what the policy protects."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.cycle.decide import Decisions
from admission.core.cycle.queue import Queue
from admission.core.cycle.victims import Victim, Wanted, _Search
from admission.core.placement.place import place
from admission.core.preempting import PreemptionPolicy
from admission.core.reasons import ReasonToken
from admission.core.request import Locality, Refusal
from admission.core.response.shedding import lost_gpu_s
from admission.core.snapshot import ClassRules, ProjectShare, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request

CALM = Tuning(stagger_above=2.0)
AT_ONCE = PreemptionPolicy(
    least_runtime_s=0.0, reclaim_quota_after_s=0.0, reclaim_share_after_s=0.0
)
URGENT = {
    "training": ClassRules("training"),
    "trial": ClassRules("trial"),
    "urgent": ClassRules("urgent", priority=50, preempts=True),
}


def _world(*, racks: int = 4, nodes: int = 2, **values: Any) -> World:
    values = {"tuning": CALM, "preemption": AT_ONCE, **values}
    return World(make_arrays(racks=racks, nodes=nodes), **values)


def _cohort(**members: Mapping[str, Any]) -> dict[str, ProjectShare]:
    return {
        name: ProjectShare(name, cohort="lab", **{"gpu_quota": 16, **values})
        for name, values in members.items()
    }


def _fill(world: World, project: str, *, jobs: int, gpus: int = 8, **values: Any) -> None:
    """Start so many jobs of a project that would run for a day, one after the other."""
    for n in range(jobs):
        given = {"preemptible": True, "walltime_s": 86_400.0, **values}
        world.submit(make_request(f"{project}{n}/train", project=project, gpus=gpus, **given))
        world.cycle()
        world.now += 1.0
    # None of them has just begun.
    world.now += 60.0


def _held(world: World, project: str) -> int:
    return sum(
        len(each.placement.gpus)
        for each in world.running.values()
        if each.request.project == project
    )


def _asked(decisions: Decisions) -> list[str]:
    return sorted(each.key for each in decisions.preempt)


def _giving_way(decisions: Decisions, key: str) -> str:
    """Return why nobody gives way to a job, as its trace has it."""
    last = decisions.waiting[key].trace[-1]
    assert last.check == "giving way"
    return last.sentence


def test_room_is_looked_for_where_it_is_cheapest_to_make() -> None:
    world = _world(racks=8)
    _fill(world, "trial", jobs=16, job_class="trial")
    queue = Queue(world.snapshot())
    rack_of = queue.cluster.fleet.nodes.rack

    def rack(victim: Victim) -> int:
        return int(rack_of[victim.running.placement.nodes[0]])

    # In each rack one costs little and one much: for both together the fifth is the cheapest.
    costs, victims = [9.0, 8.0, 7.0, 6.0, 1.0, 5.0, 4.0, 3.0], list[Victim]()
    for each in world.snapshot().running:
        victim = Victim(each, 0.5)
        if rack(victim) in map(rack, victims):
            victim = Victim(each, costs[rack(victim)])
        victims.append(victim)
    request = make_request("u/train", gpus=16, min_gpus=16, required=Locality.RACK)
    search = _Search(victims, Wanted(queue, request, 0, by_quota=False))
    _, _, *by_rack = search.orders()
    assert [{rack(victims[row]) for row in order[:2]} for order in by_rack] == [{4}, {7}, {6}, {5}]


def _grace(world: World) -> Decisions:
    world.now += world.tuning.preemption_grace_s
    world.end_due()
    return world.cycle()


def test_nobody_gives_way_to_a_job_that_would_begin_too_late_to_be_over_before_one_ahead() -> None:
    world = _world(racks=1, nodes=2, classes=URGENT)
    for name in ("a", "b"):
        world.submit(
            make_request(f"{name}/train", gpus=8, preemptible=name == "a", walltime_s=9_000.0)
        )
        world.cycle()
    world.now += 61.0
    world.submit(make_request("ahead/train", gpus=16, priority=100, walltime_s=300.0))
    world.cycle()
    # It would be over just in time if it began now, and not once the other one has left.
    left_s = world.next_end - world.now
    world.submit(
        make_request("late/train", gpus=8, job_class="urgent", priority=50, walltime_s=left_s)
    )
    decisions = world.cycle()
    assert _asked(decisions) == []
    assert _giving_way(decisions, "late/train") == "would stand where a job ahead of it is to"
    grace_s = world.tuning.preemption_grace_s
    world.submit(
        make_request(
            "in-time/train", gpus=8, job_class="urgent", priority=50, walltime_s=left_s - grace_s
        )
    )
    assert _asked(world.cycle()) == ["a/train"]


# --- Cohorts --------------------------------------------------------------------------------------


def test_what_others_leave_idle_of_their_quotas_is_borrowed() -> None:
    world = _world(projects=_cohort(a={}, b={}, c={}, d={}))
    _fill(world, "a", jobs=10)
    assert _held(world, "a") == 64
    reason = world.cycle().waiting["a8/train"].dominant
    assert reason.token is ReasonToken.QUOTA_EXCEEDED
    assert "may have, with what it may borrow, 64 GPUs at once" in reason.sentence


def test_no_more_is_borrowed_than_may_be() -> None:
    world = _world(projects=_cohort(a={"may_borrow": 8}, b={}, c={}, d={}))
    _fill(world, "a", jobs=4)
    assert _held(world, "a") == 24


def test_no_more_is_lent_than_may_be() -> None:
    world = _world(projects=_cohort(a={}, b={"may_lend": 8}, c={"may_lend": 0}, d={"may_lend": 0}))
    _fill(world, "a", jobs=6)
    assert _held(world, "a") == 24
    # What b lends nobody is there at once, whatever others hold; what it lends has to be asked for.
    world.submit(make_request("own/train", project="b", gpus=8))
    decisions = world.cycle()
    assert [each.request.job for each in decisions.admitted] == ["own"]
    world.submit(make_request("lent/train", project="b", gpus=8))
    assert _asked(world.cycle()) == ["a2/train"]


def test_of_its_quota_a_project_has_all_whatever_it_lends() -> None:
    world = _world(projects=_cohort(a={"may_lend": 4}, b={"may_lend": 0}))
    world.submit(make_request("whole/train", project="a", gpus=16))
    assert [each.request.job for each in world.cycle().admitted] == ["whole"]


def test_an_elastic_job_takes_what_may_be_borrowed() -> None:
    world = _world(projects=_cohort(a={"may_lend": 4}, b={"may_lend": 4}))
    world.submit(make_request("e/train", project="a", gpus=64, min_gpus=2, preemptible=True))
    (one,) = world.cycle().admitted
    assert len(one.placement.gpus) == 20


def test_what_nobody_may_stop_borrows_nothing() -> None:
    world = _world(projects=_cohort(a={}, b={}))
    _fill(world, "a", jobs=3, preemptible=False)
    assert _held(world, "a") == 16
    reason = world.cycle().waiting["a2/train"].dominant
    assert "for jobs that nobody may stop" in reason.sentence


def test_a_hog_is_asked_back_what_it_borrows_the_newest_first_within_the_reclaim_time() -> None:
    policy = replace(AT_ONCE, reclaim_quota_after_s=300.0)
    world = _world(projects=_cohort(hog={}, b={}, c={}, d={}), preemption=policy)
    _fill(world, "hog", jobs=8)
    submitted_at = world.now
    for n in range(3):
        world.submit(
            make_request(f"b{n}/train", project="b", gpus=8, submitted_at=submitted_at + n)
        )
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert _giving_way(decisions, "b0/train") == (
        "may ask back what is due to its project in 5 min"
    )
    world.now = submitted_at + 302.0
    decisions = world.cycle()
    # Two of b's fit its quota of 16; for the third nothing is due.
    assert _asked(decisions) == ["hog6/train", "hog7/train"]
    assert "asks back of its quota what others borrow" in decisions.preempt[0].sentence
    assert world.cycle().preempt == ()
    started = {each.request.job for each in _grace(world).admitted}
    assert {"b0", "b1"} <= started
    assert world.now - submitted_at <= 300.0 + world.tuning.preemption_grace_s + 2.0


def test_what_is_within_its_quota_is_asked_back_by_nobody() -> None:
    world = _world(projects=_cohort(a={"gpu_quota": 32}, b={"gpu_quota": 32}))
    _fill(world, "a", jobs=4)
    _fill(world, "b", jobs=4)
    world.submit(make_request("more/train", project="a", gpus=8))
    world.submit(make_request("other/train", project="c", gpus=8))
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert "hold no more than is due" in _giving_way(decisions, "other/train")


# --- Shares ---------------------------------------------------------------------------------------


def test_a_hog_on_all_gpus_is_asked_back_what_is_due_within_the_reclaim_time() -> None:
    policy = PreemptionPolicy()
    world = _world(preemption=policy)
    _fill(world, "hog", jobs=8)
    submitted_at = world.now
    for n in range(8):
        world.submit(
            make_request(f"new{n}/train", project="new", gpus=8, submitted_at=submitted_at)
        )
    assert policy.reclaim_share_after_s is not None
    while world.now < submitted_at + policy.reclaim_share_after_s + 300.0:
        world.now += 60.0
        world.end_due()
        world.cycle()
    # Half of the fleet is due to each.
    assert (_held(world, "new"), _held(world, "hog")) == (32, 32)


def test_who_holds_less_than_its_share_is_asked_for_nothing() -> None:
    world = _world()
    _fill(world, "hog", jobs=7)
    # The newest of all, and of the lowest priority, and it would lose the least.
    _fill(world, "small", jobs=1, priority=-5)
    world.submit(make_request("new/train", project="new", gpus=8))
    assert _asked(world.cycle()) == ["hog6/train"]


def test_who_holds_less_than_its_share_is_not_asked_though_nobody_else_may_be() -> None:
    world = _world()
    _fill(world, "hog", jobs=7, preemptible=False)
    _fill(world, "small", jobs=1)
    world.submit(make_request("new/train", project="new", gpus=8))
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert _giving_way(decisions, "new/train") == (
        "nobody may be asked: of the others 7 may not be stopped,"
        " 1 hold no more than is due to their projects"
    )


def test_weights_say_how_much_is_asked_back() -> None:
    projects = {"hog": ProjectShare("hog", weight=3.0), "new": ProjectShare("new", weight=1.0)}
    world = _world(projects=projects)
    _fill(world, "hog", jobs=8)
    for n in range(8):
        world.submit(make_request(f"new{n}/train", project="new", gpus=8))
    for _ in range(6):
        world.cycle()
        _grace(world)
    assert (_held(world, "new"), _held(world, "hog")) == (16, 48)


def test_even_one_gang_on_all_gpus_is_asked_back_and_asks_for_nothing_itself() -> None:
    world = _world()
    _fill(world, "hog", jobs=1, gpus=64)
    world.submit(make_request("new/train", project="new", gpus=8, preemptible=True))
    assert _asked(world.cycle()) == ["hog0/train"]
    _grace(world)
    world.submit(make_request("hog/train", project="hog", gpus=64, submitted_at=NOW))
    assert world.cycle().preempt == ()


def test_nobody_asks_back_by_shares_where_the_policy_has_it_so() -> None:
    world = _world(preemption=replace(AT_ONCE, reclaim_share_after_s=None))
    _fill(world, "hog", jobs=8)
    world.submit(make_request("new/train", project="new", gpus=8, submitted_at=NOW - 1e6))
    assert world.cycle().preempt == ()


# --- What the policy protects ---------------------------------------------------------------------


def _urgent(name: str = "urgent", gpus: int = 8, **values: Any) -> Any:
    given = {"job_class": "urgent", "priority": 50, "project": "search", **values}
    return make_request(f"{name}/train", gpus=gpus, **given)


def _urgent_world(**policy: Any) -> World:
    return _world(classes=URGENT, preemption=replace(AT_ONCE, reclaim_share_after_s=None, **policy))


def test_a_class_stops_only_those_that_it_may() -> None:
    world = _urgent_world(stops={"urgent": frozenset({"trial"})})
    _fill(world, "a", jobs=7)
    _fill(world, "b", jobs=1, job_class="trial")
    world.submit(_urgent("first"))
    assert _asked(world.cycle()) == ["b0/train"]
    _grace(world)
    world.submit(_urgent("second"))
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert _giving_way(decisions, "second/train") == (
        "nobody may be asked: of the others 7 are of a class that its class may not stop,"
        " 1 may not be stopped"
    )


def test_what_has_just_begun_is_left_alone() -> None:
    world = _urgent_world(least_runtime_s=600.0)
    _fill(world, "a", jobs=8)
    world.submit(_urgent())
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert "8 have run for less than 10 min" in _giving_way(decisions, "urgent/train")
    world.now += 600.0
    assert len(world.cycle().preempt) == 1


def test_what_began_while_a_job_waited_is_not_stopped_for_it_at_once() -> None:
    world = _urgent_world()
    world.submit(_urgent(gpus=8, submitted_at=NOW - 10.0), held_by="operator ann")
    _fill(world, "a", jobs=8)
    world.now -= 60.0
    world.pending["urgent/train"] = replace(world.pending["urgent/train"], held_by="")
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert "8 began while it waited, just now" in _giving_way(decisions, "urgent/train")
    world.now += 60.0
    assert [each.for_key for each in world.cycle().preempt] == ["urgent/train"]


def test_what_began_just_before_a_job_came_is_stopped_for_it_where_the_policy_has_it_so() -> None:
    world = _urgent_world()
    _fill(world, "a", jobs=8)
    world.now -= 60.0
    world.submit(_urgent(gpus=8, submitted_at=world.now))
    assert [each.for_key for each in world.cycle().preempt] == ["urgent/train"]


def test_a_project_is_disrupted_so_often_in_an_hour_and_no_more() -> None:
    world = _urgent_world(disruptions_per_h=3, disruptions_of={"b": 0})
    _fill(world, "a", jobs=7)
    _fill(world, "b", jobs=1)
    for n in range(5):
        world.submit(_urgent(f"u{n}"))
    decisions = world.cycle()
    assert len(decisions.preempt) == 3
    assert all(key.startswith("a") for key in _asked(decisions))
    assert "as many as may be have been asked within the hour" in _giving_way(decisions, "u3/train")
    _grace(world)
    assert world.cycle().preempt == ()
    world.now += 3600.0
    assert len(world.cycle().preempt) == 2


def test_a_gang_that_needs_more_than_a_cycle_asks_is_made_room_for() -> None:
    world = _urgent_world()
    _fill(world, "a", jobs=64, gpus=1)
    world.submit(_urgent(gpus=48))
    world.submit(_urgent("next", gpus=8, submitted_at=NOW + 1))
    decisions = world.cycle()
    assert len(decisions.preempt) == 48
    assert _giving_way(decisions, "next/train") == (
        "needs 8 jobs to end, and this cycle has asked 48 of 32 already"
    )
    assert {each.request.job for each in _grace(world).admitted} == {"urgent"}


def test_who_needs_more_than_all_that_may_be_asked_is_told() -> None:
    world = _urgent_world()
    _fill(world, "a", jobs=4)
    _fill(world, "b", jobs=4, preemptible=False)
    world.submit(_urgent(gpus=64))
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert _giving_way(decisions, "urgent/train") == (
        "4 jobs may be asked, and are not enough: of the others 4 may not be stopped"
    )


@pytest.mark.parametrize(
    ("share", "classes"),
    [
        (ProjectShare("search", power_quota_w=8_000.0), URGENT),
        (ProjectShare("search"), {**URGENT, "urgent": replace(URGENT["urgent"], max_gpus=8)}),
    ],
    ids=["watts of its project", "GPUs of its class"],
)
def test_an_elastic_job_asks_at_once_though_all_that_may_be_asked_free_more_than_it_may_have(
    share: ProjectShare, classes: dict[str, ClassRules]
) -> None:
    # It was placed as wide as on what all of them leave, which its quotas forbid, so that nobody
    # was asked; once one of them was to leave for another job, those left over were enough for it.
    policy = replace(AT_ONCE, reclaim_share_after_s=None)
    world = _world(racks=2, classes=classes, preemption=policy, projects={"search": share})
    _fill(world, "a", jobs=4)
    world.submit(_urgent(gpus=16, min_gpus=6))
    decisions = world.cycle()
    assert [each.for_key for each in decisions.preempt] == ["urgent/train"]
    assert world.cycle().preempt == ()
    [one] = _grace(world).admitted
    assert 6 <= len(one.placement.gpus) <= 8


# --- Beside the best that there is ----------------------------------------------------------------


def _some_fleet(seed: int) -> World:
    """Return a small full fleet, by a seed: jobs of several sizes, begun and saved at random."""
    rng = random.Random(seed)
    world = _urgent_world()
    world = World(
        make_arrays(racks=2, nodes=2), tuning=CALM, classes=URGENT, preemption=world.preemption
    )
    n = 0
    while n < 12 and int(world.cluster.gpu_free.sum()) > 0:
        gpus = rng.choice([1, 2, 3, 4, 6, 8, 12])
        required = rng.choice([Locality.NODE, Locality.RACK, Locality.FLEET])
        request = make_request(
            f"j{n}/train", gpus=gpus, preemptible=rng.random() < 0.9, walltime_s=1e6,
            required=required if gpus <= 8 else Locality.FLEET,
        )  # fmt: skip
        world.submit(request)
        world.cycle()
        world.pending.clear()
        n += 1
    for key, each in world.running.items():
        begun = NOW - rng.uniform(600.0, 86_400.0)
        saved = rng.uniform(begun, NOW) if rng.random() < 0.7 else None
        world.running[key] = replace(each, started_at=begun, last_checkpoint_at=saved)
    wanted = rng.choice([2, 4, 8, 12, 16])
    required = Locality.FLEET if wanted > 16 else rng.choice([Locality.RACK, Locality.FLEET])
    world.submit(_urgent(gpus=wanted, required=Locality.NODE if wanted <= 4 else required))
    return world


def _lost(world: World, keys: tuple[str, ...]) -> float:
    return sum(
        lost_gpu_s(
            gpus=len(world.running[key].placement.gpus),
            started_at=world.running[key].started_at,
            last_checkpoint_at=world.running[key].last_checkpoint_at,
            now=world.now,
        )
        for key in keys
    )


def _best(world: World) -> float | None:
    """Return the least work that has to be lost, by all sets of jobs; None: none is enough."""
    may = [key for key, each in world.running.items() if each.request.preemptible]
    (pending,) = world.pending.values()
    sets = (keys for count in range(1, len(may) + 1) for keys in combinations(may, count))
    for keys in sorted(sets, key=lambda keys: _lost(world, keys)):
        cluster = world.cluster.copy()
        cluster.free_all(
            [(world.running[key].placement, world.running[key].request) for key in keys]
        )
        if not isinstance(place(cluster, pending.request), Refusal):
            return _lost(world, keys)
    return None


def _ratio(seed: int) -> float | None:
    """Return the work that is lost beside the least; None where nobody has to give way, or can."""
    world = _some_fleet(seed)
    (pending,) = world.pending.values()
    if not isinstance(place(world.cluster, pending.request), Refusal):
        return None
    best = _best(world)
    decisions = world.cycle()
    lost = _lost(world, tuple(each.key for each in decisions.preempt))
    if best is None:
        assert decisions.preempt == ()
        return None
    assert decisions.preempt
    return lost / max(best, 1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_on_small_fleets_as_little_work_is_lost_as_can_be(seed: int) -> None:
    ratio = _ratio(seed)
    assert ratio is None or ratio <= 1.05


@pytest.mark.slow
def test_the_work_that_is_lost_beside_the_best_over_many_small_fleets() -> None:
    # Seeds by a rule set down before the first run: the first 300 whole numbers.
    found = [ratio for seed in range(300) if (ratio := _ratio(seed)) is not None]
    assert len(found) > 50
    assert sum(found) / len(found) <= 1.02
    assert max(found) <= 1.25
