"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from dashboard import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "never"),
        (math.nan, "never"),
        (-0.3, "0.0 s"),
        (1.24, "1.2 s"),
        (9.96, "10 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7200, "2 h"),
        (172_800, "2 d"),
    ],
)
def test_ages_have_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert units.age(seconds) == text


@pytest.mark.parametrize(
    ("watts", "text"),
    [
        (0, "0.0"),
        (36_940, "36.9"),
        (-3_100, "−3.1"),  # noqa: RUF001 - a true minus sign
        (-20, "0.0"),
        (1_234_567, "1,235"),
        (None, "–"),  # noqa: RUF001 - a dash
        (math.nan, "–"),  # noqa: RUF001 - a dash
    ],
)
def test_watts_become_kilowatts(watts: float | None, text: str) -> None:
    assert units.kilowatts(watts) == text


def test_counts_agree_with_their_noun() -> None:
    assert units.count(1, "rack") == "1 rack"
    assert units.count(0, "rack") == "0 racks"
    assert units.count(1200, "match", "matches") == "1,200 matches"


def test_shares_and_temperatures_say_their_unit() -> None:
    assert units.percent(0.794) == "79 %"
    assert units.celsius(83.4) == "83 °C"
    assert units.percent(None) == units.celsius(math.nan) == units.DASH
