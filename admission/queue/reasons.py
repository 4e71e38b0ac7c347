"""Why phases wait, in the database: the dominant reason of each, and when it changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction

from admission import bulk
from admission.core.cycle.decide import Decisions, Waiting
from admission.cycle import live
from admission.cycle.live import CycleInput, Row
from admission.jobs import history
from admission.jobs.models import JobEvent

__all__ = ["REASON", "write"]

#: The kind of event.
REASON = "reason"
#: Phases whose reason one cycle writes; the next one goes on.
_MOST = 5_000
#: One that has not stood for so long is no news: at the edge of a budget it goes back and forth.
_STOOD = timedelta(seconds=30)

_WRITE = """
UPDATE admission_jobs_phase AS phase
SET reason = new.reason, reason_since = %s
FROM unnest(%s::bigint[], %s::text[]) AS new (id, reason)
WHERE phase.id = new.id
"""


def write(inputs: CycleInput, decisions: Decisions, at: datetime) -> int:
    """Write the dominant reasons that have changed; return how many."""
    changed = [
        (inputs.rows[key], waiting)
        for key, waiting in decisions.waiting.items()
        if key in inputs.rows and inputs.rows[key].reason != waiting.dominant.token
    ][:_MOST]
    if not changed:
        return 0
    with transaction.atomic():
        mine = live.lock_unchanged([row for row, _ in changed])
        chosen = [(row, waiting) for row, waiting in changed if row.id in mine]
        _save(chosen, at)
        # What keeps one element of an array keeps all: it is told once.
        news = {
            row.id if row.element is None else row.told_as: _event(row, waiting, at)
            for row, waiting in reversed(chosen)
            if _is_news(row, at)
        }
        bulk.insert(list(news.values()))
    return len(chosen)


def _save(chosen: Sequence[tuple[Row, Waiting]], at: datetime) -> None:
    ids = [row.id for row, _ in chosen]
    tokens = [waiting.dominant.token.value for _, waiting in chosen]
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, [at, ids, tokens])


def _is_news(row: Row, at: datetime) -> bool:
    return row.reason_since is None or at - row.reason_since >= _STOOD


def _event(row: Row, waiting: Waiting, at: datetime) -> JobEvent:
    reason = waiting.dominant
    return history.event(
        row.job_id,
        REASON,
        reason.sentence,
        at,
        phase=waiting.request.phase,
        token=reason.token.value,
        need=reason.need,
        have=reason.have,
        short=reason.short,
        unit=reason.unit,
        scope=str(reason.scope) if reason.scope else "",
        position=waiting.position,
    )
