"""How soon pages can be used, in a real browser, under the demo.

A page can be used once its own scripts have run: when the browser has told of
``DOMContentLoaded``, from the start of the navigation. Plotly, which comes later, and readings,
which are asked for meanwhile, are not in it. The browser keeps what it may keep, as that of a
person does.
"""

from __future__ import annotations

import itertools
import time

from playwright.sync_api import Page, sync_playwright

from bench import report
from bench.stack import new_state_dir, running_on
from tests.browser.chromium import DESKTOP, FLAGS, executable
from tests.browser.screenshots import addresses
from tests.browser.signing_in import sign_in

#: Each page is opened so often; the first time fills the browser's cache and is not counted.
ROUNDS = 4
#: Until the demo has jobs, throttling and incidents.
_BUSY_AFTER_S = 90.0
_USABLE = 'performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd'


def interactive_ms() -> dict[str, list[float]]:
    """Return by page how long it took each time, ms, on a stack of its own with the demo."""
    with new_state_dir() as state_dir, running_on(state_dir) as stack, sync_playwright() as driver:
        time.sleep(_BUSY_AFTER_S)
        browser = driver.chromium.launch(executable_path=executable(), args=FLAGS)
        page = browser.new_page(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
        page.goto(f"{stack.url}/login/")
        sign_in(page, stack.url, state_dir / "admin-password")
        found = addresses(page, stack.url)
        rounds = [{name: _open(page, url) for name, url in found.items()} for _ in range(ROUNDS)]
        browser.close()
    return {name: [each[name] for each in rounds[1:]] for name in found}


def _open(page: Page, url: str) -> float:
    page.goto(url)
    return float(page.evaluate(_USABLE))


def figures() -> dict[str, float | int | str]:
    """Return the 95th percentile over all pages, how many those were, and the slowest."""
    times = interactive_ms()
    worst = max(times, key=lambda name: max(times[name]))
    return {
        "interactive_p95_ms": report.percentile(
            [*itertools.chain.from_iterable(times.values())], 0.95
        ),
        "interactive_pages": len(times),
        "interactive_worst": f"{worst}, {max(times[worst]):.0f} ms",
    }


NOTES = {"interactive_p95_ms": "all pages in Chromium under the demo; bar: 1,000"}
