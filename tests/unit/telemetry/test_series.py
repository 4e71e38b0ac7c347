from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.series import (
    FIELDS,
    Kind,
    Method,
    SeriesRequest,
    Tier,
    buckets_in,
    parse,
    step_for,
)
from telemetry.spans import ParameterError, Span

SPAN = Span(1000.0, 4600.0)
DAY = 86_400.0


def test_a_request_says_what_is_asked_for() -> None:
    params = {"kind": "gpu", "id": "7", "fields": "temp_c,power_w,temp_c", "points": "50"}
    assert parse({**params, "band": "1", "tier": "minute"}, SPAN) == SeriesRequest(
        Kind.GPU,
        7,
        ("temp_c", "power_w"),
        1000.0,
        4600.0,
        points=50,
        method=Method.MEAN,
        band=True,
        tier=Tier.MINUTE,
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_fields_of_its_own_by_default(kind: Kind) -> None:
    fields = parse({"kind": kind, "id": "1"}, SPAN).fields
    assert fields
    assert set(fields) <= set(FIELDS[kind])


@pytest.mark.parametrize(
    ("change", "method"),
    [
        ({}, Method.MINMAX),
        ({"band": "1"}, Method.MEAN),
        ({"p95": "1"}, Method.MEAN),
        ({"fields": "used_j,power_w"}, Method.MEAN),
        ({"fields": "power_w", "method": "lttb"}, Method.LTTB),
        ({"method": "mean"}, Method.MEAN),
    ],
)
def test_a_line_keeps_its_shape_unless_something_else_is_wanted(
    change: dict[str, str], method: Method
) -> None:
    assert parse({"kind": "gpu", "id": "1", **change}, SPAN).method is method


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "row"}, "kind"),
        ({"kind": "zone", "p95": "1"}, "p95"),
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
        ({"kind": "node", "p95": "1"}, "p95"),
        ({"kind": "job", "fields": "power_w", "band": "1"}, "band"),
        ({"method": "median"}, "method"),
        ({"method": "minmax", "band": "1"}, "method"),
        ({"method": "minmax", "fields": "used_j"}, "method"),
        ({"method": "lttb"}, "method"),
        ({"method": "lttb", "kind": "rack", "fields": "power_w"}, "method"),
        ({"tier": "day"}, "tier"),
    ],
)
def test_a_wrong_parameter_is_named(change: dict[str, str], field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse({"kind": "gpu", "id": "1", **change}, SPAN)
    assert caught.value.field == field


def test_a_job_has_readings_of_its_own_and_those_of_its_gpus() -> None:
    assert {"loss", "power_w", "sm_mhz", "gpus_reporting"} <= set(FIELDS[Kind.JOB])


@given(st.floats(0, 2e9), st.floats(1, 366 * DAY), st.integers(10, 5000), st.floats(0, 600))
def test_buckets_are_never_more_than_points_nor_narrower_than_wanted(
    start: float, length_s: float, points: int, at_least_s: float
) -> None:
    step = step_for(start, start + length_s, points, at_least_s)
    assert step >= at_least_s
    assert buckets_in(start, start + length_s, step) <= points


def test_buckets_are_as_wide_as_a_clock_divides() -> None:
    assert step_for(0, 3600, 600, 0) == 10
    assert step_for(5, 3605, 600, 0) == 10 or step_for(5, 3605, 360, 0) == 15
    assert step_for(0, DAY, 600, 0) == 300
    assert step_for(0, 900, 600, 20) == 20
    assert step_for(0, 366 * DAY, 600, 0) == DAY
