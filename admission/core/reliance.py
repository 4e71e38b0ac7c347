"""Who relies on a link or a storage endpoint, for what, and whether there is another way. Pure."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from admission.core.allocation.allocations import Allocations, OpenAttempt
from admission.core.allocation.reservation import Traffic
from admission.core.placement.comm_ratio import crossed_by
from admission.core.placement.topology import topology_of, wan_paths
from admission.core.request import Request
from admission.core.response.checkpoints import Known
from fleet.tables import LINK_KINDS, FleetArrays
from policies.scopes import Scope, ScopeKind, row_of

__all__ = ["Relies", "Use", "relying_on"]

Floats = npt.NDArray[np.float64]

_WAN = LINK_KINDS.index("wan")


class Use(enum.StrEnum):
    """What an attempt needs a link or an endpoint for."""

    #: its GPUs talk to each other over it
    GANG = "gang"
    #: its data comes over it
    DATA = "data"
    #: its checkpoints go to another site over it
    CHECKPOINTS = "checkpoints"
    #: it reads and writes there
    STORAGE = "storage"


@dataclass(frozen=True)
class Relies:
    """An attempt that relies on something.

    ``reserved`` is the traffic that it declares, bit/s on links and byte/s on endpoints; 0: none.
    ``another_way``: all of its uses have one, by the inventory. ``elsewhere`` are the sites that
    have a checkpoint of it besides its own, and the step of each.
    """

    key: str
    gpus: int
    uses: tuple[Use, ...]
    reserved: float
    another_way: bool
    elsewhere: tuple[tuple[str, int], ...] = ()


def relying_on(
    scope: Scope, held: Allocations, known: Callable[[Collection[str]], Mapping[str, Known]]
) -> tuple[Relies, ...]:
    """Return the attempts that rely on a link or an endpoint, those without another way first.

    Of other scopes none. ``known`` returns what is known of the checkpoints of jobs, by name.
    Raises :class:`~policies.scopes.UnknownScope`.
    """
    if scope.kind not in (ScopeKind.LINK, ScopeKind.STORAGE):
        return ()
    row = row_of(held.fleet, scope)
    if scope.kind is ScopeKind.STORAGE:
        found = _on_endpoint(held, row)
    elif held.fleet.links.kind[row] == _WAN:
        found = _on_wan(held, row, known([_job(each) for each in held.attempts]))
    else:
        found = _on_fabric(held, row)
    order = sorted(found, key=lambda each: (each.another_way, -each.gpus, each.key))
    return tuple(order)


def _job(attempt: OpenAttempt) -> str:
    return attempt.request.job


def _reserved(held: Allocations, traffic: Traffic, row: int) -> Floats:
    """Return what each attempt declares to send over ``row`` of links, or of endpoints."""
    mine = traffic.on == row
    gang = held.arrays.gang[traffic.allocation[mine]]
    return np.asarray(
        np.bincount(gang, weights=traffic.rate[mine], minlength=len(held.attempts)), dtype=float
    )


# --- Storage --------------------------------------------------------------------------------------


def _on_endpoint(held: Allocations, row: int) -> Iterator[Relies]:
    """Yield who was placed on an endpoint, and whose nodes have it as theirs."""
    fleet, reserved = held.fleet, _reserved(held, held.arrays.storage, row)
    path = str(fleet.storage.paths[row])
    for attempt, rate in zip(held.attempts, reserved.tolist(), strict=True):
        placed_on = attempt.placement.storage
        usual = fleet.nodes.storage[np.asarray(attempt.placement.nodes, dtype=np.int64)]
        if placed_on == path or (not placed_on and (usual == row).any()):
            gpus = len(attempt.placement.gpus)
            yield Relies(attempt.key, gpus, (Use.STORAGE,), rate, another_way=False)


# --- Links of a site ------------------------------------------------------------------------------


def _on_fabric(held: Allocations, row: int) -> Iterator[Relies]:
    links, topology = held.fleet.links, topology_of(held.fleet)
    alike = (
        (links.kind == links.kind[row])
        & (links.node == links.node[row])
        & (links.rack == links.rack[row])
        & (links.site == links.site[row])
    )
    has_others = bool(alike.sum() > 1)
    for attempt in held.attempts:
        gpus = len(attempt.placement.gpus)
        if gpus > 1 and len(crossed_by(topology, attempt.placement, np.array([row]))):
            yield Relies(attempt.key, gpus, (Use.GANG,), 0.0, another_way=has_others)


# --- Links between sites --------------------------------------------------------------------------


def _on_wan(held: Allocations, row: int, known: Mapping[str, Known]) -> Iterator[Relies]:
    fleet, reserved = held.fleet, _reserved(held, held.arrays.links, row)
    now, then = topology_of(fleet).wan_paths, wan_paths(fleet, but=row)
    for attempt, rate in zip(held.attempts, reserved.tolist(), strict=True):
        seen = known.get(_job(attempt), {})
        ways = {use: list(pairs) for use, pairs in _ways(fleet, attempt, seen)}
        lost = {use: [pair for pair in pairs if row in now.get(pair, ())]
                for use, pairs in ways.items()}  # fmt: skip
        uses = tuple(use for use, pairs in lost.items() if pairs)
        if not uses:
            continue
        yield Relies(
            key=attempt.key,
            gpus=len(attempt.placement.gpus),
            uses=uses,
            reserved=rate,
            another_way=all(pair in then for pairs in lost.values() for pair in pairs),
            elsewhere=_elsewhere(attempt, seen),
        )


#: Two sites, as rows.
_Pair = tuple[int, int]


def _ways(
    fleet: FleetArrays, attempt: OpenAttempt, known: Known
) -> Iterator[tuple[Use, Sequence[_Pair]]]:
    """Yield the pairs of sites between which an attempt sends, by what for."""
    rows, request = fleet.sites.index_by_name, attempt.request
    here = [rows[site] for site in attempt.placement.sites if site in rows]
    yield Use.GANG, list(itertools.pairwise(here))
    home = rows.get(request.data_site)
    if home is not None and request.cross_site_bits_per_s:
        yield Use.DATA, [(home, site) for site in here if site != home]
    yield (
        Use.CHECKPOINTS,
        [(site, there) for site in here for there in _stores(fleet, here, request, known)],
    )


def _stores(fleet: FleetArrays, here: Sequence[int], request: Request, known: Known) -> list[int]:
    """Return where checkpoints go: where keepers look, or anywhere else if they have to leave."""
    rows = fleet.sites.index_by_name
    kept = [rows[site] for site in known if site in rows and rows[site] not in here]
    if kept or not request.cross_site_checkpoint:
        return kept
    return [site for site in range(len(fleet.sites)) if site not in here]


def _elsewhere(attempt: OpenAttempt, known: Known) -> tuple[tuple[str, int], ...]:
    here = set(attempt.placement.sites)
    return tuple(
        (site, found.step)
        for site, found in sorted(known.items())
        if found is not None and site not in here
    )
