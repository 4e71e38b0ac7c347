"""``/api/v1/slos``: who may do what, and what is told."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.slos import measuring
from admission.slos.actions import SLOS
from admission.slos.models import Slo
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.documents import put_in_force
from tests.builders.jobs import make_job, make_project

STARTS = """name: starts
description: Nobody waits for long.
measure: start
select:
  classes: [high-density-training]
target: 0.9
within: 10m
"""


@pytest.fixture
def operator() -> Client:
    return api_client(Role.OPERATOR)


def post(client: Client, url: str, text: str) -> Any:
    return client.post(url, {"text": text}, content_type="application/json")


def make_judged() -> None:
    """Have an objective with one good and two bad events, of two projects."""
    put_in_force(SLOS, STARTS)
    make_project("speech")
    for name, project, waited_min in (("a", "vision", 2), ("b", "vision", 20), ("c", "speech", 20)):
        waited = timedelta(minutes=waited_min)
        job = make_job(name, project=project, waited=waited, state="running")
        job.phases.update(started_at=timezone.now())
    measuring.step(time.time())


def test_an_objective_is_declared_and_shown(operator: Client) -> None:
    answer = post(operator, "/api/v1/slos", STARTS)
    assert answer.status_code == 201
    assert answer.json()["state"] == "draft"
    assert operator.get("/api/v1/slos/starts").status_code == 404
    version = "/api/v1/slos/starts/versions/1"
    active = {"to": "active"}
    own = operator.post(f"{version}/promote", active, content_type="application/json")
    assert own.status_code == 409
    other = api_client(Role.OPERATOR)
    done = other.post(f"{version}/promote", active, content_type="application/json")
    assert done.json()["state"] == "active"
    shown = operator.get("/api/v1/slos/starts").json()
    assert (shown["version"], shown["text"]) == (1, STARTS)
    assert shown["sentence"] == ("90 % of jobs of class high-density-training begin within 10 min.")
    assert (shown["state"], shown["events"], shown["good_share"]) == ("no_events", 0, None)
    assert shown["burn_rates"] == {"5m": None, "30m": None, "1h": None, "6h": None}
    entry = AuditEntry.objects.get(action="slo.draft")
    assert (entry.target, entry.detail["after"]["text"]) == ("starts v1", STARTS)


def test_an_objective_may_be_the_body_itself(operator: Client) -> None:
    answer = operator.post("/api/v1/slos", STARTS, content_type="application/yaml")
    assert answer.status_code == 201


def test_what_is_wrong_is_told_with_line_and_column(operator: Client) -> None:
    text = STARTS.replace("0.9", "0.9\nwhen: power_headrom > 0.2").replace("10m", "soon")
    answer = post(operator, "/api/v1/slos", text)
    assert answer.status_code == 400
    within, when = answer.json()["errors"]
    assert (within["field"], within["line"], within["column"]) == ("within", 8, 9)
    assert (when["field"], when["line"]) == ("when", 7)
    assert when["hint"].startswith("did you mean power_headroom")
    assert not Slo.objects.exists()


@pytest.mark.parametrize(
    "text", ["", "[", "a: b", "- 1", "x" * 70_000, "name: [" * 3000, "\x00", "&a [*a]"]
)
def test_nonsense_is_refused(operator: Client, text: str) -> None:
    answer = post(operator, "/api/v1/slos", text)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_text_is_checked_without_being_kept() -> None:
    viewer = api_client(Role.VIEWER)
    good = post(viewer, "/api/v1/slo-check", STARTS).json()
    assert good["problems"] == []
    assert good["sentence"].startswith("90 % of jobs")
    (problem,) = post(viewer, "/api/v1/slo-check", STARTS.replace("0.9", "2")).json()["problems"]
    assert (problem["field"], problem["line"]) == ("target", 6)
    assert not Slo.objects.exists()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_only_who_edits_policies_declares_and_retires(role: Role) -> None:
    put_in_force(SLOS, STARTS)
    client = api_client(role)
    assert post(client, "/api/v1/slos", STARTS).status_code == 403
    retire = client.post("/api/v1/slos/starts/versions/1/retire", {"why": "no use"})
    assert retire.status_code == 403
    assert client.get("/api/v1/slos").status_code == 200
    assert Client().get("/api/v1/slos").status_code == 401


def test_a_retired_objective_is_gone_until_it_is_declared_again(operator: Client) -> None:
    put_in_force(SLOS, STARTS)
    url, why = "/api/v1/slos/starts/versions/1/retire", {"why": "no use"}
    assert operator.post(url, why, content_type="application/json").status_code == 200
    assert operator.get("/api/v1/slos").json() == []
    assert operator.get("/api/v1/slos/starts").status_code == 404
    assert operator.post(url, why, content_type="application/json").status_code == 409
    assert AuditEntry.objects.filter(action="slo.retire", target="starts v1").count() == 1
    assert post(operator, "/api/v1/slos", STARTS).json()["number"] == 2


def test_how_it_stands_is_in_the_list(operator: Client) -> None:
    make_judged()
    (shown,) = operator.get("/api/v1/slos").json()
    assert (shown["state"], shown["events"], shown["bad"]) == ("missed", 3, 2)
    assert shown["good_share"] == pytest.approx(1 / 3)
    assert shown["budget_left"] == pytest.approx(1 - (2 / 3) / 0.1)
    assert shown["burn_rates"]["1h"] == pytest.approx((2 / 3) / 0.1)
    assert shown["lasts_s"] == 0.0


def test_judgments_are_listed_and_filtered(operator: Client) -> None:
    make_judged()
    url = "/api/v1/slos/starts/judgments"
    assert {row["event"] for row in operator.get(url).json()["results"]} == {
        "a/train", "b/train", "c/train",
    }  # fmt: skip
    late = operator.get(url, {"verdict": "bad", "project": "vision"}).json()["results"]
    assert [(row["job"], row["clock_s"], row["limit_s"]) for row in late] == [("b", 600.0, 600.0)]
    assert operator.get(url, {"verdict": "worse"}).status_code == 400
    assert operator.get("/api/v1/slos/none/judgments").status_code == 404


def test_judgments_of_other_projects_jobs_are_not_told() -> None:
    make_judged()
    user = make_user(Role.ML_USER)
    make_project("speech").members.add(user)
    client = Client(headers=bearer(make_token(user)))
    rows = client.get("/api/v1/slos/starts/judgments").json()["results"]
    assert [row["job"] for row in rows] == ["c"]
    # They count all the same.
    assert client.get("/api/v1/slos/starts").json()["events"] == 3


def test_metrics_say_how_it_stands() -> None:
    before = REGISTRY.get_sample_value(
        "headroom_slo_events_total", {"slo": "starts", "verdict": "bad"}
    )
    make_judged()
    labels = {"slo": "starts"}
    value = REGISTRY.get_sample_value
    assert value("headroom_slo_events_total", {**labels, "verdict": "bad"}) == (before or 0) + 2
    assert value("headroom_slo_target_ratio", labels) == 0.9
    assert value("headroom_slo_good_ratio", labels) == pytest.approx(1 / 3)
    assert value("headroom_slo_budget_left_ratio", labels) == pytest.approx(1 - (2 / 3) / 0.1)
    rate = value("headroom_slo_burn_rate", {**labels, "span": "1h"})
    assert rate == pytest.approx((2 / 3) / 0.1)
