"""The report of a matrix in a real browser: a file on disk, without any server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from lab.matrix.report import html
from lab.matrix.report.compare import compare, compared_html
from lab.matrix.result import MatrixResult, SubjectKind, Verdict, make_result
from tests.browser.chromium import DESKTOP, PHONE
from tests.builders.matrix import make_cell, make_matrix

_WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

Opens = Callable[..., Page]


@pytest.fixture
def opens(browser: Browser, tmp_path: Path) -> Iterator[Opens]:
    """Opens a document as a file. At the end nothing may have been complained of."""
    problems: list[str] = []
    contexts = []

    def open_page(text: str, *, size: tuple[int, int] = DESKTOP, theme: str = "light") -> Page:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def small_matrix() -> MatrixResult:
    """A cell of each verdict: a page of every kind of part, which is looked at quickly."""
    cells = [
        make_cell("normal"),
        make_cell("severe-thermal", over=0.06),
        make_cell("artifact-loss", verdict=Verdict.NOT_RUN),
        make_cell("slow-clocks", verdict=Verdict.ERROR),
    ]
    return make_result(subject="v1", kind=SubjectKind.POLICY, at="2026-11-20T20:50Z", cells=cells)


def check(page: Page) -> None:
    found = Axe().run(page, options={"runOnly": _WCAG}).response["violations"]
    assert not [(v["id"], v["nodes"][0]["html"][:200]) for v in found]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        (DESKTOP, "light"),
        (PHONE, "dark"),
        pytest.param(DESKTOP, "dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", marks=pytest.mark.slow),
    ],
)
def test_it_is_accessible_and_fits_the_window(
    opens: Opens, size: tuple[int, int], theme: str
) -> None:
    check(opens(html(small_matrix()), size=size, theme=theme))


@pytest.mark.slow
def test_a_comparison_is_accessible_and_fits_a_phone(opens: Opens) -> None:
    comparison = compare(make_matrix(), make_matrix(over=0.0))
    check(opens(compared_html(comparison), size=PHONE))


def test_keys_lead_to_what_did_not_pass_and_through_the_matrix(opens: Opens) -> None:
    page = opens(html(make_matrix()))
    page.keyboard.press("n")
    page.keyboard.press("n")
    focused = "document.activeElement.closest('details')?.id"
    # Cells 6 and 8 failed, 13 and 14 were not run.
    assert page.evaluate(focused) == "cell-8"
    assert page.locator("#cell-8").get_attribute("open") is not None
    page.keyboard.press("p")
    assert page.evaluate(focused) == "cell-6"
    page.keyboard.press("m")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.hash") == "#cell-4"
    page.keyboard.press("Enter")
    # Its scenario was closed, since all of it passed: it opens, and then has the focus.
    page.wait_for_function(f"{focused} === 'cell-4'")
    assert page.locator("#cell-4 .checks").is_visible()


@pytest.mark.slow
def test_the_filter_leaves_only_what_did_not_pass(opens: Opens) -> None:
    page = opens(html(make_matrix()))
    rows = page.locator(".matrix tbody tr:visible")
    assert rows.count() == 6
    page.keyboard.press("f")
    assert rows.count() == 2
    assert page.locator("details.scenario:visible").count() == 2
    page.locator("#only-bad").click()
    assert rows.count() == 6


@pytest.mark.slow
def test_the_theme_follows_the_system_until_it_is_chosen(opens: Opens) -> None:
    page = opens(html(make_matrix()), theme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.keyboard.press("t")
    assert page.evaluate(background) != dark
    page.keyboard.press("t")
    assert page.evaluate(background) == dark
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('#theme')).display") == "none"


def test_a_plot_tells_its_values_by_pointer_and_by_key(opens: Opens) -> None:
    page = opens(html(make_matrix()))
    plot = page.locator("#cell-6 .plot").first
    plot.focus()
    readout = plot.locator(".readout")
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("at 0:00: ")
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("at 0:36: ")
    box = plot.locator(".plot-art").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
    # A quarter of an hour: the fault begins, and the power is over its budget of 86 kW.
    said = readout.inner_text()
    assert said.startswith("at 15:0")
    assert float(said.split()[-2]) > 86.0
    page.mouse.move(5, 5)
    assert readout.inner_text() == ""
