"""Whose output a reader means, and a stretch of it as text.

Commands say bytes, and a reader wants text: whatever is no UTF-8 stands as ``\\xff``, so nothing
is lost beside it. A character that a stretch would cut in two is left to the next one.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from admission.executors import output
from admission.executors.models import NodeAssignment
from admission.executors.output import END
from admission.jobs.models import Attempt, Job
from headroom.work.contract import LOG_PART_BYTES, WorkOutcome

__all__ = [
    "END",
    "MOST_BYTES",
    "USUAL_BYTES",
    "NotThere",
    "Said",
    "Selection",
    "Source",
    "find",
    "read",
]

#: What one answer has, bytes, by default and at most.
USUAL_BYTES, MOST_BYTES = LOG_PART_BYTES, 4 * LOG_PART_BYTES
#: Of the ranks that failed as many are named.
_MOST_FAILED = 20


class NotThere(Exception):
    """A phase, attempt, rank or node that the job does not have. ``field`` is its parameter."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Selection:
    """Which part of a job is meant; what is left out is chosen: see :func:`find`."""

    phase: str = ""
    attempt: int | None = None
    rank: int | None = None
    node: str = ""


@dataclass(frozen=True)
class Source:
    """One node's part of one attempt. ``parts`` are all of its gang, by rank; without any of them
    it was not dispatched, or ended too long ago."""

    attempt: Attempt | None
    part: NodeAssignment | None
    parts: Sequence[NodeAssignment] = ()

    @property
    def failed(self) -> list[NodeAssignment]:
        """The parts that failed, those that did so first before the others."""
        failed = [part for part in self.parts if _has_failed(part)]
        return sorted(failed, key=lambda part: (str(part.ended_at), part.rank))[:_MOST_FAILED]

    @property
    def is_gone(self) -> bool:
        """Say whether its output was dropped with all else that its executor kept of it."""
        is_over = self.attempt is not None and self.attempt.state == Attempt.State.ENDED
        return is_over and self.part is None


@dataclass(frozen=True)
class Said:
    """Output as text. ``start`` and ``next`` are places in all of it, bytes.

    ``pending``: ask again, the machine was asked or nothing has begun. ``over``: nothing follows.
    ``tail``: the last of it as the machine told with its end, where it has told no more.
    """

    start: int
    next: int
    text: str
    pending: bool
    over: bool
    tail: str = ""


def find(job: Job, selection: Selection) -> Source:
    """Return the part of ``job`` that is meant. Two queries. Raises :class:`NotThere`.

    The attempt that was dispatched last, of a failed job one that failed; and of its nodes the one
    that failed first, or else the first.
    """
    attempt = _attempt(job, selection)
    if attempt is None:
        return Source(None, None)
    parts = NodeAssignment.objects.filter(gang__key=attempt.key).order_by("rank")
    source = Source(attempt, None, list(parts.select_related("gang")))
    return Source(attempt, _part(source, selection), source.parts)


def _attempt(job: Job, selection: Selection) -> Attempt | None:
    rows = Attempt.objects.filter(phase__job=job).select_related("phase")
    if selection.phase:
        rows = rows.filter(phase__name=selection.phase)
    if selection.attempt is not None:
        rows = rows.filter(number=selection.attempt)
    rows = rows.order_by("-dispatched_at", "-pk")
    if job.state == Job.State.FAILED:
        failed = rows.filter(outcome=Attempt.Outcome.FAILED).first()
        if failed is not None:
            return failed
    found = rows.first()
    if found is None:
        _refuse(job, selection)
    return found


def _refuse(job: Job, selection: Selection) -> None:
    names = list(job.phases.values_list("name", flat=True))
    if selection.phase and selection.phase not in names:
        raise NotThere("phase", f"There is no such phase; there are: {', '.join(names)}.")
    if selection.attempt is not None:
        raise NotThere("attempt", f"There was no attempt {selection.attempt} so far.")


def _part(source: Source, selection: Selection) -> NodeAssignment | None:
    if selection.rank is None and not selection.node:
        return next(iter([*source.failed, *source.parts]), None)
    for part in source.parts:
        if part.node == selection.node or part.rank == selection.rank:
            return part
    field = "node" if selection.node else "rank"
    if source.parts:
        raise NotThere(field, f"It has ranks 0 to {len(source.parts) - 1}, and not this {field}.")
    return None


def _has_failed(part: NodeAssignment) -> bool:
    is_over = part.state == NodeAssignment.State.ENDED
    return is_over and (part.outcome != WorkOutcome.EXITED or part.exit_code != 0)


def read(source: Source, start: int, most: int, at: datetime) -> Said:
    """Return output of ``source`` from ``start`` on (:data:`END`: its end). Two queries at most."""
    part = source.part
    if part is None:
        place = max(start, 0)
        return Said(place, place, "", pending=not source.is_gone, over=source.is_gone)
    found = output.read(part, start, most, at)
    skipped = _cut_off(found.data) if start == END and found.start > 0 else 0
    text, used = _decoded(found.data[skipped:], is_end=found.over)
    begin = found.start + skipped
    is_ended = part.state == NodeAssignment.State.ENDED
    return Said(
        start=begin,
        next=begin + used,
        text=text,
        pending=found.pending or (not part.store and not is_ended),
        over=found.over,
        tail="" if output.is_there(part) or text else part.log_tail,
    )


def _cut_off(data: bytes) -> int:
    """Return how many bytes at the beginning belong to a character before it."""
    return next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0)


def _decoded(data: bytes, *, is_end: bool) -> tuple[str, int]:
    """Return ``data`` as text, and how many of its bytes that is."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(data, final=is_end)
    return text, len(data) - len(decoder.getstate()[0])
