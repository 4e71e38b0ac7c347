"""Imports point one way, as docs/explanation/architecture.md draws it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: What each room may import of the others. A dotted name opens that module alone. A part of a room
#: that stands here may import what is beside it, and the rest of the room may not.
MAY_IMPORT: dict[str, set[str]] = {
    "physics": set(),
    "headroom": set(),
    "headroom/plan": {"physics"},
    "accounts": {"headroom.contracts", "headroom.numbers"},
    "fleet": {"physics", "headroom.contracts", "accounts"},
    "telemetry": {"physics", "headroom.contracts", "headroom.dcgm", "accounts", "fleet"},
    "policies": {
        "physics",
        "headroom.contracts",
        "headroom.documents",
        "headroom.numbers",
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
    "lab/matrix": {"headroom"},
    "lab/scenarios": {
        "physics",
        "headroom",
        "admission.core",
        "policies.playbooks.document",
        "policies.playbooks.parse",
        "policies.rules.document",
    },
    "lab/traces": {"physics", "headroom", "admission.core"},
    "lab/world": {
        "physics",
        "headroom",
        "fleet.tables",
        "telemetry.live_frame",
        "policies.firings",
        "policies.headroom.evaluate",
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


def imports_of(path: Path) -> set[str]:
    """Return the dotted names that a module imports, also inside of functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


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


@pytest.mark.parametrize("room", ["physics", "headroom", "lab"])
def test_what_runs_outside_the_server_needs_nothing_of_it(room: str) -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in sorted((REPOSITORY / room).rglob("*.py"))
        for name in sorted(imports_of(path))
        if room_of(name) in SERVER_ONLY
    ]
    assert not wrong


def test_only_the_command_line_imports_the_planning() -> None:
    importing = {
        str(path.relative_to(REPOSITORY))
        for path in files_of("headroom")
        if any(name.startswith("headroom.plan") for name in imports_of(path))
    }
    assert importing == {"headroom/cli.py"}


@pytest.mark.parametrize("library", ["numpy", "scipy", "pint"])
def test_an_agent_needs_no_library_of_the_laws(library: str) -> None:
    needing = [path for path in files_of("headroom") if library in map(room_of, imports_of(path))]
    assert needing == []


def test_nothing_imports_the_lab_but_for_the_schema_of_scenarios() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for room in ROOMS - {"lab", "tests", "bench"}
        for path in sorted((REPOSITORY / room).rglob("*.py"))
        for name in sorted(imports_of(path))
        if room_of(name) == "lab" and not name.startswith("lab.matrix.schema")
    ]
    assert not wrong
