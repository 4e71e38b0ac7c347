"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.matrix.report import words
from lab.matrix.result import Verdict

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (52_345.0, "W", "52.3 kW"),
        (3.1e6, "W", "3.1 MW"),
        (412.0, "W", "412 W"),
        (7.2e6, "J", "2 kWh"),
        (5400.0, "GPU s", "1.5 GPU h"),
        (0.0321, "share", "3.21 %"),
        (1.0, "share", "100 %"),
        (-0.05, "share", f"{MINUS}5 %"),
        (2.5e9, "bit/s", "2.5 Gbit/s"),
        (3.0, "", "3"),
        (1234.0, "", "1,234"),
        (86.5, "°C", "86.5 °C"),
        (12.0, "jobs", "12 jobs"),
        (None, "W", words.DASH),
        (math.nan, "W", words.DASH),
        (0.35, "s", "0.35 s"),
        (45.0, "s", "45 s"),
        (250.0, "s", "4 min 10 s"),
        (240.0, "s", "4 min"),
        (7500.0, "s", "2 h 5 min"),
        (7200.0, "s", "2 h"),
        (3.1 * 86_400, "s", "3.1 d"),
        (-20.0, "s", f"{MINUS}20 s"),
        (math.inf, "s", "without end"),
        (math.inf, "W", "without end GW"),
    ],
)
def test_quantities(value: float | None, unit: str, text: str) -> None:
    assert words.quantity(value, unit) == text


@given(st.floats(-1e15, 1e15))
def test_a_number_is_near_what_it_says(value: float) -> None:
    said = float(words.number(value).replace(",", "").replace(MINUS, "-"))
    assert said == pytest.approx(value, rel=0.0051, abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "unit", "text"),
    [
        (10_000.0, 12_500.0, "W", "+2.5 kW (+25 %)"),
        (100.0, 75.0, "s", f"{MINUS}25 s ({MINUS}25 %)"),
        (0.90, 0.94, "share", "+4 points"),
        (0.0, 3.0, "", "+3"),
        (3.0, 3.0, "", "the same"),
    ],
)
def test_changes(before: float, after: float, unit: str, text: str) -> None:
    assert words.change(before, after, unit) == text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu_temp_c", "GPU temp"),
        ("site_w", "site power"),
        ("over_budget_s", "over budget"),
        ("running_gpus", "running GPUs"),
        ("throughput_loss_share", "throughput loss"),
        ("supply_temperature", "supply temperature"),
        ("work_lost_gpu_h", "work lost"),
        ("energy_kwh", "energy"),
        ("w", "w"),
    ],
)
def test_names_lose_the_unit_at_their_end(name: str, said: str) -> None:
    assert words.words_of(name) == said


def test_moments() -> None:
    assert [words.clock(s) for s in (0, 59.6, 250, 3750)] == ["0:00", "1:00", "4:10", "1:02:30"]


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ("PPP", "v14 passes all 3 cells."),
        ("PFE", "v14 fails 2 of 3 cells."),
        ("PN", "v14 passes all that could be run: 1 cell."),
        ("FN", "v14 fails 1 of 1 cell."),
        ("PP?", "Of v14, 1 of 3 cells could not be measured."),
        ("F?", "v14 fails 1 of 2 cells."),
        ("P", "v14 passes its only cell."),
        ("E", "v14 fails its only cell."),
        ("NN", "Nothing could be run on v14."),
        ("", "Nothing could be run on v14."),
    ],
)
def test_the_headline(verdicts: str, said: str) -> None:
    by_letter = {
        "P": Verdict.PASSED, "F": Verdict.FAILED, "E": Verdict.ERROR, "N": Verdict.NOT_RUN,
        "?": Verdict.NOT_MEASURED,
    }  # fmt: skip
    assert words.headline("v14", [by_letter[letter] for letter in verdicts]) == said
