"""CSV that a spreadsheet may open."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.edge.csv_text import csv_text


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1"]
)
def test_text_that_would_be_a_formula_is_quoted(text: str) -> None:
    [[cell]] = csv.reader(io.StringIO(csv_text([[text]]), newline=""))
    assert cell == f"'{text}"


def test_numbers_are_written_as_they_are() -> None:
    assert csv_text([[-1.5, 2, None, "a-b"]]) == "-1.5,2,,a-b\r\n"


def test_moments_are_written_in_utc() -> None:
    noon = datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    odd = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    assert csv_text([[noon, odd]]) == "2026-03-01T12:00:00Z,2026-03-01T12:00:00.250Z\r\n"


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc"))), min_size=1, max_size=5))
def test_no_cell_of_text_begins_as_a_formula(cells: list[str]) -> None:
    [row] = csv.reader(io.StringIO(csv_text([cells]), newline="")) if any(cells) else [cells]
    assert not any(cell.lstrip(" ").startswith(("=", "+", "-", "@")) for cell in row)
