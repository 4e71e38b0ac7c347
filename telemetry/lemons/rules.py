"""When a GPU is a lemon: every number of it, in one place."""

from __future__ import annotations

import enum
from dataclasses import dataclass

#: Readings are compared as means over windows of this length, s.
WINDOW_S = 300
#: A GPU is compared where it has at least this share of the usual number of readings of a window.
LEAST_READINGS = 0.5
#: A GPU in use for less than this, percent, or drawing less than this share of its rating, idles.
LEAST_UTIL = 50.0
LEAST_POWER_SHARE = 0.25
#: Bands of load: mean power over rated power, from one edge to the next.
BAND_EDGES = (0.25, 0.5, 0.75)
#: The fewest GPUs that make a group.
LEAST_GROUP = 8
#: The fewest GPUs at one place of their nodes for which that place's own warmth is taken out.
LEAST_AT_PLACE = 16
#: The median absolute deviation of normal values is this part of their standard deviation.
MAD_TO_SIGMA = 1.4826
#: No cooler gives more than this, °C/W: what fits more is no heat law.
MOST_C_PER_W = 0.5
#: No window counts for more than this, so that none decides alone.
MOST_SCORE = 8.0
#: A GPU is judged by its mean score over this many windows at work, the last ones most.
MEMORY = 12
#: It is not judged before it has been compared in so many.
LEAST_WINDOWS = 3
#: Of the findings, the share that may be chance.
FALSE_DISCOVERY = 0.001
#: A finding ends when the mean score has fallen below this.
END_BELOW = 3.0


class Metric(enum.StrEnum):
    """The quantity that is wrong with a lemon. The value is its stable token."""

    HOT_CORE = "hot_core"
    HOT_MEMORY = "hot_memory"
    SLOW_CLOCK = "slow_clock"


@dataclass(frozen=True)
class Rule:
    """How a metric is judged. ``sign`` 1: more is worse. ``floor`` is the least spread that peers
    are credited with, and ``effect`` the least difference that matters, both in the metric's unit;
    ``effect_share`` the same as a share of the peers' value.
    """

    field: str
    unit: str
    sign: int
    floor: float
    effect: float
    effect_share: float = 0.0


RULES: dict[Metric, Rule] = {
    Metric.HOT_CORE: Rule("temp_c", "°C", 1, floor=1.0, effect=5.0),
    Metric.HOT_MEMORY: Rule("temp_mem_c", "°C", 1, floor=1.0, effect=5.0),
    Metric.SLOW_CLOCK: Rule("sm_mhz", "MHz", -1, floor=15.0, effect=30.0, effect_share=0.03),
}
