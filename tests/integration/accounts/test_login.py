from __future__ import annotations

import logging
from datetime import timedelta
from unittest import mock

import pytest
from axes.models import AccessAttempt
from django.contrib.auth import hashers
from django.db.models import F
from django.test import Client
from pytest_django import Settings

from accounts.models import AuditEntry, User
from accounts.roles import Role
from tests.builders.accounts import PASSWORD, client_of, make_user

pytestmark = pytest.mark.django_db

WRONG = "hunter2-hunter2"


def _try(client: Client, username: str, password: str = WRONG, **extra: str) -> int:
    form = {"username": username, "password": password, **extra}
    return client.post("/login/", form).status_code


def _actions() -> list[str]:
    return list(AuditEntry.objects.order_by("id").values_list("action", flat=True))


def test_the_right_password_opens_the_door_and_is_noted(client: Client) -> None:
    user = make_user(Role.OPERATOR, username="ada")
    response = client.post("/login/", {"username": "ada", "password": PASSWORD})
    assert response.status_code == 302
    assert client.session["_auth_user_id"] == str(user.pk)
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action) == ("ada", "login")
    assert entry.detail == {"ip": "127.0.0.1", "way": "password", "second_factor": False}


def test_logging_in_gives_the_session_a_new_key(client: Client) -> None:
    make_user(username="ada")
    session = client.session
    session["planted"] = "1"
    session.save()
    before = client.cookies["sessionid"].value
    _try(client, "ada", PASSWORD)
    assert client.cookies["sessionid"].value != before


def test_the_session_cookie_is_out_of_scripts_reach(client: Client) -> None:
    make_user(username="ada")
    _try(client, "ada", PASSWORD)
    assert client.cookies["sessionid"]["httponly"]
    assert client.cookies["sessionid"]["samesite"] == "Lax"


def test_logging_out_takes_a_post_and_is_noted() -> None:
    client = client_of()
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert "_auth_user_id" not in client.session
    assert _actions()[-1] == "logout"


def test_a_wrong_password_is_noted_without_it(client: Client) -> None:
    make_user(username="ada")
    assert _try(client, "ada") == 200
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.target) == ("anonymous", "login.failed", "ada")
    assert WRONG not in str(entry.detail)


def test_a_password_typed_as_user_name_is_not_kept(client: Client) -> None:
    _try(client, "my-secret-password", "")
    _try(client, "my-secret-password", "x")
    assert AuditEntry.objects.get().target == "(unknown user)"


@pytest.mark.parametrize("kind", ["unknown", "inactive", "unusable"])
def test_who_cannot_log_in_looks_and_costs_the_same(client: Client, kind: str) -> None:
    known = make_user(username="ada")
    if kind == "inactive":
        make_user(username=kind, is_active=False)
    if kind == "unusable":
        User.objects.create_user(username=kind)
    hashed = []
    with mock.patch.object(
        hashers.MD5PasswordHasher, "encode", autospec=True, side_effect=lambda *_: hashed.append(1)
    ):
        first = client.post("/login/", {"username": known.username, "password": WRONG})
        work = len(hashed)
        second = client.post("/login/", {"username": kind, "password": WRONG})
    assert work == len(hashed) - work == 1
    assert b"do not match" in first.content
    assert b"do not match" in second.content


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example"]
)
def test_the_way_back_leads_nowhere_else(client: Client, target: str) -> None:
    make_user(username="ada")
    response = client.post("/login/", {"username": "ada", "password": PASSWORD, "next": target})
    assert response.status_code == 302
    assert "evil" not in response["Location"]
    assert not response["Location"].startswith("javascript")


def test_the_way_back_leads_back(client: Client) -> None:
    make_user(username="ada")
    response = client.post(
        "/login/", {"username": "ada", "password": PASSWORD, "next": "/account/?x=1"}
    )
    assert response["Location"] == "/account/?x=1"


def test_the_form_needs_its_csrf_token() -> None:
    make_user(username="ada")
    client = Client(enforce_csrf_checks=True)
    assert _try(client, "ada", PASSWORD) == 403
    page = client.get("/login/")
    token = page.context["csrf_token"]
    assert _try(client, "ada", PASSWORD, csrfmiddlewaretoken=str(token)) == 302


def test_nothing_of_a_login_reaches_the_logs(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    make_user(username="ada")
    with caplog.at_level(logging.DEBUG):
        _try(client, "ada")
        _try(client, "ada", PASSWORD)
    assert caplog.records
    assert WRONG not in caplog.text
    assert PASSWORD not in caplog.text


class TestLockout:
    @pytest.fixture(autouse=True)
    def _limit(self, settings: Settings) -> None:
        settings.AXES_FAILURE_LIMIT = 3
        settings.AXES_COOLOFF_TIME = 0.25
        make_user(username="ada")

    def _fail(self, client: Client, times: int = 3) -> list[int]:
        return [_try(client, "ada") for _ in range(times)]

    def test_it_comes_after_too_many_tries(self, client: Client) -> None:
        assert self._fail(client) == [200, 200, 429]

    def test_the_right_password_does_not_help_then(self, client: Client) -> None:
        self._fail(client)
        assert _try(client, "ada", PASSWORD) == 429
        assert "_auth_user_id" not in client.session

    def test_another_browser_does_not_help_either(self, client: Client) -> None:
        self._fail(client)
        assert _try(Client(headers={"User-Agent": "another"}), "ada", PASSWORD) == 429

    def test_a_spoofed_address_does_not_help_either(self, client: Client) -> None:
        self._fail(client)
        assert _try(Client(headers={"X-Forwarded-For": "1.2.3.4"}), "ada", PASSWORD) == 429

    def test_it_says_how_long(self, client: Client) -> None:
        self._fail(client)
        AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=10))
        response = client.post("/login/", {"username": "ada", "password": PASSWORD})
        assert response.status_code == 429
        assert b"for 5 more minutes" in response.content
        assert 290 <= int(response["Retry-After"]) <= 300

    def test_trying_on_does_not_prolong_it(self, client: Client) -> None:
        self._fail(client)
        AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=10))
        self._fail(client)
        response = client.post("/login/", {"username": "ada", "password": PASSWORD})
        assert b"for 5 more minutes" in response.content

    def test_it_ends(self, client: Client) -> None:
        self._fail(client)
        AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=16))
        assert _try(client, "ada", PASSWORD) == 302

    def test_it_is_of_one_user_and_one_address(self, client: Client) -> None:
        make_user(username="bob")
        self._fail(client)
        assert _try(client, "bob", PASSWORD) == 302
        assert _try(Client(REMOTE_ADDR="10.0.0.9"), "ada", PASSWORD) == 302

    def test_a_login_starts_the_count_anew(self, client: Client) -> None:
        self._fail(client, 2)
        assert _try(client, "ada", PASSWORD) == 302
        assert self._fail(Client(), 2) == [200, 200]

    def test_it_is_noted_once_and_what_follows_is_not(self, client: Client) -> None:
        self._fail(client, 6)
        assert _actions() == ["login.failed", "login.failed", "login.locked"]
        assert AuditEntry.objects.get(action="login.locked").target == "ada"
