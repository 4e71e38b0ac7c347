"""The pages of rules, as those who write and review them use them."""

from __future__ import annotations

from playwright.sync_api import expect

from accounts.roles import Role
from policies.rules.machine import Phase
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet
from tests.builders.policies import make_replay, make_rule, rule_text, set_phases


def test_a_rule_is_written_and_its_faults_shown_while_typing(
    visits: Visits, small: SmallFleet
) -> None:
    visitor = visits(Role.OPERATOR)
    page = visitor.open("/rules/")
    page.get_by_role("link", name="Write a rule").click()
    text = page.get_by_label("The rule, in YAML")
    text.fill(rule_text().replace("hottest_c > 80.0", "hottest_x > 80.0"))
    place = page.get_by_role("link", name="line 6, column 7")
    expect(place).to_be_visible()
    expect(page.locator("#gutter .is-wrong")).to_have_text("✗ 6")
    visitor.check_accessible()
    place.click()
    expect(text).to_be_focused()
    at = page.evaluate("document.getElementById('text').selectionStart")
    assert text.input_value()[at:].startswith("hottest_x")
    text.fill(rule_text())
    expect(page.get_by_text("It can be used: of each rack")).to_be_visible()
    page.get_by_role("button", name="Keep as a draft").click()
    expect(page.locator("h1")).to_contain_text("rack-hot v1, draft")
    expect(page.get_by_text("you wrote it: somebody else has to let it count")).to_be_visible()


def test_a_reviewer_compares_replays_and_promotes(visits: Visits, small: SmallFleet) -> None:
    active = make_rule()
    make_replay(make_rule(text=rule_text(above=85.0), to="draft"))
    visitor = visits(Role.OPERATOR)
    page = visitor.open("/rules/rack-hot/")
    expect(page.get_by_role("heading", name="From v1 to v2")).to_be_visible()
    expect(page.get_by_role("img", name="v2, replayed: fired 2 times")).to_be_visible()
    visitor.check_accessible()
    set_phases(active, {"oslo/A01": Phase.FIRING})
    expect(page.locator("h1")).to_contain_text("fires on 1 scope")
    page.get_by_role("button", name="Make v2 active").click()
    expect(page.get_by_text("rack-hot v2 is active now")).to_be_visible()
    expect(page.locator("h1")).to_contain_text("rack-hot v2, active")
