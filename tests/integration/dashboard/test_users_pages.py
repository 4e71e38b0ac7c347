"""The list of users, the page of one and its form: rights, filters, faults, and the audit log."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from accounts import audit, password_links
from accounts.models import ApiToken, AuditEntry, Authenticator, Identity, Session, User
from accounts.roles import Role
from admission.jobs.models import GroupMembership, Project
from tests.builders.accounts import PASSWORD, client_of, make_user
from tests.html import html_of
from tests.integration.accounts.test_users import ISSUER
from tests.integration.dashboard.test_channels_page import untouched
from tests.integration.dashboard.test_project_form import field_of, opened
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

PAGE, NEW = "/users/", "/users/new/"
VERBS = ("activate", "end-sessions", "take-link-back", "reset-second-factor")
MAY_NOT = [each for each in Role if each != Role.ADMIN]


@pytest.fixture
def boss(db: None) -> User:
    return make_user(Role.ADMIN, username="boss")


@pytest.fixture
def admin(boss: User) -> Client:
    client = Client()
    client.force_login(boss)
    return client


@pytest.fixture
def ada(db: None) -> User:
    return make_user(Role.ML_USER, username="ada")


@pytest.fixture
def provider(settings: Settings) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_NAME = ISSUER, "x", "Acme"


def of(user: User, more: str = "") -> str:
    return f"/users/{user.pk}/{more}"


def sent(client: Client, path: str, *off: str, **given: str) -> Any:
    """Send a form with what is ``given``, and without the boxes that are ``off``."""
    body = {**untouched(client, path), **given}
    return client.post(path, {name: value for name, value in body.items() if name not in off})


def listed(client: Client, query: str = "") -> dict[str, dict[str, Any]]:
    """Return the rows of the list by name, from its file."""
    answer = client.get(f"{PAGE}?table=users&format=json{query}")
    assert answer.status_code == 200, answer.content
    return {row["user"]: row for row in answer.json()["rows"]}


# --- Who may -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", MAY_NOT)
def test_nobody_but_those_who_manage_users_sees_or_changes_any(ada: User, role: Role) -> None:
    mine = make_user(role)
    client = Client()
    client.force_login(mine)
    token, _ = ApiToken.issue(ada, "robot")
    writes = [of(mine, "change/"), of(ada, "deactivate/"), of(ada, "link"), NEW]
    writes += [of(ada, each) for each in VERBS] + [of(ada, f"tokens/{token.pk}/revoke")]
    body = {"username": "new", "role": "admin", "is_active": "on"}
    for path in writes:
        assert client.post(path, body).status_code == 403, path
    for path in (PAGE, NEW, of(ada), of(mine), of(ada, "change/"), of(ada, "deactivate/")):
        assert client.get(path).status_code == 403, path
    assert client.get(f"{PAGE}?table=users&format=csv").status_code == 403
    assert PAGE not in opened(client, "/account/")
    mine.refresh_from_db()
    assert mine.role == role
    assert set(User.objects.filter(is_active=True)) == {ada, mine}
    assert not AuditEntry.objects.exclude(action="login").exists()


def test_who_is_not_logged_in_is_asked_to(ada: User) -> None:
    for path in (PAGE, NEW, of(ada), of(ada, "change/")):
        assert Client().get(path)["Location"].startswith("/login/")


def test_forms_of_another_site_are_refused(boss: User, ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(boss)
    for path in (NEW, of(ada, "change/"), of(ada, "deactivate/"), of(ada, "link"),
                 of(ada, "end-sessions")):  # fmt: skip
        assert client.post(path, {"role": "admin"}).status_code == 403
    ada.refresh_from_db()
    assert (ada.role, ada.is_active, ada.link_made_at) == ("ml_user", True, None)


def test_a_user_that_is_not_there_is_not_found(admin: Client, ada: User) -> None:
    gone = ada.pk + 1000
    for more in ("", "change/", "deactivate/"):
        assert admin.get(f"/users/{gone}/{more}").status_code == 404
    for more in ("link", "deactivate/", *VERBS):
        assert admin.post(f"/users/{gone}/{more}").status_code == 404
    assert admin.post(of(ada, "promote")).status_code == 404
    assert admin.get(of(ada, "link")).status_code == 405


# --- The list ------------------------------------------------------------------------------------


def test_the_list_tells_what_each_has(admin: Client, ada: User) -> None:
    for name in ("vision", "speech"):
        Project.objects.create(name=name).members.add(ada)
    for _ in range(2):
        Client().force_login(ada)
    ApiToken.issue(ada, "robot")
    token, _ = ApiToken.issue(ada, "former")
    ApiToken.objects.filter(pk=token.pk).update(revoked_at=token.created_at)
    make_user(username="bob", is_active=False)
    rows = listed(admin)
    assert list(rows) == ["ada", "boss", "bob"]
    told = rows["ada"]
    assert (told["role"], told["projects"], told["state"]) == (
        "ML user", "speech, vision", "active",
    )  # fmt: skip
    assert (told["open_sessions"], told["live_tokens"], told["second_factor"]) == (2, 1, "off")
    assert told["last_login_utc"].endswith("Z")
    assert (rows["bob"]["state"], rows["bob"]["last_login_utc"]) == ("deactivated", "never")
    text = text_of(opened(admin, PAGE))
    assert "3 users, 1 active admin, 1 deactivated" in text


def test_the_list_is_narrowed_by_role_state_project_and_text(admin: Client, ada: User) -> None:
    Project.objects.create(name="vision").members.add(ada)
    bob = make_user(Role.VIEWER, username="bob", is_active=False)
    User.objects.filter(pk=bob.pk).update(email="bob@example.com")
    for query, names in (
        ("&role=ml_user", ["ada"]), ("&state=active", ["ada", "boss"]),
        ("&state=deactivated", ["bob"]), ("&project=vision", ["ada"]), ("&project=none", []),
        ("&search=EXAMPLE.COM", ["bob"]), ("&role=viewer&state=deactivated", ["bob"]),
        ("&role=king&state=odd", ["ada", "boss", "bob"]),
    ):  # fmt: skip
        path = f"{PAGE}?{query[1:]}"
        found = re.findall(r'id="user-\d+"[^>]*title="(\w+)"', opened(admin, path))
        assert found == names, query
    assert list(listed(admin, "&role=ml_user")) == ["ada"]
    assert "No user is like that" in opened(admin, f"{PAGE}?search=nobody")


def test_who_lacks_the_second_factor_that_the_role_needs_comes_first(
    admin: Client, boss: User, settings: Settings, provider: None
) -> None:
    settings.SECOND_FACTOR_ROLES = ["responder"]
    names = ("r-app", "r-lacks", "r-provider", "r-off")
    app, lacks, signed_on, off = (make_user(Role.RESPONDER, username=each) for each in names)
    Authenticator.objects.create(user=app, secret=b"x")
    Identity.objects.create(user=signed_on, issuer=ISSUER, subject="1")
    User.objects.filter(pk=off.pk).update(is_active=False)
    rows = listed(admin)
    assert list(rows) == ["r-lacks", "boss", "r-app", "r-provider", "r-off"]
    assert [rows[each]["second_factor"] for each in names] == [
        "on", "needed, none yet", "none here", "off",
    ]  # fmt: skip
    text = text_of(opened(admin, PAGE))
    assert "1 without the second factor that the role needs" in text
    assert "Reset it" in opened(admin, of(app))
    assert "Reset it" not in opened(admin, of(lacks))


def test_the_list_costs_no_more_with_more_users(admin: Client, ada: User) -> None:
    def cost() -> int:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            opened(admin, PAGE)
        return len(asked)

    opened(admin, PAGE)
    before = cost()
    for each in range(5):
        Project.objects.create(name=f"p{each}").members.add(make_user())
    assert cost() == before


# --- The page of one -----------------------------------------------------------------------------


def test_the_page_of_a_user_tells_role_projects_classes_sessions_tokens_and_deeds(
    admin: Client, boss: User, ada: User, provider: None
) -> None:
    by_hand, given = (Project.objects.create(name=each) for each in ("vision", "speech"))
    for each in (by_hand, given):
        each.members.add(ada)
    GroupMembership.objects.create(project=given, user=ada)
    browser = Client(headers={"User-Agent": "Mozilla Firefox/140.0 Linux"})
    browser.post("/login/", {"username": "ada", "password": PASSWORD})
    secret = ApiToken.issue(ada, "robot")[1]
    audit.record(ada, "job.submit", "llama-ft")
    audit.record(boss, "project.update", "ada")  # a project of that name
    audit.record(boss, "user.limit", "ada")
    audit.record(boss, "job.submit", "another")
    html = opened(admin, of(ada))
    text = text_of(html)
    assert "ada · ML user · active · 1 open session · 1 live token" in text
    assert "decided by admins" in text
    assert "submit jobs, view fleet" in text
    rows = admin.get(of(ada, "?table=projects&format=json")).json()["rows"]
    assert [(row["project"], row["member_by"]) for row in rows] == [
        ("speech", "a group of Acme"), ("vision", "hand"),
    ]  # fmt: skip
    assert "high-density-training" in rows[0]["classes_granted"]
    assert "Firefox on Linux" in text
    key = browser.session.session_key
    assert key
    assert key not in html
    assert secret not in html
    done = admin.get(of(ada, "?table=entries&format=json")).json()["rows"]
    assert [(row["by"], row["action"], row["about"]) for row in done] == [
        ("boss", "user.limit", "ada"), ("ada", "job.submit", "llama-ft"), ("ada", "login", None),
    ]  # fmt: skip


def test_the_page_says_that_the_provider_decides_and_offers_no_role(
    admin: Client, ada: User, provider: None
) -> None:
    Identity.objects.create(user=ada, issuer=ISSUER, subject="1")
    assert "decided by Acme by groups, anew at each sign-on" in text_of(opened(admin, of(ada)))
    form = untouched(admin, of(ada, "change/"))
    assert {"role", "email"} & set(form) == set()
    assert sent(admin, of(ada, "change/"), role="admin", email="x@example.com").status_code == 302
    ada.refresh_from_db()
    assert (ada.role, ada.email) == ("ml_user", "")


def test_all_sessions_of_a_user_are_ended(admin: Client, boss: User, ada: User) -> None:
    browser = Client()
    browser.force_login(ada)
    assert sent_act(admin, ada, "end-sessions") == "All sessions are ended."
    assert browser.get("/api/v1/me").status_code != 200
    assert Session.objects.filter(user=boss).exists()
    entry = AuditEntry.objects.get(action="session.end")
    assert (entry.actor, entry.target, entry.detail["why"]) == ("boss", "ada", "admin")
    assert sent_act(admin, ada, "end-sessions") == "There was no session to end."


def sent_act(client: Client, user: User, verb: str) -> str:
    """Do something to a user; return what the page says then."""
    answer = client.post(of(user, verb), follow=True)
    assert answer.redirect_chain == [(of(user), 302)]
    (said,) = re.findall(r'<p class="note [^"]*">(.*?)</p>', html_of(answer))
    return str(said).strip()


def test_a_token_of_a_user_is_revoked_and_of_others_not_found(
    admin: Client, boss: User, ada: User
) -> None:
    token, _ = ApiToken.issue(ada, "robot")
    assert admin.post(of(boss, f"tokens/{token.pk}/revoke")).status_code == 404
    assert ApiToken.objects.usable().exists()
    assert admin.post(of(ada, f"tokens/{token.pk}/revoke")).status_code == 302
    assert not ApiToken.objects.usable().exists()
    entry = AuditEntry.objects.get(action="token.revoke")
    assert (entry.actor, entry.target, entry.detail["name"]) == ("boss", "ada", "robot")


def test_a_second_factor_of_others_is_reset_and_the_own_one_not(
    admin: Client, boss: User, ada: User
) -> None:
    for each in (boss, ada):
        Authenticator.objects.create(user=each, secret=b"x")
    assert sent_act(admin, ada, "reset-second-factor") == "The second factor is reset."
    assert "Your own second factor" in sent_act(admin, boss, "reset-second-factor")
    assert Authenticator.objects.get().user == boss


# --- Making and changing -------------------------------------------------------------------------


def test_a_user_is_made_and_gets_a_link_that_is_shown_once(admin: Client, boss: User) -> None:
    Project.objects.create(name="vision")
    answer = sent(
        admin, NEW, username="ada", role="ml_user", projects="vision\r\n\r\nvision", email="a@b.org"
    )
    assert answer.status_code == 200
    (link,) = re.findall(r'<code class="secret">http://testserver(.*?)</code>', html_of(answer))
    link = link.replace("&amp;", "&")
    ada = User.objects.get(username="ada")
    assert (ada.role, ada.email, [p.name for p in ada.projects.all()]) == (
        "ml_user", "a@b.org", ["vision"],
    )  # fmt: skip
    assert Client().get(link).status_code == 200
    token = link.rpartition("token=")[2]
    text = text_of(opened(admin, of(ada)))
    assert "no password yet, a link is out" in text
    assert token not in opened(admin, of(ada))
    assert token not in str([entry.detail for entry in AuditEntry.objects.all()])
    assert sent_act(admin, ada, "take-link-back") == "The link opens nothing any more."
    assert Client().get(link).status_code == 404
    assert "ada · ML user · no password ·" in text_of(opened(admin, of(ada)))


def test_what_is_wrong_is_told_at_its_field_and_nothing_is_kept(admin: Client, ada: User) -> None:
    for field, value, said in (
        ("username", "ADA", "There is a user of this name, in whatever case."),
        ("username", "two words", "Enter a valid username"),
        ("username", "", "This field cannot be blank."),
        ("role", "king", "Select a valid choice"),
        ("email", "nowhere", "Enter a valid email address."),
        ("first_name", "pay\u202eload", "U+202E is in it"),
        ("projects", "nope", "There is no project nope."),
    ):
        given = {"username": "new", "role": "viewer", "last_name": "Typed", field: value}
        answer = sent(admin, NEW, **given)
        assert answer.status_code == 400
        assert said in field_of(html_of(answer), field), field
        assert 'value="Typed"' in html_of(answer)
    assert not User.objects.exclude(username__in=("ada", "boss")).exists()
    assert not AuditEntry.objects.filter(action="user.create").exists()


def test_a_project_that_is_not_there_leaves_the_rest_unchanged_too(
    admin: Client, ada: User
) -> None:
    answer = sent(admin, of(ada, "change/"), role="responder", projects="nope")
    assert answer.status_code == 400
    ada.refresh_from_db()
    assert ada.role == "ml_user"


def test_a_change_is_kept_whole_or_not_at_all(
    admin: Client, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    Project.objects.create(name="vision")
    monkeypatch.setattr("admission.jobs.projects.set_memberships", fail)
    with pytest.raises(RuntimeError):
        sent(admin, of(ada, "change/"), role="responder", projects="vision")
    ada.refresh_from_db()
    assert ada.role == "ml_user"
    assert not AuditEntry.objects.filter(action="user.change").exists()


def test_a_change_keeps_what_others_have_changed_meanwhile(admin: Client, ada: User) -> None:
    path = of(ada, "change/")
    form = untouched(admin, path)
    User.objects.filter(pk=ada.pk).update(role=Role.RESPONDER)
    Project.objects.create(name="vision").members.add(ada)
    assert admin.post(path, {**form, "last_name": "Lovelace"}).status_code == 302
    ada.refresh_from_db()
    assert (ada.role, ada.last_name) == ("responder", "Lovelace")
    assert ada.projects.count() == 1
    entry = AuditEntry.objects.get(action="user.change")
    assert entry.detail["after"] == {"last_name": "Lovelace"}


def test_a_form_that_nobody_has_touched_changes_nothing(admin: Client, ada: User) -> None:
    Project.objects.create(name="vision").members.add(ada)
    assert sent(admin, of(ada, "change/")).status_code == 302
    assert not AuditEntry.objects.exclude(action="login").exists()


def test_projects_by_groups_are_told_beside_those_by_hand_and_stay(
    admin: Client, ada: User, provider: None
) -> None:
    for name in ("hand", "given"):
        Project.objects.create(name=name).members.add(ada)
    GroupMembership.objects.create(project=Project.objects.get(name="given"), user=ada)
    assert untouched(admin, of(ada, "change/"))["projects"].strip() == "hand"
    said = "By groups of Acme, and not changed here: given."
    assert said in text_of(opened(admin, of(ada, "change/")))
    assert sent(admin, of(ada, "change/"), projects="").status_code == 302
    assert [each.name for each in ada.projects.all()] == ["given"]


def test_the_name_of_a_user_is_for_good(admin: Client, ada: User) -> None:
    assert "username" not in untouched(admin, of(ada, "change/"))
    assert sent(admin, of(ada, "change/"), username="eve").status_code == 302
    ada.refresh_from_db()
    assert ada.username == "ada"


def test_the_last_admin_can_neither_be_demoted_nor_deactivated(admin: Client, boss: User) -> None:
    said = "This is the last active admin. Make another user an admin first."
    answer = sent(admin, of(boss, "change/"), role="viewer")
    assert said in field_of(html_of(answer), "role")
    answer = sent(admin, of(boss, "change/"), "is_active")
    assert said in field_of(html_of(answer), "is_active")
    answer = admin.post(of(boss, "deactivate/"))
    assert answer.status_code == 400
    assert said in text_of(html_of(answer))
    boss.refresh_from_db()
    assert (boss.role, boss.is_active) == ("admin", True)


def test_a_user_is_deactivated_and_active_again(admin: Client, ada: User) -> None:
    browser = Client()
    browser.force_login(ada)
    ApiToken.issue(ada, "robot")
    text = text_of(opened(admin, of(ada, "deactivate/")))
    assert "1 open session ends, and 1 API token rests" in text
    assert admin.post(of(ada, "deactivate/"))["Location"] == of(ada)
    assert browser.get("/api/v1/me").status_code != 200
    assert not ApiToken.objects.usable().exists()
    text = text_of(opened(admin, of(ada)))
    assert "ada · ML user · deactivated · 0 open sessions · 0 live tokens" in text
    assert "rests: its user is not active" in text
    assert sent_act(admin, ada, "activate") == "User ada is active."
    told = AuditEntry.objects.filter(action="user.change").order_by("pk")
    assert [entry.detail["active"] for entry in told] == [False, True]


# --- Links ---------------------------------------------------------------------------------------


def test_a_link_is_made_for_who_has_lost_the_password(admin: Client, boss: User, ada: User) -> None:
    answer = admin.post(of(ada, "link"))
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    assert AuditEntry.objects.get(action="password.link").target == "ada"
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)
    assert "Take the link back" in opened(admin, of(ada))


def test_no_link_is_made_for_oneself_or_for_who_could_not_use_it(
    admin: Client, boss: User, ada: User, provider: None
) -> None:
    User.objects.filter(pk=ada.pk).update(is_active=False)
    eve = make_user(username="eve")
    eve.set_unusable_password()
    eve.save()
    Identity.objects.create(user=eve, issuer=ISSUER, subject="1")
    for user, why in (
        (boss, "your own password you change on the page of your account"),
        (ada, "the user is not active"),
        (eve, "the user logs in by Acme, and has no password here"),
    ):
        assert "make-link" not in opened(admin, of(user))
        assert sent_act(admin, user, "link") == f"No link can be made: {why}."
    assert not AuditEntry.objects.filter(action="password.link").exists()


def test_where_passwords_are_for_emergencies_a_user_is_made_without_a_link(
    admin: Client, settings: Settings
) -> None:
    settings.LOCAL_LOGIN = "emergency"
    answer = sent(admin, NEW, username="ada", role="viewer")
    ada = User.objects.get(username="ada")
    assert (answer.status_code, answer["Location"]) == (302, of(ada))
    assert password_links.why_not(ada) == "passwords are for emergency accounts alone here"


def test_a_link_has_the_address_that_people_call(
    admin: Client, ada: User, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://headroom.example.com"
    html = html_of(admin.post(of(ada, "link")))
    assert f"https://headroom.example.com{reverse('password_by_link')}?user={ada.pk}&amp;" in html


def test_names_of_users_are_escaped(admin: Client) -> None:
    odd = make_user(username="<b>x")
    for path in (PAGE, of(odd), of(odd, "change/"), of(odd, "deactivate/")):
        html = opened(admin, path)
        assert "<b>x" not in html.replace("<b>&lt;b&gt;x", "")
        assert "&lt;b&gt;x" in html
    assert client_of(Role.VIEWER).get(of(odd)).status_code == 403
