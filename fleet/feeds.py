"""The branches of the power tree: what hangs on a power domain. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays

__all__ = ["carried_share"]


def carried_share(fleet: FleetArrays, domain: int) -> NDArray[np.float64]:
    """Return the share of each rack's load that a domain (row) carries, with all feeds up.

    A rack on two feeds draws half of its load from each; 0: none of it comes from there.
    """
    below = np.zeros(len(fleet.domains) + 1, dtype=bool)  # the last stands for "none"
    below[domain] = True
    while True:
        reached = below[:-1] | below[fleet.domains.parent]
        if (reached == below[:-1]).all():
            break
        below[:-1] = reached
    a, b = fleet.racks.feed_a, fleet.racks.feed_b
    carried = below[a].astype(np.float64) + below[b]
    return np.asarray(carried / np.maximum((a >= 0).astype(np.int64) + (b >= 0), 1))
