"""Is this process alive (/healthz), and can it do its work (/readyz)?"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.backoff import NoBackoff
from redis.retry import Retry

from config import condition
from config.condition import Condition

Check = dict[str, Any]

POSTGRES_TIMEOUT_S = 2
REDIS_TIMEOUT_S = 1.0

_FAILURES = (psycopg.Error, redis.RedisError, OSError, ValueError)


@never_cache
@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer as long as the process lives. For restarting it; asks nobody else."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    """Answer 200 when requests can be served, else 503, with each check.

    A worker that is behind or away does not count: what agents send is safe in Redis until then,
    and taking the web processes out of service would not bring it back. Nor does whatever else of
    the machine room is not as it should be: that is "degraded".
    """
    needed = {"postgres": _checked(_postgres), "redis": _checked(_redis)}
    offset_s = needed["postgres"].pop("clock_offset_s", None)
    needed["migrations"] = (
        _checked(_migrations) if needed["postgres"]["ok"] else _unknown("postgres")
    )
    room = _room(offset_s) if needed["redis"]["ok"] else {"worker": _unknown("redis")}
    ready = all(check["ok"] for check in needed.values())
    well = all(check["ok"] for check in room.values())
    status = "unavailable" if not ready else "ok" if well else "degraded"
    body = {"status": status, "checks": {**needed, **room}}
    return JsonResponse(body, status=200 if ready else 503)


def look() -> Condition:
    """Look at the condition of the server, with the database's clock where it answers."""
    facts = _checked(_postgres)
    return condition.look(_redis_client(), clock_offset_s=facts.get("clock_offset_s"))


def _room(clock_offset_s: float | None) -> dict[str, Check]:
    try:
        return condition.facts(condition.look(_redis_client(), clock_offset_s=clock_offset_s))
    except _FAILURES as error:
        return {"worker": {"ok": False, "error": type(error).__name__}}


def _checked(check: Callable[[], Check]) -> Check:
    """Run a check. Only the kind of a failure is shown: its text may hold addresses or names."""
    started = time.perf_counter()
    try:
        facts = check()
    except _FAILURES as error:
        facts = {"ok": False, "error": type(error).__name__}
    return {**facts, "latency_ms": round((time.perf_counter() - started) * 1000, 1)}


def _unknown(needs: str) -> Check:
    return {"ok": False, "error": f"needs {needs}"}


def _postgres() -> Check:
    """Log in anew: that fails while the server hangs, is full or refuses, in bounded time.

    A server that only reads, since another has taken its place, is of no use either.
    """
    with _connect() as probe:
        asked_at = time.time()
        row = probe.execute(
            "SELECT extract(epoch FROM clock_timestamp())::float8, pg_is_in_recovery()"
        ).fetchone()
        answered_at = time.time()
    if row is None or row[1]:
        return {"ok": False, "error": "ReadOnly"}
    return {"ok": True, "clock_offset_s": row[0] - (asked_at + answered_at) / 2}


def _migrations() -> Check:
    with _connect() as probe:
        applied = set(probe.execute("SELECT app, name FROM django_migrations").fetchall())
    pending = sorted(_latest_migrations() - applied)
    facts: Check = {"ok": not pending}
    if pending:
        facts["pending"] = [f"{app}.{name}" for app, name in pending]
    return facts


def _connect() -> psycopg.Connection[tuple[Any, ...]]:
    """Connect to the database that Django uses, past its connections, with short timeouts."""
    params = {
        **connection.get_connection_params(),
        "connect_timeout": POSTGRES_TIMEOUT_S,
        "options": f"-c statement_timeout={POSTGRES_TIMEOUT_S * 1000}",
        "tcp_user_timeout": POSTGRES_TIMEOUT_S * 1000,
    }
    for name in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(name, None)
    return psycopg.connect(**params, autocommit=True)


@functools.cache
def _latest_migrations() -> frozenset[tuple[str, str]]:
    """Return the newest migrations of this code: read from disk once a process."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())


def _redis() -> Check:
    _redis_client().ping()
    return {"ok": True}


@functools.cache
def _redis_client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        socket_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
