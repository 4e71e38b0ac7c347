from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from accounts import audit
from accounts.models import ApiToken, AuditEntry, User
from accounts.roles import Role
from tests.builders.accounts import PASSWORD, client_of, make_token, make_user

pytestmark = pytest.mark.django_db

USER_FORM = {"username": "new", "first_name": "", "last_name": "", "email": ""}


def test_its_login_is_the_one_login(client: Client) -> None:
    response = client.get("/admin/", follow=True)
    assert response.redirect_chain[-1][0] == "/login/?next=/admin/"
    assert client.post("/admin/login/", {"username": "a", "password": "b"}).status_code == 405


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_it_is_closed_to_who_is_no_staff(role: Role) -> None:
    assert client_of(role).get("/admin/", follow=True).status_code == 403


def test_its_password_page_is_ours_too() -> None:
    response = client_of(Role.OPERATOR).get("/admin/password_change/")
    assert (response.status_code, response["Location"]) == (302, "/password/")


def test_operators_see_the_fleet_but_no_users() -> None:
    client = client_of(Role.OPERATOR)
    assert client.get("/admin/").status_code == 200
    assert client.get("/admin/accounts/user/").status_code == 403
    assert client.get("/admin/accounts/auditentry/").status_code == 403
    assert client.get("/admin/accounts/apitoken/").status_code == 403


def test_admins_make_users_with_roles() -> None:
    client = client_of(Role.ADMIN)
    form = {**USER_FORM, "password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert client.post("/admin/accounts/user/add/", {**form, "role": "operator"}).status_code == 302
    user = User.objects.get(username="new")
    assert (user.role, user.is_staff, user.is_superuser) == ("operator", True, False)
    entry = AuditEntry.objects.get(action="user.create")
    assert (entry.target, entry.detail["role"]) == ("new", "operator")
    assert PASSWORD not in str(entry.detail)


def test_taking_a_role_away_takes_its_flags_away() -> None:
    user = make_user(Role.ADMIN)
    user.role = Role.VIEWER
    user.save(update_fields=["role"])
    user.refresh_from_db()
    assert (user.is_staff, user.is_superuser) == (False, False)


def test_admins_change_and_deactivate_users() -> None:
    client, user = client_of(Role.ADMIN), make_user(username="ada")
    form = {**USER_FORM, "username": "ada", "role": "responder"}
    response = client.post(f"/admin/accounts/user/{user.pk}/change/", form)
    assert response.status_code == 302
    user.refresh_from_db()
    assert (user.role, user.is_active) == ("responder", False)
    entry = AuditEntry.objects.get(action="user.change")
    assert (entry.target, entry.detail["active"]) == ("ada", False)


def test_a_password_set_by_an_admin_is_noted() -> None:
    client, user = client_of(Role.ADMIN), make_user(username="ada")
    form = {"password1": "another long one", "password2": "another long one"}
    url = f"/admin/accounts/user/{user.pk}/password/"
    assert client.post(url, {**form, "usable_password": "true"}).status_code == 302
    assert AuditEntry.objects.filter(action="password.set", target="ada").count() == 1


def test_deleting_users_is_noted() -> None:
    client, user = client_of(Role.ADMIN), make_user(username="ada")
    client.post(f"/admin/accounts/user/{user.pk}/delete/", {"post": "yes"})
    assert not User.objects.filter(username="ada").exists()
    assert AuditEntry.objects.filter(action="user.delete", target="ada").count() == 1


def test_admins_revoke_anybodys_token() -> None:
    client, user = client_of(Role.ADMIN), make_user(username="ada")
    make_token(user)
    token = user.api_tokens.get()
    client.post(
        "/admin/accounts/apitoken/", {"action": "revoke", "_selected_action": [str(token.pk)]}
    )
    assert not ApiToken.objects.usable().exists()
    assert AuditEntry.objects.filter(action="token.revoke", target="ada").exists()


def test_the_audit_log_can_be_read_and_nothing_else() -> None:
    client, entry = client_of(Role.ADMIN), audit.record("system", "test.action", "thing")
    base = "/admin/accounts/auditentry"
    assert b"test.action" in client.get(f"{base}/").content
    assert client.get(f"{base}/?q=thing").status_code == 200
    assert client.get(f"{base}/{entry.pk}/change/").status_code == 200
    assert client.get(f"{base}/add/").status_code == 403
    assert client.post(f"{base}/{entry.pk}/change/", {"actor": "nobody"}).status_code == 403
    assert client.post(f"{base}/{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    delete = {"action": "delete_selected", "_selected_action": [str(entry.pk)], "post": "yes"}
    client.post(f"{base}/", delete)
    assert AuditEntry.objects.filter(pk=entry.pk, actor="system").exists()


def test_createsuperuser_makes_an_admin() -> None:
    call_command("createsuperuser", interactive=False, username="root", email="r@example.com")
    user = get_user_model().objects.get(username="root")
    assert (user.role, user.is_superuser) == (Role.ADMIN, True)
