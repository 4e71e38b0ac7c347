"""Rows that outlive the readings, and how long each is kept: events, names, positions.

Each kind is removed in small batches, which hold up nobody, until all of it is done or time is up;
then the next run goes on. Two bounds hold: an age, and a number for each thing, since who sends may
make up as many events of a GPU, a node or an agent as readings are taken of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from telemetry import placed
from telemetry.checks import SERVER_BOOT_ID

__all__ = ["MOST_EVENTS", "prune"]

log = structlog.get_logger(__name__)

#: Events of one GPU or node, and reports of limits on one node, that are kept at most.
MOST_EVENTS = 10_000
#: Rows of one statement.
_BATCH = 5_000


@dataclass(frozen=True)
class _Events:
    """A table of events. ``over`` selects the rows that no reading changes any more."""

    table: str
    thing: str
    at: str
    over: str = "true"


_EVENTS = (
    _Events("telemetry_throttleevent", "gpu_id", "opened_at", "closed_at IS NOT NULL"),
    _Events("telemetry_eccevent", "gpu_id", "at"),
    _Events("telemetry_lemonfinding", "gpu_id", "since", "ended_at IS NOT NULL"),
    _Events("telemetry_xidevent", "node_id", "ts"),
    _Events("telemetry_agentsilence", "agent_id", "since"),
    _Events("telemetry_limitreport", "node_id", "received_at"),
)

# By when they began, which has an index; one that went on for long is kept until it is old enough.
_OLD_EVENTS = """
DELETE FROM {table} WHERE id IN (
    SELECT id FROM {table} WHERE {at} < %s AND {over} ORDER BY {at} LIMIT %s
)
"""
_CROWDED = "SELECT {thing} FROM {table} GROUP BY {thing} HAVING count(*) > %s LIMIT 100"
_TOO_MANY_EVENTS = """
DELETE FROM {table} WHERE id IN (
    SELECT id FROM (
        SELECT id, {over} AS is_over FROM {table} WHERE {thing} = %s ORDER BY {at} DESC OFFSET %s
    ) AS crowd WHERE is_over LIMIT %s
)
"""

# An agent that comes back sends what is above oldest_seq; what is older than samples are kept is
# refused. So nothing that was stored under a forgotten position can be stored again.
_OLD_POSITIONS = """
DELETE FROM telemetry_ingestposition WHERE id IN (
    SELECT id FROM telemetry_ingestposition WHERE updated_at < %s AND boot_id NOT LIKE %s LIMIT %s
)
"""
_OLD_MOUNTS = """
DELETE FROM telemetry_mount WHERE id IN (
    SELECT id FROM telemetry_mount WHERE seen_at < %s LIMIT %s
)
"""
_OLD_CARRIERS = """
DELETE FROM telemetry_jobcarrier WHERE id IN (
    SELECT id FROM telemetry_jobcarrier WHERE hour < %s LIMIT %s
)
"""
# What an event refers to stays with it.
_OLD_JOBS = """
SELECT id, name, seen_at < %s FROM telemetry_reportedjob AS job
WHERE seen_at < %s AND id > %s
  AND NOT EXISTS (SELECT FROM telemetry_throttleevent WHERE job_id = job.id)
ORDER BY id LIMIT %s
"""
_FORGET_JOBS = """
DELETE FROM telemetry_reportedjob AS job WHERE id = ANY(%s) AND seen_at < %s
  AND NOT EXISTS (SELECT FROM telemetry_throttleevent WHERE job_id = job.id)
"""


def prune(now: datetime, budget_s: float) -> dict[str, int]:
    """Remove rows too old or too many, for about ``budget_s``; return how many, by table."""
    deadline = time.monotonic() + budget_s
    removed = {}
    for name, work in _work(now).items():
        removed[name] = work(deadline)
    if any(removed.values()):
        log.info("telemetry_forgotten", **{name: rows for name, rows in removed.items() if rows})
    return removed


def _work(now: datetime) -> dict[str, Callable[[float], int]]:
    found: dict[str, Callable[[float], int]] = {}
    before = now - timedelta(days=settings.TELEMETRY_EVENT_DAYS)
    for events in _EVENTS:
        found[events.table] = lambda deadline, events=events: (  # type: ignore[misc]
            _old_events(events, before, deadline) + _too_many_events(events, deadline)
        )
    kept_for = timedelta(hours=settings.TELEMETRY_RETENTION_H + 1)
    minutes = now - timedelta(days=settings.TELEMETRY_MINUTE_DAYS)
    hours = now - timedelta(days=settings.TELEMETRY_HOUR_DAYS)
    return {
        **found,
        "telemetry_ingestposition": lambda deadline: _in_batches(
            _OLD_POSITIONS, [now - kept_for, f"{SERVER_BOOT_ID}%"], deadline
        ),
        "telemetry_mount": lambda deadline: _in_batches(_OLD_MOUNTS, [minutes], deadline),
        "telemetry_jobcarrier": lambda deadline: _in_batches(_OLD_CARRIERS, [hours], deadline),
        "telemetry_reportedjob": lambda deadline: _old_jobs(minutes, hours, deadline),
    }


def _old_events(events: _Events, before: datetime, deadline: float) -> int:
    return _in_batches(_text(_OLD_EVENTS, events), [before], deadline)


def _too_many_events(events: _Events, deadline: float) -> int:
    if time.monotonic() > deadline:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_text(_CROWDED, events), [MOST_EVENTS])
        crowded = [thing for (thing,) in cursor.fetchall()]
    text = _text(_TOO_MANY_EVENTS, events)
    return sum(_in_batches(text, [thing, MOST_EVENTS], deadline) for thing in crowded)


def _text(statement: str, events: _Events) -> str:
    return statement.format(table=events.table, thing=events.thing, at=events.at, over=events.over)


def _in_batches(statement: str, given: Sequence[Any], deadline: float) -> int:
    removed = 0
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(statement, [*given, _BATCH])
            removed += cursor.rowcount
            if cursor.rowcount < _BATCH:
                break
    return removed


def _old_jobs(brought: datetime, placed_before: datetime, deadline: float) -> int:
    """Remove names of jobs: ours live as long as roll-ups by hour do, all others by minute."""
    removed, last = 0, 0
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(_OLD_JOBS, [placed_before, brought, last, _BATCH])
            found = cursor.fetchall()
            if not found:
                break
            ours = placed.known([name for _, name, _ in found])
            gone = [pk for pk, name, is_very_old in found if is_very_old or name not in ours]
            cursor.execute(_FORGET_JOBS, [gone, brought])
            removed += cursor.rowcount
        last = found[-1][0]
    return removed
