"""The events of a GPU or node in one list: throttle events, Xid errors and memory errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from accounts.visibility import Visibility
from dashboard import causes
from dashboard.causes import Cause
from telemetry.faults import xids
from telemetry.faults.models import EccEvent
from telemetry.faults.xids import Meaning
from telemetry.models import ThrottleEvent, XidEvent
from telemetry.spans import Span
from telemetry.throttle.rules import Severity

#: The list ends here; the pages of events have the rest.
MOST = 40
#: A throttle event so close to an Xid or memory error is told beside it.
_NEAR = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the list. One of ``throttle``, ``xid`` and ``ecc`` is set."""

    at: datetime
    severity: Severity
    gpu_id: int | None
    gpu_index: int | None
    throttle: ThrottleEvent | None = None
    #: what the GPU worked on; empty: nothing that is known
    job: str = ""
    cause: Cause | None = None
    xid: XidEvent | None = None
    meaning: Meaning | None = None
    ecc: EccEvent | None = None
    #: causes of throttling at the time of an error
    beside: tuple[Cause, ...] = ()


def of_gpu(gpu_id: int, span: Span, visibility: Visibility) -> list[Happening]:
    """Return the events of a GPU in the span, the newest first. Four queries at most."""
    return _listed(Q(gpu=gpu_id), Q(gpu=gpu_id), span, visibility)


def of_node(node_id: int, span: Span, visibility: Visibility) -> list[Happening]:
    """Return the events of a node and its GPUs in the span, the newest first.

    Four queries at most.
    """
    return _listed(Q(gpu__node=node_id), Q(node=node_id), span, visibility)


def _listed(of_gpus: Q, of_xids: Q, span: Span, visibility: Visibility) -> list[Happening]:
    within = (span.start_at, span.end_at)
    events = list(
        ThrottleEvent.objects.filter(of_gpus)
        .overlapping(*within)
        .select_related("gpu", "job")
        .order_by("-opened_at", "-pk")[:MOST]
    )
    logged = XidEvent.objects.filter(of_xids, ts__range=within).select_related("gpu")[:MOST]
    counted = EccEvent.objects.filter(of_gpus, at__range=within).select_related("gpu")[:MOST]
    jobs = visibility.shown([event.job.name if event.job else "" for event in events])
    found = [
        *(_throttled(event, job) for event, job in zip(events, jobs, strict=True)),
        *(_logged(event, events) for event in logged),
        *(_counted(event, events) for event in counted),
    ]
    return sorted(found, key=lambda each: each.at, reverse=True)[:MOST]


def _throttled(event: ThrottleEvent, job: str) -> Happening:
    return Happening(
        at=event.opened_at,
        severity=Severity(event.severity),
        gpu_id=event.gpu_id,
        gpu_index=event.gpu.index,
        throttle=event,
        job=job,
        cause=causes.of(event.cause),
    )


def _logged(event: XidEvent, events: list[ThrottleEvent]) -> Happening:
    meaning = xids.meaning_of(event.xid)
    return Happening(
        at=event.ts,
        severity=meaning.severity,
        gpu_id=event.gpu_id,
        gpu_index=event.gpu.index if event.gpu else None,
        xid=event,
        meaning=meaning,
        beside=_beside(events, event.gpu_id, event.ts),
    )


def _counted(event: EccEvent, events: list[ThrottleEvent]) -> Happening:
    return Happening(
        at=event.at,
        severity=Severity.CRITICAL,
        gpu_id=event.gpu_id,
        gpu_index=event.gpu.index,
        ecc=event,
        beside=_beside(events, event.gpu_id, event.at),
    )


def _beside(events: list[ThrottleEvent], gpu_id: int | None, at: datetime) -> tuple[Cause, ...]:
    """Return the throttle causes of the GPU at about ``at``, as far as ``events`` tell."""
    found = {
        event.cause
        for event in events
        if event.gpu_id == gpu_id
        and event.opened_at - _NEAR <= at
        and (event.closed_at is None or at <= event.closed_at + _NEAR)
    }
    return tuple(causes.of(cause) for cause in sorted(found))
