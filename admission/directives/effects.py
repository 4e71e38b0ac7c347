"""Effects of directives: from readings to numbers, and to a sentence. Pure.

Nothing is taken on trust: that a job says it has done something is one line of the ledger, what its
GPUs drew before and after is another, and the verdict rests on the second.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from admission.directives.models import Directive

__all__ = ["BEFORE_S", "LAST_S", "Effect", "Trace", "effect_of", "outcome_of", "words_of"]

Floats = npt.NDArray[np.float64]

#: What is compared: means over so long before it was applied, and over the last of the look, s.
BEFORE_S = 30.0
LAST_S = 30.0
#: Of what was in force for less nothing can be told.
_LEAST_S = 15.0
#: By then the change has come: this share of it.
_MOST_OF_IT = 0.9
#: Of what was expected at least this share has to be seen, …
_ENOUGH_OF_EXPECTED = 0.3
#: … and of the draw before at least this, where nothing was expected in figures.
_ENOUGH_OF_DRAW = 0.03
#: A GPU over its cap by no more keeps to it: caps are met on average.
_OVER_SHARE, _OVER_W = 0.02, 2.0


@dataclass(frozen=True, eq=False)
class Trace:
    """Readings of a gang's GPUs in steps of time, ``at_s`` from when it was applied.

    ``power_w`` is of all of its GPUs, ``temp_c`` their mean, ``samples_per_s`` what the job reports
    itself; NaN where nothing was read.
    """

    gpus: int
    at_s: Floats
    power_w: Floats
    temp_c: Floats
    samples_per_s: Floats


@dataclass(frozen=True)
class Effect:
    """The change within ``after_s``. None: not known."""

    gpus: int
    after_s: float
    power_before_w: float | None = None
    power_after_w: float | None = None
    #: until most of it had changed
    within_s: float | None = None
    temp_change_c: float | None = None
    #: share of its samples/s that it has left
    speed: float | None = None

    @property
    def change_w(self) -> float | None:
        if self.power_before_w is None or self.power_after_w is None:
            return None
        return self.power_after_w - self.power_before_w

    def as_data(self) -> dict[str, Any]:
        """Return the effect as JSON keeps it."""
        return {**asdict(self), "change_w": self.change_w}


def effect_of(trace: Trace, *, from_s: float, until_s: float) -> Effect:
    """Compare the time before with the last of the time from ``from_s`` to ``until_s``."""
    nothing = Effect(trace.gpus, round(until_s, 1))
    if until_s - from_s < _LEAST_S:
        return nothing
    before = (trace.at_s >= -BEFORE_S) & (trace.at_s < 0)
    after = (trace.at_s >= max(until_s - LAST_S, from_s)) & (trace.at_s < until_s)
    before_w, after_w = _mean(trace.power_w[before]), _mean(trace.power_w[after])
    if before_w is None or after_w is None:
        return nothing
    speed_before, speed_after = (_mean(trace.samples_per_s[when]) for when in (before, after))
    temp_before, temp_after = (_mean(trace.temp_c[when]) for when in (before, after))
    return Effect(
        gpus=trace.gpus,
        after_s=round(until_s, 1),
        power_before_w=round(before_w, 1),
        power_after_w=round(after_w, 1),
        within_s=_within_s(trace, before_w, after_w),
        temp_change_c=_rounded(temp_after, temp_before),
        speed=round(speed_after / speed_before, 3) if speed_before and speed_after else None,
    )


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _rounded(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else round(after - before, 1)


def _within_s(trace: Trace, before_w: float, after_w: float) -> float | None:
    """Return when power was first where it stayed on average, s."""
    goal_w = before_w + _MOST_OF_IT * (after_w - before_w)
    is_there = trace.power_w <= goal_w if after_w < before_w else trace.power_w >= goal_w
    found = np.flatnonzero(is_there & (trace.at_s >= 0))
    return round(float(trace.at_s[found[0]]), 1) if len(found) else None


def outcome_of(
    kind: str, value: float | None, effect: Effect, *, expected_w: float | None = None
) -> str:
    """Return the outcome of a directive. ``expected_w``: the expected change of power."""
    change_w = effect.change_w
    if change_w is None or effect.power_before_w is None or effect.power_after_w is None:
        return Directive.Outcome.UNMEASURED
    if kind == Directive.Kind.SET_POWER_CAP and value is not None:
        most_w = (value * (1.0 + _OVER_SHARE) + _OVER_W) * effect.gpus
        return _holds(effect.power_after_w <= most_w)
    if expected_w:
        return _holds(-change_w >= _ENOUGH_OF_EXPECTED * abs(expected_w))
    return _holds(-change_w >= _ENOUGH_OF_DRAW * effect.power_before_w)


def _holds(seen: bool) -> str:
    return Directive.Outcome.HOLDS if seen else Directive.Outcome.NO_EFFECT


def words_of(effect: Effect) -> str:
    """Return the effect in words: "-5.8 kW in 40 s, -3 °C, 76 % of its samples/s"."""
    change_w = effect.change_w
    if change_w is None:
        return "too short, or not read: what it did is not known"
    parts = [
        _kw(change_w) if effect.within_s is None else f"{_kw(change_w)} in {effect.within_s:g} s"
    ]
    if effect.temp_change_c is not None:
        parts.append(f"{effect.temp_change_c:+.1f} °C")
    if effect.speed is not None:
        parts.append(f"{100 * effect.speed:.0f} % of its samples/s")
    return ", ".join(parts)


def _kw(watts: float) -> str:
    return f"{watts / 1e3:+.1f} kW" if abs(watts) >= 100 else f"{watts:+.0f} W"
