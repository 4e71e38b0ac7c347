"""When a playbook starts, and starts again, for as long as its rule fires. Pure.

While a rule fires on a place, a run for it is under way, or the next one is to start at a known
time, or a person has ended the last one and it was said that nothing acts. A run that ended by
itself without mending anything is followed by another one after a back-off that doubles; one that
a person ended is followed by none until the rule has cleared and fires anew.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from policies.playbooks.machine import OVER, Escalate, RunState

__all__ = ["FORGET_AFTER", "Decision", "Started", "Way", "back_off", "decide", "escalation"]

#: The first wait after a run that has not mended it, and the longest; each is twice the one before.
_BACK_OFF, _LONGEST_BACK_OFF = timedelta(minutes=1), timedelta(hours=1)
#: A run that ended so long ago has nothing to do with the next one.
FORGET_AFTER = timedelta(hours=6)


class Started(Protocol):
    """A run, as far as this matters, wherever it is kept."""

    @property
    def state(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def ended_at(self) -> datetime | None: ...

    @property
    def ended_by(self) -> str: ...


class Way(enum.StrEnum):
    """What is to be done about a rule that fires."""

    #: a run is under way
    ACTIVE = "active"
    START = "start"
    #: the next run starts later
    BACK_OFF = "back_off"
    #: a person ended the last run while the rule fired
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class Decision:
    """What is to be done: for ``START`` and ``BACK_OFF``, as which attempt, and when."""

    way: Way
    attempt: int = 1
    at: datetime | None = None


def decide(fired_at: datetime, runs: Sequence[Started], now: datetime) -> Decision:
    """Decide for a rule that fires since ``fired_at``; ``runs`` are its runs, the newest first."""
    last = next(iter(runs), None)
    if any(RunState(run.state) not in OVER for run in runs):
        return Decision(Way.ACTIVE)
    if last is None or last.ended_at is None:
        return Decision(Way.START, at=now)
    if last.ended_by and last.ended_at >= fired_at:
        return Decision(Way.GIVEN_UP)
    attempt = 1 if now - last.ended_at > FORGET_AFTER else last.attempt + 1
    if last.ended_at < fired_at or last.state == RunState.SUCCEEDED:
        # It fires anew: what was given back was needed, or it has come again.
        return Decision(Way.START, attempt, now)
    at = last.ended_at + back_off(last.attempt)
    return Decision(Way.START if now >= at else Way.BACK_OFF, attempt, at)


def back_off(attempt: int) -> timedelta:
    """Return how long to wait after an attempt that ended by itself while the rule fires."""
    return min(_BACK_OFF * 2.0 ** (min(attempt, 20) - 1), _LONGEST_BACK_OFF)


def escalation(effect: Escalate, rule: str, attempt: int) -> str:
    """Return what people are told of a run that has not mended what its rule fires on."""
    if not effect.is_over:
        return f"Rule {rule} fires on: {effect.why}. Somebody has to look."
    return f"Given up while rule {rule} fires (attempt {attempt}): {effect.why}. Nothing is held."
