"""Conditions at sites, and the facts that follow for the fallback of a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from admission.core.request import Request
from admission.core.response.checkpoints import Known, has_latest, is_elsewhere
from admission.core.response.inputs import KnownInputs, differ_at
from fleet.tables import LINK_KINDS, FleetArrays
from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["SILENT", "Sites", "facts_of"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_WAN = LINK_KINDS.index("wan")
#: A site from which so much is not heard is looked at, and with it the jobs that are at home there.
SILENT = 0.5


@dataclass(frozen=True, eq=False)
class Sites:
    """Facts of all sites at one moment, by row of the inventory.

    ``dark`` says of each GPU whether it has lost its power, so that nothing can be heard of it;
    None: it is not known of any.
    """

    headroom: Headroom
    in_force: InForce
    dark: Bools | None = None

    @property
    def fleet(self) -> FleetArrays:
        return self.headroom.fleet

    @cached_property
    def silent_share(self) -> Floats:
        fleet = self.fleet
        site = fleet.racks.site[fleet.nodes.rack[fleet.gpus.node]]
        count = len(fleet.sites)
        unheard = ~self.headroom.summary.gpus.read
        if self.dark is not None:
            unheard = unheard | self.dark
        silent = np.bincount(site, weights=unheard, minlength=count)
        gpus = np.bincount(site, minlength=count)
        return np.divide(silent, gpus, out=np.zeros(count), where=gpus > 0)

    @cached_property
    def power_margin(self) -> Floats:
        power = self.headroom.powers[ScopeKind.SITE]
        share = np.full(len(self.fleet.sites), np.nan)
        left_w = power.budget_w - power.drawn_w
        np.divide(left_w, power.budget_w, out=share, where=power.budget_w > 0)
        return share

    @cached_property
    def wan_up(self) -> Floats:
        """1 where some WAN link of a site is heard, 0 where none is, NaN where it has none."""
        links = self.fleet.links
        up = np.full(len(self.fleet.sites), np.nan)
        heard = ~np.asarray(self.headroom.links["stale"], dtype=bool)
        for row in np.flatnonzero(links.kind == _WAN).tolist():
            for site in (int(links.site[row]), int(links.peer_site[row])):
                if site >= 0:
                    up[site] = np.fmax(up[site], float(heard[row]))
        return up

    def _whole(self, kind: RestrictionKind) -> Bools:
        """Say of each site whether a restriction holds for all of its racks."""
        fleet = self.fleet
        under = self.in_force.racks_under(fleet, kind)
        free = np.bincount(fleet.racks.site[~under], minlength=len(fleet.sites))
        racks = np.bincount(fleet.racks.site, minlength=len(fleet.sites))
        return np.asarray((free == 0) & (racks > 0))

    @cached_property
    def draining(self) -> Bools:
        return self._whole(RestrictionKind.DRAIN)

    @cached_property
    def is_open(self) -> Bools:
        closed = self._whole(RestrictionKind.NO_NEW_LAUNCHES) | self.draining
        return np.asarray(~closed & (self.silent_share < SILENT))

    def named(self, kind: RestrictionKind) -> set[Scope]:
        """Return the sites, jobs and classes that a restriction of ``kind`` names."""
        return {each.scope for each in self.in_force.of(kind)}

    @cached_property
    def troubled(self) -> set[str]:
        """Return the sites with conditions that may move jobs."""
        names = self.fleet.sites.names
        rows = self.draining | (self.silent_share >= SILENT) | (self.wan_up == 0)
        named = self.named(RestrictionKind.LOCAL_ONLY) | self.named(RestrictionKind.HOLD_FOR_REVIEW)
        sites = {scope.name for scope in named if scope.kind is ScopeKind.SITE}
        return sites | {str(name) for name in names[rows]}


def facts_of(
    sites: Sites, home: str, request: Request, failures: int, *, moves: bool, known: Known,
    inputs: KnownInputs,
) -> dict[str, float]:  # fmt: skip
    """Return the facts of one job. Unknown ones are left out.

    ``moves``: its class lets it move. ``failures``: attempts that were lost within the last hour.
    ``known``: its checkpoints at sites, ``inputs``: its inputs there; of what is not known the
    declaration counts.
    """
    fit = _fit(sites, home, request, inputs)
    row = sites.fleet.sites.index_by_name.get(home)
    scopes = {
        Scope(ScopeKind.SITE, home),
        Scope(ScopeKind.JOB, request.job),
        Scope(ScopeKind.CLASS, request.job_class),
    }
    saves = request.checkpoint_interval_s is not None
    is_there = is_elsewhere(known, home)
    if is_there is None:
        is_there = request.cross_site_checkpoint or not saves
    facts = {
        "may_move": float(moves and bool(fit)),
        "checkpoint_elsewhere": float(is_there),
        "home_has_latest": float(has_latest(known, home)),
        "local_only": float(bool(scopes & sites.named(RestrictionKind.LOCAL_ONLY))),
        "review": float(bool(scopes & sites.named(RestrictionKind.HOLD_FOR_REVIEW))),
        "failures_in_hour": float(failures),
        "other_site_open": float(bool(fit & set(sites.fleet.sites.names[sites.is_open]))),
    }
    if row is None:
        return facts
    return facts | {
        "site_silent_share": float(sites.silent_share[row]),
        "site_power_margin": float(sites.power_margin[row]),
        "site_draining": float(sites.draining[row]),
        "wan_up": float(sites.wan_up[row]),
    }


def _fit(sites: Sites, home: str, request: Request, inputs: KnownInputs) -> set[str]:
    """Return the other sites that a job takes, but for those where its inputs differ."""
    # One that asked for its home alone takes any other: see core.fallback.restricted.
    asked = set(request.sites) - {home} or set(sites.fleet.sites.names.tolist())
    return asked - {home} - differ_at(inputs)
