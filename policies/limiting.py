"""Limits on power and links from restrictions, now or over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from fleet.tables import FleetArrays
from policies.headroom.columns import Floats
from policies.headroom.inputs import Limits
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import ScopeKind, UnknownScope, row_of

#: The kinds that headroom depends on.
LIMITING = (
    RestrictionKind.POWER_CAP_W,
    RestrictionKind.POWER_BUDGET_W,
    RestrictionKind.LINK_SHARE,
)


def limits_in(in_force: InForce, fleet: FleetArrays) -> Limits:
    """Return the limits on power and links that restrictions set, as headroom takes them."""
    share = np.ones(len(fleet.links))
    for each in in_force.of(RestrictionKind.LINK_SHARE):
        row = fleet.links.index_by_name.get(each.scope.name)
        if row is not None and each.value is not None:
            share[row] = min(share[row], each.value)
    budgets = in_force.of(RestrictionKind.POWER_BUDGET_W)
    return Limits(in_force.power_cap_w_by_gpu(fleet), share, budgets_in(budgets, fleet))


def budgets_in(
    restrictions: Iterable[ActiveRestriction], fleet: FleetArrays
) -> dict[ScopeKind, Floats]:
    """Return what budgets of power leave to the scopes of each kind, W; inf where there is none.

    A kind of scopes without any such budget is not in it.
    """
    counts = _counts(fleet)
    found: dict[ScopeKind, Floats] = {}
    for each in restrictions:
        try:
            row = row_of(fleet, each.scope)
        except UnknownScope:
            continue
        kind = each.scope.kind
        limit_w = found.setdefault(kind, np.full(counts[kind], np.inf))
        limit_w[row] = min(limit_w[row], each.number)
    return found


def _counts(fleet: FleetArrays) -> dict[ScopeKind, int]:
    """Return how many scopes there are of each kind that may have a budget."""
    return {
        ScopeKind.SITE: len(fleet.sites),
        ScopeKind.ZONE: len(fleet.zones),
        ScopeKind.POWER_DOMAIN: len(fleet.domains),
        ScopeKind.RACK: len(fleet.racks),
    }


@dataclass(frozen=True)
class Term:
    """A restriction while it was in force with one value: from ``since`` to before ``until``.

    Unix s.
    """

    restriction: ActiveRestriction
    since: float
    until: float


def limits_over(terms: Sequence[Term], fleet: FleetArrays, times: Floats) -> Limits:
    """Return :func:`limits_in` for each of ``times`` (Unix s, rising): (times, things)."""
    here = [each for each in terms if each.since <= times[-1] and each.until > times[0]]
    if not here:
        return Limits.none(fleet)
    changes = np.unique([edge for each in here for edge in (each.since, each.until)])
    places, which = np.unique(np.searchsorted(changes, times, side="right"), return_inverse=True)
    firsts = [float(times[np.flatnonzero(which == row)[0]]) for row in range(len(places))]
    found = [limits_in(_in_force(here, at), fleet) for at in firsts]
    return Limits(
        np.stack([each.gpu_cap_w for each in found])[which],
        np.stack([each.link_share for each in found])[which],
        {
            kind: _budgets_over(found, kind, count)[which]
            for kind, count in _counts(fleet).items()
            if any(kind in each.budget_w for each in found)
        },
    )


def _budgets_over(found: Sequence[Limits], kind: ScopeKind, count: int) -> Floats:
    nothing = np.full(count, np.inf)
    return np.stack([each.budget_w.get(kind, nothing) for each in found])


def _in_force(terms: Sequence[Term], at: float) -> InForce:
    restrictions = tuple(each.restriction for each in terms if each.since <= at < each.until)
    return InForce(datetime.fromtimestamp(at, UTC), restrictions)
