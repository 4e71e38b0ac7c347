"""A VTN to stand in for a grid's: a real HTTP server with tokens that end, and with faults.

What it sends and takes is held to facts of OpenADR 3.0.1's published OpenAPI file: names, required
fields, types, patterns and enumerations of the objects that are exchanged.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.json_schema import validator

__all__ = ["CLIENT_ID", "SCHEMAS", "SECRET", "StandIn", "serving"]

CLIENT_ID, SECRET = "ven-7", "s3cret-of-ven-7"
_ID = {"type": "string", "pattern": "^[a-zA-Z0-9_-]*$", "minLength": 1, "maxLength": 128}
_NAME = {"type": "string", "minLength": 1, "maxLength": 128}
_TEXT = {"type": ["string", "null"]}
_DURATION = {
    "type": "string",
    "pattern": r"^(-?)P(?=\d|T\d)(\d+[YMWD])*(T(\d+H)?(\d+M)?([\d.]+S)?)?$",
}
_PERIOD = {
    "type": "object",
    "required": ["start"],
    "properties": {
        "start": {"type": "string", "format": "date-time"},
        "duration": _DURATION,
        "randomizeStart": _DURATION,
    },
}
_VALUES = {
    "type": "object",
    "required": ["type", "values"],
    "properties": {
        "type": _NAME,
        "values": {
            "type": "array",
            "items": {"type": ["number", "string", "boolean", "object"]},
        },
    },
}
_INTERVAL = {
    "type": "object",
    "required": ["id", "payloads"],
    "properties": {
        "id": {"type": "integer"},
        "intervalPeriod": _PERIOD,
        "payloads": {"type": "array", "items": _VALUES},
    },
}
#: The objects by their names in the OpenAPI file.
SCHEMAS: dict[str, dict[str, Any]] = {
    "program": {
        "type": "object",
        "required": ["programName"],
        "properties": {"id": _ID, "programName": _NAME, "objectType": {"enum": ["PROGRAM"]}},
    },
    "event": {
        "type": "object",
        "required": ["programID", "intervals"],
        "properties": {
            "id": _ID,
            "programID": _ID,
            "objectType": {"enum": ["EVENT"]},
            "eventName": _TEXT,
            "intervalPeriod": _PERIOD,
            "intervals": {"type": "array", "items": _INTERVAL},
            "payloadDescriptors": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "required": ["payloadType"],
                    "properties": {"payloadType": _NAME, "units": _TEXT},
                },
            },
        },
    },
    "report": {
        "type": "object",
        "required": ["programID", "eventID", "clientName", "resources"],
        "properties": {
            "programID": _ID,
            "eventID": _ID,
            "clientName": _NAME,
            "reportName": _TEXT,
            "payloadDescriptors": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "required": ["payloadType"],
                    "properties": {
                        "payloadType": _NAME,
                        "readingType": _TEXT,
                        "units": _TEXT,
                        "accuracy": {"type": ["number", "null"]},
                        "confidence": {"type": ["integer", "null"], "minimum": 0, "maximum": 100},
                    },
                },
            },
            "resources": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["resourceName", "intervals"],
                    "properties": {
                        "resourceName": _NAME,
                        "intervalPeriod": _PERIOD,
                        "intervals": {"type": "array", "items": _INTERVAL},
                    },
                },
            },
        },
    },
}


@dataclass
class StandIn:
    """What the VTN has, and how it behaves."""

    url: str = ""
    programs: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    #: how long tokens serve, s; what the token endpoint says of it
    token_s: float = 3600.0
    says_s: float | None = None
    #: "", "error", "slow", "garbage", "redirect"
    fault: str = ""
    tokens: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add_program(self, name: str = "cold-days") -> str:
        self._keep("program", self.programs, {"id": "p-1", "programName": name})
        return "p-1"

    def add_event(self, number: int, **given: Any) -> dict[str, Any]:
        made = {"id": f"e-{number}", "programID": "p-1", "objectType": "EVENT", **given}
        self._keep("event", self.events, made)
        return made

    def _keep(self, kind: str, rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
        validator(SCHEMAS[kind]).validate(row)
        rows.append(row)


class _Handler(BaseHTTPRequestHandler):
    vtn: StandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.vtn.asked.append(f"POST {self.path}")
        if self.path == "/auth/token":
            self._token(parse_qs(body.decode()))
        elif not self._is_known():
            self._answer(401, {"title": "token"})
        elif self.path == "/reports":
            report = json.loads(body)
            validator(SCHEMAS["report"]).validate(report)
            self.vtn.reports.append(report)
            self._answer(201, report)

    def do_GET(self) -> None:
        self.vtn.asked.append(f"GET {self.path}")
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not self._is_known():
            self._answer(401, {"title": "token"})
        elif self.vtn.fault == "error":
            self._answer(503, {"title": "away"})
        elif self.vtn.fault == "slow":
            time.sleep(1.0)
            self._answer(200, [])
        elif self.vtn.fault == "garbage":
            self._answer(200, {"events": "none"})
        elif self.vtn.fault == "redirect":
            self._answer(302, {}, Location="http://other.invalid/")
        else:
            rows = self.vtn.programs if parts.path == "/programs" else self.vtn.events
            first, count = int(asked.get("skip", 0)), int(asked.get("limit", 50))
            assert count <= 50
            program = asked.get("programID", "p-1")
            rows = [row for row in rows if program in (row["id"], row.get("programID"))]
            self._answer(200, rows[first : first + count])

    def _token(self, form: dict[str, list[str]]) -> None:
        given = {name: values[0] for name, values in form.items()}
        if given.get("grant_type") != "client_credentials" or (
            given.get("client_id"), given.get("client_secret")
        ) != (CLIENT_ID, SECRET):  # fmt: skip
            self._answer(401, {"error": "invalid_client"})
            return
        token = secrets.token_hex(8)
        self.vtn.tokens[token] = time.monotonic() + self.vtn.token_s
        says_s = self.vtn.token_s if self.vtn.says_s is None else self.vtn.says_s
        self._answer(
            200, {"access_token": token, "token_type": "Bearer", "expires_in": int(says_s)}
        )

    def _is_known(self) -> bool:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and self.vtn.tokens.get(token, 0.0) > time.monotonic()

    def _answer(self, status: int, body: Any, **headers: str) -> None:
        sent = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - theirs
        pass


@contextmanager
def serving() -> Iterator[StandIn]:
    """Serve a VTN on this machine."""
    vtn = StandIn()
    handler = type("Handler", (_Handler,), {"vtn": vtn})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    vtn.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield vtn
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
