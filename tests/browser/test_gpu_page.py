"""The GPU and Node pages as a person uses them."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from telemetry.faults.models import EccEvent
from telemetry.models import XidEvent
from telemetry.samples import GPU
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.readings import write_samples


def drawn(page: Page) -> int:
    """Wait for the chart; return how many rows of readings it has."""
    expect(page.locator("#timeline .main-svg").first).to_be_visible()
    titles = page.locator("#timeline .annotation-text")
    return titles.count()


@pytest.fixture
def storied(transactional_db: None) -> SmallFleet:
    """A fleet with ten minutes behind it, of which every GPU was throttled for one."""
    made, now = small_fleet(), time.time()
    for age in range(600, -1, -60):
        made.report(at=now - age, power_w=500.0, throttle=4 if age in (300, 240) else 0)
    return made


def test_the_answer_follows_readings(visits: Visits, small: SmallFleet) -> None:
    page = visits().open(f"/gpus/{small.gpu('oslo-a01-n1').pk}/")
    expect(page.locator("h1")).to_contain_text("400 of 700 W")
    small.report(power_w=651.0, throttle=4)
    expect(page.locator("h1")).to_contain_text("651 of 700 W")
    expect(page.locator("h1")).to_contain_text("throttling: SW power cap")


def test_the_chart_has_readings_and_throttle_spans_on_one_axis(
    visits: Visits, storied: SmallFleet
) -> None:
    page = visits().open(f"/gpus/{storied.gpu('oslo-a01-n1').pk}/?range=15m")
    # Power, temperature, clock, use; and the lane of the cause.
    assert drawn(page) == 5
    expect(page.locator("#timeline .annotation-text").last).to_have_text("sw_power_cap")


def test_a_range_is_compared_with_that_of_a_day_earlier_at_the_present_times(
    visits: Visits, storied: SmallFleet
) -> None:
    gpu, then = storied.gpu("oslo-a01-n1"), time.time() - 24 * 3600
    write_samples(GPU, gpu.pk, [then - age for age in range(600, 0, -60)], power_w=320.0)
    page = visits().open(f"/gpus/{gpu.pk}/?range=15m&compare=24h")
    drawn(page)
    earlier = page.evaluate(
        "document.getElementById('timeline').data.find((each) => each.name === '24 h earlier')"
    )
    assert {round(watts) for watts in earlier["y"] if watts is not None} == {320}
    axis = page.evaluate("document.getElementById('timeline').layout.xaxis.range")
    assert all(axis[0] <= at <= axis[1] for at in earlier["x"])


def test_values_under_the_cursor_are_told_for_all_rows(visits: Visits, storied: SmallFleet) -> None:
    page = visits(theme="dark").open(f"/gpus/{storied.gpu('oslo-a01-n1').pk}/?range=15m")
    drawn(page)
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    hover = page.locator("#timeline .hoverlayer")
    expect(hover).to_contain_text("power : 500 W")
    expect(hover).to_contain_text("SM clock : 1,800 MHz")
    expect(hover).to_contain_text("UTC")


def test_the_chart_appends_what_comes_in(visits: Visits, storied: SmallFleet) -> None:
    page = visits().open(f"/gpus/{storied.gpu('oslo-a01-n1').pk}/?range=15m")
    drawn(page)
    before = int(page.locator("#timeline").get_attribute("data-drawn") or 0)
    storied.report()
    chart = page.locator(f'#timeline[data-drawn="{before + 1}"]')
    expect(chart).to_have_count(1)


def test_the_chart_follows_the_theme(visits: Visits, storied: SmallFleet) -> None:
    page = visits().open(f"/gpus/{storied.gpu('oslo-a01-n1').pk}/?range=15m")
    drawn(page)
    line = page.locator("#timeline .scatterlayer .js-line").first

    def color() -> str:
        found: str = line.evaluate("line => getComputedStyle(line).stroke")
        return found

    light = color()
    page.locator("#theme").click()
    page.locator("#theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert color() != light


def test_a_range_is_chosen_and_stays_in_the_url(visits: Visits, storied: SmallFleet) -> None:
    page = visits().open(f"/gpus/{storied.gpu('oslo-a01-n1').pk}/")
    page.get_by_role("link", name="15 min").click()
    expect(page).to_have_url(re.compile(r"\?range=15m$"))
    expect(page.get_by_role("link", name="15 min")).to_have_attribute("aria-current", "true")
    page.get_by_text("from … to …").click()
    page.get_by_label("From, UTC").fill("2026-01-01T08:00:00")
    page.get_by_label("To, UTC").fill("2026-01-01T09:00:00")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"\?from=2026-01-01T08.*&to=2026-01-01T09"))
    expect(page.locator("#timeline")).to_have_text("No reading in this range.")


def test_the_csv_file_has_the_readings(visits: Visits, storied: SmallFleet) -> None:
    page = visits().open(f"/gpus/{storied.gpu('oslo-a01-n1').pk}/?range=15m")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV", exact=True).click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("time,power_w,")
    assert len(lines) == 12


def test_a_node_leads_to_its_gpus(visits: Visits, storied: SmallFleet) -> None:
    page = visits().open(f"/nodes/{storied.nodes['oslo-a01-n1'].pk}/?range=15m")
    assert drawn(page) == 5
    gpu = page.locator("#gpus-scroll").get_by_role("link", name="GPU 2", exact=True)
    gpu.focus()
    storied.report(temp_c=91.0)
    expect(page.locator("h1")).to_contain_text("4 °C over slowdown")
    # The panel was swapped under the focus.
    expect(gpu).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/gpus/{storied.gpu('oslo-a01-n1', 2).pk}/"))


def test_on_a_phone_the_chart_fits(visits: Visits, storied: SmallFleet) -> None:
    visitor = visits(size=PHONE)
    page = visitor.open(f"/nodes/{storied.nodes['oslo-a01-n1'].pk}/?range=15m")
    drawn(page)
    assert visitor.overflow_px() <= 0
    box = page.locator("#timeline .main-svg").first.bounding_box()
    assert box is not None
    assert box["width"] <= PHONE[0]


def test_errors_are_lines_through_all_rows_of_the_chart(
    visits: Visits, storied: SmallFleet
) -> None:
    gpu = storied.gpu("oslo-a01-n1")
    at = timezone.now() - timedelta(minutes=5)
    XidEvent.objects.create(node=gpu.node, gpu=gpu, ts=at, xid=79, text="fell off the bus")
    EccEvent.objects.create(gpu=gpu, since=at, at=at + timedelta(minutes=1), count=2, total=2)
    page = visits(theme="dark").open(f"/gpus/{gpu.pk}/?range=15m")
    chart = page.locator("#timeline")
    expect(chart.locator(".annotation-text", has_text="Xid 79")).to_have_count(1)
    expect(chart.locator(".annotation-text", has_text="ECC +2")).to_have_count(1)
    rows = page.locator("#happenings tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("Xid 79")
    expect(rows.nth(1)).to_contain_text("beside sw_power_cap")
