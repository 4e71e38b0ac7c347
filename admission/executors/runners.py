"""The machines that run jobs: when each was last heard, and which are given up.

A machine has its work for as long as it is heard, and may go on for half of ``WORK_LEASE_S`` from
when it last asked (:func:`fence_s`): then it stops what it runs by itself. Only after all of the
lease is it given up, so that the work never runs twice at a time. What lies between the two covers
what makes the server's count too long: how rarely a report is written down, and how rarely a worker
looks. The rest is for clocks that drift and for a machine that is slow to stop.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Max, Subquery

from admission.executors.models import Hearing, NodeAssignment, Runner
from telemetry.directory import KnownNode

__all__ = [
    "Ears",
    "Uptime",
    "fence_s",
    "gap_s",
    "is_silent",
    "listen",
    "prune",
    "ready_nodes",
    "seen",
    "silent",
    "simulated_nodes",
    "uptime",
]

#: For how much of the lease a machine runs on without having been heard.
FENCE_SHARE = 0.5
#: A report within this share of the lease need not be written down: it would cost more than it
#: tells.
_WRITE_AT = 0.1
#: Nobody at all was heard for this share of the lease: it is our own ears.
_DEAF_AT = 0.2
#: A look that comes later than this share of the lease, or than this, has not been looking, s.
_GAP_SHARE, _SHORTEST_GAP_S = 0.1, 5.0


@dataclass(frozen=True)
class Uptime:
    """How long the machine of a worker is up, suspended or not, s. ``boot_id`` tells which one."""

    boot_id: str
    s: float


@dataclass(frozen=True)
class Ears:
    """How long we have listened in all, and when we last began to; s, by our own clock."""

    listened_s: float = 0.0
    since_s: float = 0.0


def fence_s(lease_s: float) -> float:
    """Return for how long a machine may run its work from when it last asked, s. Pure."""
    return FENCE_SHARE * lease_s


def gap_s(lease_s: float) -> float:
    """Return after how long without a look we count as having been away, s. Pure."""
    return max(_GAP_SHARE * lease_s, _SHORTEST_GAP_S)


def listen(ears: Ears, passed_s: float | None, heard_s: float | None, lease_s: float) -> Ears:
    """Return ``ears`` after a look, ``passed_s`` after the one before it (None: unknown). Pure.

    Who has been away begins anew: every machine has a whole lease from then on. ``heard_s`` is when
    anybody was heard last. While nobody is, either all machines are silent at once or nothing
    reaches us. The second is likelier, so leases stand still for ten times as long.
    """
    if passed_s is None or not 0.0 <= passed_s <= gap_s(lease_s):
        return Ears(ears.listened_s, ears.listened_s)
    listened_s = ears.listened_s + passed_s
    silence_s = 0.0 if heard_s is None else listened_s - heard_s
    is_deaf = _DEAF_AT * lease_s < silence_s <= 10 * lease_s
    return Ears(listened_s, listened_s if is_deaf else ears.since_s)


def is_silent(ears: Ears, heard_s: float | None, lease_s: float) -> bool:
    """Say whether a machine is to be given up. Pure. ``heard_s``: None where it was never heard."""
    return ears.listened_s - max(heard_s or 0.0, ears.since_s) > lease_s


def uptime() -> Uptime:
    """Return the uptime of this machine. Setting its clock does not change it."""
    return Uptime(_boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))


@functools.cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Then only the looks of one process are compared.
        return uuid.uuid4().hex


def seen(
    nodes: Sequence[tuple[str, KnownNode]],
    *,
    agent: str,
    store: str,
    version: str,
    is_simulated: bool = False,
    at: datetime,
) -> None:
    """Write down that the machine with ``store`` was heard. One query, and two where it is due."""
    ids = [node.node_id for _, node in nodes]
    seldom_s = _WRITE_AT * settings.WORK_LEASE_S
    lately = Runner.objects.filter(
        node_id__in=ids,
        store=store,
        is_simulated=is_simulated,
        heard_s__gte=Subquery(Hearing.objects.values("listened_s")[:1]) - seldom_s,
        # Of a clock that was set back nothing can be said.
        seen_at__gt=at - timedelta(seconds=seldom_s),
        seen_at__lte=at,
    )
    fresh = set(lately.values_list("node_id", flat=True))
    due = [(name, node) for name, node in nodes if node.node_id not in fresh]
    if not due:
        return
    heard_s = Hearing.objects.values_list("listened_s", flat=True).first() or 0.0
    rows = [
        Runner(
            node_id=node.node_id,
            node=name,
            agent=agent,
            store=store,
            version=version,
            is_simulated=is_simulated,
            seen_at=at,
            heard_s=heard_s,
        )
        for name, node in due
    ]
    Runner.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["node_id", "store"],
        update_fields=["node", "agent", "version", "is_simulated", "seen_at", "heard_s"],
    )


def ready_nodes(now: float) -> frozenset[int]:
    """Return the database ids of nodes whose machine runs jobs and was heard lately. One query."""
    after = datetime.fromtimestamp(now, UTC) - timedelta(seconds=_lately_s())
    return frozenset(
        Runner.objects.filter(seen_at__gt=after).values_list("node_id", flat=True).distinct()
    )


def simulated_nodes(names: Collection[str]) -> frozenset[str]:
    """Return those of some nodes whose machine, as it was last heard, is of the twin. One query."""
    rows = Runner.objects.filter(node__in=names).order_by("seen_at")
    last = dict(rows.values_list("node", "is_simulated"))
    return frozenset(name for name, is_simulated in last.items() if is_simulated)


def _lately_s() -> float:
    return 3 * settings.WORK_REPORT_S + _WRITE_AT * settings.WORK_LEASE_S


def silent(now: float, lease_s: float, *, executor: str) -> frozenset[int]:
    """Return the ids of assignments whose machines are to be given up. A few queries."""
    ears = _follow_hearing(now, lease_s)
    if ears.listened_s - ears.since_s <= lease_s:
        return frozenset()
    started = NodeAssignment.objects.filter(
        gang__executor=executor, gang__go_at__isnull=False, gang__ended_at=None
    ).exclude(state=NodeAssignment.State.ENDED)
    claims = list(started.values_list("pk", "node_id", "store"))
    rows = Runner.objects.filter(node_id__in={node for _, node, _ in claims})
    heard = {(row.node_id, row.store): row.heard_s for row in rows}
    return frozenset(
        pk
        for pk, node, store in claims
        if store and is_silent(ears, heard.get((node, store)), lease_s)
    )


def _follow_hearing(now: float, lease_s: float) -> Ears:
    """Bring the row of :class:`Hearing` to this moment, and return it."""
    at, up = datetime.fromtimestamp(now, UTC), uptime()
    row = Hearing.objects.filter(pk=1).first()
    if row is None:
        Hearing.objects.create(pk=1, looked_at=at, looked_s=up.s, boot_id=up.boot_id)
        return Ears()
    newest = Runner.objects.aggregate(newest=Max("heard_s"))["newest"]
    ears = Ears(row.listened_s, row.since_s)
    ears = listen(ears, _passed_s(row, at, up), newest, lease_s)
    Hearing.objects.filter(pk=1).update(
        listened_s=ears.listened_s,
        since_s=ears.since_s,
        looked_at=at,
        looked_s=up.s,
        boot_id=up.boot_id,
    )
    return ears


def _passed_s(row: Hearing, at: datetime, up: Uptime) -> float | None:
    """Return the time since the last look, s; None where it was too long ago, as far as we know.

    Between workers on two machines there is no clock to go by: then none has passed for sure.
    """
    if row.boot_id == up.boot_id:
        return up.s - row.looked_s
    is_late = abs(at - row.looked_at) > timedelta(seconds=_SHORTEST_GAP_S)
    return None if is_late else 0.0


def prune(now: float, after_s: float) -> int:
    """Drop machines that were not heard for ``after_s``; return how many."""
    before = datetime.fromtimestamp(now - after_s, UTC)
    return Runner.objects.filter(seen_at__lt=before).delete()[0]
