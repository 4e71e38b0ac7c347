"""Where tests find published measurements, which are not part of this repository.

``HEADROOM_TEST_DATA`` names the folder that holds the data sets; without it, ``shared/data`` beside
the repository is taken. A test whose data set is missing is skipped and says which one it wants.

The numbers of the seed document, which the laws are checked against, lie in ``physics`` beside that
folder: ``shared/physics/seed_numbers.csv``.
"""

from __future__ import annotations

import csv
import functools
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def data_set(name: str) -> Path:
    """Return the folder of a data set, or skip the test."""
    folder = _base() / name
    if not folder.is_dir():
        pytest.skip(f"the data set {name} is not there: set HEADROOM_TEST_DATA to its parent")
    return folder


@functools.cache
def seed_numbers() -> dict[str, dict[str, str]]:
    """Return the rows of the seed's numbers by their id, or skip the test."""
    path = _base().parent / "physics" / "seed_numbers.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not there: set HEADROOM_TEST_DATA to the folder beside physics/")
    with path.open(newline="", encoding="utf-8") as lines:
        return {row["id"]: row for row in csv.DictReader(lines)}


def _base() -> Path:
    return Path(os.environ.get("HEADROOM_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
