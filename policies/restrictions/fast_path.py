"""The fast path for agents that ask for their limits.

A fleet of 12,500 agents asks 1,250 times a second.
"""

from __future__ import annotations

import time

from policies.restrictions import limits
from telemetry.ingest.fast_path import Environ, FastPath
from telemetry.ingest.requests import agent_of

__all__ = ["LimitsFastPath"]


class LimitsFastPath(FastPath):
    """Answers agents with their limits."""

    path = "/api/v1/limits"

    def answer(self, environ: Environ) -> bytes:
        asked = limits.asked_in(environ.get("QUERY_STRING", ""))
        return limits.answer(agent_of(environ.get("HTTP_AUTHORIZATION", "")), time.time(), asked)
