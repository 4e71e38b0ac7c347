"""OpenTelemetry's metrics over HTTP: from a request to rows."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from pytest_django import Settings

from telemetry.ingest.messages import Status
from telemetry.ingest.otlp import PROTOBUF
from telemetry.models import Agent, PushedRequest
from tests.builders.otlp import as_protobuf, gauge, make_request, point
from tests.integration.telemetry.conftest import Source, forward_everything
from tests.integration.telemetry.test_remote_write import stored

JSON = "application/json"


def export(source: Source, request: Any, form: str = PROTOBUF, **headers: str) -> Any:
    body = request
    if isinstance(request, dict):
        body = as_protobuf(request) if form == PROTOBUF else json.dumps(request).encode()
    return source.client.post(
        "/api/v1/otlp/v1/metrics",
        data=body,
        content_type=form,
        # Said twice, since Django's client leaves it out of a request without a body.
        headers={"Authorization": f"Bearer {source.token}", "Content-Type": form, **headers},
    )


def response_of(answer: Any) -> ExportMetricsServiceResponse:
    assert answer.status_code == 200, answer.content
    response = ExportMetricsServiceResponse()
    if answer.headers["Content-Type"] == PROTOBUF:
        response.ParseFromString(answer.content)
    else:
        json_format.Parse(answer.content, response)
    return response


def gpu(index: int = 0) -> dict[str, str]:
    return {"hw__type": "gpu", "hw__id": str(index)}


def make_good_request() -> dict[str, Any]:
    now = time.time()
    return make_request(
        "n1",
        gauge("hw.power", point(412.5, now, **gpu(0)), point(99, now, **gpu(3))),
        gauge("hw.temperature", point(61, now + 0.01, **gpu(0))),
        gauge("DCGM_FI_DEV_FB_USED", point(10, now, gpu="3")),
        gauge("process.cpu.time", point(1, now)),
    )


@pytest.mark.parametrize("form", [PROTOBUF, JSON])
def test_points_become_rows_of_their_gpus(source: Source, form: str) -> None:
    answer = export(source, make_good_request(), form)
    assert response_of(answer) == ExportMetricsServiceResponse()
    assert answer.headers["Content-Type"] == form
    forward_everything()
    assert stored("power_w, temp_c, mem_used") == [
        (0, 412.5, 61.0, None),
        (3, 99.0, None, 10 * 2**20),
    ]


def test_a_compressed_request_is_taken(source: Source) -> None:
    body = gzip.compress(as_protobuf(make_good_request()))
    response_of(export(source, body, **{"Content-Encoding": "gzip"}))
    forward_everything()
    assert len(stored("power_w")) == 2


def test_a_request_sent_again_is_stored_once(source: Source) -> None:
    request = make_good_request()
    for _ in range(2):
        response_of(export(source, request))
    forward_everything()
    response_of(export(source, request))
    forward_everything()
    assert len(stored("power_w")) == 2


@pytest.mark.parametrize("form", [PROTOBUF, JSON])
def test_bad_points_are_rejected_and_the_rest_is_stored(source: Source, form: str) -> None:
    now = time.time()
    request = make_request(
        "n1",
        gauge("hw.power", point(-1, now, **gpu(0)), point(99, now, **gpu(3))),
        gauge("hw.temperature", point(61, now + 99, **gpu(0)), point(61, now, **gpu(9))),
    )
    partial = response_of(export(source, request, form)).partial_success
    assert partial.rejected_data_points == 3
    assert "power_w" in partial.error_message or "hw.power" in partial.error_message
    forward_everything()
    assert stored("power_w, temp_c") == [(3, 99.0, None)]
    assert Agent.objects.get().refused_rows == 3


def test_where_no_point_is_taken_the_request_is_refused(source: Source) -> None:
    request = make_request("n9", gauge("hw.power", point(1, time.time(), **gpu(0))))
    answer = export(source, request)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, PROTOBUF)
    status = Status.FromString(answer.content)
    assert status.code == 3
    assert status.message.startswith("unknown_node: ")


def test_another_agents_node_is_refused(source: Source, stranger: Source) -> None:
    request = make_request("n2", gauge("hw.power", point(1, time.time(), **gpu(0))))
    answer = export(source, request, JSON)
    assert answer.status_code == 403
    assert answer.json()["code"] == 7
    assert not PushedRequest.objects.exists()


@pytest.mark.parametrize(
    ("body", "form", "headers", "status", "code"),
    [
        (b"\xff", PROTOBUF, {}, 400, 3),
        (b"{", JSON, {}, 400, 3),
        (b"", PROTOBUF, {"Content-Encoding": "br"}, 415, 3),
        (b"\x00", PROTOBUF, {"Content-Encoding": "gzip"}, 400, 3),
        (b"", PROTOBUF, {"Authorization": "Bearer hra_no"}, 401, 16),
        (b"", "text/plain", {}, 415, 3),
        (bytes(16 * 1024 * 1024 + 1), PROTOBUF, {}, 413, 8),
    ],
)
def test_another_kind_of_request_is_refused_in_its_own_form(
    source: Source, body: bytes, form: str, headers: dict[str, str], status: int, code: int
) -> None:
    answer = export(source, body, form, **headers)
    assert answer.status_code == status
    if form == JSON:
        assert answer.json()["code"] == code
    else:
        assert Status.FromString(answer.content).code == code


#: Half of a pair of surrogates, as JSON and UTF-8 (which it is not) have it.
HALVES = [b"\\ud800", b"\\uDFFF", b"\xed\xa0\x80"]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("at", ["hw.power", "host.name", "n1", "hw.id", "gpu"])
def test_half_of_a_pair_of_surrogates_is_refused_and_nothing_is_kept(
    source: Source, at: str, half: bytes
) -> None:
    """In a metric's name, and in the names and values of attributes."""
    request = make_request("n1", gauge("hw.power", point(412.5, time.time(), **gpu(0))))
    quoted = f'"{at}"'.encode()
    body = json.dumps(request).encode()
    assert quoted in body
    answer = export(source, body.replace(quoted, b'"x' + half + b'"'), JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert not PushedRequest.objects.exists()


def test_half_of_a_pair_of_surrogates_in_protobuf_is_refused(source: Source) -> None:
    body = as_protobuf(make_request("nod", gauge("hw.power", point(1, time.time(), **gpu(0)))))
    answer = export(source, body.replace(b"nod", b"\xed\xa0\x80"))
    assert (answer.status_code, Status.FromString(answer.content).code) == (400, 3)
    assert not PushedRequest.objects.exists()


def test_who_sends_too_fast_is_told_when_to_come_back(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = settings.TELEMETRY_BURST_ROWS_PER_AGENT = 1
    response_of(export(source, make_good_request()))
    answer = export(source, make_good_request())
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "3")
    assert Status.FromString(answer.content).code == 8


def test_a_request_without_points_is_taken(source: Source) -> None:
    response_of(export(source, b""))
    assert not PushedRequest.objects.exists()
