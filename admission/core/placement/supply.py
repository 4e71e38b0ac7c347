"""Where the GPUs are that a gang might have had: each of them counted once, so that they add up."""

from __future__ import annotations

from admission.core.placement.elastic import Draw
from admission.core.placement.eligibility import Eligibility
from admission.core.placement.topology import Ints
from policies.restrictions.kinds import RestrictionKind

__all__ = ["FREE", "supply_of", "told"]

#: The key of those that the gang may have, in what :func:`supply_of` returns.
FREE = "free"
_TOTAL = "total"


def supply_of(eligibility: Eligibility, draw: Draw, free: Ints) -> dict[str, int]:
    """Return how many GPUs at the sites of a request are in which state, without those of none.

    ``free``: by node, those of the model of ``draw`` that count as free to it.
    """
    lasting = _lasting(eligibility, draw)
    total, others = lasting[_TOTAL], {k: n for k, n in lasting.items() if k != _TOTAL}
    found = {**others, **_shut(eligibility, draw, free)}
    held = total - int(free.sum()) - sum(found.values())
    whole = {FREE: int(free.sum()), "held by jobs": held, **found}
    return {name: count for name, count in whole.items() if count or name == FREE}


def _lasting(eligibility: Eligibility, draw: Draw) -> dict[str, int]:
    """Return what stays while gangs come and go, made once for all that want it alike."""
    constants = eligibility.cluster.constants
    key = ("supply", eligibility.key, draw.kind)
    found = constants.memo.get(key)
    if not isinstance(found, dict):
        topology, named, cooled = constants.topology, eligibility.named, eligibility.cooled
        of_model = topology.node_gpus_by_kind[draw.kind]
        request = eligibility.request
        is_part = bool(request.slice) or request.cores
        count = topology.node_whole_gpus
        if is_part:
            count = topology.node_cores if request.cores else topology.node_slices
        split = topology.fleet.node_gpus - topology.node_whole_gpus
        parts = {
            "under load of no job": constants.other_load[draw.kind] * cooled,
            "not read": constants.silent[draw.kind] * cooled,
            "on nodes that run no jobs": constants.without_runner[draw.kind] * cooled,
            "with other cooling": of_model * (named & ~cooled),
            "of other profiles" if request.slice else "of other models": (count - of_model) * named,
            **({} if is_part else {"split into slices": split * named}),
            _TOTAL: (count if is_part else topology.fleet.node_gpus) * named,
        }
        found = constants.memo[key] = {name: int(gpus.sum()) for name, gpus in parts.items()}
    return found


def _shut(eligibility: Eligibility, draw: Draw, free: Ints) -> dict[str, int]:
    """Return where those are that nobody holds and that do not count as free to it."""
    cluster = eligibility.cluster
    shut = cluster.node_free[draw.kind] * eligibility.cooled - free
    if not shut.any():
        return {}
    drained = cluster.constants.in_force.nodes_under(cluster.fleet, RestrictionKind.DRAIN)
    launching, opened = eligibility.launching, eligibility.open
    parts = {
        "on nodes that are drained": drained,
        "closed by restrictions": ~launching & ~drained,
        "waiting for a review": launching & ~opened & ~drained,
        "out of reach of its data": opened & ~drained,
    }
    return {name: int((shut * nodes).sum()) for name, nodes in parts.items()}


def told(supply: dict[str, int]) -> str:
    """Return a supply in words: ``12 of 64 are free (52 held by jobs)``."""
    others = [f"{count:,} {name}" for name, count in supply.items() if name != FREE]
    aside = f" ({', '.join(others)})" if others else ""
    free = supply[FREE]
    return f"{free:,} of {sum(supply.values()):,} {'is' if free == 1 else 'are'} free{aside}"
