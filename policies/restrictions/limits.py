"""The limits that agents are to set, cut to the nodes of each: restrictions, and the controller's.

12,500 agents ask every few seconds, so an answer costs no query: each process keeps the limits of
the whole fleet, and looks once a second whether anything has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs

import msgspec
import numpy as np
from django.conf import settings

from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from fleet.tables import LINK_KINDS
from headroom.contracts import BatchError, Limit, LinkLimit
from policies import traffic
from policies.caps import askers, orders
from policies.caps.orders import Orders
from policies.restrictions.kinds import LIMITS, RestrictionKind
from policies.restrictions.models import RestrictionGeneration, read_in_force
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import ScopeKind, UnknownScope, row_of
from telemetry.directory import AgentScope

__all__ = ["Asked", "LimitTable", "TooManyLimits", "answer", "asked_in", "invalidate", "make_table"]

#: What the contract lets an answer have.
MOST = 10_000
#: A change takes effect in every process within this time.
MAX_AGE_S = 1.0


#: The most links that one agent may ask about.
MOST_LINKS = 64


class TooManyLimits(BatchError):
    """An agent speaks for more than an answer holds."""


@dataclass(frozen=True)
class Asked:
    """What an agent asks for: the limits on its GPUs, or not, and the shares of which links."""

    gpus: bool = True
    links: tuple[str, ...] = ()


def asked_in(query: str) -> Asked:
    """Return what the query of a request asks for. Raises :class:`TooManyLimits`."""
    if not query:
        return Asked()
    try:
        found = parse_qs(query, max_num_fields=MOST_LINKS + 1)
    except ValueError as exc:
        raise TooManyLimits(
            "too_many_limits",
            f"an agent may ask about {MOST_LINKS} links at most",
            hint="let several agents share these links",
        ) from exc
    return Asked(found.get("gpus") != ["0"], tuple(dict.fromkeys(found.get("link", ()))))


@dataclass(frozen=True, eq=False)
class Links:
    """The shares of links, by name. ``restricted`` has by row what restrictions leave to jobs."""

    fleet: FleetArrays
    policy: traffic.TrafficPolicy
    restricted: dict[int, dict[str, tuple[float, float]]]
    ends_at: float
    _made: dict[str, list[LinkLimit]] = field(default_factory=dict)

    def limits(self, scope: AgentScope, names: Sequence[str]) -> list[LinkLimit]:
        """Return the leases on those of ``names`` that are links at sites of the agent's."""
        known = self.fleet.links.index_by_name
        rows = {name: known[name] for name in names if name in known}
        return [
            limit
            for name, row in rows.items()
            if self._is_at_site_of(scope, row)
            for limit in self._limits(name, row)
        ]

    def _is_at_site_of(self, scope: AgentScope, row: int) -> bool:
        fleet, links = self.fleet, self.fleet.links
        sites = (links.site[row], links.peer_site[row])
        ends = {int(fleet.sites.ids[site]) for site in sites if site >= 0}
        if ends & scope.site_ids:
            return True
        rows = [fleet.nodes.index_by_id.get(node) for node in scope.node_ids]
        nodes = [each for each in rows if each is not None]
        return bool(ends & set(fleet.sites.ids[fleet.racks.site[fleet.nodes.rack[nodes]]].tolist()))

    def _limits(self, name: str, row: int) -> list[LinkLimit]:
        if name not in self._made:
            links = self.fleet.links
            shares = self.policy.shares_of(
                name, LINK_KINDS[links.kind[row]], float(links.control_share[row])
            )
            self._made[name] = traffic.limits_on(
                name,
                shares,
                float(links.capacity_bits_per_s[row]),
                self.restricted.get(row, {}),
                key=f"traffic-{links.ids[row]}",
                ends_at=self.ends_at,
            )
        return self._made[name]


@dataclass(frozen=True, eq=False)
class LimitTable:
    """The limits on each node, by its database id. ``ends_at`` is when the first of them ends."""

    by_node: dict[int, list[Limit]]
    site_of_node: dict[int, int]
    ends_at: float
    links: Links
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


def make_table(
    in_force: InForce,
    fleet: FleetArrays,
    ordered: Orders | None = None,
    shares: traffic.TrafficPolicy | None = None,
) -> LimitTable:
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
    told = (*LIMITS, RestrictionKind.LINK_SHARE)
    ends = [each.expires_at.timestamp() for each in in_force.restrictions if each.kind in told]
    now = in_force.at.timestamp()
    ends.append(now + traffic.LEASE_S / 2)
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
        ends_at=min(ends),
        links=Links(
            fleet,
            shares or traffic.TrafficPolicy(),
            _restricted(in_force, fleet),
            ends_at=now + traffic.LEASE_S,
        ),
    )


def _restricted(in_force: InForce, fleet: FleetArrays) -> dict[int, dict[str, tuple[float, float]]]:
    """Return by the row of a link what each restriction leaves to jobs, and when that ends."""
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for each in in_force.of(RestrictionKind.LINK_SHARE):
        row = fleet.links.index_by_name.get(each.scope.name)
        if row is not None:
            until = each.expires_at.timestamp()
            found.setdefault(row, {})[each.limit_id] = (each.number, until)
    return found


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
        return make_table(in_force, snapshot.current(), orders.current(now), traffic.current())

    def version() -> tuple[object, ...]:
        generation, shares = snapshot.current().generation, traffic.current()
        return RestrictionGeneration.current(), generation, orders.current(now).version, shares

    return _tables.get(made, version=version)


def answer(scope: AgentScope, now: float, asked: Asked | None = None) -> bytes:
    """Return the body of the answer to an agent: a LimitSet in JSON.

    No query but one a second for each process, and three more after something has changed.
    """
    asked, table = asked or Asked(), _table(now)
    limits = b"[]"
    if asked.gpus:
        # Who does not ask for limits on GPUs sets none: the controller is not to count on it.
        askers.note(scope.agent_id, now)
        limits = table.encoded(scope)
    links = msgspec.json.encode(table.links.limits(scope, asked.links)) if asked.links else b"[]"
    valid_for_s = settings.LIMITS_VALID_FOR_S
    told = (limits, now, valid_for_s, links)
    return b'{"limits":%s,"now":%.6f,"valid_for_s":%g,"links":%s}' % told
