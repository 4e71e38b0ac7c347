"""A real browser on a real server: Debian's Chromium, driven by Playwright.

Every page that a test opens is watched: errors in the console, exceptions and violations of the
content security policy fail the test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)
from pytest_django.live_server_helper import LiveServer

from accounts.roles import Role
from telemetry import stream
from tests.browser.chromium import DESKTOP, FLAGS, executable
from tests.builders.accounts import PASSWORD, make_user
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.memory import forget_all

#: What does not come about by then hangs, ms. A poll may be lost to a panel that is being replaced,
#: the next one comes in 5 s, and other tests may have both cores.
PATIENCE_MS = 30_000
_WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_AXE: str = Axe().axe_script
#: Of what passes axe only counts the nodes: to describe each takes longer than all checks.
_VIOLATIONS = """
rules => axe.run({runOnly: rules, resultTypes: ["violations"]}).then(found => found.violations)
"""
#: Tables that are wider than what shows them, but for those that a script fills with readings.
_CUT_TABLES = """
() => [...document.querySelectorAll(".scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .flatMap((box) => [...box.querySelectorAll("table")])
  .map((table) => table.nextElementSibling?.querySelector("a")?.id ?? table.className)
"""
_WATCH_POLICY = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI + " " + event.sample));
"""


#: Is there until a page has loaded. What one does to a page before is not heard by its scripts, and
#: a click that leads to another page returns before that has come.
_MARK_LOADING = """
const mark = document.createElement("div");
mark.id = "still-loading";
mark.style.cssText = "position: fixed; width: 1px; height: 1px";
const put = () => document.documentElement?.append(mark);
new MutationObserver((_, watch) => { watch.disconnect(); put(); })
  .observe(document, {childList: true});
put();
addEventListener("load", () => mark.remove());
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave browser tests out where somebody asked for it; nothing else skips them."""
    if os.environ.get("HEADROOM_SKIP_BROWSER") != "1":
        return
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="HEADROOM_SKIP_BROWSER=1"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = executable()
    if path is None:
        pytest.fail(
            "no chromium: install Debian's package `chromium` (make test does), "
            "or set HEADROOM_SKIP_BROWSER=1",
            pytrace=False,
        )
    # Playwright runs a loop in this thread: Django would take our own queries for async ones.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(autouse=True)
def clean_stores(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Valkey, a process that knows nothing of the last test, and no worker."""
    monkeypatch.setattr("telemetry.tasks.write.delay", lambda shard: None)
    stream.connection().flushall()
    forget_all()
    yield
    stream.connection().flushall()
    forget_all()


@pytest.fixture
def small(transactional_db: None) -> SmallFleet:
    """Two sites of six racks, two nodes each, four GPUs each; all heard a moment ago."""
    made = small_fleet()
    made.report()
    return made


@dataclass
class Visitor:
    """Somebody who is logged in, in a window of their own."""

    context: BrowserContext
    server: str
    page: Page
    problems: list[str] = field(default_factory=list)
    #: what the browser may complain of meanwhile and later: part of its words
    expected: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a page and wait until it has loaded."""
        self.page.goto(self.server + path)
        return self.page

    def overflow_px(self) -> int:
        """Return how much wider than the window the page is."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width

    def cut_tables(self) -> list[str]:
        """Return the tables of which columns are out of sight, by the link to their CSV."""
        found: list[str] = self.page.evaluate(_CUT_TABLES)
        return found

    def inaccessible(self) -> list[str]:
        """Return what axe finds against WCAG A and AA, each with the first place."""
        self.page.evaluate(_AXE)
        found = self.page.evaluate(_VIOLATIONS, _WCAG)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]

    def complaints(self) -> list[str]:
        """Return what console and content security policy complained of since last asked."""
        violations: list[str] = self.page.evaluate("window.violations.splice(0)")
        told, self.problems[:] = [*self.problems, *violations], []
        return [each for each in told if not any(words in each for words in self.expected)]

    def check_accessible(self) -> None:
        """Fail where axe finds something against WCAG A or AA."""
        assert self.inaccessible() == []

    def check_quiet(self) -> None:
        """Fail where the console or the content security policy complained."""
        assert self.complaints() == []


Visits = Callable[..., Visitor]


@pytest.fixture
def visits(browser: Browser, live_server: LiveServer) -> Iterator[Visits]:
    """Makes visitors: ``visits(role, size=PHONE, theme="dark")``. Checks all of them at the end."""
    made: list[Visitor] = []

    def visit(
        role: Role = Role.VIEWER, *, size: tuple[int, int] = DESKTOP, theme: str = "light"
    ) -> Visitor:
        user = make_user(role)
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            # Else axe reads a color that is half-way between two.
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(_WATCH_POLICY)
        context.add_init_script(_MARK_LOADING)
        page = context.new_page()
        loading = page.locator("#still-loading")
        page.add_locator_handler(loading, lambda _: page.wait_for_load_state())
        visitor = Visitor(context, live_server.url, page)
        page.on("console", lambda message: note(visitor, message))
        page.on("pageerror", lambda error: visitor.problems.append(f"exception: {error}"))
        made.append(visitor)
        log_in(visitor, user.username)
        return visitor

    yield visit
    complaints = [visitor.complaints() for visitor in made]
    for visitor in made:
        # Polls that are under way would be cut off by the server's end and be reported; those of a
        # page that stays open would disturb all tests that come after.
        visitor.page.goto("about:blank")
        visitor.context.close()
    assert not any(complaints), complaints


def note(visitor: Visitor, message: ConsoleMessage) -> None:
    """Keep what the browser complains of."""
    if message.type in ("error", "warning"):
        visitor.problems.append(f"console {message.type}: {message.text}")


def log_in(visitor: Visitor, username: str) -> None:
    """Log in as a person does."""
    page = visitor.open("/login/")
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(visitor.server + "/")
