"""The Rack page as a person uses it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet


def test_the_panel_follows_readings_and_keeps_the_focus(visits: Visits, small: SmallFleet) -> None:
    page = visits().open(f"/racks/{small.racks['oslo/A01'].pk}/")
    gpu = page.locator(f"#gpu-{small.gpu('oslo-a01-n1', 3).pk}")
    gpu.focus()
    small.report(temp_c=91.0)
    expect(gpu).to_have_class(re.compile(r"\bover\b"))
    expect(page.locator("h1")).to_contain_text("4 °C over its slowdown limit")
    expect(gpu).to_be_focused()


def test_gpus_can_be_colored_by_another_metric(visits: Visits, small: SmallFleet) -> None:
    page = visits().open(f"/racks/{small.racks['oslo/A01'].pk}/")
    page.get_by_role("link", name="Clocks").click()
    expect(page).to_have_url(re.compile(r"\?metric=clocks$"))
    expect(page.locator(".gpu-value").first).to_have_text("1800")
    # The poll keeps the metric.
    small.report(sm_mhz=1500.0)
    expect(page.locator(".gpu-value").first).to_have_text("1500")


def test_the_chart_shows_power_and_budget_under_the_policy(
    visits: Visits, small: SmallFleet
) -> None:
    visitor = visits(theme="dark")
    page = visitor.open(f"/racks/{small.racks['oslo/A01'].pk}/")
    expect(page.locator("#timeline .main-svg").first).to_be_visible()
    # Plotly's own rules are in force: without them the layers stand below each other.
    position = page.evaluate(
        "getComputedStyle(document.querySelector('#timeline .main-svg')).position"
    )
    assert position == "absolute"
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    page.locator("#theme").click()
    visitor.check_quiet()


def test_polling_stops_in_a_hidden_tab(visits: Visits, small: SmallFleet) -> None:
    visitor = visits()
    page = visitor.open(f"/racks/{small.racks['oslo/A01'].pk}/")
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})"
    )
    page.wait_for_timeout(500)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(4_500)
    assert not [url for url in asked if "/live/" in url]
