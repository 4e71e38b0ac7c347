"""The approaches: which mechanisms each of them has.

The single global queue has none. Each of the next four adds one of its own to it, so that what it
is worth shows by itself. Then come all of them: Headroom as it comes, and as one would set it up
where power, and not GPUs, is scarce.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from admission.core.allocation import reservation
from admission.core.cycle.decide import Decisions
from admission.core.snapshot import Snapshot, Tuning
from lab.approaches import deciding

__all__ = ["APPROACHES", "NAMES", "Approach", "approach"]


@dataclass(frozen=True, kw_only=True)
class Approach:
    """One approach: how it decides on starts, and how it controls jobs that run."""

    name: str
    title: str
    said: str
    starts: Callable[[Snapshot], Decisions]
    #: what starts is shown what budgets have left, which it may heed or not
    enforces_budgets: bool = False
    #: a controller holds running load within all budgets by caps
    controls: bool = False
    #: running jobs shrink their batch and pause as margins want it
    responds: bool = False
    #: what that does not bring down is brought down by ending jobs
    sheds: bool = False
    #: jobs leave a site that fails them, from their last checkpoint
    moves: bool = False
    #: power caps are set
    caps: bool = False
    #: sees what is drawn now, and not what is reserved
    reads_live: bool = False
    #: rules fire, and what they restrict holds
    follows_rules: bool = False
    #: those that come with Headroom, but for these
    retired_rules: tuple[str, ...] = ()
    #: how what jobs reserve comes down
    reserve: reservation.Rules = field(default_factory=reservation.Rules)
    #: how the cycle of admission weighs and bounds
    tuning: Tuning = field(default_factory=Tuning)

    def decide(self, snapshot: Snapshot) -> Decisions:
        """Return the jobs that start now."""
        return self.starts(snapshot)


APPROACHES = (
    Approach(
        name="single-queue",
        title="Single global queue",
        said="one queue for all sites, which places by free GPUs and knows no watts",
        starts=deciding.by_free_gpus,
    ),
    Approach(
        name="site-aware",
        title="Site-aware placement",
        said="the same queue, which takes racks that have power left before others",
        starts=deciding.by_margin,
        enforces_budgets=True,
        reads_live=True,
    ),
    Approach(
        name="power-capped",
        title="Power-capped autoscaling",
        said="jobs start within the budgets alone, and capped: as low as they accept, but not "
        "below half of the rating",
        starts=deciding.under_caps,
        enforces_budgets=True,
        caps=True,
    ),
    Approach(
        name="elastic-batch",
        title="Elastic batch scaling",
        said="the single queue, whose running jobs shrink their batch or pause as power gets short",
        starts=deciding.by_free_gpus,
        responds=True,
    ),
    Approach(
        name="cross-site",
        title="Cross-site checkpoint and resume",
        said="the single queue, at the site with the most power left; where more is drawn than may "
        "be, the jobs that lose the least are saved, end, and go on at the other site",
        starts=deciding.by_site,
        enforces_budgets=True,
        reads_live=True,
        sheds=True,
        moves=True,
    ),
    Approach(
        name="all-together",
        title="All together",
        said="budgets, caps, elastic batches and moves, and a controller that divides budgets "
        "among running jobs every step: Headroom as it comes, with its own rules",
        starts=deciding.with_everything,
        enforces_budgets=True,
        controls=True,
        responds=True,
        sheds=True,
        moves=True,
        caps=True,
        follows_rules=True,
        reserve=reservation.Rules(warm_up_s=60.0, halves_in_s=30.0, quantile=0.99, margin=0.02),
        tuning=Tuning(reservations=1),
    ),
    Approach(
        name="tuned",
        title="All together, for scarce power",
        said="the same, but jobs start capped; after 20 s they reserve what they draw half of the "
        "time, and no margin, so that what many draw at once is left to smaller batches; room is "
        "kept for one blocked job, not four; and the rule that lets nothing start on a site above "
        "85 % of its power is retired: admission holds the budget itself",
        starts=deciding.under_caps,
        enforces_budgets=True,
        responds=True,
        sheds=True,
        moves=True,
        caps=True,
        follows_rules=True,
        retired_rules=("autoscaling-gate",),
        reserve=reservation.Rules(warm_up_s=20.0, halves_in_s=10.0, quantile=0.5, margin=0.0),
        tuning=Tuning(reservations=1),
    ),
)

NAMES = tuple(each.name for each in APPROACHES)


def approach(name: str) -> Approach:
    """Return an approach by its name. Raises ValueError."""
    found = next((each for each in APPROACHES if each.name == name), None)
    if found is None:
        raise ValueError(f"approach: there is none called {name!r}; there are {', '.join(NAMES)}")
    return found
