"""A stand-in for Electricity Maps v3 on a port of this machine: the questions that are asked.

Its answers have the fields that the real one gives for them. Nobody of ours has asked the real one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "grid-token"
ZONES = ("DE", "NO-NO1")


@dataclass
class Grid:
    """The stand-in: what it says, and what it was asked."""

    url: str
    #: g CO2e/kWh by the start of the hour; None: not known yet
    history: dict[datetime, float | None] = field(default_factory=dict)
    forecast: dict[datetime, float] = field(default_factory=dict)
    #: EUR/MWh
    prices: dict[datetime, float] = field(default_factory=dict)
    price_forecast: dict[datetime, float] = field(default_factory=dict)
    unit: str = "EUR/MWh"
    #: in place of all answers: status and body
    instead: tuple[int, bytes] | None = None
    #: it takes requests and does not answer, until set
    hangs: threading.Event | None = None
    #: of forecasts alone
    forecast_status: int = 200
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str, token: str | None) -> tuple[int, bytes]:
        parts = urlsplit(path)
        self.asked.append(parts.path)
        if self.instead is not None:
            return self.instead
        if token != TOKEN:
            return 401, b'{"error":"Invalid auth-token"}'
        zone = parse_qs(parts.query).get("zone", [""])[0]
        if zone not in ZONES:
            return 404, b'{"error":"Zone does not exist"}'
        if parts.path.endswith("/carbon-intensity/history"):
            return 200, _body(zone, "history", self.history)
        if parts.path.endswith("/carbon-intensity/forecast"):
            return self.forecast_status, _body(zone, "forecast", self.forecast)
        if parts.path.endswith("/price-day-ahead/history"):
            return 200, self._priced(zone, "history", self.prices)
        if parts.path.endswith("/price-day-ahead/forecast"):
            return 200, self._priced(zone, "forecast", self.price_forecast)
        return 404, b"{}"

    def _priced(self, zone: str, name: str, points: dict[datetime, float]) -> bytes:
        rows = [
            {
                "zone": zone, "value": value, "unit": self.unit, "source": "nordpool.com",
                "datetime": hour.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            }
            for hour, value in points.items()
        ]  # fmt: skip
        return json.dumps({"zone": zone, name: rows}).encode()


def _body(zone: str, name: str, points: Any) -> bytes:
    rows = [
        {
            "zone": zone, "carbonIntensity": grams, "isEstimated": False,
            "datetime": hour.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "updatedAt": (hour + timedelta(hours=1)).isoformat(),
            "emissionFactorType": "lifecycle", "estimationMethod": None,
        }
        for hour, grams in points.items()
    ]  # fmt: skip
    return json.dumps({"zone": zone, name: rows}).encode()


@contextmanager
def grid() -> Iterator[Grid]:
    """Run the stand-in."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if made.hangs is not None:
                made.hangs.wait(30)
                return
            status, body = made.answer(self.path, self.headers.get("auth-token"))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Grid(f"http://127.0.0.1:{server.server_address[1]}/v3")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        if made.hangs is not None:
            made.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join()
