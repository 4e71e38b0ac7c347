from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.restrictions import store
from policies.restrictions.models import Restriction
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.integration.policies.restrictions.conftest import DRAIN, make_wanted, now

pytestmark = pytest.mark.django_db
URL = "/api/v1/restrictions"
BREAKER = "/api/v1/fleet-breaker"


@pytest.fixture
def operator() -> Client:
    return api_client(Role.OPERATOR)


@pytest.fixture
def responder() -> Client:
    return api_client(Role.RESPONDER)


def body(**changes: Any) -> dict[str, Any]:
    given = {
        "kind": "power_cap_w",
        "scope": {"kind": "rack", "name": "oslo/A01"},
        "value": 500,
        "reason": "hot aisle door is open",
        "for_s": 600,
    }
    return {**given, **changes}


def post(client: Client, path: str, **given: Any) -> Any:
    return client.post(path, given, content_type="application/json")


def issue(client: Client, **changes: Any) -> Any:
    return post(client, URL, **body(**changes))


def error(answer: Any, status: int) -> dict[str, str]:
    assert answer.status_code == status, answer.content
    found: dict[str, str] = answer.json()["error"]
    return found


def listed(query: str = "") -> list[dict[str, Any]]:
    answer = api_client().get(f"{URL}?{query}")
    assert answer.status_code == 200, answer.content
    rows: list[dict[str, Any]] = answer.json()["results"]
    return rows


def test_what_a_person_issues_is_in_force_at_once(fleet: SmallFleet, operator: Client) -> None:
    answer = issue(operator)
    assert answer.status_code == 201, answer.content
    row = answer.json()
    assert (row["state"], row["is_in_force"], row["unit"]) == ("in_force", True, "W")
    assert row["owner"].startswith("user:operator")
    assert [each.value for each in store.in_force(now()).restrictions] == [500.0]
    lasts = datetime.fromisoformat(row["expires_at"]) - datetime.fromisoformat(row["issued_at"])
    assert lasts == timedelta(seconds=600)
    entry = AuditEntry.objects.get(action="restriction.issue")
    assert (entry.target, entry.detail["reason"]) == ("rack oslo/A01", "hot aisle door is open")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"for_s": None}, "expires_at"),
        ({"expires_at": "2030-01-01T00:00:00Z"}, "expires_at"),
        ({"for_s": None, "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"for_s": 1e9}, "for_s"),
        ({"kind": "no_such_thing"}, "kind"),
        ({"scope": {"kind": "rack", "name": "oslo/Z99"}}, "scope.name"),
        ({"scope": {"kind": "link", "name": "oslo/A01/uplink"}}, "scope.kind"),
        ({"scope": {"kind": "room", "name": "x"}}, "scope.kind"),
        ({"value": None}, "value"),
        ({"value": 100}, "value"),
        ({"value": "NaN"}, "value"),
        ({"reason": ""}, "reason"),
    ],
)
def test_what_cannot_be_is_refused_by_field(
    fleet: SmallFleet, operator: Client, changes: dict[str, Any], field: str
) -> None:
    assert error(issue(operator, **changes), 400)["field"] == field
    assert not Restriction.objects.exists()


def test_a_cap_below_the_floor_says_the_way_out(fleet: SmallFleet, operator: Client) -> None:
    assert error(issue(operator, value=100), 400)["message"] == (
        "100 W is below what a H100 can be brought to: give at least 200 W, or drain the place"
        " instead"
    )


def test_the_same_twice_is_a_conflict(fleet: SmallFleet, operator: Client) -> None:
    issue(operator)
    assert error(issue(operator), 409)["code"] == "exists"
    assert issue(operator, reason="another").status_code == 201


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_issuing_takes_the_right_to_edit_policies(fleet: SmallFleet, role: Role) -> None:
    assert error(issue(api_client(role)), 403)["code"] == "permission_denied"


def test_a_lease_is_drawn_out_and_not_made_shorter(fleet: SmallFleet, operator: Client) -> None:
    row = issue(operator).json()
    later = (now() + timedelta(hours=1)).isoformat()
    answer = post(operator, f"{URL}/{row['id']}/extend", expires_at=later)
    assert datetime.fromisoformat(answer.json()["expires_at"]) == datetime.fromisoformat(later)
    sooner = (now() + timedelta(minutes=1)).isoformat()
    refusal = post(operator, f"{URL}/{row['id']}/extend", expires_at=sooner)
    assert error(refusal, 400)["field"] == "expires_at"
    assert "lift it" in error(refusal, 400)["message"]


def test_what_a_person_lifts_is_over(
    fleet: SmallFleet, operator: Client, responder: Client
) -> None:
    row = issue(operator).json()
    answer = post(responder, f"{URL}/{row['id']}/lift", reason="door is shut")
    assert (answer.json()["state"], answer.json()["ended_why"]) == ("released", "door is shut")
    assert not store.in_force(now()).restrictions
    again = post(responder, f"{URL}/{row['id']}/lift", reason="door is shut")
    assert error(again, 409)["code"] == "ended"
    assert AuditEntry.objects.filter(action="restriction.lift").count() == 1


def test_what_a_person_lifts_of_a_rule_stays_lifted_while_its_cause_goes_on(
    fleet: SmallFleet, responder: Client
) -> None:
    (row,) = store.apply([make_wanted()], now=now())
    post(responder, f"{URL}/{row.pk}/lift", reason="sensor is wrong")
    for _ in range(2):
        (same,) = store.apply([make_wanted(for_s=90)], now=now())
    assert (same.pk, same.state) == (row.pk, "refused")
    assert not store.in_force(now()).restrictions
    store.release("rule:rack-power", now=now(), by="system", why="cleared")
    (new,) = store.apply([make_wanted()], now=now())
    assert (new.pk > row.pk, new.state) == (True, "in_force")
    over = Restriction.objects.get(pk=row.pk)
    assert (over.state, over.ended_why) == ("released", "sensor is wrong")


def test_what_was_lifted_by_mistake_can_be_approved_again(
    fleet: SmallFleet, responder: Client
) -> None:
    (row,) = store.apply([make_wanted()], now=now())
    post(responder, f"{URL}/{row.pk}/lift", reason="oops")
    answer = post(responder, f"{URL}/{row.pk}/approve")
    assert (answer.json()["state"], answer.json()["ended_by"]) == ("in_force", "")
    assert len(store.in_force(now()).restrictions) == 1


def test_what_has_changed_since_one_looked_is_not_lifted(
    fleet: SmallFleet, responder: Client
) -> None:
    (row,) = store.apply([make_wanted(value=600.0)], now=now())
    store.apply([make_wanted(value=560.0)], now=now())
    answer = post(responder, f"{URL}/{row.pk}/lift", reason="no", version=1)
    assert error(answer, 409)["code"] == "changed"
    assert post(responder, f"{URL}/{row.pk}/lift", reason="no", version=2).status_code == 200


# --- What waits for a person ----------------------------------------------------------------------


@pytest.fixture
def held(fleet: SmallFleet) -> Restriction:
    (row,) = store.apply([make_wanted("site oslo", kind=DRAIN, value=None)], now=now())
    assert row.state == "pending_approval"
    return row


def test_what_is_held_is_listed_and_approved(held: Restriction, responder: Client) -> None:
    assert [row["id"] for row in listed("waiting=1")] == [held.pk]
    answer = post(responder, f"{URL}/{held.pk}/approve", version=held.version)
    assert answer.json()["state"] == "in_force"
    assert answer.json()["decided_by"].startswith("responder")
    assert listed("waiting=1") == []
    again = post(responder, f"{URL}/{held.pk}/approve")
    assert error(again, 409)["code"] == "not_held"


def test_what_is_approved_does_not_count_against_others(
    held: Restriction, responder: Client
) -> None:
    post(responder, f"{URL}/{held.pk}/approve")
    (row,) = store.apply([make_wanted("rack oslo/A02", kind=DRAIN, value=None)], now=now())
    assert row.state == "in_force"


def test_what_is_refused_is_not_asked_again(held: Restriction, responder: Client) -> None:
    post(responder, f"{URL}/{held.pk}/refuse", reason="half the site is test")
    (row,) = store.apply([make_wanted("site oslo", kind=DRAIN, value=None)], now=now())
    assert (row.pk, row.state) == (held.pk, "refused")
    assert listed("waiting=1") == []


def test_a_stricter_value_is_approved_or_refused_for_itself(
    fleet: SmallFleet, responder: Client
) -> None:
    for value in (600.0, 400.0):
        (row,) = store.apply([make_wanted("site oslo", value=value)], now=now())
    post(responder, f"{URL}/{row.pk}/refuse", reason="too much")
    (row,) = store.apply([make_wanted("site oslo", value=400.0)], now=now())
    assert (row.state, row.value, row.pending_value) == ("in_force", 600.0, None)
    for value in (600.0, 450.0):
        (row,) = store.apply([make_wanted("site oslo", value=value)], now=now())
    assert row.pending_value == 450.0
    answer = post(responder, f"{URL}/{row.pk}/approve")
    assert (answer.json()["value"], answer.json()["pending_value"]) == (450.0, None)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER])
@pytest.mark.parametrize("act", ["approve", "refuse", "lift"])
def test_deciding_takes_the_right_to_run_playbooks(held: Restriction, role: Role, act: str) -> None:
    answer = post(api_client(role), f"{URL}/{held.pk}/{act}", reason="x")
    assert answer.status_code == 403


# --- The fleet breaker ----------------------------------------------------------------------------


def test_the_fleet_breaker_stops_new_effects_and_no_old_ones(
    fleet: SmallFleet, operator: Client, responder: Client
) -> None:
    (old,) = store.apply([make_wanted(value=600.0)], now=now())
    answer = post(responder, BREAKER, is_open=True, reason="rules have gone mad")
    assert answer.json()["is_open"] is True
    (same,) = store.apply([make_wanted(value=560.0, for_s=120)], now=now())
    (new,) = store.apply([make_wanted("rack bergen/A01")], now=now())
    assert (same.value, same.pending_value, new.state) == (600.0, 560.0, "pending_approval")
    assert new.pending_why.startswith("the fleet breaker is open: responder")
    assert same.expires_at > old.expires_at
    refusal = error(issue(operator), 409)
    assert refusal["code"] == "fleet_breaker_open"
    assert "rules have gone mad" in refusal["message"]
    assert error(post(responder, f"{URL}/{new.pk}/approve"), 409)["code"] == "fleet_breaker_open"
    assert post(responder, f"{URL}/{same.pk}/lift", reason="no").status_code == 200


def test_what_waits_for_the_breaker_comes_in_when_it_is_closed(
    fleet: SmallFleet, responder: Client
) -> None:
    post(responder, BREAKER, is_open=True, reason="test")
    store.apply([make_wanted()], now=now())
    post(responder, BREAKER, is_open=False, reason="done")
    (row,) = store.apply([make_wanted()], now=now())
    assert row.state == "in_force"
    actions = AuditEntry.objects.filter(action__startswith="fleet_breaker")
    assert sorted(actions.values_list("action", flat=True)) == [
        "fleet_breaker.close",
        "fleet_breaker.open",
    ]


def test_the_breaker_needs_a_reason_and_the_right(fleet: SmallFleet, responder: Client) -> None:
    assert error(post(responder, BREAKER, is_open=True), 400)["field"] == "reason"
    assert error(post(responder, BREAKER, reason="x"), 400)["field"] == "is_open"
    assert post(api_client(), BREAKER, is_open=True, reason="x").status_code == 403
    assert api_client().get(BREAKER).json() == {
        "is_open": False,
        "reason": "",
        "by": "",
        "at": None,
    }


# --- Looking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 3),
        ("live=1", 2),
        ("live=0", 1),
        ("in_force=1", 1),
        ("waiting=1", 1),
        ("state=expired", 1),
        ("kind=drain", 1),
        ("scope_kind=site&scope=oslo", 1),
        ("owner=rule:other", 1),
        ("owner=rule:nobody", 0),
    ],
)
def test_filters(fleet: SmallFleet, query: str, found: int) -> None:
    past = now() - timedelta(seconds=90)
    store.apply([make_wanted(owner="rule:other", at=past)], now=past)
    store.apply([make_wanted(), make_wanted("site oslo", kind=DRAIN, value=None)], now=now())
    assert len(listed(query)) == found


def test_what_holds_for_a_scope_is_shown_strictest_first(fleet: SmallFleet) -> None:
    store.apply([make_wanted("site oslo", value=650.0), make_wanted(value=560.0)], now=now())
    answer = api_client().get(f"{URL}/effective?scope_kind=rack&scope=oslo/A01")
    (cap,) = answer.json()
    assert (cap["kind"], cap["value"]) == ("power_cap_w", 560.0)
    assert [row["value"] for row in cap["restrictions"]] == [560.0, 650.0]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "scope_kind"),
        ("scope_kind=rack", "scope"),
        ("scope_kind=rack&scope=oslo/Z99", "scope"),
    ],
)
def test_what_holds_for_no_scope_is_an_error(fleet: SmallFleet, query: str, field: str) -> None:
    assert error(api_client().get(f"{URL}/effective?{query}"), 400)["field"] == field


def test_the_ledger_tells_the_steps(fleet: SmallFleet, operator: Client) -> None:
    row = issue(operator).json()
    post(operator, f"{URL}/{row['id']}/lift", reason="done")
    told = api_client().get(f"{URL}/{row['id']}/ledger").json()
    assert [event["kind"] for event in told["events"]] == ["issued", "in_force", "lifted"]
    assert (told["summary"], told["outcome"]) == ("done", None)


def test_what_does_not_exist_is_not_found(operator: Client) -> None:
    assert post(operator, f"{URL}/99/lift", reason="x").status_code == 404
    assert operator.get(f"{URL}/99/ledger").status_code == 404


def budget(seconds: float, **changes: Any) -> dict[str, Any]:
    given = {
        "kind": "power_budget_w",
        "scope": {"kind": "site", "name": "oslo"},
        "value": 40_000,
        "starts_at": (now() + timedelta(seconds=seconds)).isoformat(),
    }
    return {**given, **changes}


def test_a_budget_that_is_announced_has_no_effect_yet(fleet: SmallFleet, operator: Client) -> None:
    row = issue(operator, **budget(600)).json()
    assert (row["state"], row["is_in_force"]) == ("in_force", False)
    begins, ends = (datetime.fromisoformat(row[name]) for name in ("starts_at", "expires_at"))
    assert (row["effect_at"], ends - begins) == (row["starts_at"], timedelta(seconds=600))
    assert listed("in_force=1") == []
    assert [each["id"] for each in listed("live=1")] == [row["id"]]
    held = store.in_force(now())
    assert [each.id for each in held.announced] == [row["id"]]
    assert held.restrictions == ()
    ledger = operator.get(f"{URL}/{row['id']}/ledger").json()
    assert ledger["events"][-1]["text"].startswith("announced: to be met from")


def test_a_budget_with_short_notice_is_held_at_once(fleet: SmallFleet, operator: Client) -> None:
    row = issue(operator, **budget(20)).json()
    assert [each.id for each in store.in_force(now()).restrictions] == [row["id"]]
    assert row["is_in_force"] is False


def test_only_a_budget_may_be_announced(fleet: SmallFleet, operator: Client) -> None:
    told = error(issue(operator, starts_at=budget(60)["starts_at"]), 400)
    assert told["field"] == "starts_at"
