from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.incidents import follow
from policies.incidents.models import Silence
from tests.builders.accounts import api_client
from tests.builders.firings import make_firing

pytestmark = pytest.mark.django_db
URL = "/api/v1/silences"


@pytest.fixture
def responder() -> Client:
    return api_client(Role.RESPONDER)


def body(**given: Any) -> dict[str, Any]:
    expires_at = timezone.now() + timedelta(hours=1)
    return {
        "matchers": ['rule="rack-heat"', 'site=~"oslo|bergen"'],
        "reason": "maintenance of row A",
        "expires_at": expires_at.isoformat(),
        **given,
    }


def post(client: Client, data: Any, url: str = URL) -> Any:
    return client.post(url, data, content_type="application/json")


@pytest.mark.usefixtures("fleet")
def test_it_silences_at_once_and_ends_at_once(responder: Client) -> None:
    now = timezone.now()
    (incident,) = follow.fired([make_firing("rack oslo/A01")], now=now)
    made = post(responder, body())
    assert made.status_code == 201
    assert made.json()["state"] == "active"
    member = incident.members.get()
    assert member.silence_id == made.json()["id"]
    assert (
        AuditEntry.objects.get(action="silence.create").detail["reason"] == "maintenance of row A"
    )
    ended = post(responder, None, f"{URL}/{made.json()['id']}/end")
    assert ended.json()["state"] == "expired"
    member.refresh_from_db()
    assert member.silence_id is None
    post(responder, None, f"{URL}/{made.json()['id']}/end")
    assert AuditEntry.objects.filter(action="silence.end").count() == 1


def test_the_author_is_who_asks(responder: Client) -> None:
    made = post(responder, body(author="somebody else")).json()
    assert made["author"] == Silence.objects.get().author != "somebody else"


def test_one_may_begin_later(responder: Client) -> None:
    starts_at = timezone.now() + timedelta(minutes=30)
    made = post(responder, body(starts_at=starts_at.isoformat())).json()
    assert made["state"] == "pending"
    for state, count in (("pending", 1), ("active", 0), ("expired", 0)):
        assert len(responder.get(f"{URL}?state={state}").json()["results"]) == count
    assert post(responder, None, f"{URL}/{made['id']}/end").json()["state"] == "expired"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"matchers": []}, "matchers"),
        ({"matchers": ["rule"]}, "matchers.0"),
        ({"matchers": ["rule=x", 'color="red"']}, "matchers.1"),
        ({"matchers": ['rule=~"("']}, "matchers.0"),
        ({"matchers": "rule=x"}, "matchers"),
        ({"matchers": ["rule=x"] * 21}, "matchers"),
        ({"reason": ""}, "reason"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2999-01-01T00:00:00Z"}, "expires_at"),
        ({"starts_at": "2998-01-01T00:00:00Z"}, "starts_at"),
        ({"starts_at": "2198-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": None}, "expires_at"),
    ],
)
def test_what_is_wrong_is_named(responder: Client, change: dict[str, Any], field: str) -> None:
    refused = post(responder, body(**change))
    assert refused.status_code == 400, refused.content
    assert refused.json()["error"]["field"] == field
    assert not Silence.objects.exists()


def test_it_takes_a_responder() -> None:
    assert post(api_client(Role.ML_USER), body()).status_code == 403
    assert api_client(Role.VIEWER).get(URL).status_code == 200


def test_what_explains_what_is_shown(settings: Any) -> None:
    settings.INHIBITIONS_FILE = ""
    rows = api_client(Role.VIEWER).get("/api/v1/inhibitions").json()
    assert rows[0]["name"] == "feed-loss-explains-its-racks"
    assert rows[0]["relation"] == "below"
    assert all(row["source"] and row["target"] for row in rows)
