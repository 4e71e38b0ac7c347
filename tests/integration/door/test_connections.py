"""Many clients stay connected, and each form of HTTP is understood."""

from __future__ import annotations

import threading
import time

import pytest
import urllib3

from bench.stack import Stack
from headroom.contracts import encode_batch
from tests.builders.batches import make_batch
from tests.integration.door.conftest import Accounts
from tests.integration.door.raw import connected, crowd, slowest_s


def test_hundreds_of_clients_stay_connected_and_all_are_answered(stack: Stack) -> None:
    with crowd(stack.url, 600) as clients:
        for _ in range(3):
            for client in clients:
                client.head("GET", "/healthz")
            for client in clients:
                response, body = client.answer()
                assert (response.status, body) == (200, b"ok\n")


def test_sixteen_logins_at_once_leave_others_served(stack: Stack) -> None:
    def log_in() -> None:
        pool = urllib3.PoolManager(retries=False, timeout=60)
        page = pool.request("GET", f"{stack.url}/login/")
        token = page.headers["Set-Cookie"].partition("=")[2].partition(";")[0]
        form = {"username": "nobody", "password": "wrong", "csrfmiddlewaretoken": token}
        headers = {"Cookie": f"csrftoken={token}"}
        answer = pool.request(
            "POST", f"{stack.url}/login/", fields=form, headers=headers, encode_multipart=False
        )
        statuses.append(answer.status)

    statuses: list[int] = []
    people = [threading.Thread(target=log_in) for _ in range(16)]
    for person in people:
        person.start()
    waits = []
    while any(person.is_alive() for person in people):
        waits.append(slowest_s(stack.url, "/healthz", 1))
        waits.append(slowest_s(stack.url, "/login/", 1))
    assert len(waits) > 4
    assert max(waits) < 3
    assert len(statuses) == 16
    # Refused for the password, for the fifth try, or for want of a thread; but told.
    assert set(statuses) <= {200, 403, 429, 503}


def test_head_has_the_length_and_no_body(stack: Stack) -> None:
    with connected(stack.url) as raw:
        for path in ("/healthz", "/login/"):
            raw.head("HEAD", path)
            response, body = raw.answer("HEAD")
            assert response.status == 200
            assert int(response.headers["Content-Length"]) > 0
            assert body == b""


def test_a_client_that_waits_for_leave_gets_it_only_if_it_is_known(
    stack: Stack, accounts: Accounts
) -> None:
    body = encode_batch(make_batch("agent-1", "n1", 1, boot_id="waits"))
    with connected(stack.url) as raw:
        raw.head(
            "POST",
            "/api/v1/telemetry",
            Content_Length=len(body),
            Authorization=f"Bearer {accounts.agent_token}",
            Content_Type="application/msgpack",
            Expect="100-continue",
        )
        assert raw.socket.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.send(body)
        assert raw.answer("POST")[0].status == 202
    with connected(stack.url) as raw:
        raw.head(
            "POST",
            "/api/v1/telemetry",
            Content_Length=len(body),
            Authorization="Bearer hra_unknown",
            Expect="100-continue",
        )
        assert raw.answer("POST")[0].status == 401


def test_a_body_in_chunks_is_told_to_say_its_length(stack: Stack, accounts: Accounts) -> None:
    for token in (accounts.agent_token, accounts.operator_token):
        with connected(stack.url) as raw:
            raw.head(
                "POST",
                "/api/v1/telemetry" if token.startswith("hra_") else "/api/v1/jobs",
                Transfer_Encoding="chunked",
                Authorization=f"Bearer {token}",
            )
            raw.send("3\r\nabc\r\n0\r\n\r\n")
            response, body = raw.answer("POST")
            assert response.status == 411
            assert b"length_required" in body


@pytest.mark.parametrize("sent", [0, 1, 900])
def test_a_client_that_leaves_in_the_midst_of_a_body_leaves_nothing(
    stack: Stack, accounts: Accounts, sent: int
) -> None:
    for length in (1_000, 60_000):
        for _ in range(20):
            with connected(stack.url) as raw:
                raw.head(
                    "POST",
                    "/api/v1/telemetry",
                    Content_Length=length,
                    Authorization=f"Bearer {accounts.agent_token}",
                )
                raw.send(b"x" * sent)
    # More than one agent may have open, were they still counted.
    body = encode_batch(make_batch("agent-1", "n1", 1, boot_id=f"left-{sent}"))
    with connected(stack.url) as raw:
        time.sleep(0.2)
        raw.head(
            "POST",
            "/api/v1/telemetry",
            Content_Length=len(body),
            Authorization=f"Bearer {accounts.agent_token}",
            Content_Type="application/msgpack",
        )
        raw.send(body)
        assert raw.answer("POST")[0].status == 202


def test_clients_that_do_not_read_their_answers_hold_no_thread(
    stack: Stack, accounts: Accounts
) -> None:
    with crowd(stack.url, 32, "127.0.0.5") as clients:
        for client in clients:
            client.head("GET", "/static/plotly/plotly.min.js")
            client.head("GET", "/", Cookie=accounts.session_cookie)
        assert slowest_s(stack.url, "/login/", 3) < 5
        assert slowest_s(stack.url, "/", 3, cookie=accounts.session_cookie) < 5


def test_two_requests_in_one_go_are_answered_in_their_order(stack: Stack) -> None:
    with connected(stack.url) as raw:
        raw.send(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        said = b""
        while piece := raw.socket.recv(4096):
            said += piece
        assert said.index(b"\r\n\r\nok\n") < said.index(b'"postgres"')
