"""The next move of a rollout: a function of its plan, its state and what is seen. Pure.

    pending -> changing -> soaking -> changing (next step) -> ... -> done
                   |          |
                   +----------+--> held, rolling back -> rolled back

A step is changed once every rack of it reports the wanted version, whatever the playbook's run
says: a run that succeeded has asked for the change, and only the plant tells that it is there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from policies.rollouts.document import May, Plan
from policies.rollouts.judging import Judgement, Verdict

__all__ = [
    "Change",
    "Effect",
    "Move",
    "NotPossible",
    "Rollout",
    "RolloutState",
    "Seen",
    "TakeBack",
    "begin_step",
    "hold",
    "move",
    "promote",
    "resume",
    "roll_back",
]


class RolloutState(enum.StrEnum):
    """Where a rollout is."""

    PENDING = "pending"
    #: the racks of its step are brought to the change, and report it one by one
    CHANGING = "changing"
    #: all of them have it, and it is judged
    SOAKING = "soaking"
    #: it waits for a person
    HELD = "held"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    DONE = "done"

    @property
    def is_over(self) -> bool:
        return self in (RolloutState.ROLLED_BACK, RolloutState.DONE)


@dataclass(frozen=True)
class Rollout:
    """How far a rollout is."""

    state: RolloutState
    #: the step that it is at, from 0
    step: int
    #: since when it is in its state
    since: datetime
    why: str = ""
    #: who ended or held it; empty: it did so itself
    by: str = ""
    #: since when the racks of its step all have the change; None: not yet
    soaking_since: datetime | None = None
    #: whether its step has begun: racks are chosen, and asked for
    has_begun: bool = True


@dataclass(frozen=True)
class Seen:
    """What is seen of a rollout now."""

    #: racks of its steps so far that do not report what they are to have (back)
    missing: tuple[str, ...]
    #: runs of its playbook that ended otherwise than well, in words
    failed: tuple[str, ...]
    #: None: nothing is judged now
    judgement: Judgement | None = None


@dataclass(frozen=True)
class Change:
    """Bring the racks of a step to the change."""

    step: int


@dataclass(frozen=True)
class TakeBack:
    """Bring all racks that were changed back to what they had."""

    why: str


Effect: TypeAlias = Change | TakeBack


@dataclass(frozen=True)
class Move:
    """A new state, and what has to be done for it."""

    rollout: Rollout
    effects: tuple[Effect, ...] = ()


class NotPossible(Exception):
    """A person asks for what cannot be done in this state."""


def begin_step(rollout: Rollout, step: int, now: datetime, why: str, by: str = "") -> Move:
    """Begin to change the racks of a step."""
    moved = replace(
        rollout, state=RolloutState.CHANGING, step=step, since=now, why=why, by=by,
        soaking_since=None, has_begun=True,
    )  # fmt: skip
    return Move(moved, (Change(step),))


def move(plan: Plan, rollout: Rollout, seen: Seen, now: datetime) -> Move | None:
    """Return the next move; None: there is none now."""
    if rollout.state is RolloutState.PENDING:
        return begin_step(rollout, 0, now, "it is in force")
    if rollout.state is RolloutState.CHANGING:
        return _changing(plan, rollout, seen, now)
    if rollout.state is RolloutState.SOAKING:
        return _soaking(plan, rollout, seen, now)
    if rollout.state is RolloutState.ROLLING_BACK and not seen.missing:
        return Move(_in(rollout, RolloutState.ROLLED_BACK, now, rollout.why, rollout.by))
    return None


def _changing(plan: Plan, rollout: Rollout, seen: Seen, now: datetime) -> Move | None:
    if not seen.missing:
        if plan.steps[rollout.step].is_all and rollout.step == len(plan.steps) - 1:
            why = "every rack reports the change"
            return Move(_in(rollout, RolloutState.DONE, now, why))
        why = "every rack of the step reports the change"
        moved = _in(rollout, RolloutState.SOAKING, now, why)
        return Move(replace(moved, soaking_since=now))
    if seen.failed:
        return Move(_in(rollout, RolloutState.HELD, now, seen.failed[0]))
    if now - rollout.since > timedelta(seconds=plan.changed_within_s):
        why = f"not reported within {plan.changed_within_s:g} s: {_listed(seen.missing)}"
        return Move(_in(rollout, RolloutState.HELD, now, why))
    return None


def _soaking(plan: Plan, rollout: Rollout, seen: Seen, now: datetime) -> Move | None:
    if seen.missing:
        why = f"no longer reported: {_listed(seen.missing)}"
        return Move(_in(rollout, RolloutState.HELD, now, why))
    found = seen.judgement
    if found is None or found.verdict is Verdict.WAIT:
        return None
    if found.verdict is Verdict.HOLD:
        return Move(_in(rollout, RolloutState.HELD, now, found.why))
    if found.verdict is Verdict.ROLL_BACK:
        if May.ROLL_BACK in plan.by_itself:
            return _take_back(rollout, now, found.why)
        return Move(_in(rollout, RolloutState.HELD, now, f"to be rolled back: {found.why}"))
    if May.PROMOTE in plan.by_itself:
        return _go_on(plan, rollout, now, found.why)
    return Move(_in(rollout, RolloutState.HELD, now, f"to be promoted: {found.why}"))


def _go_on(plan: Plan, rollout: Rollout, now: datetime, why: str, by: str = "") -> Move:
    if rollout.step + 1 == len(plan.steps):
        return Move(_in(rollout, RolloutState.DONE, now, why, by))
    return begin_step(rollout, rollout.step + 1, now, why, by)


def _take_back(rollout: Rollout, now: datetime, why: str, by: str = "") -> Move:
    return Move(_in(rollout, RolloutState.ROLLING_BACK, now, why, by), (TakeBack(why),))


def _in(
    rollout: Rollout, state: RolloutState, now: datetime, why: str, by: str = ""
) -> Rollout:  # fmt: skip
    return replace(rollout, state=state, since=now, why=why, by=by)


def _listed(racks: tuple[str, ...]) -> str:
    shown = ", ".join(racks[:5])
    return shown if len(racks) <= 5 else f"{shown} and {len(racks) - 5} more"


# --- What people do ------------------------------------------------------------------------------


def promote(plan: Plan, rollout: Rollout, seen: Seen, now: datetime, *, by: str, why: str) -> Move:
    """Go on to the next step. Raises :class:`NotPossible` where the present one is not there."""
    if rollout.state not in (RolloutState.SOAKING, RolloutState.HELD):
        raise NotPossible(f"a rollout that is {rollout.state} cannot be promoted")
    if not rollout.has_begun:
        raise NotPossible("the step has not begun: resume it")
    if seen.missing:
        raise NotPossible(f"the step is not done: {_listed(seen.missing)} do not report the change")
    return _go_on(plan, rollout, now, why, by)


def hold(rollout: Rollout, now: datetime, *, by: str, why: str) -> Move:
    """Do nothing more by itself. Racks that are being changed go on with that."""
    if rollout.state not in (RolloutState.CHANGING, RolloutState.SOAKING):
        raise NotPossible(f"a rollout that is {rollout.state} cannot be held")
    return Move(_in(rollout, RolloutState.HELD, now, why, by))


def resume(rollout: Rollout, now: datetime, *, by: str, why: str) -> Move:
    """Go on where it was held: racks have the time anew in which they have to report.

    A step that could not be begun is tried again.
    """
    if rollout.state is not RolloutState.HELD:
        raise NotPossible(f"a rollout that is {rollout.state} is not held")
    if not rollout.has_begun:
        return begin_step(rollout, rollout.step, now, why, by)
    state = RolloutState.SOAKING if rollout.soaking_since else RolloutState.CHANGING
    return Move(_in(rollout, state, now, why, by))


def roll_back(rollout: Rollout, now: datetime, *, by: str, why: str) -> Move:
    """Bring back all that was changed, whatever the evidence says; of what is done, too."""
    if rollout.state in (
        RolloutState.PENDING, RolloutState.ROLLING_BACK, RolloutState.ROLLED_BACK
    ):  # fmt: skip
        raise NotPossible(f"a rollout that is {rollout.state} has nothing to roll back")
    return _take_back(rollout, now, why, by)
