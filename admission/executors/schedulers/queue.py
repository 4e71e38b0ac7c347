"""The executor of a scheduler: leases in Postgres, which its bridge carries out.

Whoever changes a lease holds the lock of its row. What was said is durable before the bridge hears
of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, QuerySet

from admission.executors.node_queue import moment
from admission.executors.protocol import (
    SignalKind,
    Work,
    WorkOutcomeKind,
    WorkPlacement,
    WorkStatus,
    WorkStatusState,
)
from admission.executors.schedulers import news
from admission.executors.schedulers.leases import End
from admission.executors.schedulers.models import Lease, SchedulerJob
from headroom.schedulers.contract import JobState

__all__ = ["SchedulerQueue", "close", "locked"]

#: Leases that one look at the clock takes up, or that are told of at once.
_MOST = 1000
#: What is over is kept for this long.
_KEPT = timedelta(days=7)
#: A bridge that was not heard for this long knows nothing of what its scheduler starts.
_HEARD = timedelta(seconds=10)
_FIELDS = ["started_at", "ended_at", "outcome", "exit_code", "why", "version"]
_NOTE = """
UPDATE admission_schedulers_lease AS lease SET noted = greatest(lease.noted, new.version)
FROM unnest(%s::text[], %s::int[]) AS new (key, version)
WHERE lease.key = new.key AND lease.noted < new.version
"""


class SchedulerQueue:
    """An :class:`~admission.executors.protocol.Executor` over the jobs of one scheduler."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, works: Sequence[Work], now: float) -> None:
        """Write a lease down for each job, not released yet. Jobs that are over get none."""
        jobs = SchedulerJob.objects.open().filter(scheduler__name=self.name)
        found = {job.name: job for job in jobs.filter(name__in=[work.job for work in works])}
        leases = [
            Lease(job=found[work.job], key=work.key, restarts=found[work.job].restarts)
            for work in works
            if work.job in found
        ]
        # Its job has another that is open: the next reconciliation tries again.
        Lease.objects.bulk_create(leases, ignore_conflicts=True)

    def release(self, placements: Mapping[str, WorkPlacement], now: float) -> None:
        """Let the bridge start held jobs on the nodes of their placements.

        Under which cap they were placed they are told as they begin.
        """
        with transaction.atomic():
            held = list(locked(placements).filter(released_at=None, ended_at=None, stop_for=""))
            for lease in held:
                placed = placements[lease.key]
                lease.nodes = [share.node for share in placed.nodes]
                lease.released_at = moment(now)
                lease.version += 1
                if placed.power_cap_w is not None:
                    lease.signal_seq += 1
                    lease.directives = _directed(
                        lease, SignalKind.SET_POWER_CAP, placed.power_cap_w
                    )
            changed = ["nodes", "released_at", "version", "signal_seq", "directives"]
            Lease.objects.bulk_update(held, changed, _MOST)
            if held:
                news.orders_for(self.name)

    def signal(
        self, key: str, kind: SignalKind, now: float, *, value: float | None = None, why: str = ""
    ) -> int | None:
        """Write down what is wanted; a stop also ends what was not released yet."""
        with transaction.atomic():
            lease = locked([key]).filter(ended_at=None).first()
            if lease is None:
                return None
            lease.signal_seq += 1
            lease.version += 1
            if kind == SignalKind.STOP:
                lease.stop_for = lease.stop_for or why[:500] or "stopped"
                if lease.released_at is None and lease.started_at is None:
                    close(lease, End(WorkOutcomeKind.STOPPED, lease.stop_for), moment(now))
            elif kind in (SignalKind.PAUSE, SignalKind.RESUME):
                lease.is_paused = kind == SignalKind.PAUSE
            else:
                lease.directives = _directed(lease, kind, value)
            lease.save()
            news.orders_for(self.name)
            return lease.signal_seq

    def status(self, keys: Sequence[str]) -> list[WorkStatus]:
        """Return how each is. One query."""
        found = {each.key: each for each in _statuses(Lease.objects.filter(key__in=keys))}
        unknown = WorkStatusState.UNKNOWN
        return [found.get(key) or WorkStatus(key=key, state=unknown) for key in keys]

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return those of ``keys`` that were not released. One query."""
        if not keys:
            return []
        known = Lease.objects.filter(key__in=keys).exclude(released_at=None, ended_at=None)
        released = set(known.values_list("key", flat=True))
        return [key for key in keys if key not in released][:_MOST]

    def changes(self) -> list[WorkStatus]:
        """Return statuses that changed and were not noted, oldest first, bounded. One query."""
        moved = self._mine().exclude(version=F("noted")).order_by("pk")
        return _statuses(moved[:_MOST])

    def note(self, statuses: Sequence[WorkStatus]) -> None:
        """Write down the versions that the caller knows, so that later changes are told again."""
        with connection.cursor() as cursor:
            cursor.execute(_NOTE, [[s.key for s in statuses], [s.version for s in statuses]])

    def adopt(self, besides: Collection[str] = ()) -> list[WorkStatus]:
        """Return the statuses of all work that is not over. One query."""
        known = set(besides)
        found = _statuses(self._mine().filter(ended_at=None))
        return [status for status in found if status.key not in known]

    def follow(self, now: float) -> None:
        """Take leases back under which nothing begins in time; drop what ended long ago.

        Nothing is given up for its bridge's silence: the scheduler lets its jobs run on.
        """
        at = moment(now)
        late = self._mine().filter(
            ended_at=None, started_at=None, is_late=False,
            released_at__lt=at - timedelta(seconds=settings.WORK_GATHER_S),
            job__scheduler__seen_at__gt=at - _HEARD,
        )  # fmt: skip
        late.update(is_late=True)
        old = SchedulerJob.objects.filter(
            scheduler__name=self.name, is_settled=True, ended_at__lt=at - _KEPT
        )
        keys = list(old.values_list("pk", flat=True)[:_MOST])
        if keys:
            SchedulerJob.objects.filter(pk__in=keys).delete()

    def _mine(self) -> QuerySet[Lease]:
        return Lease.objects.filter(job__scheduler__name=self.name)


def locked(keys: Iterable[str]) -> QuerySet[Lease]:
    """Return the leases of ``keys`` under their locks, taken in one order everywhere."""
    rows = Lease.objects.select_for_update(of=("self",)).filter(key__in=list(keys))
    return rows.select_related("job").order_by("pk")


def close(lease: Lease, end: End, at: datetime, exit_code: int | None = None) -> None:
    """Put the end of a lease into its row, which is not saved."""
    lease.ended_at, lease.outcome, lease.why = at, end.outcome, end.why[:500]
    lease.exit_code = exit_code
    lease.version += 1


def _directed(lease: Lease, kind: SignalKind, value: float | None) -> dict[str, float | None]:
    told = {**lease.directives, "seq": lease.signal_seq}
    if kind == SignalKind.CHECKPOINT:
        return {**told, "checkpoint": lease.signal_seq}
    name = "batch_scale" if kind == SignalKind.SET_BATCH_SCALE else "power_cap_w"
    return {**told, name: value}


def _statuses(leases: QuerySet[Lease]) -> list[WorkStatus]:
    return [_status(lease) for lease in leases.select_related("job")]


def _status(lease: Lease) -> WorkStatus:
    told = lease.job.report if lease.ended_at is None and lease.started_at else None
    return WorkStatus(
        key=lease.key,
        state=_state(lease),
        outcome=WorkOutcomeKind(lease.outcome) if lease.outcome else None,
        exit_code=lease.exit_code,
        why=lease.why or lease.stop_for,
        started_at=_unix(lease.started_at),
        ended_at=_unix(lease.ended_at),
        checkpoint_at=told.checkpoint_at if told else None,
        signals_seen=told.signals_seen if told else 0,
        signals_done=told.signals_done if told else 0,
        outputs=tuple(lease.job.report.outputs) if lease.job.told.get("outputs") else (),
        version=lease.version,
    )


def _state(lease: Lease) -> WorkStatusState:
    if lease.ended_at is not None:
        return WorkStatusState.ENDED
    if lease.stop_for:
        return WorkStatusState.STOPPING
    if lease.started_at is not None:
        is_paused = lease.job.state == JobState.SUSPENDED
        return WorkStatusState.PAUSED if is_paused else WorkStatusState.RUNNING
    return WorkStatusState.HELD if lease.released_at is None else WorkStatusState.STARTING


def _unix(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
