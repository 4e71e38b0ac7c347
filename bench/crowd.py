"""Thousands of HTTP clients in one thread, for ``bench.connections``.

``python -m bench.crowd agents`` or ``others``: says ``ready`` on a line of its own, takes the span
in which it is to count (Unix times) as a line of JSON, and prints what it has counted as the last
line. It shares the cores with the server, so a client is little more than its socket.
"""

from __future__ import annotations

import heapq
import json
import re
import resource
import selectors
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import zstandard

from lab.enroll import Server
from lab.load import Settings, Template, enrolled

#: Told the status of an answer (0: the connection was closed before it), its head and its body.
Answered: TypeAlias = Callable[[int, bytes, bytes], None]

#: An agent pushes one reading of each of its GPUs this often, s.
AGENT_PACE_S = 10.0
#: Agents push for the first time within this, s: what a server hears first costs it most.
RAMP_S = 60.0
#: How often the Fleet page asks for the heatmap and for its panel, s: static/js/fleet.js, and
#: templates/dashboard/panels/fleet.html.
HEATMAP_S, PANEL_S = 1.0, 2.0
PROBE_S = 0.1
#: An attacker sends one more byte this often, and comes again so soon after it was cut, s.
TRICKLE_S, AGAIN_S = 1.0, 0.5
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Crowd:
    """Clients of one server, and a schedule of calls."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or 80)
        self._selector = selectors.DefaultSelector()
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when: float, plan: Callable[[], None]) -> None:
        """Call ``plan`` at ``when`` (Unix s)."""
        self._number += 1
        heapq.heappush(self._plans, (when, self._number, plan))

    def run(self, until: float) -> None:
        """Serve all clients until the given time."""
        while (now := time.time()) < until:
            while self._plans and self._plans[0][0] <= now:
                heapq.heappop(self._plans)[2]()
            wait = self._plans[0][0] - time.time() if self._plans else until - now
            for key, _ in self._selector.select(max(0.0, min(wait, 0.5))):
                key.data()

    def watch(self, made: socket.socket, ready: Callable[[], None]) -> None:
        """Call ``ready`` whenever the socket has something to read."""
        self._selector.register(made, selectors.EVENT_READ, ready)

    def forget(self, made: socket.socket) -> None:
        """Close the socket."""
        self._selector.unregister(made)
        made.close()


class Connection:
    """One client, which asks one thing at a time and stays connected."""

    def __init__(self, crowd: Crowd, source: str = "127.0.0.1") -> None:
        self._crowd = crowd
        self._source = source
        self._socket: socket.socket | None = None
        self._answered: Answered | None = None
        self._got = b""
        self.reconnects = -1

    @property
    def waits(self) -> bool:
        """Whether an answer is awaited."""
        return self._answered is not None

    def connect(self) -> None:
        """Connect anew."""
        self.close()
        # Bound to no port: the kernel then looks for one that is free towards this server.
        self._socket = socket.create_connection(self._crowd.address, 30, (self._source, 0))
        self._socket.setblocking(False)
        self._crowd.watch(self._socket, self._read)
        self.reconnects += 1

    def close(self) -> None:
        """Close it, if it is open."""
        if self._socket is not None:
            self._crowd.forget(self._socket)
        self._socket, self._got = None, b""

    def ask(self, request: bytes, answered: Answered) -> None:
        """Send a request; ``answered`` is called with its outcome."""
        self._answered = answered
        try:
            if self._socket is None:
                self.connect()
            self.send(request)
        except OSError:
            self._end(0, b"", b"")

    def send(self, data: bytes) -> None:
        """Send more of a request."""
        if self._socket is not None:
            self._socket.sendall(data)

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(262_144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self._end(0, b"", b"")
            return
        self._got += data
        head, end, rest = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        if len(rest) >= length:
            self._got = b""
            self._end(int(head[9:12]), head, rest)

    def _end(self, status: int, head: bytes, body: bytes) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(status, head, body)


@dataclass
class Counts:
    """Counts and times of the answers between ``begin`` and ``end`` (Unix s)."""

    begin: float
    end: float
    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    took_s: dict[str, list[float]] = field(default_factory=dict)

    def note(self, kind: str, status: int, asked_at: float) -> None:
        """Note an answer, if it was asked for in the span."""
        if self.begin <= asked_at < self.end:
            self.statuses.setdefault(kind, Counter())[status] += 1
            self.took_s.setdefault(kind, []).append(time.time() - asked_at)


# --- Agents --------------------------------------------------------------------------------------


@dataclass
class Agent:
    """An agent that pushes a batch of its node at its pace, whatever else happens."""

    crowd: Crowd
    counts: Counts
    connection: Connection
    head: bytes
    template: Template
    seq: int = 0

    def push(self, due: float) -> None:
        """Push the next batch, and plan the one after it."""
        self.crowd.at(due + AGENT_PACE_S, lambda: self.push(due + AGENT_PACE_S))
        now = time.time()
        if self.connection.waits:
            self.counts.note("late", 0, now)
            return
        self.seq += 1
        body = self.template.body(self.seq, self.seq, now)
        self.connection.ask(
            b"%sContent-Length: %d\r\n\r\n%s" % (self.head, len(body), body),
            lambda status, _head, _body: self.counts.note("push", status, now),
        )


def run_agents(options: dict[str, Any]) -> dict[str, Any]:
    """Connect an agent for each node, and push."""
    crowd = Crowd(options["url"])
    counts = Counts(0.0, 0.0)
    compressor = zstandard.ZstdCompressor()
    server = Server(options["url"], Path(options["token_file"]).read_text(), connections=1)
    fleet = enrolled(
        server,
        Settings(gpus=options["gpus"], batch_gpus=8, rate=0, duration_s=0),
        stop=threading.Event(),
    )
    agents = [
        Agent(
            crowd,
            counts,
            Connection(crowd),
            _head("POST", "/api/v1/telemetry", f"Authorization: Bearer {each.token}")
            + b"Content-Type: application/msgpack\r\nContent-Encoding: zstd\r\n",
            Template(each.name, uuid.uuid4().hex, each.reports, compressor),
        )
        for each in fleet
    ]
    for agent in agents:
        agent.connection.connect()
    _wait_for_span(counts)
    start = time.time()
    for place, agent in enumerate(agents):
        due = start + place / len(agents) * RAMP_S
        crowd.at(due, lambda agent=agent, due=due: agent.push(due))  # type: ignore[misc]
    used = time.process_time()
    crowd.run(counts.end + 5.0)
    return {
        "agents": len(agents),
        "reconnects": sum(agent.connection.reconnects for agent in agents),
        "cpu_s": time.process_time() - used,
        "ran_s": time.time() - start,
        **_told(counts),
    }


# --- Others --------------------------------------------------------------------------------------


@dataclass
class Browser:
    """An open Fleet page: one address that it asks again and again, on a connection of its own."""

    crowd: Crowd
    counts: Counts
    kind: str
    path: str
    cookie: str
    every_s: float
    connection: Connection
    etag: str = ""

    def poll(self) -> None:
        """Ask, and plan to ask again after the answer."""
        began = time.time()
        same = f"If-None-Match: {self.etag}\r\n" if self.etag else ""
        head = _head("GET", self.path, f"Cookie: {self.cookie}", "Accept-Encoding: gzip, zstd")

        def answered(status: int, head: bytes, _body: bytes) -> None:
            self.counts.note(self.kind, status, began)
            if found := re.search(rb"etag: (\S+)", head):
                self.etag = found[1].decode()
            self.crowd.at(max(began + self.every_s, time.time() + 0.1), self.poll)

        self.connection.ask(head + same.encode() + b"\r\n", answered)


@dataclass
class Attacker:
    """Sends headers and then a byte now and then; comes again when it is cut."""

    crowd: Crowd
    counts: Counts
    head: bytes
    connection: Connection
    turn: int = 0

    def begin(self) -> None:
        """Send the headers and the first byte."""
        self.turn += 1
        began, turn = time.time(), self.turn

        def answered(status: int, _head: bytes, _body: bytes) -> None:
            self.turn += 1
            self.counts.note("attack", status, began)
            self.connection.close()
            self.crowd.at(time.time() + AGAIN_S, self.begin)

        self.connection.ask(self.head + b"x", answered)
        self.crowd.at(began + TRICKLE_S, lambda: self.trickle(turn))

    def trickle(self, turn: int) -> None:
        """Send one more byte, if this is still the same request."""
        if turn != self.turn:
            return
        try:
            self.connection.send(b"x")
        except OSError:
            return
        self.crowd.at(time.time() + TRICKLE_S, lambda: self.trickle(turn))


@dataclass
class Probe:
    """Asks for /healthz, on a new connection each time."""

    crowd: Crowd
    counts: Counts

    def ask(self) -> None:
        """Ask, and plan to ask again."""
        began = time.time()
        self.crowd.at(began + PROBE_S, self.ask)
        connection = Connection(self.crowd, "127.0.0.3")

        def answered(status: int, _head: bytes, _body: bytes) -> None:
            self.counts.note("healthz", status, began)
            connection.close()

        connection.ask(_head("GET", "/healthz") + b"\r\n", answered)


def run_others(options: dict[str, Any]) -> dict[str, Any]:
    """Open browsers, attack, and probe the server."""
    crowd = Crowd(options["url"])
    counts = Counts(0.0, 0.0)
    _wait_for_span(counts)
    start = time.time()
    for place, cookie in enumerate(options["cookies"]):
        for kind, path, every_s in (
            ("heatmap", "/live/fleet?metric=tightest", HEATMAP_S),
            ("panel", "/live/fleet/panel", PANEL_S),
        ):
            connection = Connection(crowd, f"127.0.1.{1 + place % 200}")
            browser = Browser(crowd, counts, kind, path, cookie, every_s, connection)
            crowd.at(start + place / len(options["cookies"]) * every_s, browser.poll)
    for place in range(options["attackers"]):
        # So many to an address that all of them get as far as sending.
        connection = Connection(crowd, f"127.0.2.{1 + place // 16}")
        head = _ATTACKS[place % len(_ATTACKS)]
        crowd.at(start + place * 0.01, Attacker(crowd, counts, head, connection).begin)
    crowd.at(start, Probe(crowd, counts).ask)
    used = time.process_time()
    crowd.run(counts.end + 5.0)
    return {"cpu_s": time.process_time() - used, "ran_s": time.time() - start, **_told(counts)}


def _head(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    return ("\r\n".join(lines) + "\r\n").encode()


_FORM = "Content-Type: application/x-www-form-urlencoded"
_CSRF = f"Cookie: csrftoken={'a' * 32}"
_ATTACKS = [
    _head("POST", "/login/", _CSRF, _FORM, "Content-Length: 60000") + b"\r\n",
    _head("POST", "/api/v1/telemetry", "Content-Length: 100000") + b"\r\n",
    _head("POST", "/login/", _CSRF, _FORM, "Content-Length: 9000") + b"\r\n",
    _head("POST", "/api/v1/jobs", "Content-Length: 60000") + b"\r\n",
]


# --- The process ---------------------------------------------------------------------------------


def _wait_for_span(counts: Counts) -> None:
    print("ready", flush=True)
    counts.begin, counts.end = json.loads(sys.stdin.readline())


def _told(counts: Counts) -> dict[str, Any]:
    return {
        "statuses": {kind: dict(found) for kind, found in counts.statuses.items()},
        "took_s": counts.took_s,
    }


def main() -> None:
    """Run the crowd that the command line and standard input describe."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options = json.loads(sys.stdin.readline())
    run = {"agents": run_agents, "others": run_others}[sys.argv[1]]
    print(json.dumps(run(options)), flush=True)


if __name__ == "__main__":
    main()
