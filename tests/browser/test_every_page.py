"""What holds for every page: accessible, quiet, on a phone, in light and dark, by keyboard."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from accounts.roles import Role
from policies.incidents.models import Incident
from policies.playbooks.models import PlaybookRun
from policies.restrictions.models import Restriction
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.conftest import Visits
from tests.browser.wording import read, riddles
from tests.builders.fleet import SmallFleet
from tests.builders.lively import make_lively

PAGES = [
    "fleet", "heat", "conditions", "conditions-site", "restrictions", "restrictions-history",
    "restrictions-new", "restriction",
    "incidents", "incident", "run", "rules", "rule", "rule-edit", "playbooks", "playbook",
    "queue", "queue-running", "queue-ended", "job", "job-running", "job-later", "classes",
    "class", "class-edit", "policy", "submit",
    "slos", "slo", "what-if", "what-if-asked", "what-if-link", "energy", "goodput", "calendar",
    "rollouts", "rollout", "compared",
    "domain", "zone", "link", "project",
    "rack", "node", "gpu", "throttle", "lemons", "failures", "agents", "search", "account",
]  # fmt: skip


def path_of(name: str, small: SmallFleet) -> str:
    node = small.nodes["oslo-a01-n1"]
    return {
        "fleet": "/",
        "heat": "/?metric=heat&site=oslo",
        "rack": f"/racks/{small.racks['oslo/A01'].pk}/",
        "node": f"/nodes/{node.pk}/",
        "gpu": f"/gpus/{small.gpu(node.name).pk}/",
        "conditions": "/conditions/",
        "conditions-site": "/conditions/oslo/",
        "restrictions": "/restrictions/",
        "restrictions-history": "/restrictions/?show=history",
        "restrictions-new": "/restrictions/new/",
        "restriction": f"/restrictions/{newest_restriction()}/",
        "incidents": "/incidents/",
        "incident": f"/incidents/{Incident.objects.latest('pk').pk}/",
        "run": f"/runs/{PlaybookRun.objects.latest('pk').pk}/",
        "rules": "/rules/",
        "rule": "/rules/rack-hot/?old=1&new=2",
        "rule-edit": "/rules/rack-hot/edit/",
        "playbooks": "/playbooks/",
        "playbook": "/playbooks/cool-down/?kind=rack&scope=oslo/A01",
        "queue": "/queue/",
        "queue-running": "/queue/?state=running",
        "queue-ended": "/queue/?state=ended",
        "job": "/jobs/llama-ft-12/",
        "job-running": "/jobs/vit-sweep-3/",
        "job-later": "/jobs/vit-sweep-3/?phase=promote",
        "classes": "/classes/",
        "class": "/documents/classes/checkpoint-heavy/",
        "class-edit": "/documents/classes/checkpoint-heavy/edit/",
        "policy": "/documents/admission-policies/headroom/",
        "submit": "/jobs/_new/",
        "energy": "/energy/",
        "goodput": "/goodput/",
        "calendar": "/calendar/",
        "rollouts": "/rollouts/",
        "rollout": "/rollouts/driver/",
        "compared": "/jobs/vit-sweep-3/compared/?with=vit-sweep-3/train/1",
        "slos": "/slos/",
        "slo": "/slos/training-begins/",
        "what-if": "/what-if/",
        "what-if-asked": "/what-if/?kind=zone&name=oslo/hall-1",
        "what-if-link": "/what-if/?kind=link&name=oslo/A01/uplink",
        "domain": "/places/power_domain/oslo/feed-a1/",
        "zone": "/places/zone/oslo/hall-1/",
        "link": "/places/link/oslo/A01/uplink/",
        "project": "/projects/vision/",
        "throttle": "/throttle/",
        "lemons": "/lemons/",
        "failures": "/failures/?by=rack",
        "agents": "/agents/",
        "search": "/search?q=oslo-",
        "account": "/account/",
    }[name]


def newest_restriction() -> int:
    return Restriction.objects.in_force(timezone.now()).latest("pk").pk


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param(DESKTOP, "light", id="desktop-light"),
        # Its colors are those of the phone, its places those of the light one.
        pytest.param(DESKTOP, "dark", id="desktop-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "dark", id="phone-dark"),
    ],
)
def test_no_page_breaks_wcag_the_policy_or_the_window(
    visits: Visits, transactional_db: None, theme: str, size: tuple[int, int]
) -> None:
    small = make_lively()
    visitor = visits(Role.OPERATOR, size=size, theme=theme)
    for name in PAGES:
        page = visitor.open(path_of(name, small))
        if page.locator(".chart").count():
            page.wait_for_load_state("networkidle")  # its data is there, and drawn
        visitor.check_accessible()
        assert visitor.overflow_px() <= 0, name
        assert riddles(read(page)) == [], name
        visitor.check_quiet()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{thermal_margin_c} are left", "a placeholder"),
        ("values {'power_w': 3.1}", "a structure of Python"),
        ("kept False", "a truth value of Python"),
        ("kept at 1.79534e+09", "an exponent"),
        ("takes inf", "no number"),
        ("of the last 1 starts", "one of several"),
        ("short 16 GPU", "several of one"),
    ],
)
def test_what_a_person_cannot_read_is_found(text: str, kind: str) -> None:
    assert [found.partition(":")[0] for found in riddles(text)] == [kind]


def test_what_a_person_can_read_is_left_alone() -> None:
    text = "oslo-a01-n8 GPU 3 · 21 GPUs, 1 GPU, 4.1 jobs · sha256:54eb7e10 · information"
    assert riddles(text) == []


def test_the_empty_fleet_and_the_login_page_are_accessible(visits: Visits) -> None:
    visitor = visits()
    expect(visitor.page.locator("h1")).to_contain_text("No racks yet")
    visitor.check_accessible()
    visitor.context.clear_cookies()
    visitor.open("/login/")
    visitor.check_accessible()


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
