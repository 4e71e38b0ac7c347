"""Budgets are made by those who may, told to those who may know, and open incidents once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.energy import actions, budgets
from admission.energy.models import Budget, ProjectHour
from admission.jobs.models import Project
from fleet.models import Node, Site
from policies.incidents.models import Incident
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.ledger import Ledger

pytestmark = pytest.mark.django_db

URL = "/api/v1/budgets"
HOUR = timedelta(hours=1)


@pytest.fixture
def hour(ledger: Ledger) -> Ledger:
    """An hour in which vision held two GPUs of 700 W, at 0.2 a kilowatt-hour."""
    ledger.read("n1", {0: 700.0, 1: 700.0})
    ledger.job("llama", {"n1": [0, 1]})
    given = {"price_per_kwh": 0.2}
    actions.make_tariff(
        make_user(Role.OPERATOR), Site.objects.get(), ledger.hour - HOUR, given, now=ledger.hour
    )
    ledger.close()
    return ledger


def asked(made: Ledger, **given: Any) -> dict[str, Any]:
    start = made.hour - HOUR
    body = {
        "project": "vision", "measure": "kwh", "amount": 2.0, "begins_at": start.isoformat(),
        "ends_at": (start + timedelta(hours=8)).isoformat(),
    }  # fmt: skip
    return {**body, **given}


def made(ledger: Ledger, **given: Any) -> dict[str, Any]:
    body = asked(ledger, **given)
    answer = api_client(Role.OPERATOR).post(URL, body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()
    return found


def member_of(*projects: str) -> Client:
    user = make_user(Role.ML_USER)
    user.projects.add(*Project.objects.filter(name__in=projects))
    return Client(headers=bearer(make_token(user)))


def test_a_budget_tells_what_is_used_and_what_is_not_counted_yet(hour: Ledger) -> None:
    found = made(hour)
    assert (found["unit"], found["warn_at"]) == ("kWh", [0.8, 1.0])
    stands = found["standing"]
    assert stands["used"] == pytest.approx(1.4, rel=0.01)
    assert stands["share"] == pytest.approx(0.7, rel=0.01)
    assert (stands["hours"], stands["closed_hours"]) == (8, 1)
    # The hour before was never closed; of later ones as many as have passed since.
    assert stands["open_hours"] >= 1
    assert stands["is_least"] is True
    assert stands["forecast"] == pytest.approx(1.4 * 8, rel=0.01)


def test_money_and_carbon_say_of_which_share_rates_are_known(hour: Ledger) -> None:
    money = made(hour, measure="money")["standing"]
    assert money["used"] == pytest.approx(0.28, rel=0.01)
    assert money["known"] == 1.0
    carbon = made(hour, measure="carbon_kg")["standing"]
    assert (carbon["used"], carbon["known"], carbon["is_least"]) == (0.0, 0.0, True)


@pytest.mark.parametrize("measure", ["kwh", "carbon_kg", "money"])
def test_readings_that_are_missing_at_a_site_are_said(ledger: Ledger, measure: str) -> None:
    ledger.read("n1", {0: 700.0})
    # A quarter of an hour of its other GPU was read, and nothing of a third.
    ledger.read("n1", {1: 700.0}, to_s=900.0)
    ledger.job("llama", {"n1": [0, 1], "n2": [0]})
    given = {"price_per_kwh": 0.2, "carbon_g_per_kwh": 100.0}
    actions.make_tariff(
        make_user(Role.OPERATOR), Site.objects.get(), ledger.hour - HOUR, given, now=ledger.hour
    )
    ledger.close()
    stands = made(ledger, measure=measure, begins_at=ledger.hour.isoformat())["standing"]
    assert stands["known"] == 1.0
    assert stands["unread"] == pytest.approx(1.75 / 3, rel=0.01)
    assert stands["is_least"] is True


def test_a_gap_that_is_bridged_is_not_missing_and_old_hours_do_not_tell(ledger: Ledger) -> None:
    ledger.read("n1", {0: 700.0}, to_s=2400.0)
    ledger.job("llama", {"n1": [0]})
    ledger.close()
    assert made(ledger)["standing"]["unread"] == 0.0
    ProjectHour.objects.update(unread_ms=None)
    assert api_client().get(URL).json()["results"][0]["standing"]["unread"] is None


def test_a_node_whose_meter_tells_misses_nothing(ledger: Ledger) -> None:
    ledger.read("n1", {0: 700.0})
    ledger.meter("node", 1600.0, node=Node.objects.get(name="n1"))
    ledger.job("llama", {"n1": [0, 1]})
    ledger.close()
    stands = made(ledger)["standing"]
    assert stands["used"] == pytest.approx(1.6, rel=0.02)
    assert stands["unread"] == 0.0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"amount": 0}, "amount"),
        ({"amount": "nan"}, "amount"),
        ({"measure": "joules"}, "measure"),
        ({"project": "nobody"}, "project"),
        ({"begins_at": "2026-11-01T00:30Z"}, "begins_at"),
        ({"begins_at": "2026-11-02T00:00Z", "ends_at": None}, "begins_at"),
        ({"begins_at": "2026-11-02T00:00Z", "ends_at": "2026-11-01T00:00Z"}, "ends_at"),
        ({"warn_at": [0.0]}, "warn_at"),
        ({"warn_at": [0.5] * 11}, "warn_at"),
    ],
)
def test_what_is_wrong_is_named(hour: Ledger, given: dict[str, Any], field: str) -> None:
    body = asked(hour, **given)
    answer = api_client(Role.OPERATOR).post(URL, body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()["error"]["field"].startswith(field)
    assert not Budget.objects.exists()


def test_only_who_edits_policies_makes_and_ends_them(hour: Ledger) -> None:
    number = made(hour)["id"]
    for client in (member_of("vision"), api_client(Role.VIEWER)):
        body = asked(hour)
        assert client.post(URL, body, content_type="application/json").status_code == 403
        assert client.post(f"{URL}/{number}/end").status_code == 403
    assert Budget.objects.get().ended_at is None


def test_an_ml_user_hears_of_budgets_of_the_own_projects_alone(hour: Ledger) -> None:
    Project.objects.create(name="speech")
    number = made(hour)["id"]
    assert [each["id"] for each in member_of("vision").get(URL).json()["results"]] == [number]
    stranger = member_of("speech")
    assert stranger.get(URL).json()["results"] == []
    assert stranger.get(f"{URL}/{number}").status_code == 404


def test_a_budget_that_is_ended_stands_no_more_and_is_audited(hour: Ledger) -> None:
    number = made(hour)["id"]
    client = api_client(Role.OPERATOR)
    first = client.post(f"{URL}/{number}/end").json()
    assert first["standing"] is None
    assert client.post(f"{URL}/{number}/end").json()["ended_at"] == first["ended_at"]
    actions_ = AuditEntry.objects.filter(action__startswith="energy.budget")
    assert sorted(actions_.values_list("action", flat=True)) == [
        "energy.budget", "energy.budget.end",
    ]  # fmt: skip


def test_each_share_that_is_passed_opens_an_incident_once(hour: Ledger) -> None:
    number = made(hour, warn_at=[0.5, 1.0])["id"]
    now = datetime.now(UTC)
    budgets.follow(now)
    budgets.follow(now)
    incident = Incident.objects.get()
    assert f"Budget {number} is used to at least 70 %" in incident.title
    # It is for all who see incidents: the project is not for all of them.
    assert "vision" not in incident.title
    budgets.end(make_user(Role.OPERATOR), Budget.objects.get(), now=now)
    budgets.follow(now)
    assert not Incident.objects.get().members.filter(cleared_at=None).exists()


def test_below_its_shares_nobody_is_told(hour: Ledger) -> None:
    made(hour, warn_at=[0.9])
    budgets.follow(datetime.now(UTC))
    assert not Incident.objects.exists()
