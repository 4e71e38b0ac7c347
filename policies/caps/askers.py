"""Which agents ask for their limits: they are those that act on caps.

An agent asks only where its operator lets it set limits. Each process notes who has asked, and says
so to the others once a second. It is lost with Redis, and known again after the next requests.
"""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
import redis
import structlog

from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from policies.headroom.columns import Bools
from telemetry import directory, stream

__all__ = ["HEARD_S", "forget", "nodes_that_ask", "note"]

log = structlog.get_logger(__name__)

_KEY = "limits:asked"
#: Who has asked within this time acts on what it is told, s. Agents ask every few seconds, and
#: keep to what they know for longer than this.
HEARD_S = 45.0
#: A process tells the others so often, s.
_TOLD_EVERY_S = 1.0


class _Noted:
    """Who has asked this process since it last told the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[int, float] = {}
        self._told_at = -float("inf")

    def add(self, agent_id: int, now: float) -> dict[int, float]:
        """Return what is to be told now, which is nothing most of the time."""
        with self._lock:
            self._asked[agent_id] = now
            if 0.0 <= now - self._told_at < _TOLD_EVERY_S:
                return {}
            told, self._asked, self._told_at = self._asked, {}, now
            return told

    def forget(self) -> None:
        with self._lock:
            self._asked, self._told_at = {}, -float("inf")


_noted = _Noted()
_nodes: Cache[Bools] = Cache()


def note(agent_id: int, now: float) -> None:
    """Note that an agent asks at ``now`` (Unix s). Never fails: its answer matters more."""
    told = _noted.add(agent_id, now)
    if not told:
        return
    try:
        stream.connection().hset(_KEY, mapping={str(key): at for key, at in told.items()})
    except redis.RedisError as exc:
        log.warning("askers_not_noted", error=type(exc).__name__)


def nodes_that_ask(fleet: FleetArrays, now: float) -> Bools:
    """Say of each node of ``fleet`` whether an agent has asked for its limits of late."""
    found = cast(dict[bytes, bytes], stream.connection().hgetall(_KEY))
    heard = frozenset(int(key) for key, at in found.items() if abs(now - float(at)) <= HEARD_S)
    scopes = frozenset(scope for scope in directory.scopes() if scope.agent_id in heard)
    return _nodes.get(lambda: _nodes_of(fleet, scopes), of=(fleet, scopes))


def _nodes_of(fleet: FleetArrays, scopes: frozenset[directory.AgentScope]) -> Bools:
    nodes = {node for scope in scopes for node in scope.node_ids}
    sites = {site for scope in scopes for site in scope.site_ids}
    own = np.isin(fleet.nodes.ids, np.fromiter(nodes, dtype=np.int64))
    site = fleet.sites.ids[fleet.racks.site[fleet.nodes.rack]]
    return np.asarray(own | np.isin(site, np.fromiter(sites, dtype=np.int64)))


def forget() -> None:
    """Forget who has asked this process, as one that has just begun."""
    _noted.forget()
    _nodes.invalidate()
