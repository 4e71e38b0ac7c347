"""The examples of the documents, run: Python sessions, and calls of ``headroom plan``.

A page is one session, from top to bottom. A ``console`` block may hold several commands, and each
prints exactly what stands under it.
"""

from __future__ import annotations

import doctest
import io
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from headroom.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
MODULE_PAGES = sorted((REPOSITORY / "docs" / "reference" / "physics").glob("*.md"))
PAGES = [
    *MODULE_PAGES,
    REPOSITORY / "docs" / "how-to" / "plan-a-fleet.md",
    REPOSITORY / "README.md",
]

_COMMAND = re.compile(r"^\$ headroom (plan(?:.*\\\n)*.*)\n?((?:(?!\$ ).*\n?)*)", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def blocks(page: Path, language: str) -> list[str]:
    """Return the contents of a page's fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def session(page: Path) -> doctest.DocTest:
    text = "\n".join(block for block in blocks(page, "python") if ">>>" in block)
    return doctest.DocTestParser().get_doctest(text, {}, name_of(page), str(page), 0)


def commands(page: Path) -> list[tuple[str, str]]:
    """Return the calls of ``headroom plan`` on a page, each with what is to be printed."""
    return [found for block in blocks(page, "console") for found in _COMMAND.findall(block)]


def calls() -> list[object]:
    return [
        pytest.param(command, expected, id=f"{name_of(page)}:{position}")
        for page in PAGES
        for position, (command, expected) in enumerate(commands(page))
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_session_answers_as_it_is_written(page: Path) -> None:
    told = io.StringIO()
    results = doctest.DocTestRunner(verbose=False).run(session(page), out=told.write)
    assert results.failed == 0, told.getvalue()


@pytest.mark.parametrize(("command", "expected"), calls())
def test_a_command_prints_what_stands_under_it(
    command: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(main, shlex.split(command.replace("\\\n", " ")))
    assert result.output.rstrip() == expected.rstrip()


@pytest.mark.parametrize("page", MODULE_PAGES, ids=name_of)
def test_every_page_of_a_module_has_an_example_of_each_kind(page: Path) -> None:
    assert commands(page)
    assert session(page).examples or page.stem == "index"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_of_a_console_block_is_left_out(page: Path) -> None:
    shown = sum(block.count("\n$ headroom plan") for block in blocks(page, "console"))
    shown += sum(block.startswith("$ headroom plan") for block in blocks(page, "console"))
    assert len(commands(page)) == shown
