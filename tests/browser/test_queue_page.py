"""The queue, a job and its fixes, as ML engineers and operators use them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from accounts.roles import Role
from admission.jobs.models import Job, Phase
from dashboard.views import queue
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import (
    CAPPED,
    MOVED,
    make_explanation,
    make_job,
    make_lively_queue,
    make_pending_status,
    note,
    put_up,
)


@pytest.fixture(autouse=True)
def explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap and another site would start each phase now."""

    def fixes(keys: list[str], budget_s: float) -> dict[str, object]:
        found = make_explanation("", CAPPED).counterfactuals[0]
        return dict.fromkeys(keys, found)

    monkeypatch.setattr("admission.cycle.live.fixes", fixes)
    monkeypatch.setattr(
        "admission.cycle.live.explain", lambda key: make_explanation(key, CAPPED, MOVED)
    )


def poll(page: Page, panel: str) -> None:
    """Have a panel ask now, as it does when its tab is shown again, and not in some seconds."""
    page.wait_for_load_state()  # a page that has just come listens by then
    page.evaluate(f"htmx.trigger('#{panel}', 'headroom:visible')")


def test_from_the_queue_to_a_fix_that_is_applied_by_keyboard(
    visits: Visits, small: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job()
    put_up({"llama-ft-12/train": make_pending_status(1)})
    visitor = visits(Role.OPERATOR)
    page = visitor.page
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator("h1")).to_contain_text("1 waiting, oldest 38 min: FeedPowerHeadroom")
    # Fixes come by themselves, a moment after the page.
    page.get_by_role("link", name="at 550 W per GPU (4 % slower)").click()
    expect(page).to_have_url(re.compile(r"/jobs/llama-ft-12/\?phase=train#fixes$"))
    expect(page.locator("h1")).to_contain_text("which has 36.8 kW: short 4.4 kW")
    cap = page.get_by_role("radio", name="at 550 W per GPU (4 % slower)")
    cap.focus()
    page.keyboard.press("Space")
    # Another cycle says something else: panels are swapped, what is chosen stays.
    monkeypatch.setattr("admission.cycle.live.explain", lambda key: make_explanation(key, CAPPED))
    put_up(
        {"other/train": make_pending_status(1), "llama-ft-12/train": make_pending_status(2)},
        cycle=8,
    )
    poll(page, "job-why")
    expect(page.locator("#job-why")).to_contain_text("position 2 of 2")
    poll(page, "fixes")
    expect(page.get_by_role("radio", name="at site bergen")).to_have_count(0)
    expect(cap).to_be_checked()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("llama-ft-12/train is amended")).to_be_visible()
    power = Job.objects.get().spec["phases"][0]["power"]
    assert power == {"lowest_cap_w": 550.0}
    visitor.check_accessible()


def test_the_list_moves_by_itself_and_what_is_typed_stays(
    visits: Visits, small: SmallFleet
) -> None:
    make_job()
    put_up({"llama-ft-12/train": make_pending_status(1)})
    page = visits().open("/queue/")
    search = (
        page.locator("#main").get_by_label("Job", exact=True).and_(page.get_by_role("searchbox"))
    )
    search.fill("whis")
    make_job("whisper")
    queue.shared.invalidate()
    poll(page, "queue-panel")
    expect(page.get_by_role("link", name="whisper/train")).to_be_visible()
    expect(search).to_have_value("whis")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"search=whis"))
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("#search")).to_have_value("")


def test_a_phase_of_the_graph_is_opened_by_keyboard(visits: Visits, small: SmallFleet) -> None:
    make_lively_queue()
    page = visits().open("/jobs/vit-sweep-3/")
    expect(page.locator("h1")).to_contain_text("phase train runs on 6 GPUs in oslo")
    page.locator("#phase-promote").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"phase=promote"))
    expect(page.locator("h1")).to_contain_text("promote waits for evaluate, package, features")
    expect(page.locator("#phase-promote")).to_have_attribute("aria-current", "true")


def test_a_job_is_held_on_a_phone_and_its_page_turns_when_it_begins(
    visits: Visits, small: SmallFleet
) -> None:
    job = make_job()
    put_up({"llama-ft-12/train": make_pending_status(1)})
    visitor = visits(Role.OPERATOR, size=PHONE)
    page = visitor.open("/jobs/llama-ft-12/")
    page.get_by_label("Hold: nothing of it that waits begins. Why").fill("wrong data")
    page.get_by_role("button", name="Hold").click()
    expect(page.locator("h1")).to_contain_text("wrong data")
    page.get_by_role("button", name="Let it go on").click()
    expect(page.get_by_text("llama-ft-12 is in the queue again")).to_be_visible()
    assert visitor.overflow_px() <= 0
    visitor.check_accessible()
    note(job, "dispatched", "Attempt 1 of train")
    Phase.objects.update(state="running")
    poll(page, "job-why")
    expect(page.locator("#job-why")).to_have_count(0)
    expect(page.locator("h1")).to_contain_text("llama-ft-12 runs on 8 GPUs")
