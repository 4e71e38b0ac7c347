"""Which tier answers for which part of a span: the pure part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from telemetry.rollups.spec import HOUR_S, MINUTE_S


class Tier(StrEnum):
    RAW = "raw"
    MINUTE = "minute"
    HOUR = "hour"

    @property
    def width_s(self) -> int:
        """Return how wide its buckets are; 0: readings."""
        return {Tier.RAW: 0, Tier.MINUTE: MINUTE_S, Tier.HOUR: HOUR_S}[self]


@dataclass(frozen=True)
class Known:
    """The span that each tier covers of one kind of reading, Unix s."""

    #: Up to when roll-ups are complete; what is not there is not.
    minutes_until: float
    hours_until: float
    #: From when on readings and minutes are kept.
    raw_from: float
    minutes_from: float


@dataclass(frozen=True)
class Part:
    """A part of a span and the tier that answers for it."""

    tier: Tier
    start: float
    end: float


#: A tier that would give more rows than this is too fine.
MOST_ROWS = 1_500_000
#: How often a thing reports at least, as far as can be said beforehand, s.
LIKELY_CADENCE_S = 10.0


def coarsest_for(step_s: float) -> Tier:
    """Return the coarsest tier that loses nothing where rows are to be ``step_s`` apart."""
    if step_s >= HOUR_S:
        return Tier.HOUR
    return Tier.MINUTE if step_s >= MINUTE_S else Tier.RAW


def affordable(tier: Tier, sources: int, length_s: float) -> Tier | None:
    """Return ``tier``, or the next coarser one that does not give too many rows; None: none."""
    for each in list(Tier)[list(Tier).index(tier) :]:
        if sources * length_s / (each.width_s or LIKELY_CADENCE_S) <= MOST_ROWS:
            return each
    return None


def parts(tier: Tier, start: float, end: float, known: Known, *, exact: bool = False) -> list[Part]:
    """Divide a span among tiers, the oldest part first.

    What is too young to be rolled up comes from the next finer tier, what is too old to be kept at
    ``tier`` from the next coarser one. With ``exact``, so do both ends, where they cut a bucket in
    two.
    """
    # Buckets of neighbors must not overlap.
    raw_from, minutes_from = (_up(at, HOUR_S) for at in (known.raw_from, known.minutes_from))
    cuts = {known.minutes_until, known.hours_until, raw_from, minutes_from}
    whole = dict.fromkeys((MINUTE_S, HOUR_S), (start, end))
    if exact:
        whole = {w: (_up(start, w), end // w * w) for w in whole}
        cuts.update(*whole.values())
    ends = sorted({start, end} | {cut for cut in cuts if start < cut < end})
    found: list[Part] = []
    for a, b in pairwise(ends):
        each = _tier_of(tier, a, b, known, raw_from, minutes_from, whole)
        if found and found[-1].tier is each:
            found[-1] = Part(each, found[-1].start, b)
        else:
            found.append(Part(each, a, b))
    return found


def _tier_of(
    tier: Tier,
    start: float,
    end: float,
    known: Known,
    raw_from: float,
    minutes_from: float,
    whole: dict[int, tuple[float, float]],
) -> Tier:
    """Return the tier for a part in which it is one."""
    each = tier
    until = {Tier.HOUR: known.hours_until, Tier.MINUTE: known.minutes_until}
    for coarse, fine in ((Tier.HOUR, Tier.MINUTE), (Tier.MINUTE, Tier.RAW)):
        first, last = whole[coarse.width_s]
        if each is coarse and (start >= until[coarse] or start < first or end > last):
            each = fine
    if each is Tier.RAW and start < raw_from and start < known.minutes_until:
        each = Tier.MINUTE
    if each is Tier.MINUTE and start < minutes_from and start < known.hours_until:
        each = Tier.HOUR
    return each


def _up(at: float, width_s: int) -> float:
    return -(-at // width_s) * width_s
