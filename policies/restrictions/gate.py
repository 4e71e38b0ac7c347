"""The short way for agents that ask for their limits.

A fleet of 12,500 agents asks 1,250 times a second.
"""

from __future__ import annotations

import time

from policies.restrictions import limits
from telemetry.ways_in.requests import agent_of
from telemetry.ways_in.short_way import Environ, ShortWay

__all__ = ["LimitsGate"]


class LimitsGate(ShortWay):
    """Answers agents with their limits."""

    path = "/api/v1/limits"

    def answer(self, environ: Environ) -> bytes:
        return limits.answer(agent_of(environ.get("HTTP_AUTHORIZATION", "")), time.time())
