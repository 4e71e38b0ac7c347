"""Bridges wait for orders at a real server: they hold no thread, and go when they like."""

from __future__ import annotations

import json
import threading
import time

import pytest
import redis
import urllib3

from admission.executors.schedulers.news import WAIT_S
from bench.stack import Stack
from headroom.client import Client
from headroom.schedulers.contract import SchedulerKind, SchedulerReport
from tests.integration.door.conftest import Accounts
from tests.integration.door.raw import connected

NAME = "hall-a"
PATH = f"/api/v1/schedulers/{NAME}"


@pytest.fixture(scope="module", autouse=True)
def reported(stack: Stack, accounts: Accounts) -> None:
    """The bridge of a scheduler has reported once."""
    report = SchedulerReport(kind=SchedulerKind.SLURM, session="s1", complete=True)
    Client(stack.url, accounts.agent_token).scheduler(NAME, report)


def _get(stack: Stack, token: str, query: str = "") -> urllib3.BaseHTTPResponse:
    pool = urllib3.PoolManager(retries=False, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return pool.request("GET", f"{stack.url}{PATH}{query}", headers=headers)


def _has_orders(stack: Stack) -> str:
    """Have there be orders, as a cycle that has committed does."""
    valkey = redis.Redis.from_url(stack.environment["REDIS_URL"])
    made = valkey.xadd(f"scheduler:{{{NAME}}}:orders", {"": ""}, maxlen=1)
    return made.decode() if isinstance(made, bytes) else str(made)


def test_a_bridge_hears_of_orders_while_it_waits(stack: Stack, accounts: Accounts) -> None:
    before = _has_orders(stack)
    heard: list[str] = []

    def wait() -> None:
        last = before
        while last == before:
            answer = _get(stack, accounts.agent_token, f"?after={last}")
            last = json.loads(answer.data)["last"]
        heard.append(last)

    waiting = threading.Thread(target=wait)
    waiting.start()
    now = _has_orders(stack)
    waiting.join(60.0)
    assert heard == [now]


def test_a_bridge_that_hears_of_nothing_asks_with_the_same_again(
    stack: Stack, accounts: Accounts
) -> None:
    last = _has_orders(stack)
    answer = _get(stack, accounts.agent_token, f"?after={last}")
    assert (answer.status, json.loads(answer.data)) == (200, {"last": last})


@pytest.mark.parametrize("token", ["", "hra_made-up", "hru_made-up"])
def test_nobody_waits_without_the_token_of_an_agent(stack: Stack, token: str) -> None:
    answer = _get(stack, token)
    assert answer.status == 401
    assert json.loads(answer.data)["error"]["code"] == "unauthorized"


def test_another_agent_is_refused(stack: Stack, accounts: Accounts) -> None:
    made = Client(stack.url, accounts.operator_token).post(
        "/api/v1/agents", {"name": "agent-of-orders", "nodes": ["n1"]}
    )
    answer = _get(stack, made["token"])
    assert answer.status == 403
    assert json.loads(answer.data)["error"]["code"] == "scheduler_out_of_scope"


def test_what_was_never_told_is_refused(stack: Stack, accounts: Accounts) -> None:
    answer = _get(stack, accounts.agent_token, "?after=yesterday")
    assert answer.status == 400
    assert json.loads(answer.data)["error"]["field"] == "after"


def test_bridges_that_went_do_not_keep_the_next_one_from_waiting(
    stack: Stack, accounts: Accounts
) -> None:
    last = _has_orders(stack)
    headers = {"Authorization": f"Bearer {accounts.agent_token}"}
    # More than an agent may have open at once, and each stays for a moment alone.
    for _ in range(30):
        with connected(stack.url) as client:
            client.head("GET", f"{PATH}?after={last}", **headers)
            time.sleep(0.05)
    # Before the last of them would have been answered.
    end = time.monotonic() + WAIT_S - 1.0
    while _open_of_agents(stack) > 0 and time.monotonic() < end:
        time.sleep(0.1)
    assert _open_of_agents(stack) == 0


def _open_of_agents(stack: Stack) -> float:
    pool = urllib3.PoolManager(retries=False, timeout=30)
    token = stack.environment["METRICS_TOKEN"]
    said = pool.request("GET", f"{stack.url}/metrics", headers={"Authorization": f"Bearer {token}"})
    (line,) = (
        line
        for line in said.data.decode().splitlines()
        if line.startswith('headroom_door_open_requests{of="agents"}')
    )
    return float(line.split()[1])
