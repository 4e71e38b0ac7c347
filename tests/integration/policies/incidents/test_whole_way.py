"""An alert comes in, a webhook goes out: real web, beat and worker, which is killed on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import urllib3

from bench.stack import Stack, running
from tests.builders.servers import Listener, listening, statuses
from tests.unit.policies.incidents.test_incoming import make_alert, make_payload

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    for name, value in {
        "NOTIFY_ALLOWED_NETWORKS": "127.0.0.0/8",
        "NOTIFY_TIMEOUT_S": "2",
        "INCIDENT_GROUP_WAIT_S": "0",
        "INCIDENT_QUIET_S": "0",
    }.items():
        monkeypatch.setenv(name, value)
    with running() as started:
        yield started


class Api:
    def __init__(self, stack: Stack) -> None:
        self._pool = urllib3.PoolManager(retries=False)
        self._url = f"{stack.url}/api/v1"
        token = stack.credential("operator_token")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        answer = self._pool.request(
            method, f"{self._url}/{path}", body=content, headers=self._headers
        )
        assert answer.status < 300, answer.data
        return msgspec.json.decode(answer.data) if answer.data else None


def told(server: Listener) -> list[str]:
    """Return the events that came, of each notification the first try."""
    first = {each.headers["Idempotency-Key"]: each.json()["event"] for each in server.received}
    return list(first.values())


def wait_until_told(server: Listener, events: list[str], within_s: float) -> None:
    end = time.monotonic() + within_s
    while told(server) != events:
        assert time.monotonic() < end, told(server)
        time.sleep(0.05)


def test_what_comes_in_goes_out_though_the_worker_is_killed(stack: Stack) -> None:
    api = Api(stack)
    with listening(statuses(500, 200)) as server, listening(hangs=True) as hung:
        for name, url in (("ops", server.url), ("hangs", hung.url)):
            api("POST", "notification-channels", {"name": name, "kind": "webhook", "target": url})
        assert len(api("POST", "alertmanager", make_payload(make_alert()))["opened"]) == 1
        wait_until_told(server, ["opened"], 20)
        stack.kill("worker")
        api("POST", "alertmanager", make_payload(make_alert("resolved")))
        wait_until_told(server, ["opened", "resolved"], 60)
        (incident,) = api("GET", "incidents")["results"]
        assert incident["state"] == "resolved"
        assert hung.received
        rows = api("GET", "notifications?channel=ops")["results"]
        assert [row["state"] for row in rows] == ["sent", "sent"]
