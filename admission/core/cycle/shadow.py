"""Differences of the decisions of two policies on the same snapshot. Pure.

It says what would have been decided at that moment, with everything as it had become under the
policy in force. What the other would have made of a day of its own decisions it does not say.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from admission.core.cycle.decide import Decisions
from admission.core.policy import AdmissionPolicy
from admission.core.request import Placement
from admission.core.snapshot import ClassRules

__all__ = ["Difference", "Otherwise", "differences"]


class Otherwise(enum.StrEnum):
    """How another policy would have decided otherwise."""

    #: have begun what was left waiting
    START = "start"
    #: have left waiting what was begun
    WAIT = "wait"
    #: have begun it elsewhere, or under another cap
    PLACE = "place"
    #: have left it waiting, too, and for another reason
    REASON = "reason"
    #: have told it to give way
    PREEMPT = "preempt"
    #: not have told it to give way
    KEEP = "keep"
    #: not have taken it: its project may not use its class
    REFUSE = "refuse"


@dataclass(frozen=True)
class Difference:
    """One phase on which the decisions differ. ``key``: of its request."""

    key: str
    kind: Otherwise
    decided: str
    otherwise: str


def differences(decided: Decisions, other: Decisions, policy: AdmissionPolicy) -> list[Difference]:
    """Return the differences between two decisions, by key. ``policy``: that of the other."""
    return sorted(
        (*_of_queue(decided, other), *_of_running(decided, other), *_refused(decided, policy)),
        key=_order,
    )


def _order(each: Difference) -> tuple[str, str]:
    return each.key, each.kind


def _of_queue(decided: Decisions, other: Decisions) -> Iterator[Difference]:
    begun = {each.request.key: each.placement for each in decided.admitted}
    begins = {each.request.key: each.placement for each in other.admitted}
    for key in begun.keys() | begins.keys():
        if key in begun and key in begins:
            if _stands(begun[key]) != _stands(begins[key]):
                yield Difference(key, Otherwise.PLACE, _where(begun[key]), _where(begins[key]))
        elif key in begins:
            yield Difference(key, Otherwise.START, _waits(decided, key), _where(begins[key]))
        else:
            yield Difference(key, Otherwise.WAIT, _where(begun[key]), _waits(other, key))
    for key in decided.waiting.keys() & other.waiting.keys():
        mine, theirs = decided.waiting[key].dominant, other.waiting[key].dominant
        if mine.token != theirs.token:
            yield Difference(key, Otherwise.REASON, mine.sentence, theirs.sentence)


def _stands(placement: Placement) -> tuple[tuple[int, ...], float | None]:
    return tuple(placement.nodes), placement.power_cap_w


def _where(placement: Placement) -> str:
    racks = ", ".join(placement.racks[:3]) + (" and others" if len(placement.racks) > 3 else "")
    cap = "" if placement.power_cap_w is None else f" at {placement.power_cap_w:.0f} W per GPU"
    return f"begins on {len(placement.gpus)} GPUs in {racks}{cap}"


def _waits(decisions: Decisions, key: str) -> str:
    waiting = decisions.waiting.get(key)
    return "waits" if waiting is None else waiting.dominant.sentence


def _refused(decided: Decisions, policy: AdmissionPolicy) -> Iterator[Difference]:
    begun = {each.request.key: each.placement for each in decided.admitted}
    classes = decided.snapshot.classes
    for each in decided.snapshot.pending:
        request = each.request
        job_class = classes.get(request.job_class) or ClassRules(request.job_class)
        if not policy.grants.allows(request.project, job_class):
            key = request.key
            was = _where(begun[key]) if key in begun else _waits(decided, key)
            why = f"project {request.project} may not use class {request.job_class}"
            yield Difference(key, Otherwise.REFUSE, was, why)


def _of_running(decided: Decisions, other: Decisions) -> Iterator[Difference]:
    told = {each.key: each.sentence for each in decided.preempt}
    tells = {each.key: each.sentence for each in other.preempt}
    for key in tells.keys() - told.keys():
        yield Difference(key, Otherwise.PREEMPT, "goes on", tells[key])
    for key in told.keys() - tells.keys():
        yield Difference(key, Otherwise.KEEP, told[key], "goes on")
