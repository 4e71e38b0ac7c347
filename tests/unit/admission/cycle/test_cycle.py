"""What a cycle decides: who starts, who waits and why, who gives way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.gates import gates
from admission.core.preempting import PreemptionPolicy
from admission.core.reasons import ReasonToken
from admission.core.request import Locality
from admission.core.snapshot import (
    ClassRules,
    ConcurrencyCap,
    Pending,
    ProjectShare,
    Tuning,
    Unmet,
)
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request

#: What these tests are about is not the heat of those that start at once.
CALM = Tuning(stagger_above=2.0)


def _world(*, racks: int = 1, nodes: int = 1, tuning: Tuning = CALM, **values: Any) -> World:
    fleet_values = {
        name: values.pop(name) for name in ("budget_w", "zone_w", "sites") if name in values
    }
    values.setdefault("preemption", PreemptionPolicy(least_runtime_s=0.0))
    return World(make_arrays(racks=racks, nodes=nodes, **fleet_values), tuning=tuning, **values)


def _started(decisions: Decisions) -> set[str]:
    return {each.request.job for each in decisions.admitted}


def _why(decisions: Decisions, job: str) -> ReasonToken:
    return decisions.waiting[f"{job}/train"].dominant.token


def test_nothing_waits_and_nothing_is_decided() -> None:
    decisions = _world().cycle()
    assert decisions.admitted == ()
    assert decisions.waiting == {}


def test_what_fits_starts_with_its_steps_told() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    [one] = world.cycle().admitted
    assert len(one.placement.gpus) == 8
    assert all(step.passed for step in one.trace)
    assert [step.check for step in one.trace] == [
        "order", "gates", "quota and caps", "fleet", "reservations", "thermal ramp",
    ]  # fmt: skip


def test_a_snapshot_is_left_as_it_is() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    snapshot = world.snapshot()
    first, second = decide(snapshot), decide(snapshot)
    assert first.admitted == second.admitted
    assert snapshot.cluster.gpu_free.all()


def test_the_first_in_order_gets_what_only_one_can_have() -> None:
    world = _world()
    world.submit(make_request("low/train", gpus=8))
    world.submit(make_request("high/train", gpus=8, priority=5))
    decisions = world.cycle()
    assert _started(decisions) == {"high"}
    waiting = decisions.waiting["low/train"]
    assert waiting.dominant.token is ReasonToken.GPU_SHORTAGE
    assert waiting.position == 1
    assert waiting.trace[-1].check == "fleet"
    assert not waiting.trace[-1].passed


@pytest.mark.parametrize(
    ("values", "token"),
    [
        ({"spec_error": "class vanished is gone"}, ReasonToken.SPEC_INVALID),
        ({"held_by": "operator ann"}, ReasonToken.ON_HOLD),
        ({"waits_for": ("prep", "clean")}, ReasonToken.DEPENDENCY_PENDING),
        ({"needs": (Unmet("job prep to end"),)}, ReasonToken.DEPENDENCY_PENDING),
        (
            {"needs": (Unmet("job a to end"), Unmet("job b to succeed", "that has failed"))},
            ReasonToken.DEPENDENCY_NEVER_MET,
        ),
        ({"not_before": NOW + 60.0}, ReasonToken.ON_HOLD),
    ],
)
def test_what_is_kept_back_is_not_tried(values: dict[str, Any], token: ReasonToken) -> None:
    world = _world()
    world.submit(make_request("a/train"), **values)
    decisions = world.cycle()
    assert decisions.admitted == ()
    assert _why(decisions, "a") is token


@pytest.mark.parametrize(
    ("waits_for", "needs", "sentences"),
    [
        (("prep",), (), ["waits for phase prep to succeed"]),
        (("prep", "b"), (), ["waits for phase prep and 1 more to succeed"]),
        ((), (Unmet("job b to end"),), ["waits for job b to end"]),
        (
            ("prep",),
            (Unmet("job b to end"),),
            ["waits for phase prep to succeed, and 1 more"],
        ),
        (
            (),
            (Unmet("job b to fail", "that has succeeded"),),
            [
                "can never begin: waits for job b to fail, and that has succeeded; cancel it, or"
                " let it begin without: headroom waive a"
            ],
        ),
    ],
)
def test_what_it_waits_for_is_named_with_the_way_out(
    waits_for: tuple[str, ...], needs: tuple[Unmet, ...], sentences: list[str]
) -> None:
    pending = Pending(make_request("a/train"), waits_for=waits_for, needs=needs)
    assert [each.sentence for each in gates(pending, NOW)] == sentences


@pytest.mark.parametrize(
    ("rests_s", "sentence"),
    [
        (60.0, "rests for 60 s more before it is started again"),
        (0.4, "has rested, and may start again with the next look"),
    ],
)
def test_what_rests_says_for_how_long(rests_s: float, sentence: str) -> None:
    (reason,) = gates(Pending(make_request("a/train"), not_before=NOW + rests_s), NOW)
    assert reason.sentence == sentence


def test_what_rests_until_a_time_starts_at_that_time() -> None:
    world = _world()
    world.submit(make_request("a/train"), not_before=NOW + 60.0)
    world.now += 60.0
    assert _started(world.cycle()) == {"a"}


# --- Quota and caps -------------------------------------------------------------------------------


def test_a_project_gets_no_more_gpus_than_its_quota() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=4)})
    world.submit(make_request("a/train", gpus=3))
    world.submit(make_request("b/train", gpus=3, submitted_at=NOW + 1))
    decisions = world.cycle()
    assert _started(decisions) == {"a"}
    reason = decisions.waiting["b/train"].dominant
    assert reason.token is ReasonToken.QUOTA_EXCEEDED
    assert (reason.need, reason.have, reason.unit) == (3.0, 1.0, "GPUs")
    assert "short 2 GPUs" in reason.sentence


def test_an_elastic_job_starts_with_what_its_quota_leaves() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=4)})
    world.submit(make_request("a/train", gpus=8, min_gpus=2))
    [one] = world.cycle().admitted
    assert len(one.placement.gpus) == 4
    assert one.placement.slowdown == pytest.approx(0.5)


def test_a_project_draws_no_more_than_its_quota_of_power() -> None:
    world = _world(projects={"vision": ProjectShare("vision", power_quota_w=6_000.0)})
    world.submit(make_request("a/train", gpus=4))
    world.submit(make_request("b/train", gpus=4, submitted_at=NOW + 1))
    decisions = world.cycle()
    assert _started(decisions) == {"a"}
    assert decisions.waiting["b/train"].dominant.unit == "W"
    assert _why(decisions, "b") is ReasonToken.QUOTA_EXCEEDED


def test_an_elastic_job_starts_with_as_many_gpus_as_the_watts_of_its_project_are_for() -> None:
    world = _world(projects={"vision": ProjectShare("vision", power_quota_w=6_000.0)})
    world.submit(make_request("a/train", gpus=8, min_gpus=2))
    [one] = world.cycle().admitted
    # A fifth one would take 1,275 W more.
    assert (len(one.placement.gpus), one.placement.total_w) == (4, 5_100.0)
    assert one.placement.slowdown == pytest.approx(0.5)


def test_an_elastic_job_without_watts_for_its_fewest_gpus_is_told_of_these_and_is_next() -> None:
    world = _world(nodes=2, projects={"vision": ProjectShare("vision", power_quota_w=7_000.0)})
    world.submit(make_request("a/train", gpus=2))
    world.cycle()
    world.submit(make_request("b/train", gpus=8, min_gpus=4, gpus_per_node=4, priority=1))
    world.submit(make_request("c/train", gpus=2, walltime_s=7200.0))
    decisions = world.cycle()
    reason = decisions.waiting["b/train"].dominant
    assert (reason.token, reason.unit) == (ReasonToken.QUOTA_EXCEEDED, "W")
    assert reason.need == 2.0 * world.running["a/train"].placement.total_w
    assert decisions.waiting["c/train"].dominant.evidence["kept_for"] == "b/train"


def test_another_project_is_not_kept_from_what_one_may_not_have() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=0)})
    world.submit(make_request("a/train", gpus=8, priority=9))
    world.submit(make_request("b/train", gpus=8, project="speech"))
    assert _started(world.cycle()) == {"b"}


def test_small_jobs_do_not_eat_up_the_quota_that_a_large_one_waits_for() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=4)})
    world.submit(make_request("runs/train", gpus=2))
    world.cycle()
    world.submit(make_request("large/train", gpus=4, priority=5))
    world.submit(make_request("small/train", gpus=1, walltime_s=7200.0))
    world.submit(make_request("short/train", gpus=1, walltime_s=1800.0))
    decisions = world.cycle()
    assert _started(decisions) == {"short"}
    assert _why(decisions, "small") is ReasonToken.BACKFILL_RESERVATION
    assert decisions.waiting["small/train"].dominant.evidence["kept_for"] == "large/train"


def test_what_is_over_its_quota_of_power_alone_keeps_no_gpus_from_its_project() -> None:
    share = ProjectShare("vision", gpu_quota=8, power_quota_w=6_000.0)
    world = _world(nodes=2, projects={"vision": share})
    world.submit(make_request("giant/train", gpus=8, priority=9))
    world.submit(make_request("a/train", gpus=2, walltime_s=1e6))
    decisions = world.cycle()
    assert _started(decisions) == {"a"}
    assert _why(decisions, "giant") is ReasonToken.QUOTA_EXCEEDED


def test_a_class_runs_no_more_jobs_than_it_may() -> None:
    world = _world(classes={"training": ClassRules("training", max_running=1)})
    world.submit(make_request("a/train"))
    world.submit(make_request("b/train", submitted_at=NOW + 1))
    decisions = world.cycle()
    assert _started(decisions) == {"a"}
    assert _why(decisions, "b") is ReasonToken.CONCURRENCY_CAP


def test_a_restriction_on_a_place_lets_only_so_many_jobs_run_there() -> None:
    cap = ConcurrencyCap(Scope(ScopeKind.RACK, "s1/A01"), 1, restriction_id=7, reason="hot")
    world = _world(racks=2, caps=(cap,))
    for name in "abc":
        world.submit(make_request(f"{name}/train", gpus=1, required=Locality.RACK))
    assert _started(world.cycle()) == {"a", "b", "c"}
    in_rack = [each for each in world.running.values() if "s1/A01" in each.placement.racks]
    assert len(in_rack) == 1


def test_where_only_the_capped_place_is_left_the_cap_is_the_reason() -> None:
    cap = ConcurrencyCap(Scope(ScopeKind.SITE, "s1"), 1, restriction_id=7, reason="hot")
    world = _world(racks=2, caps=(cap,))
    world.submit(make_request("a/train"))
    world.submit(make_request("b/train", submitted_at=NOW + 1))
    decisions = world.cycle()
    reason = decisions.waiting["b/train"].dominant
    assert reason.token is ReasonToken.CONCURRENCY_CAP
    assert reason.evidence["restrictions"] == [7]
    world.end("a/train")
    assert _started(world.cycle()) == {"b"}


# --- Backfill -------------------------------------------------------------------------------------


def _half_full() -> World:
    """A node of eight GPUs, four of which run for an hour, and a job that wants all of it."""
    world = _world()
    world.submit(make_request("runs/train", gpus=4, walltime_s=3600.0))
    world.cycle()
    world.submit(make_request("head/train", gpus=8, priority=5))
    return world


def test_a_job_that_ends_before_the_blocked_one_can_start_goes_ahead() -> None:
    world = _half_full()
    world.submit(make_request("short/train", gpus=4, walltime_s=3000.0))
    assert _started(world.cycle()) == {"short"}


def test_a_job_that_would_put_off_the_blocked_one_waits_and_is_told_for_whom() -> None:
    world = _half_full()
    world.submit(make_request("long/train", gpus=1, walltime_s=4000.0))
    decisions = world.cycle()
    assert _started(decisions) == set()
    reason = decisions.waiting["long/train"].dominant
    assert reason.token is ReasonToken.BACKFILL_RESERVATION
    # Beside the sentence: not all who read that may know the name.
    assert reason.evidence["kept_for"] == "head/train"
    assert "another job" in reason.sentence
    assert "head/train" not in reason.sentence
    assert decisions.waiting["long/train"].trace[-1].check == "reservations"


def test_a_long_job_goes_ahead_where_it_is_in_nobodys_way() -> None:
    world = _world(racks=2)
    world.submit(make_request("runs/train", gpus=5, required=Locality.NODE))
    world.cycle()
    # Eight of the 16 GPUs go to the head when the five are free, on one node or the other.
    world.submit(make_request("other/train", gpus=4, required=Locality.NODE, walltime_s=1e6))
    world.cycle()
    world.submit(make_request("head/train", gpus=8, required=Locality.NODE, priority=5))
    world.submit(make_request("beside/train", gpus=4, walltime_s=1e6))
    world.submit(make_request("in-the-way/train", gpus=2, walltime_s=1e6))
    decisions = world.cycle()
    assert _started(decisions) == {"beside"}
    assert _why(decisions, "in-the-way") is ReasonToken.BACKFILL_RESERVATION


def test_small_long_jobs_never_starve_a_large_one() -> None:
    world = _world(nodes=2)
    large = make_request("large/train", gpus=16, walltime_s=600.0)
    for n in range(16):
        world.submit(make_request(f"s{n}/train", walltime_s=1000.0 + n, priority=1))
    world.cycle()
    world.submit(large)
    for n in range(16, 400):
        world.now += 60.0
        world.end_due()
        world.submit(make_request(f"s{n}/train", walltime_s=1000.0 + n, submitted_at=world.now))
        if "large" in _started(world.cycle()):
            return
    pytest.fail("the large job never started")


def test_what_never_fits_keeps_nothing_from_others() -> None:
    world = _world()
    world.submit(make_request("giant/train", gpus=64, priority=9))
    world.submit(make_request("a/train", gpus=8, walltime_s=1e6))
    assert _started(world.cycle()) == {"a"}


def test_nothing_more_starts_when_nothing_happened() -> None:
    world = _half_full()
    for n in range(6):
        world.submit(make_request(f"w{n}/train", gpus=1, walltime_s=1000.0 + 900.0 * n))
    world.cycle()
    assert world.cycle().admitted == ()


# --- Staggered starts -----------------------------------------------------------------------------


def _hot_world() -> World:
    # Two nodes at full power are 20.4 kW of heat, of which the zone takes 21 kW.
    return _world(nodes=2, zone_w=21_000.0, tuning=Tuning())


def test_starts_in_a_busy_zone_are_staggered() -> None:
    world = _hot_world()
    world.submit(make_request("a/train", gpus=6))
    world.submit(make_request("b/train", gpus=6, submitted_at=NOW + 1))
    decisions = world.cycle()
    assert _started(decisions) == {"a"}
    reason = decisions.waiting["b/train"].dominant
    assert reason.token is ReasonToken.STAGGERED_START
    assert reason.scope == Scope(ScopeKind.ZONE, "s1/zone-A")
    world.now += 59.0
    assert _started(world.cycle()) == set()
    world.now += 2.0
    assert _started(world.cycle()) == {"b"}


def test_the_place_of_one_that_is_staggered_is_nobody_elses() -> None:
    world = _hot_world()
    world.submit(make_request("a/train", gpus=6, priority=2))
    world.submit(make_request("b/train", gpus=6, priority=1))
    world.submit(make_request("c/train", gpus=6, walltime_s=60.0))
    decisions = world.cycle()
    assert _started(decisions) == {"a"}
    world.now += 61.0
    assert _started(world.cycle()) == {"b"}


def test_a_trickle_of_small_jobs_does_not_keep_a_large_one_from_starting() -> None:
    world = _hot_world()
    world.submit(make_request("base/train", gpus=8, required=Locality.NODE))
    world.cycle()
    world.submit(make_request("large/train", gpus=6))
    for n in range(40):
        world.now += 20.0
        world.end_due()
        world.submit(make_request(f"s{n}/train", walltime_s=10.0, submitted_at=world.now))
        if "large" in _started(world.cycle()):
            return
    pytest.fail("the large job never started")


# --- Giving way -----------------------------------------------------------------------------------

URGENT = {
    "training": ClassRules("training"),
    "urgent": ClassRules("urgent", priority=50, preempts=True),
}


def _urgent(gpus: int = 4, **values: Any) -> Any:
    return make_request("urgent/train", gpus=gpus, job_class="urgent", priority=50, **values)


def test_the_job_that_loses_least_gives_way() -> None:
    world = _world(classes=URGENT)
    for name in ("saved", "unsaved"):
        world.submit(make_request(f"{name}/train", gpus=4, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.now += 3600.0
    world.running["saved/train"] = replace(
        world.running["saved/train"], last_checkpoint_at=world.now - 60.0
    )
    world.submit(_urgent())
    decisions = world.cycle()
    [one] = decisions.preempt
    assert (one.key, one.for_key) == ("saved/train", "urgent/train")
    assert one.lost_gpu_s == 240.0
    assert one.freed_w > 2800.0
    world.now += 120.0
    world.end_due()
    assert _started(world.cycle()) == {"urgent"}


def test_nobody_gives_way_twice_or_to_one_who_may_not_ask() -> None:
    world = _world(classes=URGENT)
    world.submit(make_request("a/train", gpus=8, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.submit(make_request("b/train", gpus=8, priority=40))
    assert world.cycle().preempt == ()
    world.submit(_urgent())
    assert len(world.cycle().preempt) == 1
    assert world.cycle().preempt == ()


def test_nobody_gives_way_where_one_ahead_would_take_what_comes_free() -> None:
    world = _world(classes=URGENT)
    world.submit(make_request("a/train", gpus=8, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.submit(make_request("b/train", gpus=8, priority=90))
    world.submit(_urgent())
    decisions = world.cycle()
    assert decisions.preempt == ()
    assert "goes to jobs ahead of it" in decisions.waiting["urgent/train"].refused


def test_enough_give_way_for_those_ahead_too() -> None:
    world = _world(nodes=2, classes=URGENT)
    for name in ("a", "c"):
        world.submit(make_request(f"{name}/train", gpus=8, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.submit(make_request("b/train", gpus=8, priority=90))
    world.submit(_urgent(gpus=8))
    assert {each.key for each in world.cycle().preempt} == {"a/train", "c/train"}
    assert world.cycle().preempt == ()
    world.now += 120.0
    world.end_due()
    assert _started(world.cycle()) == {"b", "urgent"}


def test_what_is_not_preemptible_or_counts_as_much_stays() -> None:
    world = _world(classes=URGENT)
    world.submit(make_request("a/train", gpus=4, walltime_s=1e5))
    world.submit(make_request("b/train", gpus=4, walltime_s=1e5, preemptible=True, priority=45))
    world.cycle()
    world.submit(_urgent())
    assert world.cycle().preempt == ()


def test_no_more_give_way_than_are_needed() -> None:
    world = _world(nodes=4, classes=URGENT)
    for n in range(8):
        world.submit(make_request(f"j{n}/train", gpus=4, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.submit(_urgent(gpus=8, required=Locality.NODE))
    leaving = [each.key for each in world.cycle().preempt]
    assert len(leaving) == 2
    nodes = {world.running[key].placement.nodes for key in leaving}
    assert len(nodes) == 1


def test_what_others_leave_is_kept_for_the_one_they_leave_it_for() -> None:
    world = _world(classes=URGENT)
    world.submit(make_request("a/train", gpus=4, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.submit(_urgent(gpus=8))
    world.submit(make_request("long/train", gpus=4))
    decisions = world.cycle()
    assert [each.key for each in decisions.preempt] == ["a/train"]
    assert _why(decisions, "long") is ReasonToken.BACKFILL_RESERVATION
    world.now += 120.0
    world.end_due()
    assert _started(world.cycle()) == {"urgent"}
