"""The Agents page as a person uses it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from accounts.roles import Role
from telemetry.models import Agent
from tests.browser.conftest import Visits
from tests.builders.agents import make_agent
from tests.builders.fleet import SmallFleet


def test_an_agent_comes_alive_by_itself(visits: Visits, small: SmallFleet) -> None:
    Agent.objects.update(last_seen_at=None)
    page = visits().open("/agents/")
    expect(page.locator("h1")).to_have_text("1 agent: 0 live, none stale, 1 never heard")
    small.report()
    expect(page.locator("h1")).to_have_text("1 agent: 1 live, none stale")


def test_an_operator_rotates_and_revokes_a_token(visits: Visits, small: SmallFleet) -> None:
    visitor = visits(Role.OPERATOR)
    page = visitor.open("/agents/")
    page.get_by_role("link", name="Rotate the token of small-fleet").click()
    visitor.check_accessible()
    page.get_by_role("button", name="Make a new token").click()
    expect(page.locator(".secret")).to_have_text(re.compile(r"^hra_[\w-]{43}$"))
    visitor.check_accessible()
    page.get_by_role("link", name="Done, I have it").click()
    page.get_by_role("link", name="Revoke the token of small-fleet").click()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("The token of small-fleet is revoked.")).to_be_visible()
    expect(page.locator("h1")).to_contain_text("1 revoked")


def test_agents_are_found_by_state_and_name(visits: Visits, small: SmallFleet) -> None:
    make_agent("another")
    page = visits().open("/agents/")
    page.get_by_role("link", name="never heard 1").click()
    expect(page).to_have_url(re.compile(r"\?state=never$"))
    expect(page.locator("tbody th")).to_have_text(["another"])
    page.get_by_label("Agent, node or site").fill("small")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile(r"search=small&state=never"))
    expect(page.get_by_text("No agent is never heard.")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody th")).to_have_count(2)
