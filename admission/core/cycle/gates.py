"""Gates: reasons for which a job is not tried at all, whatever is free."""

from __future__ import annotations

from datetime import UTC, datetime

from admission.core.energy.ahead import Later
from admission.core.reasons import Reason, ReasonToken
from admission.core.snapshot import Pending
from policies.scopes import Scope, ScopeKind

__all__ = ["gates"]

#: A cycle looks about this often, s: what rests for less is looked at next time.
_SOON_S = 2.0


def gates(pending: Pending, now: float) -> tuple[Reason, ...]:
    """Return why a job is held back now; empty where it is tried."""
    found = []
    if pending.spec_error:
        found.append(_reason(pending, ReasonToken.SPEC_INVALID, pending.spec_error))
    if pending.held_by:
        found.append(_reason(pending, ReasonToken.ON_HOLD, f"is held by {pending.held_by}"))
    if pending.waits_for or pending.needs:
        found += _needs(pending)
    found += pending.waits_for_artifacts
    if pending.not_before > now and not found:
        wait_s = pending.not_before - now
        when = f"rests for {wait_s:.0f} s more before it is started again"
        if wait_s < _SOON_S:
            when = "has rested, and may start again with the next look"
        found.append(
            Reason(
                ReasonToken.ON_HOLD, wait_s, 0.0, "s", _scope(pending),
                when, {"not_before": pending.not_before},
            )
        )  # fmt: skip
    if pending.later is not None and pending.prefers_later(now) and not found:
        found.append(_preference(pending, pending.later, now))
    return tuple(found)


def _preference(pending: Pending, later: Later, now: float) -> Reason:
    """Return why it waits for a later hour, with what that saves."""
    saves, of, money = later.amounts
    what = "cleaner" if later.prefers == "carbon" else "cheaper"
    text = (
        f"waits for {_clock(later.at)} at site {later.site}: {later.rate:.3g} beside"
        f" {later.now_rate:.3g} {later.unit} now, {what} by {saves:.3g} of {of:.3g} {money}; it may"
        f" wait until {_clock(later.until)}"
    )
    evidence = {
        "until": later.at, "may_wait_until": later.until, "site": later.site,
        "prefers": later.prefers, "rate_then": later.rate, "rate_now": later.now_rate,
        "rate_unit": later.unit, "energy_kwh": later.kwh, "saves": saves, "of": of,
        "saves_unit": money,
    }  # fmt: skip
    return Reason(
        ReasonToken.POWER_PREFERENCE, later.at - now, 0.0, "s", _scope(pending), text, evidence
    )


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _needs(pending: Pending) -> list[Reason]:
    """Return why phases and jobs before it keep it: what never comes about first."""
    found, scope, texts = [], _scope(pending), [each.text for each in pending.needs]
    never = [each for each in pending.needs if each.never]
    if never:
        text = (
            f"can never begin: waits for {never[0].text}, and {never[0].never}; cancel it, or let"
            f" it begin without: headroom waive {pending.request.job}"
        )
        found.append(
            Reason(
                ReasonToken.DEPENDENCY_NEVER_MET, float(len(never)), 0.0, "needs", scope, text,
                {"needs": [each.text for each in never]},
            )
        )  # fmt: skip
    phases = [f"phase {name}" for name in pending.waits_for]
    if phases and not texts:
        more = f" and {len(phases) - 1} more" if len(phases) > 1 else ""
        text = f"waits for {phases[0]}{more} to succeed"
    else:
        first, *others = [*(f"{name} to succeed" for name in phases), *texts, ""]
        text = f"waits for {first}" + (f", and {len(others) - 1} more" if len(others) > 1 else "")
    open_ = len(phases) + len(texts) - len(never)
    if open_:
        evidence = {"phases": list(pending.waits_for), **({"needs": texts} if texts else {})}
        found.append(
            Reason(
                ReasonToken.DEPENDENCY_PENDING, float(open_), 0.0, "needs" if texts else "phases",
                scope, text, evidence,
            )
        )  # fmt: skip
    return found


def _reason(pending: Pending, token: ReasonToken, sentence: str) -> Reason:
    return Reason(token, 0.0, 0.0, "", _scope(pending), sentence)


def _scope(pending: Pending) -> Scope:
    return Scope(ScopeKind.JOB, pending.request.job)
