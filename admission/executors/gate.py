"""The short way for machines that ask for work while there is none: before Django.

A fleet of 12,500 machines asks some thousand times a second, and nearly always there is nothing for
them. Each process keeps which nodes have open orders, and looks once a second. Whatever is not a
plain good request of a machine without any is handed on to ``views``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from django.conf import settings

from admission.executors.exchange import nodes_of
from admission.executors.models import NodeOrder
from telemetry.ways_in.errors import JSON
from telemetry.ways_in.requests import agent_of

__all__ = ["PATH", "WorkGate", "expire"]

Environ: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

PATH = "/api/v1/work"
#: What was put into the mailbox is seen by every process within this time, s.
MAX_AGE_S = 1.0
_HEADERS = [
    ("Content-Type", JSON),
    ("Cache-Control", "no-store"),
    # No browser is to show it.
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


class _Busy:
    """The nodes that have open orders, as this process last read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: frozenset[int] = frozenset()
        self._read_at = -float("inf")

    def nodes(self) -> frozenset[int]:
        """Return them as of at most a second ago."""
        if time.monotonic() - self._read_at > MAX_AGE_S:
            with self._lock:
                if time.monotonic() - self._read_at > MAX_AGE_S:
                    self._read()
        return self._nodes

    def _read(self) -> None:
        asked_at = time.monotonic()
        rows = NodeOrder.objects.exclude(state=NodeOrder.State.ENDED)
        self._nodes = frozenset(rows.values_list("node_id", flat=True).distinct())
        self._read_at = asked_at

    def forget(self) -> None:
        """Look again at the next call."""
        self._read_at = -float("inf")


_busy = _Busy()
expire = _busy.forget


class WorkGate:
    """A WSGI application that answers machines without work and hands all else to ``behind``.

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
            names = parse_qs(environ.get("QUERY_STRING", "")).get("node", [])
            has_work = not _busy.nodes().isdisjoint(
                node.node_id for _, node in nodes_of(scope, names)
            )
        except Exception:
            # It is tried once more where what is wrong has an answer.
            return self._behind(environ, start_response)
        if has_work:
            return self._behind(environ, start_response)
        body = b'{"now":%.6f,"orders":[],"poll_s":%g,"report_s":%g}' % (
            time.time(),
            settings.WORK_POLL_S,
            settings.WORK_REPORT_S,
        )
        self._answered(time.perf_counter() - started)
        start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(body)))])
        return [body]


def _may_be_answered(environ: Environ) -> bool:
    """Say whether it is a GET, by TLS where that is asked for."""
    is_safe = not settings.BEHIND_TLS or environ.get("HTTP_X_FORWARDED_PROTO") == "https"
    return environ["REQUEST_METHOD"] == "GET" and is_safe
