"""Shadows of the admission policy: their decisions on the same input, cycle by cycle.

A shadow sees what the cycle saw, and decides by the same functions. What it would have decided
otherwise is written down, and kept for as long as a day is of interest. It costs a decision for
each shadow, so a process that is slow asks more seldom: never for more than a quarter of its time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import structlog

from admission.core.allocation import reservation
from admission.core.allocation.allocations import Allocations
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.shadow import Difference, differences
from admission.cycle import live
from admission.cycle.live import CycleInput
from admission.jobs.models import Phase
from admission.learned import profiles
from admission.learned.models import Draw
from admission.policy.catalog import policy_in_force
from admission.policy.models import AdmissionPolicyVersion, ShadowDecision, ShadowProgress
from admission.policy.reading import compiled
from policies.documents.models import States

__all__ = ["KEPT", "ask", "forget"]

log = structlog.get_logger(__name__)

#: For so long what shadows would have decided is kept.
KEPT = timedelta(hours=24)
#: The newest so many shadows are asked.
MOST_SHADOWS = 2
#: A shadow is asked again after so many times what the last time took.
_REST = 3.0


def ask(inputs: CycleInput, decisions: Decisions, at: datetime) -> int:
    """Have shadows decide on the input of a cycle; return how many were asked."""
    shadows = AdmissionPolicyVersion.objects.filter(state=States.SHADOW).order_by("-changed_at")
    asked = 0
    for version in shadows.select_related("progress")[:MOST_SHADOWS]:
        progress: ShadowProgress | None = getattr(version, "progress", None)
        if progress is None or _is_rested(progress, at):
            asked += _ask(version, progress, inputs, decisions, at)
    return asked


def _is_rested(progress: ShadowProgress, at: datetime) -> bool:
    return (at - progress.asked_at).total_seconds() >= _REST * progress.took_s


def _ask(
    version: AdmissionPolicyVersion,
    progress: ShadowProgress | None,
    inputs: CycleInput,
    decisions: Decisions,
    at: datetime,
) -> bool:
    policy = compiled(version.text)
    if policy is None:
        return False
    began = time.perf_counter()
    held = inputs.allocations
    if policy.reserve.quantile != policy_in_force().reserve.quantile:
        held = _with_quantile(held, policy.reserve.quantile)
    other = decide(live.under(inputs, policy, held))
    _keep(version, differences(decisions, other, policy), inputs, at)
    took_s = time.perf_counter() - began
    kept = progress or ShadowProgress(version=version, since=at)
    kept.asked_at, kept.took_s, kept.cycles = at, took_s, kept.cycles + 1
    kept.save()
    return True


def _with_quantile(held: Allocations, quantile: float) -> Allocations:
    """Return allocations with another quantile of their measured draw. One query."""
    rows = Draw.objects.filter(attempt__in=[each.id for each in held.attempts])
    seconds = dict(rows.values_list("attempt", "seconds"))
    drawn_w = held.arrays.p99_w.copy()
    for each, mine in held.each():
        if each.id in seconds:
            by_node = reservation.quantile_w(profiles.unpacked(seconds[each.id]), quantile)
            drawn_w[mine] = np.asarray(by_node)[each.drawn]
    return replace(held, arrays=replace(held.arrays, p99_w=drawn_w))


def _keep(
    version: AdmissionPolicyVersion,
    found: Sequence[Difference],
    inputs: CycleInput,
    at: datetime,
) -> None:
    """Write differences down, or that they are there still. Three queries."""
    ids = _ids(found, inputs)
    known = {
        (row.phase_id, row.kind): row
        for row in ShadowDecision.objects.filter(version=version, phase__in=ids.values())
    }
    new, again = [], []
    for each in found:
        if each.key not in ids:  # it is gone since
            continue
        row = known.get((ids[each.key], each.kind.value))
        if row is None:
            row = ShadowDecision(
                version=version, phase_id=ids[each.key], kind=each.kind.value, first_at=at, cycles=0
            )
            new.append(row)
        else:
            again.append(row)
        row.decided, row.otherwise = each.decided[:500], each.otherwise[:500]
        row.last_at, row.cycles = at, row.cycles + 1
    ShadowDecision.objects.bulk_create(new, batch_size=500)
    ShadowDecision.objects.bulk_update(
        again, ["decided", "otherwise", "last_at", "cycles"], batch_size=500
    )


def _ids(found: Sequence[Difference], inputs: CycleInput) -> Mapping[str, int]:
    """Return the phases that differences are about, by key, as far as they are there still."""
    running = {each.request.key: each.phase_id for each in inputs.allocations.attempts}
    ids = {
        each.key: inputs.rows[each.key].id if each.key in inputs.rows else running[each.key]
        for each in found
        if each.key in inputs.rows or each.key in running
    }
    there = set(Phase.objects.filter(pk__in=ids.values()).values_list("pk", flat=True))
    return {key: pk for key, pk in ids.items() if pk in there}


def forget(now: datetime) -> int:
    """Drop decisions of shadows older than a day; return how many."""
    dropped, _ = ShadowDecision.objects.filter(last_at__lt=now - KEPT).delete()
    return dropped
