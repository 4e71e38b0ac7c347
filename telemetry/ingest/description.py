"""The OpenAPI description of the ingest endpoints, which are no views of Django REST framework."""

from __future__ import annotations

from typing import Any

import msgspec

from headroom.contracts import ErrorBody, LimitSet, TelemetryAck, TelemetryBatch
from headroom.layouts import CONTENT_TYPE, PATH, Agreement, Layout

__all__ = ["describe"]

#: Before the contract's names, of which serializers have some, too.
_PREFIX = "Telemetry."
_JSON = "application/json"
_PROTOBUF = "application/x-protobuf"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_REFUSALS = {
    "400": "Refused. With `ack`: only the rows that `refused` tells of.",
    "401": "No agent has this token, or it was revoked.",
    "403": "It speaks for another agent's things.",
    "413": "It has too many bytes or rows.",
    "415": "Its type or encoding is not known.",
    "429": "The agent has sent its share of rows. Come back after Retry-After.",
    "503": "It cannot be taken now. Come back after Retry-After.",
}
_COME_BACK = {"Retry-After": {"description": "s", "schema": {"type": "integer"}}}


def describe(result: dict[str, Any], **_context: Any) -> dict[str, Any]:
    """Add the ingest endpoints to the schema that drf-spectacular has made: a hook of it."""
    _types, schemas = msgspec.json.schema_components(
        (TelemetryBatch, TelemetryAck, Layout, Agreement, LimitSet, ErrorBody),
        ref_template=f"#/components/schemas/{_PREFIX}{{name}}",
    )
    components = result["components"]
    named = {f"{_PREFIX}{name}": schema for name, schema in schemas.items()}
    components["schemas"] = dict(sorted((components["schemas"] | named).items()))
    components["securitySchemes"]["agentToken"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of an agent: hra_…",
    }
    result["paths"] = dict(sorted((result["paths"] | _paths()).items()))
    return result


def _paths() -> dict[str, Any]:
    return {
        "/api/v1/telemetry": {
            "post": _operation(
                "telemetry_push",
                "Push a batch of readings. docs/reference/telemetry.md has the rules.",
                body={
                    _JSON: {"schema": _ref("TelemetryBatch")},
                    "application/msgpack": {},
                    CONTENT_TYPE: {"schema": _BINARY},
                },
                done={"202": _answer("It is on its way.", "TelemetryAck")},
            )
        },
        PATH: {
            "post": _operation(
                "telemetry_agree",
                "Agree on the layout of batches of fixed-width rows.",
                body={_JSON: {"schema": _ref("Layout")}},
                done={"200": _answer("The id that batches begin with.", "Agreement")},
            )
        },
        "/api/v1/telemetry/position": {
            "get": _operation(
                "telemetry_position",
                "Ask how far the agent's batches are stored.",
                parameters=[
                    {
                        "name": "boot_id",
                        "in": "query",
                        "required": True,
                        "schema": {"type": "string", "minLength": 1, "maxLength": 64},
                    }
                ],
                done={"200": _answer("All up to here is stored.", "TelemetryAck")},
            )
        },
        "/api/v1/limits": {
            "get": _operation(
                "limits",
                "Ask for the limits in force on the agent's nodes.",
                done={"200": _answer("All of them, as leases.", "LimitSet")},
                refusals={
                    "401": _answer(_REFUSALS["401"], "ErrorBody"),
                    "413": _answer("There are more than an answer holds.", "ErrorBody"),
                    "503": _answer("They cannot be read now.", "ErrorBody") | _retry_after("503"),
                },
            )
        },
        "/api/v1/prometheus/write": {
            "post": _operation(
                "prometheus_write",
                "Take a request of Prometheus remote write 1.0 or 2.0, compressed by snappy.",
                body={_PROTOBUF: {"schema": _BINARY}},
                done={"204": {"description": "What it holds is kept.", "headers": _written()}},
            )
        },
        "/api/v1/otlp/v1/metrics": {
            "post": _operation(
                "otlp_metrics",
                "Take a request of OpenTelemetry metrics (ExportMetricsServiceRequest).",
                body={
                    _PROTOBUF: {"schema": _BINARY},
                    _JSON: {"schema": {"type": "object"}},
                },
                done={"200": _in_both_forms("What it holds is kept, or so much of it.")},
                refusals={
                    status: _in_both_forms(said) | _retry_after(status)
                    for status, said in _REFUSALS.items()
                },
            )
        },
    }


def _operation(
    operation_id: str,
    description: str,
    *,
    done: dict[str, Any],
    body: dict[str, Any] | None = None,
    parameters: list[Any] | None = None,
    refusals: dict[str, Any] | None = None,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id,
        "description": description,
        "tags": ["ways in"],
        "security": [{"agentToken": []}],
        "responses": done | (refusals or _json_refusals()),
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    if parameters is not None:
        operation["parameters"] = parameters
    return operation


def _json_refusals() -> dict[str, Any]:
    return {
        status: _answer(said, "ErrorBody") | _retry_after(status)
        for status, said in _REFUSALS.items()
    }


def _retry_after(status: str) -> dict[str, Any]:
    return {"headers": _COME_BACK} if status in ("429", "503") else {}


def _answer(description: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": _ref(schema)}}}


def _in_both_forms(description: str) -> dict[str, Any]:
    content = {_PROTOBUF: {"schema": _BINARY}, _JSON: {"schema": {"type": "object"}}}
    return {"description": description, "content": content}


def _written() -> dict[str, Any]:
    return {
        f"X-Prometheus-Remote-Write-{kind}-Written": {"schema": {"type": "integer"}}
        for kind in ("Samples", "Histograms", "Exemplars")
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{_PREFIX}{name}"}
