"""``manage.py tokens``."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from tests.builders.accounts import bearer, make_token, make_user

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("tokens", *arguments, stdout=out)
    return out.getvalue().strip()


def status(secret: str) -> int:
    return Client().get("/api/v1/me", headers=bearer(secret)).status_code


def test_a_token_is_made_listed_and_ended() -> None:
    user = make_user(Role.OPERATOR, username="robot")
    secret = run("create", "robot", "nightly", "--days", "7", "--scope", "view_fleet")
    assert status(secret) == 200
    listed = run("list", "--user", "robot")
    assert "nightly" in listed
    assert "for view fleet" in listed
    assert secret not in listed
    assert run("revoke", str(user.api_tokens.get().pk)) == "1 tokens are revoked."
    assert status(secret) == 401
    actions = AuditEntry.objects.filter(actor="system").values_list("action", flat=True)
    assert set(actions) == {"token.create", "token.revoke"}


def test_all_tokens_of_somebody_are_ended_and_of_nobody_else() -> None:
    user, other = make_user(username="ada"), make_user()
    mine, also, kept = make_token(user), make_token(user), make_token(other)
    assert run("revoke", "--user", "ada") == "2 tokens are revoked."
    assert [status(each) for each in (mine, also, kept)] == [401, 401, 200]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "nobody", "x"], "there is no user 'nobody'"),
        (["create", "ada", "x", "--days", "0"], "--days: it has to end"),
        (["create", "ada", "x", "--scope", "edit_fleet"], "--scope: ada may not edit fleet"),
        (["revoke"], "give the number of a token, or --user"),
        (["revoke", "999999"], "there is no token 999999"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], said: str) -> None:
    make_user(username="ada")
    with pytest.raises(CommandError, match=said):
        run(*arguments)
