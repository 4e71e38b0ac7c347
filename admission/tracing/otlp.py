"""Spans as a request of OTLP over HTTP, and how a collector takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import requests
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from accounts.edge.answers import BadAnswer, read_within
from accounts.edge.safe_urls import is_safe
from admission.tracing.spans import Span, Value

__all__ = ["Collector", "NotTaken", "encoded", "send"]

_MOST_BYTES = 64 * 1024
_SERVICE, _SCOPE = "headroom", "headroom.admission"


class NotTaken(Exception):
    """The collector cannot be reached, or has not taken all spans. Says nothing secret."""


@dataclass(frozen=True, kw_only=True)
class Collector:
    """Where traces go. ``headers`` may be secret, and are not shown."""

    url: str
    timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def encoded(spans: Sequence[Span]) -> bytes:
    """Return spans as the body of a request."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.append(_attribute("service.name", _SERVICE))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = _SCOPE
    of_scope.spans.extend(map(_message, spans))
    return request.SerializeToString()


def send(collector: Collector, body: bytes) -> None:
    """Send a request, once. Raises :class:`NotTaken`."""
    if collector.headers and not is_safe(collector.url):
        raise NotTaken(f"{collector.url} is not https: headers are not sent there")
    try:
        with requests.post(
            collector.url, data=body, timeout=collector.timeout_s, stream=True,
            headers={**collector.headers, "Content-Type": "application/x-protobuf"},
            allow_redirects=False,
        ) as answer:  # fmt: skip
            if not 200 <= answer.status_code < 300:
                raise NotTaken(f"it was answered with {answer.status_code}")
            said = read_within(answer, _MOST_BYTES, 2.0 * collector.timeout_s)
        rejected = ExportTraceServiceResponse.FromString(said).partial_success.rejected_spans
    except requests.RequestException as error:
        raise NotTaken(f"sending failed: {type(error).__name__}") from error
    except (BadAnswer, DecodeError) as error:
        raise NotTaken(f"its answer cannot be read: {error}") from error
    if rejected:
        raise NotTaken(f"{rejected} spans were rejected")


def _message(span: Span) -> Message:
    message = Message(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_id,
        name=span.name,
        kind=Message.SPAN_KIND_INTERNAL,
        start_time_unix_nano=round(span.start * 1e9),
        end_time_unix_nano=round(max(span.end, span.start) * 1e9),
        attributes=[_attribute(name, value) for name, value in span.attributes.items()],
    )
    if span.error is not None:
        message.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=span.error))
    return message


def _attribute(name: str, value: Value) -> KeyValue:
    if isinstance(value, str):
        return KeyValue(key=name, value=AnyValue(string_value=value))
    if isinstance(value, int):
        return KeyValue(key=name, value=AnyValue(int_value=value))
    return KeyValue(key=name, value=AnyValue(double_value=value))
