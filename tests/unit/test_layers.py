"""Imports point one way, as docs/explanation/architecture.md draws it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: What each room may import of the others. A dotted name opens that module alone. A part of a room
#: that stands here may import what is beside it, and the rest of the room may not.
MAY_IMPORT: dict[str, set[str]] = {
    "physics": set(),
    "headroom": set(),
    "accounts": {"headroom.contracts", "headroom.numbers"},
    "fleet": {"physics", "headroom.contracts", "accounts"},
    "telemetry": {
        "physics",
        "headroom.contracts",
        "headroom.dcgm",
        "headroom.disk",
        "headroom.layouts",
        "headroom.places",
        "headroom.traffic",
        "accounts",
        "fleet",
    },
    "policies": {
        "physics",
        "headroom.contracts",
        "headroom.documents",
        "headroom.numbers",
        "headroom.traffic",
        "accounts",
        "fleet",
        "telemetry",
    },
    "admission": {
        "physics",
        "headroom.contracts",
        "headroom.documents",
        "headroom.jobs",
        "headroom.numbers",
        "headroom.schedulers",
        "headroom.traffic",
        "headroom.work.contract",
        "accounts",
        "fleet",
        "telemetry",
        "policies",
    },
    "dashboard": {
        "physics",
        "headroom.contracts",
        "headroom.documents",
        "headroom.jobs",
        "headroom.numbers",
        "accounts",
        "fleet",
        "telemetry",
        "policies",
        "admission",
    },
    "lab": {"physics", "headroom"},
    "lab/approaches": {
        "physics",
        "headroom",
        "admission.core",
        "policies.restrictions.strictest",
    },
    "lab/curtailing": {
        "physics",
        "headroom",
        "admission.core",
        "policies.restrictions.kinds",
        "policies.scopes",
    },
    "lab/forecasts": {
        "physics",
        "headroom",
        "policies.headroom.claims",
        "policies.headroom.outlook",
        "policies.headroom.trend",
    },
    "lab/matrix": {"headroom"},
    "lab/scenarios": {
        "physics",
        "headroom",
        "admission.core",
        "policies.playbooks.document",
        "policies.playbooks.parse",
        "policies.rules.document",
    },
    "lab/traces": {
        "physics",
        "headroom",
        "admission.core",
        "policies.restrictions.kinds",
    },
    "lab/world": {
        "physics",
        "headroom",
        "fleet.tables",
        "telemetry.lemons.evidence",
        "telemetry.lemons.find",
        "telemetry.lemons.rules",
        "telemetry.live_frame",
        "policies.controller",
        "policies.firings",
        "policies.headroom.evaluate",
        "policies.headroom.reach",
        "policies.headroom.hosts",
        "policies.headroom.inputs",
        "policies.headroom.past",
        "policies.leases.book",
        "policies.leases.memory",
        "policies.limiting",
        "policies.playbooks.builtin",
        "policies.playbooks.document",
        "policies.playbooks.machine",
        "policies.playbooks.parse",
        "policies.playbooks.performing",
        "policies.playbooks.pursuit",
        "policies.playbooks.view",
        "policies.restrictions.book",
        "policies.restrictions.breakers",
        "policies.restrictions.kinds",
        "policies.restrictions.memory",
        "policies.restrictions.strictest",
        "policies.rules.builtin",
        "policies.rules.document",
        "policies.rules.effects",
        "policies.rules.engine",
        "policies.rules.modes",
        "policies.rules.places",
        "policies.scopes",
        "admission.core",
    },
}
ROOMS = {room for room in MAY_IMPORT if "/" not in room} | {"config", "tests", "bench"}
#: Only the server has these.
SERVER_ONLY = {"django", "rest_framework", "celery", "psycopg", "redis"}
#: What one module outside of it may import all the same: parts of runs go to workers by Celery.
ALSO = {"lab/spread/broker.py": {"celery", "redis"}}


@dataclass(frozen=True)
class Import:
    """One statement that imports, wherever it stands: in functions and for types alone, too."""

    line: int
    #: the module of "from module import names"; empty in "import names"
    module: str
    names: tuple[str, ...]
    is_relative: bool
    in_function: bool

    @property
    def dotted(self) -> set[str]:
        """The dotted names that it imports, of modules and of what is in them."""
        if not self.module:
            return set(self.names)
        return {self.module} | {f"{self.module}.{name}" for name in self.names}


@cache
def statements_of(path: Path) -> tuple[Import, ...]:
    """Return all imports of a module."""
    return tuple(_found(ast.parse(path.read_text()), in_function=False))


def _found(node: ast.AST, *, in_function: bool) -> Iterator[Import]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Import | ast.ImportFrom):
            yield Import(
                line=each.lineno,
                module=getattr(each, "module", None) or "",
                names=tuple(alias.name for alias in each.names),
                is_relative=getattr(each, "level", 0) > 0,
                in_function=in_function,
            )
        elif isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case):
            inside = in_function or isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _found(each, in_function=inside)


def imports_of(path: Path) -> set[str]:
    """Return the dotted names that a module imports."""
    return {name for each in statements_of(path) for name in each.dotted}


def room_of(name: str) -> str:
    return name.partition(".")[0]


def files_of(room: str) -> list[Path]:
    """Return the modules of a room, without those of its parts that have rules of their own."""
    parts = [REPOSITORY / part for part in MAY_IMPORT if part.startswith(f"{room}/")]
    return [
        path
        for path in sorted((REPOSITORY / room).rglob("*.py"))
        if not any(path.is_relative_to(part) for part in parts)
    ]


def is_allowed(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_is_below_it(room: str) -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in files_of(room)
        for name in sorted(imports_of(path))
        if room_of(name) in ROOMS - {room.partition("/")[0]}
        and not is_allowed(name, MAY_IMPORT[room])
        # "from headroom import contracts" names the package first.
        and not any(each.startswith(f"{name}.") for each in MAY_IMPORT[room])
    ]
    assert not wrong


@pytest.mark.parametrize(("part", "other"), [("executors", "jobs"), ("jobs", "executors")])
def test_jobs_and_executors_know_nothing_of_each_other(part: str, other: str) -> None:
    """The cycle stands between them: it dispatches, delivers stops, and writes down what ended."""
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in sorted((REPOSITORY / "admission" / part).rglob("*.py"))
        for name in sorted(imports_of(path))
        if name.startswith(f"admission.{other}")
    ]
    assert not wrong


@pytest.mark.parametrize("room", ["physics", "headroom", "lab"])
def test_what_runs_outside_the_server_needs_nothing_of_it(room: str) -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in sorted((REPOSITORY / room).rglob("*.py"))
        for name in sorted(imports_of(path))
        if room_of(name) in SERVER_ONLY - ALSO.get(f"{path.relative_to(REPOSITORY)}", set())
    ]
    assert not wrong


@pytest.mark.parametrize("library", ["numpy", "scipy", "pint"])
def test_an_agent_needs_no_library_of_the_laws(library: str) -> None:
    needing = [
        path.relative_to(REPOSITORY)
        for path in files_of("headroom")
        if library in map(room_of, imports_of(path))
    ]
    # Checkpoints are cut by arrays: an extra of its own, which no agent has.
    assert [path for path in needing if path.parts[1] != "checkpoints"] == []


def test_nothing_imports_the_lab_but_for_the_schema_of_scenarios() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for room in ROOMS - {"lab", "tests", "bench"}
        for path in sorted((REPOSITORY / room).rglob("*.py"))
        for name in sorted(imports_of(path))
        if room_of(name) == "lab" and not name.startswith("lab.matrix.schema")
    ]
    assert not wrong


def _modules() -> dict[str, Path]:
    """Return the modules of the whole tree by their names, without tests and migrations."""
    folders = sorted(ROOMS - {"tests"} | {"examples"})
    paths = [path for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
        if "migrations" not in path.parts
    }


def _arrows(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which modules each imports. "from a import b" is b where that is a module, else a."""
    return {
        name: {
            inner if inner in modules else each.module
            for each in statements_of(path)
            for inner in (f"{each.module}.{name}".lstrip(".") for name in each.names)
            if inner in modules or each.module in modules
        }
        for name, path in modules.items()
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(_arrows(_modules())).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_nothing_is_imported_by_a_relative_name() -> None:
    """The tests here would not see it."""
    paths = _modules().values()
    assert [path for path in paths if any(each.is_relative for each in statements_of(path))] == []


#: The first lines, or a comment of the module, that speak of imports.
_MODULE_SAYS_WHY = re.compile(r'(?i)(\A"""[^"]*|^#[^\n]*)\bimport(s|ed)\b', re.M)


def _says_why(lines: list[str], number: int) -> bool:
    """Say whether a comment stands on the line, or above the imports to which it belongs.

    Nothing has to be said of a package that may be missing: what is tried says it.
    """
    if "#" in lines[number - 1]:
        return True
    above = next(
        line for line in reversed(lines[: number - 1]) if not re.match(r"\s*(from|import)\b", line)
    ).strip()
    return above.startswith("#") or (above == "try:" and "except" in lines[number])


def test_every_import_in_a_function_says_why_it_is_there() -> None:
    """At its place, or once for a whole module: its docstring, or a comment, speaks of imports.

    Django itself calls ``ready`` of an application when there are models, and not before.
    """
    silent = []
    for path in _modules().values():
        hidden = [each.line for each in statements_of(path) if each.in_function]
        if hidden and path.name != "apps.py" and not _MODULE_SAYS_WHY.search(path.read_text()):
            lines = path.read_text().splitlines()
            silent += [f"{path}:{number}" for number in hidden if not _says_why(lines, number)]
    assert silent == []
