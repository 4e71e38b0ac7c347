"""The templates for CI are what their services take, and their commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from headroom.cli import main

FOLDER = Path(__file__).resolve().parents[4] / "deploy" / "ci"
SCHEMAS = {
    "github-actions.yml": "vendor.github-workflows",
    "gitlab-ci.yml": "vendor.gitlab-ci",
}


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_template_is_what_its_service_takes(name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[name]]
    done = subprocess.run([*command, str(FOLDER / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def lines_of(value: Any) -> Iterator[str]:
    """Return the lines of all scripts, with those that go on joined."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("run", "script", "before_script"):
                text = each if isinstance(each, str) else "\n".join(each)
                yield from text.replace("\\\n", " ").splitlines()
            else:
                yield from lines_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from lines_of(each)


def calls_of(name: str) -> list[list[str]]:
    """Return the words of each call of ``headroom``, after its name."""
    found = []
    for line in lines_of(yaml.safe_load((FOLDER / name).read_text())):
        match = re.search(r"(?:^|\s)headroom\s+(matrix.*)$", line)
        if match:
            found.append(shlex.split(match[1], comments=True))
    return found


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_its_commands_exist_and_take_their_options(name: str) -> None:
    calls = calls_of(name)
    assert [call[:2] for call in calls] == [["matrix", "ways"], ["matrix", "run"]]
    for words in calls:
        group = main.get_command(click.Context(main), words[0])
        assert isinstance(group, click.Group)
        command = group.get_command(click.Context(group), words[1])
        assert command is not None
        # It parses what it is given, or fails.
        context = command.make_context(words[1], words[2:])
        if words[1] == "run":
            assert context.params["is_standard"]
            assert context.params["command"][0] == "python"
