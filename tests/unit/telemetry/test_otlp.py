"""OpenTelemetry's metrics, from bytes to series."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import BatchError
from telemetry.ingest import otlp
from telemetry.ingest.errors import JSON, UnsupportedType
from tests.builders.otlp import as_protobuf, gauge, make_request, point

NOW = 1_790_000_000.25
REQUEST = make_request(
    "n1",
    gauge("hw.power", point(412.5, NOW, hw__type="gpu", hw__id="3")),
    gauge("DCGM_FI_DEV_GPU_TEMP", point(60.0, NOW, gpu="3")),
    gauge("process.cpu.time", point(1.0, NOW)),
)


def encoded(request: Any, form: str) -> bytes:
    return json.dumps(request).encode() if form == JSON else as_protobuf(request)


@pytest.mark.parametrize("form", [otlp.PROTOBUF, JSON])
def test_points_come_with_the_attributes_of_their_resource(form: str) -> None:
    decoded = otlp.decode(encoded(REQUEST, form), form)
    power, temp = decoded.series
    assert power.labels == {
        "__name__": "hw.power", "host.name": "n1", "hw.type": "gpu", "hw.id": "3",
    }  # fmt: skip
    assert [each.told.column for each in (power, temp) if each.told] == ["power_w", "temp_c"]
    assert power.samples == [(NOW, 412.5)]
    assert decoded.ignored == {"unmapped": 1}


def test_an_attribute_of_the_point_comes_before_that_of_its_resource() -> None:
    request = make_request("n1", gauge("DCGM_FI_DEV_GPU_TEMP", point(1, NOW, host__name="n2")))
    (series,) = otlp.decode(as_protobuf(request), otlp.PROTOBUF).series
    assert series.labels["host.name"] == "n2"


def test_whole_numbers_and_sums_are_taken() -> None:
    number = {"asInt": "1500", "timeUnixNano": "1", "attributes": []}
    total = {"dataPoints": [number], "aggregationTemporality": 2, "isMonotonic": True}
    request = make_request("n1", {"name": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "sum": total})
    (series,) = otlp.decode(encoded(request, JSON), JSON).series
    assert series.samples == [(1e-9, 1500.0)]


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ({"sum": {"dataPoints": [point(1, NOW)], "aggregationTemporality": 1}}, "delta"),
        ({"histogram": {"dataPoints": [{}]}}, "unmapped"),
        ({"summary": {"dataPoints": [{}]}}, "unmapped"),
        ({"gauge": {"dataPoints": [{**point(1, NOW), "flags": 1}]}}, "nan"),
        ({"gauge": {"dataPoints": [{"timeUnixNano": "1"}]}}, "nan"),
    ],
)
def test_points_that_say_nothing_that_is_kept_are_ignored(
    metric: dict[str, Any], reason: str
) -> None:
    request = make_request("n1", {"name": "DCGM_FI_DEV_GPU_TEMP", **metric})
    decoded = otlp.decode(encoded(request, JSON), JSON)
    assert (decoded.series, decoded.ignored) == ([], {reason: 1})


def test_fields_of_a_later_release_are_passed_over() -> None:
    request = {**REQUEST, "newer": {"a": 1}}
    assert len(otlp.decode(encoded(request, JSON), JSON).series) == 2


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"\xff", otlp.PROTOBUF),
        (b"{", JSON),
        (b"\xff", JSON),
        (b"[]", JSON),
        (b'{"resourceMetrics": 3}', JSON),
        (b'{"resourceMetrics": [3]}', JSON),
        (b'{"resourceMetrics": {"a": 3}}', JSON),
        (b'{"resourceMetrics": ' + b"[" * 100_000, JSON),
    ],
)
def test_what_is_no_request_is_refused(body: bytes, form: str) -> None:
    with pytest.raises(BatchError) as refused:
        otlp.decode(body, form)
    assert refused.value.error.code == "malformed_body"


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/x-protobuf", False),
        ("application/json; charset=utf-8", True),
        ("Application/JSON", True),
    ],
)
def test_the_content_type_tells_the_form(content_type: str, is_json: bool) -> None:
    otlp.check_type(content_type)
    assert otlp.is_json(content_type) == is_json


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/jsonp"])
def test_another_content_type_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedType):
        otlp.check_type(content_type)


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@given(
    path=st.sampled_from(
        [
            (),
            ("resourceMetrics",),
            ("resourceMetrics", 0),
            ("resourceMetrics", 0, "resource"),
            ("resourceMetrics", 0, "resource", "attributes", 0, "value"),
            ("resourceMetrics", 0, "scopeMetrics", 0, "metrics", 0),
            ("resourceMetrics", 0, "scopeMetrics", 0, "metrics", 0, "name"),
            ("resourceMetrics", 0, "scopeMetrics", 0, "metrics", 0, "gauge"),
            ("resourceMetrics", 0, "scopeMetrics", 0, "metrics", 0, "gauge", "dataPoints", 0),
            *(
                ("resourceMetrics", 0, "scopeMetrics", 0, "metrics", 0, "gauge", "dataPoints", 0, n)
                for n in ("asDouble", "asInt", "timeUnixNano", "attributes", "flags")
            ),
        ]
    ),
    junk=_junk,
)
def test_whatever_stands_in_json_it_is_decoded_or_refused(
    path: tuple[str | int, ...], junk: Any
) -> None:
    request = json.loads(json.dumps(REQUEST))
    holder = {"all": request}
    inside: Any = holder
    for step in ("all", *path)[:-1]:
        inside = inside[step]
    inside[("all", *path)[-1]] = junk
    with suppress(BatchError):
        otlp.decode(json.dumps(holder["all"]).encode(), JSON)


@given(body=st.binary(max_size=10), at=st.integers(0, 300), size=st.integers(0, 4))
def test_whatever_becomes_of_a_body_on_its_way_it_is_decoded_or_refused(
    body: bytes, at: int, size: int
) -> None:
    whole = as_protobuf(REQUEST)
    with suppress(BatchError):
        otlp.decode(whole[:at] + body + whole[at + size :], otlp.PROTOBUF)
