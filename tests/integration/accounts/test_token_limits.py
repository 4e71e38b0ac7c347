"""How long an API token lives, what it is for, and when it was used."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts import actions
from accounts.models import ApiToken, AuditEntry, User
from accounts.roles import CAPABILITIES, Capability, Role
from tests.builders.accounts import PASSWORD, bearer, make_token, make_user

pytestmark = pytest.mark.django_db

NEW_PASSWORD = "staple battery horse"


def status(secret: str, path: str = "/api/v1/me") -> int:
    return Client().get(path, headers=bearer(secret)).status_code


class TestEnd:
    def test_a_token_that_is_over_opens_nothing(self) -> None:
        user = make_user()
        now = timezone.now()
        _, over = ApiToken.issue(user, "over", expires_at=now - timedelta(seconds=1))
        _, good = ApiToken.issue(user, "good", expires_at=now + timedelta(minutes=1))
        assert (status(over), status(good)) == (401, 200)
        assert [each.name for each in ApiToken.objects.usable()] == ["good"]

    def test_one_that_is_made_on_the_page_ends_by_default(self, client: Client) -> None:
        client.force_login(make_user())
        client.post("/account/tokens/", {"name": "report"})
        end = ApiToken.objects.get().expires_at
        assert end is not None
        assert timedelta(days=89) < end - timezone.now() <= timedelta(days=90)
        page = client.get("/account/").content.decode()
        assert f"{end:%Y-%m-%d}" in page

    @pytest.mark.parametrize("days", ["0", "-1", "367", "x"])
    def test_what_is_too_long_or_no_length_is_refused(self, client: Client, days: str) -> None:
        client.force_login(make_user())
        answer = client.post("/account/tokens/", {"name": "report", "days": days})
        assert answer.status_code == 400
        assert not ApiToken.objects.exists()

    def test_an_installation_may_allow_tokens_without_end(
        self, client: Client, settings: Settings
    ) -> None:
        settings.API_TOKEN_MAY_BE_ENDLESS = True
        client.force_login(make_user())
        assert client.post("/account/tokens/", {"name": "r", "days": "0"}).status_code == 200
        assert ApiToken.objects.get().expires_at is None


class TestScope:
    def test_it_narrows_what_the_user_may(self) -> None:
        user = make_user(Role.OPERATOR)
        _, reading = ApiToken.issue(user, "reading", scope=[Capability.VIEW_FLEET])
        _, whole = ApiToken.issue(user, "whole")

        def make(secret: str) -> int:
            body = {"name": "oslo"}
            headers = bearer(secret)
            return (
                Client()
                .post("/api/v1/sites", body, content_type="application/json", headers=headers)
                .status_code
            )

        assert status(reading, "/api/v1/sites") == 200
        assert (make(reading), make(whole)) == (403, 201)
        me = Client().get("/api/v1/me", headers=bearer(reading)).json()
        assert me["capabilities"] == ["view_fleet"]

    def test_the_answer_says_that_it_is_the_token(self) -> None:
        _, secret = ApiToken.issue(make_user(Role.OPERATOR), "r", scope=[Capability.VIEW_FLEET])
        answer = Client().post("/api/v1/sites", {}, headers=bearer(secret))
        assert "This token may not edit fleet" in answer.json()["error"]["message"]

    def test_it_gives_nothing_that_the_user_may_not(self) -> None:
        user = make_user(Role.VIEWER)
        with pytest.raises(actions.TokenRefused, match="may not edit fleet"):
            actions.create_token(user, user, "more", scope=[Capability.EDIT_FLEET])
        # Also where the user was given less since.
        _, secret = ApiToken.issue(user, "more", scope=[Capability.EDIT_FLEET])
        assert status(secret, "/api/v1/sites") == 403

    def test_a_form_that_asks_for_more_is_refused(self, client: Client) -> None:
        client.force_login(make_user(Role.VIEWER))
        answer = client.post("/account/tokens/", {"name": "r", "scope": ["edit_fleet"]})
        assert answer.status_code == 400
        assert not ApiToken.objects.exists()

    def test_a_job_cannot_be_submitted_with_one_that_only_reads(self) -> None:
        _, secret = ApiToken.issue(make_user(Role.ML_USER), "r", scope=[Capability.VIEW_FLEET])
        answer = Client().post(
            "/api/v1/jobs", {}, content_type="application/json", headers=bearer(secret)
        )
        assert answer.status_code == 403

    def test_a_session_has_no_scope(self, client: Client) -> None:
        user = make_user(Role.OPERATOR)
        _, secret = ApiToken.issue(user, "r", scope=[])
        assert status(secret) == 403
        client.force_login(user)
        held = {each.value for each in CAPABILITIES[Role.OPERATOR]}
        assert set(client.get("/api/v1/me").json()["capabilities"]) == held


class TestPassword:
    def test_a_new_password_ends_every_token(self, client: Client) -> None:
        user = make_user(username="ada")
        secrets = [make_token(user), make_token(user)]
        other = make_token(make_user())
        client.force_login(user)
        given = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD}
        client.post("/password/", given | {"new_password2": NEW_PASSWORD})
        assert [status(each) for each in [*secrets, other]] == [401, 401, 200]
        entries = AuditEntry.objects.filter(action="token.revoke", target="ada")
        assert [entry.detail["why"] for entry in entries] == ["the password was changed"] * 2

    def test_so_does_one_that_an_admin_sets(self, client: Client) -> None:
        user = make_user()
        secret = make_token(user)
        client.force_login(make_user(Role.ADMIN))
        path = f"/admin/accounts/user/{user.pk}/password/"
        client.post(
            path,
            {"usable_password": "true", "password1": NEW_PASSWORD, "password2": NEW_PASSWORD},
        )
        user.refresh_from_db()
        assert user.check_password(NEW_PASSWORD)
        assert status(secret) == 401

    def test_a_hash_under_better_parameters_ends_nothing(self, settings: Settings) -> None:
        user = make_user()
        secret = make_token(user)
        hasher = "django.contrib.auth.hashers.PBKDF2PasswordHasher"
        settings.PASSWORD_HASHERS = [hasher, *settings.PASSWORD_HASHERS]
        assert user.check_password(PASSWORD)
        user.refresh_from_db()
        assert user.password.startswith("pbkdf2")
        assert status(secret) == 200

    def test_other_changes_end_nothing(self) -> None:
        user = make_user()
        secret = make_token(user)
        user.email = "ada@example.com"
        user.save()
        User.objects.filter(pk=user.pk).update(password=make_password(PASSWORD))
        assert status(secret) == 200


class TestUse:
    def test_the_last_use_is_known_by_time_and_address(self, client: Client) -> None:
        user = make_user()
        _, secret = ApiToken.issue(user, "report")
        assert user.api_tokens.get().last_used_at is None
        status(secret)
        token = user.api_tokens.get()
        assert token.last_used_at is not None
        assert token.last_used_from == "127.0.0.1"
        client.force_login(user)
        assert "from 127.0.0.1" in client.get("/account/").content.decode()

    def test_it_is_written_once_a_minute_at_most(self) -> None:
        user = make_user()
        _, secret = ApiToken.issue(user, "report")
        status(secret)
        first = user.api_tokens.get().last_used_at
        status(secret)
        assert user.api_tokens.get().last_used_at == first
        long_ago = timezone.now() - timedelta(minutes=2)
        user.api_tokens.update(last_used_at=long_ago)
        status(secret)
        assert user.api_tokens.get().last_used_at != long_ago
