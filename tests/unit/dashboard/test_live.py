"""The columns of the heatmap."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard import live, scale
from dashboard.live import METRICS


def test_columns_are_rounded_and_have_null_for_what_is_not_known() -> None:
    values = np.array([1.26, np.nan, -0.01, np.inf])
    assert live.column(values, 1) == [1.3, None, 0.0, None]
    assert live.column(values, 0) == [1, None, 0, None]
    assert [type(v) for v in live.column(np.array([1.0, 2.0]))] == [int, int]


def test_booleans_and_counts_become_whole_numbers() -> None:
    assert live.column(np.array([True, False])) == [1, 0]
    assert live.column(np.array([3], dtype=np.int64), 1) == [3]


def test_flags_are_counted_by_run_also_where_runs_are_empty() -> None:
    flags = np.array([True, False, True, True])
    assert live.count_by_run(flags, np.array([0, 2, 2, 4])).tolist() == [1, 0, 2]
    assert live.count_by_run(np.zeros(0, dtype=bool), np.array([0])).tolist() == []


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("percent", 12, "12 %"),
        ("kw", -3.14, "−3.1 kW"),  # noqa: RUF001 - a true minus sign
        ("celsius", 9, "9 °C"),
        ("count", 1200, "1,200"),
        ("age", 1.24, "1.2 s"),
        ("age", None, "never"),
        ("kw", None, "–"),  # noqa: RUF001 - a dash
    ],
)
def test_a_cell_writes_its_value_with_the_unit(kind: str, value: float | None, text: str) -> None:
    assert live.figure(kind, value) == text


def test_what_is_read_out_tells_over_and_stale_in_words() -> None:
    power = METRICS["power"]
    assert live.says(power, 3, 0) == "of the budget left"
    assert live.says(power, scale.OVER, 1) == "of the budget left, over, 1 node stale"
    assert live.says(power, scale.STALE, 4) == "of the budget left, stale"
    assert live.says(power, scale.UNKNOWN, 4) == "never heard from"
