"""The storage of a matrix, and the relay to it."""

from __future__ import annotations

import hashlib
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.matrix.faults.links import Link, Trouble
from lab.matrix.faults.relay import Relay
from lab.matrix.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "storage")
    yield made
    made.close()


@pytest.fixture
def link() -> Link:
    return Link("storage")


@pytest.fixture
def url(store: Store, link: Link) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    relay = Relay(listening, store.address, link, has_trouble=True)
    yield f"http://127.0.0.1:{port}"
    relay.close()


def ask(url: str, method: str, body: bytes | None = None) -> tuple[bytes, str]:
    request = urllib.request.Request(url, data=body, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read(), answer.headers["ETag"].strip('"')


@pytest.mark.parametrize("name", ["step-1.pt", "a/b c.pt", "..%2F..%2Fetc", ".draft-x"])
def test_what_is_stored_comes_back_with_its_digest(url: str, name: str, tmp_path: Path) -> None:
    body = b"x" * 300_000
    name = urllib.parse.quote(name)
    assert ask(f"{url}/{name}", "PUT", body)[1] == hashlib.sha256(body).hexdigest()
    assert ask(f"{url}/{name}", "GET")[0] == body
    assert ask(f"{url}/", "GET")[0]
    assert [path.parent for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "storage"]
    ask(f"{url}/{name}", "DELETE")
    with pytest.raises(urllib.error.HTTPError) as error:
        ask(f"{url}/{name}", "GET")
    error.value.close()
    assert error.value.code == 404


def test_what_breaks_off_is_not_stored(store: Store, tmp_path: Path) -> None:
    with socket.create_connection(store.address) as half:
        half.sendall(b"PUT /half HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf of it")
    time.sleep(0.1)
    assert list((tmp_path / "storage").iterdir()) == []


def test_a_slow_path_takes_its_time(url: str, link: Link) -> None:
    link.begin(0, Trouble(latency_s=0.1))
    began_s = time.monotonic()
    ask(f"{url}/x", "PUT", b"x")
    assert time.monotonic() - began_s >= 0.2
    assert link.bytes > 0


def test_over_a_cut_path_nothing_comes_until_it_is_back(url: str, link: Link) -> None:
    link.begin(0, Trouble(is_cut=True))
    request = urllib.request.Request(f"{url}/x", data=b"x", method="PUT")
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(request, timeout=0.2)
    link.end(0)
    assert ask(f"{url}/y", "PUT", b"y")[1]
