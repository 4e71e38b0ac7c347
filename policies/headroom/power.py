"""Power of every scope: budget, load, and the load of a feed when the other of its pair fails.

Arrays are (scopes,) at one moment and (times, scopes) at many; what stays the same may lack times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet.groups import above, at, ratio, sum_by, sum_of_known_by
from fleet.tables import FleetArrays
from policies.headroom.columns import HORIZONS, Bools, Floats
from policies.headroom.inputs import Limits, Reservations, Steps
from policies.headroom.trend import exhausted_in_s, lasting_s
from policies.scopes import ScopeKind
from telemetry.summary import FleetSummary, carried_w, host_rated_w


@dataclass(frozen=True, eq=False)
class Power:
    """Power of the scopes of one kind, W.

    ``drawn_w`` is the load without what is reserved and not drawn yet, ``read_w`` how much of it
    rests on fresh readings, of whatever is below or of a meter.
    """

    budget_w: Floats
    drawn_w: Floats
    load_w: Floats
    measured_w: Floats
    read_w: Floats
    reserved_w: Floats

    @property
    def headroom_w(self) -> Floats:
        return self.budget_w - self.load_w

    @property
    def confidence(self) -> Floats:
        """Share of the load that rests on fresh readings; 1 where there is no load."""
        share = ratio(self.read_w, self.load_w)
        return np.where(self.load_w > 0, np.clip(share, 0.0, 1.0), 1.0)


def committed(
    fleet: FleetArrays, summary: FleetSummary, reservations: Reservations, limits: Limits
) -> dict[ScopeKind, Power]:
    """Return the power of GPUs, nodes, racks, power domains and sites."""
    gpus = _gpus(summary, limits)
    nodes = _nodes(fleet, summary, gpus, reservations)
    racks = _racks(fleet, summary, nodes, reservations, limits)
    domains = _domains(fleet, summary, racks, reservations, limits)
    return {
        ScopeKind.GPU: gpus,
        ScopeKind.NODE: nodes,
        ScopeKind.RACK: racks,
        ScopeKind.POWER_DOMAIN: domains,
        ScopeKind.SITE: _sites(fleet, summary, racks, domains, reservations, limits),
    }


def _gpus(summary: FleetSummary, limits: Limits) -> Power:
    gpus = summary.gpus
    return Power(
        # Not the limit that the GPU reads: without that reading it would seem to have more.
        budget_w=np.minimum(gpus.rated_w, limits.gpu_cap_w),
        drawn_w=gpus.load_w,
        load_w=gpus.load_w,
        measured_w=np.where(gpus.read, gpus.load_w, np.nan),
        read_w=np.where(gpus.read, gpus.load_w, 0.0),
        reserved_w=np.zeros(gpus.load_w.shape[-1]),
    )


def _nodes(
    fleet: FleetArrays, summary: FleetSummary, gpus: Power, reservations: Reservations
) -> Power:
    gpus_w = sum_by(gpus.budget_w, fleet.gpus.node, len(fleet.nodes))
    drawn_w = summary.nodes.load_w
    return Power(
        budget_w=gpus_w + host_rated_w(fleet),
        drawn_w=drawn_w,
        load_w=np.maximum(drawn_w, reservations.node_w),
        measured_w=summary.nodes.measured_w,
        read_w=np.nan_to_num(summary.nodes.measured_w),
        reserved_w=reservations.node_w,
    )


def _racks(
    fleet: FleetArrays,
    summary: FleetSummary,
    nodes: Power,
    reservations: Reservations,
    limits: Limits,
) -> Power:
    count, rack = len(fleet.racks), fleet.nodes.rack
    drawn_w = summary.racks.load_w
    # The meter of a rack does not know which node has still to draw what it has reserved.
    of_nodes_w = sum_by(nodes.load_w - nodes.drawn_w, rack, count)
    to_come_w = reservations.to_come_w.get(ScopeKind.RACK, of_nodes_w)
    by_nodes_w = sum_by(reservations.node_w, rack, count) + (to_come_w - of_nodes_w)
    return Power(
        budget_w=limits.budget_of(ScopeKind.RACK, fleet.racks.budget_w),
        drawn_w=drawn_w,
        load_w=np.maximum(drawn_w + to_come_w, reservations.rack_w),
        measured_w=summary.racks.measured_w,
        # Beside nodes that are stale a meter may read less than those that are not.
        read_w=np.fmax(summary.racks.measured_w, sum_by(nodes.read_w, rack, count)),
        reserved_w=np.maximum(by_nodes_w, reservations.rack_w),
    )


def _domains(
    fleet: FleetArrays,
    summary: FleetSummary,
    racks: Power,
    reservations: Reservations,
    limits: Limits,
) -> Power:
    domains = summary.domains
    of_racks_w = carried_w(fleet, racks.load_w - racks.drawn_w)
    to_come_w = reservations.to_come_w.get(ScopeKind.POWER_DOMAIN, of_racks_w)
    known = carried_w(fleet, (~np.isnan(racks.measured_w)).astype(float)) > 0
    below_w = np.where(known, carried_w(fleet, np.nan_to_num(racks.measured_w)), np.nan)
    return Power(
        budget_w=limits.budget_of(ScopeKind.POWER_DOMAIN, domains.usable_w),
        drawn_w=domains.load_w,
        load_w=domains.load_w + to_come_w,
        measured_w=np.where(np.isnan(domains.metered_w), below_w, domains.metered_w),
        read_w=np.fmax(domains.metered_w, carried_w(fleet, racks.read_w)),
        reserved_w=carried_w(fleet, racks.reserved_w) + (to_come_w - of_racks_w),
    )


def _sites(
    fleet: FleetArrays,
    summary: FleetSummary,
    racks: Power,
    domains: Power,
    reservations: Reservations,
    limits: Limits,
) -> Power:
    count, site = len(fleet.sites), fleet.racks.site
    roots = fleet.domains.parent < 0
    root_site = fleet.domains.site[roots]

    def whole(of_racks: Floats, of_domains: Floats) -> Floats:
        # What hangs on the site's utility beside racks is seen by the utility's meter alone.
        at_roots = sum_by(of_domains[..., roots], root_site, count)
        return np.maximum(sum_by(of_racks, site, count), at_roots)

    drawn_w = whole(racks.drawn_w, domains.drawn_w)
    of_all_w = whole(racks.load_w, domains.load_w)
    to_come_w = reservations.to_come_w.get(ScopeKind.SITE)
    load_w = of_all_w if to_come_w is None else np.minimum(of_all_w, drawn_w + to_come_w)
    return Power(
        budget_w=limits.budget_of(ScopeKind.SITE, summary.sites.budget_w),
        drawn_w=drawn_w,
        load_w=load_w,
        measured_w=np.fmax(
            summary.sites.measured_w,
            sum_of_known_by(domains.measured_w[..., roots], root_site, count),
        ),
        read_w=whole(racks.read_w, domains.read_w),
        reserved_w=sum_by(racks.reserved_w, site, count) + (load_w - of_all_w),
    )


@dataclass(frozen=True, eq=False)
class Failover:
    """Aligned with power domains: the load when the other half of the pair fails; NaN: no pair."""

    load_w: Floats
    headroom_w: Floats


#: A half whose meter shows this share of what its idle pair should carry has taken it over.
_TAKEN_OVER_SHARE = 0.9


def failover(
    fleet: FleetArrays, racks: Power, domains: Power, idle: Bools | None = None
) -> Failover:
    """Return the load of each half of an A/B pair when the other half has failed.

    A rack on two feeds draws all of its load from the one that is left. Where the load of the half
    that fails is more than that of the racks known to hang on it, the rest is taken to move, too.

    ``idle``: domains whose meters show next to nothing. If that is a fault of theirs, their load
    moves as any other's. If the other half shows what should be theirs, it has moved already.
    """
    pair = fleet.domains.pair
    moved_w = _moved(fleet, racks.load_w)
    unknown_w = np.maximum(domains.load_w - carried_w(fleet, racks.load_w), 0.0)
    load_w = domains.load_w + moved_w + at(unknown_w, pair, 0.0)
    if idle is not None and idle.any():
        taken_over = at(idle, pair, False)
        taken_over &= unknown_w >= _TAKEN_OVER_SHARE * _moved(fleet, racks.drawn_w)
        load_w -= np.where(taken_over, np.minimum(unknown_w, moved_w), 0.0)
    load_w = np.where(pair >= 0, load_w, np.nan)
    return Failover(load_w, domains.budget_w - load_w)


def _moved(fleet: FleetArrays, rack_w: Floats) -> Floats:
    """Return the load that moves to each power domain when the other half of its pair fails, W."""
    pair = fleet.domains.pair
    moved_w = np.zeros((*rack_w.shape[:-1], len(pair)))
    up_a, up_b = above(fleet, fleet.racks.feed_a), above(fleet, fleet.racks.feed_b)
    both = (fleet.racks.feed_a >= 0) & (fleet.racks.feed_b >= 0)
    other = np.append(pair, -1)
    for up, fails in ((up_a, up_b), (up_b, up_a)):
        for level in up:
            mate = other[level]
            moves = both & (mate >= 0) & (fails == mate).any(axis=0)
            moved_w += sum_by(0.5 * rack_w[..., moves], level[moves], len(pair))
    return moved_w


def steps_by(
    fleet: FleetArrays, steps: Steps, now: float | Floats, ahead_s: float
) -> dict[ScopeKind, Floats]:
    """Return by how much known changes move the load of each scope within ``ahead_s``, W."""
    soon = (steps.at > now) & (steps.at <= now + ahead_s)
    rack_w = sum_by(np.where(soon, steps.change_w, 0.0), steps.rack, len(fleet.racks))
    return {
        ScopeKind.RACK: rack_w,
        ScopeKind.ZONE: sum_by(rack_w, fleet.racks.zone, len(fleet.zones)),
        ScopeKind.SITE: sum_by(rack_w, fleet.racks.site, len(fleet.sites)),
        ScopeKind.POWER_DOMAIN: carried_w(fleet, rack_w),
    }


def columns(power: Power) -> dict[str, Any]:
    """Return the power columns of one kind, as it is now."""
    return {
        "power_budget_w": power.budget_w,
        "power_load_w": power.load_w,
        "power_drawn_w": power.drawn_w,
        "power_measured_w": power.measured_w,
        "power_reserved_w": power.reserved_w,
        "power_headroom_w": power.headroom_w,
        "power_use": ratio(power.load_w, power.budget_w),
        "power_drawn_use": ratio(power.drawn_w, power.budget_w),
        "power_confidence": power.confidence,
    }


def trends(power: Power, slope: Floats) -> dict[str, Any]:
    """Return the columns of parts of racks that say how their power goes on at its slope."""
    known = np.nan_to_num(slope)
    return {
        "power_slope_w_per_s": slope,
        "power_exhausted_in_s": exhausted_in_s(power.headroom_w, slope),
        **{
            # What is reserved is at least 0, and so are these.
            f"power_load_{name}_w": np.maximum(
                power.drawn_w + known * lasting_s(ahead_s), power.reserved_w
            )
            for name, ahead_s in HORIZONS.items()
        },
    }
