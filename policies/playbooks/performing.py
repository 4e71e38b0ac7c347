"""The effects of playbook runs on leases, wherever runs and leases are kept. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from policies.playbooks.document import Checkpoint, Migrate, PlannedStep, Restrict, Resume
from policies.playbooks.machine import (
    Effect,
    Hold,
    Machine,
    Move,
    Run,
    Standing,
    StepState,
)
from policies.playbooks.view import View, related
from policies.restrictions.book import RestrictionBook, State
from policies.restrictions.kinds import BadRestriction, Wanted
from policies.scopes import Scope, UnknownScope

__all__ = ["Refused", "RunRow", "hold", "perform_all", "release", "scope_of", "standing_of"]


class Refused(Exception):
    """An effect cannot be had. Nothing was changed."""


class Issued(Protocol):
    """A restriction as it is stored."""

    @property
    def id(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def pending_value(self) -> float | None: ...

    @property
    def pending_why(self) -> str: ...

    @property
    def ended_by(self) -> str: ...

    @property
    def ended_why(self) -> str: ...


class RunRow(Protocol):
    """A run as it is stored."""

    @property
    def pk(self) -> Any: ...

    @property
    def playbook(self) -> str: ...

    @property
    def scope(self) -> Scope: ...

    def key(self, path: str) -> str:
        """Return the key of the effect of one step."""


def perform_all(
    at: Machine, before: Run, move: Move, perform: Callable[[Effect], str]
) -> tuple[Run, dict[str, str]]:
    """Perform the effects of ``move``; return the state that it leads to, and the notes by path.

    Where an effect is refused, its step fails, or has lost what it would have renewed: then that
    move is made in place of this one. Where a restriction is held back, its step is not done.
    """
    said: dict[str, str] = {}
    run = move.run
    for effect in move.effects:
        try:
            said[effect.path] = perform(effect)
            if isinstance(effect, Hold) and said[effect.path]:
                run = at.held_back(run, effect.path, said[effect.path])
        except Refused as error:
            instead = _instead(at, effect)
            return perform_all(at, before, instead(before, effect.path, str(error)), perform)
    return run, said


def _instead(at: Machine, effect: Effect) -> Callable[[Run, str, str], Move]:
    if isinstance(effect, Hold) and effect.changes:
        return at.keep
    return at.lose if isinstance(effect, Hold) and effect.renews else at.fail


def scope_of(step: PlannedStep, run: RunRow, view: View) -> Scope:
    """Return the scope of a step. Raises :class:`Refused`."""
    action = step.action
    assert isinstance(action, Restrict | Checkpoint | Migrate | Resume)  # noqa: S101
    try:
        return related(view.conditions.fleet, run.scope, action.scope)
    except UnknownScope as error:
        raise Refused(str(error)) from error


def hold(
    book: RestrictionBook[Any],
    effect: Hold,
    run: RunRow,
    view: View,
    *,
    now: datetime,
    reason: str = "",
    evidence: Mapping[str, Any] | None = None,
) -> str:
    """Hold the restriction of a step; return a note on it. Raises :class:`Refused`.

    ``reason``: what the playbook says, where it says something.
    """
    step = view.program.step(effect.path)
    action = step.action
    assert isinstance(action, Restrict)  # noqa: S101 - for the type checker
    wanted = Wanted(
        kind=action.kind,
        scope=scope_of(step, run, view),
        value=effect.value,
        reason=f"{reason or f'step {step.id}'} (playbook {run.playbook}, run {run.pk})"[:500],
        owner=run.key(step.path),
        cause=f"run {run.pk}",
        expires_at=effect.until,
        evidence=evidence or {},
        most_of_site=action.most_of_site,
    )
    try:
        book.check(wanted, now)
    except BadRestriction as error:
        raise Refused(f"{error}. {error.hint}".rstrip(". ")) from error
    (row,) = book.apply([wanted], now=now)
    found = standing_of(row)
    return found.note if found.state is StepState.HELD else ""


def standing_of(row: Issued, without_effect: str = "") -> Standing:
    """Return the state of a step by that of its restriction.

    ``without_effect``: why it has none though it is in force; empty: nothing is known against it.
    """
    if row.state == State.REFUSED:
        said = f"refused by {row.ended_by}" + (f": {row.ended_why}" if row.ended_why else "")
        return Standing(StepState.REFUSED, row.id, said, row.ended_by)
    if row.state == State.PENDING_APPROVAL or row.pending_value is not None:
        return Standing(StepState.HELD, row.id, f"waits for a person: {row.pending_why}")
    if without_effect:
        return Standing(StepState.INEFFECTIVE, row.id, without_effect)
    return Standing(StepState.DONE, row.id)


def release(book: RestrictionBook[Any], path: str, run: RunRow, *, why: str, now: datetime) -> None:
    """Give the restriction of a step back."""
    book.release(run.key(path), now=now, by=f"playbook:{run.playbook}", why=why)
