"""OpenTelemetry metrics, OTLP over HTTP: from a request's body to series, and the answers' form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    NumberDataPoint,
)

from accounts.edge.bodies import read_json
from headroom.contracts import BatchError
from telemetry.ingest.errors import JSON, UnsupportedType, malformed
from telemetry.ingest.messages import Status
from telemetry.ingest.series import Series, as_exported, may_tell, told_by

__all__ = [
    "JSON",
    "PROTOBUF",
    "Decoded",
    "check_type",
    "decode",
    "encode",
    "is_json",
    "refusal",
    "success",
]

PROTOBUF = "application/x-protobuf"
#: An integer: a time in ns has more digits than a float.
_NS_PER_S = 1_000_000_000
#: Codes of google.rpc by HTTP status.
_RPC_CODES = {400: 3, 401: 16, 403: 7, 413: 8, 415: 3, 429: 8, 503: 14}
_UNKNOWN = 2


@dataclass
class Decoded:
    """The series of a request, and its points of kinds that are not kept."""

    series: list[Series] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


def is_json(content_type: str) -> bool:
    """Say whether a request is JSON, and its answer is to be; else both are protobuf."""
    return _media_type(content_type) == JSON


def check_type(content_type: str) -> None:
    """Refuse a content type that is neither protobuf nor JSON."""
    if _media_type(content_type) not in (PROTOBUF, JSON):
        raise UnsupportedType(
            "unsupported_content_type",
            f"Content-Type {content_type!r} is not known",
            field="Content-Type",
            hint=f"send {PROTOBUF} or {JSON}",
        )


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def decode(body: bytes, form: str) -> Decoded:
    """Return the series of an uncompressed request."""
    decoded = Decoded()
    for resource in _parse(body, form).resource_metrics:
        around = _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                _take(metric, around, decoded)
    return decoded


def _parse(body: bytes, form: str) -> ExportMetricsServiceRequest:
    if form == PROTOBUF:
        try:
            return ExportMetricsServiceRequest.FromString(body)
        except DecodeError as exc:
            raise malformed("protobuf", str(exc)) from exc
    try:
        document = read_json(body)
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        return json_format.ParseDict(
            document, ExportMetricsServiceRequest(), ignore_unknown_fields=True
        )
    except (json_format.ParseError, ValueError) as exc:
        raise malformed("OTLP JSON", str(exc)[:500]) from exc


def _take(metric: Metric, around: dict[str, str], decoded: Decoded) -> None:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    points = getattr(metric, kind).data_points
    if kind not in ("gauge", "sum") or not may_tell(metric.name):
        decoded.ignored["unmapped"] += len(points)
    elif kind == "sum" and _is_delta(metric):
        # Counters are kept as they stand; what was added since the last push does not say that.
        decoded.ignored["delta"] += len(points)
    else:
        for point in points:
            _take_point(metric.name, point, around, decoded)


def _is_delta(metric: Metric) -> bool:
    delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    return metric.sum.aggregation_temporality == delta


def _take_point(
    name: str, point: NumberDataPoint, around: dict[str, str], decoded: Decoded
) -> None:
    value_kind = point.WhichOneof("value")
    if value_kind is None or point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
        decoded.ignored["nan"] += 1
        return
    labels = as_exported({**around, **_labels(point.attributes), "__name__": name})
    samples = [(point.time_unix_nano / _NS_PER_S, float(getattr(point, value_kind)))]
    decoded.series.append(Series(labels, told_by(name, labels), samples))


def _labels(attributes: Iterable[KeyValue]) -> dict[str, str]:
    labels = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            labels[each.key] = str(getattr(each.value, kind))
    return labels


def success(rejected: int, message: str) -> ExportMetricsServiceResponse:
    """Return the answer to a request that was taken, all but ``rejected`` points."""
    response = ExportMetricsServiceResponse()
    if rejected:
        response.partial_success.rejected_data_points = rejected
        response.partial_success.error_message = message
    return response


def refusal(error: BatchError, status: int) -> Message:
    """Return the answer to a request that was not taken at all."""
    hint = f" ({error.error.hint})" if error.error.hint else ""
    said: Message = Status(
        code=_RPC_CODES.get(status, _UNKNOWN), message=f"{error.error.code}: {error}{hint}"
    )
    return said


def encode(message: Message, form: str) -> bytes:
    """Return ``message`` in the form of the request."""
    if form == PROTOBUF:
        return message.SerializeToString()
    return json_format.MessageToJson(message, indent=None).encode()
