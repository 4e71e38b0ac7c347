"""Signs the first admin of a running server in, in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from bench.stack import Stack
from tests.browser.chromium import FLAGS, executable

__all__ = ["sign_in", "text_of_page"]


def sign_in(page: Page, url: str, password_file: Path) -> None:
    """Fill in the form that ``page`` shows, and wait for the first page at ``url``."""
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", password_file.read_text().strip())
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/")


def text_of_page(stack: Stack, path: str) -> str:
    """Return what a person reads on a page, in a real browser, signed in as the first admin."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        page = browser.new_page()
        page.goto(f"{stack.url}/login/")
        sign_in(page, stack.url, stack.state_dir / "admin-password")
        page.goto(f"{stack.url}{path}")
        page.wait_for_selector("main")
        text = page.inner_text("main")
        browser.close()
    return text
