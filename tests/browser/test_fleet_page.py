"""The Fleet page as a person uses it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from fleet.models import Rack
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet


def focused(page: Page) -> str | None:
    """Return the rack (database id) of the cell that has the focus."""
    return page.locator(":focus").get_attribute("data-rack")


def pk(small: SmallFleet, path: str) -> str:
    return str(small.racks[path].pk)


def test_logging_in_shows_the_heatmap_filled(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    expect(page.locator(".cell")).to_have_count(len(small.racks))
    expect(page.locator(".cell.unknown")).to_have_count(0)
    # 48 GPUs at 400 W, and 12 hosts at 4/7 of the way from idle to rated.
    expect(page.locator("h1.answer")).to_contain_text("oslo 36.0 kW of 72.0 (50 %)")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_a_new_reading_is_seen_without_a_reload(visits: Visits, small: SmallFleet) -> None:
    page = visits().open("/?metric=heat")
    cell = page.locator(f'[data-rack="{pk(small, "oslo/A02")}"]')
    expect(cell.locator("span")).to_have_text("27 °C")
    hot = small.nodes_of("oslo/A02")
    small.report(temp_c=lambda node, _: 89.0 if node in hot else 60.0)
    expect(cell).to_have_class(re.compile(r"\bover\b"))
    expect(cell).to_have_attribute("aria-label", re.compile("A02 .2 °C .*, over"))
    expect(page.locator("h1.answer")).to_contain_text("2 °C over its slowdown limit")
    row = page.locator(".heat-row").filter(has=cell)
    expect(row.locator(".row-sum")).to_have_text("18.0 of 36.0 kW · tightest 4 % over")


def test_the_metric_and_the_site_are_in_the_url(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    page.get_by_role("link", name="Power", exact=True).click()
    page.get_by_role("list", name="Site").get_by_role("link", name="oslo").click()
    expect(page).to_have_url(re.compile(r"\?metric=power&site=oslo$"))
    expect(page.locator(".cell")).to_have_count(6)
    page.reload()
    expect(page.locator('[aria-label="Color by"] [aria-current]')).to_have_text("Power")


def test_the_tightest_rack_is_described_until_another_is_pointed_at(
    visits: Visits, small: SmallFleet
) -> None:
    hot = small.nodes_of("oslo/B02")
    small.report(temp_c=lambda node, _: 80.0 if node in hot else 60.0)
    page = visits().page
    expect(page.locator("#details-title")).to_have_text("tightest now: rack B02 · row B · oslo")
    expect(page.locator('[data-show="heat"]')).to_have_text("7 °C")
    page.locator(f'[data-rack="{pk(small, "bergen/A01")}"]').hover()
    expect(page.locator("#details-title")).to_have_text("rack A01 · row A · bergen")
    expect(page.locator('[data-show="load"]')).to_have_text("6.0 of 12.0 kW")


def test_arrows_move_in_the_heatmap_and_enter_opens_the_rack(
    visits: Visits, small: SmallFleet
) -> None:
    page = visits().page
    expect(page.locator('.cell[tabindex="0"]')).to_have_count(1)
    page.locator('.cell[tabindex="0"]').focus()
    assert focused(page) == pk(small, "bergen/A01")
    page.keyboard.press("ArrowRight")
    assert focused(page) == pk(small, "bergen/A02")
    page.keyboard.press("ArrowDown")
    assert focused(page) == pk(small, "oslo/A02")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == pk(small, "bergen/A01")
    page.keyboard.press("End")
    assert focused(page) == pk(small, "oslo/B03")
    page.keyboard.press("Home")
    expect(page.locator("#details-title")).to_have_text("rack A01 · row A · bergen")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/racks/{pk(small, 'bergen/A01')}/$"))


def test_the_focus_stays_while_readings_come(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    page.locator(f'[data-rack="{pk(small, "oslo/A03")}"]').focus()
    small.report(temp_c=82.0)
    cell = page.locator(f'[data-rack="{pk(small, "oslo/A03")}"]')
    expect(cell).to_have_class(re.compile(r"\bm1\b"))
    assert focused(page) == pk(small, "oslo/A03")


def test_nothing_moves_when_readings_come(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    cell = page.locator(f'[data-rack="{pk(small, "oslo/B03")}"]')
    expect(page.locator("#details-list")).to_be_visible()
    before = cell.bounding_box()
    small.report(temp_c=82.0, power_w=650.0)
    # 54.0 kW would hang on either feed alone, of 57.6.
    expect(cell).to_have_class(re.compile(r"\bm0\b"))
    expect(page.locator("h1.answer")).to_contain_text("54.0 kW")
    assert cell.bounding_box() == before


def test_losing_the_server_is_said_and_finding_it_again_too(
    visits: Visits, small: SmallFleet
) -> None:
    visitor = visits()
    page = visitor.page
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    # What the browser says of requests that fail on purpose.
    visitor.expected += ["ERR_INTERNET_DISCONNECTED", "console error: htmx:"]
    visitor.context.set_offline(True)
    expect(page.locator("#live")).to_have_text("no contact")
    expect(page.get_by_role("alert")).to_contain_text("Showing data of")
    visitor.context.set_offline(False)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("name", ["fleet", "rack"])
def test_the_end_of_the_session_leads_to_the_login_page_and_back(
    visits: Visits, small: SmallFleet, name: str
) -> None:
    path = {"fleet": "/", "rack": f"/racks/{pk(small, 'oslo/A01')}/"}[name]
    visitor = visits()
    page = visitor.open(path)
    # What the browser says of polls that are refused.
    visitor.expected += ["401", "console error: htmx:"]
    visitor.context.clear_cookies()
    expect(page).to_have_url(re.compile(rf"/login/\?next={path}$"))


@pytest.mark.parametrize("size", [PHONE, (1440, 900)])
def test_names_of_200_characters_hold(
    visits: Visits, small: SmallFleet, size: tuple[int, int]
) -> None:
    rack = small.racks["oslo/A01"]
    Rack.objects.filter(pk=rack.pk).update(name="R" * 200)
    small.sites["oslo"].name = "S" * 200
    small.sites["oslo"].save()
    visitor = visits(size=size)
    for path in ("/", f"/racks/{rack.pk}/"):
        visitor.open(path)
        assert visitor.overflow_px() <= 0
