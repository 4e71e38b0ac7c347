"""Who sends a body slowly, or is nobody, takes nothing from others."""

from __future__ import annotations

import time

import pytest

from bench.stack import Stack
from headroom.contracts import encode_batch
from tests.builders.batches import make_batch
from tests.integration.door.conftest import GRACE_S, Accounts
from tests.integration.door.raw import connected, crowd, slowest_s

TELEMETRY = "/api/v1/telemetry"
#: What a page may take on a machine that does much else meanwhile, s.
PROMPT_S = 5.0
LONG = 100_000
#: With these Django's protection against forged forms reads the body.
FORM = {
    "Cookie": "csrftoken=" + "a" * 32,
    "Content_Type": "application/x-www-form-urlencoded",
}


@pytest.mark.parametrize("count", [24, 64])
@pytest.mark.parametrize("path", [TELEMETRY, "/login/"])
def test_slow_bodies_of_nobody_keep_nobody_waiting(stack: Stack, path: str, count: int) -> None:
    with crowd(stack.url, count) as attackers:
        for attacker in attackers:
            attacker.head("POST", path, Content_Length=60_000, **FORM)
            attacker.send("x")
        assert slowest_s(stack.url, "/healthz", 5) < PROMPT_S
        assert slowest_s(stack.url, "/login/", 3) < PROMPT_S


def test_a_slow_body_of_nobody_ends_with_408(stack: Stack) -> None:
    end = time.monotonic() + 90.0
    while not _is_cut(stack):
        # What tests before this one have sent may hold the places of nobody still.
        assert time.monotonic() < end
        time.sleep(1.0)


def _is_cut(stack: Stack) -> bool:
    """Have a slow body cut; False: there is no place for one yet."""
    with connected(stack.url) as raw:
        raw.head("POST", "/login/", Content_Length=60_000, **FORM)
        raw.send("x")
        began = time.monotonic()
        response, body = raw.answer("POST", GRACE_S + 15)
        if response.status == 429:
            return False
        assert response.status == 408
        assert b"body_too_slow" in body
        assert time.monotonic() - began > GRACE_S / 2
        assert raw.is_closed()
        return True


@pytest.mark.parametrize("length", [1_000, 60_000, 1_000_000])
def test_an_agent_that_trickles_is_cut(stack: Stack, accounts: Accounts, length: int) -> None:
    with connected(stack.url) as raw:
        raw.head(
            "POST",
            TELEMETRY,
            Content_Length=length,
            Authorization=f"Bearer {accounts.agent_token}",
            Content_Type="application/msgpack",
        )
        end = time.monotonic() + GRACE_S + 15
        raw.socket.settimeout(0.2)
        while time.monotonic() < end:
            raw.send("x")
            try:
                first = raw.socket.recv(12)
            except TimeoutError:
                continue
            assert first == b"HTTP/1.1 408"
            return
        pytest.fail("it still trickles")


@pytest.mark.parametrize("token", ["", "hra_unknown", "hru_unknown", "nonsense"])
@pytest.mark.parametrize("path", [TELEMETRY, "/api/v1/prometheus/write", "/api/v1/otlp/v1/metrics"])
def test_an_unknown_token_is_refused_before_the_body_is_sent(
    stack: Stack, accounts: Accounts, path: str, token: str
) -> None:
    with connected(stack.url) as raw:
        raw.head("POST", path, Content_Length=LONG, Authorization=f"Bearer {token}")
        response, _ = raw.answer("POST")
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_an_agent_is_taken_as_soon_as_it_is_enrolled(stack: Stack, accounts: Accounts) -> None:
    from headroom.client import Client

    made = Client(stack.url, accounts.operator_token).post(
        "/api/v1/agents", {"name": "agent-2", "nodes": ["n1"]}
    )
    for seq in range(1, 9):
        with connected(stack.url) as raw:
            body = encode_batch(make_batch("agent-2", "n1", seq))
            raw.head(
                "POST",
                TELEMETRY,
                Content_Length=len(body),
                Authorization=f"Bearer {made['token']}",
                Content_Type="application/msgpack",
            )
            raw.send(body)
            response, said = raw.answer("POST")
            assert response.status == 202, said


def test_a_large_body_is_read_from_users_alone(stack: Stack, accounts: Accounts) -> None:
    known = {
        "token": {"Authorization": f"Bearer {accounts.operator_token}"},
        "session": {"Cookie": accounts.session_cookie},
    }
    for headers in ({}, {"Authorization": "Bearer hru_x"}, {"Cookie": "sessionid=x"}):
        with connected(stack.url) as raw:
            raw.head("POST", "/api/v1/jobs", Content_Length=LONG, **headers)
            response, body = raw.answer("POST")
            assert response.status == 401
            assert b"sender_unknown" in body
    for headers in known.values():
        with connected(stack.url) as raw:
            raw.head("POST", "/api/v1/jobs?dry_run=1", Content_Length=LONG, **headers)
            raw.send(b"x" * LONG)
            response, body = raw.answer("POST")
            assert b"sender_unknown" not in body


@pytest.mark.parametrize("length", [2**30, 2**40])
def test_a_body_over_the_limit_is_not_read(stack: Stack, accounts: Accounts, length: int) -> None:
    for token, path in (
        (accounts.agent_token, TELEMETRY),
        (accounts.operator_token, "/api/v1/fleet/apply"),
    ):
        with connected(stack.url) as raw:
            raw.head("POST", path, Content_Length=length, Authorization=f"Bearer {token}")
            response, body = raw.answer("POST")
            assert response.status == 413
            assert b"body_too_large" in body


def test_an_address_has_so_many_requests_and_another_has_its_own(stack: Stack) -> None:
    with crowd(stack.url, 80, "127.0.0.7") as attackers:
        for attacker in attackers:
            attacker.head("POST", "/login/", Content_Length=60_000)
            attacker.send("x")
        refused = [each.answer("POST") for each in attackers if _answers_soon(each)]
        assert {response.status for response, _ in refused} == {429}
        assert all(response.headers["Retry-After"] for response, _ in refused)
        # 16 of each of two processes may be on their way.
        assert len(refused) >= 80 - 32
        with connected(stack.url, "127.0.0.8") as other:
            other.head("POST", "/login/", Content_Length=3)
            other.send("a=b")
            assert other.answer("POST")[0].status == 403


def _answers_soon(raw: object) -> bool:
    import select

    from tests.integration.door.raw import Raw

    assert isinstance(raw, Raw)
    return bool(select.select([raw.socket], [], [], 0.05)[0])
