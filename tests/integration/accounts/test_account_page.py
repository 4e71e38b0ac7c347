from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import ApiToken, AuditEntry
from accounts.roles import Role
from tests.builders.accounts import PASSWORD, bearer, make_token, make_user

pytestmark = pytest.mark.django_db

NEW_PASSWORD = "staple battery horse"


def test_it_says_who_one_is_and_what_one_may(client: Client) -> None:
    client.force_login(make_user(Role.RESPONDER, username="ada"))
    page = client.get("/account/").content.decode()
    assert "ada" in page
    assert "Responder" in page
    assert "run playbooks" in page
    assert "edit fleet" not in page


def test_a_new_token_is_shown_once_and_works(client: Client) -> None:
    client.force_login(make_user(username="ada"))
    response = client.post("/account/tokens/", {"name": "nightly report"})
    secret = response.context["secret"]
    assert secret in response.content.decode()
    assert "no-store" in response["Cache-Control"]
    assert secret not in client.get("/account/").content.decode()
    assert Client().get("/api/v1/me", headers=bearer(secret)).status_code == 200
    assert AuditEntry.objects.filter(action="token.create", actor="ada").count() == 1


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_a_token_without_a_fit_name_is_not_made(client: Client, name: str) -> None:
    client.force_login(make_user())
    assert client.post("/account/tokens/", {"name": name}).status_code == 400
    assert not ApiToken.objects.exists()


def test_a_name_is_text_and_never_markup(client: Client) -> None:
    user = make_user()
    ApiToken.issue(user, "<script>alert(1)</script>")
    client.force_login(user)
    assert b"<script>alert" not in client.get("/account/").content


def test_revoking_ends_the_token(client: Client) -> None:
    user = make_user()
    secret = make_token(user)
    client.force_login(user)
    response = client.post(f"/account/tokens/{user.api_tokens.get().pk}/revoke/", follow=True)
    assert b"is revoked" in response.content
    assert Client().get("/api/v1/me", headers=bearer(secret)).status_code == 401


def test_the_tokens_of_others_are_not_there(client: Client) -> None:
    other = make_user(username="other-person")
    secret = make_token(other)
    client.force_login(make_user(Role.ADMIN))
    assert client.post(f"/account/tokens/{other.api_tokens.get().pk}/revoke/").status_code == 404
    assert "hru_" + secret[4:8] not in client.get("/account/").content.decode()
    assert Client().get("/api/v1/me", headers=bearer(secret)).status_code == 200


def test_revoking_takes_a_post(client: Client) -> None:
    user = make_user()
    make_token(user)
    client.force_login(user)
    assert client.get(f"/account/tokens/{user.api_tokens.get().pk}/revoke/").status_code == 405


class TestPassword:
    def _change(self, client: Client, new: str, old: str = PASSWORD) -> int:
        form = {"old_password": old, "new_password1": new, "new_password2": new}
        return client.post("/password/", form).status_code

    def test_it_can_be_changed_and_other_sessions_end(self, client: Client) -> None:
        user = make_user(username="ada")
        client.force_login(user)
        elsewhere = Client()
        elsewhere.force_login(user)
        assert self._change(client, NEW_PASSWORD) == 302
        assert client.get("/account/").status_code == 200
        assert elsewhere.get("/account/").status_code == 302
        user.refresh_from_db()
        assert user.check_password(NEW_PASSWORD)
        assert AuditEntry.objects.get(action="password.change").actor == "ada"

    @pytest.mark.parametrize("new", ["short", "123456789012", "password1234"])
    def test_a_weak_one_is_refused(self, client: Client, new: str) -> None:
        user = make_user()
        client.force_login(user)
        assert self._change(client, new) == 200
        user.refresh_from_db()
        assert user.check_password(PASSWORD)

    def test_it_takes_the_old_one(self, client: Client) -> None:
        client.force_login(make_user())
        assert self._change(client, NEW_PASSWORD, old="wrong") == 200
        assert not AuditEntry.objects.filter(action="password.change").exists()
