from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.forms.models import model_to_dict
from pytest_django import DjangoAssertNumQueries

from accounts.models import AuditEntry, User
from accounts.roles import Role
from admission.jobs import actions, catalog, submission
from admission.jobs.models import Job, JobEvent, Phase, Project
from admission.jobs.resolution import request_of
from admission.jobs.submission import Conflict
from headroom.contracts import FieldError
from headroom.jobs.reading import SpecError, convert
from tests.builders.accounts import make_user
from tests.builders.documents import grant
from tests.builders.fleet import SmallFleet
from tests.integration.admission.jobs.conftest import (
    chain,
    now,
    states,
    submit,
)
from tests.unit.headroom.jobs.specs import ARTIFACTS, make_phase, make_spec

pytestmark = pytest.mark.django_db


def problems_of(user: User, **spec: Any) -> list[FieldError]:
    """Return all that is wrong with a submission."""
    with pytest.raises(SpecError) as caught:
        submit(user, **spec)
    return caught.value.problems


def problem(user: User, *phases: dict[str, Any], **spec: Any) -> tuple[str, str]:
    """Return code and field of the first thing that is wrong with a submission."""
    with pytest.raises(SpecError) as caught:
        submit(user, *phases, **spec)
    assert not Job.objects.exists()
    first = caught.value.problems[0]
    return first.code, first.field


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
    # One that reads; one that charges user and project, and one that writes, between the two that
    # make a transaction of them. What waits was counted a moment ago.
    with django_assert_num_queries(5):
        submission.submit(spec, ada, now=now())


def test_what_is_written_in_one_statement_is_what_is_read(ada: User) -> None:
    spec = convert(make_spec(*chain("a", "b"), name="both", labels={"team": "a"}))
    made = submission.submit(spec, ada, now=now(), idempotency_key="k")
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
    first = submission.submit(spec, ada, now=now(), idempotency_key="k1")
    again = submission.submit(spec, ada, now=now(), idempotency_key="k1")
    assert (first.created, again.created) == (True, False)
    assert again.job == first.job
    assert Job.objects.count() == Phase.objects.count() == JobEvent.objects.count() == 1


def test_a_key_is_of_one_submission_of_one_user(ada: User, operator: User) -> None:
    submission.submit(convert(make_spec()), ada, now=now(), idempotency_key="k1")
    other = convert(make_spec(make_phase("other")))
    with pytest.raises(Conflict) as caught:
        submission.submit(other, ada, now=now(), idempotency_key="k1")
    assert caught.value.code == "idempotency_key_used"
    submission.submit(convert(make_spec()), operator, now=now(), idempotency_key="k1")
    assert Job.objects.count() == 2


def test_a_deadline_that_has_passed_is_refused_and_a_repeated_submission_is_not(ada: User) -> None:
    soon = now() + timedelta(minutes=10)
    spec = convert(make_spec(begin_by=soon.isoformat()))
    first = submission.submit(spec, ada, now=now(), idempotency_key="night-7")
    later = soon + timedelta(seconds=1)
    again = submission.submit(spec, ada, now=later, idempotency_key="night-7")
    assert (again.job, again.created) == (first.job, False)
    for trying in (submission.submit, submission.try_out):
        with pytest.raises(SpecError) as caught:
            trying(spec, ada, now=later)
        (found,) = caught.value.problems
        assert (found.code, found.field) == ("in_the_past", "begin_by")
        assert found.hint == "give a later time, or leave it out"
    # What waits is changed all the same.
    actions.set_priority(first.job, ada, -5, now=later)


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


def test_whether_a_project_that_one_is_not_in_has_a_grant_is_not_told(ada: User, bob: User) -> None:
    build = {"class": "latency-sensitive-inference-build", "project": "speech"}
    before = problems_of(ada, **build)
    grant("speech", "latency-sensitive-inference-build")
    assert problems_of(ada, **build) == before
    assert all("speech" not in each.hint for each in before)


def test_fewer_gpus_than_a_class_has_are_to_be_asked_for(ada: User) -> None:
    build = {"class": "latency-sensitive-inference-build"}
    assert problem(ada, **build) == ("class_not_allowed", "class")
    grant("vision", "latency-sensitive-inference-build")
    assert problem(ada, make_phase(gang={"gpus": 513}), **build) == (
        "above_class", "phases[0].gang.gpus",
    )  # fmt: skip
    elastic = make_phase(gang={"gpus": 1024, "min_gpus": 512})
    assert submit(ada, elastic, **build).state == "queued"
