"""Asking a new shadow about the day before it: decisions on queue and fleet as they are recorded.

The day is divided into steps. At the beginning of each stand the fleet as it was read then, the
attempts that ran and the restrictions in force; all phases that waited at any time of the step are
decided on together. The policy in force and the shadow are asked alike, so that both lack
the same: :data:`~admission.policy.comparing.NOT_RECORDED`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from admission.allocation import open_attempts
from admission.core.allocation.allocations import busy
from admission.core.cycle.decide import decide
from admission.core.policy import AdmissionPolicy
from admission.core.request import Request
from admission.core.slices import in_parts
from admission.core.snapshot import Pending
from admission.cycle import live
from admission.cycle.live import CycleInput, Row, Waiting
from admission.executors.runners import ready_nodes
from admission.executors.schedulers import registered
from admission.jobs import past
from admission.jobs.models import Phase
from admission.jobs.resolution import request_of
from admission.policy import shadowing
from admission.policy.catalog import policy_in_force
from admission.policy.models import AdmissionPolicyVersion, ShadowProgress
from admission.policy.reading import compiled
from fleet import snapshot as inventory
from fleet.locks import only_one
from fleet.slicing import holdable
from fleet.snapshot import FleetArrays
from policies import current, past_limits
from policies.documents.models import States
from policies.headroom import live as headroom_live
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Past
from policies.limiting import Term
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce
from telemetry.live_frame import AskedFrame, RecordedFrame
from telemetry.store.columns import Window
from telemetry.timeline.frames import Recording
from telemetry.timeline.tiers import Tier

__all__ = ["look_back"]

#: Of the advisory lock: one process at a time looks back.
_LOCK = 0x4C4F4F4B
#: How long the steps of a day are, s.
STEP_S = 300.0
#: A look back takes about so long at most: on a large fleet its steps are longer, s.
_BUDGET_S = 300.0
_LONGEST_STEP_S = 3_600.0
#: So many values of one field are in memory at a time.
_CELLS = 500_000
#: Above so many readings of GPUs by minute those by hour are read.
_MOST_BY_MINUTE = 30_000_000


def look_back(now: datetime) -> int:
    """Ask shadows that were not asked yet about the day before them; return how many.

    0 where another process is at it.
    """
    with only_one(_LOCK) as held:
        if not held:
            return 0
        shadows = AdmissionPolicyVersion.objects.filter(state=States.SHADOW)
        newest = shadows.order_by("-changed_at").select_related("progress")
        return sum(_look_back(version, now) for version in newest[: shadowing.MOST_SHADOWS])


def _look_back(version: AdmissionPolicyVersion, now: datetime) -> bool:
    progress: ShadowProgress | None = getattr(version, "progress", None)
    policy = compiled(version.text)
    if policy is None or (progress is not None and progress.reconstructed_until is not None):
        return False
    until = now if progress is None else progress.since
    found, step_s = _found(policy, until.timestamp())
    told = {
        "since": until - shadowing.KEPT,
        "reconstructed_until": until,
        "reconstructed_step_s": step_s,
    }
    with transaction.atomic():
        shadowing.keep(version, found)
        # Only these: cycles may have begun to ask it.
        ShadowProgress.objects.update_or_create(
            version=version, defaults=told, create_defaults={**told, "asked_at": until}
        )
    return True


def _found(policy: AdmissionPolicy, until: float) -> tuple[list[shadowing.Found], float]:
    """Return where ``policy`` would have decided otherwise over the day before, and the step, s."""
    own, since = policy_in_force(), until - shadowing.KEPT.total_seconds()
    step_s = _step_s(until - since)
    found = []
    for inputs in _inputs(own, since, until, step_s):
        found += shadowing.compare(inputs, decide(inputs.snapshot), policy, own)
    return found, step_s


def _step_s(span_s: float) -> float:
    """Return how long steps are, by how long it takes to decide twice on the queue of now."""
    began = time.perf_counter()
    decide(live.snapshot(time.time()))
    cost_s = 2 * (time.perf_counter() - began) * span_s / STEP_S
    return min(STEP_S * max(1, math.ceil(cost_s / _BUDGET_S)), _LONGEST_STEP_S)


# --- Moments -------------------------------------------------------------------------------------


def _inputs(
    policy: AdmissionPolicy, since: float, until: float, step_s: float
) -> Iterator[CycleInput]:
    """Yield the input of each step, in order of time."""
    fleet = inventory.fresh()
    queue, attempts = _Queue.of(since, until), open_attempts.during(fleet, since, until)
    terms = past_limits.terms(since, until, list(RestrictionKind))
    runners = ready_nodes(time.time()) | registered.ready_nodes(time.time())
    executors = registered.executor_by_node()
    by_minute = len(fleet.gpus) * (until - since) / 60.0 <= _MOST_BY_MINUTE
    tier, tier_s = (Tier.MINUTE, 60.0) if by_minute else (Tier.HOUR, 3_600.0)
    lasting = headroom_live.lasting(fleet)
    for at, frame in _frames(fleet, lasting, since, until, tier=tier, step_s=step_s):
        waiting = queue.at(at, at + step_s)
        if not waiting.pending:
            continue
        in_force = _in_force(terms, at)
        measured = evaluate(
            fleet,
            frame,
            now=at,
            restrictions=current.limits_of(in_force, fleet),
            past=lasting,
            stale_after_s=max(settings.STALE_AFTER_S, 2 * tier_s),
        )
        held = attempts.at(at)
        yield live.input_of(
            at,
            waiting,
            held,
            in_parts(measured, held.gpus),
            in_force,
            runners,
            policy=policy,
            executors=executors,
        )


def _in_force(terms: Sequence[Term], at: float) -> InForce:
    active = tuple(each.restriction for each in terms if each.since <= at < each.until)
    return InForce(datetime.fromtimestamp(at, UTC), active)


def _frames(
    fleet: FleetArrays, lasting: Past, since: float, until: float, *, tier: Tier, step_s: float
) -> Iterator[tuple[float, RecordedFrame]]:
    """Yield the beginning of each step, Unix s, and the frame of then."""
    wanted = _fields(fleet, until, lasting)
    recording = Recording(lasting.frame_ids(fleet), wanted, tier=tier, step_s=step_s)
    # A frame counts from the end of the step in which it was read.
    at, end = since - step_s, until - step_s
    chunk = max(1, _CELLS // max(1, len(fleet.gpus))) * step_s
    while at < end:
        times, frame = recording.next(Window(at, min(at + chunk, end)))
        for index, moment in enumerate(times.tolist()):
            yield moment, frame.moment(index)
        at += chunk


def _fields(fleet: FleetArrays, at: float, lasting: Past) -> Mapping[str, set[str]]:
    """Return the fields of frames that decisions look at, by kind: found by asking for all."""
    frame = AskedFrame()
    unheard: Headroom = evaluate(fleet, frame, now=at, past=lasting)
    busy(in_parts(unheard, np.zeros(len(holdable(fleet).gpus), dtype=bool)))
    for name in ("powers", "failover", "heat", "links", "endpoints"):
        getattr(unheard, name)
    return frame.asked


# --- The queue -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Queued:
    """A phase that waited within the day, when it did, and when somebody held it."""

    phase: Phase
    request: Request
    waited: past.Spans
    held: past.Spans


@dataclass(frozen=True)
class _Queue:
    """All phases that waited within the day."""

    phases: Sequence[_Queued]

    @staticmethod
    def of(since: float, until: float) -> _Queue:
        """Read them. Four queries."""
        first, last = (datetime.fromtimestamp(at, UTC) for at in (since, until))
        rows = list(
            Phase.objects.filter(
                Q(ended_at=None) | Q(ended_at__gt=first),
                job__submitted_at__lt=last,
                queued_at__isnull=False,
            ).select_related("job")
        )
        waited, held = past.waiting_spans(rows), past.held_spans(rows)
        return _Queue(
            [
                _Queued(
                    row,
                    request_of(row),
                    waited[row.pk],
                    held.get((row.job_id, row.name), ()),
                )
                for row in rows
            ]
        )

    def at(self, begin: float, end: float) -> Waiting:
        """Return the phases that waited at any time from ``begin`` to before ``end``, Unix s."""
        pending, rows = [], {}
        for each in self.phases:
            waits = [
                (max(first, begin), min(last, end))
                for first, last in each.waited
                if first < end and last > begin
            ]
            if not waits:
                continue
            is_held = all(_is_within(wait, each.held) for wait in waits)
            pending.append(Pending(each.request, held_by="somebody" if is_held else ""))
            rows[each.request.key] = Row(each.phase.pk, each.phase.job_id, 0, True, "", None)
        return Waiting(tuple(pending), rows)


def _is_within(span: tuple[float, float], spans: past.Spans) -> bool:
    return any(first <= span[0] and span[1] <= last for first, last in spans)
