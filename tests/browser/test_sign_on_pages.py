"""Logging in as a person does: by the identity provider, with a second factor, and out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyotp
import pytest
from django.core.cache import cache
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from accounts.models import GroupRole, User
from accounts.roles import Role
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.conftest import PATIENCE_MS, Visitor, Visits, note
from tests.builders.accounts import PASSWORD, make_user
from tests.identity_provider import process
from tests.identity_provider.process import CLIENT_ID, CLIENT_SECRET, IdentityProvider

LOOKS = [(PHONE, "light"), (PHONE, "dark"), (DESKTOP, "light"), (DESKTOP, "dark")]
Strangers = Callable[[], Visitor]


@pytest.fixture
def stranger(browser: Browser, live_server: LiveServer) -> Iterator[Strangers]:
    """Makes windows of somebody who is not logged in."""
    made: list[Visitor] = []

    def open_window() -> Visitor:
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script("window.violations = []")
        visitor = Visitor(context, live_server.url, context.new_page())
        # What the provider's own pages say is its matter.
        visitor.page.on(
            "console",
            lambda said: (
                note(visitor, said) if said.location["url"].startswith(live_server.url) else None
            ),
        )
        made.append(visitor)
        return visitor

    yield open_window
    for visitor in made:
        assert visitor.problems == []
        visitor.context.close()


@pytest.fixture
def provider(
    live_server: LiveServer, settings: Settings, tmp_path: Path
) -> Iterator[IdentityProvider]:
    running = process.start(tmp_path, f"{live_server.url}/login/callback/")
    settings.OIDC_ISSUER, settings.OIDC_NAME = running.issuer, "Acme"
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET
    GroupRole.objects.create(group="ops", role=Role.OPERATOR)
    cache.clear()
    yield running
    cache.clear()
    running.stop()


def _type_name(page: Page, name: str) -> None:
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def _turn_on(page: Page) -> tuple[str, list[str]]:
    """Set a second factor up on the page that asks for it. Return its secret and codes."""
    secret = page.locator("code.secret").inner_text()
    page.get_by_label("Code").fill(pyotp.TOTP(secret).now())
    page.get_by_role("button", name="Turn it on").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("recovery codes")
    return secret, page.locator(".codes code").all_inner_texts()


def test_a_person_signs_on_by_the_provider_and_out_of_both(
    stranger: Strangers, provider: IdentityProvider
) -> None:
    provider.has("ada", "ops")
    window = stranger()
    page = window.open("/account/")
    page.get_by_role("link", name="Continue with Acme").click()
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Word").fill(process.PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ada, Operator")
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("link", name="Log out of Acme too").click()
    page.wait_for_url(f"{provider.issuer}/logout/**")


def test_a_person_sets_a_second_factor_up_and_logs_in_with_it(stranger: Strangers) -> None:
    make_user(username="ada")
    window = stranger()
    page = window.open("/account/")
    _type_name(page, "ada")
    page.get_by_role("link", name="Set it up").click()
    assert page.locator("img.qr").evaluate("image => image.naturalWidth") > 0
    window.check_accessible()
    _, recovery = _turn_on(page)
    window.check_accessible()
    page.get_by_role("link", name="I have them").click()
    expect(page.locator("#second-factor")).to_contain_text("10 recovery codes left")

    again = stranger()
    page = again.open("/login/")
    _type_name(page, "ada")
    again.check_accessible()
    page.get_by_label("Code").fill(recovery[0])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(again.server + "/")


def test_a_person_ends_the_session_in_another_browser(stranger: Strangers) -> None:
    make_user(username="ada")
    here, elsewhere = stranger(), stranger()
    for window in (elsewhere, here):
        _type_name(window.open("/account/"), "ada")
    sessions = here.page.locator("#sessions tbody tr")
    expect(sessions).to_have_count(2)
    here.page.get_by_role("button", name="End the session of").click()
    expect(sessions).to_have_count(1)
    elsewhere.open("/account/")
    expect(elsewhere.page.get_by_role("heading", level=1)).to_have_text("Log in")


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_the_account_page_is_whole_at_each_size(
    visits: Visits, settings: Settings, size: tuple[int, int], theme: str
) -> None:
    visitor = visits(Role.VIEWER, size=size, theme=theme)
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = "https://id.example", "x"
    settings.OIDC_NAME = "Acme Identity"
    User.objects.get().identities.create(issuer="https://id.example/realms/acme", subject="f" * 64)
    for path in ("/account/", "/account/second-factor/"):
        visitor.open(path)
        assert visitor.overflow_px() <= 0
        visitor.check_accessible()


@pytest.mark.parametrize("emergency", ["all", "emergency"])
def test_the_login_page_offers_the_provider(
    stranger: Strangers, settings: Settings, emergency: str
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = "https://id.example", "x"
    settings.OIDC_NAME, settings.LOCAL_LOGIN = "Acme Identity", emergency
    window = stranger()
    page = window.open("/login/")
    expect(page.get_by_role("link", name="Continue with Acme Identity")).to_be_visible()
    if emergency == "emergency":
        expect(page.get_by_label("Password")).to_be_hidden()
        page.get_by_text("Emergency access").click()
    expect(page.get_by_label("Password")).to_be_visible()
    window.check_accessible()
