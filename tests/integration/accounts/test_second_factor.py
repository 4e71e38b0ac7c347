"""The second factor: on and off, at every way in, and against those who guess and replay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pyotp
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import ApiToken, AuditEntry, Authenticator, RecoveryCode, User
from accounts.roles import Role
from accounts.second_factor import actions, codes, secret
from accounts.second_factor.actions import Verdict
from tests.builders.accounts import PASSWORD, bearer, client_of, make_token, make_user

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


def _code(at: datetime | None = None, *, step: int = 0, of: str = SECRET) -> str:
    return pyotp.TOTP(of).at(int((at or timezone.now()).timestamp()), counter_offset=step)


def _wrong(at: datetime | None = None) -> str:
    right = {_code(at, step=step) for step in (-2, -1, 0, 1, 2)}
    return next(each for each in ("000000", "111111", "222222", "333333", "444444", "555555")
                if each not in right)  # fmt: skip


def _with_factor(role: Role = Role.VIEWER, username: str = "ada") -> tuple[User, list[str]]:
    user = make_user(role, username=username)
    shown = actions.turn_on(user, SECRET, _code(NOW - timedelta(hours=1)), NOW - timedelta(hours=1))
    assert shown
    return user, shown


def _half(username: str = "ada", **form: str) -> Client:
    client = Client()
    client.post("/login/", {"username": username, "password": PASSWORD, **form})
    return client


def _send(client: Client, code: str) -> HttpResponse:
    return client.post("/login/code/", {"code": code})  # type: ignore[return-value]


def _is_in(client: Client) -> bool:
    return client.get("/api/v1/me").status_code == 200


def _actions() -> list[str]:
    return list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))


class TestLogin:
    def test_the_password_alone_opens_nothing(self) -> None:
        _with_factor(Role.ADMIN)
        client = _half()
        assert not _is_in(client)
        for address in ("/", "/admin/", "/admin/accounts/user/", "/account/", "/metrics"):
            assert client.get(address).status_code in (301, 302, 401, 403)
        assert client.post("/account/tokens/", {"name": "x"}).status_code == 302
        assert not ApiToken.objects.exists()
        assert "login" not in _actions()

    def test_the_code_opens_the_door_and_leads_on(self) -> None:
        _with_factor()
        client = _half(next="/account/?x=1")
        before = client.cookies["sessionid"].value
        response = _send(client, _code())
        assert response["Location"] == "/account/?x=1"
        assert _is_in(client)
        assert client.cookies["sessionid"].value != before
        assert AuditEntry.objects.get(action="login").detail["second_factor"] is True

    def test_spaces_in_a_code_do_not_matter(self) -> None:
        _with_factor()
        code = _code()
        client = _half()
        _send(client, f" {code[:3]} {code[3:]}-")
        assert _is_in(client)

    def test_a_wrong_code_is_told_and_noted(self) -> None:
        _with_factor()
        client = _half()
        assert b"not right" in _send(client, _wrong()).content
        assert not _is_in(client)
        assert "second_factor.failed" in _actions()

    def test_without_a_password_there_is_no_place_for_codes(self) -> None:
        _with_factor()
        assert Client().get("/login/code/")["Location"] == "/login/"
        assert _send(Client(), _code())["Location"] == "/login/"

    def test_the_wait_for_a_code_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _with_factor()
        client = _half()
        later = timezone.now() + timedelta(minutes=11)
        monkeypatch.setattr("accounts.logins.timezone.now", lambda: later)
        assert _send(client, _code(later))["Location"] == "/login/"
        assert not _is_in(client)

    @pytest.mark.parametrize("change", [{"is_active": False}, {"password": "!x"}])
    def test_it_ends_with_the_account_or_the_password_too(self, change: dict[str, Any]) -> None:
        _with_factor()
        client = _half()
        User.objects.update(**change)
        assert _send(client, _code())["Location"] == "/login/"

    def test_the_code_of_another_user_does_not_help(self) -> None:
        _with_factor()
        make_user(username="mallory")
        actions.turn_on(User.objects.get(username="mallory"), SECRET[::-1].replace("0", "A"),
                        _code(NOW, of=SECRET[::-1]), NOW)  # fmt: skip
        client = _half("ada")
        _send(client, _code(of=SECRET[::-1]))
        assert not _is_in(client)

    def test_a_recovery_code_works_once(self) -> None:
        _, shown = _with_factor()
        assert _send(_half(), shown[3])["Location"] == "/"
        again = _half()
        _send(again, shown[3])
        assert not _is_in(again)
        entry = AuditEntry.objects.get(action="second_factor.recovery")
        assert (entry.target, entry.detail["left"]) == ("ada", 9)


class TestGuessing:
    def test_codes_cannot_be_tried_without_end(self) -> None:
        user, _ = _with_factor()
        verdicts = [actions.check(user, _wrong(NOW), NOW) for _ in range(6)]
        assert verdicts == [Verdict.WRONG] * 4 + [Verdict.LOCKED] * 2
        assert actions.check(user, _code(NOW), NOW) is Verdict.LOCKED
        assert _actions().count("second_factor.failed") == 4
        assert _actions().count("second_factor.locked") == 1

    def test_a_new_login_does_not_start_the_count_anew(self) -> None:
        _with_factor()
        for _ in range(5):
            _send(_half(), _wrong())
        assert _send(_half(), _code()).status_code == 429

    def test_a_recovery_code_opens_the_lock_for_its_owner(self) -> None:
        user, shown = _with_factor()
        for _ in range(6):
            actions.check(user, _wrong(NOW), NOW)
        assert actions.check(user, shown[0], NOW) is Verdict.RIGHT

    def test_recovery_codes_are_not_guessed_without_end_either(self) -> None:
        user, _ = _with_factor()
        verdicts = [actions.check(user, "abcd-" * 3 + "abcd", NOW) for _ in range(20)]
        assert verdicts.count(Verdict.LOCKED) == 16
        assert len(AuditEntry.objects.filter(action__startswith="second_factor.")) == 6

    def test_the_lock_ends(self) -> None:
        user, _ = _with_factor()
        for _ in range(5):
            actions.check(user, _wrong(NOW), NOW)
        later = NOW + timedelta(minutes=16)
        assert actions.check(user, _code(later), later) is Verdict.RIGHT

    def test_a_right_code_starts_the_count_anew(self) -> None:
        user, _ = _with_factor()
        for minute in (0, 1):
            at = NOW + timedelta(minutes=minute)
            for _ in range(4):
                assert actions.check(user, _wrong(at), at) is Verdict.WRONG
            assert actions.check(user, _code(at), at) is Verdict.RIGHT


class TestReplay:
    def test_a_code_is_taken_once(self) -> None:
        user, _ = _with_factor()
        assert actions.check(user, _code(NOW), NOW) is Verdict.RIGHT
        assert actions.check(user, _code(NOW), NOW) is Verdict.WRONG

    def test_nor_is_an_older_one_that_would_still_count(self) -> None:
        user, _ = _with_factor()
        assert actions.check(user, _code(NOW), NOW) is Verdict.RIGHT
        assert actions.check(user, _code(NOW, step=-1), NOW) is Verdict.WRONG

    def test_the_code_that_turned_it_on_does_not_log_in(self) -> None:
        user = make_user(username="ada")
        actions.turn_on(user, SECRET, _code(NOW), NOW)
        assert actions.check(user, _code(NOW), NOW) is Verdict.WRONG

    @pytest.mark.parametrize(("step", "verdict"), [(-2, "wrong"), (-1, "right"), (1, "right")])
    def test_clocks_may_differ_by_half_a_minute(self, step: int, verdict: str) -> None:
        user, _ = _with_factor()
        assert actions.check(user, _code(NOW, step=step), NOW).value == verdict


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["app", "recovery"])
def test_of_many_at_once_with_the_same_code_one_gets_in(kind: str) -> None:
    user, shown = _with_factor()
    code = shown[0] if kind == "recovery" else _code(NOW)

    def attempt(_: int) -> Verdict:
        try:
            return actions.check(user, code, NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(attempt, range(8)))
    assert verdicts.count(Verdict.RIGHT) == 1


class TestTurningItOn:
    def _enroll(self, client: Client, address: str = "/account/second-factor/") -> HttpResponse:
        page = client.get(address)
        new = page.context["secret"]
        return client.post(address, {"code": _code(of=new)})  # type: ignore[return-value]

    def test_the_page_shows_a_secret_once_and_takes_a_code_of_it(self) -> None:
        client = _half(make_user(username="ada").username)
        elsewhere = _half("ada")
        page = client.get("/account/second-factor/")
        assert b"data:image/svg+xml" in page.content
        response = self._enroll(client)
        shown = response.context["codes"]  # type: ignore[attr-defined]
        assert len(set(shown)) == 10
        assert _is_in(client)
        assert not _is_in(elsewhere)
        assert client.get("/account/second-factor/").status_code == 302
        assert "second_factor.on" in _actions()
        assert not _is_in(_half("ada"))

    def test_a_wrong_code_turns_nothing_on_and_keeps_the_secret(self) -> None:
        client = _half(make_user(username="ada").username)
        new = client.get("/account/second-factor/").context["secret"]
        page = client.post("/account/second-factor/", {"code": "000"})
        assert page.context["secret"] == new
        assert not Authenticator.objects.exists()

    def test_the_secret_is_not_in_the_database_as_it_is(self) -> None:
        user, shown = _with_factor()
        kept = bytes(Authenticator.objects.get(user=user).secret)
        assert SECRET.encode() not in kept
        assert secret.opened(kept) == SECRET
        stored = {bytes(each.digest) for each in RecoveryCode.objects.all()}
        assert stored == {codes.digest(each) for each in shown}

    def test_nor_is_one_that_is_not_proven_yet(self) -> None:
        client = _half(make_user(username="ada").username)
        new = client.get("/account/second-factor/").context["secret"]
        assert new not in str(dict(client.session))

    def test_under_another_secret_key_codes_are_wrong_and_recovery_codes_right(
        self, settings: Settings
    ) -> None:
        user, shown = _with_factor()
        settings.SECRET_KEY = "y" * 50
        assert actions.check(user, _code(NOW), NOW) is Verdict.WRONG
        assert actions.check(user, shown[0], NOW) is Verdict.RIGHT


class TestTurningItOff:
    def _inside(self) -> tuple[Client, list[str]]:
        _, shown = _with_factor()
        client = _half()
        _send(client, shown[0])
        return client, shown

    def test_it_takes_a_code(self) -> None:
        client, _ = self._inside()
        form = {"do": "off", "code": _wrong()}
        client.post("/account/second-factor/change/", form)
        assert Authenticator.objects.exists()
        client.post("/account/second-factor/change/", {**form, "code": _code()})
        assert not Authenticator.objects.exists()
        assert not RecoveryCode.objects.exists()
        assert "second_factor.off" in _actions()

    def test_new_recovery_codes_take_one_too_and_end_the_old(self) -> None:
        client, old = self._inside()
        page = client.post("/account/second-factor/change/", {"do": "codes", "code": _code()})
        assert not set(page.context["codes"]) & set(old)
        assert RecoveryCode.objects.count() == 10
        assert "second_factor.codes" in _actions()

    def test_a_role_that_needs_one_keeps_it(self, settings: Settings) -> None:
        settings.SECOND_FACTOR_ROLES = ["viewer"]
        client, _ = self._inside()
        client.post("/account/second-factor/change/", {"do": "off", "code": _code()})
        assert Authenticator.objects.exists()

    def test_admins_reset_that_of_others_and_end_their_sessions(self) -> None:
        theirs, _ = self._inside()
        admin = client_of(Role.ADMIN)
        form = {
            "action": "reset_second_factor",
            "_selected_action": [User.objects.get(username="ada").pk],
        }
        admin.post("/admin/accounts/user/", form)
        assert not Authenticator.objects.exists()
        assert not _is_in(theirs)
        assert AuditEntry.objects.get(action="second_factor.reset").target == "ada"

    def test_an_admins_own_is_not_reset_without_a_code(self) -> None:
        user, shown = _with_factor(Role.ADMIN)
        client = _half()
        _send(client, shown[0])
        form = {"action": "reset_second_factor", "_selected_action": [user.pk]}
        client.post("/admin/accounts/user/", form)
        assert Authenticator.objects.exists()

    def test_others_reset_nothing(self) -> None:
        user, _ = _with_factor()
        form = {"action": "reset_second_factor", "_selected_action": [user.pk]}
        assert client_of(Role.OPERATOR).post("/admin/accounts/user/", form).status_code == 403
        assert Authenticator.objects.exists()

    def test_a_shell_resets_it_where_nobody_gets_in(self) -> None:
        _with_factor()
        call_command("reset_second_factor", "ada", stdout=StringIO())
        assert not Authenticator.objects.exists()
        assert AuditEntry.objects.get(action="second_factor.reset").actor == "system"
        with pytest.raises(CommandError, match="has no second factor"):
            call_command("reset_second_factor", "ada")
        with pytest.raises(CommandError, match="no user nobody"):
            call_command("reset_second_factor", "nobody")


class TestRequired:
    @pytest.fixture(autouse=True)
    def _required(self, settings: Settings) -> None:
        settings.SECOND_FACTOR_ROLES = ["admin"]

    def test_who_has_none_sets_it_up_before_they_are_in(self) -> None:
        make_user(Role.ADMIN, username="ada")
        client = _half(next="/account/")
        assert not _is_in(client)
        page = client.get("/login/enroll/")
        answer = client.post("/login/enroll/", {"code": _code(of=page.context["secret"])})
        assert len(answer.context["codes"]) == 10
        assert answer.context["next_url"] == "/account/"
        assert _is_in(client)

    def test_who_has_one_cannot_set_up_another_at_the_door(self) -> None:
        _with_factor(Role.ADMIN)
        assert _half().get("/login/enroll/")["Location"] == "/login/"

    @pytest.mark.parametrize("address", ["/", "/admin/", "/api/v1/me", "/account/"])
    def test_a_session_from_before_is_worth_nothing(self, address: str) -> None:
        client = Client()
        client.force_login(make_user(Role.ADMIN))
        assert client.get(address).status_code in (302, 401, 403)
        assert client.post("/account/tokens/", {"name": "x"}).status_code == 302
        assert not ApiToken.objects.exists()

    def test_other_roles_log_in_as_ever(self) -> None:
        make_user(Role.OPERATOR, username="bob")
        assert _is_in(_half("bob"))

    def test_tokens_go_on_working(self) -> None:
        token = make_token(make_user(Role.ADMIN))
        assert Client(headers=bearer(token)).get("/api/v1/me").status_code == 200

    def test_a_token_is_made_in_a_session_with_the_second_factor(self) -> None:
        _with_factor(Role.ADMIN)
        client = _half()
        _send(client, _code())
        assert client.post("/account/tokens/", {"name": "x"}).status_code == 200
        assert ApiToken.objects.count() == 1
