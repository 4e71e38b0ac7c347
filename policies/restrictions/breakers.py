"""The breakers, which keep policies from doing too much at once without a person. Pure.

The *blast radius* is the share of a site that policies take away, all of them together: of each GPU
the whole where nothing may start or run on it, else what a cap or a budget takes of its rated
power, a cap of its clock, or a scale of its batch; weighed by rated power. What a person has issued
or approved does not count, and neither do kinds that take no GPU away. Classes and jobs are not
places: a restriction on them takes no share of a site.

The *fleet breaker* is a switch that people throw (``store.throw_breaker``): while it is open no
effect is added, and those in force run on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.power_curves import UNRATED_GPU_W
from fleet.tables import FleetArrays
from policies.restrictions.kinds import RestrictionKind, gpus_in
from policies.scopes import Scope, UnknownScope

__all__ = ["MAX_SITE_SHARE", "BlastRadius", "Taking"]

Floats: TypeAlias = NDArray[np.float64]

#: A restriction as far as this matters: kind, scope, value.
Taking: TypeAlias = tuple[RestrictionKind, Scope, float | None]

_TAKES_NOTHING = frozenset(
    {
        RestrictionKind.PREFER_AWAY,
        RestrictionKind.LOCAL_ONLY,
        RestrictionKind.NO_CROSS_SITE_CHECKPOINT,
        RestrictionKind.LINK_SHARE,
    }
)
#: What policies may take of a site without a person, unless settings say otherwise.
MAX_SITE_SHARE = 0.2
#: Shares are compared with this much grace, so that 20 % of five racks is one of them.
_ROUNDING = 1e-9


class BlastRadius:
    """The share of each site that policies take at present, and whether they may take more."""

    def __init__(self, fleet: FleetArrays, present: Iterable[Taking]) -> None:
        self._fleet = fleet
        gpus = fleet.gpus
        self._rated_w = np.where(np.isnan(gpus.rated_w), UNRATED_GPU_W, gpus.rated_w)
        self._site = fleet.racks.site[fleet.nodes.rack[gpus.node]]
        self._site_w = self._by_site(self._rated_w)
        self._taken = np.zeros(len(gpus))
        for taking in present:
            where, share = self._share(taking)
            self._taken[where] = np.fmax(self._taken[where], share)
        self._taken_w = self._by_site(self._taken * self._rated_w)

    @property
    def share_by_site(self) -> Floats:
        """Return the share that is taken of each site of the inventory."""
        return self._shares(self._taken_w)

    def admit(self, taking: Taking, *, most: float) -> str:
        """Take ``taking`` in and return "", or say why that would be too much.

        What adds nothing to a site is let through, however much of it is taken already.
        """
        where, share = self._share(taking)
        more = np.fmax(share - self._taken[where], 0.0)
        more_w = np.bincount(
            self._site[where], weights=more * self._rated_w[where], minlength=len(self._site_w)
        )
        after = self._shares(self._taken_w + more_w)
        over = np.flatnonzero((more_w > 0) & (after > most + _ROUNDING))
        if len(over):
            worst = over[after[over].argmax()]
            return (
                f"policies would take {100 * after[worst]:.0f} % of site"
                f" {self._fleet.sites.names[worst]}, and without a person they may take"
                f" {100 * most:.0f} %"
            )
        self._taken[where] += more
        self._taken_w += more_w
        return ""

    def _shares(self, taken_w: Floats) -> Floats:
        empty = np.zeros(len(taken_w))
        return np.divide(taken_w, self._site_w, out=empty, where=self._site_w > 0)

    def _by_site(self, values: Floats) -> Floats:
        count = len(self._fleet.sites)
        return np.bincount(self._site, weights=values, minlength=count).astype(np.float64)

    def _share(self, taking: Taking) -> tuple[NDArray[np.int64], Floats]:
        """Return the rows of the GPUs that are touched, and the share taken of each, 0 to 1."""
        kind, scope, value = taking
        if kind in _TAKES_NOTHING:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        try:
            where = np.flatnonzero(gpus_in(self._fleet, scope))
        except UnknownScope:
            where = np.zeros(0, dtype=np.int64)
        left = np.zeros(len(where))
        if value is not None and kind is RestrictionKind.POWER_BUDGET_W and len(where):
            left = np.full(len(where), value / max(self._rated_w[where].sum(), 1.0))
        elif value is not None and kind is RestrictionKind.POWER_CAP_W:
            left = value / self._rated_w[where]
        elif value is not None and kind is RestrictionKind.CLOCK_CAP_MHZ:
            left = np.nan_to_num(value / self._fleet.gpus.sm_max_mhz[where])
        elif value is not None and kind is RestrictionKind.MAX_BATCH_SCALE:
            left = np.full(len(where), value)
        return where, 1.0 - left.clip(0.0, 1.0)
