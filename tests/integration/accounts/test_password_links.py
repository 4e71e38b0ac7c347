"""Links by which people set their passwords: what they open, once, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import connections, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts import password_links, users
from accounts.models import ApiToken, AuditEntry, Identity, Session, User
from accounts.roles import Role
from config.logs import scrub
from tests.builders.accounts import PASSWORD, client_of, make_user
from tests.integration.accounts.test_users import ISSUER, _waits

pytestmark = pytest.mark.django_db

NEW = "a brand new long one"
GIVEN = {"new_password1": NEW, "new_password2": NEW}


@pytest.fixture
def boss(db: None) -> User:
    return make_user(Role.ADMIN, username="boss")


@pytest.fixture
def ada(boss: User) -> User:
    return users.create(boss, username="ada", role=Role.ML_USER)


def link(user: User, token: str) -> str:
    return f"/password/link/?user={user.pk}&token={token}"


def opens(path: str) -> bool:
    """Say whether a stranger's browser gets the form; else it is told that it opens nothing."""
    status = Client().get(path).status_code
    assert status in (200, 404)
    return status == 200


def test_a_new_user_sets_a_password_and_logs_in_with_it(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    client = Client(REMOTE_ADDR="10.1.2.3")
    assert "Set the password of ada" in client.get(path).content.decode()
    answer = client.post(path, GIVEN)
    assert (answer.status_code, answer["Location"]) == (302, "/login/")
    assert "sessionid" not in client.cookies  # it logs nobody in
    assert client.post("/login/", {"username": "ada", "password": NEW})["Location"] == "/"
    made, used = AuditEntry.objects.filter(action__startswith="password.").order_by("pk")
    assert (made.actor, made.action, made.target) == ("boss", "password.link", "ada")
    assert (used.actor, used.action, used.detail) == ("ada", "password.by_link", {"ip": "10.1.2.3"})
    assert NEW not in str([entry.detail for entry in AuditEntry.objects.all()])


def test_a_link_works_once(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    assert Client().post(path, GIVEN).status_code == 302
    assert not opens(path)
    again = {"new_password1": PASSWORD, "new_password2": PASSWORD}
    assert Client().post(path, again).status_code == 404
    ada.refresh_from_db()
    assert ada.check_password(NEW)
    assert ada.link_made_at is None


def test_a_password_that_is_refused_does_not_use_the_link_up(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    for first, second in (("short", "short"), (NEW, f"{NEW}!"), ("", "")):
        answer = Client().post(path, {"new_password1": first, "new_password2": second})
        assert answer.status_code == 400
    ada.refresh_from_db()
    assert not ada.has_usable_password()
    assert opens(path)


def test_another_link_ends_the_one_before(boss: User, ada: User) -> None:
    first = link(ada, password_links.make(boss, ada))
    second = link(ada, password_links.make(boss, ada))
    assert not opens(first)
    assert opens(second)


def test_a_link_is_taken_back(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    assert password_links.take_back(boss, ada)
    assert not opens(path)
    assert not password_links.take_back(boss, ada)
    assert AuditEntry.objects.filter(action="password.link_end", target="ada").count() == 1


def test_a_link_ends_after_a_day(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    ada.refresh_from_db()
    end = password_links.ends_at(ada)
    assert end is not None
    assert ada.link_made_at is not None
    assert end - ada.link_made_at == timedelta(days=1)
    # Django's tokens count whole seconds, in the server's time zone.
    with patch("django.contrib.auth.tokens.PasswordResetTokenGenerator._now") as now:
        now.return_value = timezone.now().replace(tzinfo=None) + timedelta(hours=23)
        assert opens(path)
        now.return_value = timezone.now().replace(tzinfo=None) + timedelta(days=1, seconds=2)
        assert not opens(path)


def test_a_login_ends_a_link_that_nobody_has_used(boss: User) -> None:
    eve = make_user(username="eve")
    path = link(eve, password_links.make(boss, eve))
    Client().post("/login/", {"username": "eve", "password": PASSWORD})
    assert not opens(path)
    eve.refresh_from_db()
    assert password_links.ends_at(eve) is None


def test_whoever_is_deactivated_has_no_link_either_when_active_anew(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    users.change(boss, ada, is_active=False)
    assert not opens(path)
    ada.refresh_from_db()
    users.change(boss, ada, is_active=True)
    assert not opens(path)


def test_a_new_address_leaves_the_link_as_it_is(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    users.change(boss, ada, email="ada@example.com")
    assert opens(path)


def test_a_link_opens_the_account_of_its_user_alone(boss: User, ada: User) -> None:
    eve = users.create(boss, username="eve", role=Role.VIEWER)
    token = password_links.make(boss, ada)
    password_links.make(boss, eve)
    assert not opens(link(eve, token))
    assert not opens(link(boss, token))
    for odd in ("", "user=x&token=y", f"user={ada.pk}", f"user={ada.pk}&token=", "user=9&token=a-b",
                f"user={2**70}&token={token}", f"user={ada.pk}&token={token}x"):  # fmt: skip
        assert not opens(f"/password/link/?{odd}")


def test_a_set_password_ends_sessions_and_tokens(boss: User) -> None:
    eve = make_user(username="eve")
    ApiToken.issue(eve, "robot")
    Client().force_login(eve)
    path = link(eve, password_links.make(boss, eve))
    assert Client().post(path, GIVEN).status_code == 302
    assert not Session.objects.filter(user=eve).exists()
    assert not ApiToken.objects.usable().exists()


def test_a_link_of_who_may_use_no_password_opens_nothing(
    boss: User, ada: User, settings: Settings
) -> None:
    path = link(ada, password_links.make(boss, ada))
    settings.LOCAL_LOGIN = "emergency"
    assert not opens(path)
    settings.EMERGENCY_USERS = ["ada"]
    assert opens(path)


def test_who_signs_on_at_a_provider_gets_no_password_by_a_link(
    boss: User, ada: User, settings: Settings
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_NAME = ISSUER, "x", "Acme"
    path = link(ada, password_links.make(boss, ada))
    Identity.objects.create(user=ada, issuer=ISSUER, subject="1")
    assert password_links.why_not(ada) == "the user logs in by Acme, and has no password here"
    assert not opens(path)


def test_forms_of_another_site_set_no_password(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    assert Client(enforce_csrf_checks=True).post(path, GIVEN).status_code == 403
    assert opens(path)


def test_logs_have_no_token_of_a_link(boss: User, ada: User) -> None:
    token = password_links.make(boss, ada)
    assert token not in str(scrub(None, "", {"path": link(ada, token)}))


def test_who_is_logged_in_as_somebody_else_may_use_a_link(boss: User, ada: User) -> None:
    path = link(ada, password_links.make(boss, ada))
    assert client_of(Role.VIEWER).post(path, GIVEN).status_code == 302
    ada.refresh_from_db()
    assert ada.check_password(NEW)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_a_link_at_once_one_sets_the_password() -> None:
    boss = make_user(Role.ADMIN)
    ada = users.create(boss, username="ada", role=Role.VIEWER)
    token = password_links.make(boss, ada)

    def post() -> int:
        try:
            body = {"new_password1": PASSWORD, "new_password2": PASSWORD}
            return Client().post(link(ada, token), body).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            opened = password_links.opened_by(ada.pk, token, lock=True)
            assert opened is not None
            second = pool.submit(post)
            assert _waits(second)
            password_links.set_password(opened, NEW)
        assert second.result(60) == 404
    ada.refresh_from_db()
    assert ada.check_password(NEW)
