"""Which agent may speak for which things: by token and by name, cached in each process."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from accounts import tokens
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from telemetry.ingest.rate import Share, share_of
from telemetry.models import Agent, ScopeGeneration

#: A revoked token or a narrowed scope takes effect in every process within this time.
SCOPE_MAX_AGE_S = 2.0


@dataclass(frozen=True)
class AgentScope:
    """An agent and its scope: its nodes, and everything at its sites."""

    agent_id: int
    name: str
    node_ids: frozenset[int]
    site_ids: frozenset[int]
    #: whether it may report on jobs that are not placed on its nodes
    any_job: bool = False

    def holds(self, *, node_id: int | None, site_id: int) -> bool:
        """Say whether something on ``node_id`` (None: on no node) at ``site_id`` is in scope."""
        return node_id in self.node_ids or site_id in self.site_ids


@dataclass(frozen=True)
class _Token:
    """The scope of a token, and until when (Unix s): one that was replaced may go on a while."""

    scope: AgentScope
    good_until: float = math.inf


#: The scopes of all agents by the digests of their tokens. All at once, since a fleet's agents come
#: round more seldom than any of them could be kept.
_tokens: Cache[dict[bytes, _Token]] = Cache(SCOPE_MAX_AGE_S)
invalidate_scopes = _tokens.invalidate


def look_again() -> None:
    """Read the scopes again if they have changed. One query; three more where any has."""
    _read(0.0)


def _read(max_age_s: float) -> dict[bytes, _Token]:
    return _tokens.get(_load_tokens, version=ScopeGeneration.current, max_age_s=max_age_s)


def known_scope_of(token: str) -> AgentScope | None:
    """Return the scope of the agent with ``token`` as this process last heard of it, or None.

    It asks nobody and waits for nobody, and may be out of date in both directions: it says whose
    body is worth reading. What a batch may do is :func:`scope_of`'s to say.
    """
    if not token.startswith(tokens.AGENT_PREFIX):
        return None
    found = (_tokens.peek() or {}).get(tokens.digest(token))
    return None if found is None else found.scope


def scope_of(token: str) -> AgentScope | None:
    """Return the scope of the agent with ``token``, or None.

    One query each 2 s and for each unknown token, three more when any agent's scope has changed.
    """
    if not token.startswith(tokens.AGENT_PREFIX):
        return None
    digest = tokens.digest(token)
    # Where it is not known, the agent may have been enrolled a moment ago.
    found = _read(SCOPE_MAX_AGE_S).get(digest) or _read(0.0).get(digest)
    return found.scope if found is not None and found.good_until > time.time() else None


def scopes() -> frozenset[AgentScope]:
    """Return the scopes of all agents. One query each 2 s."""
    return frozenset(token.scope for token in _read(SCOPE_MAX_AGE_S).values())


def _load_tokens() -> dict[bytes, _Token]:
    nodes = _grouped(Agent.nodes.through.objects.values_list("agent_id", "node_id"))
    sites = _grouped(Agent.sites.through.objects.values_list("agent_id", "site_id"))
    agents = Agent.objects.usable().values_list(
        "pk", "name", "any_job", "digest", "previous_digest", "previous_until"
    )
    found: dict[bytes, _Token] = {}
    for pk, name, any_job, digest, previous, until in agents:
        scope = AgentScope(
            agent_id=pk,
            name=name,
            node_ids=frozenset(nodes.get(pk, ())),
            site_ids=frozenset(sites.get(pk, ())),
            any_job=any_job,
        )
        found[bytes(digest)] = _Token(scope)
        if previous is not None and until is not None:
            found[bytes(previous)] = _Token(scope, until.timestamp())
    return found


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


@dataclass(frozen=True)
class KnownNode:
    """A node as batches name it."""

    node_id: int
    site_id: int
    gpu_ids: dict[int, int]


@dataclass(frozen=True)
class KnownThing:
    """A link or meter as batches name it. ``node_id`` is None where it is on no one node."""

    id: int
    node_id: int | None
    site_id: int


class Names:
    """Look-up by the names that batches use, over one state of the inventory."""

    def __init__(self, fleet: FleetArrays) -> None:
        self._fleet = fleet
        self._nodes: dict[str, KnownNode] = {}

    def node(self, name: str) -> KnownNode | None:
        """Return the node called ``name``."""
        known = self._nodes.get(name)
        if known is None:
            row = self._fleet.nodes.index_by_name.get(name)
            if row is None:
                return None
            known = self._nodes[name] = self._known_node(row)
        return known

    def _known_node(self, row: int) -> KnownNode:
        fleet = self._fleet
        gpus = slice(fleet.gpu_bounds[row], fleet.gpu_bounds[row + 1])
        indexes, ids = fleet.gpus.index[gpus].tolist(), fleet.gpus.ids[gpus].tolist()
        return KnownNode(
            node_id=int(fleet.nodes.ids[row]),
            site_id=self._site_of_rack(int(fleet.nodes.rack[row])),
            gpu_ids=dict(zip(indexes, ids, strict=True)),
        )

    def site(self, name: str) -> int | None:
        """Return the id of the site called ``name``."""
        row = self._fleet.sites.index_by_name.get(name)
        return None if row is None else int(self._fleet.sites.ids[row])

    def link(self, name: str) -> KnownThing | None:
        """Return the link called ``name``."""
        links = self._fleet.links
        row = links.index_by_name.get(name)
        if row is None:
            return None
        site_id = int(self._fleet.sites.ids[links.site[row]])
        return KnownThing(int(links.ids[row]), self._node_id(int(links.node[row])), site_id)

    def meter(self, name: str) -> KnownThing | None:
        """Return the meter called ``name``."""
        meters = self._fleet.meters
        row = meters.index_by_name.get(name)
        if row is None:
            return None
        kind, target = int(meters.target_kind[row]), int(meters.target[row])
        fleet = self._fleet
        # In the order of fleet.snapshot.METER_TARGETS.
        site_id, node = (
            lambda: (int(fleet.sites.ids[fleet.domains.site[target]]), -1),
            lambda: (int(fleet.sites.ids[fleet.zones.site[target]]), -1),
            lambda: (self._site_of_rack(target), -1),
            lambda: (self._site_of_rack(int(fleet.nodes.rack[target])), target),
        )[kind]()
        return KnownThing(int(meters.ids[row]), self._node_id(node), site_id)

    def share_of(self, scope: AgentScope) -> Share:
        """Return how much an agent may send, by the nodes that it may speak for."""
        at_sites = sum(self._nodes_by_site.get(site, 0) for site in scope.site_ids)
        return share_of(len(scope.node_ids) + at_sites)

    @cached_property
    def _nodes_by_site(self) -> dict[int, int]:
        fleet = self._fleet
        sites = fleet.sites.ids[fleet.racks.site[fleet.nodes.rack]]
        ids, counts = np.unique(sites, return_counts=True)
        return dict(zip(ids.tolist(), counts.tolist(), strict=True))

    def _site_of_rack(self, rack: int) -> int:
        return int(self._fleet.sites.ids[self._fleet.racks.site[rack]])

    def _node_id(self, row: int) -> int | None:
        return int(self._fleet.nodes.ids[row]) if row >= 0 else None


@lru_cache(maxsize=2)
def names_of(fleet: FleetArrays) -> Names:
    """Return the look-up over ``fleet``; one is kept for the newest two states."""
    return Names(fleet)
