"""Shadows of the admission policy: their decisions on the same input, cycle by cycle.

A shadow sees what the cycle saw, and decides by the same functions. What it would have decided
otherwise is written down, and kept for as long as a day is of interest. It costs a decision for
each shadow, so a process that is slow asks more seldom: never for more than a quarter of its time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import structlog

from admission.core.allocation import reservation
from admission.core.allocation.allocations import Allocations
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.shadow import Difference, differences
from admission.core.policy import AdmissionPolicy
from admission.cycle import live
from admission.cycle.live import CycleInput
from admission.jobs.models import Phase
from admission.learned import profiles
from admission.learned.models import Draw
from admission.policy.catalog import policy_in_force
from admission.policy.models import AdmissionPolicyVersion, ShadowDecision, ShadowProgress
from admission.policy.reading import compiled
from policies.documents.models import States

__all__ = ["KEPT", "MOST_SHADOWS", "Found", "ask", "compare", "keep", "prune"]

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
    keep(version, compare(inputs, decisions, policy, policy_in_force()))
    told = {
        "asked_at": at,
        "took_s": time.perf_counter() - began,
        "cycles": (progress.cycles if progress else 0) + 1,
    }
    # Only these: somebody may be looking back for it.
    ShadowProgress.objects.update_or_create(
        version=version, defaults=told, create_defaults={**told, "since": at}
    )
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


@dataclass(frozen=True)
class Found:
    """A difference of one phase at one moment."""

    phase_id: int
    difference: Difference
    at: datetime


def compare(
    inputs: CycleInput, decided: Decisions, policy: AdmissionPolicy, own: AdmissionPolicy
) -> list[Found]:
    """Return where ``policy`` decides otherwise on ``inputs`` than ``own``, which ``decided``."""
    held = inputs.allocations
    if policy.reserve.quantile != own.reserve.quantile:
        held = _with_quantile(held, policy.reserve.quantile)
    other = decide(live.under(inputs, policy, held))
    ids = {each.request.key: each.phase_id for each in held.attempts}
    ids |= {key: row.id for key, row in inputs.rows.items()}
    at = datetime.fromtimestamp(inputs.snapshot.now, UTC)
    return [
        Found(ids[each.key], each, at)
        for each in differences(decided, other, policy)
        if each.key in ids  # else it is gone since
    ]


def keep(version: AdmissionPolicyVersion, found: Sequence[Found]) -> None:
    """Write differences down, given in order of time; of their words the newest. Four queries."""
    by_phase: dict[tuple[int, str], list[Found]] = defaultdict(list)
    for each in found:
        by_phase[each.phase_id, each.difference.kind.value].append(each)
    phases = Phase.objects.filter(pk__in={pk for pk, _ in by_phase})
    there = set(phases.values_list("pk", flat=True))
    rows = ShadowDecision.objects.filter(version=version, phase__in=there)
    known = {(row.phase_id, row.kind): row for row in rows}
    new, again = [], []
    for (pk, kind), told in by_phase.items():
        row = known.get((pk, kind))
        if row is not None:
            again.append(_told(row, told))
        elif pk in there:
            first = told[0].at
            row = ShadowDecision(version=version, phase_id=pk, kind=kind, cycles=0)
            row.first_at = row.last_at = first
            new.append(_told(row, told))
    ShadowDecision.objects.bulk_create(new, batch_size=500)
    ShadowDecision.objects.bulk_update(
        again, ["decided", "otherwise", "first_at", "last_at", "cycles"], batch_size=500
    )


def _told(row: ShadowDecision, found: Sequence[Found]) -> ShadowDecision:
    newest = found[-1]
    if newest.at >= row.last_at:
        row.decided = newest.difference.decided[:500]
        row.otherwise = newest.difference.otherwise[:500]
        row.last_at = newest.at
    row.first_at = min(row.first_at, found[0].at)
    row.cycles += len(found)
    return row


def prune(now: datetime) -> int:
    """Drop decisions of shadows older than a day; return how many."""
    dropped, _ = ShadowDecision.objects.filter(last_at__lt=now - KEPT).delete()
    return dropped
