"""The twin obeys a real server: from a person's restriction to less power, and back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from bench.stack import Stack
from headroom.client import Client
from lab.demo import CONNECTIONS, Demo, Settings
from lab.enroll import Server, Stopped
from lab.fleet import GPUS_PER_NODE

pytestmark = pytest.mark.slow
RESTRICTIONS = "/api/v1/restrictions"


@contextmanager
def demo_of(stack: Stack, token: str) -> Iterator[Demo]:
    """Run a small demo against ``stack`` in a thread of its own."""
    stop = threading.Event()
    server = Server(stack.url, token, connections=CONNECTIONS)
    demo = Demo(server, Settings(gpus=128, sample_s=2.0), stop=stop)

    def run() -> None:
        with suppress(Stopped):
            demo.run()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield demo
    finally:
        stop.set()
        thread.join(15.0)


def until(condition: Callable[[], Any], limit_s: float) -> float:
    """Wait until something is true; return how long that took, s."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "it did not happen in time"
        time.sleep(0.1)
    return time.monotonic() - began


def test_a_rack_falls_under_a_cap_within_ten_seconds_and_comes_back(stack: Stack) -> None:
    token = stack.credential("operator_token")
    operator = Client(stack.url, token)
    with demo_of(stack, token) as demo:
        until(lambda: demo.sources and demo.sources[0].sender.outbox.counts.stored_batches, 60.0)
        rack = int(demo.twin.rack_w.argmax())
        name = f"{demo.fleet.racks[rack].site}/{demo.fleet.racks[rack].name}"
        gpus = (demo.fleet.rack_of_node == rack).repeat(GPUS_PER_NODE)
        before_w = float(demo.twin.power_w[gpus].sum())
        issued = operator.post(
            RESTRICTIONS,
            {
                "kind": "power_cap_w",
                "scope": {"kind": "rack", "name": name},
                "value": 300,
                "reason": "test",
                "for_s": 60,
            },
        )
        until(lambda: (demo.twin.power_w[gpus] <= 300.5).all(), 10.0)
        assert demo.twin.power_w[gpus].sum() < before_w - 1000.0

        def steps() -> dict[str, Any]:
            told = operator.get(f"{RESTRICTIONS}/{issued['id']}/ledger")
            return {event["kind"]: event for event in told["events"]}

        until(lambda: "applied" in steps(), 30.0)
        applied = steps()["applied"]["data"]
        assert applied["applied"] == applied["expected"] == int(gpus.sum())
        assert applied["seconds"] < 10.0
        operator.post(f"{RESTRICTIONS}/{issued['id']}/lift", {"reason": "done"})
        until(lambda: (demo.twin.power_limit_w[gpus] > 300.5).all(), 10.0)
