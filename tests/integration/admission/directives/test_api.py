"""What people tell running jobs, who may, and what is advised."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.allocation import open_attempts
from admission.cycle import live
from admission.directives.models import Directive
from admission.executors.models import Gang
from admission.jobs.models import Attempt, Job, JobEvent
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_job
from tests.integration.admission.directives.scenes import (
    RACK,
    Clock,
    end,
    lines,
    obey,
    only,
    running,
    signals,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    return Clock(fleet, seconds_ago=30.0)


@pytest.fixture
def attempt(fleet: SmallFleet, clock: Clock) -> Attempt:
    return running(fleet, "llama", fleet.nodes_of(RACK)[:1], now=clock.now)


@pytest.fixture
def operator() -> Client:
    return api_client(role=Role.OPERATOR)


def give(client: Client, name: str = "llama", **body: Any) -> Any:
    given = {"kind": "pause", "reason": "to look at it", **body}
    return post(client, f"/api/v1/jobs/{name}/directives", given)


def post(client: Client, url: str, body: dict[str, Any]) -> Any:
    return client.post(url, body, content_type="application/json")


def test_a_pause_is_given_told_listed_and_taken_back(
    attempt: Attempt, clock: Clock, operator: Client
) -> None:
    clock.obedient = [attempt]
    (row,) = give(operator, for_s=600).json()
    assert (row["kind"], row["state"], row["is_in_force"]) == ("pause", "issued", True)
    assert AuditEntry.objects.get(action="directive.give").target == "llama"
    clock.step()
    assert signals(attempt)[-1] == ("pause", None)
    clock.step()
    (listed,) = operator.get("/api/v1/jobs/llama/directives").json()
    assert [line["kind"] for line in listed["ledger"]] == ["issued", "acknowledged", "applied"]

    taken = post(operator, f"/api/v1/directives/{row['id']}/withdraw", {"reason": "seen enough"})
    assert taken.status_code == 200
    assert taken.json()["ended_why"] == "seen enough"
    clock.step()
    assert signals(attempt)[-1] == ("resume", None)
    clock.step()
    assert lines(only())[-1] == "undone"
    again = post(operator, f"/api/v1/directives/{row['id']}/withdraw", {"reason": "again"})
    assert again.status_code == 400


def test_it_ends_by_itself(attempt: Attempt, clock: Clock, operator: Client) -> None:
    clock.obedient = [attempt]
    give(operator, kind="set_batch_scale", value=0.75, for_s=60)
    clock.step()
    assert signals(attempt)[-1] == ("set_batch_scale", 0.75)
    clock.step()
    clock.rest(90)
    assert signals(attempt)[-1] == ("set_batch_scale", 1.0)
    clock.step()
    assert lines(only())[-3:] == ["expired", "verdict", "undone"]


def test_resume_ends_the_pauses_of_others(attempt: Attempt, clock: Clock, operator: Client) -> None:
    clock.obedient = [attempt]
    give(operator)
    clock.step()
    assert give(operator, kind="resume", reason="enough").status_code == 201
    clock.step()
    assert signals(attempt)[-1] == ("resume", None)
    clock.step()
    clock.step()
    resume = Directive.objects.get(kind="resume")
    assert (resume.state, resume.is_closed) == ("verdict", True)
    assert Directive.objects.get(kind="pause").ended_by == resume.owner


@pytest.mark.slow
def test_stop_saves_first_and_leads_back_to_the_queue(
    attempt: Attempt, clock: Clock, operator: Client
) -> None:
    assert give(operator, kind="stop", reason="make room").status_code == 201
    attempt.refresh_from_db()
    assert attempt.outcome == "preempted"
    clock.step()
    assert signals(attempt) == [("checkpoint", None)]
    clock.obedient = [attempt]
    clock.step()
    clock.step()
    assert Gang.objects.get(key=attempt.key).state == "stopping"
    end(attempt, clock.now, lost_gpu_s=7200.0)
    clock.rest(60)
    row = only()
    assert row.is_closed
    assert "2.0 GPU·h of work lost" in row.note


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"kind": "set_batch_scale"}, "value", "needs a value"),
        ({"kind": "pause", "value": 1.0}, "value", "takes no value"),
        ({"kind": "set_batch_scale", "value": 1.5}, "value", "at most 1"),
        ({"kind": "set_power_cap", "value": -5}, "value", "above 0 W"),
        ({"kind": "resume_at_site"}, "kind", "not a valid choice"),
        ({"kind": "pause", "phase": "eval"}, "job", "phase 'eval'"),
        ({"for_s": 1e9}, "for_s", "less than or equal"),
        ({"reason": ""}, "reason", "blank"),
    ],
)
def test_what_cannot_be_is_refused_by_field(
    attempt: Attempt, operator: Client, body: dict[str, Any], field: str, says: str
) -> None:
    answer = give(operator, **body)
    assert answer.status_code == 400
    assert field in str(answer.json())
    assert says in str(answer.json())
    assert not Directive.objects.exists()


def test_of_a_job_that_does_not_run_it_says_so(operator: Client) -> None:
    make_job("waits")
    answer = give(operator, "waits")
    assert answer.status_code == 400
    assert "nothing of job 'waits' runs" in str(answer.json())


def test_only_those_who_may_change_a_job_tell_it_something(attempt: Attempt) -> None:
    for role in (Role.VIEWER, Role.RESPONDER):
        client = api_client(role=role)
        assert give(client).status_code == 403
        assert client.get("/api/v1/jobs/llama/directives").status_code == 200
    other = api_client(role=Role.ML_USER)
    assert give(other).status_code == 404
    assert other.get("/api/v1/jobs/llama/directives").status_code == 404
    assert other.get("/api/v1/jobs/llama/advice").status_code == 404
    user = make_user(Role.ML_USER)
    attempt.phase.job.project.members.add(user)
    mine = Client(headers=bearer(make_token(user)))
    assert give(mine).status_code == 201
    row = only()
    assert post(other, f"/api/v1/directives/{row.pk}/withdraw", {"reason": "x"}).status_code == 404
    assert Client().get("/api/v1/jobs/llama/directives").status_code == 401


def test_what_the_response_wants_is_not_taken_back_by_hand(
    attempt: Attempt, operator: Client
) -> None:
    give(operator)
    Directive.objects.update(owner="response")
    answer = post(operator, f"/api/v1/directives/{only().pk}/withdraw", {"reason": "no"})
    assert answer.status_code == 400
    assert "end what it rests on" in str(answer.json())


def test_a_person_brings_a_job_to_a_state_and_back(attempt: Attempt, operator: Client) -> None:
    url = "/api/v1/jobs/llama/fallback"
    body = {"state": "held-for-review", "reason": "loss is NaN"}
    assert post(operator, url, body).json()["state"] == "held-for-review"
    assert Job.objects.get(name="llama").fallback_state == "held-for-review"
    event = JobEvent.objects.get(kind="fallback")
    assert "primary-site → held-for-review: loss is NaN" in event.text
    assert post(operator, url, {"state": "primary-site", "reason": "looked"}).status_code == 200
    assert Job.objects.get(name="llama").fallback_state == "primary-site"
    assert post(operator, url, {"state": "moon", "reason": "x"}).status_code == 400
    Job.objects.update(state="succeeded")
    assert post(operator, url, body).status_code == 400


def test_advice_has_every_way_with_numbers(
    attempt: Attempt, fleet: SmallFleet, clock: Clock, operator: Client
) -> None:
    open_attempts.invalidate()
    live.invalidate()
    clock.power_w[fleet.nodes_of(RACK)[0]] = 600.0
    clock.now += 30
    clock.read()
    (found,) = operator.get("/api/v1/jobs/llama/advice").json()
    assert found["key"] == "llama/train"
    ways = {each["direction"]: each for each in found["options"]}
    assert set(ways) == {"out", "up", "shrink-batch", "nothing"}
    assert ways["shrink-batch"]["throughput"] == 0.5
    assert ways["nothing"]["margin"] is not None
    assert found["sentence"]
    by_class = operator.get("/api/v1/classes/high-density-training/advice").json()
    assert sum(by_class["counts"].values()) == 1
    assert operator.get("/api/v1/classes/nothing/advice").status_code == 404
    make_job("idle")
    assert operator.get("/api/v1/jobs/idle/advice").json() == []


def test_the_ledger_says_after_which_step_the_job_did_it(
    attempt: Attempt, clock: Clock, operator: Client
) -> None:
    give(operator, kind="set_batch_scale", value=0.5)
    clock.step()
    obey(attempt, done_at_step=120)
    clock.step()
    (listed,) = operator.get("/api/v1/jobs/llama/directives").json()
    assert listed["ledger"][-1]["text"].endswith("after step 120")
