"""The budget bar."""

from __future__ import annotations

import math
import re

from dashboard.svg.bar import budget_bar


def _width(svg: str, css: str) -> float:
    found = re.search(rf'class="{css}"[^>]* width="([\d.]+)"', svg)
    assert found is not None
    return float(found[1])


def test_the_filled_part_is_the_committed_share_of_the_limit() -> None:
    svg = budget_bar(40_000, 30_000, measured_w=20_000)
    assert _width(svg, "bar-load") == 150
    assert 'class="bar-measured" x1="100.00"' in svg
    assert "bar-enforced" not in svg
    assert "bar-over" not in svg


def test_what_is_over_the_limit_is_drawn_beyond_it() -> None:
    svg = budget_bar(40_000, 50_000)
    assert _width(svg, "bar-load") == 160
    assert _width(svg, "bar-over") == 40
    assert 'class="bar-limit" x1="160.00"' in svg


def test_an_enforced_limit_far_away_does_not_shrink_the_rest_to_nothing() -> None:
    svg = budget_bar(40_000, 30_000, enforced_w=900_000)
    assert _width(svg, "bar-track") == 160
    assert 'class="bar-enforced" x1="200.00"' in svg


def test_nothing_known_is_an_empty_bar() -> None:
    svg = budget_bar(math.nan, math.nan)
    assert _width(svg, "bar-load") == 0
    assert "bar-limit" not in svg


def test_the_bar_says_its_numbers_and_escapes_its_label() -> None:
    assert 'aria-label="committed 30.0 kW of 40.0 kW, measured 20.0 kW"' in budget_bar(
        40_000, 30_000, measured_w=20_000
    )
    assert "<b>" not in budget_bar(1, 1, label="<b>")
