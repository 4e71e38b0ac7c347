"""The twin beside published measurements: each error is printed, and within its bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.calibration import catalog, sources
from tests.data_sets import data_set

#: What each calibration reads, beside what lies in this repository.
NEEDS = {
    "node-power": (sources.NODE_POWER,),
    "swings": (sources.NODE_POWER,),
    "evaluation-dips": (sources.NODE_POWER,),
    "power-limits": (sources.POWER_LIMITS,),
    "cluster": (sources.FLEET,),
    "heat": (sources.FAST_POWER,),
    "single-gpu": (sources.CAPTURES, sources.WALL_POWER),
    "h200-at-its-cap": (),
    "step-times": (sources.STEPS,),
}


def folder_of(name: str) -> Path:
    """Return the folder with the data sets of a calibration, or skip the test."""
    folders = [data_set(each) for each in NEEDS[name]]
    return folders[0].parent if folders else Path()


def test_every_calibration_says_what_it_needs() -> None:
    assert set(NEEDS) == set(catalog.CALIBRATIONS)


@pytest.mark.parametrize("name", list(catalog.CALIBRATIONS))
def test_the_twin_is_as_close_to_real_machines_as_it_was(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(catalog.CALIBRATIONS[name](folder_of(name)))
    with capsys.disabled():
        print("", *found, sep="\n  ")
    assert found
    assert [str(each) for each in found if not each.holds] == []
