from __future__ import annotations

import socket
import time
from email.utils import formatdate

import msgspec
import pytest

from headroom.client import Client
from headroom.contracts import FieldError, TelemetryAck
from headroom.errors import HeadroomError, PartlyRefused, Refused, Unauthorized, Unavailable
from tests.unit.headroom.builders import make_batch
from tests.unit.headroom.fake_server import LOST, Answer, FakeServer, refusal


def test_push_sends_the_batch_and_returns_the_acknowledgement(
    server: FakeServer, client: Client
) -> None:
    ack = client.push(make_batch())

    assert ack.durable_seq == 1
    assert server.pushes == [make_batch()]
    headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer hra_secret"
    assert headers["Content-Type"] == "application/msgpack"
    assert headers["Content-Encoding"] == "zstd"


def test_position_asks_for_one_life_of_the_agent(server: FakeServer, client: Client) -> None:
    client.push(make_batch())

    assert client.position("b1").durable_seq == 1
    assert client.position("another life").durable_seq == 0


def test_the_connection_is_kept_alive(server: FakeServer) -> None:
    with Client(server.url, "t", connections=1) as client:
        for seq in (1, 2, 3):
            client.push(make_batch(seq=seq))
        pool = client._pool.connection_from_url(server.url)
        assert pool.num_connections == 1
        assert pool.num_requests == 3


def test_clients_of_several_tokens_share_connections(server: FakeServer, client: Client) -> None:
    client.with_token("hra_other").push(make_batch())

    assert server.requests[0].headers["Authorization"] == "Bearer hra_other"
    assert client.with_token("x")._pool is client._pool


def test_a_refusal_carries_what_the_server_says(server: FakeServer, client: Client) -> None:
    server.script.append(refusal(400, "future_time", field="meters.ts[0]", hint="set the clock"))

    with pytest.raises(Refused) as caught:
        client.push(make_batch())

    assert not caught.value.retryable
    assert caught.value.status == 400
    assert caught.value.error.code == "future_time"
    assert caught.value.error.field == "meters.ts[0]"
    assert "set the clock" in str(caught.value)


def test_a_batch_of_which_some_rows_were_refused_was_taken(
    server: FakeServer, client: Client
) -> None:
    error = {"code": "too_old", "message": "it is old", "field": "meters.ts[2]"}
    ack = {"durable_seq": 4, "received_at": 9.5}
    body = {"error": error, "refused": [error], "refused_rows": 3, "ack": ack}
    server.script.append(Answer(400, msgspec.json.encode(body)))

    with pytest.raises(PartlyRefused) as caught:
        client.push(make_batch())

    assert caught.value.ack == TelemetryAck(durable_seq=4, received_at=9.5)
    assert caught.value.refused_rows == 3
    assert caught.value.refused == [msgspec.convert(error, FieldError)]


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_does_not_do_is_told_apart(
    server: FakeServer, client: Client, status: int
) -> None:
    server.script.append(refusal(status))

    with pytest.raises(Unauthorized):
        client.push(make_batch())


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_unavailable(server: FakeServer, client: Client, status: int) -> None:
    server.script.append(Answer(status, b"<html>busy</html>", {"Retry-After": "7"}))

    with pytest.raises(Unavailable) as caught:
        client.push(make_batch())

    assert caught.value.retryable
    assert caught.value.status == status
    assert caught.value.retry_after_s == 7


def test_retry_after_may_be_a_date(server: FakeServer, client: Client) -> None:
    when = formatdate(time.time() + 20, usegmt=True)
    server.script.append(Answer(503, b"", {"Retry-After": when}))

    with pytest.raises(Unavailable) as caught:
        client.push(make_batch())

    assert caught.value.retry_after_s == pytest.approx(20, abs=2)


@pytest.mark.parametrize(
    ("text", "expected"), [("soon", None), ("-5", None), ("1e9", None), ("999999999", 3600.0)]
)
def test_a_mad_retry_after_does_no_harm(
    server: FakeServer, client: Client, text: str, expected: float | None
) -> None:
    server.script.append(Answer(503, b"", {"Retry-After": text}))

    with pytest.raises(Unavailable) as caught:
        client.push(make_batch())

    assert caught.value.retry_after_s == expected


def test_a_lost_acknowledgement_is_unavailable(server: FakeServer, client: Client) -> None:
    server.script_after_taking.append(LOST)

    with pytest.raises(Unavailable):
        client.push(make_batch())

    assert len(server.all_stored()) == 1


def test_no_server_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", "t") as client, pytest.raises(Unavailable):
        client.push(make_batch())


def test_a_server_that_says_nothing_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, "t") as client:
            started = time.monotonic()
            with pytest.raises(Unavailable):
                client.push(make_batch(), timeout_s=0.2)
            assert time.monotonic() - started < 9


@pytest.mark.parametrize("status", [404, 405, 400])
def test_a_4xx_that_is_not_the_apis_costs_no_readings(
    server: FakeServer, client: Client, status: int
) -> None:
    server.script.append(Answer(status, b"<html>nginx</html>"))

    with pytest.raises(Unavailable, match="check the server's URL"):
        client.push(make_batch())


def test_a_batch_too_large_for_a_proxy_is_refused(server: FakeServer, client: Client) -> None:
    server.script.append(Answer(413, b"<html>nginx</html>"))

    with pytest.raises(Refused):
        client.push(make_batch())


def test_a_redirect_is_not_followed(server: FakeServer, client: Client) -> None:
    server.script.append(Answer(301, b"", {"Location": "https://elsewhere/"}))

    with pytest.raises(Unavailable, match="https://elsewhere/"):
        client.push(make_batch())


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"durable_seq": "x"}', b"\xff"])
def test_a_2xx_without_acknowledgement_acknowledges_nothing(
    server: FakeServer, client: Client, body: bytes
) -> None:
    server.script.append(Answer(200, body))

    with pytest.raises(Unavailable):
        client.push(make_batch())


def test_json_and_yaml_are_posted(server: FakeServer, client: Client) -> None:
    server.answers["POST", "/api/v1/agents"] = {"token": "hra_new"}
    server.answers["POST", "/api/v1/fleet/apply"] = Answer(204)
    server.answers["GET", "/api/v1/nodes"] = {"results": []}

    assert client.post("/api/v1/agents", {"name": "x"}, {"rotate": "1"}) == {"token": "hra_new"}
    assert client.post_yaml("/api/v1/fleet/apply", "sites: []\n") is None
    assert client.get("/api/v1/nodes", {"site": "ås & co"}) == {"results": []}

    agents, apply, nodes = server.requests
    assert (agents.query, agents.body) == ({"rotate": "1"}, b'{"name":"x"}')
    assert (apply.headers["Content-Type"], apply.body) == ("application/yaml", b"sites: []\n")
    assert nodes.query == {"site": "ås & co"}


def test_a_refused_post_says_why_even_with_nulls(server: FakeServer, client: Client) -> None:
    body = b'{"error": {"code": "x", "message": "no", "field": null, "hint": "", "more": 1}}'
    server.answers["POST", "/p"] = Answer(409, body)

    with pytest.raises(Refused, match="409 x: no"):
        client.post("/p", {})


def test_a_refused_get_without_a_body_names_the_status(server: FakeServer, client: Client) -> None:
    server.answers["GET", "/p"] = Answer(404)

    with pytest.raises(Refused) as caught:
        client.get("/p")

    assert caught.value.error.code == "http_404"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "/tmp/x"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(HeadroomError, match="no server URL"):
        Client(url, "t")


def test_the_token_is_never_shown(client: Client) -> None:
    assert "hra_secret" not in repr(client)
