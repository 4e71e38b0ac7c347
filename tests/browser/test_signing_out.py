"""What is left in a browser after somebody has logged out."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from accounts.roles import Role
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet


def test_the_back_button_shows_nothing_after_logging_out(visits: Visits, small: SmallFleet) -> None:
    page = visits(Role.OPERATOR).open("/agents/")
    expect(page.locator("h1")).to_contain_text("1 agent")
    page.goto(f"{page.url.split('/agents')[0]}/account/")
    page.evaluate("document.querySelector('form[action=\"/logout/\"]').submit()")
    expect(page).to_have_url(re.compile("/login/"))
    page.go_back()
    page.go_back()
    expect(page).to_have_url(re.compile("/login/"))
    assert "small-fleet" not in page.content()
