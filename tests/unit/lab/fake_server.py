"""A server that takes what the twin sends, over real sockets, and misbehaves when told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import zstandard

from headroom import layouts
from headroom.contracts import TelemetryBatch, decode_batch

OPERATOR_TOKEN = "hru_operator"


@dataclass
class FakeServer:
    """What arrived. Batches are stored at once unless ``forget`` or ``lag`` says otherwise."""

    url: str = ""
    inventories: list[str] = field(default_factory=list)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    batches: dict[tuple[str, str, int], TelemetryBatch] = field(default_factory=dict)
    marks: dict[tuple[str, str], int] = field(default_factory=dict)
    #: ISO times by agent; None: never
    last_seen_at: dict[str, str] = field(default_factory=dict)
    pushes: int = 0
    down: bool = False
    #: take batches but lose them, as a Redis that is killed
    forget: bool = False
    #: refuse these seqs
    refuse: set[int] = field(default_factory=set)
    #: limits in force, each as the contract has it; an agent is told those of its nodes
    limits: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def durable_seq(self, agent: str, boot_id: str) -> int:
        """The highest seq up to which there is no gap, ``oldest_seq`` allowed for."""
        mark = self.marks.get((agent, boot_id), 0)
        while (agent, boot_id, mark + 1) in self.batches:
            mark += 1
        self.marks[agent, boot_id] = mark
        return mark

    def stored(self, agent: str) -> list[TelemetryBatch]:
        with self.lock:
            return [self.batches[key] for key in sorted(self.batches) if key[0] == agent]

    def apply(self, text: str) -> Any:
        self.inventories.append(text)
        return {"created": {}}

    def enroll(self, wanted: list[dict[str, Any]], rotate: bool) -> tuple[int, Any]:
        for agent in wanted:
            if agent["name"] in self.agents and not rotate:
                return 409, {"error": {"code": "name_taken", "message": "taken"}}
            number = self.agents.get(agent["name"], {}).get("number", 0) + 1
            token = f"hra_{agent['name']}_{number}"
            self.agents[agent["name"]] = agent | {"token": token, "number": number}
        return 201, [
            {"name": agent["name"], "token": self.agents[agent["name"]]["token"]}
            for agent in wanted
        ]

    def known_agents(self) -> list[dict[str, Any]]:
        return [{"name": name, "last_seen_at": self.last_seen_at.get(name)} for name in self.agents]

    def push(self, body: bytes, token: str) -> tuple[int, Any]:
        batch = decode_batch(zstandard.decompress(body), json=False)
        if self.agents[batch.agent]["token"] != token:
            return 401, {"error": {"code": "unauthorized", "message": "no such token"}}
        if batch.seq in self.refuse:
            return 400, {"error": {"code": "unknown_node", "message": "no such node"}}
        if not self.forget:
            life = batch.agent, batch.boot_id
            self.batches[*life, batch.seq] = batch
            # What is below oldest_seq will never come.
            self.marks[life] = max(self.marks.get(life, 0), batch.oldest_seq - 1)
        return 202, self.ack(batch.agent, batch.boot_id)

    def limits_of(self, agent: str) -> dict[str, Any]:
        nodes = self.agents[agent]["nodes"]
        found = [limit for limit in self.limits if limit["node"] in nodes]
        return {"limits": found, "now": time.time(), "valid_for_s": 60.0}

    def ack(self, agent: str, boot_id: str) -> dict[str, Any]:
        return {"durable_seq": self.durable_seq(agent, boot_id), "received_at": time.time()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        token = self.headers["Authorization"].removeprefix("Bearer ")
        with self.fake.lock:
            self._answer(*self._route(body, token))

    def _route(self, body: bytes, token: str) -> tuple[int, Any]:
        if self.fake.down:
            return 503, {"error": {"code": "unavailable", "message": "down"}}
        url = urlsplit(self.path)
        if url.path == "/api/v1/telemetry":
            self.fake.pushes += 1
            return self.fake.push(body, token)
        if url.path == layouts.PATH:  # it takes typed batches alone
            return 404, {}
        if token != OPERATOR_TOKEN:
            return 403, {"error": {"code": "forbidden", "message": "not an operator"}}
        if url.path == "/api/v1/agents":
            return self.fake.enroll(json.loads(body), parse_qs(url.query).get("rotate") == ["1"])
        if url.path == "/api/v1/fleet/apply":
            return 200, self.fake.apply(body.decode())
        return 404, {"error": {"code": "not_found", "message": "no such page"}}

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        token = self.headers["Authorization"].removeprefix("Bearer ")
        if url.path == "/api/v1/agents":
            self._answer(200, {"results": self.fake.known_agents()})
            return
        name = next(n for n, agent in self.fake.agents.items() if agent["token"] == token)
        if url.path == "/api/v1/limits":
            if self.fake.down:
                self._answer(503, {"error": {"code": "unavailable", "message": "down"}})
            else:
                self._answer(200, self.fake.limits_of(name))
            return
        with self.fake.lock:
            self._answer(200, self.fake.ack(name, parse_qs(url.query)["boot_id"][0]))

    def _answer(self, status: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serve() -> Iterator[FakeServer]:
    """Run a fake server on a free port of this machine."""
    fake = FakeServer()
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
