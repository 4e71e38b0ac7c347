from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from headroom.jobs import spec
from headroom.jobs.reading import YAML, read
from headroom.jobs.schema import job_spec_schema
from headroom.jobs.spec import JobSpec, PhaseSpec

REPOSITORY = Path(__file__).resolve().parents[4]
FOLDER = REPOSITORY / "docs" / "reference"
PAGE = (FOLDER / "job-spec.md").read_text()

SECTIONS = {
    "## The job": JobSpec,
    "## A phase": PhaseSpec,
    "### `needs`": spec.Need,
    "### `gang`": spec.Gang,
    "### `power`": spec.Power,
    "### `thermal`": spec.Thermal,
    "### `locality`": spec.LocalitySpec,
    "### `network`": spec.Network,
    "### `checkpoint`": spec.Checkpoint,
    "### `restart`": spec.Restart,
    "### `throttling`": spec.Throttling,
    "### `artifacts`": spec.Artifacts,
    "### `outputs`": spec.Output,
    "### `promotion`": spec.Promotion,
    "### `inputs`": spec.Input,
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_table_has_the_fields_of_its_section_and_no_others(heading: str) -> None:
    section = PAGE.split(f"\n{heading}\n")[1].partition("\n#")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(SECTIONS[heading].__struct_encode_fields__)


@pytest.mark.parametrize("text", re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
def test_the_examples_are_good(text: str) -> None:
    found = read(text.encode(), YAML)
    jsonschema.validate(json.loads(msgspec.json.encode(found)), job_spec_schema())


def codes(*names: str) -> set[str]:
    """Return the codes of all refusals in these modules."""
    found: set[str] = set()
    for name in names:
        text = (REPOSITORY / name).read_text()
        found |= set(re.findall(r'code="(\w+)"', text))
        found |= set(re.findall(r'_error\(\s*"(\w+)"', text))
    return found


def test_every_refusal_is_described() -> None:
    table = PAGE.split("\n## Refusals\n")[1]
    described = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.M))))
    given = codes("headroom/jobs/rules.py", "headroom/jobs/reading.py", "admission/jobs/checks.py")
    given |= codes("admission/jobs/needs.py", "headroom/jobs/artifacts.py")
    assert given <= described
    kinds = (
        "project", "class", "hardware_model", "kind_of_cooling", "site", "slice",
        "storage_endpoint",
    )  # fmt: skip
    assert described - given == {f"unknown_{kind}" for kind in kinds}


def test_the_schema_describes_what_a_name_does_not_say() -> None:
    parts: dict[str, Any] = job_spec_schema()["$defs"]
    silent = [
        f"{part}.{name}"
        for part in ("Gang", "Power", "Thermal", "LocalitySpec", "Network", "Throttling")
        for name, field in parts[part]["properties"].items()
        if "description" not in field
    ]
    assert silent == []
