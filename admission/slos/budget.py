"""Error budgets and how fast they burn. Pure.

An objective of 95 % lets 5 % of its events be bad: that is its budget, over its window. A *burn
rate* of 1 uses up just that; 10 uses it up in a tenth of the window. Burning is said where both a
long window and a short one, its twelfth, are over what the long one may use: the long one keeps
single events from alarming, the short one ends the alarm soon after the cause has ended.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SPANS_S", "Health", "State", "Tally", "health"]

#: Windows over which burn rates are taken, s.
SPANS_S: dict[str, float] = {"5m": 300.0, "30m": 1_800.0, "1h": 3_600.0, "6h": 21_600.0}
#: Fewer events in a long window than this do not say how fast a budget burns.
LEAST_EVENTS = 10


class State(enum.StrEnum):
    """The states of an objective, the best first."""

    #: nothing was judged yet
    NO_EVENTS = "no_events"
    MET = "met"
    #: met, and a budget's twentieth goes within six hours
    BURNING = "burning"
    #: met, and a budget's fiftieth goes within one hour
    BURNING_FAST = "burning_fast"
    MISSED = "missed"


@dataclass(frozen=True)
class _Alarm:
    state: State
    long: str
    short: str
    #: the share of the budget that may go within the long window
    share: float


_ALARMS = (
    _Alarm(State.BURNING_FAST, "1h", "5m", 0.02),
    _Alarm(State.BURNING, "6h", "30m", 0.05),
)


@dataclass(frozen=True)
class Tally:
    """How many events were good and bad."""

    good: int = 0
    bad: int = 0

    @property
    def events(self) -> int:
        return self.good + self.bad

    @property
    def good_share(self) -> float:
        """NaN without events."""
        return self.good / self.events if self.events else math.nan


@dataclass(frozen=True)
class Health:
    """The status of an objective in numbers. Shares and rates are NaN without events."""

    state: State
    tally: Tally
    good_share: float
    #: of the budget, 1 at first; below 0: overdrawn
    budget_left: float
    #: by the name of a span
    burn_rates: dict[str, float]
    #: until the budget is used up as fast as over the last six hours, s; inf: never
    lasts_s: float


def health(target: float, window_s: float, tally: Tally, recent: Mapping[str, Tally]) -> Health:
    """Return the health of an objective by its events in its window and in each of ``SPANS_S``."""
    allowed = 1.0 - target
    rates = {name: _burn_rate(recent[name], allowed) for name in SPANS_S}
    if not tally.events:
        nothing = math.nan
        return Health(State.NO_EVENTS, tally, nothing, nothing, rates, math.nan)
    left = 1.0 - _burn_rate(tally, allowed)
    state = _state(left, rates, recent, window_s)
    return Health(
        state, tally, tally.good_share, left, rates, _lasts_s(left, rates["6h"], window_s)
    )


def _burn_rate(tally: Tally, allowed: float) -> float:
    return (1.0 - tally.good_share) / allowed


def _state(
    left: float, rates: Mapping[str, float], recent: Mapping[str, Tally], window_s: float
) -> State:
    # By the smallest that floats tell apart: a budget that is used up exactly is not overdrawn.
    if left < -1e-9:
        return State.MISSED
    for alarm in _ALARMS:
        # A rate of 1 is what the window allows, however short it is.
        most = max(alarm.share * window_s / SPANS_S[alarm.long], 1.0)
        burns = rates[alarm.long] > most and rates[alarm.short] > most
        if burns and recent[alarm.long].events >= LEAST_EVENTS:
            return alarm.state
    return State.MET


def _lasts_s(left: float, rate: float, window_s: float) -> float:
    if left <= 0.0:
        return 0.0
    return left * window_s / rate if rate > 0.0 else math.inf
