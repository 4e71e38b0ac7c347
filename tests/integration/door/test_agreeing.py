"""Layouts that come at the same moment are agreed on together, and each is answered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import urllib3

from bench.stack import Stack
from headroom import layouts
from headroom.layouts import Layout, LayoutNode
from tests.integration.door.conftest import Accounts


def test_layouts_at_once_are_each_agreed_on_or_refused(stack: Stack, accounts: Accounts) -> None:
    pool = urllib3.PoolManager(retries=False, timeout=60, maxsize=8)

    def agree(number: int) -> tuple[int, Any, str]:
        layout = Layout(
            agent="agent-1",
            boot_id="door",
            version=str(number),
            nodes=[LayoutNode(node="n1" if number % 4 else "n9", gpus=[0, 1])],
            columns={"gpus": ["power_w"]},
        )
        token = accounts.agent_token if number % 5 else "hra_nobody"
        answer = pool.request(
            "POST",
            f"{stack.url}{layouts.PATH}",
            body=msgspec.json.encode(layout),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        return answer.status, answer.json(), answer.headers["Cache-Control"]

    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(agree, range(1, 41)))
    for number, (status, body, cache_control) in enumerate(told, start=1):
        assert "no-store" in cache_control
        if not number % 5:
            assert (status, body["error"]["code"]) == (401, "unauthorized")
        elif not number % 4:
            assert (status, body["error"]["code"]) == (400, "unknown_node")
        else:
            assert status == 200
            assert len(body["layout"]) == 32
