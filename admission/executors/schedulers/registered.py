"""The schedulers that bridges speak for, as each process knows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from admission.executors.node_queue import moment
from admission.executors.schedulers.models import Scheduler, SchedulerNode
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from headroom.schedulers.contract import NodeState

__all__ = [
    "RESERVED",
    "agent_of",
    "executor_by_node",
    "invalidate",
    "names",
    "ready_nodes",
    "sites_of",
]

#: Names of executors that are no schedulers.
RESERVED = frozenset({"local", "twin"})
#: A new scheduler is known to every process within this time, s.
_MAX_AGE_S = 2.0
#: A scheduler that was not heard for this long is given no jobs.
_HEARD = timedelta(seconds=30)

#: The agent that speaks for each, by name.
_agents: Cache[dict[str, int]] = Cache(_MAX_AGE_S)
invalidate = _agents.invalidate


def names(*, fresh: bool = False) -> frozenset[str]:
    """Return the names of all schedulers. One query each 2 s, or at once if ``fresh``."""
    found = _agents.get(_read, max_age_s=0.0) if fresh else _agents.get(_read)
    return frozenset(found)


def agent_of(name: str) -> int | None:
    """Return the id of the agent that speaks for a scheduler; None: nobody does. As :func:`names`.

    One that was heard for the first time within the last 2 s may be unknown.
    """
    return _agents.get(_read).get(name)


def _read() -> dict[str, int]:
    return dict(Scheduler.objects.values_list("name", "agent_id"))


def executor_by_node() -> dict[int, str]:
    """Return the scheduler of each node that has one, by the node's id. One query."""
    return dict(SchedulerNode.objects.values_list("node_id", "scheduler__name"))


def sites_of(executors: Mapping[int, str], fleet: FleetArrays) -> dict[str, frozenset[str]]:
    """Return the sites of each scheduler, by the scheduler of each node's id. Pure."""
    site = fleet.sites.names[fleet.racks.site[fleet.nodes.rack]].tolist()
    found: dict[str, set[str]] = {}
    for node, name in zip(fleet.nodes.ids.tolist(), site, strict=True):
        if node in executors:
            found.setdefault(executors[node], set()).add(name)
    return {name: frozenset(sites) for name, sites in found.items()}


def ready_nodes(now: float) -> frozenset[int]:
    """Return the ids of nodes on which a scheduler that was heard lately starts jobs. One query."""
    rows = SchedulerNode.objects.filter(
        state=NodeState.UP, drain_for="", scheduler__seen_at__gt=moment(now) - _HEARD
    )
    return frozenset(rows.values_list("node_id", flat=True))
