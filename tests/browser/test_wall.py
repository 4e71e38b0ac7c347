"""The fleet on a screen on the wall: large, nothing to click, and honest when it is cut off."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Locator, expect

from accounts.roles import Role
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet, small_fleet

WALL = "/?wall=1"


@pytest.fixture
def silent(transactional_db: None) -> SmallFleet:
    """A fleet that was heard five minutes ago."""
    made = small_fleet()
    made.report(at=time.time() - 300.0)
    return made


def test_a_wall_has_large_figures_and_no_navigation(visits: Visits, small: SmallFleet) -> None:
    visitor = visits(Role.VIEWER)
    small_px = size_px(visitor.page.locator("h1"))
    visitor.page.get_by_role("link", name="this page for a screen on the wall").click()
    page = visitor.page
    expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
    expect(page.locator("#search")).to_be_hidden()
    expect(page.locator("#wall")).to_contain_text("is signed in until")
    assert size_px(page.locator("h1")) >= 1.5 * small_px
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("#contact")).to_have_count(0)
    visitor.check_accessible()
    assert visitor.overflow_px() <= 0


def test_a_wall_says_that_its_readings_are_stale(visits: Visits, silent: SmallFleet) -> None:
    page = visits(Role.VIEWER).open(WALL)
    expect(page.locator("#live")).to_have_attribute("data-state", "stale")
    expect(page.locator("#contact")).to_contain_text("Stale: the newest reading is of")


def test_a_wall_that_is_signed_out_says_so_and_keeps_its_figures(
    visits: Visits, small: SmallFleet
) -> None:
    visitor = visits(Role.VIEWER)
    page = visitor.open(WALL)
    expect(page.locator("#live")).to_contain_text("live")
    visitor.expected.append("401")  # the browser's own lines about answers of it
    visitor.context.clear_cookies()
    expect(page.locator("#contact")).to_contain_text("Signed out: log in on this screen")
    expect(page.locator("#live-text")).to_have_text("signed out")
    time.sleep(4.0)  # other polls have been answered since
    assert page.url.endswith(WALL)
    expect(page.locator("h1")).to_contain_text("oslo")


def size_px(what: Locator) -> float:
    size: float = what.evaluate("each => parseFloat(getComputedStyle(each).fontSize)")
    return size
