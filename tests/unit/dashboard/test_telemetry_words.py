from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dashboard import units
from dashboard.templatetags import telemetry_words as words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (8.4, "8 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (11_100, "3 h 5 min"),
        (172_800, "2 d"),
        (187_200, "2 d 4 h"),
    ],
)
def test_how_long_something_lasted(seconds: float, text: str) -> None:
    assert words.lasted(seconds) == text


@pytest.mark.parametrize(
    ("skew", "text"),
    [
        (None, units.DASH),
        (0.001, "0.00 s"),
        (-0.001, "0.00 s"),
        (0.123, "+0.12 s"),
        (-7.3, "\N{MINUS SIGN}7.30 s"),
        (-300, "\N{MINUS SIGN}5 min"),
    ],
)
def test_how_far_a_clock_is_off(skew: float | None, text: str) -> None:
    assert words.signed_s(skew) == text


def test_sizes_and_rates() -> None:
    assert [words.gib(size) for size in (None, 2**30, 150 * 2**30)] == [units.DASH, "1.0", "150"]
    assert [words.megabytes(rate) for rate in (None, 1.25e6, 2.1e11)] == [
        units.DASH,
        "1.2",
        "210,000",
    ]


def test_a_moment_is_in_utc_and_readable_by_machines() -> None:
    html = words.moment(datetime(2026, 11, 20, 8, 0, 5, tzinfo=UTC))
    assert html == (
        '<time datetime="2026-11-20T08:00:05+00:00" title="2026-11-20 08:00:05 UTC">'
        "11-20 08:00:05</time>"
    )


def test_links_keep_the_other_parameters() -> None:
    query = {"site": "a b", "state": "live"}
    assert words.with_page(query, 2) == "site=a+b&state=live&page=2"
    assert words.with_value(query, "state", "stale") == "site=a+b&state=stale"
    assert words.with_value(query, "state", "") == "site=a+b"
