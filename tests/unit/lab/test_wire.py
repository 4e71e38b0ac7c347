"""The load generator's own HTTP, against a real server and against one that breaks off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headroom.client import HeadroomError, Refused, Unauthorized, Unavailable, compress_batch
from lab.wire import Wire, WireAgent
from tests.builders.batches import make_batch
from tests.unit.lab.fake_server import FakeServer, serve


@contextmanager
def agent_of(fake: FakeServer, token: str = "hra_a_1") -> Iterator[WireAgent]:
    fake.agents["a"] = {"name": "a", "token": "hra_a_1"}
    wire = Wire(fake.url, timeout_s=5.0)
    try:
        yield WireAgent(wire, token)
    finally:
        wire.close()


def body(seq: int) -> bytes:
    return compress_batch(make_batch("a", "n1", seq))


def test_batches_are_pushed_and_asked_about_over_one_connection() -> None:
    with serve() as fake, agent_of(fake) as agent:
        assert [agent.push_compressed(body(seq)).durable_seq for seq in (1, 2)] == [1, 2]
        assert agent.position("boot-1").durable_seq == 2
        assert len(fake.batches) == 2


def test_a_refusal_has_its_code() -> None:
    with serve() as fake, agent_of(fake) as agent:
        fake.refuse = {1}
        with pytest.raises(Refused) as refused:
            agent.push_compressed(body(1))
        assert refused.value.error.code == "unknown_node"
        assert agent.push_compressed(body(2)).durable_seq == 0


def test_a_wrong_token_is_told_apart() -> None:
    with serve() as fake, agent_of(fake, "hra_wrong") as agent, pytest.raises(Unauthorized):
        agent.push_compressed(body(1))


def test_a_server_that_is_down_is_unavailable_and_found_again() -> None:
    with serve() as fake, agent_of(fake) as agent:
        fake.down = True
        with pytest.raises(Unavailable) as unavailable:
            agent.push_compressed(body(1))
        assert unavailable.value.status == 503
        fake.down = False
        assert agent.push_compressed(body(1)).durable_seq == 1


def answering(*parts: bytes, connections: int = 1) -> tuple[str, threading.Thread]:
    """A server that answers one request of each of ``connections`` with ``parts``, one after the
    other, and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_some() -> None:
        with listener:
            for _ in range(connections):
                with listener.accept()[0] as peer:
                    peer.recv(65_536)
                    for part in parts:
                        peer.sendall(part)

    thread = threading.Thread(target=serve_some)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", thread


@pytest.mark.parametrize("cut", [0, 5, 20, 60])
def test_an_answer_that_breaks_off_is_no_acknowledgement(cut: int) -> None:
    whole = (
        b'HTTP/1.1 202 Accepted\r\nContent-Length: 37\r\n\r\n{"durable_seq":1,"received_at":1.5}  '
    )
    url, thread = answering(whole[:cut])
    wire = Wire(url, timeout_s=5.0)
    with pytest.raises(Unavailable):
        WireAgent(wire, "t").push_compressed(b"x")
    wire.close()
    thread.join()


def test_a_connection_that_the_server_closed_is_made_anew_and_counted() -> None:
    acknowledged = (
        b'HTTP/1.1 202 OK\r\nContent-Length: 35\r\n\r\n{"durable_seq":1,"received_at":1.5}'
    )
    url, thread = answering(acknowledged, connections=3)
    wire = Wire(url, timeout_s=5.0)
    agent = WireAgent(wire, "t")
    assert [agent.push_compressed(b"x").durable_seq for _ in range(3)] == [1, 1, 1]
    assert wire.reconnects == 2
    # Nobody is there any more.
    thread.join()
    with pytest.raises(Unavailable):
        agent.push_compressed(b"x")
    wire.close()


def test_an_answer_may_come_in_pieces_and_say_when_to_come_back() -> None:
    url, thread = answering(
        b"HTTP/1.1 503 Service Una",
        b"vailable\r\nRETRY-AFTER: 7\r\nContent-Length: 4\r\n\r\nno",
        b"pe",
    )
    wire = Wire(url, timeout_s=5.0)
    with pytest.raises(Unavailable) as unavailable:
        WireAgent(wire, "t").push_compressed(b"x")
    assert unavailable.value.retry_after_s == 7.0
    wire.close()
    thread.join()


def test_only_plain_http_is_spoken() -> None:
    with pytest.raises(HeadroomError):
        Wire("https://127.0.0.1", timeout_s=1.0)
