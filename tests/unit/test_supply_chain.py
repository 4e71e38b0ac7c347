"""What we build from is pinned to the byte, and what we ship is written down."""

from __future__ import annotations

import importlib.resources
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
_SCHEMAS = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"


def problems(document: Any, schema_name: str) -> list[str]:
    schema = json.loads((_SCHEMAS / schema_name).read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(document)]


@pytest.mark.parametrize("file", ["Dockerfile", "docker-compose.yml"])
def test_images_of_others_are_pinned_by_version_and_digest(file: str) -> None:
    text = (REPOSITORY / file).read_text()
    images = re.findall(r"^\s*(?:FROM|image:) (\S+)", text, re.MULTILINE)
    foreign = [image for image in images if not image.startswith("headroom:")]
    assert foreign
    assert not [
        image
        for image in foreign
        if not re.fullmatch(r"[\w./-]+:\d[\w.-]+@sha256:[0-9a-f]{64}", image)
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_keeps_to_its_schema_and_may_only_read(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    document["on"] = document.pop(True)  # in YAML 1.1, "on" is a boolean
    assert not problems(document, "github-workflows.json")
    assert document["permissions"] == {"contents": "read"}


def test_updates_are_asked_for_in_the_form_that_is_known() -> None:
    text = (REPOSITORY / ".github" / "dependabot.yml").read_text()
    assert not problems(yaml.safe_load(text), "dependabot.json")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_pinned_by_commit(path: Path) -> None:
    used = re.findall(r"uses: (\S+)", path.read_text())
    assert used
    assert not [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)]


def test_what_is_shipped_is_audited_each_day() -> None:
    workflow = (REPOSITORY / ".github" / "workflows" / "supply-chain.yml").read_text()
    assert "cron:" in workflow
    assert "make audit sbom" in workflow


def test_the_bill_of_materials_lists_each_requirement_with_its_digests(tmp_path: Path) -> None:
    requirements = (REPOSITORY / "requirements.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", requirements, re.MULTILINE))
    made = tmp_path / "sbom.cdx.json"
    command = ["-m", "cyclonedx_py", "requirements", "requirements.txt", "--output-reproducible"]
    subprocess.run(
        [sys.executable, "-W", "ignore", *command, "--output-file", str(made)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    components = json.loads(made.read_text())["components"]
    assert {c["name"]: c["version"] for c in components} == pinned
    for component in components:
        hashes = [h for r in component["externalReferences"] for h in r.get("hashes", [])]
        assert hashes, component["name"]
