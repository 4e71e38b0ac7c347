"""Meanings of terms: by pointer and keyboard, accessible."""

from __future__ import annotations

from playwright.sync_api import expect

from accounts.roles import Role
from dashboard.glossary import meaning as meaning_of
from tests.browser.conftest import Visits
from tests.builders.lively import make_lively


def test_a_term_says_what_it_means_by_pointer_and_keyboard(
    visits: Visits, transactional_db: None
) -> None:
    make_lively()
    visitor = visits(Role.OPERATOR)
    page = visitor.open("/conditions/")
    term = page.locator("th .term", has_text="committed").first
    meaning = page.locator(f"#{term.get_attribute('popovertarget')}")
    expect(meaning).to_be_hidden()
    expect(term).to_have_accessible_description(meaning_of("committed load"))

    term.hover()
    expect(meaning).to_be_visible()
    box, at = meaning.bounding_box(), term.bounding_box()
    assert box is not None
    assert at is not None
    assert 0 <= box["x"] <= page.viewport_size["width"] - box["width"]  # type: ignore[index]
    assert abs(box["y"] - at["y"] - at["height"]) < 24
    meaning.hover()
    expect(meaning).to_be_visible()
    page.mouse.move(5, 5)
    expect(meaning).to_be_hidden()

    page.keyboard.press("Tab")
    term.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(term).to_be_focused()
    expect(meaning).to_be_visible()
    visitor.check_accessible()
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()
    visitor.check_quiet()
