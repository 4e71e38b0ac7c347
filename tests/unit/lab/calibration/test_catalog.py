"""The twin beside published measurements: each error is printed, and within its bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.calibration import catalog
from tests.data_sets import data_set


def folder_of(name: str) -> Path:
    """Return the folder with the data sets of a calibration, or skip the test."""
    folders = [data_set(each) for each in catalog.CALIBRATIONS[name].reads]
    return folders[0].parent if folders else Path()


@pytest.mark.parametrize("name", list(catalog.CALIBRATIONS))
def test_the_twin_is_as_close_to_real_machines_as_it_was(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(catalog.CALIBRATIONS[name].compare(folder_of(name)))
    with capsys.disabled():
        print("", *found, sep="\n  ")
    assert found
    assert [str(each) for each in found if not each.is_as_good_as_it_was] == []
