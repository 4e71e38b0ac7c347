"""The machines that run jobs: who was heard, and who has fallen silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Max

from admission.executors.models import Gang, Hearing, NodeOrder, Runner
from telemetry.directory import KnownNode

__all__ = ["Heard", "forget", "hearing_since", "is_silent", "ready_nodes", "seen", "silent"]

#: A report within this share of the lease need not be written down: it would cost more than it
#: tells.
_WRITE_AT = 0.1
#: Nobody at all was heard for this share of the lease: it is our own ears.
_DEAF_AT = 0.2
#: A look at the clock that comes later than this has not been looking, s.
_GAP_S = 30.0


@dataclass(frozen=True)
class Heard:
    """When the machine that holds a claim was last heard; Unix s. None: never."""

    seen_at: float | None
    claimed_at: float


def is_silent(heard: Heard, hearing: float | None, now: float, lease_s: float) -> bool:
    """Say whether the machine is to be given up. Pure.

    ``hearing``: since when we can hear, without a gap; None: we cannot now. The silence in which
    the server itself was away does not count.
    """
    if hearing is None:
        return False
    # What was heard at a time that is still to come was heard before the clock was set back.
    heard_at = [at for at in (heard.seen_at or 0.0, heard.claimed_at) if at <= now]
    return now - max(*heard_at, hearing, 0.0) > lease_s


def hearing_since(
    since: float, looked_at: float, newest: float | None, now: float, lease_s: float
) -> float | None:
    """Return since when we can hear, as :func:`is_silent` wants it; None: not at ``now``. Pure.

    ``newest`` is when anybody was heard last. While nobody is, either all machines are silent at
    once or nothing reaches us. The second is likelier, so leases stand still for ten times as long.
    """
    if not 0 <= now - looked_at <= _GAP_S:
        # We were away, or the clock was set: nobody's silence is known.
        return now
    deaf_after_s = _DEAF_AT * lease_s
    if newest is None or now - newest <= deaf_after_s or now - newest > 10 * lease_s:
        return since
    return None


def seen(
    nodes: Sequence[tuple[str, KnownNode]],
    *,
    agent: str,
    store: str,
    version: str,
    at: datetime,
) -> None:
    """Write down that the machine with ``store`` was heard. One query, and one where it is due."""
    ids = [node.node_id for _, node in nodes]
    due = at - timedelta(seconds=_WRITE_AT * settings.WORK_LEASE_S)
    fresh = set(
        Runner.objects.filter(node_id__in=ids, store=store, seen_at__gt=due).values_list(
            "node_id", flat=True
        )
    )
    rows = [
        Runner(
            node_id=node.node_id, node=name, agent=agent, store=store, version=version, seen_at=at
        )
        for name, node in nodes
        if node.node_id not in fresh
    ]
    Runner.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["node_id", "store"],
        update_fields=["node", "agent", "version", "seen_at"],
    )


def ready_nodes(now: float) -> frozenset[int]:
    """Return the database ids of nodes whose machine runs jobs and was heard lately. One query."""
    after = datetime.fromtimestamp(now, UTC) - timedelta(seconds=_lately_s())
    return frozenset(
        Runner.objects.filter(seen_at__gt=after).values_list("node_id", flat=True).distinct()
    )


def _lately_s() -> float:
    return 3 * settings.WORK_REPORT_S + _WRITE_AT * settings.WORK_LEASE_S


def silent(now: float, lease_s: float, *, executor: str) -> frozenset[int]:
    """Return the orders whose machines are to be given up. A few queries."""
    hearing = _follow_hearing(now, lease_s)
    started = NodeOrder.objects.filter(
        gang__executor=executor,
        gang__state__in=[Gang.State.GO, Gang.State.STOPPING],
        claimed_at__lt=datetime.fromtimestamp(now - lease_s, UTC),
    ).exclude(state=NodeOrder.State.ENDED)
    claims = list(started.values_list("pk", "node_id", "store", "claimed_at"))
    rows = Runner.objects.filter(node_id__in={node for _, node, _, _ in claims})
    heard = {(row.node_id, row.store): row.seen_at.timestamp() for row in rows}
    return frozenset(
        pk
        for pk, node, store, claimed_at in claims
        if claimed_at
        and is_silent(
            Heard(heard.get((node, store)), claimed_at.timestamp()), hearing, now, lease_s
        )
    )


def _follow_hearing(now: float, lease_s: float) -> float | None:
    """Bring the row of :class:`Hearing` to ``now``; return since when we can hear."""
    at = datetime.fromtimestamp(now, UTC)
    newest = Runner.objects.aggregate(newest=Max("seen_at"))["newest"]
    row = Hearing.objects.filter(pk=1).first()
    if row is None:
        Hearing.objects.create(pk=1, since=at, looked_at=at)
        return now
    hearing = hearing_since(
        row.since.timestamp(),
        row.looked_at.timestamp(),
        newest.timestamp() if newest else None,
        now,
        lease_s,
    )
    # While we are deaf it moves along, so that hearing begins anew when somebody is heard.
    since = at if hearing is None else datetime.fromtimestamp(hearing, UTC)
    Hearing.objects.filter(pk=1).update(since=since, looked_at=at)
    return hearing


def forget(now: float, after_s: float) -> int:
    """Drop machines that were not heard for ``after_s``; return how many."""
    before = datetime.fromtimestamp(now - after_s, UTC)
    return Runner.objects.filter(seen_at__lt=before).delete()[0]
