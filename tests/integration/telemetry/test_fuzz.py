"""Whatever is sent to a way in: no 500, and what is good beside it is stored."""

from __future__ import annotations

import itertools
import json
import math
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import schemathesis
from django.conf import settings as django_settings
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connection
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, SerializationContext
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from config.wsgi import application
from headroom.contracts import HostColumns
from headroom.layouts import CONTENT_TYPE
from tests.builders.batches import make_batch
from tests.builders.otlp import as_protobuf, gauge, make_request, point
from tests.builders.remote_write import TimeSeries, request_1, request_2, snappy
from tests.integration.telemetry.conftest import Source, drain_everything, forward_everything
from tests.integration.telemetry.test_ingest import stored
from tests.integration.telemetry.test_layouts import encoder_of, rows_of
from tests.integration.telemetry.test_layouts import push as push_rows
from tests.integration.telemetry.test_otlp_ingest import export
from tests.integration.telemetry.test_remote_write import V2, dcgm, write

#: All examples of a test share a database; each tells its own by a number.
shared = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)
numbers = itertools.count(1)

described = schemathesis.openapi.from_path(
    django_settings.BASE_DIR / "docs" / "reference" / "openapi.yaml"
)
described.app = application
described.config.generation.update(with_security_parameters=False)
# Every bound of every field by itself takes longer than all else here, and finds no more.
described.config.phases.coverage.enabled = False


@schemathesis.serializer("application/msgpack")
def as_msgpack(context: SerializationContext, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # a number that MessagePack does not have
        return b"\xc1"


schemathesis.openapi.media_type("application/x-protobuf", st.binary(max_size=200))
schemathesis.openapi.media_type(CONTENT_TYPE, st.binary(max_size=200))

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Have requests end without closing the connection, whose transaction is the test's."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@described.include(tag="ways in").parametrize()
@shared
def test_requests_made_from_the_description_are_answered_as_it_says(
    case: Case[Any], source: Source, one_connection: None
) -> None:
    if isinstance(case.body, dict) and "agent" in case.body:
        case.body["agent"] = "agent-1"  # else all would end at another agent's name
    headers = {"Authorization": f"Bearer {source.token}"}
    if case.path.endswith("/write"):
        headers["Content-Encoding"] = "snappy"
    case.call_and_validate(headers=headers, checks=CHECKS)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
_junk = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ts", "gpu", "node", "power_w", ""]), inner, max_size=4)
    ),
    max_leaves=6,
)
_parts = st.dictionaries(
    st.sampled_from(["links", "meters", "jobs", "limits", "status"]), _junk, max_size=2
)
_blocks = st.dictionaries(st.sampled_from(["gpus", "host", "storage", "xids", "x"]), _junk)


def power_is_stored(number: int) -> bool:
    return any(row[2] == number for row in stored())


@shared
@given(
    parts=_parts,
    before=st.lists(_junk, max_size=2),
    blocks=_blocks,
    cells=st.dictionaries(st.sampled_from(["ts", "gpu", "power_w", "temp_c", "job"]), _scalars),
)
def test_of_a_batch_the_good_row_is_stored(
    source: Source,
    parts: dict[str, Any],
    before: list[Any],
    blocks: dict[str, Any],
    cells: dict[str, Any],
) -> None:
    number = next(numbers)
    document = msgspec.to_builtins(make_batch("agent-1", "n1", number, gpus=2, job=["a", "b"]))
    good = document["nodes"][0]
    good["gpus"]["power_w"][0] = number
    for column, value in cells.items():
        good["gpus"][column][1] = value
    document["nodes"] = [*before, {"node": "n1", **blocks}, good]
    answer = source.push(msgspec.msgpack.encode(document | parts))
    assert answer.status_code in (202, 400)
    assert answer.status_code == 202 or "ack" in answer.json()
    drain_everything()
    assert power_is_stored(number)


@shared
@given(body=st.binary(max_size=60), encoding=st.sampled_from(["", "gzip", "zstd", "x"]))
def test_no_body_of_a_batch_fails(source: Source, body: bytes, encoding: str) -> None:
    for content_type in ("application/json", "application/msgpack", "", "a/b; c"):
        answer = source.push(body, content_type=content_type, **{"Content-Encoding": encoding})
        assert answer.status_code in (400, 415)


@shared
@given(document=_junk | st.fixed_dictionaries({}, optional={"agent": _junk, "nodes": _junk}))
def test_no_document_fails(source: Source, document: Any) -> None:
    bodies = {"application/msgpack": msgspec.msgpack.encode(document)}
    with suppress(TypeError):  # bytes are none of JSON's
        bodies["application/json"] = json.dumps(document).encode()
    for content_type, body in bodies.items():
        assert source.push(body, content_type=content_type).status_code == 400


_odd_values = st.sampled_from(
    [
        struct.pack("<d", value)
        for value in (math.nan, math.inf, -math.inf, -1.0, 1e300, 1e11, 5e-324)
    ]
    + [struct.pack("<f", value) for value in (math.nan, math.inf, -1.0, 3e38)]
    + [struct.pack("<q", value) for value in (-(2**63), 2**63 - 1, -1)]
    + [struct.pack("<I", value) for value in (0, 8, 2**31, 2**32 - 1)]
)
#: Where in a body what is put, in place of how many bytes.
_wounds = st.lists(
    st.tuples(st.integers(0, 700), _odd_values | st.binary(max_size=9), st.integers(-1, 9)),
    max_size=6,
)
_BODIES_AT_ONCE = 20


def _wounded(body: bytes, wounds: list[tuple[int, bytes, int]]) -> bytes:
    for at, junk, size in wounds:
        at = min(at, len(body))
        body = body[:at] + junk + body[at + (len(junk) if size < 0 else size) :]
    return body


def _neighbors_rows(node: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM gpu_sample JOIN fleet_gpu ON fleet_gpu.id = gpu_id"
            " JOIN fleet_node ON fleet_node.id = node_id WHERE fleet_node.name = %s",
            [node],
        )
        return int(cursor.fetchone()[0])


def _jobs_by_node() -> set[tuple[str, str | None]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT node.name, job.name FROM gpu_sample JOIN fleet_gpu AS gpu"
            " ON gpu.id = gpu_id JOIN fleet_node AS node ON node.id = gpu.node_id"
            " LEFT JOIN telemetry_reportedjob AS job ON job.id = job_id"
        )
        return set(cursor.fetchall())


def _assault(source: Source, stranger: Source, assaults: list[Any]) -> None:
    """Push wounded bodies of one agent, then one of a neighbor: all of its rows are stored."""
    number = next(numbers)
    values = {"mem_used": [None, *range(7)], "energy_j": 1e6, "job": ["a", "b", None, *["a"] * 5]}
    batch = make_batch("agent-1", "n1", number, **values)
    batch.nodes[0].host = HostColumns(ts=[time.time()], cpu_util=[50.0])
    good = rows_of(encoder_of(source, batch), batch)
    before = _neighbors_rows("n2")
    for wounds in assaults:
        answer = push_rows(source, _wounded(good, wounds))
        assert answer.status_code in (202, 400, 413), answer.content
    other = make_batch("agent-2", "n2", number, job="c")
    assert push_rows(stranger, rows_of(encoder_of(stranger, other), other)).status_code == 202
    drain_everything()
    assert _neighbors_rows("n2") == before + 8
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM gpu_sample WHERE power_w NOT BETWEEN 0 AND 1e6")
        assert cursor.fetchone() == (0,)
    # A wound may take a row's job for another of its own layout, and for nobody else's.
    assert _jobs_by_node() <= {("n1", "a"), ("n1", "b"), ("n1", None), ("n2", "c")}


_assaults = st.lists(_wounds, min_size=_BODIES_AT_ONCE, max_size=_BODIES_AT_ONCE)


@settings(shared, max_examples=15)
@given(assaults=_assaults)
def test_no_rows_of_fixed_width_fail_or_cost_a_neighbor_anything(
    source: Source, stranger: Source, assaults: list[Any]
) -> None:
    _assault(source, stranger, assaults)


@pytest.mark.slow
@settings(shared, max_examples=500)
@given(assaults=_assaults)
def test_none_of_ten_thousand_bodies_of_rows_fail_or_cost_a_neighbor_anything(
    source: Source, stranger: Source, assaults: list[Any]
) -> None:
    _assault(source, stranger, assaults)


_labels = st.dictionaries(
    st.sampled_from(["__name__", "gpu", "Hostname", "instance", "UUID", "GPU_I_ID", "x"]),
    st.sampled_from(["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS", "n1", "n2", "0", "99", ""])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
_series = st.lists(
    st.tuples(_labels, st.lists(st.tuples(st.floats(), st.integers(-(2**63), 2**63 - 1)))),
    max_size=3,
)


@shared
@given(series=_series, version=st.sampled_from([1, 2]))
def test_of_a_remote_write_the_good_sample_is_stored(
    source: Source, stranger: Source, series: list[TimeSeries], version: int
) -> None:
    number = next(numbers)
    good = dcgm("POWER_USAGE", number, gpu=7, ts=time.time() - number % 600)
    if version == 1:
        answer = write(source, request_1([*series, good]))
    else:
        answer = write(source, request_2([*series, good]), content_type=V2)
    assert answer.status_code in (204, 400)
    forward_everything()
    assert power_is_stored(number)


@shared
@given(cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9), st.binary(max_size=9))))
def test_no_body_of_remote_write_fails(source: Source, cuts: list[tuple[int, int, bytes]]) -> None:
    series = [dcgm("POWER_USAGE", 400), dcgm("GPU_TEMP", 61)]
    for whole, content_type in ((request_1(series), ""), (request_2(series), V2)):
        body = whole
        for at, size, junk in cuts:
            body = body[:at] + junk + body[at + size :]
        answer = write(source, body, content_type=content_type or "application/x-protobuf")
        assert answer.status_code in (204, 400)
        packed = snappy(whole)
        for at, size, junk in cuts:
            packed = packed[:at] + junk + packed[at + size :]
        answer = source.client.post(
            "/api/v1/prometheus/write",
            data=packed,
            content_type="application/x-protobuf",
            headers={"Authorization": f"Bearer {source.token}"},
        )
        assert answer.status_code in (204, 400, 413)


_attributes = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["host.name", "gpu", "hw.id", "hw.type", "hw.parent", "x"]),
            "value": st.sampled_from(
                [{"stringValue": "n1"}, {"stringValue": "n2"}, {"stringValue": "gpu"},
                 {"intValue": "3"}, {"doubleValue": 0.5}, {"boolValue": True}, {},
                 {"arrayValue": {"values": []}}, {"bytesValue": "AA=="}]
            ),
        }
    ),
    max_size=4,
)  # fmt: skip
_points = st.lists(
    st.fixed_dictionaries(
        {"attributes": _attributes},
        optional={
            "asDouble": st.floats().map(lambda v: v if v == v and abs(v) < 1e308 else "NaN"),
            "timeUnixNano": st.integers(0, 2**64 - 1).map(str),
            "flags": st.integers(0, 3),
        },
    ),
    max_size=3,
)
_metrics = st.lists(
    st.tuples(
        st.sampled_from(["hw.power", "hw.temperature", "DCGM_FI_DEV_GPU_TEMP", "x"]),
        st.sampled_from(["gauge", "sum"]),
        _points,
    ),
    max_size=3,
)


@shared
@given(metrics=_metrics, form=st.sampled_from(["application/json", "application/x-protobuf"]))
def test_of_an_otlp_request_the_good_point_is_stored(
    source: Source, stranger: Source, metrics: list[tuple[str, str, list[Any]]], form: str
) -> None:
    number = next(numbers)
    good = point(number, time.time() - number % 600, hw__type="gpu", hw__id="7")
    made = [{"name": name, kind: {"dataPoints": points}} for name, kind, points in metrics]
    answer = export(source, make_request("n1", *made, gauge("hw.power", good)), form)
    assert answer.status_code == 200
    forward_everything()
    assert power_is_stored(number)


@shared
@given(
    body=st.binary(max_size=60),
    cut=st.tuples(st.integers(0, 300), st.integers(0, 9)),
    encoding=st.sampled_from(["", "gzip", "x"]),
)
def test_no_body_of_otlp_fails(
    source: Source, body: bytes, cut: tuple[int, int], encoding: str
) -> None:
    whole = as_protobuf(make_request("n1", gauge("hw.power", point(1, time.time(), hw__id="1"))))
    at, size = cut
    for form in ("application/json", "application/x-protobuf", "a/b"):
        for each in (body, whole[:at] + body + whole[at + size :]):
            answer = export(source, each, form, **{"Content-Encoding": encoding})
            assert answer.status_code in (200, 400, 415)


@pytest.mark.parametrize("boot_id", ["", "\x00", "é" * 100, "x" * 10_000, "server:inbox"])
def test_no_position_fails(source: Source, boot_id: str) -> None:
    answer = source.client.get(
        "/api/v1/telemetry/position",
        {"boot_id": boot_id},
        headers={"Authorization": f"Bearer {source.token}"},
    )
    assert answer.status_code in (200, 400)
