"""Needs on other jobs, and on phases in other ways than to succeed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import AuditEntry, User
from admission.jobs import actions, elements, progress, submission, unlocking
from admission.jobs.models import Dependency, Job, Phase
from admission.jobs.resolution import request_of
from admission.jobs.submission import Conflict
from headroom.jobs.reading import SpecError, convert
from tests.html import html_of
from tests.integration.admission.jobs.conftest import client_as, now, states, submit
from tests.unit.headroom.jobs.specs import make_phase, make_spec

pytestmark = pytest.mark.django_db
DONE, FAILED = Phase.State.SUCCEEDED, Phase.State.FAILED


@pytest.fixture
def prepare(ada: User) -> Job:
    return submit(ada, name="prepare")


def begin(job: Job) -> None:
    progress.phases_began(job.phases.all())
    job.phases.update(state=Phase.State.RUNNING, started_at=now())


def end(job: Job, state: Phase.State = DONE, name: str = "train") -> None:
    progress.phase_ended(job.phases.get(name=name), state, now())


def refused(user: User, *phases: dict[str, Any], **spec: Any) -> tuple[str, str, str]:
    with pytest.raises(SpecError) as caught:
        submit(user, *phases, **spec)
    first = caught.value.problems[0]
    return first.code, first.field, first.message


class TestOtherJobs:
    def test_a_job_comes_into_the_queue_when_the_other_has_succeeded(
        self, ada: User, prepare: Job
    ) -> None:
        job = submit(ada, needs=[{"job": "prepare"}])
        assert states(job) == {"": "queued", "train": "waiting"}
        assert unlocking.follow(now()) == 0
        begin(prepare)
        end(prepare)
        later = now()
        assert unlocking.follow(later) == 1
        assert states(job)["train"] == "queued"
        assert job.dependencies.get().state == "met"
        # It has waited for the fleet from then on.
        assert request_of(job.phases.get()).submitted_at == later.timestamp()
        assert unlocking.follow(now()) == 0

    @pytest.mark.parametrize(
        ("when", "state", "is_met"),
        [
            ("succeeded", FAILED, False),
            ("failed", FAILED, True),
            ("failed", DONE, False),
            ("ended", FAILED, True),
        ],
    )
    def test_other_kinds_are_met_or_are_told_never_to_be(
        self, ada: User, prepare: Job, when: str, state: Phase.State, is_met: bool
    ) -> None:
        job = submit(ada, needs=[{"job": "prepare", "when": when}])
        begin(prepare)
        end(prepare, state)
        unlocking.follow(now())
        row = job.dependencies.get()
        assert row.state == ("met" if is_met else "never")
        assert states(job)["train"] == ("queued" if is_met else "waiting")
        if not is_met:
            event = job.events.get(kind="never")
            assert event.text.startswith("The job can never begin: it waits for job prepare to")

    def test_so_long_after_the_start(self, ada: User, prepare: Job) -> None:
        need = {"job": "prepare", "when": "started", "after_s": 600}
        job = submit(ada, needs=[need])
        begin(prepare)
        unlocking.follow(now())
        assert states(job)["train"] == "waiting"
        unlocking.follow(now() + timedelta(seconds=601))
        assert states(job)["train"] == "queued"

    def test_a_phase_alone_may_wait_and_all_needs_have_to_be_met(
        self, ada: User, prepare: Job
    ) -> None:
        other = submit(ada, name="other")
        needs = ["first", {"job": "prepare"}, {"job": "other", "when": "ended"}]
        job = submit(ada, make_phase("first"), make_phase("second", needs=needs))
        assert states(job) == {"": "queued", "first": "queued", "second": "waiting"}
        for each in (prepare, other):
            begin(each)
            end(each)
            unlocking.follow(now())
            assert states(job)["second"] == "waiting"
        end(job, name="first")
        assert states(job)["second"] == "queued"

    def test_one_phase_of_the_other_is_enough(self, ada: User) -> None:
        both = submit(ada, make_phase("a"), make_phase("b"), name="both")
        job = submit(ada, needs=[{"job": "both", "phase": "b"}])
        end(both, name="b")
        unlocking.follow(now())
        assert states(job)["train"] == "queued"

    def test_an_element_or_all_of_an_array(self, ada: User) -> None:
        sweep = submit(ada, name="sweep", array="0-2%1")
        one = submit(ada, needs=[{"job": "sweep", "element": 1}])
        every = submit(ada, needs=[{"job": "sweep"}])
        each_phase = submit(ada, needs=[{"job": "sweep", "phase": "train"}])
        for index, unlocked in enumerate([False, True, True]):
            end(sweep, name=f"train.{index}")
            elements.release(now())
            unlocking.follow(now())
            assert (states(one)["train"] == "queued") is unlocked
            for whole in (every, each_phase):
                assert (states(whole)["train"] == "queued") is (index == 2)

    def test_an_array_waits_as_a_whole(self, ada: User, prepare: Job) -> None:
        sweep = submit(ada, array="0-9", needs=[{"job": "prepare"}])
        assert elements.release(now()) == 0
        end(prepare)
        unlocking.follow(now())
        assert elements.release(now()) == 9
        assert set(sweep.phases.values_list("state", flat=True)) == {"queued"}

    def test_what_is_gone_never_comes(self, ada: User, prepare: Job) -> None:
        job = submit(ada, needs=[{"job": "prepare"}])
        prepare.delete()
        unlocking.follow(now())
        assert job.dependencies.get().state == "never"

    def test_one_that_is_cancelled_meanwhile_stays_so(self, ada: User, prepare: Job) -> None:
        job = submit(ada, needs=[{"job": "prepare"}])
        actions.cancel(job, ada, why="", now=now())
        end(prepare)
        unlocking.follow(now())
        assert states(job) == {"": "cancelled", "train": "cancelled"}


class TestRefused:
    def test_a_job_of_others_is_not_there(self, ada: User, bob: User, prepare: Job) -> None:
        code, field, _ = refused(bob, needs=[{"job": "prepare"}], project="speech")
        assert (code, field) == ("unknown_job", "needs[0].job")
        assert not Dependency.objects.exists()

    def test_an_operator_sees_all(self, operator: User, ada: User, prepare: Job) -> None:
        assert submit(operator, needs=[{"job": "prepare"}]).dependencies.count() == 1

    def test_a_job_that_waits_for_itself_is_named(self, ada: User) -> None:
        code, _, message = refused(ada, name="me", needs=[{"job": "me"}])
        assert (code, message) == ("cycle", "job me waits for itself: me → me")

    def test_phases_that_wait_for_each_other_in_any_way_are_named(self, ada: User) -> None:
        code, _, message = refused(
            ada,
            make_phase("a", needs=[{"phase": "b", "when": "started"}]),
            make_phase("b", needs=["a"]),
        )
        assert code == "cycle"
        assert "a" in message
        assert "b" in message

    @pytest.mark.parametrize(
        ("need", "code"),
        [
            ({}, "required"),
            ({"phase": "train"}, "required"),
            ({"job": "gone"}, "unknown_job"),
            ({"job": "prepare", "phase": "x"}, "unknown_phase"),
            ({"job": "prepare", "element": 1}, "no_such_element"),
            ({"job": "prepare", "when": "done"}, "invalid_field"),
            ({"job": "prepare", "after_s": -1}, "invalid_field"),
        ],
    )
    def test_bad_ones_say_which(
        self, ada: User, prepare: Job, need: dict[str, Any], code: str
    ) -> None:
        assert refused(ada, needs=[need])[0] == code

    def test_what_can_never_be_met_is_refused_at_once(self, ada: User, prepare: Job) -> None:
        begin(prepare)
        end(prepare, FAILED)
        code, field, message = refused(ada, needs=[{"job": "prepare"}])
        assert (code, field) == ("never_met", "needs[0]")
        assert "that has failed" in message

    def test_the_same_submission_again_is_answered_though_it_could_not_be_met_now(
        self, ada: User, prepare: Job
    ) -> None:
        spec = convert(make_spec(needs=[{"job": "prepare"}]))
        first = submission.submit(spec, ada, now=now(), idempotency_key="k")
        end(prepare, FAILED)
        again = submission.submit(spec, ada, now=now(), idempotency_key="k")
        assert (again.created, again.job.pk) == (False, first.job.pk)
        assert Dependency.objects.count() == 1


class TestSameElements:
    @pytest.fixture
    def sweep(self, ada: User) -> Job:
        job = submit(ada, name="sweep", array="0-3")
        elements.release(now())
        return job

    @pytest.fixture
    def score(self, ada: User, sweep: Job) -> Job:
        job = submit(ada, name="score", array="0-3", needs=[{"job": "sweep", "element": "same"}])
        elements.release(now())
        return job

    def test_each_comes_into_the_queue_once_its_own_has_succeeded(
        self, sweep: Job, score: Job
    ) -> None:
        assert set(states(score).values()) == {"queued", "waiting"}
        assert not score.phases.filter(state=Phase.State.QUEUED).exists()
        end(sweep, name="train.2")
        assert unlocking.follow(now()) == 1
        assert states(score) == {
            "": "queued", "train.0": "waiting", "train.1": "waiting", "train.2": "queued",
            "train.3": "waiting",
        }  # fmt: skip
        for element in (0, 1, 3):
            end(sweep, name=f"train.{element}")
        assert unlocking.follow(now()) == 3
        for element in range(4):
            end(score, name=f"train.{element}")
        assert states(score)[""] == "succeeded"

    def test_those_that_never_will_take_no_room_from_the_others(self, ada: User) -> None:
        sweep = submit(ada, name="sweep", array="0-5")
        elements.release(now())
        needs = [{"job": "sweep", "element": "same"}]
        score = submit(ada, name="score", array="0-5%2", needs=needs)
        elements.release(now())
        assert score.phases.count() == 2
        end(sweep, FAILED, name="train.0")
        end(sweep, FAILED, name="train.1")
        assert unlocking.follow(now()) == 2
        assert elements.release(now()) == 2
        end(sweep, name="train.3")
        unlocking.follow(now())
        assert states(score)["train.3"] == "queued"
        # They are told one by one, and wait for a person.
        told = score.events.filter(kind="never").values_list("text", flat=True)
        assert [each.split(" can ")[0] for each in told] == ["All of element 0", "All of element 1"]
        assert states(score)["train.0"] == "waiting"

    def test_what_is_waived_holds_for_elements_to_come(self, ada: User, sweep: Job) -> None:
        needs = [{"job": "sweep", "element": "same"}]
        score = submit(ada, name="score", array="0-3", needs=needs)
        unlocking.waive(score, ada, why="", now=now())
        elements.release(now())
        assert set(states(score).values()) == {"queued"}
        (row,) = score.dependencies.filter(element=None)
        assert row.state == "waived"

    def test_the_api_and_the_page_say_what_each_waits_for(
        self, ada: User, sweep: Job, score: Job
    ) -> None:
        client = client_as(ada)
        (need,) = client.get("/api/v1/jobs/score").json()["dependencies"]
        assert need["state"] == "each"
        assert need["text"] == "the element of the same index of job sweep to succeed"
        client.force_login(ada)
        page = html_of(client.get("/jobs/score/?phase=train.1"))
        assert "element 1 of job sweep to succeed" in page
        assert "element 2 of job sweep" not in page

    @pytest.mark.parametrize(
        ("own", "message"),
        [
            ({"array": "2-5"}, "job sweep has no element 4"),
            ({}, "this job is no array, so no element of another is the same as one of its own"),
        ],
    )
    def test_each_has_to_have_one(
        self, ada: User, sweep: Job, own: dict[str, Any], message: str
    ) -> None:
        needs = [{"job": "sweep", "element": "same"}]
        assert refused(ada, needs=needs, **own) == ("no_such_element", "needs[0].element", message)

    def test_a_job_that_is_no_array_has_none(self, ada: User, prepare: Job) -> None:
        needs = [{"job": "prepare", "element": "same"}]
        _, _, message = refused(ada, needs=needs, array="0-3")
        assert message == "job prepare has no element 0"


class TestOwnPhases:
    def test_what_cleans_up_after_a_failure_is_left_out_of_a_success(self, ada: User) -> None:
        needs = [{"phase": "train", "when": "failed"}]
        phases = [
            make_phase(), make_phase("tidy", needs=needs), make_phase("told", needs=["tidy"]),
        ]  # fmt: skip
        well, badly = submit(ada, *phases), submit(ada, *phases)
        end(well)
        end(badly, FAILED)
        unlocking.follow(now())
        assert states(well) == {
            "": "succeeded", "train": "succeeded", "tidy": "cancelled", "told": "cancelled",
        }  # fmt: skip
        assert states(badly) == {
            "": "queued", "train": "failed", "tidy": "queued", "told": "waiting",
        }  # fmt: skip
        end(badly, name="tidy")
        end(badly, name="told")
        assert states(badly)[""] == "failed"

    def test_elements_wait_for_their_own_phases_by_name_alone(self, ada: User) -> None:
        needs = [{"phase": "train", "when": "ended"}]
        code, _, _ = refused(ada, make_phase(), make_phase("tidy", needs=needs), array="0-3")
        assert code == "invalid_array"


class TestWaived:
    def test_it_begins_without_and_that_is_told(self, ada: User, prepare: Job) -> None:
        job = submit(ada, needs=[{"job": "prepare"}], name="job")
        end(prepare, FAILED)
        unlocking.follow(now())
        client = client_as(ada)
        url = "/api/v1/jobs/job/waive"
        answer = client.post(url, {"why": "done by hand"}, content_type="application/json")
        (need,) = answer.json()["dependencies"]
        assert (need["state"], need["text"]) == ("waived", "job prepare to succeed")
        assert states(job)["train"] == "queued"
        assert AuditEntry.objects.get(action="job.waive").target == "job"
        answer = client.post(url, {}, content_type="application/json")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "nothing_needed")

    def test_who_is_not_of_its_project_cannot(self, ada: User, bob: User, prepare: Job) -> None:
        submit(ada, needs=[{"job": "prepare"}], name="job")
        answer = client_as(bob).post("/api/v1/jobs/job/waive", {}, content_type="application/json")
        assert answer.status_code == 404

    def test_there_has_to_be_something(self, ada: User) -> None:
        with pytest.raises(Conflict):
            unlocking.waive(submit(ada), ada, why="", now=now())


def test_names_of_jobs_that_a_reader_does_not_see_are_not_told(
    operator: User, ada: User, bob: User, prepare: Job
) -> None:
    submit(operator, needs=[{"job": "prepare"}], name="job", project="speech")
    (need,) = client_as(bob).get("/api/v1/jobs/job").json()["dependencies"]
    assert need["job"] is None
    assert "prepare" not in need["text"]
    assert "prepare" not in str(client_as(bob).get("/api/v1/jobs/job").json())
    assert "prepare" in str(client_as(operator).get("/api/v1/jobs/job").json())


def test_a_dry_run_says_what_it_waits_for(ada: User, prepare: Job) -> None:
    answer = client_as(ada).post(
        "/api/v1/jobs?dry_run=1",
        make_spec(needs=[{"job": "prepare", "when": "ended"}]),
        content_type="application/json",
    )
    assert answer.json()["phases"][0]["needs"] == ["job prepare to end"]
