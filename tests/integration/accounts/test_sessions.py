"""Sessions: how long they last, who sees them, and what ends them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import Settings

from accounts.models import AuditEntry, Session, User
from accounts.roles import Role
from accounts.sessions.agents import in_words
from accounts.sessions.standing import standing
from accounts.tasks import forget_sessions
from tests.builders.accounts import PASSWORD, client_of, make_user

pytestmark = pytest.mark.django_db

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def _log_in(user: User, agent: str = FIREFOX, address: str = "10.1.2.3") -> Client:
    client = Client(headers={"User-Agent": agent}, REMOTE_ADDR=address)
    client.post("/login/", {"username": user.username, "password": PASSWORD})
    assert _is_in(client)
    return client


def _is_in(client: Client) -> bool:
    return client.get("/api/v1/me").status_code == 200


def _key(client: Client) -> str:
    key = client.session.session_key
    assert key
    return key


def _handle(client: Client) -> str:
    handle: str = Session.objects.get(pk=_key(client)).handle
    return handle


def _move_back(column: str, **age: float) -> None:
    Session.objects.update(**{column: F(column) - timedelta(**age)})


def test_the_account_page_shows_ones_sessions_and_no_key_of_them() -> None:
    user = make_user(username="ada")
    here, elsewhere = _log_in(user), _log_in(user, agent="curl/8", address="2001:db8::7")
    _log_in(make_user(username="bob"), address="10.66.66.66")
    page = here.get("/account/").content.decode()
    assert "Firefox on Linux" in page
    assert "10.1.2.3" in page
    assert "2001:db8::7" in page
    assert "10.66.66.66" not in page
    assert "by password" in page
    assert _key(elsewhere) not in page


def test_ending_a_session_takes_effect_at_once_and_is_noted() -> None:
    user = make_user(username="ada")
    here, elsewhere = _log_in(user), _log_in(user)
    assert here.post(f"/account/sessions/{_handle(elsewhere)}/end/").status_code == 302
    assert not _is_in(elsewhere)
    assert _is_in(here)
    entry = AuditEntry.objects.get(action="session.end")
    assert (entry.actor, entry.target, entry.detail["sessions"]) == ("ada", "ada", 1)


def test_sessions_of_others_are_not_found() -> None:
    here, other = _log_in(make_user()), _log_in(make_user())
    assert here.post(f"/account/sessions/{_handle(other)}/end/").status_code == 404
    assert _is_in(other)


def test_all_others_end_and_this_one_stays() -> None:
    user = make_user()
    here, second, third = _log_in(user), _log_in(user), _log_in(user)
    stranger = _log_in(make_user())
    here.post("/account/sessions/end-others/")
    assert [_is_in(each) for each in (here, second, third, stranger)] == [True, False, False, True]


def test_a_new_password_ends_the_other_sessions() -> None:
    user = make_user()
    here, elsewhere = _log_in(user), _log_in(user)
    new = "an even better battery"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert here.post("/password/", form).status_code == 302
    assert _is_in(here)
    assert not _is_in(elsewhere)
    assert Session.objects.filter(user=user).count() == 1


def test_a_new_role_ends_all_sessions_however_it_was_written() -> None:
    user = make_user(Role.ADMIN)
    client = _log_in(user)
    User.objects.filter(pk=user.pk).update(role=Role.VIEWER)
    assert not _is_in(client)


def test_an_admin_who_changes_a_role_ends_the_sessions() -> None:
    user = make_user(Role.OPERATOR, username="ada")
    client = _log_in(user)
    form = {"username": "ada", "role": "viewer", "is_active": "on"}
    answer = client_of(Role.ADMIN).post(f"/admin/accounts/user/{user.pk}/change/", form)
    assert answer.status_code == 302
    assert not _is_in(client)
    assert not Session.objects.filter(user=user).exists()


def test_an_admin_sees_and_ends_the_sessions_of_others() -> None:
    user, admin = make_user(), client_of(Role.ADMIN)
    client = _log_in(user)
    page = admin.get(f"/admin/accounts/user/{user.pk}/change/").content.decode()
    assert "Firefox on Linux, 10.1.2.3" in page
    assert _key(client) not in page
    form = {"action": "end_sessions", "_selected_action": [user.pk]}
    admin.post("/admin/accounts/user/", form)
    assert not _is_in(client)
    assert _is_in(admin)


def test_a_session_ends_a_while_after_its_login_however_much_it_is_used(settings: Settings) -> None:
    settings.SESSION_MAX_H = 10
    client = _log_in(make_user())
    _move_back("started_at", hours=9)
    assert _is_in(client)
    _move_back("started_at", hours=2)
    assert not _is_in(client)


def test_a_session_ends_when_nobody_uses_it(settings: Settings) -> None:
    settings.SESSION_IDLE_H = 2
    client = _log_in(make_user())
    _move_back("last_seen_at", hours=1.5)
    assert _is_in(client)  # a use: the time begins anew
    _move_back("last_seen_at", hours=1.5)
    assert _is_in(client)
    _move_back("last_seen_at", hours=2.5)
    assert not _is_in(client)


def test_a_page_that_polls_by_itself_is_no_use_of_a_session(settings: Settings) -> None:
    settings.SESSION_IDLE_H = 2
    client = _log_in(make_user())
    for _ in range(3):
        _move_back("last_seen_at", hours=0.9)
        answer = client.get("/api/v1/me", headers={"Sec-Fetch-Dest": "empty"})
    assert answer.status_code in (401, 403)


def test_saving_a_session_does_not_prolong_it_beyond_its_lifetime(settings: Settings) -> None:
    settings.SESSION_MAX_H = 10
    client = _log_in(make_user())
    session = client.session
    session["x"] = 1
    session.save()
    assert Session.objects.get(pk=session.session_key).address == "10.1.2.3"
    started = Session.objects.get(pk=session.session_key).started_at
    session["x"] = 2
    session.save()
    assert Session.objects.get(pk=session.session_key).started_at == started


def test_sessions_that_are_over_are_forgotten(settings: Settings) -> None:
    stale, fresh = _log_in(make_user()), _log_in(make_user())
    Session.objects.filter(pk=stale.session.session_key).update(
        last_seen_at=F("last_seen_at") - timedelta(hours=settings.SESSION_IDLE_H + 1)
    )
    forget_sessions()
    assert list(Session.objects.values_list("pk", flat=True)) == [fresh.session.session_key]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18) Version/18 Safari/604.1", "Safari on iPhone"),
        ("curl/8.5.0", "curl"),
        ("", "unknown browser"),
    ],
)
def test_a_browser_is_told_in_words(header: str, words: str) -> None:
    assert in_words(header) == words


class TestStanding:
    """What the door takes for polls that it answers itself."""

    def _stands(self, client: Client) -> bool:
        return _key(client) in standing([_key(client)])

    def test_a_session_stands_for_its_user_until_its_role_changes(self) -> None:
        user = make_user()
        client = _log_in(user)
        before = standing([_key(client)])
        assert before
        User.objects.filter(pk=user.pk).update(role=Role.ADMIN)
        assert standing([_key(client)]) != before

    @pytest.mark.parametrize("column", ["started_at", "last_seen_at", "expire_date"])
    def test_one_that_is_over_stands_for_nothing(self, column: str) -> None:
        client = _log_in(make_user())
        assert self._stands(client)
        _move_back(column, hours=10_000)
        assert not self._stands(client)

    def test_nor_does_one_that_lacks_a_second_factor(self, settings: Settings) -> None:
        client = _log_in(make_user())
        settings.SECOND_FACTOR_ROLES = ["viewer"]
        assert not self._stands(client)
