"""Where the GPUs are that a gang might have had: each of them counted once, so that they add up."""

from __future__ import annotations

from admission.core.placement.elastic import Draw
from admission.core.placement.eligibility import Eligibility
from admission.core.placement.topology import Ints
from policies.restrictions.kinds import RestrictionKind

__all__ = ["FREE", "supply_of", "told"]

#: The key of those that the gang may have, in what :func:`supply_of` returns.
FREE = "free"


def supply_of(eligibility: Eligibility, draw: Draw, free: Ints) -> dict[str, int]:
    """Return how many GPUs at the sites of a request are in which state, without those of none.

    ``free``: by node, those of the model of ``draw`` that count as free to it.
    """
    cluster, named, cooled = eligibility.cluster, eligibility.named, eligibility.cooled
    constants, topology = cluster.constants, cluster.topology
    of_model = topology.node_gpus_by_kind[draw.kind]
    shut = cluster.node_free[draw.kind] * cooled - free
    drained = constants.in_force.nodes_under(cluster.fleet, RestrictionKind.DRAIN)
    parts = {
        "under load of no job": constants.other_load[draw.kind] * cooled,
        "not read": constants.silent[draw.kind] * cooled,
        "on nodes that run no jobs": constants.without_runner[draw.kind] * cooled,
        "on nodes that are drained": shut * drained,
        "closed by restrictions": shut * (~eligibility.launching & ~drained),
        "waiting for a review": shut * (eligibility.launching & ~eligibility.open & ~drained),
        "out of reach of its data": shut * (eligibility.open & ~drained),
        "with other cooling": of_model * (named & ~cooled),
        "of other models": topology.node_gpus * named - of_model * named,
    }
    found = {name: int(gpus.sum()) for name, gpus in parts.items()}
    left = int((topology.node_gpus * named).sum() - free.sum()) - sum(found.values())
    whole = {FREE: int(free.sum()), "held by jobs": left, **found}
    return {name: count for name, count in whole.items() if count or name == FREE}


def told(supply: dict[str, int]) -> str:
    """Return a supply in words: ``12 of 64 are free (52 held by jobs)``."""
    others = [f"{count:,} {name}" for name, count in supply.items() if name != FREE]
    aside = f" ({', '.join(others)})" if others else ""
    free = supply[FREE]
    return f"{free:,} of {sum(supply.values()):,} {'is' if free == 1 else 'are'} free{aside}"
