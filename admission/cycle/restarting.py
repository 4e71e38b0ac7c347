"""The restart policy: the next state of a phase whose attempt has ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from admission.executors.protocol import WorkOutcomeKind
from admission.jobs.models import Attempt, Phase
from headroom.jobs.spec import Tolerance

__all__ = ["After", "Terms", "after"]

_Kind = WorkOutcomeKind
_Outcome = Attempt.Outcome
#: No wait before a restart is longer, s.
LONGEST_BACKOFF_S = 3600.0
#: A gang that did not come together is placed again after this long at first, and at last, s.
FIRST_WITHDRAWN_S, LAST_WITHDRAWN_S = 2.0, 300.0
#: More doublings than this are all of the longest.
_MOST_DOUBLINGS = 20


@dataclass(frozen=True)
class Terms:
    """After which failures a phase may be restarted, how often, and how soon (s)."""

    tolerance: Tolerance = Tolerance.NONE
    max_restarts: int = 0
    backoff_s: float = 0.0


@dataclass(frozen=True)
class After:
    """The outcome of an attempt, and the next state of its phase.

    ``wait_s`` is how long a phase that is queued again may not begin; ``is_restart``: it counts.
    """

    outcome: Attempt.Outcome
    phase: Phase.State
    wait_s: float = 0.0
    is_restart: bool = False


def after(
    ended: WorkOutcomeKind, wanted: str, terms: Terms, *, restarts: int, withdrawn: int
) -> After:
    """Return the consequences for an attempt whose work ended as ``ended``.

    ``wanted`` is the outcome that the attempt was to have: "" where nobody has told it to end.
    ``restarts`` counts those so far, ``withdrawn`` the attempts in a row that were withdrawn.
    """
    if ended is _Kind.SUCCEEDED:
        return After(_Outcome.SUCCEEDED, Phase.State.SUCCEEDED)
    if wanted in Attempt.SETTLED:
        return After(_Outcome(wanted), Phase.State(wanted))
    if wanted == _Outcome.PREEMPTED and ended not in (_Kind.FAILED, _Kind.TIMED_OUT):
        return After(_Outcome.PREEMPTED, Phase.State.QUEUED)
    if ended is _Kind.WITHDRAWN:
        wait_s = _doubled(FIRST_WITHDRAWN_S, withdrawn, LAST_WITHDRAWN_S)
        return After(_Outcome.WITHDRAWN, Phase.State.QUEUED, wait_s)
    return _failed(ended, terms, restarts)


def _failed(ended: WorkOutcomeKind, terms: Terms, restarts: int) -> After:
    is_own_fault = ended in (_Kind.FAILED, _Kind.TIMED_OUT)
    outcome = _Outcome.FAILED if is_own_fault else _Outcome.LOST
    tolerated = {
        Tolerance.NONE: False,
        Tolerance.DISRUPTION: not is_own_fault,
        # Once more would take as long.
        Tolerance.FAILURE: ended is not _Kind.TIMED_OUT,
    }[terms.tolerance]
    if not tolerated or restarts >= terms.max_restarts:
        return After(outcome, Phase.State.FAILED)
    wait_s = _doubled(terms.backoff_s, restarts, LONGEST_BACKOFF_S)
    return After(outcome, Phase.State.QUEUED, wait_s, is_restart=True)


def _doubled(first_s: float, times: int, longest_s: float) -> float:
    return float(min(first_s * 2 ** min(times, _MOST_DOUBLINGS), longest_s))
