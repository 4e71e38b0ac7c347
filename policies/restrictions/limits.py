"""The limits that agents are to set, cut to the nodes of each: restrictions, and the controller's.

12,500 agents ask every few seconds, so an answer costs no query: each process keeps the limits of
the whole fleet, and looks once a second whether anything has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np
from django.conf import settings

from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from headroom.contracts import BatchError, Limit
from policies.caps import askers, orders
from policies.caps.orders import Orders
from policies.restrictions.kinds import LIMITS
from policies.restrictions.models import RestrictionGeneration, read_in_force
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import ScopeKind, UnknownScope, row_of
from telemetry.directory import AgentScope

__all__ = ["LimitTable", "TooManyLimits", "answer", "invalidate", "make_table"]

#: What the contract lets an answer have.
MOST = 10_000
#: A change takes effect in every process within this time.
MAX_AGE_S = 1.0


class TooManyLimits(BatchError):
    """An agent speaks for more than an answer holds."""


@dataclass(frozen=True, eq=False)
class LimitTable:
    """The limits on each node, by its database id. ``ends_at`` is when the first of them ends."""

    by_node: dict[int, list[Limit]]
    site_of_node: dict[int, int]
    ends_at: float
    _encoded: dict[int, tuple[AgentScope, bytes]] = field(default_factory=dict)

    def encoded(self, scope: AgentScope) -> bytes:
        """Return the limits of an agent as a JSON array. Raises :class:`TooManyLimits`."""
        if not self.by_node:
            return b"[]"
        known = self._encoded.get(scope.agent_id)
        # The scope is the same object for as long as no agent's scope changes.
        if known is not None and known[0] is scope:
            return known[1]
        limits = [limit for node in self._nodes(scope) for limit in self.by_node[node]]
        if len(limits) > MOST:
            raise TooManyLimits(
                "too_many_limits",
                f"{len(limits)} limits are in force on the nodes of {scope.name}; an answer has"
                f" room for {MOST}",
                hint="let several agents speak for these nodes",
            )
        made = msgspec.json.encode(limits)
        self._encoded[scope.agent_id] = (scope, made)
        return made

    def _nodes(self, scope: AgentScope) -> Iterator[int]:
        if not scope.site_ids:
            yield from sorted(self.by_node.keys() & scope.node_ids)
            return
        for node, site in self.site_of_node.items():
            if scope.holds(node_id=node, site_id=site):
                yield node


def make_table(in_force: InForce, fleet: FleetArrays, ordered: Orders | None = None) -> LimitTable:
    """Cut the restrictions in force to the nodes of ``fleet``, and ``ordered`` caps. Pure.

    A node gets, of each kind, the strictest, and of the others those that outlast all that are
    stricter: when the strictest ends, the next is there already, and the GPU is never free between.
    """
    by_node: dict[int, list[Limit]] = {}
    for kind in LIMITS:
        wide = [each for each in in_force.of(kind) if each.scope.kind is not ScopeKind.GPU]
        covered_until = np.full(len(fleet.nodes), -np.inf)
        for each in wide:
            _spread(by_node, each, in_force, fleet, covered_until)
        for each in in_force.of(kind):
            if each.scope.kind is ScopeKind.GPU:
                _put_on_gpu(by_node, each, fleet)
    ends = [each.expires_at.timestamp() for each in in_force.restrictions if each.kind in LIMITS]
    if ordered is not None and len(ordered):
        # Agents take the lowest of all that they are told.
        for node, limit in orders.by_node(ordered, fleet):
            by_node.setdefault(node, []).append(limit)
        ends.append(ordered.expires_at)
    node_site = fleet.racks.site[fleet.nodes.rack]
    row_of_node = fleet.nodes.index_by_id
    return LimitTable(
        by_node=by_node,
        site_of_node={node: int(fleet.sites.ids[node_site[row_of_node[node]]]) for node in by_node},
        ends_at=min(ends, default=float("inf")),
    )


def _spread(
    by_node: dict[int, list[Limit]],
    each: ActiveRestriction,
    in_force: InForce,
    fleet: FleetArrays,
    covered_until: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    """Put a restriction on the nodes on which it will once be the strictest."""
    ends_at = each.expires_at.timestamp()
    rows = in_force.node_rows(fleet, each.scope)
    rows = rows[covered_until[rows] < ends_at]
    covered_until[rows] = ends_at
    ids, names = fleet.nodes.ids[rows].tolist(), fleet.nodes.names[rows].tolist()
    for node, name in zip(ids, names, strict=True):
        by_node.setdefault(node, []).append(_limit(each, name))


def _put_on_gpu(
    by_node: dict[int, list[Limit]], each: ActiveRestriction, fleet: FleetArrays
) -> None:
    try:
        gpu = row_of(fleet, each.scope)
    except UnknownScope:
        return
    row = fleet.gpus.node[gpu]
    limit = _limit(each, fleet.nodes.names[row], int(fleet.gpus.index[gpu]))
    by_node.setdefault(int(fleet.nodes.ids[row]), []).append(limit)


def _limit(each: ActiveRestriction, node: str, gpu: int | None = None) -> Limit:
    return Limit(
        id=each.limit_id,
        node=node,
        kind=each.kind.value,
        value=each.number,
        expires_at=each.expires_at.timestamp(),
        gpu=gpu,
    )


# --- What this process keeps ----------------------------------------------------------------------


_tables: Cache[LimitTable] = Cache(MAX_AGE_S)
invalidate = _tables.invalidate


def _table(now: float) -> LimitTable:
    """Return the table as of at most a second ago, and never with a lease that has ended."""
    table = _read(now)
    if now >= table.ends_at:
        _tables.invalidate()
        table = _read(now)
    return table


def _read(now: float) -> LimitTable:
    def made() -> LimitTable:
        in_force = read_in_force(datetime.fromtimestamp(now, UTC))
        return make_table(in_force, snapshot.current(), orders.current(now))

    def version() -> tuple[int, int, str]:
        generation = snapshot.current().generation
        return RestrictionGeneration.current(), generation, orders.current(now).version

    return _tables.get(made, version=version)


def answer(scope: AgentScope, now: float) -> bytes:
    """Return the body of the answer to an agent: a LimitSet in JSON.

    No query but one a second for each process, and three more after something has changed.
    """
    askers.note(scope.agent_id, now)
    limits = _table(now).encoded(scope)
    valid_for_s = settings.LIMITS_VALID_FOR_S
    return b'{"limits":%s,"now":%.6f,"valid_for_s":%g}' % (limits, now, valid_for_s)
