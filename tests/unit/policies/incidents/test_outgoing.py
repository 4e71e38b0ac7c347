"""Posting to other people's servers: real sockets, and addresses that nobody may name."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from policies.incidents.outgoing import Forbidden, Unreachable, check_url, post, sign
from tests.builders.servers import listening, statuses


@pytest.fixture
def _loopback(settings: Any) -> None:
    settings.NOTIFY_ALLOWED_NETWORKS = ["127.0.0.0/8"]


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that sends one byte of an endless header every tenth of a second."""
    server = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = server.accept()
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not stop.wait(0.1):
                    connection.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    stop.set()
    thread.join(2)
    server.close()


@pytest.mark.usefixtures("_loopback")
class TestPosting:
    def test_it_posts_and_returns_the_answer(self) -> None:
        with listening(statuses(201)) as server:
            answer = post(f"{server.url}/hook?a=b", b"{}", {"X-Test": "1"})
        assert (answer.status, answer.text, answer.is_good) == (201, "said", True)
        (got,) = server.received
        assert got.path == "/hook?a=b"
        assert got.body == b"{}"
        assert got.headers["X-Test"] == "1"
        assert got.headers["Host"] == server.url.removeprefix("http://")

    @pytest.mark.parametrize(
        ("status", "is_final"),
        [(302, True), (400, True), (404, True), (408, False), (429, False), (500, False)],
    )
    def test_what_is_worth_another_try(self, status: int, is_final: bool) -> None:
        with listening(statuses(status)) as server:
            answer = post(server.url, b"", {})
        assert (answer.is_good, answer.is_final) == (False, is_final)
        assert len(server.received) == 1

    @pytest.mark.parametrize(
        ("text", "expected"), [("7", 7.0), ("999999", 3600.0), ("soon", None), ("-1", None)]
    )
    def test_it_hears_how_long_to_wait(self, text: str, expected: float | None) -> None:
        with listening(statuses(429, headers={"Retry-After": text})) as server:
            assert post(server.url, b"", {}).retry_after_s == expected

    def test_one_that_hangs_is_left_in_time(self) -> None:
        begin = time.monotonic()
        with listening(hangs=True) as server, pytest.raises(Unreachable, match=r"within 0\.4 s"):
            post(server.url, b"", {}, timeout_s=0.4)
        assert time.monotonic() - begin < 9

    def test_so_is_one_that_drips(self, dripping: str) -> None:
        begin = time.monotonic()
        with pytest.raises(Unreachable, match=r"within 0\.5 s"):
            post(dripping, b"", {}, timeout_s=0.5)
        assert time.monotonic() - begin < 9

    def test_so_is_one_that_drips_instead_of_greeting(self, dripping: str) -> None:
        begin = time.monotonic()
        with pytest.raises(Unreachable):
            post(dripping.replace("http:", "https:"), b"", {}, timeout_s=0.5)
        assert time.monotonic() - begin < 9

    def test_nobody_there_is_unreachable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with pytest.raises(Unreachable):
            post(f"http://127.0.0.1:{port}/", b"", {}, timeout_s=1)

    def test_a_header_that_would_be_two_is_refused(self) -> None:
        with listening() as server, pytest.raises(Forbidden):
            post(server.url, b"", {"X-Test": "1\r\nX-Other: 2"})
        assert not server.received

    def test_an_answer_without_end_is_cut(self) -> None:
        def endless(_: int) -> tuple[int, dict[str, str], str]:
            return 200, {}, "x" * 1_000_000

        with listening(endless) as server:
            assert len(post(server.url, b"", {}).text) == 16_384


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[ff02::1]",
    ],
)
def test_what_is_no_public_address_is_refused(host: str) -> None:
    with pytest.raises(Forbidden, match="NOTIFY_ALLOWED_NETWORKS"):
        check_url(f"https://{host}/x")
    with pytest.raises(Forbidden):
        post(f"http://{host}:1/x", b"", {}, timeout_s=1)


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1", "127.1", "0"])
def test_other_names_of_this_machine_are_refused_when_they_are_resolved(host: str) -> None:
    with listening() as server:
        port = server.url.rpartition(":")[2]
        with pytest.raises((Forbidden, Unreachable)):
            post(f"http://{host}:{port}/", b"", {}, timeout_s=2)
        assert not server.received


def test_a_name_with_one_address_of_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns a name can have it point anywhere, and elsewhere at each question."""
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(Forbidden, match=r"example\.com is at 127"):
        post("http://example.com/", b"", {}, timeout_s=1)


def test_the_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.NOTIFY_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    real, asked = socket.getaddrinfo, []

    def resolve(host: str, *args: Any, **options: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if host == "hooks.example.com" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with listening() as server:
        port = server.url.rpartition(":")[2]
        post(f"http://hooks.example.com:{port}/", b"", {})
        assert server.received[0].headers["Host"] == f"hooks.example.com:{port}"
    assert asked.count("hooks.example.com") == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/x",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "https://user:pass@example.com/",
        "https://example.com:99999/",
        "https://example.com/a b",
        "https://example.com/\r\nX: y",
        "https://[::1/",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        check_url(url)


@pytest.mark.parametrize("url", ["https://hooks.example.com/a?b=c", "http://93.184.216.34:8080/"])
def test_public_addresses_are_taken(url: str) -> None:
    assert check_url(url).hostname


def test_an_allowed_network_is_allowed_and_no_other(settings: Any) -> None:
    settings.NOTIFY_ALLOWED_NETWORKS = ["10.20.0.0/16", "fd12::/16"]
    check_url("http://10.20.3.4/")
    check_url("http://[fd12::1]/")
    check_url("http://[::ffff:10.20.3.4]/")
    with pytest.raises(Forbidden):
        check_url("http://10.21.3.4/")


def test_a_network_that_is_none_is_said_at_the_start(settings: Any) -> None:
    from policies.incidents import checks

    settings.NOTIFY_ALLOWED_NETWORKS = ["10.0.0.1/8"]
    (said,) = checks.notify_networks()
    assert said.id == "headroom.E004"
    settings.NOTIFY_ALLOWED_NETWORKS = []
    assert checks.notify_networks() == []


def test_inhibitions_that_cannot_be_read_are_said_at_the_start(
    settings: Any, tmp_path: Any
) -> None:
    from policies.incidents import checks

    assert checks.inhibitions_file() == []
    settings.INHIBITIONS_FILE = str(tmp_path / "missing.yaml")
    (said,) = checks.inhibitions_file()
    assert said.id == "headroom.E003"
    assert "missing.yaml" in said.msg


def test_a_signature_is_of_time_and_body() -> None:
    # RFC 4231 leaves no doubt about HMAC; this pins what is signed: "time.body".
    import hashlib
    import hmac

    expected = hmac.new(b"key", b"1700000000.{}", hashlib.sha256).hexdigest()
    assert sign("key", 1_700_000_000, b"{}") == expected
