"""The Site conditions and Restrictions pages as people use them."""

from __future__ import annotations

import re
from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import expect

from accounts.roles import Role
from fleet import snapshot
from fleet.models import Rack
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
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
    expect(page.locator("h1")).to_contain_text("in force, ends in 60 min")
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
    expect(page.locator("h1")).to_contain_text("1 waits for a person", timeout=10_000)
    page.get_by_role("link", name="Approve drain on site oslo").click()
    expect(page.locator("main")).to_contain_text("on 48 GPUs")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("h1")).to_contain_text("drain on site oslo · in force")
    expect(page.get_by_role("link", name="Extend")).to_have_count(0)
