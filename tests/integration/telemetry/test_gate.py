"""Good batches are taken before Django; everything else is answered as if the gate were not."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
import zstandard
from django.test.client import ClientHandler
from pytest_django import Settings

from headroom.contracts import encode_batch
from telemetry import stream
from telemetry.gate import Gate
from telemetry.metrics import BATCHES
from telemetry.models import Agent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


class Behind:
    """Django behind the gate, and what came through to it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._django = ClientHandler()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.requests.append(environ["PATH_INFO"])
        answer: Any = self._django(environ)
        start_response(f"{answer.status_code} {answer.reason_phrase}", list(answer.items()))
        return [answer.content]


class Caller:
    """Sends requests through the gate as a WSGI server does."""

    def __init__(self, source: Source) -> None:
        self.behind = Behind()
        self.took: list[float] = []
        self._gate = Gate(self.behind, self.took.append)
        self._source = source

    def send(self, body: bytes, path: str = "/api/v1/telemetry", **environ: str) -> tuple[str, Any]:
        answered: list[tuple[str, list[tuple[str, str]]]] = []
        content = io.BytesIO(body)
        answer = self._gate(
            {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": path,
                "QUERY_STRING": "",
                "SCRIPT_NAME": "",
                "SERVER_NAME": "localhost",
                "SERVER_PORT": "80",
                "SERVER_PROTOCOL": "HTTP/1.1",
                "HTTP_HOST": "localhost",
                "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_TYPE": "application/msgpack",
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_AUTHORIZATION": f"Bearer {self._source.token}",
                "wsgi.url_scheme": "http",
                "wsgi.input": content,
                "wsgi.errors": sys.stderr,
                **environ,
            },
            lambda status, headers, exc_info=None: answered.append((status, headers)),
        )
        self.left_unread = len(body) - content.tell()
        self.headers = dict(answered[0][1])
        return answered[0][0], b"".join(answer)


@pytest.fixture
def caller(source: Source) -> Caller:
    return Caller(source)


def test_a_good_batch_does_not_reach_django(caller: Caller) -> None:
    body = zstandard.compress(encode_batch(make_batch("agent-1", "n1")))
    status, answer = caller.send(body, HTTP_CONTENT_ENCODING="zstd")
    assert status == "202 Accepted"
    assert b'"durable_seq":0' in answer
    assert caller.headers["Content-Type"] == "application/json"
    assert caller.headers["X-Content-Type-Options"] == "nosniff"
    assert caller.behind.requests == []
    assert drain_everything() == 1


def test_a_good_batch_is_counted_and_timed_and_no_other_is(caller: Caller) -> None:
    accepted = BATCHES.labels("accepted")
    before = accepted._value.get()
    caller.send(encode_batch(make_batch("agent-1", "n1")))
    caller.send(encode_batch(make_batch("agent-1", "n9")))
    assert accepted._value.get() == before + 1
    assert len(caller.took) == 1
    assert 0 < caller.took[0] < 5


def test_what_is_wrong_is_answered_noted_and_stored_nowhere(caller: Caller) -> None:
    status, answer = caller.send(encode_batch(make_batch("agent-1", "n9")))
    assert status == "400 Bad Request"
    assert b"unknown_node" in answer
    assert caller.behind.requests == ["/api/v1/telemetry"]
    assert Agent.objects.get().refused_batches == 1
    assert stream.backlog(0) == 0


def test_what_can_be_taken_of_a_batch_is_taken_once(caller: Caller) -> None:
    power: list[float | None] = [-1.0, *[300.0] * 7]
    status, answer = caller.send(encode_batch(make_batch("agent-1", "n1", power_w=power)))
    assert status == "400 Bad Request"
    assert b'"refused_rows":1' in answer
    assert stream.backlog(0) == 1


def test_no_token_is_unauthorized(caller: Caller) -> None:
    status, _ = caller.send(encode_batch(make_batch("agent-1", "n1")), HTTP_AUTHORIZATION="")
    assert status == "401 Unauthorized"
    assert caller.headers["WWW-Authenticate"] == "Bearer"


def test_a_body_over_the_limit_is_not_read(caller: Caller) -> None:
    status, _ = caller.send(bytes(10), CONTENT_LENGTH=str(17 * 2**20))
    assert status == "413 Request Entity Too Large"
    assert caller.left_unread == 10


@pytest.mark.parametrize("length", ["", "ten", "-1"])
def test_a_length_that_is_none_is_djangos_matter(caller: Caller, length: str) -> None:
    status, _ = caller.send(encode_batch(make_batch("agent-1", "n1")), CONTENT_LENGTH=length)
    assert status == "400 Bad Request"
    assert caller.behind.requests


def test_other_paths_and_methods_pass(caller: Caller) -> None:
    status, _ = caller.send(
        b"", "/api/v1/telemetry/position", REQUEST_METHOD="GET", QUERY_STRING="boot_id=b"
    )
    assert status == "200 OK"
    status, _ = caller.send(b"", REQUEST_METHOD="GET")
    assert status == "405 Method Not Allowed"


def test_in_the_clear_where_tls_is_asked_for_no_batch_is_taken(
    caller: Caller, settings: Settings
) -> None:
    settings.BEHIND_TLS = settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    body = encode_batch(make_batch("agent-1", "n1"))
    assert caller.send(body)[0] == "301 Moved Permanently"
    assert stream.backlog(0) == 0
    assert caller.send(body, HTTP_X_FORWARDED_PROTO="https")[0] == "202 Accepted"


def test_a_redis_that_was_started_anew_costs_no_answer(caller: Caller) -> None:
    caller.send(encode_batch(make_batch("agent-1", "n1", 1)))
    connection = stream.connection()
    connection.script_flush()
    connection.client_kill_filter(_type="normal", skipme=True)
    assert caller.send(encode_batch(make_batch("agent-1", "n1", 2)))[0] == "202 Accepted"
    assert caller.behind.requests == []
    assert stream.backlog(0) == 2
