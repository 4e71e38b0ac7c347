"""The Site conditions and Restrictions pages as people use them."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from accounts.roles import Role
from fleet import snapshot
from fleet.models import Rack
from policies.headroom import budgets, forecasts, live
from policies.headroom.conditions import claimed
from policies.headroom.inputs import Outlook
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet


def test_from_what_is_over_to_a_cap_that_mends_it(visits: Visits, small: SmallFleet) -> None:
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(budget_w=5000)
    snapshot.invalidate()
    page = visits(Role.OPERATOR).open("/conditions/")
    expect(page.locator("h1")).to_contain_text("At oslo one limit is exceeded")
    page.get_by_role("link", name="oslo", exact=True).click()
    expect(page.locator(".consequences li").first).to_contain_text("Rack oslo/A01 carries")
    page.get_by_role("link", name="Cap the GPUs of rack oslo/A01").click()
    # All is filled in but the end, which nobody else can choose.
    page.get_by_role("button", name="Restrict").click()
    expect(page).to_have_url(re.compile("/restrictions/new/"))
    page.get_by_label("Ends").select_option("3600")
    page.get_by_role("button", name="Restrict").click()
    expect(page.locator("h1")).to_contain_text(re.compile("in force, ends in (60|59) min"))
    row = Restriction.objects.get()
    assert (row.kind, row.scope_name) == ("power_cap_w", "oslo/A01")
    page.get_by_role("link", name="Lift").click()
    page.get_by_label("Reason").fill("the budget was wrong")
    page.get_by_role("button", name="Lift").click()
    expect(page.locator("h1")).to_contain_text("released by")


def test_what_is_held_appears_by_itself_and_is_approved(visits: Visits, small: SmallFleet) -> None:
    page = visits(Role.RESPONDER).open("/restrictions/")
    expect(page.locator("h1")).to_have_text("Nothing is restricted now")
    scope = Scope(ScopeKind.SITE, "oslo")
    ends = timezone.now() + timedelta(hours=1)
    wanted = Wanted(RestrictionKind.DRAIN, scope, None, "feed lost", "rule:loss", "oslo", ends)
    store.apply([wanted], now=timezone.now())
    expect(page.locator("h1")).to_contain_text("1 waits for a person")
    page.get_by_role("link", name="Approve drain on site oslo").click()
    expect(page.locator("main")).to_contain_text("on 48 GPUs")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("h1")).to_contain_text("drain on site oslo · in force")
    expect(page.get_by_role("link", name="Extend")).to_have_count(0)


def claim_that_a_rack_is_over(name: str) -> str:
    """Keep a claim for the time from 20 to 50 minutes from now; return it in words."""
    now, fleet = time.time(), snapshot.current()
    row = budgets.places(fleet)[ScopeKind.RACK].start + fleet.racks.index_by_path[name]
    known = Outlook.none(len(budgets.keys(fleet)))
    claims = known.claims
    claims.from_[row], claims.upto[row], claims.sure[row] = now + 1_200, now + 3_000, 0.83
    claims.made[row] = 1.0
    forecasts.keep(fleet, replace(known, at=now))
    return claimed(now, 1_200.0, 3_000.0, 0.83)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_what_is_claimed_to_be_exceeded_is_told_with_its_time(
    visits: Visits, small: SmallFleet, size: tuple[int, int]
) -> None:
    # A rack with 1 kW left, whose GPUs may draw more.
    load_w = live.current(time.time()).table(ScopeKind.RACK).row("oslo/A01")["power_load_w"]
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(budget_w=load_w + 1_000)
    snapshot.invalidate()
    live.invalidate()
    when = claim_that_a_rack_is_over("oslo/A01")
    for theme in ("light", "dark"):
        visitor = visits(Role.OPERATOR, size=size, theme=theme)
        page = visitor.open("/conditions/")
        expect(page.locator("h1")).to_contain_text(f"the first limit would be exceeded {when}")
        page = visitor.open("/conditions/oslo/")
        expect(page.locator(".consequences li").first).to_contain_text(
            f"Rack oslo/A01 would be over its budget of power {when}"
        )
        expect(page.locator("#racks-scroll")).to_contain_text(when)
        expect(page.locator("#conditions-panel")).to_contain_text(
            "Of 1 claim that a budget would be exceeded, 0 came true"
        )
        assert visitor.overflow_px() <= 0
        visitor.check_accessible()
