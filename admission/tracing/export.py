"""Sends the traces of jobs that are over, each at most once.

How far we are is written down and committed before anything is sent. So a trace that the collector
has not taken, or that was on its way as we died, is lost, counted, and not sent again: what reads
traces would count it twice. Jobs that ended before a collector was first set are not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db.models import Prefetch, Q
from prometheus_client import Counter

from admission.jobs.models import Attempt, Job, Phase
from admission.tracing.models import TracedUntil
from admission.tracing.otlp import Collector, NotTaken, encoded, send
from admission.tracing.spans import MOST_SPANS, AttemptTimes, JobTimes, PhaseTimes, spans_of
from fleet import locks

__all__ = ["step"]

log = structlog.get_logger(__name__)

_LOCK = 0x54524143
#: Jobs of one request.
_AT_ONCE = 50
#: A job that ended may be written down so much later than it says, by another process.
_SETTLED = timedelta(seconds=10)
TRACED = Counter(
    "headroom_traced_jobs_total",
    "Jobs whose trace was sent to the collector, by whether it took it.",
    ["outcome"],
)


def step(now: datetime) -> bool | None:
    """Send the traces of the next jobs; False: none are left. None: another process does so."""
    if not settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT:
        return False
    with locks.only_one(_LOCK) as held:
        if not held:
            return None
        jobs = _claimed(now)
    if jobs:
        _send(jobs)
    return len(jobs) == _AT_ONCE


def _claimed(now: datetime) -> list[Job]:
    """Return the next jobs, which are taken for sent from here on."""
    until, is_new = TracedUntil.objects.get_or_create(pk=1, defaults={"ended_at": now, "job": 0})
    if is_new:
        return []
    at_once = Q(ended_at=until.ended_at, pk__lte=until.job)
    since = Job.objects.filter(ended_at__gte=until.ended_at).exclude(at_once)
    ended = since.filter(ended_at__lte=now - _SETTLED).order_by("ended_at", "pk")
    jobs = list(ended.select_related("project")[:_AT_ONCE])
    if jobs:
        TracedUntil.objects.filter(pk=1).update(ended_at=jobs[-1].ended_at, job=jobs[-1].pk)
    return jobs


def _send(jobs: Sequence[Job]) -> None:
    collector = Collector(
        url=settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
        timeout_s=settings.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT / 1000.0,
        headers=settings.OTEL_EXPORTER_OTLP_TRACES_HEADERS,
    )
    spans = [span for job in jobs for span in spans_of(_times(job))]
    try:
        send(collector, encoded(spans))
    except NotTaken as error:
        TRACED.labels("lost").inc(len(jobs))
        log.warning("traces_lost", jobs=len(jobs), spans=len(spans), why=str(error))
        return
    TRACED.labels("sent").inc(len(jobs))


def _times(job: Job) -> JobTimes:
    """Return what a trace tells of a job, and of no more phases than it has spans. Two queries."""
    phases = job.phases.order_by("element", "index")[:MOST_SPANS]
    attempts = Prefetch("attempts", Attempt.objects.order_by("number"))
    submitted = job.submitted_at.timestamp()
    return JobTimes(
        key=f"{job.pk}:{job.name}:{submitted}",
        name=job.name,
        project=job.project.name,
        job_class=job.job_class,
        state=job.state,
        submitted=submitted,
        ended=submitted if job.ended_at is None else job.ended_at.timestamp(),
        phases=[_phase(each) for each in phases.prefetch_related(attempts)],
    )


def _phase(phase: Phase) -> PhaseTimes:
    return PhaseTimes(
        name=phase.name,
        state=phase.state,
        gpus=phase.gpus,
        queued=_unix(phase.queued_at),
        ended=_unix(phase.ended_at),
        attempts=[_attempt(each) for each in phase.attempts.all()],
    )


def _attempt(attempt: Attempt) -> AttemptTimes:
    placed = attempt.placement
    return AttemptTimes(
        number=attempt.number,
        dispatched=attempt.dispatched_at.timestamp(),
        started=_unix(attempt.started_at),
        ended=_unix(attempt.ended_at),
        outcome=attempt.outcome,
        why=attempt.why,
        sites=placed.get("sites", ()),
        nodes=len(placed.get("nodes", ())),
        gpus=sum(map(len, placed.get("gpus", {}).values())),
    )


def _unix(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
