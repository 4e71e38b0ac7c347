from __future__ import annotations

import pytest

from accounts.models import AuditEntry, User
from admission.jobs import actions
from admission.jobs.models import Attempt, Job, Phase
from admission.jobs.resolution import request_of
from admission.jobs.submission import Conflict
from headroom.jobs.reading import SpecError
from tests.builders.documents import grant
from tests.builders.fleet import SmallFleet
from tests.integration.admission.jobs.conftest import (
    chain,
    make_project,
    now,
    states,
    submit,
)

pytestmark = pytest.mark.django_db


def let_go(phase: Phase) -> Attempt:
    """Have an attempt of ``phase`` run."""
    phase.state, phase.started_at = Phase.State.RUNNING, now()
    phase.save()
    return Attempt.objects.create(
        phase=phase, number=1, key=f"{phase.key}/1", executor="local", dispatched_at=now(),
        placement={"nodes": [], "gpus": {}, "power_cap_w": None},
    )  # fmt: skip


# --- Cancelling, holding --------------------------------------------------------------------------


def test_what_waits_is_cancelled_at_once(ada: User) -> None:
    job = submit(ada, *chain("a", "b"))
    cancelled = actions.cancel(job, ada, why="a typo", now=now())
    assert states(job) == {"": "cancelled", "a": "cancelled", "b": "cancelled"}
    assert cancelled.ended_at is not None
    texts = list(job.events.values_list("text", flat=True))
    assert texts[1:] == ["Cancelled by ada: a typo", "The job is cancelled"]
    detail = AuditEntry.objects.get(action="job.cancel").detail
    assert detail["why"] == "a typo"
    ((name, before),) = list(detail["before"].items())[:1]
    assert (before["state"], detail["after"][name]["state"]) == ("queued", "cancelled")


def test_what_runs_is_told_to_stop_and_is_over_when_it_has(ada: User) -> None:
    job = submit(ada, *chain("a", "b"))
    attempt = let_go(job.phases.get(name="a"))
    actions.cancel(job, ada, why="", now=now())
    assert states(job) == {"": "running", "a": "stopping", "b": "cancelled"}
    attempt.refresh_from_db()
    assert (attempt.state, attempt.outcome, attempt.why) == (
        "dispatched", "cancelled", "Cancelled by ada",
    )  # fmt: skip


def test_a_job_that_is_over_is_not_cancelled_again(ada: User) -> None:
    job = submit(ada)
    actions.cancel(job, ada, why="", now=now())
    with pytest.raises(Conflict) as caught:
        actions.cancel(job, ada, why="", now=now())
    assert (caught.value.code, str(caught.value)) == ("ended", "the job is over: cancelled")


def test_a_hold_is_of_what_waits_until_it_is_released(ada: User, operator: User) -> None:
    job = submit(ada, *chain("a", "b"))
    let_go(job.phases.get(name="a"))
    actions.hold(job, operator, why="a look first", now=now())
    held = dict(job.phases.values_list("name", "held_by"))
    assert held == {"a": "", "b": "olga"}
    assert job.phases.get(name="b").hold_reason == "a look first"
    actions.release(job, ada, now=now())
    assert not job.phases.exclude(held_by="").exists()
    with pytest.raises(Conflict):
        actions.release(job, ada, now=now())


def test_a_job_of_which_nothing_waits_cannot_be_held(ada: User) -> None:
    job = submit(ada)
    let_go(job.phases.get())
    with pytest.raises(Conflict) as caught:
        actions.hold(job, ada, why="", now=now())
    assert caught.value.code == "nothing_waits"


# --- Amending -------------------------------------------------------------------------------------


def test_a_counterfactual_is_applied_and_what_was_before_is_kept(
    fleet: SmallFleet, ada: User
) -> None:
    job = submit(ada, *chain("a", "b"))
    old = job.spec
    change = {"gpus": 4, "lowest_cap_w": 250.0, "sites": ["oslo"], "locality": "switch-domain"}
    job = actions.amend(job, "b", change, ada, now=now())
    a, b = map(request_of, job.phases.all())
    assert (a.gpus, a.lowest_cap_w, a.sites) == (8, 300.0, ())
    assert (b.gpus, b.min_gpus, b.lowest_cap_w, b.sites) == (4, 4, 250.0, ("oslo",))
    assert b.required.name == "SWITCH_DOMAIN"
    assert job.phases.get(name="b").gpus == 4
    revision = job.revisions.get()
    assert (revision.number, revision.spec, revision.replaced_by) == (1, old, "ada")
    assert job.revision == 2
    event = job.events.get(kind="amended")
    assert event.text.endswith("by ada")
    assert event.phase == "b"


def test_an_amendment_is_checked_as_a_submission_is(fleet: SmallFleet, ada: User) -> None:
    job = submit(ada)
    for change, code in (
        ({"gpus": -1}, "invalid_field"),
        ({"gpus": 0}, "required"),
        ({"sites": ["atlantis"]}, "unknown_site"),
        ({"job_class": "nothing"}, "unknown_class"),
        ({"job_class": "high-density-training"}, "not_pinned"),
        ({"priority": 1}, "not_allowed"),
    ):
        with pytest.raises(SpecError) as caught:
            actions.amend(job, "train", change, ada, now=now())
        assert caught.value.problems[0].code == code
    job.refresh_from_db()
    assert (job.revision, job.revisions.count()) == (1, 0)


def test_what_would_be_refused_can_be_asked_beforehand(ada: User) -> None:
    job = submit(ada)
    refused = actions.amendment_problems(job, "train", {"job_class": "checkpoint-heavy"})
    assert [each.code for each in refused] == ["not_pinned"] * 3
    assert actions.amendment_problems(job, "train", {"gpus": 4}) == []
    assert job.revision == 1


def test_another_class_changes_priority_and_keeps_the_terms(ada: User) -> None:
    job = submit(ada)
    before = request_of(job.phases.get())
    change = {"job_class": "latency-sensitive-inference-build"}
    with pytest.raises(SpecError) as caught:
        actions.amend(job, "train", change, ada, now=now())
    assert [each.code for each in caught.value.problems] == ["class_not_allowed"]
    grant("vision", "latency-sensitive-inference-build")
    job = actions.amend(job, "train", change, ada, now=now())
    after = request_of(job.phases.get())
    assert (before.priority, after.priority) == (-10, 40)
    kept = ("lowest_cap_w", "max_slowdown", "thermal_margin_c", "required", "preferred")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert job.job_class == after.job_class == "latency-sensitive-inference-build"


def test_only_what_waits_can_be_amended(ada: User) -> None:
    job = submit(ada)
    let_go(job.phases.get())
    with pytest.raises(Conflict) as caught:
        actions.amend(job, "train", {"gpus": 4}, ada, now=now())
    assert caught.value.code == "not_waiting"


def test_a_priority_may_be_lowered_by_its_project_and_raised_by_operators(
    ada: User, operator: User
) -> None:
    job = submit(ada, *chain("a", "b"))
    job = actions.set_priority(job, ada, -20, now=now())
    assert [request_of(each).priority for each in job.phases.all()] == [-30, -30]
    job = actions.set_priority(job, operator, 20, now=now())
    job = actions.set_priority(job, ada, 10, now=now())
    assert (job.priority, job.spec["priority"], job.revision) == (10, 10, 4)
    with pytest.raises(SpecError):
        actions.set_priority(job, ada, 11, now=now())


# --- Who may --------------------------------------------------------------------------------------


def test_who_sees_and_changes_which_jobs(ada: User, bob: User, operator: User) -> None:
    ours, theirs = submit(ada), submit(bob, project="speech")
    sets = Job.objects.visible_to, Job.objects.whole_for, Job.objects.changeable_by
    assert [set(each(ada)) for each in sets] == [{ours}, {ours}, {ours}]
    assert [set(each(operator)) for each in sets] == [{ours, theirs}, set(), {ours, theirs}]
    make_project("own", operator)
    own = submit(operator, project="own")
    assert set(Job.objects.whole_for(operator)) == {own}
