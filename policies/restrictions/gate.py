"""The short way for agents that ask for their limits: before Django.

A fleet of 12,500 agents asks 1,250 times a second, and what Django does for a request costs more
than the answer. Whatever is not a plain good request is handed on to ``views``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from django.conf import settings

from policies.restrictions import limits
from telemetry.ways_in.errors import JSON
from telemetry.ways_in.requests import agent_of

__all__ = ["PATH", "LimitsGate"]

Environ: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

PATH = "/api/v1/limits"
_HEADERS = [
    ("Content-Type", JSON),
    ("Cache-Control", "no-store"),
    # No browser is to show it.
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


class LimitsGate:
    """A WSGI application that answers agents with their limits and hands all else to ``behind``.

    ``answered`` is called with the seconds that each answer took, for the metrics of HTTP.
    """

    def __init__(self, behind: Application, answered: Callable[[float], None]) -> None:
        self._behind = behind
        self._answered = answered

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH or not _may_be_answered(environ):
            return self._behind(environ, start_response)
        started = time.perf_counter()
        try:
            scope = agent_of(environ.get("HTTP_AUTHORIZATION", ""))
            body = limits.answer(scope, time.time())
        except Exception:
            # It is tried once more where what is wrong has an answer.
            return self._behind(environ, start_response)
        self._answered(time.perf_counter() - started)
        start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(body)))])
        return [body]


def _may_be_answered(environ: Environ) -> bool:
    """Say whether it is a GET, by TLS where that is asked for."""
    is_safe = not settings.BEHIND_TLS or environ.get("HTTP_X_FORWARDED_PROTO") == "https"
    return environ["REQUEST_METHOD"] == "GET" and is_safe
