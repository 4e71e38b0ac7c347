"""Every page of the demo while it is at work, read as a person reads it."""

from __future__ import annotations

import re
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from bench.stack import new_state_dir, running_on
from tests.browser.signing_in import sign_in
from tests.browser.wording import read, riddles

#: Until jobs run, wait and were refused, rules have fired and restrictions are in force, s.
_BUSY_AFTER_S = 180.0
#: So many pages of a kind are read, and so many in all.
_OF_A_KIND, _MOST = 3, 150
_LEFT_OUT = ("/api/", "/static/", "/admin/", "/logout/", "/metrics")


@pytest.mark.slow
def test_no_page_of_the_busy_demo_speaks_in_code(browser: Browser) -> None:
    with new_state_dir() as state_dir, running_on(state_dir) as stack:
        page = browser.new_page()
        page.goto(f"{stack.url}/login/")
        sign_in(page, stack.url, stack.state_dir / "admin-password")
        time.sleep(_BUSY_AFTER_S)
        found = {path: riddles(text) for path, text in walk(page, stack.url).items()}
        page.close()
    assert len(found) > _MOST / 3
    assert {path: words for path, words in found.items() if words} == {}


def walk(page: Page, url: str) -> dict[str, str]:
    """Return the prose of pages that links lead to from the first one, a few of each kind."""
    kinds: Counter[str] = Counter()
    texts: dict[str, str] = {}
    ahead = ["/"]
    while ahead and len(texts) < _MOST:
        path = ahead.pop(0)
        kind = re.sub(r"/[^/]*\d[^/]*", "/N", urlsplit(path).path)
        if path in texts or kinds[kind] >= _OF_A_KIND:
            continue
        kinds[kind] += 1
        answer = page.goto(url + path)
        assert answer is not None
        assert answer.status < 400, path
        page.wait_for_load_state("load")
        texts[path] = read(page)
        links: list[str] = page.eval_on_selector_all(
            "a[href^='/']", "links => links.map(link => link.getAttribute('href').split('#')[0])"
        )
        # A file is no page: the browser would keep it, and stay where it is.
        pages = [link for link in links if "format=" not in link]
        ahead += [link for link in pages if not link.startswith(_LEFT_OUT)]
    return texts
