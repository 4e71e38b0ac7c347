"""Tell the owners of adopted jobs why they wait, where they look: in their scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from admission.executors.schedulers import registered
from admission.executors.schedulers.models import SchedulerJob
from admission.jobs import visible
from admission.queue.queue_status import PendingStatus
from headroom.jobs import words
from headroom.schedulers.contract import JobState

__all__ = ["sentence", "tell"]

#: Numbers move with each cycle. A comment that says the same in others is written this seldom.
_EVERY = timedelta(seconds=60)
#: Comments that one cycle changes.
_MOST = 1000
_LONGEST = 500
_FIELDS = ["comment", "commented_at", "is_comment_new", "start_in_s", "is_never"]


def tell(lines: Mapping[str, PendingStatus], at: datetime) -> int:
    """Have the comments of held jobs say why they wait; return how many change.

    ``lines`` are those of the queue, by key, which pages and the command line show. Two queries,
    more where they name jobs.
    """
    if not registered.names():
        return 0
    # An adopted job has one phase.
    by_job = {key.rpartition("/")[0]: line for key, line in lines.items()}
    held = SchedulerJob.objects.open().filter(is_adopted=True, state=JobState.HELD)
    waiting = [
        (row, line)
        for row in held.only("pk", "name", *_FIELDS)
        if (line := by_job.get(row.name)) is not None
    ]
    whys = visible.to_projects({row.name: line.reasons[0].sentence for row, line in waiting})
    nevers = visible.to_projects({row.name: line.never for row, line in waiting})
    rows = []
    for row, line in waiting:
        text = sentence(line, whys[row.name], nevers[row.name])
        if text != row.comment and _is_due(row, line, at):
            row.comment, row.commented_at, row.is_comment_new = text, at, True
            row.start_in_s, row.is_never = line.p50_s, bool(line.never)
            rows.append(row)
    SchedulerJob.objects.bulk_update(rows[:_MOST], _FIELDS, 500)
    return len(rows)


def _is_due(row: SchedulerJob, line: PendingStatus, at: datetime) -> bool:
    """Say whether a comment is to be written anew: other numbers alone can wait."""
    if row.commented_at is None or at - row.commented_at >= _EVERY:
        return True
    is_unsaid = line.p50_s is None and not line.never
    if is_unsaid and f"; {words.likely('', line.basis)};" not in row.comment:
        return True
    was = (_token(row.comment), row.start_in_s is None, row.is_never)
    return was != (line.reasons[0].token, line.p50_s is None, bool(line.never))


def _token(comment: str) -> str:
    return comment.partition(":")[0]


def sentence(line: PendingStatus, why: str, never: str) -> str:
    """Return why a job waits, in numbers, and when it is likely to start: as pages say it.

    ``why`` and ``never`` are those of the line, as everybody may read them.
    """
    span = words.between(line.p10_s, line.p90_s)
    when = words.never(never) if never else words.likely(span, line.basis)
    rest = words.clipped(f"; {when}; position {line.position:,} in the queue", _LONGEST // 2)
    return words.clipped(f"{line.reasons[0].token}: {why}", _LONGEST - len(rest)) + rest
