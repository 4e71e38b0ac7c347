"""The energy of a span closed against the meters, by node, rack and site. Pure.

Parts are what GPUs and hosts were read to use. A total is what the meter of a node, a rack or a
site says; where there is none, the sum of the totals below. The residual is total less parts: what
no part explains. It is shared out to nobody.

Hosts are shared out by GPU time, nodes without GPUs (switches, storage) and what the facility draws
beside its IT by energy, over the jobs, idle GPUs and unmanaged work of their site. So at each place
the parts of jobs, idle and unmanaged and the residual add up to the total, exactly.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from admission.core.energy.amounts import (
    BRIDGED_FROM,
    MS_PER_S,
    Bools,
    Read,
    apportion,
    total_by,
)
from admission.core.energy.holders import FIRST_JOB, IDLE, UNMANAGED, Pieces
from fleet.tables import (
    DOMAIN_KINDS,
    METER_KINDS,
    METER_TARGETS,
    FleetArrays,
    Floats,
    Ints,
)
from physics.power.facility import facility_overhead_w

__all__ = ["Account", "Basis", "Level", "Shares", "Sites", "close"]

_POWER = METER_KINDS.index("power")
_UTILITY = DOMAIN_KINDS.index("utility")
_ON_DOMAIN, _ON_ZONE, _ON_RACK, _ON_NODE = (
    METER_TARGETS.index(name) for name in ("power_domain", "cooling_zone", "rack", "node")
)
#: Classes of parts, by the owner of a piece.
_CLASSES = 3


class Basis(enum.IntEnum):
    """What the energy that a facility draws beside its IT goes by."""

    #: neither metered nor stated: it is left out
    NONE = 0
    #: the facility's meter less its IT
    MEASURED = 1
    #: the meters of its cooling alone
    COOLING = 2
    #: a PUE that was stated
    STATED = 3
    #: its meter reads less than its IT: left out, and in the residual
    CONTRADICTED = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Level:
    """Energy of the places of one kind, mJ, by row of their table: IT alone.

    ``total`` is ``jobs + idle + unmanaged + shared + residual``. ``shared`` is that of nodes
    without GPUs; ``metered`` says whether a meter of the place itself tells the total.
    """

    jobs: Ints
    idle: Ints
    unmanaged: Ints
    shared: Ints
    total: Ints
    metered: Bools

    @property
    def residual(self) -> Ints:
        """What no part explains; below 0 where parts come to more than the meter."""
        return self.total - self.jobs - self.idle - self.unmanaged - self.shared


@dataclass(frozen=True, eq=False, kw_only=True)
class Shares:
    """What each piece came to, mJ, in the order of the pieces: they add up to a site's parts."""

    gpu: Ints
    host: Ints
    shared: Ints
    overhead: Ints

    @property
    def whole(self) -> Ints:
        return self.gpu + self.host + self.shared + self.overhead


@dataclass(frozen=True, eq=False, kw_only=True)
class Sites:
    """Energy of sites, mJ, with what they draw beside their IT: by row.

    ``total`` is ``jobs + idle + unmanaged + residual``. ``unmanaged`` has nodes without GPUs of a
    site at which no GPU could carry them. ``pue`` is NaN where ``basis`` is none.
    """

    jobs: Ints
    idle: Ints
    unmanaged: Ints
    it: Ints
    overhead: Ints
    residual: Ints
    #: of a fully metered cut through the site's power tree, or of its racks
    it_metered: Bools
    facility_metered: Bools
    basis: Ints
    pue: Floats

    @property
    def total(self) -> Ints:
        return self.jobs + self.idle + self.unmanaged + self.residual


@dataclass(frozen=True, eq=False, kw_only=True)
class Account:
    """Where the energy of a span went."""

    pieces: Pieces
    shares: Shares
    nodes: Level
    racks: Level
    sites: Sites
    #: by node: its host is what its meter leaves beside its GPUs, since it was not read
    by_difference: Bools
    #: by node: what of its host, or of the meter that tells it, was bridged, mJ
    host_bridged: Ints


def close(
    fleet: FleetArrays, pieces: Pieces, hosts: Read, meters: Read, span_s: float, pue: Floats
) -> Account:
    """Return the account of a span of ``span_s`` s.

    ``hosts`` and ``meters`` are by row of node and meter; ``pue`` is what is stated for each site,
    NaN where nothing is.
    """
    telling = _Meters.of(fleet, meters, span_s)
    gpu_of_node = total_by(pieces.mj, fleet.gpus.node[pieces.gpu], len(fleet.nodes))
    node_mj, node_metered = telling.on(_ON_NODE, meters.mj, len(fleet.nodes))
    node_bridged, _ = telling.on(_ON_NODE, meters.bridged_mj, len(fleet.nodes))
    by_difference = node_metered & ~hosts.known
    host_mj = np.where(by_difference, np.maximum(node_mj - gpu_of_node, 0), hosts.mj)
    has_gpus = fleet.node_gpus > 0
    has_pieces = np.zeros(len(fleet.nodes), dtype=bool)
    has_pieces[fleet.gpus.node[pieces.gpu]] = True
    host_of = apportion(
        np.where(has_pieces, host_mj, 0), pieces.ms.astype(np.float64), fleet.gpus.node[pieces.gpu]
    )
    nodes = _nodes(fleet, pieces, host_of, np.where(has_gpus, 0, host_mj), node_mj, node_metered)
    racks = _racks(fleet, nodes, telling)
    sites, shares = _sites(fleet, pieces, host_of, racks, telling, pue)
    return Account(
        pieces=pieces, shares=shares, nodes=nodes, racks=racks, sites=sites,
        by_difference=by_difference,
        host_bridged=np.where(by_difference, node_bridged, hosts.bridged_mj),
    )  # fmt: skip


# --- Meters --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Meters:
    """Power meters, by row: one that was read for less than half of the span tells nothing."""

    fleet: FleetArrays
    read: Read
    tells: Bools

    @staticmethod
    def of(fleet: FleetArrays, meters: Read, span_s: float) -> _Meters:
        enough = meters.covered_ms >= BRIDGED_FROM * span_s * MS_PER_S
        return _Meters(fleet, meters, meters.known & enough)

    def on(self, target_kind: int, mj: Ints, count: int) -> tuple[Ints, Bools]:
        """Return the sum of ``mj`` over the meters of each thing, and where all it has tell."""
        meters = self.fleet.meters
        here = (meters.kind == _POWER) & (meters.target_kind == target_kind)
        target = meters.target[here]
        found = total_by(mj[here], target, count)
        has = total_by(np.ones(len(target), dtype=np.int64), target, count)
        telling = total_by(self.tells[here].astype(np.int64), target, count)
        tells = (has > 0) & (telling == has)
        return np.where(tells, found, 0), tells

    def over_all(self, mj: Ints, tells: Bools, site: Ints) -> tuple[Ints, Bools]:
        """Return by site the sum of things that are all metered, and where that is so."""
        count = len(self.fleet.sites)
        silent = total_by((~tells).astype(np.int64), site, count)
        some = total_by(np.ones(len(site), dtype=np.int64), site, count) > 0
        whole = some & (silent == 0)
        return np.where(whole, total_by(mj, site, count), 0), whole


# --- Levels --------------------------------------------------------------------------------------


def _classes(pieces: Pieces) -> Ints:
    return np.minimum(pieces.owner, FIRST_JOB)


def _by_class(pieces: Pieces, mj: Ints, place: Ints, count: int) -> Ints:
    """Return the sums of pieces by class and place."""
    key = _classes(pieces) * count + place
    return total_by(mj, key, _CLASSES * count).reshape(_CLASSES, count)


def _nodes(
    fleet: FleetArrays, pieces: Pieces, host_of: Ints, shared: Ints, metered_mj: Ints, tells: Bools
) -> Level:
    count = len(fleet.nodes)
    parts = _by_class(pieces, pieces.mj + host_of, fleet.gpus.node[pieces.gpu], count)
    return _level(parts, shared, np.where(tells, metered_mj, parts.sum(axis=0) + shared), tells)


def _racks(fleet: FleetArrays, nodes: Level, telling: _Meters) -> Level:
    count, rack = len(fleet.racks), fleet.nodes.rack
    classes = (nodes.idle, nodes.unmanaged, nodes.jobs)
    parts = np.stack([total_by(each, rack, count) for each in classes])
    metered_mj, tells = telling.on(_ON_RACK, telling.read.mj, count)
    total = np.where(tells, metered_mj, total_by(nodes.total, rack, count))
    return _level(parts, total_by(nodes.shared, rack, count), total, tells)


def _level(parts: Ints, shared: Ints, total: Ints, metered: Bools) -> Level:
    return Level(
        jobs=parts[FIRST_JOB], idle=parts[IDLE], unmanaged=parts[UNMANAGED],
        shared=shared, total=total, metered=metered,
    )  # fmt: skip


# --- Sites ---------------------------------------------------------------------------------------


def _sites(
    fleet: FleetArrays,
    pieces: Pieces,
    host_of: Ints,
    racks: Level,
    telling: _Meters,
    stated: Floats,
) -> tuple[Sites, Shares]:
    count = len(fleet.sites)
    it, it_metered = _it(fleet, racks, telling)
    facility, facility_metered = _facility(fleet, telling)
    overhead, basis = _overhead(fleet, telling, it, facility, facility_metered & it_metered, stated)
    site_of_piece = fleet.racks.site[fleet.nodes.rack[fleet.gpus.node[pieces.gpu]]]
    shared = total_by(racks.shared, fleet.racks.site, count)
    direct = pieces.mj + host_of
    carries = total_by(np.ones(len(site_of_piece), dtype=np.int64), site_of_piece, count) > 0
    shared_of = _over(np.where(carries, shared, 0), direct, site_of_piece)
    overhead_of = _over(np.where(carries, overhead, 0), direct + shared_of, site_of_piece)
    shares = Shares(gpu=pieces.mj, host=host_of, shared=shared_of, overhead=overhead_of)
    parts = _by_class(pieces, shares.whole, site_of_piece, count)
    parts[UNMANAGED] += np.where(carries, 0, shared + overhead)
    total = np.where(facility_metered, facility, it + overhead)
    known = np.isin(basis, [Basis.MEASURED, Basis.COOLING, Basis.STATED]) & (it > 0)
    pue = np.divide(it + overhead, it, out=np.full(count, np.nan), where=known)
    return (
        Sites(
            jobs=parts[FIRST_JOB], idle=parts[IDLE], unmanaged=parts[UNMANAGED],
            it=it, overhead=overhead, residual=total - parts.sum(axis=0),
            it_metered=it_metered, facility_metered=facility_metered, basis=basis, pue=pue,
        ),
        shares,
    )  # fmt: skip


def _over(totals: Ints, weights: Ints, site: Ints) -> Ints:
    """Return :func:`apportion` for pieces whose sites are in any order."""
    order = np.argsort(site, kind="stable")
    found = np.zeros(len(site), dtype=np.int64)
    found[order] = apportion(totals, weights[order].astype(np.float64), site[order])
    return found


def _it(fleet: FleetArrays, racks: Level, telling: _Meters) -> tuple[Ints, Bools]:
    """Return the IT energy of each site, and where meters of all of it tell.

    By the power domains below the utility where all have meters, else by those that feed racks,
    else by the racks, each by what is best known of it.
    """
    domains, count = fleet.domains, len(fleet.sites)
    mj, tells = telling.on(_ON_DOMAIN, telling.read.mj, len(domains))
    found, whole = total_by(racks.total, fleet.racks.site, count), np.zeros(count, dtype=bool)
    unfed = (fleet.racks.feed_a < 0) & (fleet.racks.feed_b < 0)
    all_fed = total_by(unfed.astype(np.int64), fleet.racks.site, count) == 0
    for cut in _cuts(fleet):
        cut_mj, cut_tells = telling.over_all(mj[cut], tells[cut], domains.site[cut])
        cut_tells &= all_fed
        found, whole = np.where(cut_tells, cut_mj, found), whole | cut_tells
    _, by_racks = telling.over_all(racks.total, racks.metered, fleet.racks.site)
    return found, whole | by_racks


def _cuts(fleet: FleetArrays) -> tuple[Bools, Bools]:
    """Return two sets of power domains that see all racks once: what feeds them, and the tops.

    A domain that feeds a rack itself and others by way of a domain below it stands for all.
    """
    domains = fleet.domains
    below = domains.kind != _UTILITY
    parent_kind = np.append(domains.kind, _UTILITY)[domains.parent]
    feeds = np.zeros(len(domains) + 1, dtype=bool)
    for side in (fleet.racks.feed_a, fleet.racks.feed_b):
        feeds[side[side >= 0]] = True
    up, covered = domains.parent, np.zeros(len(domains), dtype=bool)
    while (up >= 0).any():
        covered |= feeds[up]
        up = np.append(domains.parent, -1)[up]
    return feeds[:-1] & below & ~covered, below & (parent_kind == _UTILITY)


def _facility(fleet: FleetArrays, telling: _Meters) -> tuple[Ints, Bools]:
    """Return what the utility domains of each site read, and where all of them do."""
    domains = fleet.domains
    mj, tells = telling.on(_ON_DOMAIN, telling.read.mj, len(domains))
    utility = domains.kind == _UTILITY
    return telling.over_all(mj[utility], tells[utility], domains.site[utility])


def _overhead(
    fleet: FleetArrays,
    telling: _Meters,
    it: Ints,
    facility: Ints,
    both_metered: Bools,
    stated: Floats,
) -> tuple[Ints, Ints]:
    """Return what each site draws beside its IT, and what that goes by.

    Where the IT has no meters, the facility's meter less what is known of the IT would hide what
    is not known: it does not count as measured.
    """
    zone_mj, zone_tells = telling.on(_ON_ZONE, telling.read.mj, len(fleet.zones))
    cooling, is_cooling = telling.over_all(zone_mj, zone_tells, fleet.zones.site)
    is_stated = ~np.isnan(stated)
    by_stated = facility_overhead_w(
        it_w=it.astype(np.float64), pue=np.where(is_stated, stated, 1.0)
    )
    cases = [both_metered & (facility >= it), both_metered, is_cooling, is_stated]
    values = [facility - it, np.zeros_like(it), cooling, np.rint(by_stated).astype(np.int64)]
    names = [Basis.MEASURED, Basis.CONTRADICTED, Basis.COOLING, Basis.STATED]
    overhead = np.select(cases, values, default=0).astype(np.int64)
    basis = np.select(cases, [int(name) for name in names], default=int(Basis.NONE))
    return overhead, basis.astype(np.int64)
