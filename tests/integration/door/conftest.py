"""The whole of Headroom, with little patience for slow bodies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bench.stack import Stack, running
from headroom.client import Client

#: Long enough for a busy machine to send what it has.
GRACE_S = 3.0


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """A real installation, whose slow bodies have some seconds."""
    given = {"DOOR_BODY_GRACE_S": str(GRACE_S)}
    os.environ.update(given)
    try:
        with running() as started:
            yield started
    finally:
        for name in given:
            del os.environ[name]


@dataclass(frozen=True)
class Accounts:
    operator_token: str
    session_cookie: str
    agent_token: str


@pytest.fixture(scope="package")
def accounts(stack: Stack) -> Accounts:
    """Who is known to the server: an operator, a viewer who is logged in, an agent of node n1."""
    operator, cookie = stack.credentials("operator_token", "session_cookie")
    client = Client(stack.url, operator)
    client.post_yaml("/api/v1/fleet/apply", _INVENTORY)
    made = client.post("/api/v1/agents", {"name": "agent-1", "nodes": ["n1"]})
    return Accounts(operator, cookie, made["token"])


_INVENTORY = """
hardware_models:
  - {name: gpu, kind: gpu, rated_w: 700, slowdown_c: 90, sm_max_mhz: 1980}
sites:
  - name: here
    racks:
      - name: R1
        budget_w: 40000
        nodes:
          - {name: n1, gpus: {model: gpu, count: 8}}
"""
