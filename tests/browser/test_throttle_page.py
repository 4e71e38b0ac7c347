"""The Throttle events page as a person uses it."""

from __future__ import annotations

import re
import time

from playwright.sync_api import expect

from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet


def test_an_event_appears_and_closes_by_itself(visits: Visits, small: SmallFleet) -> None:
    page = visits().open("/throttle/")
    expect(page.locator("h1")).to_have_text("No GPU throttles unexpectedly now")
    now = time.time()
    small.report(at=now, only=["oslo-a01-n1"], throttle=lambda _, gpu: 4 * (gpu == 1))
    expect(page.locator("h1")).to_contain_text(
        "1 GPU throttling unexpectedly now: 1 info · 1 SW power cap"
    )
    expect(page.locator("tr.open")).to_have_count(1)
    for later in (20, 55):  # quiet for long enough
        small.report(at=now + later, only=["oslo-a01-n1"])
    expect(page.locator("h1")).to_have_text("No GPU throttles unexpectedly now")
    expect(page.locator("tr.open")).to_have_count(0)
    expect(page.locator("tbody tr")).to_have_count(1)


def test_filters_are_chosen_and_stay_in_the_url(visits: Visits, small: SmallFleet) -> None:
    small.report(throttle=lambda node, gpu: 0x24 if node == "oslo-a01-n1" and gpu == 0 else 0)
    page = visits().open("/throttle/")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("#main").locator("select[name=cause]").select_option("sw_thermal")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"cause=sw_thermal"))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("#main").locator("select[name=site]").select_option("bergen")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No event passes these filters")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_a_poll_leaves_what_is_typed_alone(visits: Visits, small: SmallFleet) -> None:
    page = visits().open("/throttle/")
    rack = page.locator("#main").get_by_label("Rack", exact=True)
    rack.fill("A0")
    small.report(throttle=4)
    expect(page.locator("tr.open").first).to_be_visible()
    expect(rack).to_have_value("A0")
    expect(rack).to_be_focused()
