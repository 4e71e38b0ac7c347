"""Output of attempts, for who reads it: asked of machines, kept for a while, within bounds.

A machine keeps what its jobs say and sends of it only what somebody reads, so that a fleet whose
jobs talk much costs the server nothing. A reader asks for a place in the output (:func:`read`).
What is not kept here is asked of the machine with its next orders, and is there when the reader
asks again, about two seconds later. Unasked a machine sends the end alone, of a part that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q

from admission.executors.models import NodeAssignment
from headroom.work.contract import LOG_PART_BYTES, MAX_LOG_PARTS, LogAsk, LogPart

__all__ = ["END", "Stretch", "asked", "asks_of", "is_there", "prune", "read", "take"]

#: In place of a place: the end, wherever that is.
END = -1
#: For so long a machine is asked for what nobody has asked for again.
_ASKED_FOR = timedelta(seconds=30)
#: What a machine said of its output lately need not be asked again.
_FRESH_FOR = timedelta(seconds=2)
#: Parts that are kept of one node's output: 2 MiB.
_MOST_PARTS = 32


@dataclass(frozen=True)
class Stretch:
    """Output from ``start`` on, bytes. ``next`` is where it goes on.

    ``pending``: more is asked of the machine. ``over``: nothing follows.
    """

    start: int
    data: bytes
    pending: bool
    over: bool

    @property
    def next(self) -> int:
        return self.start + len(self.data)


# --- Readers --------------------------------------------------------------------------------------


def read(part: NodeAssignment, start: int, most: int, at: datetime) -> Stretch:
    """Return output of ``part`` from ``start`` on (:data:`END`: its last ``most`` bytes).

    What is gone everywhere is left out: the answer may begin later. One query, and one more where
    the machine is asked.
    """
    begin = max((part.log_size or 0) - most, 0) if start == END else start
    found = _kept(part, begin, most)
    wants = _is_to_be_asked(part, found, most, at)
    if wants:
        place = END if start == END else found.next
        asks = {"log_asked_from": place, "log_asked_at": at}
        NodeAssignment.objects.filter(pk=part.pk).update(**asks)
    is_over = part.state == NodeAssignment.State.ENDED and not wants
    is_over = is_over and found.next >= (part.log_size or 0)
    return replace(found, pending=wants, over=is_over)


def _is_to_be_asked(part: NodeAssignment, found: Stretch, most: int, at: datetime) -> bool:
    if not part.store or len(found.data) >= most:
        return False
    if part.log_told_at is None or (
        part.state != NodeAssignment.State.ENDED and part.log_told_at < at - _FRESH_FOR
    ):
        return True
    return is_there(part) and found.next < (part.log_size or 0)


def is_there(part: NodeAssignment) -> bool:
    """Say whether the machine had any of it when it was last asked."""
    return (part.log_first or 0) < (part.log_size or 0)


def _kept(part: NodeAssignment, start: int, most: int) -> Stretch:
    """Return what is kept from ``start`` on, in one piece; later where nobody has the bytes there.

    One query. A part is no larger than ``LOG_PART_BYTES``, so those that reach to ``start`` begin
    at most that much before it.
    """
    near = part.log_parts.filter(start__gt=start - LOG_PART_BYTES).order_by("start")
    rows = [row for row in near[: _MOST_PARTS + 1] if row.start + row.size > start]
    later = [row.start for row in rows[:1]]
    if is_there(part):
        later.append(part.log_first or 0)
    elif not rows:
        later.append(part.log_size or 0)
    begin, data = max(start, min(later)), b""
    for row in rows:
        at = begin + len(data)
        if row.start <= at < row.start + row.size and len(data) < most:
            data += bytes(row.data)[at - row.start :]
    return Stretch(begin, data[:most], pending=False, over=False)


# --- Machines -------------------------------------------------------------------------------------


def asked(at: datetime) -> Q:
    """Return a condition for assignments whose output somebody waits for."""
    return Q(log_asked_from__isnull=False, log_asked_at__gt=at - _ASKED_FOR)


def asks_of(rows: Iterable[NodeAssignment], store: str, at: datetime) -> list[LogAsk]:
    """Return whose output the machine with ``store`` is to send. Pure."""
    found = [
        LogAsk(
            attempt=row.gang.key,
            node=row.node,
            start=None if row.log_asked_from == END else row.log_asked_from,
        )
        for row in rows
        if row.store == store
        and row.log_asked_from is not None
        and row.log_asked_at is not None
        and row.log_asked_at > at - _ASKED_FOR
    ]
    return found[:MAX_LOG_PARTS]


_KEEP = """
INSERT INTO admission_executors_logpart (assignment_id, start, size, data)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::int[], %s::bytea[])
ON CONFLICT (assignment_id, start) DO UPDATE SET size = excluded.size, data = excluded.data
WHERE admission_executors_logpart.size < excluded.size
"""
#: The oldest of each node's output beyond what is kept of it: those that came first.
_DROP = """
DELETE FROM admission_executors_logpart WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY assignment_id ORDER BY id DESC) AS place
        FROM admission_executors_logpart WHERE assignment_id = ANY(%s)
    ) AS ranked WHERE place > %s
)
"""


def take(node_ids: Sequence[int], store: str, parts: Sequence[LogPart], at: datetime) -> None:
    """Keep output that a machine has sent. Of what is not its own nothing is kept.

    Four queries. Nothing but the assignments that ``store`` has claimed on ``node_ids`` is touched.
    """
    rows = NodeAssignment.objects.filter(
        gang__key__in={part.attempt for part in parts}, node_id__in=node_ids, store=store
    )
    by_key = {(key, row.node): row for row in rows.select_related("gang") if (key := row.gang.key)}
    kept: dict[tuple[int, int], bytes] = {}
    heard: dict[int, NodeAssignment] = {}
    for part in parts:
        row = by_key.get((part.attempt, part.node))
        if row is None:
            continue
        heard[row.pk] = _heard(row, part, at)
        if part.data:
            kept[row.pk, part.start] = part.data
    with transaction.atomic():
        NodeAssignment.objects.bulk_update(
            heard.values(), ["log_first", "log_size", "log_told_at", "log_asked_from"]
        )
        if kept:
            _keep(kept)


def _heard(row: NodeAssignment, part: LogPart, at: datetime) -> NodeAssignment:
    has_any = part.first < part.size
    # A machine that has nothing any more does not know how much it was.
    size = part.size if has_any else max(part.size, row.log_size or 0)
    row.log_size, row.log_first = size, part.first if has_any else size
    row.log_told_at, row.log_asked_from = at, None
    return row


def _keep(kept: dict[tuple[int, int], bytes]) -> None:
    ids = [pk for pk, _ in kept]
    with connection.cursor() as cursor:
        cursor.execute(
            _KEEP,
            [ids, [start for _, start in kept], [len(data) for data in kept.values()],
             list(kept.values())],
        )  # fmt: skip
        cursor.execute(_DROP, [list(set(ids)), _MOST_PARTS])


# --- Bounds ---------------------------------------------------------------------------------------

_PRUNE = """
DELETE FROM admission_executors_logpart WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(size) OVER (ORDER BY id DESC) AS upto FROM admission_executors_logpart
    ) AS summed WHERE upto > %s
)
"""


def prune() -> int:
    """Drop the oldest output beyond ``JOB_LOG_STORE_MB``; return how many parts. One statement.

    What is younger goes with its gang, a week after that has ended.
    """
    with connection.cursor() as cursor:
        cursor.execute(_PRUNE, [settings.JOB_LOG_STORE_MB * 2**20])
        return int(cursor.rowcount)
