from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.validators import UniqueValidator

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.incidents import notify
from policies.incidents.models import Delivery, NotificationChannel
from tests.builders.accounts import api_client

pytestmark = pytest.mark.django_db
URL = "/api/v1/notification-channels"
SECRET = "s3cret-routing-key"


@pytest.fixture
def operator() -> Client:
    return api_client(Role.OPERATOR)


def body(**given: Any) -> dict[str, Any]:
    return {
        "name": "on-call",
        "kind": "webhook",
        "target": "https://hooks.example.com/x",
        "secret": SECRET,
        **given,
    }


def send(client: Client, method: str, url: str, data: Any = None) -> Any:
    return getattr(client, method)(url, data, content_type="application/json")


def made(client: Client, **given: Any) -> str:
    answer = send(client, "post", URL, body(**given))
    assert answer.status_code == 201, answer.content
    return f"{URL}/{answer.json()['id']}"


def test_a_secret_is_taken_and_never_shown(operator: Client) -> None:
    url = made(operator)
    channel = NotificationChannel.objects.get()
    assert channel.secret == SECRET
    for answer in (operator.get(url), operator.get(URL), send(operator, "patch", url, {})):
        assert SECRET not in answer.content.decode()
    assert operator.get(url).json()["has_secret"] is True
    assert SECRET not in str(list(AuditEntry.objects.values()))


def test_a_secret_does_not_follow_to_another_address(operator: Client) -> None:
    """Else whoever may change a channel could have it sent to themselves."""
    url = made(operator)
    moved = {"target": "https://evil.example.com/"}
    refused = send(operator, "patch", url, moved)
    assert refused.status_code == 400
    assert refused.json()["error"]["field"] == "secret"
    assert send(operator, "patch", url, {**moved, "secret": ""}).status_code == 200
    assert NotificationChannel.objects.get().secret == ""
    assert send(operator, "patch", url, {"min_severity": "critical"}).status_code == 200


def test_of_a_url_the_host_alone_is_shown_since_the_rest_may_be_a_key(operator: Client) -> None:
    url = made(operator, kind="slack", target="https://hooks.example.com/T0/B0/k3y?t=1", secret="")
    for answer in (operator.get(url), operator.get(URL), send(operator, "patch", url, {})):
        assert "k3y" not in answer.content.decode()
    assert operator.get(url).json()["target"] == "https://hooks.example.com/…"
    assert "k3y" not in str(list(AuditEntry.objects.values()))


def test_what_was_shown_of_an_address_keeps_it_when_it_is_given_back(operator: Client) -> None:
    url = made(operator)
    was = operator.get(url).json()
    assert send(operator, "put", url, {**was, "min_severity": "info"}).status_code == 200
    channel = NotificationChannel.objects.get()
    assert channel.target == "https://hooks.example.com/x"
    assert (channel.secret, channel.min_severity) == (SECRET, "info")


@pytest.mark.parametrize("given", [{}, {"target": "https://hooks.example.com/…"}])
def test_an_address_is_not_told_by_the_fault_of_another_kind(
    operator: Client, given: dict[str, str]
) -> None:
    url = made(operator, target="https://hooks.example.com/k3y", secret="")
    refused = send(operator, "patch", url, {"kind": "email", **given})
    assert refused.status_code == 400
    assert refused.json()["error"]["field"] == "target"
    assert "k3y" not in refused.content.decode()


def test_addresses_of_email_are_shown_whole(operator: Client) -> None:
    url = made(operator, kind="email", target="a@example.com, b@example.com", secret="")
    assert operator.get(url).json()["target"] == "a@example.com, b@example.com"


def test_of_two_that_make_one_name_at_once_the_second_is_refused(operator: Client) -> None:
    made(operator)
    with patch.object(UniqueValidator, "__call__", lambda *_: None):
        refused = send(operator, "post", URL, body())
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "name")
    assert NotificationChannel.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"target": ""}, "target"),
        ({"target": "http://169.254.169.254/latest/meta-data"}, "target"),
        ({"target": "http://[::1]:8000/"}, "target"),
        ({"target": "https://user:pass@example.com/"}, "target"),
        ({"target": "file:///etc/passwd"}, "target"),
        ({"kind": "email", "target": "nobody"}, "target"),
        ({"kind": "pagerduty", "target": "", "secret": ""}, "secret"),
        ({"kind": "pigeon"}, "kind"),
        ({"min_severity": "awful"}, "min_severity"),
        ({"matchers": ["color=red"]}, "matchers.0"),
        ({"name": ""}, "name"),
    ],
)
def test_what_is_wrong_is_named(operator: Client, change: dict[str, Any], field: str) -> None:
    refused = send(operator, "post", URL, body(**change))
    assert refused.status_code == 400, refused.content
    assert refused.json()["error"]["field"] == field
    assert not NotificationChannel.objects.exists()


def test_a_name_is_there_once(operator: Client) -> None:
    made(operator)
    assert send(operator, "post", URL, body()).json()["error"]["field"] == "name"


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "email", "target": "a@example.com, b@example.com", "secret": ""},
        {"kind": "slack"},
        {"kind": "pagerduty", "target": ""},
        {"kind": "alertmanager", "target": "http://127.0.0.1:9093"},
    ],
)
def test_every_kind_is_taken(operator: Client, given: dict[str, Any]) -> None:
    made(operator, **given)


def test_a_change_lets_what_failed_be_tried_again(operator: Client) -> None:
    url = made(operator)
    NotificationChannel.objects.update(failures=7, not_before=timezone.now(), last_error="x")
    shown = send(operator, "patch", url, {"min_severity": "info"}).json()
    assert (shown["failures"], shown["not_before"], shown["last_error"]) == (0, None, "")


def test_every_write_is_in_the_audit_log(operator: Client) -> None:
    url = made(operator)
    send(operator, "patch", url, {"enabled": False})
    send(operator, "delete", url)
    actions = list(
        AuditEntry.objects.filter(target="on-call").order_by("id").values_list("action", flat=True)
    )
    assert actions == ["channel.create", "channel.change", "channel.delete"]


def test_a_test_message_is_queued(operator: Client) -> None:
    url = made(operator)
    assert send(operator, "post", f"{url}/test").status_code == 202
    (row,) = operator.get("/api/v1/notifications").json()["results"]
    assert (row["channel"], row["event"], row["state"]) == ("on-call", "message", "queued")
    send(operator, "patch", url, {"enabled": False})
    assert send(operator, "post", f"{url}/test").status_code == 409


def test_what_was_given_up_is_sent_again_by_hand(operator: Client) -> None:
    made(operator)
    notify.send(["on-call"], "x", "y", key="k", now=timezone.now())
    delivery = Delivery.objects.get()
    url = f"/api/v1/notifications/{delivery.pk}/retry"
    assert send(operator, "post", url).status_code == 409
    Delivery.objects.update(state="failed", attempts=10, error="gone")
    assert send(operator, "post", url).json()["state"] == "queued"
    assert AuditEntry.objects.filter(action="notification.retry").exists()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESPONDER])
def test_it_takes_an_operator(role: Role) -> None:
    assert send(api_client(role), "post", URL, body()).status_code == 403
    assert api_client(role).get(URL).status_code == 200
