from __future__ import annotations

import re

from dashboard.svg.spans import Bar, merged, row
from headroom.contracts import ThrottleCause as Cause


def bars_of(svg: str) -> list[tuple[str, float, float, float]]:
    """Return token, x, y and width of each bar."""
    found = re.findall(r'class="span-(\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', svg)
    return [(token, float(x), float(y), float(w)) for token, x, y, w in found]


def test_spans_that_touch_become_one() -> None:
    assert merged([(5, 6), (0, 2), (2, 3), (1, 1.5)]) == [(0, 3), (5, 6)]


def test_each_cause_has_a_lane_of_its_own() -> None:
    bars = [Bar(Cause.HW_THERMAL, 50, 75), Bar(Cause.SW_POWER_CAP, 0, 50)]
    svg = row(bars, 0, 100, "rack")
    assert bars_of(svg) == [("sw_power_cap", 0, 0, 500), ("hw_thermal", 500, 11, 250)]
    assert "lanes-2" in svg


def test_bars_are_cut_to_the_span_and_open_ones_reach_its_end() -> None:
    bars = [Bar(Cause.SW_POWER_CAP, -50, 10), Bar(Cause.SW_POWER_CAP, 90, None)]
    assert bars_of(row(bars, 0, 100, "")) == [
        ("sw_power_cap", 0, 0, 100),
        ("sw_power_cap", 900, 0, 100),
    ]


def test_the_shortest_event_can_still_be_seen_within_the_drawing() -> None:
    (bar,) = bars_of(row([Bar(Cause.SW_POWER_CAP, 99.999, None)], 0, 100, ""))
    assert bar == ("sw_power_cap", 998, 0, 2)


def test_a_row_without_bars_is_an_empty_track() -> None:
    assert bars_of(row([], 0, 100, "")) == []


def test_names_are_escaped() -> None:
    assert "<script>" not in row([], 0, 100, '"><script>alert(1)</script>')
