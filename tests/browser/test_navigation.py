"""The navigation and tables, on a desk and on a phone."""

from __future__ import annotations

from playwright.sync_api import expect

from accounts.roles import Role
from dashboard.navigation import MAIN, MORE
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet
from tests.builders.lively import make_lively


def test_all_pages_are_reached_from_the_header(visits: Visits, small: SmallFleet) -> None:
    page = visits(Role.ADMIN).page
    for each in MAIN:
        expect(page.locator(".nav > a", has_text=each.name)).to_be_visible()
    more = page.locator("#nav-more")
    expect(more).to_be_hidden()
    page.get_by_role("button", name="More").click()
    for each in MORE:
        expect(more.get_by_role("link", name=each.name, exact=True)).to_be_visible()
    more.get_by_role("link", name="Energy", exact=True).click()
    expect(page).to_have_url(page.url.split("/energy/")[0] + "/energy/")
    expect(page.get_by_role("button", name="More")).to_have_attribute("aria-current", "true")


def test_a_phone_has_all_pages_behind_one_button_without_sideways_scroll(
    visits: Visits, small: SmallFleet
) -> None:
    visitor = visits(Role.ADMIN, size=PHONE)
    page = visitor.page
    nav = page.get_by_role("navigation", name="Main")
    expect(nav).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    for each in (*MAIN, *MORE):
        link = nav.get_by_role("link", name=each.name, exact=True)
        expect(link).to_be_in_viewport(ratio=1)
    visitor.check_accessible()
    assert nav.evaluate("nav => nav.scrollWidth - nav.clientWidth") <= 0
    nav.get_by_role("link", name="Agents", exact=True).click()
    expect(page).to_have_url(page.url.split("/agents/")[0] + "/agents/")


def test_what_brings_goodput_back_is_read_on_a_phone_without_scrolling_sideways(
    visits: Visits, transactional_db: None
) -> None:
    make_lively()
    page = visits(Role.OPERATOR, size=PHONE).open("/goodput/")
    lever = page.locator("td.lever").first
    expect(lever).to_be_visible()
    box = lever.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]
    scroll = page.locator("#goodput-causes-scroll")
    assert scroll.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
