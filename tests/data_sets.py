"""Where tests find published measurements, which are not part of this repository.

``HEADROOM_TEST_DATA`` names the folder that holds the data sets; without it, ``shared/data`` beside
the repository is taken. A test whose data set is missing is skipped and says which one it wants.
"""

from __future__ import annotations

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


def _base() -> Path:
    return Path(os.environ.get("HEADROOM_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
