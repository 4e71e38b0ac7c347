"""The verdict on a step of a rollout, from blocks of evidence. Pure.

A guard is *worse* once the lower bound of its difference is above zero, and *harmless* once the
upper bound is below the difference that matters. Both hold at every look, so the change may be
judged after each block:

- ``alpha`` is the chance that a change that does nothing is rolled back. It is divided evenly over
  all guards of all steps.
- ``beta`` is the chance that a change is promoted to the end that is worse by what matters in any
  guard. It need not be divided: every guard of every step has to pass.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.rollouts.evidence import METRICS
from policies.rollouts.sequential import bounds, log_evidence_of_counts, rate_bounds

__all__ = ["Counts", "Finding", "Guard", "GuardState", "Judgement", "Verdict", "judge"]

Array = NDArray[np.float64]

#: Standard deviations of blocks are taken to be at least this share of the difference that matters.
_FLOOR_SHARE = 0.125


@dataclass(frozen=True)
class Guard:
    """A quantity that the change may not make worse, and by how much it matters.

    ``matters`` is in the unit of the metric; None: it is watched for harm and need not be shown to
    be harmless, as of events that are too rare for that.
    """

    metric: str
    matters: float | None


@dataclass(frozen=True)
class Counts:
    """Events of one metric in each block, and for how long each arm was watched."""

    changed: Array
    unchanged: Array
    changed_exposure: Array
    unchanged_exposure: Array


class GuardState(enum.StrEnum):
    """What is known of a guard."""

    WORSE = "worse"
    HARMLESS = "harmless"
    OPEN = "open"
    #: it has no evidence at all
    UNSEEN = "unseen"


@dataclass(frozen=True)
class Finding:
    """What the evidence says of one guard, in the unit of its metric, more being worse.

    Of counts, ``evidence`` is the likelihood ratio against equal rates, of which ``needed`` is
    enough to call the change worse; of means the lower bound says it.
    """

    guard: Guard
    state: GuardState
    blocks: int
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    evidence: float | None = None
    needed: float | None = None


class Verdict(enum.StrEnum):
    """What the evidence asks for."""

    WAIT = "wait"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    #: as long as the rollout may wait, and neither is shown
    HOLD = "hold"


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, and all findings."""

    verdict: Verdict
    why: str
    findings: tuple[Finding, ...]


def judge(
    guards: Sequence[Guard],
    means: Mapping[str, Array],
    counts: Mapping[str, Counts],
    *,
    alpha: float,
    beta: float,
    steps: int,
    soaked: bool,
    is_over: bool,
) -> Judgement:
    """Judge a step by its blocks so far: ``means`` and ``counts`` by metric.

    ``means`` has a value for each block, NaN where it tells nothing. ``steps`` is how many steps
    are judged in all. ``soaked``: the change has been there for as long as it has to be before it
    may be promoted. ``is_over``: it may not be waited for any longer.
    """
    level = alpha / (len(guards) * steps)
    findings = (
        *_of_means([each for each in guards if each.metric in means], means, level, beta),
        *(
            _of_counts(each, counts[each.metric], level, beta)
            for each in guards
            if each.metric in counts
        ),
        *(
            Finding(each, GuardState.UNSEEN, 0)
            for each in guards
            if each.metric not in means and each.metric not in counts
        ),
    )
    order = {guard: at for at, guard in enumerate(guards)}
    findings = tuple(sorted(findings, key=lambda each: order[each.guard]))
    verdict, why = _verdict(findings, soaked=soaked, is_over=is_over)
    return Judgement(verdict, why, findings)


def _verdict(findings: Sequence[Finding], *, soaked: bool, is_over: bool) -> tuple[Verdict, str]:
    worse = [each.guard.metric for each in findings if each.state is GuardState.WORSE]
    if worse:
        return Verdict.ROLL_BACK, f"worse on what was changed: {', '.join(worse)}"
    left = [each.guard.metric for each in findings if not _passes(each)]
    if not left and soaked:
        return Verdict.PROMOTE, "no guard is worse by what matters"
    said = f"not shown to be harmless: {', '.join(left)}" if left else "it has to soak for longer"
    return (Verdict.HOLD if is_over and left else Verdict.WAIT), said


def _passes(finding: Finding) -> bool:
    """Say whether a guard lets the change be promoted. What was not seen at all does not."""
    if finding.guard.matters is None:
        return finding.state is not GuardState.UNSEEN
    return finding.state is GuardState.HARMLESS


def _of_means(
    guards: Sequence[Guard], means: Mapping[str, Array], level: float, beta: float
) -> list[Finding]:
    if not guards:
        return []
    blocks = np.stack([means[each.metric] for each in guards], axis=-1)
    count = np.isfinite(blocks).sum(axis=0)
    floor = np.array([_FLOOR_SHARE * (_matters(each) or 0.0) for each in guards])
    lower, _ = bounds(blocks, level=np.full(len(guards), level), floor=floor)
    _, upper = bounds(blocks, level=np.full(len(guards), beta), floor=floor)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(blocks, axis=0) / np.where(count, count, np.nan)
    return [
        _finding(guard, int(count[at]), float(mean[at]), *_last(lower[:, at], upper[:, at]))
        for at, guard in enumerate(guards)
    ]


def _matters(guard: Guard) -> float | None:
    """Return the difference that matters as blocks have it: relative ones as logs."""
    if guard.matters is None or not METRICS[guard.metric].is_relative:
        return guard.matters
    return math.log1p(guard.matters)


def _last(lower: Array, upper: Array) -> tuple[float, float]:
    return (float(lower[-1]), float(upper[-1])) if len(lower) else (-math.inf, math.inf)


def _finding(guard: Guard, blocks: int, mean: float, low: float, high: float) -> Finding:
    if not blocks:
        return Finding(guard, GuardState.UNSEEN, 0)
    state, matters = GuardState.OPEN, _matters(guard)
    if low > 0.0:
        state = GuardState.WORSE
    elif matters is not None and high < matters:
        state = GuardState.HARMLESS
    if METRICS[guard.metric].is_relative:
        mean, low, high = (math.expm1(each) for each in (mean, low, high))
    return Finding(guard, state, blocks, mean, low, high)


def _of_counts(guard: Guard, seen: Counts, level: float, beta: float) -> Finding:
    exposures = seen.changed_exposure, seen.unchanged_exposure
    watched = (exposures[0] > 0.0) & (exposures[1] > 0.0)
    blocks = int(watched.sum())
    if not blocks:
        return Finding(guard, GuardState.UNSEEN, 0)
    logs = log_evidence_of_counts(
        seen.changed[:, None], seen.unchanged[:, None],
        changed_exposure=exposures[0][:, None], unchanged_exposure=exposures[1][:, None],
    )  # fmt: skip
    here, there = (
        (float(events[watched].sum()), float(exposure[watched].sum()))
        for events, exposure in zip((seen.changed, seen.unchanged), exposures, strict=True)
    )
    state, lower, upper = GuardState.OPEN, None, None
    if guard.matters is not None:
        # Half of the level for each of the two rates.
        sides = [
            rate_bounds(*each, level=beta / 2, expected=guard.matters) for each in (here, there)
        ]
        lower, upper = sides[0][0] - sides[1][1], sides[0][1] - sides[1][0]
        state = GuardState.HARMLESS if upper < guard.matters else state
    most = float(logs.max())
    if most > -math.log(level):
        state = GuardState.WORSE
    return Finding(
        guard,
        state,
        blocks,
        difference=here[0] / here[1] - there[0] / there[1],
        lower=lower,
        upper=upper,
        evidence=math.exp(min(most, 700.0)),
        needed=1.0 / level,
    )
