"""What all viewers share is answered from memory, to those whom Django would answer."""

from __future__ import annotations

import time

import psycopg
import pytest
import urllib3

from bench.stack import Stack
from tests.integration.door.conftest import Accounts

HEATMAP, PANEL = "/live/fleet?metric=tightest", "/live/fleet/panel"
#: So many answers in a row show that every process is at one with the others.
IN_A_ROW = 10
#: Longer than anything takes that does not hang, s.
PATIENCE_S = 60.0


def _get(stack: Stack, path: str, cookie: str, **headers: str) -> urllib3.BaseHTTPResponse:
    headers = {"Cookie": cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
    pool = urllib3.PoolManager(retries=False, timeout=30)
    return pool.request("GET", stack.url + path, headers=headers, redirect=False)


def _shared(stack: Stack) -> float:
    with psycopg.connect(stack.environment["DATABASE_URL"]):
        pass
    token = stack.environment["METRICS_TOKEN"]
    pool = urllib3.PoolManager(retries=False, timeout=30)
    answer = pool.request(
        "GET", f"{stack.url}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    lines = answer.data.decode().splitlines()
    found = [line for line in lines if line.startswith("headroom_door_shared_answers_total ")]
    return float(found[0].split()[1]) if found else 0.0


def _make_known(stack: Stack, cookie: str) -> None:
    """Poll until every process has answered the session by Django, and answers from memory."""
    end = time.monotonic() + PATIENCE_S
    shared = 0.0
    while shared < 2 * IN_A_ROW:
        assert time.monotonic() < end, "no answer comes from memory"
        time.sleep(0.05)
        before = _shared(stack)
        for path in (HEATMAP, PANEL) * IN_A_ROW:
            assert _get(stack, path, cookie).status == 200
        shared = _shared(stack) - before


def _is_refused(stack: Stack, cookie: str) -> bool:
    statuses = {_get(stack, HEATMAP, cookie).status for _ in range(IN_A_ROW)}
    return statuses <= {302, 401, 403}


@pytest.mark.parametrize("path", [HEATMAP, PANEL])
def test_polls_are_shared_and_say_what_django_says(
    stack: Stack, accounts: Accounts, path: str
) -> None:
    by_django = _get(stack, path, accounts.session_cookie)
    _make_known(stack, accounts.session_cookie)
    before = _shared(stack)
    answers = [_get(stack, path, accounts.session_cookie) for _ in range(20)]
    assert _shared(stack) > before
    for answer in answers:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == by_django.headers["Content-Type"]
        assert (
            answer.headers["Content-Security-Policy"]
            == by_django.headers["Content-Security-Policy"]
        )
        assert "X-Headroom-Shared" not in answer.headers
    assert "X-Headroom-Shared" not in by_django.headers


def test_a_shared_answer_that_the_client_has_is_304(stack: Stack, accounts: Accounts) -> None:
    _make_known(stack, accounts.session_cookie)
    for _ in range(20):
        etag = _get(stack, HEATMAP, accounts.session_cookie).headers["ETag"]
        answer = _get(stack, HEATMAP, accounts.session_cookie, If_None_Match=etag)
        # The frame may have changed between the two.
        assert answer.status in (200, 304)
        if answer.status == 304:
            assert answer.data == b""
            return
    pytest.fail("never 304")


@pytest.mark.parametrize("cookie", ["", "sessionid=", "sessionid=made-up", "other=x"])
def test_nobody_gets_what_others_share(stack: Stack, accounts: Accounts, cookie: str) -> None:
    _make_known(stack, accounts.session_cookie)
    for path in (HEATMAP, PANEL):
        assert _get(stack, path, cookie).status in (302, 401, 403)


_CHANGES = [
    "DELETE FROM accounts_session WHERE session_key = %s",
    "UPDATE accounts_session SET expire_date = now() WHERE session_key = %s",
    "UPDATE accounts_session SET last_seen_at = '2000-01-01' WHERE session_key = %s",
    "UPDATE accounts_user SET is_active = false WHERE username = 'bench' AND %s <> ''",
    "UPDATE accounts_user SET password = 'other' WHERE username = 'bench' AND %s <> ''",
]


@pytest.fixture(scope="module")
def cookies(stack: Stack) -> dict[str, str]:
    """A session for each of the changes."""
    made = stack.credentials(*["session_cookie"] * len(_CHANGES))
    return dict(zip(_CHANGES, made, strict=True))


@pytest.mark.parametrize("change", _CHANGES)
def test_a_session_that_has_ended_gets_nothing_any_more(
    stack: Stack, cookies: dict[str, str], change: str
) -> None:
    cookie = cookies[change]
    with psycopg.connect(stack.environment["DATABASE_URL"], autocommit=True) as database:
        database.execute(
            "UPDATE accounts_user SET is_active = true, password = '' WHERE username = 'bench'"
        )
        _make_known(stack, cookie)
        try:
            database.execute(change, [cookie.partition("=")[2]])
            end = time.monotonic() + PATIENCE_S
            while not _is_refused(stack, cookie):
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            database.execute(
                "UPDATE accounts_user SET is_active = true, password = '' WHERE username = 'bench'"
            )
