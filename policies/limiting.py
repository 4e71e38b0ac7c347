"""What restrictions take of power and of links. Pure."""

from __future__ import annotations

import numpy as np

from fleet.tables import FleetArrays
from policies.headroom.inputs import Limits
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce


def limits_in(in_force: InForce, fleet: FleetArrays) -> Limits:
    """Return what restrictions take of power and of links, as headroom wants it."""
    share = np.ones(len(fleet.links))
    for each in in_force.of(RestrictionKind.LINK_SHARE):
        row = fleet.links.index_by_name.get(each.scope.name)
        if row is not None and each.value is not None:
            share[row] = min(share[row], each.value)
    return Limits(in_force.power_cap_w_by_gpu(fleet), share)
