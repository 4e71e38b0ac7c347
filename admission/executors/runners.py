"""The machines that run jobs: when each was last heard, and which are given up.

A machine has its work for as long as it is heard, and may go on for half of its lease from when it
last asked (:func:`fence_s`): then it stops what it runs by itself. Only after all of the lease is
it given up, so that the work never runs twice at a time. What lies between the two covers what
makes the server's count too long: how rarely a report is written down, and how rarely a worker
looks. The rest is for clocks that drift and for a machine that is slow to stop.

The lease of a machine is what the admission policy states (:func:`lease_s`), once it has said that
nothing that it runs goes on for longer than half of that. Until then it is what it was told before,
and ``WORK_LEASE_S`` for one that says nothing.
"""

from __future__ import annotations

import functools
import math
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.models import Max, Min, Subquery

from admission.executors.models import Hearing, NodeAssignment, Runner
from admission.policy.catalog import policy_in_force
from fleet.cache import Cache
from telemetry.directory import KnownNode

__all__ = [
    "Ears",
    "Unheard",
    "Uptime",
    "fence_s",
    "gap_s",
    "invalidate",
    "is_silent",
    "lease_for",
    "lease_s",
    "listen",
    "prune",
    "ready_nodes",
    "report_s",
    "seen",
    "silent",
    "simulated_nodes",
    "unheard",
    "uptime",
]

#: For how much of the lease a machine runs on without having been heard.
FENCE_SHARE = 0.5
#: A report within this share of the lease need not be written down: it would cost more than it
#: tells.
_WRITE_AT = 0.1
#: Machines that hold nothing report this often within a lease, at least.
_REPORTS = 4
#: Nobody at all was heard for this share of the lease, or for two reports: it is our own ears.
_DEAF_AT, _DEAF_REPORTS = 0.2, 2
#: After so long without a report that should come every few seconds it is said, s.
UNKNOWN_AFTER_S = 30.0
#: A process reads this often which lease the policy in force states, s.
_POLICY_AGE_S = 1.0
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


_stated: Cache[float] = Cache(_POLICY_AGE_S)
invalidate = _stated.invalidate


def lease_s() -> float:
    """Return the lease that machines are to have, s. A query a second, at most."""
    return min(_stated.get(lambda: policy_in_force().lease_s), settings.WORK_LEASE_S)


def lease_for(runs_for_s: float | None) -> float:
    """Return the lease of a machine whose work goes on for ``runs_for_s`` without us, s.

    None: it does not say, so its work may go on for as long as any.
    """
    if runs_for_s is None:
        return settings.WORK_LEASE_S
    return max(lease_s(), runs_for_s / FENCE_SHARE)


def report_s(lease_s: float) -> float:
    """Return how often machines that hold nothing are to report, s."""
    return min(settings.WORK_REPORT_S, lease_s / _REPORTS)


def fence_s(lease_s: float) -> float:
    """Return for how long a machine may run its work from when it last asked, s. Pure."""
    return FENCE_SHARE * lease_s


def gap_s(lease_s: float) -> float:
    """Return after how long without a look we count as having been away, s. Pure."""
    return max(_GAP_SHARE * lease_s, _SHORTEST_GAP_S)


def listen(
    ears: Ears,
    passed_s: float | None,
    heard_s: float | None,
    lease_s: float,
    *,
    deaf_at_s: float | None = None,
    deaf_for_s: float | None = None,
) -> Ears:
    """Return ``ears`` after a look, ``passed_s`` after the one before it (None: unknown). Pure.

    Who has been away begins anew: every machine has a whole lease from then on. ``heard_s`` is when
    anybody was heard last. While nobody is for ``deaf_at_s``, either all machines are silent at
    once or nothing reaches us. The second is likelier, so leases stand still until ``deaf_for_s``:
    by default a fifth of the lease, and ten of them.
    """
    if passed_s is None or not 0.0 <= passed_s <= gap_s(lease_s):
        return Ears(ears.listened_s, ears.listened_s)
    listened_s = ears.listened_s + passed_s
    silence_s = 0.0 if heard_s is None else listened_s - heard_s
    at_s = _DEAF_AT * lease_s if deaf_at_s is None else deaf_at_s
    is_deaf = at_s < silence_s <= (10 * lease_s if deaf_for_s is None else deaf_for_s)
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


# What comes late, since it waited here, neither takes a later word back nor shortens a lease.
_SEEN = """
INSERT INTO admission_executors_runner AS runner
    (node_id, node, agent, store, version, is_simulated, seen_at, heard_s, lease_s)
SELECT new.id, new.name, %(agent)s, %(store)s, %(version)s, %(is_simulated)s, %(at)s,
    coalesce((SELECT listened_s FROM admission_executors_hearing), 0), %(lease_s)s
FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS new (id, name)
ON CONFLICT (node_id, store) DO UPDATE SET
    node = excluded.node, agent = excluded.agent, version = excluded.version,
    is_simulated = excluded.is_simulated, seen_at = excluded.seen_at,
    heard_s = greatest(runner.heard_s, excluded.heard_s),
    lease_s = CASE WHEN runner.seen_at > excluded.seen_at
        THEN greatest(runner.lease_s, excluded.lease_s) ELSE excluded.lease_s END
"""


def seen(
    nodes: Sequence[tuple[str, KnownNode]],
    *,
    agent: str,
    store: str,
    version: str,
    lease_s: float,
    is_simulated: bool = False,
    at: datetime,
) -> None:
    """Write down that the machine with ``store`` was heard. One query, and two where it is due.

    ``lease_s`` is on disk before the machine is answered: it covers what the answer lets run.
    """
    ids = [node.node_id for _, node in nodes]
    seldom_s = _WRITE_AT * lease_s
    lately = Runner.objects.filter(
        node_id__in=ids,
        store=store,
        is_simulated=is_simulated,
        lease_s__gte=lease_s,
        heard_s__gte=Subquery(Hearing.objects.values("listened_s")[:1]) - seldom_s,
        # Of a clock that was set back nothing can be said.
        seen_at__gt=at - timedelta(seconds=seldom_s),
        seen_at__lte=at,
    )
    fresh = set(lately.values_list("node_id", flat=True))
    due = {node.node_id: name for name, node in nodes if node.node_id not in fresh}
    if not due:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _SEEN,
            {
                "agent": agent, "store": store, "version": version, "at": at, "lease_s": lease_s,
                "is_simulated": is_simulated, "ids": list(due), "names": list(due.values()),
            },
        )  # fmt: skip


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
    return 3 * report_s(lease_s()) + _WRITE_AT * lease_s()


def silent(now: float, *, executor: str) -> dict[int, float]:
    """Return the assignments whose machines are to be given up, with their leases, s, by id.

    A few queries.
    """
    ears, least_s = _follow_hearing(now)
    if ears.listened_s - ears.since_s <= least_s:
        return {}
    started = NodeAssignment.objects.filter(
        gang__executor=executor, gang__go_at__isnull=False, gang__ended_at=None
    ).exclude(state=NodeAssignment.State.ENDED)
    claims = list(started.values_list("pk", "node_id", "store"))
    rows = Runner.objects.filter(node_id__in={node for _, node, _ in claims})
    known = {(row.node_id, row.store): (row.heard_s, row.lease_s) for row in rows}
    found = {}
    for pk, node, store in claims:
        heard_s, lease = known.get((node, store), (None, None))
        lease = lease or settings.WORK_LEASE_S
        if store and is_silent(ears, heard_s, lease):
            found[pk] = lease
    return found


@dataclass(frozen=True)
class Unheard:
    """A machine that runs a part of ``key`` and was not heard since ``since``.

    ``agent`` is the one whose token it has.
    """

    key: str
    node: str
    agent: str
    since: datetime
    lease_s: float


# A machine that holds something reports every few seconds; some of that is not written down.
_UNHEARD = """
SELECT gang.key, part.node, runner.agent, runner.seen_at, runner.lease_s
FROM admission_executors_runner AS runner
JOIN admission_executors_nodeassignment AS part
    ON part.node_id = runner.node_id AND part.store = runner.store AND part.state <> 'ended'
JOIN admission_executors_gang AS gang
    ON gang.id = part.gang_id AND gang.go_at IS NOT NULL AND gang.ended_at IS NULL
WHERE runner.seen_at < %(at)s - make_interval(
    secs => %(after_s)s + %(write_at)s * coalesce(runner.lease_s, %(lease_s)s))
ORDER BY gang.key, part.rank
"""


def unheard(at: datetime) -> list[Unheard]:
    """Return the machines that run something and have not been heard for a while. One query."""
    given: dict[str, float | datetime] = {
        "at": at, "after_s": UNKNOWN_AFTER_S, "write_at": _WRITE_AT,
        "lease_s": settings.WORK_LEASE_S,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_UNHEARD, given)
        return [
            Unheard(key, node, agent, since, lease_s or settings.WORK_LEASE_S)
            for key, node, agent, since, lease_s in cursor.fetchall()
        ]


def _follow_hearing(now: float) -> tuple[Ears, float]:
    """Bring the row of :class:`Hearing` to this moment; return it, and the shortest lease, s."""
    at, up = datetime.fromtimestamp(now, UTC), uptime()
    heard = Runner.objects.aggregate(newest=Max("heard_s"), least_s=Min("lease_s"))
    # A machine that was last heard under another policy has the lease that it was told then.
    least_s = min(lease_s(), heard["least_s"] or math.inf)
    row = Hearing.objects.filter(pk=1).first()
    if row is None:
        Hearing.objects.create(pk=1, looked_at=at, looked_s=up.s, boot_id=up.boot_id)
        return Ears(), least_s
    ears = listen(
        Ears(row.listened_s, row.since_s),
        _passed_s(row, at, up),
        heard["newest"],
        least_s,
        deaf_at_s=max(_DEAF_AT * least_s, _DEAF_REPORTS * report_s(lease_s())),
        # A network that is away for an hour is no reason to give all machines up.
        deaf_for_s=10 * settings.WORK_LEASE_S,
    )
    Hearing.objects.filter(pk=1).update(
        listened_s=ears.listened_s,
        since_s=ears.since_s,
        looked_at=at,
        looked_s=up.s,
        boot_id=up.boot_id,
    )
    return ears, least_s


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
