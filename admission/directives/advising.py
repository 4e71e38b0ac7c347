"""Advice for running jobs: the shell around ``core.advice``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from admission.core.response.advice import Advice, Growing, advise
from admission.core.throughput import Curve
from admission.cycle import live
from admission.directives.models import Control
from admission.jobs import catalog
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Job, Phase
from admission.jobs.resolution import terms_of_phase
from admission.learned import throughput
from admission.policy.catalog import policy_in_force
from headroom.jobs.spec import Response
from policies import current
from policies.headroom.reach import Room, reach_of

__all__ = ["MOST", "advice_for_class", "advice_for_job"]

#: Jobs of a class that are advised at once: each asks the solver some times.
MOST = 50


def advice_for_job(job: Job, *, now: float | None = None) -> list[Advice]:
    """Return the advice for each phase of ``job`` that runs, in their order.

    Looks at the fleet as it was at most five seconds ago.
    """
    return _advice(job.phases.filter(state__in=Phase.ACTIVE).order_by("index"), now)


def advice_for_class(name: str, *, now: float | None = None) -> list[Advice]:
    """Return the advice for phases of a class that run, of the latest :data:`MOST`."""
    rows = Phase.objects.filter(job__job_class=name, state__in=Phase.ACTIVE)
    return _advice(rows.order_by("-started_at", "-pk")[:MOST], now)


def _advice(rows: Iterable[Phase], now: float | None) -> list[Advice]:
    phases = {phase.key: phase for phase in _with_jobs(rows)}
    if not phases:
        return []
    at = time.time() if now is None else now
    snapshot = live.looked_at(at)
    headroom = current.headroom(at)
    reach, room = reach_of(headroom.fleet), Room.of(headroom)
    if reach.fleet is not snapshot.cluster.fleet:
        # The inventory has changed between the two looks. The next request sees one.
        return []
    running = {each.request.key: each for each in snapshot.running if not each.preempting}
    classes, scales = catalog.current(), _batch_scales(list(phases.values()))
    band = policy_in_force().response.band
    curves = throughput.curves_of_phases(phase.pk for phase in phases.values())
    return [
        advise(
            snapshot.cluster,
            running[key],
            _growing(phase, classes, scales, curves.get(phase.pk, Curve()), band),
            room,
            reach,
        )
        for key, phase in phases.items()
        if key in running
    ]


def _with_jobs(rows: Iterable[Phase]) -> list[Phase]:
    found = Phase.objects.filter(pk__in=[row.pk for row in rows])
    return list(found.select_related("job").order_by("job__name", "index"))


def _batch_scales(phases: Sequence[Phase]) -> dict[int, float]:
    """Return the batch scale of each phase that has a directive for it. One query."""
    rows = Control.objects.filter(attempt__phase__in=phases, attempt__state="running")
    return dict(rows.values_list("attempt__phase", "batch_scale"))


def _growing(
    phase: Phase,
    classes: Mapping[str, SchedulingClass],
    scales: Mapping[int, float],
    curve: Curve,
    band: float,
) -> Growing:
    terms = terms_of_phase(phase, classes)
    responses = terms.throttling.responses or []
    shrinks = Response.SHRINK_BATCH in responses
    scale = scales.get(phase.pk, 1.0)
    least = (terms.throttling.min_batch_scale or 1.0) if shrinks else scale
    return Growing(
        max_gpus=terms.gang.max_gpus or terms.gang.gpus,
        shrink_below=terms.throttling.shrink_below if shrinks else None,
        batch_scale=scale,
        min_batch_scale=min(least, scale),
        band=band,
        curve=curve,
    )
