"""Job arrays: one submission, elements that come as there is room, one line in the queue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import AuditEntry, User
from admission.cycle import dispatch
from admission.jobs import actions, elements, progress, submission
from admission.jobs.limits import OverLimit
from admission.jobs.models import Attempt, Job, Phase
from admission.jobs.resolution import request_of
from admission.jobs.submission import Conflict
from headroom.jobs.reading import convert
from tests.builders.jobs import make_attempt
from tests.integration.admission.jobs.conftest import chain, client_as, make_project, now, submit
from tests.unit.headroom.jobs.specs import make_phase, make_spec

pytestmark = pytest.mark.django_db
State = Phase.State


def names(job: Job, *states: str) -> list[str]:
    found = job.phases.filter(state__in=states) if states else job.phases.all()
    return [phase.name for phase in found]


def begin(job: Job, *some: str) -> None:
    rows = job.phases.filter(name__in=some)
    progress.phases_began(rows)
    rows.update(state=State.RUNNING, started_at=now())


def end(job: Job, *some: str, state: Phase.State = State.SUCCEEDED) -> None:
    for name in some:
        progress.phase_ended(job.phases.get(name=name), state, now())


def state_of(job: Job) -> str:
    return str(Job.objects.get(pk=job.pk).state)


def counts(job: Job) -> dict[str, int]:
    job.refresh_from_db()
    return {name: count for name, count in elements.counts_of([job])[job.pk].items() if count}


class TestComing:
    def test_no_more_come_than_run_at_once_and_others_follow_in_order(self, ada: User) -> None:
        job = submit(ada, array="1-9:2%2")
        assert names(job) == ["train.1"]
        assert elements.release(now()) == 1
        assert names(job) == ["train.1", "train.3"]
        begin(job, "train.1", "train.3")
        assert elements.release(now()) == 0
        end(job, "train.1")
        assert elements.release(now()) == 1
        assert names(job, "queued") == ["train.5"]
        assert counts(job) == {"left": 2, "waiting": 1, "running": 1, "succeeded": 1}

    def test_a_long_one_is_in_the_queue_in_part_and_counts_as_far(self, ada: User) -> None:
        job = submit(ada, array="0-9999")
        assert elements.release(now()) == 99
        assert elements.release(now()) == 0
        assert client_as(ada).get("/api/v1/users/ada/limits").json()["pending_phases"] == 100
        begin(job, *[f"train.{index}" for index in range(30)])
        assert elements.release(now()) == 30
        assert counts(job) == {"left": 9_870, "waiting": 100, "running": 30}

    def test_to_submit_a_long_one_takes_no_more_than_one_job(
        self, ada: User, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        submit(ada)
        spec = convert(make_spec(array="0-9999"))
        with django_assert_num_queries(5):
            submission.submit(spec, ada, now=now())

    def test_each_element_runs_all_phases(self, ada: User) -> None:
        job = submit(ada, *chain("prepare", "train"), array="0-1")
        elements.release(now())
        assert names(job) == ["prepare.0", "train.0", "prepare.1", "train.1"]
        end(job, "prepare.1")
        assert names(job, "queued") == ["prepare.0", "train.1"]
        assert job.phases.get(name="train.1").needs == ["prepare.1"]
        end(job, "prepare.0", state=State.FAILED)
        assert names(job, "cancelled") == ["train.0"]
        end(job, "train.1")
        assert state_of(job) == "failed"

    def test_it_waits_for_the_fleet_from_when_it_came(self, ada: User) -> None:
        job = submit(ada, array="0-1")
        later = now()
        elements.release(later)
        first, second = map(request_of, job.phases.all())
        assert first.submitted_at == job.submitted_at.timestamp()
        assert (second.submitted_at, second.key) == (later.timestamp(), f"{job.name}/train.1")

    def test_it_has_succeeded_once_all_have(self, ada: User) -> None:
        job = submit(ada, array="0-2%1")
        for index in range(3):
            begin(job, f"train.{index}")
            assert state_of(job) == "running"
            end(job, f"train.{index}")
            elements.release(now())
        assert state_of(job) == "succeeded"
        assert elements.release(now()) == 0

    def test_its_command_is_told_its_index(self, ada: User) -> None:
        job = submit(ada, make_phase(command=["true"], env={"A": "b"}), array="5-6")
        make_attempt(job.phases.get(), {"n1": [0]})
        attempt = Attempt.objects.select_related("phase__job__project").get()
        assert dict(dispatch.work_of(attempt).env) == {
            "A": "b", "HEADROOM_ARRAY_INDEX": "5", "HEADROOM_ARRAY_COUNT": "2",
        }  # fmt: skip


class TestLimits:
    def test_it_counts_with_what_is_in_the_queue_at_once(self, ada: User) -> None:
        make_project("small", ada, max_pending_phases=10)
        submit(ada, array="0-999%10", project="small")
        with pytest.raises(OverLimit) as caught:
            submit(ada, array="0-999%11", project="small")
        assert caught.value.code == "too_many_phases"
        assert "0-99%5" in caught.value.hint

    def test_it_is_refused_where_what_comes_at_once_has_no_room(self, ada: User) -> None:
        make_project("small", ada, max_pending_phases=10)
        submit(ada, *[make_phase(f"p{index}") for index in range(6)], project="small")
        with pytest.raises(OverLimit) as caught:
            submit(ada, array="0-4", project="small")
        assert caught.value.code == "too_much_waits"


class TestActions:
    def test_elements_end_alone_whether_they_came_or_not(self, ada: User) -> None:
        job = submit(ada, array="0-9%2")
        elements.release(now())
        begin(job, "train.0")
        actions.cancel(job, ada, why="", only="0-1,5,8-9", now=now())
        assert names(job, "stopping") == ["train.0"]
        assert names(job, "cancelled") == ["train.1", "train.5", "train.8", "train.9"]
        end(job, "train.0", state=State.CANCELLED)
        elements.release(now())
        assert names(job, "queued") == ["train.2", "train.3"]
        entry = AuditEntry.objects.get(action="job.cancel")
        assert entry.detail["elements"] == "0-1,5,8-9"
        end(job, "train.2", "train.3")
        elements.release(now())
        end(job, "train.4")
        elements.release(now())
        end(job, "train.6", "train.7")
        assert state_of(job) == "cancelled"

    def test_the_last_that_are_left_can_be_ended_with_nothing_running(self, ada: User) -> None:
        job = submit(ada, array="0-2%1")
        end(job, "train.0")
        actions.cancel(job, ada, why="", only="1-2", now=now())
        assert state_of(job) == "cancelled"

    def test_all_of_it_ends(self, ada: User) -> None:
        job = submit(ada, array="0-9%1")
        begin(job, "train.0")
        actions.cancel(job, ada, why="", now=now())
        assert elements.release(now()) == 0
        assert state_of(job) == "running"
        end(job, "train.0")
        assert state_of(job) == "cancelled"
        assert counts(job) == {"left": 9, "succeeded": 1}

    @pytest.mark.parametrize(
        ("given", "only", "code"),
        [
            ({"array": "0-3"}, "4", "no_such_element"),
            ({"array": "0-3"}, "x", "no_such_element"),
            ({}, "0", "no_array"),
        ],
    )
    def test_what_it_has_not_is_refused(
        self, ada: User, given: dict[str, Any], only: str, code: str
    ) -> None:
        job = submit(ada, **given)
        with pytest.raises(Conflict) as caught:
            actions.cancel(job, ada, why="", only=only, now=now())
        assert caught.value.code == code
        assert not job.phases.filter(state="cancelled").exists()

    def test_what_is_over_is_refused_and_nothing_is_told(self, ada: User) -> None:
        job = submit(ada, array="0-3%1")
        end(job, "train.0")
        with pytest.raises(Conflict, match="over"):
            actions.cancel(job, ada, why="", only="0", now=now())
        assert not job.events.filter(kind="cancelled").exists()

    def test_those_to_come_are_held_too_and_let_go(self, ada: User) -> None:
        job = submit(ada, array="0-3%1")
        begin(job, "train.0")
        actions.hold(job, ada, why="data", now=now())
        end(job, "train.0")
        elements.release(now())
        held = job.phases.get(name="train.1")
        assert (held.held_by, held.hold_reason) == ("ada", "data")
        actions.release(job, ada, now=now())
        assert not job.phases.exclude(held_by="").exists()
        end(job, "train.1")
        elements.release(now())
        assert job.phases.get(name="train.2").held_by == ""

    def test_an_amendment_is_for_all_that_have_not_begun(self, ada: User) -> None:
        job = submit(ada, array="0-2%2")
        elements.release(now())
        begin(job, "train.0")
        actions.amend(job, "train.1", {"walltime_s": 60.0}, ada, now=now())
        end(job, "train.0")
        elements.release(now())
        walltimes = {row.name: request_of(row).walltime_s for row in job.phases.all()}
        assert walltimes == {"train.0": 3600.0, "train.1": 60.0, "train.2": 60.0}
        assert request_of(job.phases.get(name="train.1")).key == f"{job.name}/train.1"


class TestApi:
    def test_a_list_has_its_elements_in_numbers(
        self, ada: User, django_assert_max_num_queries: DjangoAssertNumQueries
    ) -> None:
        submit(ada, array="0-9999%50", name="sweep")
        elements.release(now())
        client = client_as(ada)
        (row,) = client.get("/api/v1/jobs").json()["results"]
        assert row["phases"] == []
        assert row["array"] == {
            "indices": "0-9999", "limit": 50, "gpus": 8, "elements": 10_000, "left": 9_950,
            "waiting": 50, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0,
        }  # fmt: skip

    def test_one_shows_what_is_of_interest_and_all_page_by_page(self, ada: User) -> None:
        job = submit(ada, array="0-199", name="sweep")
        elements.release(now())
        end(job, *[f"train.{index}" for index in range(60)])
        end(job, "train.70", state=State.FAILED)
        elements.release(now())
        client = client_as(ada)
        shown = client.get("/api/v1/jobs/sweep").json()["phases"]
        assert len(shown) == 100
        assert Counter(each["state"] for each in shown) == {"queued": 99, "failed": 1}
        rows = client.get("/api/v1/jobs/sweep/phases?page_size=1000").json()["results"]
        assert len(rows) == 161
        failed = client.get("/api/v1/jobs/sweep/phases?state=failed").json()["results"]
        assert [each["name"] for each in failed] == ["train.70"]
        one = client.get("/api/v1/jobs/sweep/phases?element=7").json()["results"]
        assert [each["name"] for each in one] == ["train.7"]

    def test_phases_of_others_are_not_there(self, ada: User, bob: User) -> None:
        submit(ada, array="0-9", name="sweep")
        assert client_as(bob).get("/api/v1/jobs/sweep/phases").status_code == 404

    def test_elements_are_cancelled_by_their_indices(self, ada: User) -> None:
        submit(ada, array="0-9", name="sweep")
        client = client_as(ada)
        answer = client.post(
            "/api/v1/jobs/sweep/cancel", {"elements": "3"}, content_type="application/json"
        )
        assert answer.json()["array"]["cancelled"] == 1
        answer = client.post(
            "/api/v1/jobs/sweep/cancel", {"elements": "77"}, content_type="application/json"
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_such_element")

    def test_the_same_submission_again_is_the_same_array(self, ada: User) -> None:
        spec = convert(make_spec(array="0-9"))
        first = submission.submit(spec, ada, now=now(), idempotency_key="k")
        elements.release(now())
        again = submission.submit(spec, ada, now=now(), idempotency_key="k")
        assert (again.created, again.job.pk) == (False, first.job.pk)
        assert [each.name for each in again.phases] == ["train.0"]
