from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from accounts import actions
from accounts.models import ApiToken, AuditEntry
from accounts.roles import Capability, Role
from accounts.tokens import AGENT_PREFIX, generate
from tests.builders.accounts import bearer, make_token, make_user

pytestmark = pytest.mark.django_db


def test_a_token_speaks_for_its_user(client: Client) -> None:
    user = make_user(Role.OPERATOR, username="ada")
    response = client.get("/api/v1/me", headers=bearer(make_token(user)))
    assert response.status_code == 200
    body = response.json()
    assert (body["username"], body["role"]) == ("ada", "operator")
    assert Capability.EDIT_FLEET.value in body["capabilities"]


def test_a_token_is_kept_as_a_digest_only() -> None:
    token, secret = ApiToken.issue(make_user(), "test")
    row = ApiToken.objects.filter(pk=token.pk).values().get()
    assert secret not in str(row)
    assert len(bytes(row["digest"])) == 32


@pytest.mark.parametrize("kind", ["unknown", "revoked", "inactive", "malformed"])
def test_a_token_that_is_none_is_refused(client: Client, kind: str) -> None:
    user = make_user()
    token, secret = ApiToken.issue(user, "test")
    if kind == "revoked":
        actions.revoke_token(user, token)
    elif kind == "inactive":
        user.is_active = False
        user.save(update_fields=["is_active"])
    else:
        secret = {"unknown": generate("hru_"), "malformed": "hru_ü'; --"}[kind]
    response = client.get("/api/v1/me", headers=bearer(secret))
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")
    assert response.json()["error"]["code"] == "token_refused"


@pytest.mark.parametrize(
    "headers", [{}, bearer(generate(AGENT_PREFIX)), {"Authorization": "Basic x"}]
)
def test_no_users_token_is_no_entry(client: Client, headers: dict[str, str]) -> None:
    response = client.get("/api/v1/me", headers=headers)
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")
    error = response.json()["error"]
    assert error["code"] == "not_authenticated"
    assert "/account/" in error["hint"]


def test_the_session_of_the_pages_works_too(client: Client) -> None:
    client.force_login(make_user(username="ada"))
    assert client.get("/api/v1/me").json()["username"] == "ada"


def test_a_refused_token_is_not_rescued_by_a_session(client: Client) -> None:
    client.force_login(make_user())
    assert client.get("/api/v1/me", headers=bearer(generate("hru_"))).status_code == 401


def test_one_query_finds_token_and_user(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    secret = make_token(make_user())
    with django_assert_num_queries(1):
        client.get("/api/v1/me", headers=bearer(secret))


def test_revoking_is_noted_once() -> None:
    user = make_user(username="ada")
    token, _ = actions.create_token(user, user, "nightly")
    assert actions.revoke_token("system", token)
    assert not actions.revoke_token("system", token)
    entries = AuditEntry.objects.order_by("id").values_list("actor", "action", "target")
    assert list(entries) == [("ada", "token.create", "ada"), ("system", "token.revoke", "ada")]
