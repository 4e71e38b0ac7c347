"""Jobs that are submitted at the same moment are taken together, and each is answered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import urllib3

from bench.stack import Stack
from headroom.client import Client
from tests.integration.door.conftest import Accounts

PROJECT = "door"


def test_jobs_at_once_are_each_taken_or_refused(stack: Stack, accounts: Accounts) -> None:
    operator = Client(stack.url, accounts.operator_token)
    operator.post("/api/v1/projects", {"name": PROJECT})
    pool = urllib3.PoolManager(retries=False, timeout=60, maxsize=16)

    def submit(number: int) -> tuple[int, Any]:
        phase = {"name": "train", "gang": {"gpus": 8}, "walltime_s": 60, "command": ["true"]}
        phases = [phase] if number % 4 else []
        spec = {"version": 1, "name": f"door-{number}", "project": PROJECT, "phases": phases}
        spec["class"] = "low-power-experimentation"
        answer = pool.request(
            "POST",
            f"{stack.url}/api/v1/jobs",
            body=msgspec.json.encode(spec),
            headers={
                "Authorization": f"Bearer {accounts.operator_token}",
                "Content-Type": "application/json",
                "Idempotency-Key": f"key-{number}",
            },
        )
        return answer.status, answer.json()

    with ThreadPoolExecutor(16) as threads:
        first = list(threads.map(submit, range(32)))
        again = list(threads.map(submit, range(32)))
    assert [status for status, _ in first] == [201 if number % 4 else 400 for number in range(32)]
    assert [status for status, _ in again] == [200 if number % 4 else 400 for number in range(32)]
    for number, (_, found) in enumerate(first):
        if number % 4:
            assert found["name"] == f"door-{number}"
            assert found["phases"][0]["name"] == "train"
        else:
            assert found["error"]["field"]
