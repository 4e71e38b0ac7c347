"""Where tests find published measurements.

Excerpts lie in ``tests/data/published`` and are there in every clone. Whole data sets are no part
of this repository: ``HEADROOM_TEST_DATA`` names the folder that holds them; without it,
``shared/data`` beside the repository is taken. A test whose data set is missing is skipped, and the
end of the run says how many were, for want of which.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
EXCERPTS = REPOSITORY / "tests" / "data" / "published"
#: Of these the excerpt is all that tests read.
_WHOLE = frozenset({"zeus-power-limits"})


def data_set(name: str) -> Path:
    """Return the folder of a data set, or skip the test."""
    folder = data_folder() / name
    if folder.is_dir():
        return folder
    if name in _WHOLE:
        return EXCERPTS / name
    pytest.skip(f"the data set {name} is not there")


def missing_lines(reasons: Iterable[str]) -> list[str]:
    """Return what to say of tests that were skipped: for want of which data, and how to get it."""
    found = (re.search(r"the data set ([\w-]+) is not there", reason) for reason in reasons)
    wanted = Counter(match[1] for match in found if match)
    if not wanted:
        return []
    return [
        f"{wanted.total()} tests were left out for want of published data:",
        *(f"  {name}: {count}" for name, count in sorted(wanted.items())),
        "Set HEADROOM_TEST_DATA to a folder with these. Where they come from:",
        f"  {(EXCERPTS / 'README.md').relative_to(REPOSITORY)}",
    ]


def data_folder() -> Path:
    """Return the folder of whole data sets, whether it is there or not."""
    return Path(os.environ.get("HEADROOM_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
