"""Nodes out of use: what we drain is drained in its scheduler, and what others drain there is ours.

One owner for each: a node that a restriction drains comes back as the restriction ends, and who
else has drained it in its scheduler brings it back there, not we.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from admission.executors.node_queue import moment
from admission.executors.schedulers import registered
from admission.executors.schedulers.models import SchedulerNode
from fleet import snapshot
from headroom.schedulers.contract import NodeState
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind

__all__ = ["OWNER", "cordon"]

#: What the owner of restrictions begins with that stand for drains of others.
OWNER = "scheduler:"
#: Such a restriction lasts so long, and is renewed when half of it has gone by.
_LASTS = timedelta(hours=1)
_MOST = 500


def cordon(now: float) -> None:
    """Compare restrictions with the nodes of schedulers, both ways. Three queries."""
    if registered.names():
        _drain(moment(now))
        _take_over(moment(now))


def _drain(at: datetime) -> None:
    """Want nodes drained that a restriction drains, and nothing else."""
    in_force, fleet = store.in_force(at), snapshot.current()
    wanted: dict[str, str] = {}
    for each in in_force.of(RestrictionKind.DRAIN):
        for row in in_force.node_rows(fleet, each.scope).tolist():
            text = f"{each.reason} (restriction {each.id})"[:_MOST]
            wanted.setdefault(str(fleet.nodes.names[row]), text)
    changed = []
    for node in SchedulerNode.objects.filter(~Q(drain_for="") | Q(node__in=wanted)):
        reason = wanted.get(node.node, "")
        if node.drain_for != reason:
            node.drain_for = reason
            changed.append(node)
    SchedulerNode.objects.bulk_update(changed, ["drain_for"], _MOST)


def _take_over(at: datetime) -> None:
    """Have a restriction of theirs stand for each node that others have drained."""
    drained = SchedulerNode.objects.filter(state=NodeState.DRAINED, is_ours=False)
    wanted = {
        each.key: each
        for each in (_wanted(node, at) for node in drained.select_related("scheduler"))
    }
    live = Restriction.objects.live().filter(owner__startswith=OWNER)
    known = {(row.owner, row.cause, row.kind, row.scope_kind, row.scope_name): row for row in live}
    for key in known.keys() - wanted.keys():
        owner, cause, *_ = key
        store.release(owner, now=at, by=owner, why="it is back", cause=cause)
    store.apply(
        [
            each
            for key, each in wanted.items()
            if key not in known
            or known[key].reason != each.reason
            or known[key].expires_at - at < _LASTS / 2
        ],
        now=at,
    )


def _wanted(node: SchedulerNode, at: datetime) -> Wanted:
    who = f" by {node.drained_by}" if node.drained_by else ""
    return Wanted(
        kind=RestrictionKind.NO_NEW_LAUNCHES,
        scope=Scope(ScopeKind.NODE, node.node),
        value=None,
        reason=f"drained in {node.scheduler}{who}: {node.reason or 'no reason given'}"[:_MOST],
        owner=f"{OWNER}{node.scheduler}",
        cause=f"drained {node.node}",
        expires_at=at + _LASTS,
        # It is so already: there is nothing for a person to agree to.
        most_of_site=1.0,
    )
