"""The state machine of a gang: start, withdrawal, end. Pure.

The two steps of a start: each node writes down durably that it will start its part, and only when
all have is the gang told to go, once and for good. Until then nothing of it runs anywhere, so it
can be withdrawn from all at once. From then on each node starts its part, and where one cannot,
the others are stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from admission.executors.models import Gang, NodeAssignment
from admission.executors.protocol import WorkOutcomeKind
from headroom.work.contract import WorkOutcome

__all__ = ["Verdict", "become", "settle"]

_State = Gang.State
_Part = NodeAssignment.State
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_OUTCOMES = {
    WorkOutcome.EXITED: WorkOutcomeKind.FAILED,
    WorkOutcome.TIMED_OUT: WorkOutcomeKind.TIMED_OUT,
    WorkOutcome.STOPPED: WorkOutcomeKind.STOPPED,
    # The machine had promised to start it: that is the machine's fault, not the command's.
    WorkOutcome.NEVER_STARTED: WorkOutcomeKind.LOST,
    WorkOutcome.LOST: WorkOutcomeKind.LOST,
}


@dataclass(frozen=True)
class Verdict:
    """The next state of a gang. ``never_started``: all of its parts ended without having begun."""

    state: str
    outcome: str
    why: str
    never_started: bool = False


def settle(gang: Gang, parts: Sequence[NodeAssignment], now: datetime, gather_s: float) -> Verdict:
    """Return the state that follows for ``gang`` from its parts, at ``now``.

    Settling the result again changes nothing. ``gather_s`` is how long its nodes may take to claim
    it, s.
    """
    if gang.state == _State.HELD:
        return _ended_unstarted(gang.outcome, gang.why) if gang.outcome else _as_it_is(gang)
    if gang.state == _State.OFFERED:
        return _offered(gang, parts, now, gather_s)
    if gang.state in (_State.GO, _State.STOPPING):
        return _going(gang, parts)
    return _as_it_is(gang)


def become(gang: Gang, verdict: Verdict, at: datetime) -> None:
    """Put a verdict of ``at`` into ``gang``, as the facts of which its state follows."""
    if verdict.state == _State.GO and gang.go_at is None:
        gang.go_at = at
    if verdict.state == _State.ENDED and gang.ended_at is None:
        gang.ended_at = at
    gang.version += 1
    gang.outcome, gang.why = verdict.outcome, verdict.why


def _as_it_is(gang: Gang) -> Verdict:
    return Verdict(gang.state, gang.outcome, gang.why)


def _ended_unstarted(outcome: str, why: str) -> Verdict:
    return Verdict(_State.ENDED, outcome, why, never_started=True)


def _offered(
    gang: Gang, parts: Sequence[NodeAssignment], now: datetime, gather_s: float
) -> Verdict:
    if gang.outcome:
        return _ended_unstarted(gang.outcome, gang.why)
    for part in parts:
        if part.state == _Part.ENDED:
            return _ended_unstarted(WorkOutcomeKind.WITHDRAWN, f"{part.node}: {part.text}")
    late = [part.node for part in parts if part.state != _Part.CLAIMED]
    if not late:
        return Verdict(_State.GO, "", "")
    if gang.offered_at is not None and now > gang.offered_at + timedelta(seconds=gather_s):
        return _ended_unstarted(
            WorkOutcomeKind.WITHDRAWN, f"{_some(late)} did not take it within {gather_s:g} s"
        )
    return _as_it_is(gang)


def _going(gang: Gang, parts: Sequence[NodeAssignment]) -> Verdict:
    is_over = all(part.state == _Part.ENDED for part in parts)
    if is_over and all(_has_succeeded(part) for part in parts):
        # Also where it was told to stop: it was done before it heard of it.
        return Verdict(_State.ENDED, WorkOutcomeKind.SUCCEEDED, "")
    outcome, why = (gang.outcome, gang.why) if gang.outcome else _cause(parts)
    if is_over:
        return Verdict(_State.ENDED, outcome, why)
    if outcome:
        return Verdict(_State.STOPPING, outcome, why)
    return _as_it_is(gang)


def _cause(parts: Sequence[NodeAssignment]) -> tuple[str, str]:
    """Return outcome and cause of a failed gang: those of the part that failed first.

    Two empty strings: none has.
    """
    failed = [part for part in parts if part.state == _Part.ENDED and not _has_succeeded(part)]
    if not failed:
        return "", ""
    first = min(failed, key=lambda part: (part.ended_at or _LONG_AGO, part.node))
    outcome = _OUTCOMES[WorkOutcome(first.outcome)]
    code = f"exit code {first.exit_code}" if first.exit_code is not None else ""
    said = first.text or code or outcome.value
    return outcome, f"{first.node}: {said}"[:500]


def _has_succeeded(part: NodeAssignment) -> bool:
    is_over = part.state == _Part.ENDED
    return is_over and part.outcome == WorkOutcome.EXITED and part.exit_code == 0


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
