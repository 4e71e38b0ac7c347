"""What people who change Headroom meet first: hooks, forms, checks, and the changelog."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.json_schema import validator

REPOSITORY = Path(__file__).resolve().parents[2]
GITHUB = REPOSITORY / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text()


def check(document: Any, schema_name: str) -> None:
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / schema_name
    schema = json.loads(vendored.read_text(encoding="utf-8"))
    validator(schema).validate(document)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_is_of_the_form_that_is_known(path: Path) -> None:
    is_config = path.stem == "config"
    check(
        yaml.safe_load(path.read_text()),
        "github-issue-config.json" if is_config else "github-issue-forms.json",
    )


def test_the_constraint_matrix_is_a_box_of_each_pull_request() -> None:
    boxes = re.findall(r"^- \[ \] (.+)$", (GITHUB / "pull_request_template.md").read_text(), re.M)
    (matrix,) = [box for box in boxes if "constraint matrix" in box]
    command = re.search(r"`([^`]+ matrix run [^`]+)`", matrix)
    assert command
    assert f"\n{command[1]}\n" in (REPOSITORY / "README.md").read_text()


def test_the_hosted_checks_run_what_the_readme_names() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", readme, re.M | re.S))
    named = set(re.findall(r"^make (\w+)", blocks, re.M)) - {"bench", "clean"}
    workflow = (GITHUB / "workflows" / "ci.yml").read_text()
    run = (REPOSITORY / ".ci" / "run").read_text() + workflow
    verbs = {verb for line in re.findall(r"\bmake ([a-z ]+)", run) for verb in line.split()}
    assert named == {"run", "test", "lint"}
    assert named <= verbs
    assert "- run: .ci/run" in workflow
    assert "headroom plan" in workflow
    assert "-m lab matrix run" in workflow


def test_hooks_run_the_tools_that_the_lock_file_pins() -> None:
    (repository,) = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    tools = {hook["entry"].split()[0] for hook in repository["hooks"]}
    assert tools == {".venv/bin/ruff", ".venv/bin/djangofmt"}
    pinned = (REPOSITORY / "requirements-dev.txt").read_text()
    for tool in ("ruff", "djangofmt", "pre-commit"):
        assert re.search(rf"^{tool}==\d", pinned, re.M)


def test_the_changelog_has_a_dated_section_of_the_version_under_what_is_unreleased() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    unreleased, released, *_ = re.findall(r"^## (.+)$", CHANGELOG, re.M)
    assert unreleased == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", released)
