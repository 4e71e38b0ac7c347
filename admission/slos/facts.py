"""Facts about a site that conditions of objectives may ask for, sampled each minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.headroom.columns import Field
from policies.rules.arrays import Columns
from policies.rules.cel import Condition

__all__ = ["FACTS", "Samples"]

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

#: By name, as conditions write them. NaN is "not known", and a comparison with it does not hold.
FACTS: dict[str, Field] = {
    "power_headroom": Field(
        "double", "", "What is left of power, as a share: of the site, or of its tightest feed"
    ),
    "cooling_headroom": Field(
        "double", "", "What is left of the cooling of all zones of the site, as a share"
    ),
    "uplink_use": Field(
        "double", "", "Use of the busiest WAN link that starts or ends at the site"
    ),
    "stale_share": Field("double", "", "Share of the site's nodes that have fallen silent"),
}


@dataclass(frozen=True, eq=False)
class Samples:
    """Facts of sites at moments: ``facts[name]`` is times by sites. Times grow."""

    times: Floats
    sites: Sequence[str]
    facts: dict[str, Floats]

    @staticmethod
    def none() -> Samples:
        """Nothing was sampled."""
        return Samples(np.zeros(0), (), {name: np.zeros((0, 0)) for name in FACTS})

    def holding(self, condition: Condition) -> Bools:
        """Say of each time and site whether ``condition`` is known to hold there."""
        shape = (len(self.times), len(self.sites))
        names = np.array(self.sites, dtype=object)
        columns = {**self.facts, "name": names, "site": names}
        return condition.verdict(Columns(columns, (), shape)).holds
