"""The walk of a job from its specification to its process, as the page about it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs/explanation/the-walk-of-a-job.md"
#: The most modules that may carry a job.
MOST = 18
#: Where no import leads on: both sides name a table, a message, a file or a URL.
BORDERS = {
    "admission/jobs/api/views.py": "job-list",  # the middleware resolves it
    "admission/cycle/loop.py": None,  # the clock begins it
    "admission/cycle/live.py": "admission.jobs.models",
    "admission/executors/node_queue.py": "admission.executors.registry",
    "admission/executors/views.py": None,  # a machine begins it
    "headroom/work/runner.py": "headroom.work.contract",
    "headroom/work/shim.py": "shim.py",
}
#: Where modules would be that carry a job and stand in no row.
ROOMS = ("admission/cycle", "admission/executors", "admission/jobs", "headroom/work")


def walk() -> list[str]:
    """Return the modules of the first table of the page."""
    table = PAGE.read_text().partition("| module |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+\.py)` \|", table, re.MULTILINE)


def names(path: str) -> set[str]:
    """Return the modules that a module imports, and its texts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((REPOSITORY / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def as_module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_a_job_is_carried_by_few_modules() -> None:
    assert len(set(walk())) == len(walk()) <= MOST


@pytest.mark.parametrize("path", walk()[1:])
def test_each_of_them_is_reached_from_one_before_it(path: str) -> None:
    before = walk()[: walk().index(path)]
    by_import = any(as_module(path) in names(each) for each in before)
    border = BORDERS.get(path, "")
    by_border = border is None or (border != "" and any(border in names(each) for each in before))
    assert by_import or by_border


def test_no_other_module_reads_the_command_of_a_job() -> None:
    carrying = {
        str(path.relative_to(REPOSITORY))
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*.py")
        if "migrations" not in path.parts and _reads_command(path)
    }
    # What others may see of a job is without its command: the serializer leaves it out. That of a
    # terminal in it is another one.
    others = {"admission/jobs/api/serializers.py", "headroom/work/terminal.py"}
    assert carrying - others <= set(walk())
    assert "headroom/work/shim.py" in carrying


def _reads_command(path: Path) -> bool:
    """Say whether a module has ``x.command`` or the text "command" in it."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "command")
        or (isinstance(node, ast.Constant) and node.value == "command")
        for node in ast.walk(ast.parse(path.read_text()))
    )
