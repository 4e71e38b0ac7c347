"""What holds for every page: accessible, quiet, on a phone, in light and dark, by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from accounts.roles import Role
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.conftest import Visits
from tests.browser.pages import OF_ANY_FLEET, Shown, faults, of_things
from tests.browser.wording import riddles
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_lively_queue
from tests.builders.lively import make_lively


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_every_page_is_whole(
    visits: Visits, transactional_db: None, theme: str, size: tuple[int, int]
) -> None:
    """Accessible, quiet, in words, and with all its columns; other states: test_every_state."""
    paths = OF_ANY_FLEET | of_things(Shown.of(make_lively()))
    visitor = visits(Role.ADMIN, size=size, theme=theme)
    found = {}
    for name, path in paths.items():
        visitor.open(path)
        found[name] = faults(visitor)
    told = [f"{where}: {fault}" for where, wrong in found.items() for fault in wrong]
    assert told == [], "\n".join(told)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{thermal_margin_c} are left", "a placeholder"),
        ("values {'power_w': 3.1}", "a structure of Python"),
        ("kept False", "a truth value of Python"),
        ("kept at 1.79534e+09", "an exponent"),
        ("takes inf", "no number"),
        ("8.0% is left", "a percentage without its space"),
        ("of the last 1 starts", "one of several"),
        ("short 16 GPU", "several of one"),
    ],
)
def test_what_a_person_cannot_read_is_found(text: str, kind: str) -> None:
    assert [found.partition(":")[0] for found in riddles(text)] == [kind]


def test_what_a_person_can_read_is_left_alone() -> None:
    text = (
        "oslo-a01-n8 GPU 3 · 21 GPUs, 1 GPU, 4.1 jobs · sha256:54eb7e10 · information"
        " · 8 % of the array 0-99%5"
    )
    assert riddles(text) == []


def test_the_empty_fleet_and_the_login_page_are_accessible(visits: Visits) -> None:
    visitor = visits()
    expect(visitor.page.locator("h1")).to_contain_text("No racks yet")
    visitor.check_accessible()
    visitor.context.clear_cookies()
    visitor.open("/login/")
    visitor.check_accessible()


def test_on_a_phone_rows_are_blocks_and_still_rows_to_a_screen_reader(
    visits: Visits, transactional_db: None
) -> None:
    make_lively_queue()
    page = visits(Role.OPERATOR, size=PHONE).open("/queue/")
    table = page.get_by_role("table")
    row = table.get_by_role("row").filter(has_text="llama-ft-12")
    why = row.get_by_role("cell").filter(has_text="needs 41.2 kW")
    expect(table.get_by_role("columnheader", name="why it waits")).to_have_count(1)
    expect(row.get_by_role("rowheader")).to_contain_text("llama-ft-12")
    expect(why).to_contain_text("FeedPowerHeadroom")
    title = why.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert title.startswith('"why it waits"')
    name, reason = row.get_by_role("rowheader").bounding_box(), why.bounding_box()
    assert name is not None
    assert reason is not None
    assert name["y"] < reason["y"]  # below it, and no more beside it
    assert name["x"] == reason["x"]


def test_from_the_heatmap_to_a_gpu_in_three_clicks(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    rack, node = small.racks["oslo/A01"], small.nodes["oslo-a01-n1"]
    page.locator(f'[data-rack="{rack.pk}"]').click()
    expect(page.locator("h1")).to_contain_text("rack A01")
    page.locator(f"#node-{node.pk} .node-name").click()
    expect(page).to_have_url(re.compile(rf"/nodes/{node.pk}/"))
    gpu = small.gpu(node.name, 2)
    page.locator(f'main a[href="/gpus/{gpu.pk}/"]').first.click()
    expect(page).to_have_url(re.compile(rf"/gpus/{gpu.pk}/"))


def test_the_theme_is_kept_from_page_to_page(visits: Visits, small: SmallFleet) -> None:
    page = visits(theme="light").page

    def ground() -> str:
        color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return color

    light = ground()
    switch = page.locator("#theme")
    switch.click()
    switch.click()
    expect(switch).to_have_attribute("aria-label", "Theme: dark")
    dark = ground()
    assert dark != light
    page.goto(page.url.rstrip("/") + "/agents/")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert ground() == dark
    page.locator("#theme").click()
    assert ground() == light


_KEYS = {
    "a": "/agents/",
    "t": "/throttle/",
    "l": "/lemons/",
    "i": "/incidents/",
    "c": "/conditions/",
    "s": "/restrictions/",
    "r": "/rules/",
    "q": "/queue/",
    "f": "/",
}


def test_keys_search_go_and_help(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for key, url in _KEYS.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(re.compile(re.escape(url) + "$"))
        page.wait_for_load_state()  # keys are heard from then on
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    # While something is typed, keys are letters.
    page.keyboard.type("g a?")
    expect(page.locator("#search")).to_have_value("g a?")
    page.locator("#search").fill("oslo-a01-n1")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/nodes/{small.nodes['oslo-a01-n1'].pk}/"))


def test_the_skip_link_comes_first(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_logging_out_ends_the_session(visits: Visits, small: SmallFleet) -> None:
    page = visits().page
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile("/login/"))
    page.goto(page.url.split("/login/")[0] + "/")
    expect(page).to_have_url(re.compile("/login/"))
