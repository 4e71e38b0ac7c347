"""What a curtailment would cost: which jobs would draw less, and the work that is lost by it.

Jobs give way as they have agreed to, those first that lose the least work for the watts: smaller
batches and caps, then pauses, then ends of what may be preempted. A job that agreed to none of it
is not touched. All of it is worked out on the loads of now, so it says how sure it is: loads move
as they did in the baseline, and what a measure takes off is known to :data:`ERROR` of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from admission.core.allocation.watts import Watts
from admission.core.directives.placed import Active
from admission.core.response.respond import Throttling

__all__ = [
    "BAND",
    "BEYOND",
    "ERROR",
    "PAUSE",
    "SHRINK",
    "STOP",
    "SURE",
    "Asked",
    "Candidate",
    "Estimate",
    "Measure",
    "answered",
    "candidates_of",
    "estimate",
    "likely",
]

#: What caps, batches and pauses take off is known to this share of it, by the error of the law of
#: power and speed on measured curves.
ERROR = 0.1
#: What is as sure as this is said to be kept.
SURE = 0.9
#: That jobs go on to draw no more than now is as likely as not.
EVEN = 0.5
#: A band of 8 of 10: so many standard deviations to either side.
BAND = 1.2816
#: Steps, in the order in which they are taken.
SHRINK, PAUSE, STOP = "shrink", "pause", "stop"
#: A job is slowed by more than it agreed to, since all that agreed is exhausted.
BEYOND = "beyond"
_TIER = {SHRINK: 0, PAUSE: 1, STOP: 2}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a site: to draw at most ``target_w`` for ``lasts_s`` seconds.

    ``spread_w``: the standard deviation of its load before.
    """

    target_w: float
    spread_w: float
    lasts_s: float


@dataclass(frozen=True)
class Candidate:
    """One step of one job: the watts that it saves more than the step before, and its price."""

    key: str
    project: str
    job_class: str
    what: str
    gpus: int
    saves_w: float
    #: work that is lost while it lasts, in GPUs at full speed
    gpus_lost: float
    #: work that has to be done again, GPU·s
    again_gpu_s: float = 0.0
    #: whether a part of it can be taken, as of a cap
    is_divisible: bool = False

    @property
    def rank(self) -> tuple[int, float, str]:
        """Sort key: by tier, then the least work for the watts."""
        price = (self.gpus_lost + self.again_gpu_s / 3600.0) / max(self.saves_w, 1e-9)
        return _TIER[self.what], price, self.key


@dataclass(frozen=True)
class Measure:
    """What one job would have to do, and what it loses over the whole time, GPU h."""

    key: str
    project: str
    job_class: str
    what: str
    gpus: int
    saves_w: float
    lost_gpu_h: float


@dataclass(frozen=True)
class Estimate:
    """What a curtailment would cost, and how sure that is."""

    load_w: float
    target_w: float
    #: what has to be taken off, and what can be for certain, even if all draw all that they may
    need_w: float
    possible_w: float
    #: whether it can be met, by what jobs agreed to, at what they draw now
    is_expected: bool
    #: probability that the target can be met by what jobs agreed to
    sure: float
    lost_gpu_h: float
    #: 8 of 10: the work that is lost lies within
    lost_low_gpu_h: float
    lost_high_gpu_h: float
    measures: tuple[Measure, ...]

    @property
    def is_possible(self) -> bool:
        """Whether it can be met for certain."""
        return self.possible_w >= self.need_w

    @property
    def is_in_reach(self) -> bool:
        """Whether it can be met, for certain or at what jobs draw now."""
        return self.is_possible or self.is_expected

    @property
    def least_target_w(self) -> float:
        """The lowest target that could be met for certain, W; jobs may draw more than they do."""
        return max(self.load_w - self.possible_w, 0.0)

    def is_within(self, lost_gpu_h: float) -> bool:
        """Say whether so much work lies in the band that it names."""
        return self.lost_low_gpu_h <= lost_gpu_h <= self.lost_high_gpu_h

    def lost_by(self, field: str) -> dict[str, float]:
        """Return the work lost by ``project`` or ``job_class``, GPU h."""
        found: dict[str, float] = defaultdict(float)
        for each in self.measures:
            found[getattr(each, field)] += each.lost_gpu_h
        return {name: round(found[name], 2) for name in sorted(found)}

    def in_short(self) -> dict[str, Any]:
        """Return its figures, without jobs and projects, for JSON."""
        return {
            "load_w": round(self.load_w, 1),
            "target_w": round(self.target_w, 1),
            "need_w": round(self.need_w, 1),
            "possible_w": round(self.possible_w, 1),
            "least_target_w": round(self.least_target_w, 1),
            "is_possible": self.is_possible,
            "is_expected": self.is_expected,
            "sure": round(self.sure, 3),
            "beyond": sum(each.what == BEYOND for each in self.measures),
            "lost_gpu_h": round(self.lost_gpu_h, 3),
            "lost_low_gpu_h": round(self.lost_low_gpu_h, 3),
            "lost_high_gpu_h": round(self.lost_high_gpu_h, 3),
        }

    def as_data(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            **self.in_short(),
            "lost_by_project": self.lost_by("project"),
            "lost_by_class": self.lost_by("job_class"),
            "measures": [asdict(each) for each in self.measures],
        }


def candidates_of(
    active: Iterable[tuple[Active, Throttling]], watts: Watts, now: float
) -> Iterator[Candidate]:
    """Yield the steps of running jobs, each with what it saves beyond the one before.

    ``active``: attempts with what they agree to (``responding.settled``). ``now``: Unix s.
    """
    for each, terms in active:
        drawn_w, idle_w = float(watts.drawn_w(each).sum()), float(watts.idle_w(each).sum())
        saved_w, lost = 0.0, 0.0
        for what, left_w, gpus_lost in _steps(each, terms, watts, drawn_w, idle_w):
            saves_w = drawn_w - left_w - saved_w
            if saves_w <= 0.0:
                continue
            yield Candidate(
                key=each.key,
                project=each.request.project,
                job_class=each.request.job_class,
                what=what,
                gpus=each.gpu_count,
                saves_w=saves_w,
                gpus_lost=gpus_lost - lost,
                again_gpu_s=each.lost_gpu_s(now) if what == STOP else 0.0,
                is_divisible=what == SHRINK and terms.cap_w is not None,
            )
            saved_w, lost = saved_w + saves_w, gpus_lost


def _steps(
    each: Active, terms: Throttling, watts: Watts, drawn_w: float, idle_w: float
) -> Iterator[tuple[str, float, float]]:
    """Yield what a job may do: what, its draw then, W, and the GPUs at full speed that it loses."""
    gpus = float(each.gpu_count)
    if terms.shrink_below is not None and terms.batch_scale < 1.0:
        scaled_w = idle_w + terms.batch_scale * max(drawn_w - idle_w, 0.0)
        left_w = scaled_w if terms.cap_w is None else float(watts.capped_w(each, terms.cap_w).sum())
        yield SHRINK, left_w, gpus * (1.0 - terms.batch_scale)
    if terms.pause_below is not None:
        yield PAUSE, idle_w, gpus
    elif each.request.preemptible:
        yield STOP, idle_w, gpus


def estimate(candidates: Iterable[Candidate], asked: Asked, *, load_w: float) -> Estimate:
    """Return what it costs to bring ``load_w`` down by the steps that there are."""
    ordered = sorted(candidates, key=lambda each: each.rank)

    def taken(target_w: float) -> tuple[Measure, ...]:
        return _taken(ordered, max(load_w - target_w, 0.0), asked.lasts_s)

    possible_w = sum(each.saves_w for each in ordered)
    return answered(asked, taken, load_w=load_w, possible_w=possible_w, doubt=1.0)


def answered(
    asked: Asked,
    measures: Callable[[float], tuple[Measure, ...]],
    *,
    load_w: float,
    possible_w: float,
    doubt: float,
    band: Callable[[float], tuple[float, float]] | None = None,
    expected: float = 0.0,
    late: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Return the answer to what is asked, with how sure it is.

    ``measures`` says what is done for a target: loads move, and what a measure takes off is known
    with an error, so that more may have to be done, or less. ``doubt`` is the part of both that
    counts: 1 where nothing is known of those that do it. ``band`` has the least and the most work
    that is lost for an error, W; else it is that of measures for so much less and more.
    ``expected``: how likely it is enough at what jobs draw now, if they go on to; that they do is
    as likely as not. ``late``: of what is possible, what comes too late, W, and how far it strays.
    """
    need_w = max(load_w - asked.target_w, 0.0)
    error_w = doubt * BAND * math.hypot(asked.spread_w, ERROR * need_w)
    found = measures(asked.target_w)

    def lost_for(target_w: float) -> float:
        return sum(each.lost_gpu_h for each in measures(target_w))

    low, high = (
        (lost_for(asked.target_w + error_w), lost_for(asked.target_w - error_w))
        if band is None
        else band(error_w)
    )
    off_w = math.hypot(doubt * math.hypot(asked.spread_w, ERROR * possible_w), late[1])
    return Estimate(
        load_w=load_w,
        target_w=asked.target_w,
        need_w=need_w,
        possible_w=max(possible_w, 0.0),
        is_expected=possible_w >= need_w or expected > 0.0,
        sure=max(likely(possible_w - late[0], need_w, off_w), EVEN * expected),
        lost_gpu_h=sum(each.lost_gpu_h for each in found),
        lost_low_gpu_h=low,
        lost_high_gpu_h=high,
        measures=found,
    )


def _taken(ordered: Sequence[Candidate], need_w: float, lasts_s: float) -> tuple[Measure, ...]:
    """Return the steps that are taken for ``need_w``, one for each job: its furthest."""
    left_w, found = need_w, dict[str, Measure]()
    for each in ordered:
        if left_w <= 0.0:
            break
        share = min(left_w / each.saves_w, 1.0) if each.is_divisible else 1.0
        before = found.get(each.key)
        lost_gpu_h = share * each.gpus_lost * lasts_s / 3600.0 + each.again_gpu_s / 3600.0
        found[each.key] = Measure(
            key=each.key,
            project=each.project,
            job_class=each.job_class,
            what=each.what,
            gpus=each.gpus,
            saves_w=share * each.saves_w + (before.saves_w if before else 0.0),
            lost_gpu_h=lost_gpu_h + (before.lost_gpu_h if before else 0.0),
        )
        left_w -= share * each.saves_w
    return tuple(found.values())


def likely(possible_w: float, need_w: float, error_w: float) -> float:
    """Return the probability that what is possible is enough, 0 to 1; ``error_w``: how far off."""
    if need_w <= 0.0:
        return 1.0
    if error_w <= 0.0:
        return float(possible_w >= need_w)
    return 0.5 * (1.0 + math.erf((possible_w - need_w) / (math.sqrt(2.0) * error_w)))
