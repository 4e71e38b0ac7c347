"""The Rack page as a person uses it."""

from __future__ import annotations

import re
from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import expect

from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet
from tests.builders.policies import open_incident


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


def test_what_happened_is_marked_on_the_chart_and_each_mark_leads_to_it(
    visits: Visits, small: SmallFleet
) -> None:
    incident = open_incident("rack oslo/A01")
    make_lifted("rack oslo/A01", minutes_ago=40)
    visitor = visits(size=PHONE)
    page = visitor.open(f"/racks/{small.racks['oslo/A01'].pk}/")
    flags = page.locator("#timeline .annotation-text-g", has_text=re.compile(r"^[0-9\u2013]+$"))
    expect(flags).to_have_text(["1", "2"])
    # One that is alone leads to what it is about; a new one is marked once the table has it.
    flags.last.scroll_into_view_if_needed()
    flags.last.click()
    expect(page).to_have_url(re.compile(rf"/incidents/{incident.pk}/$"))
    visitor.check_quiet()


def test_marks_too_near_to_each_other_are_one_that_leads_to_the_first_row(
    visits: Visits, small: SmallFleet
) -> None:
    for number in range(4):
        open_incident("rack oslo/A01", rule=f"rule-{number}")
    page = visits(size=PHONE).open(f"/racks/{small.racks['oslo/A01'].pk}/")
    flag = page.locator("#timeline .annotation-text-g", has_text=re.compile(r"^[0-9\u2013]+$"))
    expect(flag).to_have_text(["1\N{EN DASH}4"])
    flag.scroll_into_view_if_needed()
    flag.click()
    expect(page).to_have_url(re.compile(r"#annotation-1$"))


def make_lifted(scope: str, minutes_ago: int) -> None:
    """Have a drain have been issued so long ago, for an hour."""
    at = timezone.now() - timedelta(minutes=minutes_ago)
    kind, _, name = scope.partition(" ")
    Restriction.objects.create(
        kind=RestrictionKind.DRAIN, scope_kind=kind, scope_name=name, reason="new pumps",
        owner="user:ann", cause="pumps", state=Restriction.State.IN_FORCE, issued_at=at,
        effect_at=at, expires_at=at + timedelta(hours=1),
    )  # fmt: skip


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
