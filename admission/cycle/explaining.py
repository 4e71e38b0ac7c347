"""Tell the owners of adopted jobs why they wait, where they look: in their scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from admission.core.cycle.decide import Decisions, Waiting
from admission.cycle.adopted_spec import PHASE
from admission.executors.schedulers import registered
from admission.executors.schedulers.models import SchedulerJob
from admission.queue.starts import Start, Starts
from headroom.jobs.words import lasting
from headroom.schedulers.contract import JobState

__all__ = ["sentence", "tell"]

#: Numbers move with each cycle. A comment that says the same in others is written this seldom.
_EVERY = timedelta(seconds=60)
#: Comments that one cycle changes.
_MOST = 1000
_LONGEST = 500
_FIELDS = ["comment", "commented_at", "is_comment_new", "start_in_s", "is_never"]


def tell(
    decisions: Decisions,
    known: Starts | None,
    never: Mapping[str, str],
    at: datetime,
) -> int:
    """Have the comments of held jobs say why they wait; return how many change. Two queries."""
    if not registered.names():
        return 0
    held = SchedulerJob.objects.open().filter(is_adopted=True, state=JobState.HELD)
    rows = []
    for row in held.only("pk", "name", *_FIELDS):
        key = f"{row.name}/{PHASE}"
        waiting = decisions.waiting.get(key)
        if waiting is None:
            continue
        start = known.of(key, at.timestamp()) if known else None
        text = sentence(waiting, start, never.get(key, ""))
        if text != row.comment and _is_due(row, text, at):
            row.comment, row.commented_at, row.is_comment_new = text, at, True
            row.start_in_s = start.p50_s if start else None
            row.is_never = key in never
            rows.append(row)
    SchedulerJob.objects.bulk_update(rows[:_MOST], _FIELDS, 500)
    return len(rows)


def _is_due(row: SchedulerJob, text: str, at: datetime) -> bool:
    if row.commented_at is None or _token(text) != _token(row.comment):
        return True
    return at - row.commented_at >= _EVERY


def _token(comment: str) -> str:
    return comment.partition(":")[0]


def sentence(waiting: Waiting, known: Start | None, never: str) -> str:
    """Return why a job waits, in numbers, and about when it starts."""
    text = f"{waiting.dominant.token}: {waiting.dominant.sentence}"
    if never:
        return f"{text}; it can never start as it is: {never}"[:_LONGEST]
    if known is not None and known.p50_s is not None:
        text += f"; likely to start in {lasting(known.p50_s)}"
        if known.p90_s is not None:
            text += f", 9 times of 10 within {lasting(known.p90_s)}"
    return f"{text}; place {waiting.position} in the queue"[:_LONGEST]
