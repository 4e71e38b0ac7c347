"""Why a job waits, and what would start it: every change that is told of is true."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from admission.core.cycle.change import Burden, Change, Price
from admission.core.cycle.whatif import Explanation, dry_run, explain
from admission.core.grants import Grants
from admission.core.reasons import ReasonToken, dominant
from admission.core.request import Locality
from admission.core.snapshot import ClassRules, Pending, ProjectShare, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request
from tests.unit.admission.placement.scenes import make_restriction

CALM = Tuning(stagger_above=2.0)


def _world(*, racks: int = 1, nodes: int = 1, sites: int = 1, **values: Any) -> World:
    fleet = {name: values.pop(name) for name in ("budget_w", "zone_w", "pdu_w") if name in values}
    return World(make_arrays(sites=sites, racks=racks, nodes=nodes, **fleet), tuning=CALM, **values)


def _explained(world: World, job: str = "a") -> Explanation:
    """Explain a job, and hold each change to what it promises."""
    decisions = world.cycle()
    found = explain(decisions, f"{job}/train")
    for each in found.counterfactuals:
        started = world.applied(f"{job}/train", each, decisions).admitted
        assert {one.request.key: one.placement for one in started}.get(f"{job}/train") == (
            each.placement
        ), each
    return found


def _changes(found: Explanation) -> list[dict[str, Any]]:
    return [each.change.as_json() for each in found.counterfactuals if each.starts_now]


def test_a_job_over_its_power_starts_under_a_cap_and_is_told_how_much_slower() -> None:
    world = _world(budget_w=8_000.0)
    world.submit(make_request("a/train", gpus=8, lowest_cap_w=690.0))
    found = _explained(world)
    assert found.dominant.token is ReasonToken.RACK_POWER
    [change] = [each for each in found.counterfactuals if each.change.gpus is None]
    assert change.change.lowest_cap_w is not None
    assert change.change.lowest_cap_w % 5.0 == 0.0
    assert 0.0 < change.slowdown <= (change.change.max_slowdown or 0.0)
    assert change.sentence.startswith("starts now at ")
    assert "W per GPU (" in change.sentence


def test_a_job_starts_with_fewer_gpus() -> None:
    world = _world()
    world.submit(make_request("b/train", gpus=3, walltime_s=60.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=8))
    found = _explained(world)
    assert {"gpus": 5} in _changes(found)
    [change] = [each for each in found.counterfactuals if each.starts_now]
    assert change.slowdown == pytest.approx(3 / 8)
    assert change.sentence == "starts now with 5 of its 8 GPUs (38 % slower)"


def test_gpus_by_the_node_stay_so() -> None:
    world = _world(racks=4)
    world.submit(make_request("b/train", gpus=3, walltime_s=60.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=32, gpus_per_node=8))
    assert {"gpus": 24} in _changes(_explained(world))


def test_a_job_starts_at_another_site() -> None:
    world = _world(sites=2)
    world.submit(make_request("b/train", gpus=8, sites=("s1",)))
    world.cycle()
    world.submit(make_request("a/train", gpus=8, sites=("s1",)))
    found = _explained(world)
    assert {"sites": ["s1", "s2"]} in _changes(found)
    assert "starts now at site s2" in [each.sentence for each in found.counterfactuals]


def test_a_job_starts_further_apart() -> None:
    world = _world(racks=2)
    for name in "bc":
        world.submit(make_request(f"{name}/train", gpus=5, required=Locality.NODE))
    world.cycle()
    world.submit(make_request("a/train", gpus=6, required=Locality.NODE))
    found = _explained(world)
    assert any("locality" in each for each in _changes(found))


CLASSES = {
    "training": ClassRules("training", priority=5, max_running=1, kind_of_work="training"),
    "other": ClassRules("other", priority=2, kind_of_work="training"),
    "serving": ClassRules("serving", priority=2, kind_of_work="serving"),
    "nameless": ClassRules("nameless", priority=2),
}


def _in_the_way_of_its_class(**values: Any) -> Explanation:
    world = _world(classes=CLASSES, **values)
    world.submit(make_request("b/train", priority=5))
    world.cycle()
    world.submit(make_request("a/train", priority=5))
    found = _explained(world)
    assert found.dominant.token is ReasonToken.CONCURRENCY_CAP
    return found


def test_a_job_starts_in_a_class_of_the_same_work_that_has_a_place_free() -> None:
    assert _changes(_in_the_way_of_its_class()) == [{"job_class": "other"}]


@pytest.mark.parametrize(
    "grants",
    [
        Grants(confined={"vision": frozenset({"training", "serving"})}),
        Grants(open_classes=frozenset({"training", "serving"})),
    ],
)
def test_no_class_is_offered_that_its_project_may_not_use(grants: Grants) -> None:
    assert _changes(_in_the_way_of_its_class(grants=grants)) == []


def test_a_class_that_goes_ahead_of_others_says_of_how_many_and_comes_last() -> None:
    classes = {
        "low": ClassRules("low", priority=0, max_running=1, kind_of_work="training"),
        "high": ClassRules("high", priority=20, kind_of_work="training"),
    }
    world = _world(classes=classes)
    world.submit(make_request("b/train", gpus=2, job_class="low"))
    world.cycle()
    # What waits ahead of it is too large for what is left.
    world.submit(make_request("big/train", gpus=8, job_class="high", priority=2, project="speech"))
    world.submit(make_request("a/train", gpus=4, job_class="low", walltime_s=7200.0))
    found = _explained(world)
    [change] = [each for each in found.counterfactuals if each.change.job_class]
    assert change is found.counterfactuals[-1]
    assert change.burden == Burden(
        passed=("big/train",), own=0, gpus=4, hold_s=7200.0, put_off_s=3600.0
    )
    assert change.sentence == (
        "starts now in class high (goes ahead of 1 job that waits, and holds 4 GPUs for up to 2 h:"
        " one of them may begin 60 min later)"
    )
    assert "big" not in change.sentence


def _behind_one_that_waits() -> World:
    """Return a world in which a small job would put off a large one that is ahead of it."""
    world = _world()
    world.submit(make_request("b/train", gpus=4, walltime_s=3600.0))
    world.submit(make_request("c/train", gpus=1, walltime_s=3600.0, project="speech"))
    world.cycle()
    world.submit(make_request("big/train", gpus=8, priority=5, project="speech"))
    return world


def test_a_job_starts_if_it_takes_less_time_than_others_wait() -> None:
    world = _behind_one_that_waits()
    world.submit(make_request("a/train", gpus=2, walltime_s=7200.0, checkpoint_interval_s=600.0))
    found = _explained(world)
    assert found.dominant.token is ReasonToken.BACKFILL_RESERVATION
    [change] = [each for each in found.counterfactuals if each.starts_now]
    # A minute is left for whoever applies it.
    assert change.change.as_json() == {"walltime_s": 3540.0}
    assert change.price == Price(less_work=1.0 - 3540.0 / 7200.0)
    assert change.sentence == "starts now for 59 min of its 2 h (61 min left for another run)"


def test_a_job_without_checkpoints_is_told_what_a_shorter_run_loses_and_what_saves_it() -> None:
    world = _behind_one_that_waits()
    world.submit(make_request("a/train", gpus=2, walltime_s=7200.0))
    shorter = [each for each in _explained(world).counterfactuals if each.starts_now]
    assert [sorted(each.change.as_json()) for each in shorter] == [
        ["checkpoint_interval_s", "walltime_s"], ["walltime_s"]
    ]  # fmt: skip
    assert "writing checkpoints every 14 min" in shorter[0].sentence
    assert shorter[1].sentence.endswith("(61 min less, and what is not done is lost)")


def test_a_job_is_told_when_it_starts_as_it_is() -> None:
    world = _world()
    world.submit(make_request("b/train", gpus=8, walltime_s=1800.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=8))
    found = _explained(world)
    [change] = found.counterfactuals
    assert change.change.as_json() == {}
    assert change.change.begin_at == 60.0 * math.ceil((world.now + 1800.0) / 60.0)
    assert change.price.later_s == change.change.begin_at - world.now
    assert change.sentence.startswith("starts at 14:17 UTC as it is (30 min later, when the")


def test_no_start_is_told_where_somebody_ahead_would_have_the_place() -> None:
    world = _world(projects={"speech": ProjectShare("speech", gpu_quota=8)})
    world.submit(make_request("b/train", gpus=8, walltime_s=1800.0, project="speech"))
    world.cycle()
    # Ahead of it somebody waits for the quota that the same end gives back.
    world.submit(make_request("c/train", gpus=8, priority=5, project="speech"))
    world.submit(make_request("a/train", gpus=8))
    assert [each for each in _explained(world).counterfactuals if not each.starts_now] == []


def test_checkpoints_that_stay_at_their_site_are_offered_where_they_may_not_leave_it() -> None:
    shut = make_restriction("no_cross_site_checkpoint", "site s1")
    world = _world(restrictions=(shut,))
    world.submit(make_request("a/train", gpus=8, cross_site_checkpoint=True))
    found = _explained(world)
    assert found.dominant.token is ReasonToken.RESTRICTED
    assert _changes(found) == [{"cross_site": "optional"}]
    assert found.counterfactuals[0].sentence == "starts now with checkpoints that stay at its site"


def test_what_costs_the_team_least_comes_first() -> None:
    world = _world()
    world.submit(make_request("b/train", gpus=2, walltime_s=1200.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=8, walltime_s=36_000.0))
    found = _explained(world).counterfactuals
    # A quarter of ten hours is more than twenty minutes.
    assert [each.starts_now for each in found] == [False, True]
    delays = [each.price.delay_s(36_000.0) for each in found]
    assert delays == sorted(delays)


def test_where_one_change_is_not_enough_two_are_tried() -> None:
    world = _world(racks=2, budget_w=5_000.0)
    world.submit(make_request("b/train", gpus=2, required=Locality.NODE, walltime_s=60.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=16, checkpoint_interval_s=600.0))
    found = _explained(world)
    assert found.counterfactuals


def test_a_job_over_its_quota_starts_with_what_is_left_of_it() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=6)})
    world.submit(make_request("a/train", gpus=8))
    found = _explained(world)
    assert found.dominant.token is ReasonToken.QUOTA_EXCEEDED
    assert {"gpus": 6} in _changes(found)


def test_a_held_job_is_told_of_nothing_that_does_not_help() -> None:
    world = _world()
    world.submit(make_request("a/train"), held_by="operator ann")
    assert _explained(world).counterfactuals == ()


def test_all_reasons_are_told_by_precedence_each_once() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=6)}, budget_w=8_000.0)
    world.submit(make_request("b/train", gpus=4))
    world.cycle()
    world.submit(make_request("a/train", gpus=8))
    found = _explained(world)
    tokens = [each.token for each in found.reasons]
    assert tokens[0] is found.dominant.token is ReasonToken.QUOTA_EXCEEDED
    assert ReasonToken.GPU_SHORTAGE in tokens
    assert len(tokens) == len(set(tokens))


def test_what_others_took_in_the_same_cycle_is_said() -> None:
    world = _world()
    world.submit(make_request("b/train", gpus=8, priority=5))
    world.submit(make_request("a/train", gpus=8))
    tokens = {each.token for each in _explained(world).reasons}
    assert tokens >= {ReasonToken.GPU_SHORTAGE, ReasonToken.BEHIND_HIGHER_PRIORITY}


def test_nobody_waits_whom_nobody_knows() -> None:
    with pytest.raises(KeyError):
        explain(_world().cycle(), "nobody/train")


def test_a_change_says_what_it_changes_and_nothing_else() -> None:
    request = make_request("a/train", gpus=8, required=Locality.NODE, preferred=Locality.NODE)
    changed = Change(locality=Locality.SWITCH_DOMAIN).apply(request, {})
    assert replace(changed, required=Locality.NODE, preferred=Locality.NODE) == request
    assert Change(locality=Locality.SWITCH_DOMAIN).as_json() == {"locality": "switch-domain"}


def test_a_class_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError):
        Change(job_class="gone").apply(make_request(), {})


# --- Dry run --------------------------------------------------------------------------------------


def test_a_dry_run_says_where_a_job_would_stand() -> None:
    world = _world()
    pending = Pending(make_request("new/train", gpus=8))
    found = dry_run(world.cycle(), pending)
    world.submit(pending.request)
    assert world.cycle().admitted[0].placement == found.placement


def test_a_dry_run_says_what_would_be_in_the_way_and_what_would_help() -> None:
    world = _world()
    world.submit(make_request("runs/train", gpus=4, walltime_s=60.0))
    world.submit(make_request("first/train", gpus=8, walltime_s=60.0, priority=-1))
    decisions = world.cycle()
    found = dry_run(decisions, Pending(make_request("new/train", gpus=8, walltime_s=50.0)))
    assert found.placement is None
    assert found.position == 1
    assert found.trace[0].sentence.startswith("1 of 2: priority 0")
    assert [each.change.gpus for each in found.counterfactuals if each.starts_now] == [4]


def test_a_dry_run_tells_a_specification_that_is_wrong_by_now() -> None:
    world = _world()
    found = dry_run(world.cycle(), Pending(make_request(), spec_error="its class is gone"))
    assert found.placement is None
    assert dominant(found.reasons).token is ReasonToken.SPEC_INVALID
