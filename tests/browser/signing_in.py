"""Signs the first admin of a running server in, in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

__all__ = ["sign_in"]


def sign_in(page: Page, url: str, password_file: Path) -> None:
    """Fill in the form that ``page`` shows, and wait for the first page at ``url``."""
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", password_file.read_text().strip())
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/")
