"""The twin obeys a real server: from a person's restriction to less power, and back."""

from __future__ import annotations

from typing import Any

import pytest

from bench.stack import Stack
from headroom.client import Client
from lab.demo import Settings
from lab.fleet import GPUS_PER_NODE
from tests.builders.demo import heard_demo, until

pytestmark = pytest.mark.slow
RESTRICTIONS = "/api/v1/restrictions"


def test_a_rack_falls_under_a_cap_within_ten_seconds_and_comes_back(stack: Stack) -> None:
    token = stack.credential("operator_token")
    operator = Client(stack.url, token)
    with heard_demo(stack, token, Settings(gpus=128, sample_s=2.0)) as demo:
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
