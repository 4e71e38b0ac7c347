"""What cost GPU time, beside what is usual of it, and what would bring it back. Pure.

A gain is told where it is known: by a law on live numbers, or as what a loss takes beyond its
usual. Else there is only what it took, the most that anything could bring back.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from admission.core.account import Cause, throttled
from admission.core.baselines import Metric, Shift
from admission.core.fleet_account import FLEET_LEVERS, Unheld
from admission.core.outlook import CheckpointAdvice
from headroom.contracts import ThrottleCause
from physics.diagnose.answer import Steps, quantity

__all__ = [
    "CAUSES_OF", "LEAST_DAYS", "LEAST_HOURS", "NOT_RANKED", "OF_ALL", "WEEK_H", "Basis", "Gain",
    "Interval", "Line", "Loss", "Order", "Usual", "back_to_usual", "first", "lever_of",
    "of_intervals", "ranked", "usual",
]  # fmt: skip

#: Gains are told by the week, h.
WEEK_H = 168.0
#: What is usual is told of so many days at least: of fewer, one odd day makes it.
LEAST_DAYS = 7
#: A span with fewer hours varies more than days do, and is not held against them.
LEAST_HOURS = 20
#: So many jobs are named in the arithmetic.
_NAMED = 5


class Loss(enum.StrEnum):
    """What time of GPUs was lost to, besides throttling by each of its causes."""

    #: steps waited for other ranks: slow ones, and the links between them
    NETWORK = "network"
    #: caps and pauses of ours
    CAPS = "caps"
    #: work that was made again, and restarts
    FAILURES = "failures"
    #: GPUs that were not heard
    SILENT = "silent"
    DRAINED = "drained"
    STARTING = "starting"
    #: saves, evaluation and preparing
    OUTSIDE_STEPS = "outside_steps"
    DATA_WAIT = "data_wait"
    #: held but idle
    IDLE = "idle"
    #: GPUs were free while somebody waited for as many
    WAITING = "waiting"


#: Causes of the account by what they are lost to. What waited has none: it is a part of free time.
CAUSES_OF: Mapping[str, tuple[str, ...]] = {
    **{
        f"throttled_{cause.token}": tuple(throttled(cause, expected=e) for e in (False, True))
        for cause in ThrottleCause
    },
    Loss.NETWORK: (Cause.SYNCHRONIZATION,),
    Loss.CAPS: (Cause.CAPPED, Cause.PAUSED),
    Loss.FAILURES: (Cause.REPEATED, Cause.RESTARTING),
    Loss.SILENT: (Unheld.SILENT,),
    Loss.DRAINED: (Unheld.DRAINED,),
    Loss.STARTING: (Cause.STARTING,),
    Loss.OUTSIDE_STEPS: (Cause.OUTSIDE_STEPS,),
    Loss.DATA_WAIT: (Cause.DATA_WAIT,),
    Loss.IDLE: (Cause.IDLE,),
}
#: Losses of time that nobody held: their share is of all time, that of the others of what was held.
OF_ALL = frozenset({Loss.SILENT.value, Loss.DRAINED.value, Loss.WAITING.value})
#: Time of which nobody knows whether it is lost.
NOT_RANKED = (Cause.UNKNOWN, Cause.BUSY, Cause.LOW_DRAW, Unheld.UNMANAGED, Unheld.FREE)


class Order(enum.StrEnum):
    """What losses are ranked by."""

    GPU_H = "gpu_h"
    KWH = "kwh"
    MONEY = "money"


class Basis(enum.StrEnum):
    """What a gain is known by."""

    #: a law of :mod:`physics` on live numbers
    LAW = "law"
    #: what a loss takes beyond the median of the days before
    USUAL = "usual"


@dataclass(frozen=True, slots=True)
class Usual:
    """The share of time that a loss takes: its 10th, 50th and 90th percentile over days."""

    days: int
    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Gain:
    """What ``lever`` brings back, GPU-hours a week, and how that was reckoned."""

    basis: Basis
    gpu_h: float
    lever: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one loss took. ``kwh`` and ``money`` None: not known; ``gain`` None: it is not.

    ``share`` is of what was held; of :data:`OF_ALL`, of all time.
    ``causes``, ``sites`` and ``projects`` are µs of the account by name; ``reason`` and
    ``waited_gpu_h`` are those of what waited.
    ``degraded``: how values of gangs differed from normal under it; empty: not known.
    ``across_sites_gpu_h``: of waits for other ranks, those of gangs at several sites.
    """

    loss: str
    gpu_h: float
    share: float
    lever: str
    reason: str = ""
    causes: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[str, int] = field(default_factory=dict)
    projects: Mapping[str, int] = field(default_factory=dict)
    kwh: float | None = None
    money: float | None = None
    waited_gpu_h: float | None = None
    across_sites_gpu_h: float | None = None
    usual: Usual | None = None
    degraded: Mapping[Metric, Shift] = field(default_factory=dict)
    gain: Gain | None = None


def lever_of(causes: Mapping[str, int]) -> str:
    """Return what brings the greatest of some causes back."""
    return FLEET_LEVERS[max(causes, key=lambda name: causes[name])]


def ranked(lines: Iterable[Line], order: Order) -> list[Line]:
    """Return lines with those that cost most first, those of which that is not known last."""

    def cost(line: Line) -> tuple[float, float, float]:
        value = getattr(line, order.value)
        return (-1.0 if value is None else value), line.gpu_h, line.waited_gpu_h or 0.0

    return sorted(lines, key=cost, reverse=True)


def first(lines: Iterable[Line]) -> Line | None:
    """Return the line whose intervention brings back most; None: no gain is known."""
    known = [each for each in lines if each.gain is not None]
    return max(known, key=lambda each: each.gain.gpu_h if each.gain else 0.0, default=None)


# --- What is usual -------------------------------------------------------------------------------


def usual(shares: Sequence[float]) -> Usual | None:
    """Return what is usual of a loss by its shares of the time of days; None: too few days."""
    if len(shares) < LEAST_DAYS:
        return None
    p10, p50, p90 = np.percentile(shares, [10.0, 50.0, 90.0]).tolist()
    return Usual(len(shares), p10, p50, p90)


def back_to_usual(
    share: float, of_gpu_h: float, hours: int, known: Usual | None, lever: str
) -> Gain | None:
    """Return what a loss takes beyond its usual: ``(share - median) · GPU-hours · week / hours``.

    ``of_gpu_h``: what it is a share of. None: what is usual is not known, or a share like this one
    is not rare, or the span is too short.
    """
    if known is None or hours < LEAST_HOURS or share <= known.p90:
        return None
    steps = Steps()
    numbers = f"{quantity(share, '%')} - {quantity(known.p50, '%')}"
    steps.add("beyond its usual", "share - median", numbers, share - known.p50, "points")
    week = of_gpu_h * WEEK_H / hours
    numbers = f"{quantity(of_gpu_h)} · {quantity(WEEK_H)} / {quantity(float(hours))}"
    steps.add("GPU-hours in a week", "time · week / hours", numbers, week)
    gain = (share - known.p50) * week
    numbers = f"{quantity(share - known.p50, '%')} · {quantity(week)}"
    steps.add("GPU-hours back a week", "share · time", numbers, gain)
    return Gain(Basis.USUAL, gain, lever, tuple(steps.lines))


# --- How often jobs save -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """A gang that runs, and how often it should save."""

    name: str
    gpus: int
    advice: CheckpointAdvice

    @property
    def gain_gpu_h(self) -> float:
        """What the best interval brings back: ``(ETTR(best) - ETTR) · GPUs · week``."""
        return self.advice.gain * self.gpus * WEEK_H


def of_intervals(found: Iterable[Interval]) -> dict[str, Gain]:
    """Return what better intervals bring back: of saves that are too many, and of work made again.

    By :func:`admission.core.outlook.advise`; intervals as good as is known count for nothing.
    """
    by_loss: dict[Loss, list[Interval]] = defaultdict(list)
    for each in found:
        if each.advice.change:
            is_longer = each.advice.change == "longer"
            by_loss[Loss.OUTSIDE_STEPS if is_longer else Loss.FAILURES].append(each)
    return {loss.value: _of_one_way(loss, own) for loss, own in by_loss.items()}


def _of_one_way(loss: Loss, found: Sequence[Interval]) -> Gain:
    most_first = sorted(found, key=lambda each: -each.gain_gpu_h)
    steps = Steps()
    for each in most_first[:_NAMED]:
        advice = each.advice
        best_s = advice.best_lower_s if advice.best_s is None else advice.best_s
        steps.say(
            f"{each.name}: every {quantity(best_s, 's')} instead of "
            f"{quantity(advice.interval_s, 's')}, {quantity(advice.save_s, 's')} a save"
        )
        ettr = f"({quantity(advice.ettr_best, '%')} - {quantity(advice.ettr, '%')})"
        numbers = f"{ettr} · {each.gpus:,} · {quantity(WEEK_H)} h"
        formula = "(ETTR(best) - ETTR) · GPUs · week"
        steps.add("GPU-hours back a week", formula, numbers, each.gain_gpu_h)
    rest = most_first[_NAMED:]
    if rest:
        more = sum(each.gain_gpu_h for each in rest)
        steps.say(f"{len(rest)} more likewise: {quantity(more)} GPU-hours a week")
    often = "less" if loss is Loss.OUTSIDE_STEPS else "more"
    who = f"{len(found)} jobs" if len(found) > 1 else found[0].name
    lever = f"have {who} save {often} often: checkpoint.interval_s"
    return Gain(Basis.LAW, sum(each.gain_gpu_h for each in found), lever, tuple(steps.lines))
