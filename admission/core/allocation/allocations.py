"""Allocations of open attempts as arrays, for cycles and reservations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from admission.core.allocation import reservation
from admission.core.allocation.joint import Learned
from admission.core.allocation.reservation import (
    AllocationArrays,
    Bools,
    Floats,
    Ints,
    Reserved,
    Rules,
    Traffic,
)
from admission.core.at_work import at_work, least_at_work_w
from admission.core.placement.flows import collective_flows, data_flows
from admission.core.placement.topology import topology_of
from admission.core.request import Placement, Request
from admission.core.snapshot import Running
from fleet.groups import sum_by
from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom

__all__ = [
    "Allocations",
    "OpenAttempt",
    "PlacementRows",
    "allocations_of",
    "at_work_w",
    "busy",
    "link_traffic",
    "placement_rows_of",
    "running_of",
]

#: A gang has been at work once it drew so much of the way from rest to its peak.
_AT_WORK = 0.5


@dataclass(frozen=True, eq=False)
class PlacementRows:
    """The placement of an attempt in rows of one inventory. Arrays are by node."""

    request: Request
    placement: Placement
    gpus: Ints
    gpu: Ints
    #: for each GPU the place of its node in the placement
    gpu_node: Ints
    #: the places that its nodes have in the arrays of its draw, and how many there are
    drawn: Ints
    drawn_of: int
    links: tuple[tuple[int, float], ...]
    storage: int


@dataclass(frozen=True, eq=False)
class OpenAttempt:
    """An open attempt. ``p99_w``, ``read_s`` and ``learned`` are by node.

    They are those of :class:`AllocationArrays`. ``kind`` says what its draw is learned by: what is
    not known of one attempt is not known of others of its kind.
    """

    id: int
    key: str
    phase_id: int
    project_id: int
    request: Request
    placement: Placement
    dispatched_at: float
    started_at: float | None
    checkpoint_at: float | None
    expected_end_at: float
    #: told to end or to pause, and about to
    is_leaving: bool
    #: neither about to begin nor paused: what it draws is what it does
    is_running: bool
    #: the places that its nodes have in the arrays of its draw, and how many there are
    drawn: Ints
    drawn_of: int
    p99_w: Floats
    read_s: Floats
    kind: tuple[int, str]
    learned: Learned
    #: who submitted it
    user: str = ""
    #: of one that was told to end: what is kept for it to go on with; None: nothing
    returns_to: Placement | None = None


@dataclass(frozen=True, eq=False)
class Allocations:
    """The open attempts on one inventory, and their allocations as arrays.

    The allocations of attempt ``i`` are the rows from ``firsts[i]`` on, one for each of its nodes.
    """

    fleet: FleetArrays
    attempts: tuple[OpenAttempt, ...]
    firsts: tuple[int, ...]
    arrays: AllocationArrays

    def each(self) -> Iterator[tuple[OpenAttempt, slice]]:
        """Yield attempts with the rows of their allocations."""
        for attempt, first in zip(self.attempts, self.firsts, strict=True):
            yield attempt, slice(first, first + len(attempt.placement.nodes))

    def gpu_rows(self, rows: slice) -> Ints:
        """Return the GPUs of some allocations that follow each other, as rows of the inventory."""
        arrays = self.arrays
        mine = (arrays.gpu_allocation >= rows.start) & (arrays.gpu_allocation < rows.stop)
        return np.asarray(arrays.gpu[mine])

    @cached_property
    def gpus(self) -> Bools:
        """Say of each GPU whether an attempt holds it."""
        mine = np.zeros(len(self.fleet.gpus), dtype=bool)
        mine[self.arrays.gpu] = True
        return mine

    def reserved(self, headroom: Headroom, rules: Rules) -> Reserved:
        """Return the reservations of the attempts. ``headroom`` is of the same inventory."""
        return reservation.reserve(
            self.arrays, self.fleet, headroom.summary, now=headroom.at, rules=rules
        )

    def by_user(self) -> dict[tuple[int, str], float]:
        """Return the GPUs that each user holds, by the id of the project and the user.

        Slices count by their shares.
        """
        found: dict[tuple[int, str], float] = {}
        for each in self.attempts:
            key, count = (each.project_id, each.user), len(each.placement.gpus)
            found[key] = found.get(key, 0.0) + each.request.counted(count)
        return found


def placement_rows_of(
    request: Request,
    placement: Placement,
    fleet: FleetArrays,
    *,
    drawn: Sequence[int] | None = None,
    drawn_of: int | None = None,
) -> PlacementRows:
    """Return a placement in rows of the inventory. ``drawn``: see :class:`PlacementRows`.

    Left out, it is all of its nodes.
    """
    gpu, node = np.array(placement.gpus, dtype=np.int64), np.array(placement.nodes, dtype=np.int64)
    of = np.searchsorted(node, fleet.gpus.node[gpu]).astype(np.int64)
    return PlacementRows(
        request=request,
        placement=placement,
        gpus=np.bincount(of, minlength=len(node)).astype(np.int64),
        gpu=gpu,
        gpu_node=of,
        drawn=np.arange(len(node)) if drawn is None else np.array(drawn, dtype=np.int64),
        drawn_of=len(node) if drawn_of is None else drawn_of,
        links=link_traffic(request, placement, fleet),
        storage=fleet.storage.index_by_path.get(placement.storage, -1),
    )


def link_traffic(
    request: Request, placement: Placement, fleet: FleetArrays
) -> tuple[tuple[int, float], ...]:
    """Return the traffic of a placement on each link until readings show it, bit/s.

    Of data that cannot reach it now, there is none.
    """
    topology, nodes = topology_of(fleet), np.asarray(placement.nodes, dtype=np.int64)
    try:
        found = data_flows(topology, placement.sites, request)
    except KeyError:
        found = {}
    if len(nodes):
        gpus = len(placement.gpus)
        for link, rate in collective_flows(topology, nodes, gpus, request).items():
            found[link] = found.get(link, 0.0) + rate
    return tuple(found.items())


def allocations_of(
    fleet: FleetArrays, found: Sequence[tuple[OpenAttempt, PlacementRows]]
) -> Allocations:
    attempts = tuple(each for each, _ in found)
    counts = [len(each.placement.nodes) for each in attempts]
    firsts = tuple(accumulate(counts, initial=0))[:-1]
    return Allocations(
        fleet, attempts, firsts, _arrays(found, firsts, np.array(counts, dtype=np.int64))
    )


def _arrays(
    found: Sequence[tuple[OpenAttempt, PlacementRows]], firsts: Sequence[int], counts: Ints
) -> AllocationArrays:
    links = [
        (link, at, rate)
        for at, (_, place) in zip(firsts, found, strict=True)
        for link, rate in place.links
    ]
    storage = [
        (place.storage, at, place.request.storage_bytes_per_s)
        for at, (_, place) in zip(firsts, found, strict=True)
        if place.storage >= 0
    ]
    started = [np.nan if each.started_at is None else each.started_at for each, _ in found]
    ends = [each.expected_end_at for each, _ in found]
    kinds: dict[tuple[int, str], int] = {}
    kind = [kinds.setdefault(each.kind, len(kinds)) for each, _ in found]
    learned = Learned.of([each.learned for each, _ in found])
    return AllocationArrays(
        node=_ints(place.placement.nodes for _, place in found),
        peak_w=_floats(place.placement.peak_w for _, place in found),
        gpus=_ints(place.gpus for _, place in found),
        started_at=np.repeat(np.array(started, dtype=np.float64), counts),
        expected_end_at=np.repeat(np.array(ends, dtype=np.float64), counts),
        p99_w=_floats(each.p99_w for each, _ in found),
        read_s=_floats(each.read_s for each, _ in found),
        gang=np.repeat(np.arange(len(found)), counts),
        kind=np.repeat(np.array(kind, dtype=np.int64), counts),
        learned=learned,
        gpu=_ints(place.gpu for _, place in found),
        gpu_allocation=_ints(
            at + place.gpu_node for at, (_, place) in zip(firsts, found, strict=True)
        ),
        links=_traffic(links),
        storage=_traffic(storage),
    )


def _traffic(rows: Sequence[tuple[int, int, float]]) -> Traffic:
    on, allocation, rate = zip(*rows, strict=True) if rows else ((), (), ())
    return Traffic(
        np.array(on, dtype=np.int64),
        np.array(allocation, dtype=np.int64),
        np.array(rate, dtype=float),
    )


def _ints(parts: Iterable[Any]) -> Ints:
    found = [np.asarray(part, dtype=np.int64) for part in parts]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _floats(parts: Iterable[Any]) -> Floats:
    found = [np.asarray(part, dtype=np.float64) for part in parts]
    return np.concatenate(found) if found else np.zeros(0)


def at_work_w(held: Allocations, headroom: Headroom) -> Floats:
    """Return what each allocation draws at work at least, W for each GPU with its part of the host.

    That is half of the way to its peak from where its GPUs rest. ``headroom`` is of the same
    inventory.
    """
    arrays, gpus = held.arrays, held.fleet.gpus
    count, each = len(arrays), np.maximum(held.arrays.gpus, 1)
    idle_w = sum_by(np.nan_to_num(gpus.idle_w[arrays.gpu]), arrays.gpu_allocation, count) / each
    rated_w = sum_by(gpus.rated_w[arrays.gpu], arrays.gpu_allocation, count) / each
    told_w = np.array([_gpu_peak_w(attempt) for attempt in held.attempts], dtype=np.float64)
    most_w = np.fmin(np.repeat(told_w, np.diff([*held.firsts, count])), rated_w)
    range_w = (1.0 + headroom.host_share[arrays.node]) * np.maximum(most_w - idle_w, 0.0)
    return np.asarray(arrays.peak_w / each - (1.0 - _AT_WORK) * range_w)


def _gpu_peak_w(attempt: OpenAttempt) -> float:
    """Return what one GPU of an attempt draws at most by what was said of it, W; NaN: nothing."""
    told = (attempt.request.gpu_peak_w, attempt.placement.power_cap_w)
    return min((watts for watts in told if watts is not None), default=np.nan)


def running_of(held: Allocations, reserved: Reserved) -> tuple[Running, ...]:
    watts = reserved.shares_w.tolist()
    return tuple(_as_running(each, watts[rows]) for each, rows in held.each())


def _as_running(each: OpenAttempt, watts: Sequence[float]) -> Running:
    return Running(
        request=each.request,
        # What would be free if it ended is what it reserves now, not what it did at first.
        placement=replace(each.placement, peak_w=tuple(watts)),
        started_at=each.started_at or each.dispatched_at,
        expected_end_at=each.expected_end_at,
        last_checkpoint_at=each.checkpoint_at,
        preempting=each.is_leaving,
        user=each.user,
        returns_to=each.returns_to if each.is_leaving else None,
    )


def busy(headroom: Headroom) -> Bools:
    """Say of each GPU whether its readings show it at work, for whomever."""
    gpus, parts = headroom.fleet.gpus, headroom.fleet.parts
    read = headroom.frame.fields("gpu", gpus.ids, "util", "power_w", "job_id")
    least_w = least_at_work_w(gpus.idle_w, gpus.rated_w)
    works = at_work(read["util"], read["power_w"], least_w) | (read["job_id"] > 0)
    if parts is not None:
        # What is read is of the GPU or node as a whole, whoever is at work on which part of it. A
        # node whose power nobody reads counts at its rating, which shows no work.
        draws = headroom.summary.gpus.load_w >= least_w
        is_read = ~np.isnan(headroom.summary.nodes.measured_w[gpus.node])
        works = np.where(parts.is_split | (parts.is_core & is_read), draws, works)
        works &= ~parts.is_core | is_read
    return np.asarray(headroom.summary.gpus.fresh & works)
