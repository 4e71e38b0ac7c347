from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.series import (
    FIELDS,
    Kind,
    SeriesRequest,
    columns,
    gap_s,
    parse,
    step_for,
    with_gaps,
)
from telemetry.spans import ParameterError, Span

SPAN = Span(1000.0, 4600.0)


def test_a_request_says_what_is_asked_for() -> None:
    params = {"kind": "gpu", "id": "7", "fields": "temp_c,power_w,temp_c", "points": "50"}
    assert parse({**params, "band": "1"}, SPAN) == SeriesRequest(
        Kind.GPU, 7, ("temp_c", "power_w"), 1000.0, 4600.0, points=50, band=True
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_fields_of_its_own_by_default(kind: Kind) -> None:
    fields = parse({"kind": kind, "id": "1"}, SPAN).fields
    assert fields
    assert set(fields) <= set(FIELDS[kind])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "site"}, "kind"),
        ({"kind": ""}, "kind"),
        ({"id": ""}, "id"),
        ({"id": "-1"}, "id"),
        ({"id": "0"}, "id"),
        ({"id": "1.5"}, "id"),
        ({"id": "99999999999"}, "id"),
        ({"id": "٣"}, "id"),
        ({"fields": "power_w; DROP TABLE gpu_sample"}, "fields"),
        ({"fields": "job_id"}, "fields"),
        ({"fields": "gpu_id"}, "fields"),
        ({"points": "9"}, "points"),
        ({"points": "5001"}, "points"),
        ({"points": "many"}, "points"),
        ({"band": "yes"}, "band"),
        ({"kind": "rack", "band": "1"}, "band"),
    ],
)
def test_a_wrong_parameter_is_named(change: dict[str, str], field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse({"kind": "gpu", "id": "1", **change}, SPAN)
    assert caught.value.field == field


@given(st.floats(1, 31 * 86_400), st.integers(10, 5000), st.floats(0, 600))
def test_buckets_are_never_more_than_points_nor_narrower_than_wanted(
    length_s: float, points: int, at_least_s: float
) -> None:
    step = step_for(length_s, points, at_least_s)
    assert step >= at_least_s
    assert length_s / step <= points * (1 + 1e-9)


def test_buckets_are_as_wide_as_a_clock_divides() -> None:
    assert step_for(3600, 600, 0) == 10
    assert step_for(86_400, 600, 0) == 300
    assert step_for(900, 600, 20) == 20


class TestGaps:
    def test_even_readings_have_none(self) -> None:
        rows = [(float(t), 1.0) for t in range(0, 100, 10)]
        assert with_gaps(rows, gap_s(None, 10)) == rows

    def test_one_lost_reading_is_no_gap(self) -> None:
        rows = [(0.0, 1.0), (10.0, 1.0), (30.0, 1.0)]
        assert with_gaps(rows, gap_s(None, 10)) == rows

    def test_a_row_of_nulls_stands_where_readings_are_missing(self) -> None:
        rows = [(0.0, 1.0, 2.0), (10.0, 1.0, 2.0), (70.0, 1.0, 2.0)]
        assert with_gaps(rows, gap_s(None, 10))[2] == (40.0, None, None)

    def test_an_empty_bucket_is_one(self) -> None:
        rows = [(0.0, 1.0), (60.0, 1.0), (180.0, 1.0)]
        assert with_gaps(rows, gap_s(60, 10))[2] == (120.0, None)

    def test_without_a_cadence_nothing_is_known_of_gaps(self) -> None:
        rows = [(0.0, 1.0), (1000.0, 1.0)]
        assert with_gaps(rows, gap_s(None, 0)) == rows


def test_columns_of_no_rows_are_empty_lists() -> None:
    assert columns(["power_w"], []) == {"t": [], "power_w": []}


def test_columns_keep_missing_values() -> None:
    assert columns(["a", "b"], [(1.0, 2.0, None), (2.0, None, 3.0)]) == {
        "t": [1.0, 2.0],
        "a": [2.0, None],
        "b": [None, 3.0],
    }
