"""Requests of OpenTelemetry metrics."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

__all__ = ["as_protobuf", "gauge", "make_request", "point"]


def point(value: float, ts: float, **attributes: str) -> dict[str, Any]:
    """A data point; ``__`` in the name of an attribute stands for a dot."""
    return {
        "asDouble": value,
        "timeUnixNano": str(round(ts * 1e6) * 1000),
        "attributes": _attributes(attributes),
    }


def gauge(name: str, *points: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "gauge": {"dataPoints": list(points)}}


def make_request(host: str, *metrics: dict[str, Any]) -> dict[str, Any]:
    """A request of one host, as the JSON form has it."""
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": _attributes({"host__name": host})},
                "scopeMetrics": [{"metrics": list(metrics)}],
            }
        ]
    }


def as_protobuf(request: dict[str, Any]) -> bytes:
    return json_format.ParseDict(request, ExportMetricsServiceRequest()).SerializeToString()


def _attributes(attributes: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"key": name.replace("__", "."), "value": {"stringValue": value}}
        for name, value in attributes.items()
    ]
