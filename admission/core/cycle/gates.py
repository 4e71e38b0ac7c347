"""Gates: reasons for which a job is not tried at all, whatever is free."""

from __future__ import annotations

from admission.core.reasons import Reason, ReasonToken
from admission.core.snapshot import Pending
from policies.scopes import Scope, ScopeKind

__all__ = ["gates"]


def gates(pending: Pending, now: float) -> tuple[Reason, ...]:
    """Return why a job is held back now; empty where it is tried."""
    found = []
    if pending.spec_error:
        found.append(_reason(pending, ReasonToken.SPEC_INVALID, pending.spec_error))
    if pending.held_by:
        found.append(_reason(pending, ReasonToken.ON_HOLD, f"is held by {pending.held_by}"))
    if pending.waits_for:
        first, *others = pending.waits_for
        more = f" and {len(others)} more" if others else ""
        found.append(
            Reason(
                ReasonToken.DEPENDENCY_PENDING, float(len(pending.waits_for)), 0.0, "phases",
                _scope(pending), f"waits for phase {first}{more} to succeed",
                {"phases": list(pending.waits_for)},
            )
        )  # fmt: skip
    if pending.not_before > now and not found:
        wait_s = pending.not_before - now
        found.append(
            Reason(
                ReasonToken.ON_HOLD, wait_s, 0.0, "s", _scope(pending),
                f"rests for {wait_s:.0f} s more before it is started again",
                {"not_before": pending.not_before},
            )
        )  # fmt: skip
    return tuple(found)


def _reason(pending: Pending, token: ReasonToken, sentence: str) -> Reason:
    return Reason(token, 0.0, 0.0, "", _scope(pending), sentence)


def _scope(pending: Pending) -> Scope:
    return Scope(ScopeKind.JOB, pending.request.job)
