from __future__ import annotations

from typing import Any

import pytest
from django.forms.models import model_to_dict
from pytest_django import DjangoAssertNumQueries

from accounts.models import AuditEntry, User
from accounts.roles import Role
from admission.jobs import actions, catalog
from admission.jobs.actions import Conflict
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from admission.jobs.requests import request_of
from headroom.jobs.reading import SpecError, convert
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.integration.admission.jobs.conftest import (
    chain,
    make_project,
    now,
    states,
    submit,
)
from tests.unit.headroom.jobs.specs import ARTIFACTS, make_phase, make_spec

pytestmark = pytest.mark.django_db


def problem(user: User, *phases: dict[str, Any], **spec: Any) -> tuple[str, str]:
    """Return code and field of the first thing that is wrong with a submission."""
    with pytest.raises(SpecError) as caught:
        submit(user, *phases, **spec)
    assert not Job.objects.exists()
    first = caught.value.problems[0]
    return first.code, first.field


def let_go(phase: Phase) -> Attempt:
    """Have an attempt of ``phase`` run."""
    phase.state, phase.started_at = Phase.State.RUNNING, now()
    phase.save()
    return Attempt.objects.create(
        phase=phase, number=1, key=f"{phase.key}/1", executor="local", dispatched_at=now(),
        placement={"nodes": [], "gpus": {}, "power_cap_w": None},
    )  # fmt: skip


# --- Submitting -----------------------------------------------------------------------------------


def test_a_job_is_kept_with_its_phases_and_what_the_solver_is_asked(ada: User) -> None:
    job = submit(ada, *chain("prepare", "train"), priority=-3, labels={"team": "a"})
    assert job.name.startswith("vision-")
    assert (job.submitted_by, job.project.name, job.labels) == ("ada", "vision", {"team": "a"})
    assert states(job) == {"": "queued", "prepare": "queued", "train": "waiting"}
    prepare, train = job.phases.all()
    assert (prepare.queued_at, train.queued_at) == (job.submitted_at, None)
    request = request_of(train)
    assert (request.key, request.priority) == (f"{job.name}/train", -13)
    assert (request.submitted_at, train.gpus) == (job.submitted_at.timestamp(), 8)
    assert AuditEntry.objects.get(action="job.submit").target == job.name
    assert job.events.get().text == "Submitted by ada"


def test_a_submission_is_few_queries(
    ada: User, fleet: SmallFleet, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    submit(ada)
    spec = convert(make_spec(*chain("a", "b", "c")))
    # One that reads; one for each of user and project, one that counts, and one that writes,
    # between the two that make a transaction of them.
    with django_assert_num_queries(7):
        actions.submit(spec, ada, now=now())


def test_what_is_written_in_one_statement_is_what_is_read(ada: User) -> None:
    spec = convert(make_spec(*chain("a", "b"), name="both", labels={"team": "a"}))
    made = actions.submit(spec, ada, now=now(), idempotency_key="k")
    kept = Job.objects.get(name="both")
    assert model_to_dict(kept) == model_to_dict(made.job)
    assert kept.submitted_at == made.job.submitted_at
    assert [model_to_dict(each) for each in kept.phases.all()] == [
        model_to_dict(each) for each in made.phases
    ]
    assert kept.phases.get(name="a").queued_at == kept.submitted_at


def test_of_a_submission_that_is_refused_nothing_is_written(ada: User) -> None:
    submit(ada, name="first")
    counts = [model.objects.count() for model in (Job, Phase, JobEvent, AuditEntry)]
    with pytest.raises(Conflict):
        submit(ada, name="first")
    assert [model.objects.count() for model in (Job, Phase, JobEvent, AuditEntry)] == counts


def test_the_same_submission_is_one_job(ada: User) -> None:
    spec = convert(make_spec(name="train-1"))
    first = actions.submit(spec, ada, now=now(), idempotency_key="k1")
    again = actions.submit(spec, ada, now=now(), idempotency_key="k1")
    assert (first.created, again.created) == (True, False)
    assert again.job == first.job
    assert Job.objects.count() == Phase.objects.count() == JobEvent.objects.count() == 1


def test_a_key_is_of_one_submission_of_one_user(ada: User, operator: User) -> None:
    actions.submit(convert(make_spec()), ada, now=now(), idempotency_key="k1")
    other = convert(make_spec(make_phase("other")))
    with pytest.raises(Conflict) as caught:
        actions.submit(other, ada, now=now(), idempotency_key="k1")
    assert caught.value.code == "idempotency_key_used"
    actions.submit(convert(make_spec()), operator, now=now(), idempotency_key="k1")
    assert Job.objects.count() == 2


def test_a_name_is_given_once(ada: User) -> None:
    submit(ada, name="train-1")
    with pytest.raises(Conflict) as caught:
        submit(ada, name="train-1")
    assert caught.value.code == "name_taken"


@pytest.mark.parametrize(
    ("phase", "code", "field"),
    [
        ({"gang": {"gpus": 8, "models": ["H100", "H1000"]}}, "unknown_hardware_model",
         "phases[0].gang.models[1]"),
        ({"locality": {"sites": ["atlantis"]}}, "unknown_site", "phases[0].locality.sites[0]"),
        ({"locality": {"data_site": "atlantis"}}, "unknown_site", "phases[0].locality.data_site"),
        ({"locality": {"storage": "oslo/tape"}}, "unknown_storage_endpoint",
         "phases[0].locality.storage"),
        ({"thermal": {"cooling": ["ice"]}}, "unknown_kind_of_cooling",
         "phases[0].thermal.cooling[0]"),
        ({"walltime_s": 28_801}, "above_class", "phases[0].walltime_s"),
        ({"restart": {"tolerance": "failure"}}, "not_pinned", "phases[0].artifacts.image"),
        ({"throttling": {"responses": ["migrate"]}}, "not_pinned", "phases[0].artifacts.image"),
        ({"checkpoint": {"cross_site": "required"}}, "required",
         "phases[0].checkpoint.interval_s"),
    ],
)  # fmt: skip
def test_what_only_the_server_knows_is_refused_with_its_path(
    fleet: SmallFleet, ada: User, phase: dict[str, Any], code: str, field: str
) -> None:
    assert problem(ada, make_phase(**phase)) == (code, field)


def test_a_name_that_is_nearly_right_is_proposed(fleet: SmallFleet, ada: User) -> None:
    with pytest.raises(SpecError) as caught:
        submit(ada, make_phase(gang={"gpus": 1, "models": ["H10O"]}))
    assert caught.value.problems[0].hint == "do you mean 'H100'?"


def test_known_names_are_taken(fleet: SmallFleet, ada: User) -> None:
    job = submit(ada, make_phase(
        gang={"gpus": 4, "models": ["H100"]}, thermal={"cooling": ["rear-door"]},
        locality={"sites": ["oslo"], "data_site": "oslo"},
    ))  # fmt: skip
    assert request_of(job.phases.get()).sites == ("oslo",)


def test_an_unknown_class_and_project_are_told_together(ada: User) -> None:
    with pytest.raises(SpecError) as caught:
        submit(ada, project="nlp", **{"class": "low-power-experimentatio"})
    assert [(each.code, each.hint) for each in caught.value.problems] == [
        ("unknown_project", "there are: vision"),
        ("unknown_class", "do you mean 'low-power-experimentation'?"),
    ]


def test_a_project_takes_jobs_of_its_members_and_of_operators(
    ada: User, bob: User, operator: User
) -> None:
    assert problem(bob) == ("unknown_project", "project")
    assert problem(make_user(Role.VIEWER)) == ("unknown_project", "project")
    assert submit(operator).submitted_by == "olga"
    for user in (ada, bob, operator):
        for name in ("vision", "speech", "nothing"):
            found = catalog.for_submission(user, name).project
            assert found == Project.objects.open_to(user).filter(name=name).first()


def test_inputs_of_what_may_be_stopped_and_started_again_are_pinned(ada: User) -> None:
    given = {"class": "high-density-training"}
    with pytest.raises(SpecError) as caught:
        submit(ada, **given)
    assert [each.field for each in caught.value.problems] == [
        "phases[0].artifacts.image",
        "phases[0].artifacts.code_revision",
        "phases[0].artifacts.data",
    ]
    assert "high-density-training" in caught.value.problems[0].message
    assert submit(ada, make_phase(artifacts=ARTIFACTS), **given).state == "queued"


def test_only_operators_pass_over_other_projects(ada: User, operator: User) -> None:
    assert problem(ada, priority=1) == ("not_allowed", "priority")
    assert submit(operator, priority=1).priority == 1


def test_fewer_gpus_than_a_class_has_are_to_be_asked_for(ada: User) -> None:
    build = {"class": "latency-sensitive-inference-build"}
    assert problem(ada, make_phase(gang={"gpus": 513}), **build) == (
        "above_class", "phases[0].gang.gpus",
    )  # fmt: skip
    elastic = make_phase(gang={"gpus": 1024, "min_gpus": 512})
    assert submit(ada, elastic, **build).state == "queued"


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
        ({"gpus": 0}, "invalid_field"),
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
