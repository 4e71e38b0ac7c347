"""The fleet during one cycle: free GPUs, the room within each limit, and closed places.

Watts are counted in steps of 2^-10 W, needs rounded up and room down. Sums of such numbers are
exact, so whatever is allocated and freed again leaves a cluster exactly as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from admission.core.placement.bookings import Bookings
from admission.core.placement.flows import collective_flows, data_flows
from admission.core.placement.gpu_use import GpuUse, GpuUses
from admission.core.placement.mix import Arms, Mix
from admission.core.placement.topology import Bools, Floats, Ints, Topology, topology_of
from admission.core.request import Placement, Refusal, Request
from fleet.groups import sum_by
from fleet.power_curves import UNRATED_GPU_W
from fleet.tables import LINK_KINDS, FleetArrays
from policies.headroom import thermal
from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import ScopeKind
from telemetry.summary import UNRATED_HOST_W

__all__ = ["Cluster", "FleetConstants", "HeatLimit", "beside_w"]

T = TypeVar("T")

#: A power of two, so that sums of steps are exact as floats.
_STEPS_PER_W = 1024.0
#: A GPU without an idle rating is taken to draw this share of its rating when it has no work: the
#: less it draws idle, the more a gang adds.
_IDLE_SHARE = 0.1
#: So many thermal margins are kept at a time: each is as large as the fleet.
_MARGINS_KEPT = 16
#: Of so many racks limits are gone through one by one: arrays cost more.
_FEW_RACKS = 4
#: Of more sites than these the racks of all are gone through at once.
_FEW_SITES = 4
_NO_ROWS, _NO_WATTS = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
_UPLINK, _SPINE, _WAN = (LINK_KINDS.index(kind) for kind in ("leaf-uplink", "spine", "wan"))


def up(watts: Floats) -> Floats:
    """Return ``watts`` rounded up to the step in which sums are exact."""
    return np.ceil(watts * _STEPS_PER_W) / _STEPS_PER_W


def down(watts: Floats) -> Floats:
    """Return ``watts`` rounded down to the step in which sums are exact."""
    return np.floor(watts * _STEPS_PER_W) / _STEPS_PER_W


def beside_w(headroom: Headroom, held: Bools) -> Floats:
    """Return the draw of each node beside the GPUs in ``held`` and their part of the host, W.

    By the same curves by which a placement's ``peak_w`` is made: what gangs have reserved on a node
    and this add up to all that the node may draw.
    """
    fleet = headroom.fleet
    nodes, node = len(fleet.nodes), fleet.gpus.node
    rest_w = sum_by(np.where(held, 0.0, headroom.summary.gpus.load_w), node, nodes)
    share = held.astype(np.float64) if fleet.parts is None else fleet.parts.share * held
    held_share = sum_by(share, node, nodes) / np.maximum(fleet.node_gpus, 1)
    return (1.0 + headroom.host_share) * rest_w + _host_w(headroom) * (1.0 - held_share)


def _host_w(headroom: Headroom) -> Floats:
    """Return the idle draw of each host, W: fitted, else as rated."""
    nodes = headroom.fleet.nodes
    unknown = np.isnan(nodes.host_rated_w)
    rated_w = np.where(unknown, UNRATED_HOST_W, np.nan_to_num(nodes.host_idle_w))
    if headroom.past.hosts is None:
        return rated_w
    fitted_w = headroom.past.hosts.idle_w
    return np.where(np.isnan(fitted_w), rated_w, fitted_w)


@dataclass(frozen=True, eq=False)
class HeatLimit:
    """Up to which power GPUs keep a thermal margin, W, and the extremes on each node."""

    gpu_w: Floats
    node_least_w: Floats
    node_most_w: Floats


@dataclass(frozen=True, eq=False)
class FleetConstants:
    """Values that stay as they are while gangs come and go. Shared by copies of a cluster."""

    topology: Topology
    in_force: InForce
    #: GPUs: what each draws while no gang holds it, W
    base_w: Floats
    #: GPUs: whether it could be free at all: it is read fresh
    readable: Bools
    #: GPUs: neither held nor readable
    unseen: Bools
    #: GPUs: by what each was taken at first, as ``GpuUse``
    use: GpuUses
    #: GPUs: where each settles without power, per W, and its slowdown
    ambient_c: Floats
    resistance_c_per_w: Floats
    limit_c: Floats
    #: GPUs: the lowest power cap in force, inf for none
    cap_w: Floats
    #: nodes: W that the node draws for each W of its GPUs; W of the host alone
    factor: Floats
    host_w: Floats
    #: nodes: by how much the curves say more than what is counted now, W: the first gang on the
    #: node pays it, since from then on the curves count
    gap_w: Floats
    #: nodes: no job starts, a person decides, others are to be taken before
    closed: Bools
    review: Bools
    away: Bools
    #: links: ever heard; closed to jobs of more than one site
    link_heard: Bools
    link_closed: Bools
    #: sites: jobs here use no other one; checkpoints do not leave it
    local_only: Bools
    keeps_checkpoints: Bools
    #: limits: what each would have left if nothing ran, W
    empty_room_w: Floats
    #: nodes: the scheduler that has each, empty for none; None: no node is any scheduler's
    executors: NDArray[np.str_] | None = None
    #: of places that leave as many free GPUs together the one with the most watts left is taken,
    #: and not the one with the least
    roomiest_first: bool = False
    _heat: dict[float, HeatLimit] = field(default_factory=dict)
    #: whatever is made of the above alone, by its arguments
    memo: dict[object, object] = field(default_factory=dict)

    @cached_property
    def any_away(self) -> bool:
        """Whether some node is to be used only after the others."""
        return bool(self.away.any())

    @cached_property
    def any_closed(self) -> bool:
        """Whether some place is closed to some jobs, or awaits a review."""
        flags = (self.closed, self.review, self.local_only, self.keeps_checkpoints)
        return any(each.any() for each in flags)

    @cached_property
    def everywhere(self) -> Bools:
        """The mask of all nodes."""
        return self.same_mask(np.ones(len(self.topology.fleet.nodes), dtype=bool))

    def same_mask(self, mask: Bools) -> Bools:
        """Return one array for all equal masks: what is remembered of them is by identity."""
        return cast(Bools, self.memo.setdefault(("mask", mask.tobytes()), mask))

    def whole_racks(self, nodes: Bools) -> Bools | None:
        """Return the racks of which a mask, kept in ``memo``, has all nodes; None: parts of some.

        Racks without nodes are left out.
        """
        key = ("whole_racks", id(nodes))
        if key not in self.memo:
            rack, racks = self.topology.fleet.nodes.rack, len(self.topology.fleet.racks)
            some = np.bincount(rack[nodes], minlength=racks)
            is_whole = (some == 0) | (some == np.bincount(rack, minlength=racks))
            self.memo[key] = some > 0 if is_whole.all() else None
        return cast(Bools | None, self.memo[key])

    @cached_property
    def silent(self) -> Ints:
        """GPUs that nobody holds and that are not read, by model and node."""
        return self.topology.count_by_kind(np.flatnonzero(self.unseen))

    @cached_property
    def other_load(self) -> Ints:
        """GPUs at work that no gang holds, by model and node."""
        return self.topology.count_by_kind(np.flatnonzero(self.use == GpuUse.OTHER_LOAD))

    @cached_property
    def without_runner(self) -> Ints:
        """GPUs of nodes that run no jobs for Headroom, by model and node."""
        return self.topology.count_by_kind(np.flatnonzero(self.use == GpuUse.NO_RUNNER))

    @cached_property
    def node_base_w(self) -> Floats:
        """The least that a GPU of each node draws while no gang holds it, W."""
        return _extreme(np.minimum, self.base_w, self.topology.fleet, 0.0)

    @cached_property
    def rack_factor(self) -> Floats:
        """The greatest factor of the nodes of each rack."""
        fleet = self.topology.fleet
        found = np.zeros(len(fleet.racks))
        np.maximum.at(found, fleet.nodes.rack, self.factor)
        return found

    @cached_property
    def rack_base_w(self) -> Floats:
        """The least that a GPU of each rack draws while no gang holds it, W."""
        fleet = self.topology.fleet
        found = np.full(len(fleet.racks), np.inf)
        np.minimum.at(found, fleet.nodes.rack, self.node_base_w)
        return np.where(np.isinf(found), 0.0, found)

    @cached_property
    def rack_least_factor(self) -> Floats:
        """The least factor of the nodes of each rack."""
        found = _of_racks(np.minimum, self.factor, self.topology.fleet, np.inf)
        return np.where(np.isinf(found), 1.0, found)

    @cached_property
    def rack_most_base_w(self) -> Floats:
        """The most that a GPU of each rack draws while no gang holds it, W."""
        fleet = self.topology.fleet
        node_w = _extreme(np.maximum, self.base_w, fleet, 0.0)
        return _of_racks(np.maximum, node_w, fleet, 0.0)

    @cached_property
    def least_cap_w(self) -> Floats:
        """The lowest cap in force on a GPU of each node, W; inf for none."""
        return _extreme(np.minimum, self.cap_w, self.topology.fleet, np.inf)

    def heat(self, margin_c: float) -> HeatLimit:
        """Return up to which power GPUs settle ``margin_c`` below their slowdown, or more."""
        found = self._heat.get(margin_c)
        if found is None:
            if len(self._heat) >= _MARGINS_KEPT:
                self._heat.clear()
            settles_w = thermal.settles_at_w(
                limit_c=self.limit_c,
                ambient_c=self.ambient_c,
                resistance_c_per_w=self.resistance_c_per_w,
                margin_c=margin_c,
            )
            gpu_w = np.minimum(settles_w, self.cap_w)
            fleet = self.topology.fleet
            found = self._heat[margin_c] = HeatLimit(
                gpu_w,
                _extreme(np.minimum, gpu_w, fleet, np.inf),
                _extreme(np.maximum, gpu_w, fleet, -np.inf),
            )
        return found


def _extreme(which: np.ufunc, values: Floats, fleet: FleetArrays, empty: float) -> Floats:
    """Return the least or greatest of the GPUs of each node, ``empty`` where it has none."""
    found = np.full(len(fleet.nodes), -np.inf if which is np.maximum else np.inf)
    which.at(found, fleet.gpus.node, values)
    return np.where(np.isinf(found) & (np.diff(fleet.gpu_bounds) == 0), empty, found)


def _of_racks(which: np.ufunc, values: Floats, fleet: FleetArrays, empty: float) -> Floats:
    """Return the least or greatest of the nodes of each rack, ``empty`` where it has none."""
    found = np.full(len(fleet.racks), empty)
    which.at(found, fleet.nodes.rack, values)
    return found


@dataclass(eq=False)
class Cluster:
    """A fleet with gangs on it. ``copy`` is cheap; only ``allocate`` and ``free`` change it.

    Limits are those of ``admission.core.placement.topology``. The last element of ``room_w`` is no
    limit: it is infinite, and stands where a rack has fewer limits than others.
    """

    fleet: FleetArrays
    #: Unix seconds
    now: float
    constants: FleetConstants
    gpu_free: Bools
    #: free GPUs by model (a place in ``topology.gpu_models``) and node
    node_free: Ints
    #: gangs that were allocated since, less those freed; below 0 where a gang was there before
    gangs: Ints
    #: what each limit has left, W; inf where it is none
    room_w: Floats
    #: what each rack may draw more by all of its limits, W
    admit_w: Floats
    #: what each link has left for bulk traffic, bit/s, and each storage endpoint, byte/s
    link_room_bits_per_s: Floats
    storage_room_bytes_per_s: Floats
    #: hosts that are kept for some, from one time to another
    bookings: Bookings = field(default_factory=Bookings)
    #: what runs on the arms of a rollout that soaks; None: there is none
    mix: Mix | None = None
    #: requests that were refused since something was last freed, by what they want
    refused: dict[object, Refusal] = field(default_factory=dict, repr=False)
    #: the same of those of which nobody asked why
    nowhere: set[object] = field(default_factory=set, repr=False)
    #: the fewest GPUs that had no place since, by where and how they were wanted
    hopeless: dict[object, int] = field(default_factory=dict, repr=False)
    #: what is remembered until something is allocated or freed
    scratch: dict[object, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(
        headroom: Headroom,
        in_force: InForce,
        occupied: Bools | GpuUses | None = None,
        *,
        now: float,
        kept_shares: tuple[float, float] = (0.0, 0.0),
        bookings: Bookings | None = None,
        executors: NDArray[np.str_] | None = None,
    ) -> Cluster:
        """Return the fleet at ``now`` (Unix seconds).

        ``occupied``: GPUs that a gang or unmanaged work holds, or by what each is taken.
        ``headroom`` is to have in it what gangs have reserved: of a node with gangs their
        ``peak_w`` and what else is drawn there. What is not read fresh is not free.
        ``kept_shares`` of budgets of power, and of cooling zones, are not given to gangs.
        ``executors``: of each node the scheduler that has it, empty for none.
        """
        fleet = headroom.fleet
        use = np.zeros(len(fleet.gpus), dtype=np.uint8) if occupied is None else occupied
        held = np.asarray(use, dtype=bool)
        constants = replace(_constants(headroom, in_force, use), executors=executors)
        topology = constants.topology
        free = ~held & constants.readable
        if fleet.parts is not None:
            free &= ~fleet.parts.is_rest
        room_w = _room_w(headroom, kept_shares)
        return Cluster(
            fleet=fleet,
            now=now,
            constants=constants,
            gpu_free=free,
            node_free=topology.count_by_kind(np.flatnonzero(free)),
            gangs=np.zeros(len(fleet.nodes), dtype=np.int64),
            room_w=room_w,
            admit_w=_admit_w(topology, room_w, 0, len(fleet.racks)),
            link_room_bits_per_s=_link_room(headroom),
            storage_room_bytes_per_s=_storage_room(headroom),
            bookings=bookings or Bookings(),
        )

    @property
    def topology(self) -> Topology:
        return self.constants.topology

    @property
    def free_gpus(self) -> float:
        """How many GPUs are free, slices counted by their shares."""
        parts = self.fleet.parts
        if parts is None:
            return float(self.gpu_free.sum())
        return float(parts.share[self.gpu_free & ~parts.is_core].sum())

    def copy(self) -> Cluster:
        """Return a copy that can be changed without this one."""
        return replace(
            self,
            gpu_free=self.gpu_free.copy(),
            node_free=self.node_free.copy(),
            gangs=self.gangs.copy(),
            room_w=self.room_w.copy(),
            admit_w=self.admit_w.copy(),
            link_room_bits_per_s=self.link_room_bits_per_s.copy(),
            storage_room_bytes_per_s=self.storage_room_bytes_per_s.copy(),
            mix=None if self.mix is None else self.mix.copy(),
            refused=dict(self.refused),
            nowhere=set(self.nowhere),
            hopeless=dict(self.hopeless),
            scratch={},
        )

    def steered(self, arms: Arms, held: Iterable[tuple[Placement, Request]]) -> Cluster:
        """Return the cluster that keeps the mix of jobs on ``arms`` alike.

        ``held``: who runs, with their placements.
        """
        mix = Mix(arms)
        for placement, request in held:
            mix.count(placement, request, self.fleet.gpus.node, taken=True)
        return replace(self, mix=mix)

    def kept(self, key: object, make: Callable[[], T]) -> T:
        """Return the result of ``make``, remembered by ``key`` until the cluster changes."""
        found: T | None = self.scratch.get(key)
        if found is None:
            found = self.scratch[key] = make()
        return found

    def endless(self) -> Cluster:
        """Return the same cluster with unlimited room. To be asked, not changed."""
        return self.kept(
            "endless",
            lambda: replace(
                self,
                room_w=np.full(len(self.room_w), np.inf),
                admit_w=np.full(len(self.admit_w), np.inf),
            ),
        )

    def allocate(self, placement: Placement, request: Request) -> None:
        """Allocate the resources of ``placement``. Raises ValueError where a GPU is not free."""
        gpus, nodes = placement.gpu_rows, placement.node_rows
        usable = gpus[self.constants.readable[gpus]]
        if not self.gpu_free[usable].all():
            raise ValueError(f"{request.key}: a GPU of its placement is not free")
        watts = self._watts(placement) + self.first_w(nodes)
        self.gangs[nodes] += 1
        self._change(nodes, watts, usable, placement, request, taken=True)

    def free(self, placement: Placement, request: Request) -> None:
        """Release the resources of ``placement``: the exact inverse of :meth:`allocate`.

        Also of one that was there from the start, whose ``peak_w`` is then what is reserved for it.
        Raises ValueError where a GPU of it is free.
        """
        gpus, nodes = placement.gpu_rows, placement.node_rows
        usable = gpus[self.constants.readable[gpus]]
        if self.gpu_free[usable].any():
            raise ValueError(f"{request.key}: a GPU of its placement is free already")
        self.gangs[nodes] -= 1
        watts = self._watts(placement) + self.first_w(nodes)
        self._change(nodes, watts, usable, placement, request, taken=False)
        self.refused.clear()
        self.nowhere.clear()
        self.hopeless.clear()

    def free_all(self, held: Sequence[tuple[Placement, Request]]) -> None:
        """Release several placements at once, as :meth:`free` of one after the other would."""
        placements = [placement for placement, _ in held]
        gpus, nodes, place = _rows_of_all(placements, self.fleet.gpus.node)
        usable = gpus[self.constants.readable[gpus]]
        if self.gpu_free[usable].any():
            raise ValueError("a GPU of one of the placements is free already")
        peak_w = np.concatenate([_NO_WATTS, *(each.node_peak_w for each in placements)])
        watts = self._added_w(gpus, nodes, place, peak_w)
        before = self.gangs.copy()
        np.subtract.at(self.gangs, nodes, 1)
        emptied = np.flatnonzero((before > 0) & (self.gangs <= 0))
        topology, rack = self.topology, self.fleet.nodes.rack
        for rows, more_w in ((rack[nodes], watts), (rack[emptied], self.constants.gap_w[emptied])):
            np.add.at(
                self.room_w, topology.limit_rows[rows], more_w[:, None] * topology.limit_share[rows]
            )
        self.gpu_free[usable] = True
        np.add.at(self.node_free, (topology.gpu_kind[usable], self.fleet.gpus.node[usable]), 1)
        self._admit_anew(rack[nodes])
        for placement, request in held:
            if request.may_carry:
                self._change_flows(placement, request, taken=False)
            if self.mix is not None:
                self.mix.count(placement, request, self.fleet.gpus.node, taken=False)
        self.scratch.clear()
        self.refused.clear()
        self.nowhere.clear()
        self.hopeless.clear()

    def admits(self, placement: Placement, request: Request) -> bool:
        """Say whether a placement breaks no limit: GPUs, watts, heat, links, storage.

        Restrictions that close places are not asked: they say where jobs begin.
        """
        gpus, nodes = placement.gpu_rows, placement.node_rows
        if not self.gpu_free[gpus].all():
            return False
        return (
            not len(self.short_of(nodes, self.added_w(placement))[0])
            and bool((self.constants.heat(request.thermal_margin_c).gpu_w[gpus] >= self._draw_w(
                placement, request)).all())
            and all(
                self.link_room_bits_per_s[row] >= bits for row, bits in
                self.traffic(placement, request).items()
            )
            and self._has_storage(request)
        )  # fmt: skip

    def added_w(self, placement: Placement) -> Floats:
        """Return the power that ``placement`` would add on each of its nodes, W."""
        return self._watts(placement) + self.first_w(placement.node_rows)

    def first_w(self, nodes: Ints) -> Floats:
        """Return the extra draw that the first gang on each of ``nodes`` adds, W."""
        return np.where(self.gangs[nodes] == 0, self.constants.gap_w[nodes], 0.0)

    def first_w_of(self, node: int) -> float:
        """Return the extra draw that the first gang on ``node`` adds, W."""
        return self.constants.gap_w.item(node) if self.gangs.item(node) == 0 else 0.0

    def short_of(self, nodes: Ints, watts: Floats) -> tuple[Ints, Floats]:
        """Return the limits that ``watts`` more on ``nodes`` would break, with the need at each.

        Needs are in W, aligned with the limits.
        """
        rows, need_w = self.needs(nodes, watts)
        broken = need_w > np.maximum(self.room_w[rows], 0.0)
        return rows[broken], need_w[broken]

    def needs(self, nodes: Ints, watts: Floats) -> tuple[Ints, Floats]:
        """Return the limits that ``watts`` more on ``nodes`` need some of, in order, and how much.

        Needs are in W; nodes are in order, so that those of a rack are together. Of all limits of a
        fleet these are few.
        """
        topology, rack = self.topology, self.fleet.nodes.rack[nodes]
        if len(nodes) == 1:
            # Most gangs stand on one node.
            rows, shares = topology.shares_of(rack.item())
            more_w = watts.item()
            return (rows, more_w * shares) if more_w > 0.0 else (_NO_ROWS, _NO_WATTS)
        firsts = np.flatnonzero(np.append(True, rack[1:] != rack[:-1]))
        racks, rack_w = rack[firsts], np.add.reduceat(watts, firsts)
        if len(racks) <= _FEW_RACKS:
            found: dict[int, float] = {}
            for each, more_w in zip(racks.tolist(), rack_w.tolist(), strict=True):
                for row, share in topology.terms[each]:
                    found[row] = found.get(row, 0.0) + more_w * share
            needed = sorted(item for item in found.items() if item[1] > 0.0)
            few = np.array(needed, dtype=np.float64).reshape(-1, 2)
            return few[:, 0].astype(np.int64), few[:, 1]
        asked = (rack_w[:, None] * topology.limit_share[racks]).ravel()
        rows, place = np.unique(topology.limit_rows[racks].ravel(), return_inverse=True)
        need_w = np.bincount(place, asked, len(rows)).astype(np.float64)
        is_limit = (rows < topology.limits) & (need_w > 0.0)
        return rows[is_limit], need_w[is_limit]

    def traffic(self, placement: Placement, request: Request) -> dict[int, float]:
        """Return the traffic of a gang on links, bit/s by row of the link.

        Raises KeyError where its data cannot reach it.
        """
        found = data_flows(self.topology, placement.sites, request)
        for row, bits in collective_flows(
            self.topology, placement.node_rows, len(placement.gpus), request
        ).items():
            found[row] = found.get(row, 0.0) + bits
        return found

    def empty(self) -> Cluster:
        """Return the same fleet with nothing running, nothing stale and nothing restricted."""
        return _emptied(self)

    def _draw_w(self, placement: Placement, request: Request) -> float:
        if placement.power_cap_w is not None:
            return placement.power_cap_w
        if request.gpu_peak_w is not None:
            return request.gpu_peak_w
        rated_w = float(self.fleet.gpus.rated_w[placement.gpus[0]])
        return UNRATED_GPU_W if math.isnan(rated_w) else rated_w

    def _has_storage(self, request: Request) -> bool:
        row = self.fleet.storage.index_by_path.get(request.storage)
        if row is None:
            return not request.storage
        return bool(self.storage_room_bytes_per_s[row] >= request.storage_bytes_per_s)

    def _watts(self, placement: Placement) -> Floats:
        """Return the power that a gang adds on each of its nodes to their draw without it, W."""
        gpus, nodes = placement.gpu_rows, placement.node_rows
        place = np.searchsorted(nodes, self.fleet.gpus.node[gpus])
        return self._added_w(gpus, nodes, place, placement.node_peak_w)

    def _added_w(self, gpus: Ints, nodes: Ints, place: Ints, peak_w: Floats) -> Floats:
        """Return that for gangs as arrays: ``place`` is that of each GPU's node in ``nodes``."""
        constants = self.constants
        idle_w = np.bincount(place, constants.base_w[gpus], len(nodes))
        share = self.topology.share_of(nodes, gpus, place)
        without_w = constants.factor[nodes] * idle_w + constants.host_w[nodes] * share
        return up(np.maximum(peak_w - without_w, 0.0))

    def _change(
        self,
        nodes: Ints,
        watts: Floats,
        gpus: Ints,
        placement: Placement,
        request: Request,
        *,
        taken: bool,
    ) -> None:
        sign = 1.0 if taken else -1.0
        topology, rack = self.topology, self.fleet.nodes.rack[nodes]
        np.subtract.at(
            self.room_w,
            topology.limit_rows[rack],
            sign * watts[:, None] * topology.limit_share[rack],
        )
        self.gpu_free[gpus] = not taken
        cells = (topology.gpu_kind[gpus], self.fleet.gpus.node[gpus])
        np.subtract.at(self.node_free, cells, 1 if taken else -1)
        self._admit_anew(rack)
        self._change_flows(placement, request, taken=taken)
        if self.mix is not None:
            self.mix.count(placement, request, self.fleet.gpus.node, taken=taken)
        self.scratch.clear()

    def _admit_anew(self, racks: Ints) -> None:
        """Note what racks may draw more at the sites of ``racks``, whose limits have changed."""
        sites = set(self.fleet.racks.site[racks].tolist())
        if len(sites) > _FEW_SITES:
            self.admit_w[:] = _admit_w(self.topology, self.room_w, 0, len(self.admit_w))
            return
        for site in sites:
            first, last = self.topology.racks_of_site[site]
            self.admit_w[first:last] = _admit_w(self.topology, self.room_w, first, last)

    def _change_flows(self, placement: Placement, request: Request, *, taken: bool) -> None:
        sign = 1.0 if taken else -1.0
        for row, bits_per_s in self.traffic(placement, request).items():
            self.link_room_bits_per_s[row] -= sign * bits_per_s
        endpoint = self.fleet.storage.index_by_path.get(request.storage)
        if endpoint is not None:
            self.storage_room_bytes_per_s[endpoint] -= sign * request.storage_bytes_per_s


def _rows_of_all(placements: Sequence[Placement], node_of_gpu: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the GPUs of all, the nodes of each, and the place of each GPU's node among those."""
    gpus = np.concatenate([_NO_ROWS, *(each.gpu_rows for each in placements)])
    nodes = np.concatenate([_NO_ROWS, *(each.node_rows for each in placements)])
    gangs = np.arange(len(placements))
    of_gpu = np.repeat(gangs, np.array([len(each.gpus) for each in placements], dtype=np.int64))
    of_node = np.repeat(gangs, np.array([len(each.nodes) for each in placements], dtype=np.int64))
    # By gang and node: ascending, since the nodes of a placement are.
    width = int(node_of_gpu.max(initial=0)) + 1
    place = np.searchsorted(of_node * width + nodes, of_gpu * width + node_of_gpu[gpus])
    return gpus, nodes, place


def _admit_w(topology: Topology, room_w: Floats, first: int, last: int) -> Floats:
    """Return the power that racks may draw more within all of their limits, each by itself, W."""
    if first == last:
        return np.zeros(0)
    room = room_w[topology.limit_rows[first:last]] / topology.limit_share[first:last]
    return np.asarray(room.min(axis=1))


def _room_w(headroom: Headroom, kept_shares: tuple[float, float] = (0.0, 0.0)) -> Floats:
    kept_share, kept_cooling_share = kept_shares
    powers, zones_w = headroom.powers, headroom.zone_capacity_w
    racks, domains = powers[ScopeKind.RACK], powers[ScopeKind.POWER_DOMAIN]
    site = powers[ScopeKind.SITE]
    found = np.concatenate(
        [
            racks.headroom_w - kept_share * racks.budget_w,
            domains.headroom_w - kept_share * domains.budget_w,
            headroom.failover.headroom_w - kept_share * domains.budget_w,
            zones_w - headroom.zone_load_w - kept_cooling_share * zones_w,
            site.headroom_w - kept_share * site.budget_w,
            [np.inf],
        ]
    )
    # What has no budget in the inventory, or no pair, limits nothing.
    return down(np.where(np.isnan(found), np.inf, found))


def _link_room(headroom: Headroom) -> Floats:
    """Return what gangs may still send on each link, bit/s.

    Few fleets read all of their leaf uplinks and spines: on those that were never read counts what
    is reserved. A WAN link of which nothing was ever read has no room.
    """
    links, left = headroom.fleet.links, headroom.links["link_bulk_headroom_bits_per_s"]
    share = np.minimum(1.0 - links.control_share, headroom.limits.link_share)
    unread = share * links.capacity_bits_per_s - headroom.reservations.link_all_bits_per_s
    inside = (links.kind == _UPLINK) | (links.kind == _SPINE)
    return np.nan_to_num(np.where(np.isnan(left) & inside, unread, left))


def _storage_room(headroom: Headroom) -> Floats:
    capacity = headroom.fleet.storage.capacity_bytes_per_s
    left = capacity - headroom.reservations.storage_bytes_per_s
    return np.where(np.isnan(capacity), np.inf, left)


def _constants(headroom: Headroom, in_force: InForce, use: Bools | GpuUses) -> FleetConstants:
    fleet, summary = headroom.fleet, headroom.summary
    topology, nodes = topology_of(fleet), headroom.powers[ScopeKind.NODE]
    readable = summary.gpus.fresh & ~summary.nodes.stale[fleet.gpus.node]
    idle_w = _idle_w(headroom)
    held = np.asarray(use, dtype=bool)
    base_w = np.where(~held & readable, summary.gpus.load_w, idle_w)
    by_curve_w = beside_w(headroom, np.zeros(len(held), dtype=bool))
    kind = RestrictionKind
    no_launch = in_force.nodes_under(fleet, kind.NO_NEW_LAUNCHES)
    return FleetConstants(
        topology=topology,
        in_force=in_force,
        base_w=base_w,
        readable=readable,
        unseen=~held & ~readable,
        use=np.asarray(use, dtype=np.uint8),
        ambient_c=headroom.parts.ambient_c,
        resistance_c_per_w=headroom.parts.resistance_c_per_w,
        limit_c=headroom.parts.limit_c,
        cap_w=_cap_w(in_force, fleet),
        factor=1.0 + headroom.host_share,
        host_w=_host_w(headroom),
        gap_w=up(np.maximum(by_curve_w - nodes.load_w, 0.0)),
        closed=no_launch | in_force.nodes_under(fleet, kind.DRAIN),
        review=in_force.nodes_under(fleet, kind.HOLD_FOR_REVIEW),
        away=in_force.nodes_under(fleet, kind.PREFER_AWAY),
        link_heard=~np.isnan(headroom.links["link_bulk_headroom_bits_per_s"]),
        link_closed=_named(in_force.of(kind.LOCAL_ONLY), ScopeKind.LINK, fleet),
        local_only=_named(in_force.of(kind.LOCAL_ONLY), ScopeKind.SITE, fleet),
        keeps_checkpoints=_keeps_checkpoints(in_force, fleet),
        empty_room_w=_empty_room_w(headroom, topology, idle_w),
    )


def _cap_w(in_force: InForce, fleet: FleetArrays) -> Floats:
    """Return the lowest cap on each row, W: of a slice its share of its GPU's, of cores none."""
    parts = fleet.parts
    if parts is None:
        return in_force.power_cap_w_by_gpu(fleet)
    caps_w = in_force.power_cap_w_by_gpu(parts.whole)
    return np.asarray(parts.share * parts.of_gpus(caps_w, np.inf))


def _idle_w(headroom: Headroom) -> Floats:
    idle_w = headroom.fleet.gpus.idle_w
    return np.where(np.isnan(idle_w), _IDLE_SHARE * headroom.summary.gpus.rated_w, idle_w)


def _empty_room_w(headroom: Headroom, topology: Topology, idle_w: Floats) -> Floats:
    """Return the room within each limit if all racks were idle and no budget was lowered, W."""
    fleet = headroom.fleet
    if headroom.limits.budget_w:
        headroom = replace(headroom, limits=replace(headroom.limits, budget_w={}))
    gpus_w = sum_by(idle_w, fleet.gpus.node, len(fleet.nodes))
    node_w = (1.0 + headroom.host_share) * gpus_w + _host_w(headroom)
    idle_rack_w = sum_by(node_w, fleet.nodes.rack, len(fleet.racks))
    busy_w = headroom.powers[ScopeKind.RACK].load_w - idle_rack_w
    freed_w = busy_w[:, None] * topology.limit_share
    by_limit_w = np.bincount(topology.limit_rows.ravel(), freed_w.ravel(), topology.limits + 1)
    return down(_room_w(headroom) + by_limit_w)


def _named(restrictions: list[ActiveRestriction], kind: ScopeKind, fleet: FleetArrays) -> Bools:
    """Say which links or sites have a restriction by name."""
    table = fleet.links if kind is ScopeKind.LINK else fleet.sites
    found = np.zeros(len(table), dtype=bool)
    for each in restrictions:
        if each.scope.kind is kind and each.scope.name in table.index_by_name:
            found[table.index_by_name[each.scope.name]] = True
    return found


def _keeps_checkpoints(in_force: InForce, fleet: FleetArrays) -> Bools:
    """Say which sites no checkpoint may leave: by name, or by each of their WAN links."""
    restrictions = in_force.of(RestrictionKind.NO_CROSS_SITE_CHECKPOINT)
    found = _named(restrictions, ScopeKind.SITE, fleet)
    shut = _named(restrictions, ScopeKind.LINK, fleet)
    wan = fleet.links.kind == _WAN
    for site in range(len(fleet.sites)):
        here = wan & ((fleet.links.site == site) | (fleet.links.peer_site == site))
        if here.any() and shut[here].all():
            found[site] = True
    return found


def _emptied(cluster: Cluster) -> Cluster:
    constants, fleet, topology = cluster.constants, cluster.fleet, cluster.topology
    gpus, nodes = len(fleet.gpus), len(fleet.nodes)
    idle_w = np.where(np.isnan(fleet.gpus.idle_w), constants.base_w, fleet.gpus.idle_w)
    nowhere = np.zeros(nodes, dtype=bool)
    room_w = constants.empty_room_w.copy()
    return Cluster(
        fleet=fleet,
        now=cluster.now,
        constants=replace(
            constants,
            in_force=InForce(constants.in_force.at),
            base_w=idle_w,
            readable=np.ones(gpus, dtype=bool),
            unseen=np.zeros(gpus, dtype=bool),
            use=np.zeros(gpus, dtype=np.uint8),
            cap_w=np.full(gpus, np.inf),
            gap_w=np.zeros(nodes),
            closed=nowhere,
            review=nowhere,
            away=nowhere,
            link_heard=np.ones(len(fleet.links), dtype=bool),
            link_closed=np.zeros(len(fleet.links), dtype=bool),
            local_only=np.zeros(len(fleet.sites), dtype=bool),
            keeps_checkpoints=np.zeros(len(fleet.sites), dtype=bool),
            _heat={},
            memo={},
        ),
        gpu_free=np.ones(gpus, dtype=bool),
        node_free=topology.node_gpus_by_kind.copy(),
        gangs=np.zeros(nodes, dtype=np.int64),
        room_w=room_w,
        admit_w=_admit_w(topology, room_w, 0, len(fleet.racks)),
        link_room_bits_per_s=fleet.links.capacity_bits_per_s * (1.0 - fleet.links.control_share),
        storage_room_bytes_per_s=np.where(
            np.isnan(fleet.storage.capacity_bytes_per_s),
            np.inf,
            fleet.storage.capacity_bytes_per_s,
        ),
    )
