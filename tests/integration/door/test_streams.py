"""Answers of each kind, by a real server with an application that streams behind the door."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import urllib3

from bench.stack import REPOSITORY, free_port
from tests.integration.door.raw import connected, crowd

#: Of one line of a stream, bytes.
LINE = 8200


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with one process, on the servers of the tests."""
    port = free_port()
    command = [
        sys.executable, "-m", "granian", "--interface", "rsgi",
        "tests.integration.door.streaming:application",
        "--port", str(port), "--http", "1", "--no-ws", "--workers", "1", "--backpressure", "500",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=REPOSITORY, env=os.environ) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url)
            yield url
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if _get(f"{url}/healthz").status == 200:
                return
        except urllib3.exceptions.HTTPError:
            time.sleep(0.1)
    raise TimeoutError(url)


def _get(url: str) -> urllib3.BaseHTTPResponse:
    return urllib3.PoolManager(retries=False, timeout=30).request("GET", url)


def _closed(url: str, stream: str) -> int:
    return int(_get(f"{url}/closed?{stream}").data)


def test_a_stream_is_sent_while_it_is_made(url: str) -> None:
    with connected(url) as raw:
        began = time.monotonic()
        raw.head("GET", "/stream?100,0.05")
        assert raw.socket.recv(12) == b"HTTP/1.1 200"
        first_s = time.monotonic() - began
        rest = 0
        while b"0000099" not in (piece := raw.socket.recv(65_536)):
            rest += len(piece)
        assert time.monotonic() - began > 4  # of 99 pauses
    assert first_s < 4
    assert rest > 90 * LINE


def test_a_short_stream_is_whole(url: str) -> None:
    answer = _get(f"{url}/stream?3,0")
    assert [line[:7] for line in answer.data.splitlines()] == [b"0000000", b"0000001", b"0000002"]
    assert answer.headers["Content-Type"] == "text/csv"


def test_a_client_that_leaves_ends_the_stream_and_it_is_closed(url: str) -> None:
    with connected(url) as raw:
        raw.head("GET", "/stream?100000,0.01")
        raw.socket.recv(100)
    end = time.monotonic() + 60
    while not _closed(url, "100000,0.01") and time.monotonic() < end:
        time.sleep(0.1)
    assert _closed(url, "100000,0.01") == 1


def test_streams_that_nobody_reads_leave_the_threads_to_others(url: str) -> None:
    # Three threads serve pages here, and what these bring is more than a socket holds.
    with crowd(url, 6) as clients:
        for client in clients:
            client.head("GET", "/stream?1000,0")
        assert len(_get(f"{url}/stream?1000,0").data) == 1000 * LINE


def test_an_application_that_fails_is_a_500_and_the_server_goes_on(url: str) -> None:
    answer = _get(f"{url}/fails")
    assert answer.status == 500
    assert b"server_error" in answer.data
    assert _get(f"{url}/empty").status == 204


def test_headers_are_joined_in_their_order_and_those_that_would_pass_for_others_dropped(
    url: str,
) -> None:
    with connected(url) as raw:
        raw.send(
            "GET /forwarded HTTP/1.1\r\nHost: localhost\r\nX_Forwarded_For: 6.6.6.6\r\n"
            "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\n\r\n"
        )
        assert raw.answer()[1] == b"1.1.1.1,2.2.2.2"
