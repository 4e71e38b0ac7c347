"""The pages of incidents and their runs, as people on call use them."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from accounts.roles import Role
from policies.incidents import actions
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.builders.policies import make_playbook, make_run, open_incident


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)


def test_an_incident_is_taken_and_its_step_approved_on_a_phone(
    visits: Visits, small: SmallFleet
) -> None:
    incident = open_incident("rack oslo/A01", "rack oslo/A02")
    make_run(make_playbook(), incident)
    visitor = visits(Role.OPERATOR, size=PHONE)
    page = visitor.open("/incidents/")
    page.get_by_role("link", name=incident.number, exact=True).click()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("h1")).to_contain_text("owner: you")
    expect(page.locator(".left")).to_have_text(re.compile(r"^1[0-9]:\d\d left$"))
    note = page.get_by_label("Note")
    note.fill("fans are on order")
    # Somebody else does something: the panel is swapped, and what was typed stays.
    actions.comment(make_user(Role.OPERATOR), incident, "Fan 3 is dead", now=timezone.now())
    expect(page.locator(".said", has_text="Fan 3 is dead")).to_be_visible()
    expect(note).to_have_value("fans are on order")
    page.get_by_role("button", name="Approve step may-drain").click()
    expect(page.get_by_text("You have approved step may-drain")).to_be_visible()
    expect(page.locator(".said", has_text="fans are on order")).to_be_visible()
    visitor.check_accessible()
    assert visitor.overflow_px() <= 0


def test_one_firing_is_silenced_and_enter_in_a_field_does_nothing_else(
    visits: Visits, small: SmallFleet
) -> None:
    incident = open_incident("rack oslo/A01", "rack oslo/A02")
    visitor = visits(Role.RESPONDER)
    page = visitor.open(f"/incidents/{incident.pk}/")
    page.get_by_label("Silence rack oslo/A01", exact=True).click()
    page.get_by_label("Why").first.fill("known")
    page.keyboard.press("Enter")
    visitor.check_accessible()
    incident.refresh_from_db()
    assert incident.state == "open"
    page.get_by_role("button", name="Silence rack oslo/A01 for these hours").click()
    expect(page.get_by_text("Nobody is told of rack-hot rack oslo/A01")).to_be_visible()
    expect(page.get_by_role("button", name="Let rack oslo/A01 be heard")).to_be_visible()


def test_what_happened_is_drawn_and_stays_while_the_rest_is_brought_up_to_date(
    visits: Visits, small: SmallFleet
) -> None:
    incident = open_incident("rack oslo/A01")
    page = visits(Role.OPERATOR).open(f"/incidents/{incident.pk}/")
    words = page.locator("#timeline .annotation-text")
    expect(words.get_by_text("Power of rack oslo/A01, W", exact=True)).to_have_count(1)
    expect(words.get_by_text("rack oslo/A01", exact=True)).to_have_count(1)
    actions.comment(make_user(Role.OPERATOR), incident, "Fan 3 is dead", now=timezone.now())
    expect(page.locator(".said", has_text="Fan 3 is dead")).to_be_visible()
    expect(words.get_by_text("people", exact=True)).to_have_count(1)
