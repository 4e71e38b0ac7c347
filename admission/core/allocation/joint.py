"""What gangs draw together at most: the joint peak of a rack, of a power domain, of a site. Pure.

Gangs seldom peak at the same time. What one draws is, as far as it was seen, a mean and a swing.
The parts of a gang swing together, those of different gangs do not, so that a budget sees the sum
of the means and the root of the sum of squares of the swings, and no more than all at their own
99th percentile. A swing is how far that is above the mean, or as many standard deviations as it
would be if draws were normal: who draws much for nine tenths of the time has its mean close by.

What was seen may not be all. Of something that was seen ``n`` times, the next time is unlike all of
them with a chance of ``1 / (n + 1)`` (rule of succession), and then it draws its peak. Gangs of one
project and image do so together: what is not known of one is not known of the others. So nothing
seen reserves the peak, and much seen the joint swing, with nothing to be set in between.

What stages data or compiles draws little for minutes, and then all that it can at once. So own
readings count as seen from the moment on at which it was at work, however long it has been quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fleet.groups import above, sum_by
from fleet.tables import FleetArrays

__all__ = [
    "LEAST_QUANTILE",
    "PROFILE_KEEPS",
    "SAMPLE_S",
    "Learned",
    "Parts",
    "joint_peak_w",
    "learned",
    "on_domains",
    "on_racks",
    "on_sites",
    "remembered",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A joint peak is kept so often, as a share of the time.
LEAST_QUANTILE = 0.99
#: What a profile knew before counts so much less for each attempt that comes to it.
PROFILE_KEEPS = 0.9
#: So much reading of its own is one sample of a gang, s: about as long as from one evaluation or
#: checkpoint to the next. No setting, or a hasty one would take what is not known for small.
SAMPLE_S = 300.0
_DEVIATIONS = NormalDist().inv_cdf(LEAST_QUANTILE)


@dataclass(frozen=True, eq=False)
class Learned:
    """What was seen of the draw of allocations: a row each.

    ``mean_w``, ``high_w``, its 99th percentile, and ``deviation_w``, its standard deviation, are W
    for each GPU with its part of the host; NaN where nothing was seen. ``samples`` is how often
    something like it was seen: attempts of its project and image that have ended, and, once it has
    been at work, samples of its own readings. 0: what it draws at work was never seen.
    """

    mean_w: Floats
    high_w: Floats
    deviation_w: Floats
    samples: Floats

    @staticmethod
    def nothing(count: int) -> Learned:
        """Nothing was seen of so many allocations."""
        unknown_w = np.full(count, np.nan)
        return Learned(unknown_w, unknown_w, unknown_w, np.zeros(count))

    @staticmethod
    def of(parts: Sequence[Learned]) -> Learned:
        """Return the rows of all parts, one after the other."""
        return Learned(
            *(
                np.concatenate([getattr(part, each.name) for part in parts] or [np.zeros(0)])
                for each in fields(Learned)
            )
        )

    def rows(self, which: Ints | slice) -> Learned:
        """Return some of its rows."""
        return Learned(*(getattr(self, each.name)[which] for each in fields(Learned)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """The parts of gangs on budgets: a row for each gang and budget, or several. Watts.

    ``gang`` and ``kind`` are codes from 0 on: of the gang, and of what is known of it (project and
    image). ``mean_w``, ``high_w`` and ``deviation_w`` are NaN where nothing was seen.
    """

    budget: Ints
    gang: Ints
    kind: Ints
    drawn_w: Floats
    mean_w: Floats
    high_w: Floats
    deviation_w: Floats
    peak_w: Floats
    samples: Floats


def learned(
    seconds: Floats,
    like: Floats,
    ended: Floats,
    *,
    at_work_w: Floats,
    edges_w: Floats,
    sample_s: float = SAMPLE_S,
) -> Learned:
    """Return what was seen of allocations.

    ``seconds`` is rows by bins: how long each drew how much, up to ``edges_w``. ``like`` is the
    same of the ended attempts of its project and image, ``ended`` their number. All of these count
    as much as one sample of its own, which is ``sample_s`` long. What has never drawn ``at_work_w``
    (W for each GPU with its part of the host) has not been at work.
    """
    own_s = seconds.sum(axis=1)
    own = own_s / sample_s
    has_worked = _high_w(_shares(seconds), edges_w) >= at_work_w
    known = (like.sum(axis=1) > 0.0) & (ended > 0.0)
    shares = _shares(seconds) * own[:, None] + _shares(like) * known[:, None]
    seen = shares.sum(axis=1) > 0.0
    shares = _shares(shares)
    high_w = _high_w(shares, edges_w)
    # What is above all bounds counts as the highest of them: the peak of such a thing is reserved.
    bounded_w = np.where(np.isfinite(edges_w), edges_w, edges_w[-2])
    mean_w = shares @ bounded_w
    variance = np.maximum(shares @ bounded_w**2 - mean_w**2, 0.0)
    return Learned(
        mean_w=np.where(seen, mean_w, np.nan),
        high_w=np.where(seen, high_w, np.nan),
        deviation_w=np.where(seen, np.sqrt(variance), np.nan),
        samples=np.where(seen, np.where(has_worked, own, 0.0) + np.where(known, ended, 0.0), 0.0),
    )


def remembered(attempts: int) -> float:
    """Return how many attempts a profile still knows of so many that have come to it."""
    return float((1.0 - PROFILE_KEEPS**attempts) / (1.0 - PROFILE_KEEPS))


def joint_peak_w(parts: Parts, budgets: int) -> Floats:
    """Return what is reserved on each budget for the gangs on it, W.

    Never less than they draw, never more than the sum of their peaks.
    """
    top_w = parts.peak_w
    unseen = np.isnan(parts.mean_w) | np.isnan(parts.high_w)
    mean_w = np.where(unseen, top_w, np.minimum(parts.mean_w, top_w))
    high_w = np.where(unseen, top_w, np.clip(parts.high_w, mean_w, top_w))
    missing = 1.0 / (1.0 + np.where(unseen, 0.0, parts.samples))
    seen, untold_w = 1.0 - missing, top_w - mean_w
    far_w = _DEVIATIONS * np.where(unseen, 0.0, parts.deviation_w)
    swing_w = seen * np.maximum(high_w - mean_w, np.minimum(far_w, untold_w))
    # No more than its peak is left of both: something seen now and then reserves no more than that.
    left_w = np.sqrt(np.maximum((seen * untold_w) ** 2 - swing_w**2, 0.0))
    doubt_w = np.minimum(_DEVIATIONS * np.sqrt(missing * seen) * untold_w, left_w)
    swings = np.minimum(
        _squares(swing_w, parts.gang, parts.budget, budgets),
        sum_by(seen * (high_w - mean_w), parts.budget, budgets) ** 2,
    )
    doubts = _squares(doubt_w, parts.kind, parts.budget, budgets)
    joint_w = sum_by(mean_w + missing * untold_w, parts.budget, budgets) + np.sqrt(swings + doubts)
    drawn_w = sum_by(parts.drawn_w, parts.budget, budgets)
    return np.maximum(np.minimum(joint_w, sum_by(top_w, parts.budget, budgets)), drawn_w)


def on_racks(parts: Parts, fleet: FleetArrays) -> Parts:
    """Return the parts of gangs by rack; ``budget`` of ``parts`` is a node."""
    return replace(parts, budget=fleet.nodes.rack[parts.budget])


def on_sites(parts: Parts, fleet: FleetArrays) -> Parts:
    """Return the parts of gangs by site; ``budget`` of ``parts`` is a node."""
    return replace(parts, budget=fleet.racks.site[fleet.nodes.rack[parts.budget]])


def on_domains(parts: Parts, fleet: FleetArrays) -> Parts:
    """Return the parts of gangs by power domain; ``budget`` of ``parts`` is a node.

    Half of what stands in a rack on two feeds is on each, and on all that is above it.
    """
    rack = fleet.nodes.rack[parts.budget]
    feeds = (fleet.racks.feed_a, fleet.racks.feed_b)
    domains = np.concatenate([above(fleet, feed)[:, rack] for feed in feeds])
    share = np.where((feeds[0] >= 0) & (feeds[1] >= 0), 0.5, 1.0)[rack]
    level, row = np.nonzero(domains >= 0)
    watts = {
        each.name: (share * getattr(parts, each.name))[row]
        for each in fields(Parts)
        if each.name.endswith("_w")
    }
    return Parts(
        budget=domains[level, row],
        gang=parts.gang[row],
        kind=parts.kind[row],
        samples=parts.samples[row],
        **watts,
    )


def _squares(watts: Floats, code: Ints, budget: Ints, budgets: int) -> Floats:
    """Return for each budget the sum of the squares of what each code has on it together."""
    codes = int(code.max(initial=0)) + 1
    pairs, of = np.unique(budget * codes + code, return_inverse=True)
    together = sum_by(watts, of, len(pairs))
    return sum_by(together**2, pairs // codes, budgets)


def _high_w(shares: Floats, edges_w: Floats) -> Floats:
    """Return the 99th percentile of each row, W."""
    place = (np.cumsum(shares, axis=1) < LEAST_QUANTILE - 1e-9).sum(axis=1)
    return np.asarray(edges_w[np.minimum(place, len(edges_w) - 1)])


def _shares(seconds: Floats) -> Floats:
    """Return rows that add up to 1, or to 0 where there is nothing."""
    total = seconds.sum(axis=1, keepdims=True)
    found: Floats = np.divide(seconds, total, out=np.zeros_like(seconds), where=total > 0.0)
    return found
