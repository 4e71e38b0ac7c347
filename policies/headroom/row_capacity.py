"""How large a job each row of racks takes: by power, by cooling, and by heat.

A job is taken to spread over the racks of a row in proportion to what each of them could draw more,
and within a rack over its GPUs in proportion to what is left to their rated power.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fleet.groups import sum_by
from physics.thermal import time_to_throttle_s
from policies.headroom import thermal
from policies.headroom.binding import Token
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.evaluate import Headroom
from policies.headroom.power import Power, failover
from policies.headroom.tables import names_of
from policies.scopes import Scope, ScopeKind
from telemetry.summary import carried_w

#: A cap below this share of a GPU's rating is no way out: drivers do not take it.
LOWEST_CAP_SHARE = 0.4
#: Caps are said in steps, W.
CAP_STEP_W = 5.0


@dataclass(frozen=True)
class Limit:
    """The limit that ends the growth of a job: token and place. None: the GPUs' own rating."""

    token: Token | None
    where: Scope | None


@dataclass(frozen=True, eq=False)
class RowCapacity:
    """The capacity of a row of racks for a job beside today's load.

    ``most_w`` is what its racks could draw more by their own budgets and GPUs; a job of
    ``share · most_w`` draws ``gpu_w(share)``. ``power_share`` is how much of that feeds, site and
    cooling admit, ``heat_share`` at how much no GPU settles above its slowdown.
    """

    headroom: Headroom
    site: str
    #: name of the row; racks that have none are one
    row: str
    racks: Ints
    #: rows of the GPUs
    gpus: Ints
    most_w: float
    #: by GPU of the row, at a share of 1
    more_w: Floats
    power_share: float
    power_limit: Limit
    heat_share: float

    @property
    def power_w(self) -> float:
        """The largest job by power and cooling, W."""
        return self.power_share * self.most_w

    @property
    def job_w(self) -> float:
        """The largest job that is within power, cooling and heat, W."""
        return min(self.power_share, self.heat_share) * self.most_w

    @property
    def throttles(self) -> bool:
        """Whether heat ends it before power does."""
        return self.heat_share < self.power_share

    def gpu_w(self, share: float) -> Floats:
        """Return the power of all GPUs of the fleet when the row has a job of ``share``."""
        power_w = self.headroom.summary.gpus.load_w.copy()
        power_w[self.gpus] += share * self.more_w
        return power_w

    def throttles_in_s(self, share: float) -> float:
        """Return when the first GPU is at its slowdown under a job of ``share``, s; inf: never."""
        found, seen, mine = self.headroom.parts, self.headroom.seen, self.gpus
        mine = mine[seen.read[mine]]
        if not len(mine):
            return np.inf
        wait_s = time_to_throttle_s(
            temp_c=seen.temp_c[mine],
            limit_c=found.limit_c[mine],
            power_w=self.gpu_w(share)[mine],
            ambient_c=found.ambient_c[mine],
            resistance_c_per_w=found.resistance_c_per_w[mine],
            capacitance_j_per_c=found.capacitance_j_per_c[mine],
        )
        return float(np.min(wait_s))

    def cap_w(self, share: float) -> float | None:
        """Return the highest power per GPU under which a job of ``share`` never throttles, W.

        None where that is lower than GPUs can be capped.
        """
        limit_w = limits_w(self.headroom, self.gpus)
        over = self.gpu_w(share)[self.gpus] > limit_w
        rated_w = self.headroom.summary.gpus.rated_w[self.gpus]
        return sensible_cap(float(limit_w[over].min(initial=np.inf)), float(rated_w.max(initial=0)))


def sensible_cap(watts: float, rated_w: float) -> float | None:
    """Return a cap in whole steps that a driver takes, or None."""
    if not np.isfinite(watts):
        return None
    cap_w = CAP_STEP_W * np.floor(watts / CAP_STEP_W)
    return float(cap_w) if cap_w >= LOWEST_CAP_SHARE * rated_w else None


def limits_w(headroom: Headroom, gpus: Ints) -> Floats:
    """Return the power at which each of ``gpus`` settles just at its slowdown, W."""
    found = headroom.parts
    return thermal.settles_at_w(
        limit_c=found.limit_c[gpus],
        ambient_c=found.ambient_c[gpus],
        resistance_c_per_w=found.resistance_c_per_w[gpus],
    )


def row_capacities(headroom: Headroom, site: str) -> list[RowCapacity]:
    """Return the room of each row of racks at ``site``, in order. Raises KeyError."""
    fleet = headroom.fleet
    here = fleet.sites.index_by_name[site]
    first, last = fleet.rack_bounds[here], fleet.rack_bounds[here + 1]
    racks = np.arange(first, last)
    names = fleet.racks.row[racks]
    return [
        _room(headroom, site, row or "without name", racks[names == row])
        for row in dict.fromkeys(names)
    ]


def _room(headroom: Headroom, site: str, row: str, racks: Ints) -> RowCapacity:
    fleet, power = headroom.fleet, headroom.powers
    gpus = _gpus_of(headroom, racks)
    node = fleet.gpus.node[gpus]
    load_w = headroom.summary.gpus.load_w[gpus]
    spare_w = np.maximum(power[ScopeKind.GPU].budget_w[gpus] - load_w, 0.0)
    by_rack = fleet.nodes.rack[node]
    whole_w = sum_by((1.0 + headroom.host_share[node]) * spare_w, by_rack, len(fleet.racks))
    rack_w = np.zeros(len(fleet.racks))
    rack_w[racks] = np.clip(power[ScopeKind.RACK].headroom_w[racks], 0.0, whole_w[racks])
    used = np.divide(rack_w, whole_w, out=np.zeros(len(rack_w)), where=whole_w > 0)
    more_w = used[by_rack] * spare_w
    share, limit = _power_share(headroom, rack_w, racks, whole_w)
    return RowCapacity(
        headroom=headroom,
        site=site,
        row=row,
        racks=racks,
        gpus=gpus,
        most_w=float(rack_w.sum()),
        more_w=more_w,
        power_share=share,
        power_limit=limit,
        heat_share=_heat_share(headroom, gpus, load_w, more_w),
    )


def _gpus_of(headroom: Headroom, racks: Ints) -> Ints:
    fleet = headroom.fleet
    is_mine: Bools = np.zeros(len(fleet.racks), dtype=bool)
    is_mine[racks] = True
    return np.flatnonzero(is_mine[fleet.nodes.rack][fleet.gpus.node])


def _heat_share(headroom: Headroom, gpus: Ints, load_w: Floats, more_w: Floats) -> float:
    """Return the share at which the first GPU would settle at its slowdown; at most 1."""
    to_go_w = limits_w(headroom, gpus) - load_w
    grows = headroom.seen.read[gpus] & (more_w > 0)
    shares = to_go_w[grows] / more_w[grows]
    return float(np.clip(shares.min(initial=1.0), 0.0, 1.0))


def _power_share(
    headroom: Headroom, rack_w: Floats, racks: Ints, whole_w: Floats
) -> tuple[float, Limit]:
    """Return the share of ``rack_w``, additional draw, that shared limits admit, and the limit."""
    found = (1.0, _own_limit(headroom, rack_w, racks, whole_w))
    for token, where, left_w, more_w in _shared(headroom, rack_w):
        asked = np.flatnonzero(more_w > 0)
        if not len(asked):
            continue
        shares = np.clip(left_w[asked] / more_w[asked], 0.0, 1.0)
        worst = int(shares.argmin())
        if shares[worst] < found[0]:
            scope = Scope(where, str(names_of(headroom.fleet, where)[asked[worst]]))
            found = (float(shares[worst]), Limit(token, scope))
    return found


def _own_limit(headroom: Headroom, rack_w: Floats, racks: Ints, whole_w: Floats) -> Limit:
    """Return the limit on the growth of a row's own racks: a budget, or only their GPUs."""
    short = racks[rack_w[racks] < whole_w[racks]]
    if not len(short):
        return Limit(None, None)
    share = headroom.powers[ScopeKind.RACK]
    tightest = short[np.argmin(share.headroom_w[short])]
    return Limit(Token.RACK_POWER, Scope(ScopeKind.RACK, str(headroom.fleet.racks.paths[tightest])))


def _shared(
    headroom: Headroom, rack_w: Floats
) -> Iterable[tuple[Token, ScopeKind, Floats, Floats]]:
    """Yield the limits that racks share: token, kind, the power left, and the power asked for."""
    fleet, power = headroom.fleet, headroom.powers
    domains = power[ScopeKind.POWER_DOMAIN]
    domain_w = carried_w(fleet, rack_w)
    alone_w = failover(fleet, _only(rack_w), _only(domain_w)).load_w
    zones, sites = len(fleet.zones), len(fleet.sites)
    zone_w = sum_by(rack_w, fleet.racks.zone, zones)
    site_w = sum_by(rack_w, fleet.racks.site, sites)
    domain, cooled = ScopeKind.POWER_DOMAIN, headroom.zone_capacity_w - headroom.zone_load_w
    yield Token.FEED_POWER, domain, domains.headroom_w, domain_w
    yield Token.FEED_REDUNDANCY, domain, headroom.failover.headroom_w, np.nan_to_num(alone_w)
    yield Token.SITE_POWER, ScopeKind.SITE, power[ScopeKind.SITE].headroom_w, site_w
    yield Token.COOLING, ScopeKind.ZONE, cooled, zone_w


def _only(load_w: Floats) -> Power:
    nothing = np.zeros(len(load_w))
    return Power(nothing, load_w, load_w, nothing, nothing, nothing)


def fits(headroom: Headroom, racks: Ints) -> bool:
    """Say whether nothing is over its limit that ``racks`` hang on, and no GPU of them throttles.

    For what-ifs: rounding has no say.
    """
    fleet, power = headroom.fleet, headroom.powers
    asked = np.zeros(len(fleet.racks))
    asked[racks] = 1.0
    if (power[ScopeKind.RACK].headroom_w[racks] < -1.0).any():
        return False
    for _, _, left_w, more_w in _shared(headroom, asked):
        if (left_w[more_w > 0] < -1.0).any():
            return False
    gpus = _gpus_of(headroom, racks)
    gpus = gpus[headroom.seen.read[gpus]]
    return bool((headroom.gpu_heat.steady_margin_c[gpus] >= -0.01).all())


def throttling_gpus(headroom: Headroom, gpus: Ints) -> Ints:
    """Return those of ``gpus`` that settle above their slowdown at the load of ``headroom``."""
    mine = gpus[headroom.seen.read[gpus]]
    return mine[headroom.gpu_heat.steady_margin_c[mine] < 0]
