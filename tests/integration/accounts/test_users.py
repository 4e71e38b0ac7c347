"""Making and changing users: who may be given what, and that an admin is always left."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, connections, transaction
from django.test import Client
from pytest_django import Settings

from accounts import users
from accounts.models import AuditEntry, Identity, Session, User
from accounts.roles import CAPABILITIES, Capability, Role
from admission.jobs import projects
from admission.jobs.models import GroupMembership, Project
from admission.jobs.receivers import follow_groups
from tests.builders.accounts import make_user

pytestmark = pytest.mark.django_db

ISSUER = "https://id.example.com"


@pytest.fixture
def boss(db: None) -> User:
    return make_user(Role.ADMIN, username="boss")


def faults_of(act: Callable[..., Any], *args: Any, **given: Any) -> dict[str, list[str]]:
    """Return what is refused, by field; within a transaction, as views act."""
    with pytest.raises(ValidationError) as refused, transaction.atomic():
        act(*args, **given)
    return refused.value.message_dict


# --- Making --------------------------------------------------------------------------------------


def test_a_new_user_has_no_password_and_an_entry(boss: User) -> None:
    made = users.create(boss, username="ada", role=Role.ML_USER, first_name="Ada")
    assert not made.has_usable_password()
    entry = AuditEntry.objects.get(action="user.create")
    assert (entry.actor, entry.target) == ("boss", "ada")
    assert (entry.detail["role"], entry.detail["before"]) == ("ml_user", None)
    assert entry.detail["after"]["first_name"] == "Ada"
    assert entry.detail["after"]["password"] == "(secret)"


@pytest.mark.parametrize("name", ["", "two words", "x" * 151, "pay\u202eload"])
def test_a_name_that_is_none_is_refused_at_its_field(boss: User, name: str) -> None:
    assert set(faults_of(users.create, boss, username=name, role=Role.VIEWER)) == {"username"}
    assert list(User.objects.all()) == [boss]


def test_a_name_that_differs_by_case_alone_is_taken(boss: User) -> None:
    (said,) = faults_of(users.create, boss, username="BOSS", role=Role.VIEWER)["username"]
    assert said == "There is a user of this name, in whatever case."


def test_of_two_who_make_a_user_of_one_name_at_once_the_second_is_refused(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user(username="ada")
    # As it is for who has looked before the other one was there.
    monkeypatch.setattr(User.objects, "filter", lambda **_: User.objects.none())
    assert set(faults_of(users.create, boss, username="ada", role=Role.VIEWER)) == {"username"}


# --- Roles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [each for each in Role if each != Role.ADMIN])
def test_nobody_raises_their_own_role(boss: User, role: Role) -> None:
    climber = make_user(role)
    more = [each for each in Role if not CAPABILITIES[each] <= CAPABILITIES[role]]
    assert Role.ADMIN in more
    for wanted in more:
        assert set(faults_of(users.change, climber, climber, role=wanted)) == {"role"}
    climber.refresh_from_db()
    assert climber.role == role


def test_nobody_gives_a_role_that_may_more_than_they_may(boss: User) -> None:
    boss.scope = frozenset({Capability.MANAGE_USERS, Capability.VIEW_FLEET})
    ada = make_user(username="ada")
    for act, given in ((users.create, {"username": "eve"}), (users.change, {"user": ada})):
        (said,) = faults_of(act, boss, role=Role.OPERATOR, **given)["role"]
        assert said == "You may not give the role operator: it may do what you may not."
    assert not User.objects.filter(role=Role.OPERATOR).exists()


def test_a_new_role_ends_the_sessions_and_says_what_was_before(boss: User) -> None:
    ada = make_user(username="ada")
    Client().force_login(ada)
    users.change(boss, ada, role=Role.RESPONDER, last_name="L")
    assert not Session.objects.filter(user=ada).exists()
    entry = AuditEntry.objects.get(action="user.change")
    assert entry.detail["before"] == {"role": "viewer", "last_name": ""}
    assert entry.detail["after"] == {"role": "responder", "last_name": "L"}


def test_what_stays_as_it_is_ends_nothing_and_leaves_no_entry(boss: User) -> None:
    ada = make_user(username="ada")
    Client().force_login(ada)
    users.change(boss, ada, role=ada.role, first_name="")
    assert not AuditEntry.objects.filter(action="user.change").exists()
    users.change(boss, ada, first_name="Ada")
    assert Session.objects.filter(user=ada).exists()


def test_the_provider_decides_the_role_of_those_who_sign_on_there(
    boss: User, settings: Settings
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_NAME = ISSUER, "x", "Acme"
    ada, bob = make_user(username="ada"), make_user(username="bob")
    Identity.objects.create(user=ada, issuer=ISSUER, subject="1")
    Identity.objects.create(user=bob, issuer="https://former.example.com", subject="1")
    (said,) = faults_of(users.change, boss, ada, role=Role.OPERATOR)["role"]
    assert said.startswith("Acme decides it")
    users.change(boss, bob, role=Role.OPERATOR)
    users.change(boss, ada, is_active=False)
    settings.OIDC_ISSUER = ""
    users.change(boss, ada, role=Role.OPERATOR)
    ada.refresh_from_db()
    assert (ada.role, ada.is_active) == ("operator", False)


# --- The last admin ------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"role": "operator"}, {"is_active": False}])
def test_the_last_active_admin_stays_one(boss: User, fields: dict[str, Any]) -> None:
    make_user(Role.ADMIN, is_active=False)
    found = faults_of(users.change, boss, boss, **fields)
    assert found == {
        next(iter(fields)): ["This is the last active admin. Make another user an admin first."]
    }
    boss.refresh_from_db()
    assert (boss.role, boss.is_active) == ("admin", True)
    other = make_user(Role.ADMIN)
    users.change(other, boss, **fields)
    assert User.objects.filter(role=Role.ADMIN, is_active=True).get() == other


def test_others_may_be_demoted_beside_the_last_admin(boss: User) -> None:
    ada = make_user(Role.OPERATOR)
    users.change(boss, ada, role=Role.VIEWER, is_active=False)
    ada.refresh_from_db()
    assert (ada.role, ada.is_active) == ("viewer", False)


def _waits(changed: Future[Any]) -> bool:
    """Wait until a change is done or waits for a lock; say whether it waits."""
    while not changed.done():
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return True
    return False


@pytest.mark.django_db(transaction=True)
def test_of_two_admins_who_demote_each_other_at_once_one_is_left() -> None:
    one, other = make_user(Role.ADMIN), make_user(Role.ADMIN)

    def demote() -> None:
        try:
            users.change(other, one, role=Role.VIEWER)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            users.change(one, other, is_active=False)
            second = pool.submit(demote)
            assert _waits(second)
        with pytest.raises(ValidationError, match="last active admin"):
            second.result(60)
    assert User.objects.filter(role=Role.ADMIN, is_active=True).get() == one


@pytest.mark.django_db(transaction=True)
def test_of_two_who_change_a_user_at_once_the_second_goes_by_what_the_first_left() -> None:
    boss, ada = make_user(Role.ADMIN), make_user(username="ada")

    def change() -> None:
        try:
            users.change(boss, ada, role=Role.RESPONDER)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            users.change(boss, ada, role=Role.RESPONDER)
            second = pool.submit(change)
            assert _waits(second)
        second.result(60)
    assert AuditEntry.objects.filter(action="user.change").count() == 1


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_one_admin_holds_no_other_so_that_nobody_waits_in_a_circle() -> None:
    first, last = make_user(Role.ADMIN), make_user(Role.ADMIN)

    def demote() -> None:
        try:
            users.change(first, last, role=Role.VIEWER)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            User.objects.select_for_update().get(pk=first.pk)
            change = pool.submit(demote)
            assert _waits(change)
            assert User.objects.select_for_update(nowait=True).get(pk=last.pk) == last
        change.result(60)
    assert User.objects.get(pk=last.pk).role == Role.VIEWER


@pytest.mark.django_db(transaction=True)
def test_while_one_admin_is_deleted_no_other_is_demoted() -> None:
    one, other = make_user(Role.ADMIN), make_user(Role.ADMIN)

    def demote() -> None:
        try:
            users.change(other, other, role=Role.VIEWER)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            users.keep_an_admin([one.pk], "role")
            second = pool.submit(demote)
            assert _waits(second)
            one.delete()
        with pytest.raises(ValidationError, match="last active admin"):
            second.result(60)


def test_the_admin_site_keeps_to_the_same_rules(boss: User) -> None:
    client = Client()
    client.force_login(boss)
    path = f"/admin/accounts/user/{boss.pk}/"
    form = {"username": "boss", "first_name": "", "last_name": "", "email": ""}
    for fields, field in (
        ({"role": "viewer", "is_active": "on"}, "role"),
        ({"role": "admin"}, "is_active"),
    ):
        answer = client.post(f"{path}change/", form | fields)
        assert set(answer.context["adminform"].form.errors) == {field}
    assert client.post(f"{path}delete/", {"post": "yes"}).status_code == 403
    everybody = {"action": "delete_selected", "post": "yes", "_selected_action": [str(boss.pk)]}
    assert client.post("/admin/accounts/user/", everybody).status_code == 403
    boss.refresh_from_db()
    assert (boss.role, boss.is_active) == ("admin", True)
    assert not AuditEntry.objects.filter(action__startswith="user.").exists()


def test_all_admins_at_once_cannot_be_deleted_on_the_admin_site(boss: User) -> None:
    other = make_user(Role.ADMIN)
    client = Client()
    client.force_login(boss)
    both = [str(boss.pk), str(other.pk)]
    body = {"action": "delete_selected", "post": "yes", "_selected_action": both}
    assert client.post("/admin/accounts/user/", body).status_code == 403
    assert User.objects.count() == 2
    body["_selected_action"] = both[1:]
    assert client.post("/admin/accounts/user/", body).status_code == 302
    assert User.objects.get() == boss


# --- Projects ------------------------------------------------------------------------------------


def test_projects_are_set_by_hand_and_those_of_groups_stay(boss: User) -> None:
    ada = make_user(Role.ML_USER, username="ada")
    old, kept, new, given = (Project.objects.create(name=n) for n in ("old", "kept", "new", "gone"))
    for each in (old, kept, given):
        each.members.add(ada)
    GroupMembership.objects.create(project=given, user=ada)
    bob = make_user(username="bob")
    old.members.add(bob)
    projects.set_memberships(boss, ada, [kept, new])
    assert set(ada.projects.all()) == {kept, new, given}
    assert list(old.members.all()) == [bob]
    changed = AuditEntry.objects.filter(action="project.update").order_by("pk")
    assert {each.target for each in changed} == {"old", "new"}
    of_old = changed.get(target="old")
    assert (of_old.actor, of_old.detail["before"]) == ("boss", {"members": ["ada", "bob"]})
    assert of_old.detail["after"] == {"members": ["bob"]}


def test_who_was_taken_out_of_a_project_of_a_group_is_put_back_at_the_next_sign_on() -> None:
    ada, vision = make_user(Role.ML_USER), Project.objects.create(name="vision")
    vision.groups.create(group="team-v")
    groups = frozenset({"team-v"})
    follow_groups(user=ada, groups=groups)
    vision.members.clear()
    follow_groups(user=ada, groups=groups)
    assert list(vision.members.all()) == [ada]
    follow_groups(user=ada, groups=frozenset())
    assert not vision.members.exists()
