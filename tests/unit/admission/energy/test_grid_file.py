"""A file of a grid's figures is taken by the hour, and what is wrong is named with its line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from admission.energy.grid_file import BadGridFile, parse

GOOD = "hour,carbon_g_per_kwh,price_per_kwh\n"


def test_hours_are_read_with_their_offset() -> None:
    (told,) = parse(GOOD + "2026-03-01T14:00+01:00,302.5,\n")
    assert told.hour == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert (told.carbon_g_per_kwh, told.price_per_kwh) == (302.5, None)


def test_one_of_both_columns_is_enough_and_prices_may_be_below_zero() -> None:
    (told,) = parse("price_per_kwh, hour\n-0.01,2026-03-01T14:00Z\n")
    assert (told.carbon_g_per_kwh, told.price_per_kwh) == (None, -0.01)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: give the columns"),
        ("hour\n2026-03-01T14:00Z\n", "line 1: give the columns"),
        ("hour,co2\n2026-03-01T14:00Z,3\n", "line 1: give the columns"),
        (GOOD + "2026-03-01T14:00Z,1\n", "line 2: it has not as many columns"),
        (GOOD + "2026-03-01T14:00Z,1,2,3\n", "line 2: it has not as many columns"),
        (GOOD + "2026-03-01T14:00Z,,\n", "line 2: it tells nothing"),
        (GOOD + "2026-03-01 14:00,1,2\n", "line 2: hour: '2026-03-01 14:00' is no whole hour"),
        (GOOD + "2026-03-01T14:30Z,1,2\n", "is no whole hour"),
        (GOOD + "yesterday,1,2\n", "is no whole hour"),
        (GOOD + "2026-03-01T14:00Z,-1,2\n", "line 2: carbon_g_per_kwh: '-1' is no number from 0"),
        (GOOD + "2026-03-01T14:00Z,nan,2\n", "carbon_g_per_kwh: 'nan' is no number"),
        (GOOD + "2026-03-01T14:00Z,1,dear\n", "price_per_kwh: 'dear' is no number"),
        (GOOD + 2 * "2026-03-01T14:00Z,1,2\n", "line 3: hour: it is there twice"),
        (GOOD + '"2026\n', "line"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, why: str) -> None:
    with pytest.raises(BadGridFile, match=why.replace("(", r"\(")):
        parse(text)
