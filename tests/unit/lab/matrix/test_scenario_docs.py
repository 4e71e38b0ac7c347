from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.matrix import scenario
from lab.matrix.reading import read
from lab.matrix.scenario import LEVELS, QUANTITIES, FaultKind
from lab.matrix.schema import scenario_schema
from tests.json_schema import validator

REPOSITORY = Path(__file__).resolve().parents[4]
PAGE = (REPOSITORY / "docs/reference/scenarios.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

SECTIONS = {
    "## The document": scenario.Scenario,
    "### `fleet`": scenario.Fleet,
    "### `load`": scenario.Load,
    "## A fault": scenario.Fault,
    "### `target`": scenario.Target,
    "### `never`": scenario.Never,
    "### `within`": scenario.Within,
    "### `at_most`": scenario.AtMost,
    "### `recovers`": scenario.Recovers,
}


def rows_of(heading: str) -> list[str]:
    section = PAGE.split(f"\n{heading}\n")[1].partition("\n#")[0]
    return re.findall(r"^\| (`.*)\|$", section, re.MULTILINE)


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_table_has_the_fields_of_its_section_and_no_others(heading: str) -> None:
    first = [row.partition(" |")[0] for row in rows_of(heading)]
    named = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(SECTIONS[heading].__struct_encode_fields__)


def test_the_table_of_kinds_says_what_the_code_takes() -> None:
    told = {}
    for row in rows_of("### Kinds"):
        kind, _, quantities, levels = row.rstrip(" |").split(" |")[:4]
        told[kind.strip("` ")] = (
            set(re.findall(r"`(\w+)`", quantities)),
            set(levels.strip().split(", ")),
        )
    assert told == {
        str(kind): (set(needed) | set(more), {str(level) for level in LEVELS[kind]})
        for kind, (needed, more) in QUANTITIES.items()
    }
    assert set(told) == {str(kind) for kind in FaultKind}


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_are_good(text: str) -> None:
    found = read(text.encode())
    validator(scenario_schema()).validate(json.loads(msgspec.json.encode(found)))


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    held_to = validator(scenario_schema())
    good: dict[str, Any] = {"name": "a", "title": "t", "duration": "10m", "expect": [{}]}
    assert [error.message for error in held_to.iter_errors(good)] == ["{} should be non-empty"]
    good["expect"] = []
    assert held_to.is_valid(good)
    assert not held_to.is_valid(good | {"duration": 600})
    assert not held_to.is_valid(good | {"faults": [{"kind": "rain", "at": "1m"}]})
