"""Single sign-on against a real provider, which runs as a process of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from accounts.models import ApiToken, AuditEntry, GroupRole, Identity, User
from accounts.roles import Role
from admission.jobs.models import Project, ProjectGroup
from tests.builders.accounts import PASSWORD, client_of, make_token, make_user
from tests.identity_provider.process import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    start,
)

pytestmark = pytest.mark.django_db

CALLBACK = "http://testserver/login/callback/"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    provider = start(Path(tmp_path_factory.mktemp("provider")), CALLBACK)
    yield provider
    provider.stop()


@pytest.fixture
def provider(running: IdentityProvider, settings: Settings) -> Iterator[IdentityProvider]:
    settings.OIDC_ISSUER = running.issuer
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET
    settings.OIDC_NAME = "Acme"
    for group, role in (("ops", Role.OPERATOR), ("bosses", Role.ADMIN), ("ml", Role.ML_USER)):
        GroupRole.objects.create(group=group, role=role)
    cache.clear()
    yield running
    cache.clear()


def _go(client: Client, query: str = "") -> str:
    """Begin, and return where at the provider we are sent to."""
    response = client.get(f"/login/sign-on/{query}")
    assert response.status_code == 302, response.content
    return str(response["Location"])


def _sign_on(provider: IdentityProvider, name: str, client: Client | None = None) -> HttpResponse:
    client = client or Client()
    return client.get(provider.visit(_go(client), name))  # type: ignore[return-value]


def _code(response: HttpResponse) -> str:
    """Return why nobody was signed on."""
    return str(response.context["error"].code)  # type: ignore[attr-defined]


def _me(client: Client) -> dict[str, object] | None:
    response = client.get("/api/v1/me")
    return response.json() if response.status_code == 200 else None


class TestGettingIn:
    def test_somebody_new_gets_an_account_with_the_role_of_their_groups(
        self, provider: IdentityProvider
    ) -> None:
        provider.has("ada", "ml", "ops", "else", claims={"given_name": "Ada"}, sub="sub-1")
        client = Client()
        response = _sign_on(provider, "ada", client)
        assert (response.status_code, response["Location"]) == (302, "/")
        user = User.objects.get()
        assert (user.username, user.role, user.first_name) == ("ada", Role.OPERATOR, "Ada")
        assert not user.has_usable_password()
        assert (Identity.objects.get().issuer, Identity.objects.get().subject) == (
            provider.issuer,
            "sub-1",
        )
        login = AuditEntry.objects.get(action="login")
        assert (login.actor, login.detail["way"]) == ("ada", "sign_on")
        assert AuditEntry.objects.filter(action="user.create", target="ada").exists()
        assert b"single sign-on" in client.get("/account/").content

    def test_the_next_time_it_is_the_same_account(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml", sub="sub-1")
        _sign_on(provider, "ada")
        first = User.objects.get()
        provider.has("ada-married", "ml", sub="sub-1")
        _sign_on(provider, "ada-married")
        assert User.objects.get() == first

    def test_groups_give_projects_and_take_them_back(self, provider: IdentityProvider) -> None:
        vision, speech, by_hand = (Project.objects.create(name=n) for n in ("v", "s", "hand"))
        ProjectGroup.objects.create(project=vision, group="team-v")
        ProjectGroup.objects.create(project=speech, group="team-s")
        provider.has("ada", "ml", "team-v")
        _sign_on(provider, "ada")
        user = User.objects.get()
        by_hand.members.add(user)
        assert set(user.projects.all()) == {vision, by_hand}
        provider.has("ada", "ml", "team-s")
        _sign_on(provider, "ada")
        assert set(user.projects.all()) == {speech, by_hand}
        entry = AuditEntry.objects.filter(action="project.groups").latest("pk")
        assert (entry.detail["added"], entry.detail["removed"]) == (["s"], ["v"])
        assert "v" in entry.detail["before"]["projects"]
        assert "s" in entry.detail["after"]["projects"]

    def test_a_group_that_is_gone_takes_its_role_with_it(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ops", "ml")
        before = Client()
        _sign_on(provider, "ada", before)
        provider.has("ada", "ml")
        after = Client()
        _sign_on(provider, "ada", after)
        me = _me(after)
        assert me
        assert me["role"] == "ml_user"
        assert _me(before) is None

    def test_groups_may_come_from_the_userinfo_endpoint(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ops", groups_at_userinfo=True)
        _sign_on(provider, "ada")
        assert User.objects.get().role == Role.OPERATOR

    def test_a_session_has_a_new_key_after_it(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        client = Client()
        session = client.session
        session["planted"] = "1"
        session.save()
        planted = client.cookies["sessionid"].value
        _sign_on(provider, "ada", client)
        assert client.cookies["sessionid"].value != planted

    def test_the_way_back_leads_back(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        client = Client()
        back = provider.visit(_go(client, "?next=/account/%3Fx=1"), "ada")
        assert client.get(back)["Location"] == "/account/?x=1"

    @pytest.mark.parametrize(
        "target", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.x"]
    )
    def test_the_way_back_leads_nowhere_else(self, provider: IdentityProvider, target: str) -> None:
        provider.has("ada", "ml")
        client = Client()
        back = provider.visit(_go(client, f"?next={target}"), "ada")
        assert client.get(back)["Location"] == "/"

    def test_beginning_writes_no_session(self, provider: IdentityProvider) -> None:
        client = Client()
        _go(client)
        assert "sessionid" not in client.cookies
        assert client.cookies["sign_on"]["httponly"]
        assert client.cookies["sign_on"]["samesite"] == "Lax"


class TestKeepingOut:
    def test_who_has_no_group_with_a_role_is_refused(self, provider: IdentityProvider) -> None:
        provider.has("eve", "else")
        assert _code(_sign_on(provider, "eve")) == "no_role"
        assert not User.objects.exists()
        entry = AuditEntry.objects.get(action="sign_on.refused")
        assert (entry.target, entry.detail["reason"]) == ("eve", "no_role")

    def test_or_gets_the_least_role_where_there_is_one(
        self, provider: IdentityProvider, settings: Settings
    ) -> None:
        settings.OIDC_DEFAULT_ROLE = "viewer"
        provider.has("eve")
        _sign_on(provider, "eve")
        assert User.objects.get().role == Role.VIEWER

    def test_who_has_lost_all_groups_loses_role_projects_sessions_and_tokens(
        self, provider: IdentityProvider
    ) -> None:
        project = Project.objects.create(name="v")
        ProjectGroup.objects.create(project=project, group="team-v")
        provider.has("ada", "bosses", "team-v")
        before = Client()
        _sign_on(provider, "ada", before)
        user = User.objects.get()
        make_token(user)
        provider.has("ada")
        assert _code(_sign_on(provider, "ada")) == "no_role"
        user.refresh_from_db()
        assert (user.role, user.projects.count()) == (Role.VIEWER, 0)
        assert not ApiToken.objects.usable().exists()
        assert _me(before) is None

    @pytest.mark.parametrize("name", ["boss", "BOSS"])
    def test_a_local_account_of_the_same_name_is_not_taken_over(
        self, provider: IdentityProvider, name: str
    ) -> None:
        make_user(Role.ADMIN, username="boss")
        provider.has(name, "ml", sub="stranger")
        client = Client()
        assert _code(_sign_on(provider, name, client)) == "name_taken"
        assert _me(client) is None
        assert not Identity.objects.exists()

    def test_a_local_account_of_the_same_address_is_not_taken_over(
        self, provider: IdentityProvider
    ) -> None:
        boss = make_user(Role.ADMIN, username="boss")
        User.objects.update(email="boss@example.com")
        claims = {"email": "boss@example.com", "email_verified": True}
        provider.has("stranger", "ml", claims=claims)
        client = Client()
        _sign_on(provider, "stranger", client)
        me = _me(client)
        assert me
        assert (me["username"], me["role"]) == ("stranger", "ml_user")
        assert not boss.identities.exists()

    def test_another_subject_of_a_known_name_is_somebody_else(
        self, provider: IdentityProvider
    ) -> None:
        provider.has("ada", "bosses", sub="the first")
        _sign_on(provider, "ada")
        provider.has("ada", "bosses", sub="the second")
        assert _code(_sign_on(provider, "ada")) == "name_taken"

    def test_the_same_subject_of_another_issuer_is_somebody_else(
        self, provider: IdentityProvider
    ) -> None:
        boss = make_user(Role.ADMIN, username="boss")
        Identity.objects.create(user=boss, issuer="https://other.example", subject="sub-1")
        provider.has("ada", "ml", sub="sub-1")
        _sign_on(provider, "ada")
        assert Identity.objects.get(issuer=provider.issuer).user.username == "ada"

    def test_an_inactive_account_stays_out(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        _sign_on(provider, "ada")
        User.objects.update(is_active=False)
        assert _code(_sign_on(provider, "ada")) == "inactive"

    @pytest.mark.parametrize("name", ["", "a\nb", "\u202eadmin", "x" * 151, 7, None])
    def test_a_name_that_cannot_be_one_is_refused(
        self, provider: IdentityProvider, name: object
    ) -> None:
        provider.has("odd", "ml", claims={"preferred_username": name})
        assert _code(_sign_on(provider, "odd")) == "bad_name"

    @pytest.mark.parametrize("groups", [{"ops": 1}, 7, [["ops"]], [None], None])
    def test_groups_of_another_shape_give_nothing(
        self, provider: IdentityProvider, groups: object
    ) -> None:
        provider.has("odd", claims={"groups": groups})
        assert _code(_sign_on(provider, "odd")) == "no_role"


class TestProof:
    @pytest.mark.parametrize(
        ("fault", "code"),
        [
            ("issuer", "bad_iss"),
            ("audience", "bad_aud"),
            ("audiences", "bad_azp"),
            ("nonce", "bad_nonce"),
            ("no_nonce", "bad_nonce"),
            ("no_sub", "bad_sub"),
            ("no_exp", "bad_exp"),
            ("expired", "bad_exp"),
            ("future", "bad_iat"),
            ("at_hash", "bad_at_hash"),
            ("none", "bad_signature"),
            ("hmac", "bad_signature"),
            ("other_key", "bad_signature"),
            ("unknown_key", "bad_signature"),
        ],
    )
    def test_a_token_that_does_not_hold_is_refused_and_noted(
        self, provider: IdentityProvider, fault: str, code: str
    ) -> None:
        provider.has("ada", "bosses", fault=fault)
        client = Client()
        response = _sign_on(provider, "ada", client)
        assert (response.status_code, _code(response)) == (403, code)
        assert _me(client) is None
        assert not User.objects.exists()
        assert AuditEntry.objects.get().detail["reason"] == code

    @pytest.mark.parametrize("fault", ["late", "ahead"])
    def test_clocks_may_differ_a_little(
        self, provider: IdentityProvider, fault: str, settings: Settings
    ) -> None:
        provider.has("ada", "ml", fault=fault)
        assert _sign_on(provider, "ada").status_code == 302
        settings.OIDC_CLOCK_SKEW_S = 5
        assert _sign_on(provider, "ada").status_code == 403

    def test_another_state_is_refused(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        client = Client()
        back = provider.visit(_go(client), "ada")
        state = parse_qs(urlsplit(back).query)["state"][0]
        assert _code(client.get(back.replace(state, "x" * len(state)))) == "stale_attempt"  # type: ignore[arg-type]

    def test_an_answer_that_another_browser_began_is_refused(
        self, provider: IdentityProvider
    ) -> None:
        provider.has("mallory", "ml")
        back = provider.visit(_go(Client()), "mallory")
        victim = Client()
        assert _code(victim.get(back)) == "stale_attempt"  # type: ignore[arg-type]
        _go(victim)
        assert _code(victim.get(back)) == "stale_attempt"  # type: ignore[arg-type]
        assert _me(victim) is None

    def test_a_code_works_once(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        client = Client()
        address = _go(client)
        cookie = client.cookies["sign_on"].value
        back = provider.visit(address, "ada")
        assert client.get(back).status_code == 302
        client.logout()
        assert _code(client.get(back)) == "stale_attempt"  # type: ignore[arg-type]
        client.cookies["sign_on"] = cookie
        assert _code(client.get(back)) == "code_refused"  # type: ignore[arg-type]

    def test_the_provider_wants_the_verifier_and_gets_it(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        client = Client()
        asked = parse_qs(urlsplit(_go(client)).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["response_type"] == ["code"]
        # The code of another attempt: its state is ours, its challenge is not.
        other = Client()
        stolen = parse_qs(urlsplit(provider.visit(_go(other), "ada")).query)["code"][0]
        back = f"/login/callback/?code={stolen}&state={asked['state'][0]}"
        assert _code(client.get(back)) == "code_refused"  # type: ignore[arg-type]

    def test_an_answer_of_another_issuer_is_refused(self, provider: IdentityProvider) -> None:
        provider.has("ada", "ml")
        client = Client()
        back = provider.visit(_go(client), "ada")
        back = back.split("&iss=")[0] + "&iss=https://evil.example"
        assert _code(client.get(back)) == "bad_iss"  # type: ignore[arg-type]

    def test_a_refusal_of_the_provider_is_told(self, provider: IdentityProvider) -> None:
        client = Client()
        state = parse_qs(urlsplit(_go(client)).query)["state"][0]
        response = client.get(f"/login/callback/?error=access_denied&state={state}")
        assert _code(response) == "not_let_in"  # type: ignore[arg-type]


class TestLinking:
    def _allow(self, client: Client, password: str = PASSWORD) -> HttpResponse:
        return client.post("/account/link/", {"password": password})  # type: ignore[return-value]

    def _link(self, provider: IdentityProvider, client: Client, name: str) -> HttpResponse:
        assert self._allow(client).status_code == 200
        return client.get(provider.visit(_go(client, "?link=1"), name))  # type: ignore[return-value]

    def test_a_local_account_is_linked_by_its_password_and_then_follows_the_groups(
        self, provider: IdentityProvider
    ) -> None:
        user = make_user(Role.VIEWER, username="ada")
        provider.has("ada@acme", "ops", sub="sub-1")
        client = Client()
        client.force_login(user)
        assert self._link(provider, client, "ada@acme")["Location"] == "/account/"
        user.refresh_from_db()
        assert user.role == Role.VIEWER
        _sign_on(provider, "ada@acme")
        user.refresh_from_db()
        assert user.role == Role.OPERATOR
        assert AuditEntry.objects.filter(action="identity.link", actor="ada").exists()

    def test_a_session_without_the_password_links_nothing(self, provider: IdentityProvider) -> None:
        user = make_user(username="ada")
        client = Client()
        client.force_login(user)
        assert self._allow(client, "wrong").status_code == 302
        provider.has("mallory", "ml")
        client.get(provider.visit(_go(client, "?link=1"), "mallory"))
        assert not user.identities.exists()

    def test_an_identity_of_somebody_else_cannot_be_linked(
        self, provider: IdentityProvider
    ) -> None:
        provider.has("bob", "ml")
        _sign_on(provider, "bob")
        user = make_user(username="ada")
        client = Client()
        client.force_login(user)
        assert _code(self._link(provider, client, "bob")) == "linked_already"
        assert not user.identities.exists()

    def test_a_link_is_removed(self, provider: IdentityProvider) -> None:
        user = make_user(username="ada")
        provider.has("ada@acme", "ml")
        client = Client()
        client.force_login(user)
        self._link(provider, client, "ada@acme")
        identity = user.identities.get()
        stranger = client_of()
        assert stranger.post(f"/account/link/{identity.pk}/end/").status_code == 404
        client.post(f"/account/link/{identity.pk}/end/")
        assert not user.identities.exists()
        assert AuditEntry.objects.filter(action="identity.unlink").exists()

    def test_an_account_for_emergencies_is_never_linked(
        self, provider: IdentityProvider, settings: Settings
    ) -> None:
        settings.EMERGENCY_USERS = ["admin"]
        admin = make_user(Role.ADMIN, username="admin")
        client = Client()
        client.force_login(admin)
        assert self._allow(client).status_code == 302
        form = {"user": admin.pk, "issuer": provider.issuer, "subject": "x"}
        assert client.post("/admin/accounts/identity/add/", form).status_code == 200
        assert not Identity.objects.exists()


class TestEmergency:
    @pytest.fixture(autouse=True)
    def _emergency_only(self, settings: Settings, provider: IdentityProvider) -> None:
        settings.LOCAL_LOGIN, settings.EMERGENCY_USERS = "emergency", ["admin"]

    def _password(self, name: str) -> HttpResponse:
        form = {"username": name, "password": PASSWORD}
        return Client().post("/login/", form)  # type: ignore[return-value]

    def test_the_account_for_emergencies_gets_in_and_is_noted(self) -> None:
        make_user(Role.ADMIN, username="admin")
        assert self._password("admin").status_code == 302
        assert AuditEntry.objects.get(action="login").detail["emergency"] is True

    def test_it_gets_in_while_the_provider_is_away(self, settings: Settings) -> None:
        settings.OIDC_ISSUER = "http://127.0.0.1:9"
        make_user(Role.ADMIN, username="admin")
        assert self._password("admin").status_code == 302

    def test_others_do_not_get_in_by_password_though_it_is_right(self) -> None:
        make_user(Role.ADMIN, username="ada")
        response = self._password("ada")
        assert response.status_code == 200
        assert b"do not match" in response.content


class TestProviderAway:
    def test_the_page_says_so(self, provider: IdentityProvider, settings: Settings) -> None:
        settings.OIDC_ISSUER = "http://127.0.0.1:9"
        response = Client().get("/login/sign-on/")
        assert response.status_code == 503
        assert b"cannot be reached" in response.content
        assert b"/login/" in response.content

    def test_one_that_is_silent_is_not_asked_by_everybody(self, settings: Settings) -> None:
        cache.clear()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            settings.OIDC_ISSUER = f"http://127.0.0.1:{silent.getsockname()[1]}"
            settings.OIDC_CLIENT_ID, settings.OIDC_TIMEOUT_S = CLIENT_ID, 0.2
            assert [Client().get("/login/sign-on/").status_code for _ in range(5)] == [503] * 5
            silent.settimeout(0.2)
            silent.accept()[0].close()
            with pytest.raises(TimeoutError):
                silent.accept()
        cache.clear()

    def test_also_when_it_goes_in_the_midst(
        self, provider: IdentityProvider, settings: Settings
    ) -> None:
        provider.has("ada", "ml")
        client = Client()
        back = provider.visit(_go(client), "ada")
        cache.clear()
        settings.OIDC_ISSUER = "http://127.0.0.1:9"
        assert client.get(back.split("&iss=")[0]).status_code == 503

    def test_without_a_provider_there_is_no_way_to_one(self) -> None:
        assert b"sign-on" not in Client().get("/login/").content
        assert Client().get("/login/sign-on/")["Location"] == "/login/"
        assert Client().get("/login/callback/?code=x")["Location"] == "/login/"

    def test_another_issuer_than_asked_for_is_not_believed(
        self, provider: IdentityProvider, settings: Settings
    ) -> None:
        settings.OIDC_ISSUER = provider.issuer.replace("127.0.0.1", "localhost") + "/"
        settings.OIDC_ISSUER = settings.OIDC_ISSUER.rstrip("/").replace("/o", "/accounts")
        assert Client().get("/login/sign-on/").status_code == 503


class TestLeaving:
    def test_the_session_here_ends_and_the_way_to_end_that_there_is_shown(
        self, provider: IdentityProvider
    ) -> None:
        provider.has("ada", "ml")
        client = Client()
        _sign_on(provider, "ada", client)
        response = client.post("/logout/")
        assert _me(client) is None
        assert f"{provider.issuer}/logout/?client_id=headroom".encode() in response.content

    def test_who_logged_in_by_password_is_not_sent_there(self, provider: IdentityProvider) -> None:
        make_user(username="ada")
        client = Client()
        client.post("/login/", {"username": "ada", "password": PASSWORD})
        assert client.post("/logout/")["Location"] == "/login/"


class TestSecondFactor:
    @pytest.fixture(autouse=True)
    def _required(self, settings: Settings) -> None:
        settings.SECOND_FACTOR_ROLES = ["admin"]

    def test_a_role_that_needs_one_needs_it_here_too(self, provider: IdentityProvider) -> None:
        provider.has("ada", "bosses")
        client = Client()
        assert _sign_on(provider, "ada", client)["Location"] == "/login/enroll/"
        assert _me(client) is None

    def test_one_that_the_provider_asked_for_counts_where_it_is_trusted(
        self, provider: IdentityProvider, settings: Settings
    ) -> None:
        provider.has("ada", "bosses", claims={"amr": ["pwd", "otp"]})
        assert _sign_on(provider, "ada")["Location"] == "/login/enroll/"
        settings.OIDC_TRUSTED_AMR = ["otp", "mfa"]
        client = Client()
        assert _sign_on(provider, "ada", client)["Location"] == "/"
        assert _me(client)
