"""Baselines are told by project, phase and place, and a job beside what is normal of its like."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.jobs.models import Job
from fleet import snapshot
from tests.builders.accounted import last_hour
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.baselines import write_gang_hours
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db

URL = "/api/v1/baselines"


@pytest.fixture
def ada(db: None) -> Client:
    """A member of vision, who sees no other project."""
    user = make_user(Role.ML_USER, username="ada")
    user.projects.add(make_job("llama").project)
    return Client(headers=bearer(make_token(user)))


def ask(client: Any = None, **params: str) -> list[dict[str, Any]]:
    answer = (client or api_client(Role.OPERATOR)).get(URL, params)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["baselines"]
    return found


def test_normal_hours_and_degraded_ones_by_cause_stand_apart(db: None) -> None:
    write_gang_hours(last_hour(), *range(400, 500, 10))
    write_gang_hours(last_hour(), 300.0, 310.0, causes=["capped", "incident"])
    found = {each["cause"]: each["metrics"] for each in ask()}
    assert set(found) == {"", "capped", "incident"}
    (power,) = found[""]
    assert (power["metric"], power["unit"], power["hours"]) == ("power_w", "W", 10)
    assert (power["p10"], power["p50"], power["p90"]) == pytest.approx((409.0, 445.0, 481.0))
    assert found["capped"] == found["incident"]
    assert found["capped"][0]["p50"] == pytest.approx(305.0)


def test_places_are_sites_or_racks(db: None) -> None:
    write_gang_hours(last_hour(), 400.0)
    write_gang_hours(last_hour(), 600.0, rack="A02")
    (site,) = ask()
    assert (site["site"], site["rack"]) == ("oslo", "")
    assert site["metrics"][0]["p50"] == pytest.approx(500.0)
    racks = {each["rack"]: each["metrics"][0]["p50"] for each in ask(by="rack")}
    assert racks == {"A01": 400.0, "A02": 600.0}
    (alone,) = ask(by="rack", rack="A02")
    assert alone["rack"] == "A02"


def test_hours_outside_of_the_span_do_not_count(db: None) -> None:
    write_gang_hours(last_hour() - timedelta(days=2), 400.0)
    assert len(ask()) == 1
    assert ask(range="24h") == []


def test_an_ml_user_hears_of_the_own_projects_alone(ada: Client) -> None:
    write_gang_hours(last_hour(), 400.0)
    write_gang_hours(last_hour(), 500.0, project="speech")
    assert {each["project"] for each in ask(ada)} == {"vision"}
    assert ask(ada, project="speech") == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"by": "moon"}, "by"),
        ({"class": "batch"}, "class"),
        ({"range": "soon"}, "range"),
        ({"range": "30d"}, "from"),
        ({"range": "40d", "project": "vision"}, "from"),
    ],
)
def test_what_is_wrong_is_named(db: None, params: dict[str, str], field: str) -> None:
    answer = api_client(Role.OPERATOR).get(URL, params)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field


def test_who_is_not_known_hears_nothing(db: None) -> None:
    assert Client().get(URL).status_code in (401, 403)
    assert Client().get("/api/v1/jobs/llama/baselines").status_code in (401, 403)


# --- A job ---------------------------------------------------------------------------------------


@pytest.fixture
def runs(db: None) -> Job:
    """A job of vision that runs, after ten normal hours of its like at 400 to 490 W."""
    make_node("n1")
    snapshot.fresh()
    job = make_job("llama", state="running")
    make_attempt(job.phases.get(), {"n1": [0]}, dispatched_at=timezone.now() - timedelta(hours=9))
    write_gang_hours(last_hour() - timedelta(hours=1), *range(400, 500, 10))
    return job


def now_at(job: Job, power_w: float, **given: Any) -> None:
    attempt = job.phases.get().attempts.get()
    write_gang_hours(last_hour(), power_w, attempt_id=attempt.pk, **given)


def outside(client: Any = None) -> list[dict[str, Any]]:
    answer = (client or api_client(Role.OPERATOR)).get("/api/v1/jobs/llama/baselines")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["outside"]
    return found


def test_a_job_within_its_normal_is_not_told_of(runs: Job) -> None:
    now_at(runs, 450.0)
    assert outside() == []


def test_a_job_outside_of_its_normal_says_how_far_and_under_what(runs: Job) -> None:
    now_at(runs, 267.0, causes=["capped"])
    (found,) = outside()
    assert (found["metric"], found["value"], found["rack"]) == ("power_w", 267.0, "A01")
    assert found["ratio"] == pytest.approx(0.6)
    assert found["causes"] == ["capped"]
    assert found["hours"] == 10


def test_of_several_racks_the_one_that_is_furthest_is_told(runs: Job) -> None:
    now_at(runs, 500.0, rack="A01")
    now_at(runs, 700.0, rack="A02")
    (found,) = outside()
    assert found["rack"] == "A02"


def test_degraded_hours_make_nothing_normal(runs: Job) -> None:
    write_gang_hours(last_hour() - timedelta(hours=1), *[300.0] * 20, causes=["capped"])
    now_at(runs, 300.0)
    assert len(outside()) == 1


def test_what_a_job_that_is_over_drew_is_not_looked_at(runs: Job) -> None:
    now_at(runs, 900.0)
    runs.phases.get().attempts.update(state="ended", outcome="failed", ended_at=timezone.now())
    assert outside() == []


def test_a_job_of_others_is_not_there(runs: Job) -> None:
    user = make_user(Role.ML_USER, username="eve")
    client = Client(headers=bearer(make_token(user)))
    assert client.get("/api/v1/jobs/llama/baselines").status_code == 404
