"""The lock files hold all that pyproject.toml asks for, each with a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def wanted(extra: str) -> set[str]:
    """Return the names of the packages in an extra and in what it includes."""
    names: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        included = re.match(r"headroom\[([\w,]+)\]", requirement)
        if included:
            names.update(*map(wanted, included[1].split(",")))
        else:
            names.add(_name(requirement))
    return names | {_name(each) for each in PROJECT["dependencies"]}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~;@ ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def pinned(lock_file: str) -> dict[str, str]:
    """Return each package of a lock file with all that stands below it."""
    text = (REPOSITORY / lock_file).read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    return {block.partition("==")[0]: block for block in blocks if "==" in block}


@pytest.mark.parametrize(
    ("extra", "lock_file"), [("server", "requirements.txt"), ("dev", "requirements-dev.txt")]
)
def test_all_of_an_extra_is_pinned_with_hashes(extra: str, lock_file: str) -> None:
    found = pinned(lock_file)
    assert wanted(extra) <= found.keys()
    assert not [name for name, block in found.items() if "--hash=sha256:" not in block]


def test_a_package_has_one_version_in_both_lock_files() -> None:
    def versions(lock_file: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9.-]+==\S+", (REPOSITORY / lock_file).read_text(), re.M))

    assert versions("requirements.txt") <= versions("requirements-dev.txt")
