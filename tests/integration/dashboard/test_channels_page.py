"""The page of notification channels and its forms: rights, secrets, faults, and the audit log."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pytest
from django.test import Client
from django.utils import timezone
from lxml import html as lxml_html  # type: ignore[import-untyped]
from rest_framework.validators import UniqueValidator

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.incidents import notify
from policies.incidents.models import Delivery, Incident, NotificationChannel
from tests.builders.accounts import client_of, make_user
from tests.html import html_of
from tests.integration.dashboard.test_project_form import field_of, opened
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

PAGE, NEW, API = "/channels/", "/channels/new/", "/api/v1/notification-channels"
SECRET, KEY = "s3cret-routing-key", "T0/B0/k3y"
MAY_NOT = (Role.VIEWER, Role.ML_USER, Role.RESPONDER)


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(make_user(Role.OPERATOR, username="olga"))
    return client


@pytest.fixture
def hook() -> NotificationChannel:
    return NotificationChannel.objects.create(
        name="on-call", kind="webhook", target=f"https://hooks.example.com/{KEY}", secret=SECRET
    )


def change_of(channel: NotificationChannel) -> str:
    return f"/channels/{channel.pk}/"


def untouched(client: Client, path: str) -> dict[str, str]:
    """Return what a browser sends of a form that nobody has touched."""
    page = lxml_html.fromstring(client.get(path).content.decode())
    (form,) = page.xpath("//form[@class='stack']")
    return dict(form.form_values())


def sent(client: Client, path: str, *off: str, **given: str) -> Any:
    """Send a form with what is ``given``, and without the boxes that are ``off``."""
    body = {**untouched(client, path), **given}
    return client.post(path, {name: value for name, value in body.items() if name not in off})


# --- Who may -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", MAY_NOT)
def test_readers_see_channels_and_may_change_nothing(hook: NotificationChannel, role: Role) -> None:
    client = client_of(role)
    html = opened(client, PAGE)
    assert "on-call" in html
    assert NEW not in html
    assert change_of(hook) not in html
    for path in (NEW, change_of(hook), f"{change_of(hook)}delete/"):
        assert client.get(path).status_code == 403
        assert client.post(path, {"name": "x", "kind": "slack"}).status_code == 403
    assert client.post(f"{change_of(hook)}test").status_code == 403
    assert list(NotificationChannel.objects.values_list("name", flat=True)) == ["on-call"]
    assert not Delivery.objects.exists()


def test_who_is_not_logged_in_is_asked_to(hook: NotificationChannel) -> None:
    for path in (PAGE, NEW, change_of(hook)):
        assert Client().get(path)["Location"].startswith("/login/")


def test_forms_of_another_site_are_refused(hook: NotificationChannel) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.OPERATOR))
    for path in (NEW, change_of(hook), f"{change_of(hook)}delete/", f"{change_of(hook)}test"):
        assert client.post(path, {"name": "x"}).status_code == 403
    assert NotificationChannel.objects.get().name == "on-call"


def test_a_channel_that_is_not_there_is_not_found(operator: Client) -> None:
    for path in ("/channels/7/", "/channels/7/delete/"):
        assert operator.get(path).status_code == 404
        assert operator.post(path).status_code == 404
    assert operator.post("/channels/7/test").status_code == 404


# --- What is made and changed --------------------------------------------------------------------


def test_without_a_channel_the_page_says_what_it_is_for_and_leads_to_the_form(
    operator: Client,
) -> None:
    html = opened(operator, PAGE)
    assert "Nobody is notified: there is no channel yet" in text_of(html)
    assert f'href="{NEW}"' in html
    assert NEW not in opened(client_of(Role.VIEWER), PAGE)


def test_a_channel_is_made_as_by_the_api_with_the_same_entry(operator: Client) -> None:
    answer = sent(
        operator, NEW, name="pager", kind="pagerduty", secret=SECRET, min_severity="critical",
        matchers='site="oslo"\r\n\r\nrule=~"feed-.*"\r\n',
    )  # fmt: skip
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert "Channel pager is made." in text_of(opened(operator, PAGE))
    body = {
        "name": "pager-2", "kind": "pagerduty", "secret": SECRET, "min_severity": "critical",
        "matchers": ['site="oslo"', 'rule=~"feed-.*"'],
    }  # fmt: skip
    assert operator.post(API, body, content_type="application/json").status_code == 201
    by_page, by_api = operator.get(API).json()["results"]
    apart = {name: by_api[name] for name in ("id", "name", "created_at")}
    assert {**by_page, **apart} == by_api
    mine, its = AuditEntry.objects.filter(action="channel.create").order_by("pk")
    assert (mine.actor, mine.target, its.target) == ("olga", "pager", "pager-2")
    assert set(mine.detail["after"]) == set(its.detail["after"])
    assert NotificationChannel.objects.filter(secret=SECRET).count() == 2


def test_a_change_is_kept_and_lets_what_failed_be_tried_again(
    operator: Client, hook: NotificationChannel
) -> None:
    NotificationChannel.objects.update(failures=7, not_before=timezone.now(), last_error="x")
    assert sent(operator, change_of(hook), "enabled", min_severity="info").status_code == 302
    row = NotificationChannel.objects.get()
    assert (row.min_severity, row.enabled, row.send_resolved) == ("info", False, True)
    assert (row.failures, row.not_before, row.last_error) == (0, None, "")
    assert (row.target, row.secret) == (hook.target, SECRET)
    entry = AuditEntry.objects.get(action="channel.change")
    assert entry.detail["after"].keys() == {
        "min_severity", "enabled", "failures", "not_before", "last_error",
    }  # fmt: skip


def test_what_is_left_alone_is_not_written(operator: Client, hook: NotificationChannel) -> None:
    assert sent(operator, change_of(hook)).status_code == 302
    assert not AuditEntry.objects.filter(action="channel.change").exists()


def test_what_another_changed_meanwhile_stays(operator: Client, hook: NotificationChannel) -> None:
    was = untouched(operator, change_of(hook))
    NotificationChannel.objects.update(min_severity="critical", target="https://other.example.com/")
    answer = operator.post(change_of(hook), {**was, "matchers": 'site="oslo"'})
    assert answer.status_code == 302
    row = NotificationChannel.objects.get()
    assert (row.min_severity, row.matchers) == ("critical", ['site="oslo"'])
    assert row.target == "https://other.example.com/"


def test_a_channel_is_deleted_after_a_question(operator: Client, hook: NotificationChannel) -> None:
    notify.send(["on-call"], "x", "y", key="k", now=timezone.now())
    path = f"{change_of(hook)}delete/"
    said = text_of(opened(operator, path))
    assert "with 1 notification that waits to be sent" in said
    assert NotificationChannel.objects.exists()
    answer = operator.post(path)
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert not NotificationChannel.objects.exists()
    entry = AuditEntry.objects.get(action="channel.delete")
    assert (entry.actor, entry.target) == ("olga", "on-call")
    assert operator.post(path).status_code == 404


def test_a_test_is_queued_and_told_of(operator: Client, hook: NotificationChannel) -> None:
    assert operator.post(f"{change_of(hook)}test").status_code == 302
    delivery = Delivery.objects.get()
    assert (delivery.event, delivery.state) == ("message", "queued")
    html = opened(operator, PAGE)
    assert "A test message is on its way to on-call" in text_of(html)
    assert "Test message of Headroom" in html
    assert AuditEntry.objects.filter(action="channel.test", target="on-call").exists()


def test_what_is_switched_off_is_not_tested(operator: Client, hook: NotificationChannel) -> None:
    NotificationChannel.objects.update(enabled=False)
    assert f"{change_of(hook)}test" not in opened(operator, PAGE)
    operator.post(f"{change_of(hook)}test")
    assert "on-call is switched off: switch it on first." in text_of(opened(operator, PAGE))
    assert not Delivery.objects.exists()


# --- Secrets -------------------------------------------------------------------------------------


def test_no_page_shows_a_secret_or_the_rest_of_a_url(
    operator: Client, hook: NotificationChannel
) -> None:
    for path in (PAGE, change_of(hook), f"{change_of(hook)}delete/"):
        html = operator.get(path).content.decode()
        assert SECRET not in html
        assert "k3y" not in html
    assert "https://hooks.example.com/…" in opened(operator, PAGE)
    html = opened(operator, change_of(hook))
    assert "It goes to https://hooks.example.com/…" in field_of(html, "target")
    assert "There is one, and it is not shown." in field_of(html, "secret")


def test_a_secret_that_was_typed_is_not_given_back_with_a_fault(
    operator: Client, hook: NotificationChannel
) -> None:
    answer = sent(operator, change_of(hook), secret="new-s3cret", matchers="color=red")
    assert answer.status_code == 400
    assert "new-s3cret" not in answer.content.decode()
    assert NotificationChannel.objects.get().secret == SECRET


def test_a_secret_is_replaced_and_taken_away(operator: Client, hook: NotificationChannel) -> None:
    assert sent(operator, change_of(hook), secret="other").status_code == 302
    assert NotificationChannel.objects.get().secret == "other"
    both = sent(operator, change_of(hook), secret="third", forget_secret="on")
    assert "not both" in field_of(html_of(both), "forget_secret")
    assert sent(operator, change_of(hook), forget_secret="on").status_code == 302
    assert NotificationChannel.objects.get().secret == ""
    assert "forget_secret" not in opened(operator, change_of(hook))


def test_a_secret_does_not_follow_to_another_address(
    operator: Client, hook: NotificationChannel
) -> None:
    evil = {"target": "https://evil.example.com/x"}
    answer = sent(operator, change_of(hook), **evil)
    assert answer.status_code == 400
    assert "Give the secret again" in field_of(html_of(answer), "secret")
    assert sent(operator, change_of(hook), forget_secret="on", **evil).status_code == 302
    row = NotificationChannel.objects.get()
    assert (row.target, row.secret) == (evil["target"], "")


def test_another_kind_wants_its_address_and_tells_nothing_of_the_old_one(
    operator: Client, hook: NotificationChannel
) -> None:
    answer = sent(operator, change_of(hook), kind="email")
    html = answer.content.decode()
    assert answer.status_code == 400
    assert "k3y" not in html
    assert "Give the" in html
    assert NotificationChannel.objects.get().kind == "webhook"


# --- What is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "given", "words"),
    [
        ("name", {"name": ""}, "may not be blank"),
        ("name", {"name": "on-call"}, "already exists"),
        ("name", {"name": "x" * 101}, "no more than 100 characters"),
        ("kind", {"kind": "pigeon"}, "Select a valid choice"),
        ("target", {"target": "http://169.254.169.254/latest"}, "no public address"),
        ("target", {"kind": "email", "target": "nobody"}, "is no email address"),
        ("secret", {"kind": "pagerduty", "target": ""}, "give the routing key"),
        ("min_severity", {"min_severity": "awful"}, "Select a valid choice"),
        ("matchers", {"matchers": 'site="oslo"\ncolor=red'}, "color"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_and_what_was_typed_stays(
    operator: Client, hook: NotificationChannel, field: str, given: dict[str, str], words: str
) -> None:
    rest = {"name": "new", "target": "https://hooks.example.com/x", "kind": "slack"}
    answer = sent(operator, NEW, **{**rest, **given})
    assert answer.status_code == 400
    html = html_of(answer)
    assert words in field_of(html, field)
    assert f'id="id_{field}_error"' in html
    assert html.count('class="errorlist"') == 1
    assert NotificationChannel.objects.count() == 1
    assert not AuditEntry.objects.filter(action="channel.create").exists()


def test_of_two_that_make_one_name_at_once_the_second_is_refused(
    operator: Client, hook: NotificationChannel
) -> None:
    with patch.object(UniqueValidator, "__call__", lambda *_: None):
        answer = sent(
            operator, NEW, name="on-call", kind="slack", target="https://hooks.example.com/x"
        )
    assert answer.status_code == 400
    assert "There is a channel of this name." in field_of(html_of(answer), "name")


def test_names_and_addresses_are_escaped(operator: Client) -> None:
    evil = "<script>alert(1)</script>"
    NotificationChannel.objects.create(
        name=evil, kind="webhook", target=f"https://{evil}/k", secret="x", matchers=[evil],
        last_error=evil, failures=1,
    )  # fmt: skip
    channel = NotificationChannel.objects.get()
    for path in (PAGE, change_of(channel), f"{change_of(channel)}delete/"):
        assert "<script>alert" not in operator.get(path).content.decode()
    html = sent(operator, NEW, name=evil, target=evil, kind="slack").content.decode()
    assert "<script>alert" not in html


# --- What is said --------------------------------------------------------------------------------


def test_what_fails_comes_first_in_words(operator: Client, hook: NotificationChannel) -> None:
    NotificationChannel.objects.update(failures=3, last_error="the answer is 503: overloaded")
    said = text_of(opened(operator, PAGE))
    assert "1 channel, 1 failing" in said
    assert "failed 3 times in a row" in said
    assert "the answer is 503: overloaded" in said


def test_a_poll_of_what_has_not_changed_is_answered_empty(
    operator: Client, hook: NotificationChannel
) -> None:
    found = re.search(r'hx-get="(/live/channels\?[^"]*)"', operator.get(PAGE).content.decode())
    assert found is not None
    url = found[1].replace("&amp;", "&")
    assert operator.get(url).status_code == 204
    NotificationChannel.objects.update(enabled=False)
    assert operator.get(url).status_code == 200


def test_notifications_about_jobs_of_others_are_not_told_of(hook: NotificationChannel) -> None:
    incident = Incident.objects.create(
        title="job theirs-7 waits", rule="r", group_key="g", severity="warning", scope_kind="job",
        scope_name="theirs-7", opened_at=timezone.now(),
    )  # fmt: skip
    Delivery.objects.create(
        channel=hook, incident=incident, key="k", event="opened", subject=incident.title,
        queued_at=timezone.now(), next_at=timezone.now(),
    )  # fmt: skip
    assert "theirs-7" in opened(client_of(Role.OPERATOR), PAGE)
    assert "theirs-7" not in opened(client_of(Role.ML_USER), PAGE)
