"""What the failures of the last 30 days mean for the phases of one job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from admission.core import outlook
from admission.core.baselines import save_s
from admission.core.fleet_account import CAUSES
from admission.core.outlook import CheckpointAdvice, Forecast, GpuRate
from admission.failures import reading
from admission.failures.grouping import rate_of
from admission.failures.reading import Observed
from admission.goodput import reading as accounts
from admission.jobs import first_steps
from admission.jobs.models import Attempt, Job, Phase
from admission.jobs.resolution import request_of
from telemetry.spans import ParameterError, Span

__all__ = ["PhaseOutlook", "of_phase", "of_phases"]

#: Saves are measured over the last of the attempt, s.
_MEASURED_S = 6 * 3600.0
#: Of a job so many phases are told of.
_MOST_PHASES = 20
_NOT_OBSERVED = "for how long GPUs were observed: no agent was heard in the last 30 days"
_NOT_BEGUN = "what a save takes: it has not begun"
_NO_INTERVAL = "how often it saves: its specification has no checkpoint.interval_s"
_TOO_YOUNG = "what a save takes: it has run for less than two of its intervals"
_NOT_TOLD = "what a save takes: its loop tells of no time outside of steps"


@dataclass(frozen=True, slots=True)
class PhaseOutlook:
    """What one phase has to expect. ``missing``: what is not known, so that something is absent.

    ``restart_s`` is None where no start of it or its project is known.
    """

    phase: str
    gpus: int
    rate: GpuRate | None
    forecast: Forecast | None
    advice: CheckpointAdvice | None = None
    restart_s: float | None = None
    missing: list[str] = field(default_factory=list)


def of_phases(job: Job, now: float) -> list[PhaseOutlook]:
    """Return the outlook of each phase of a job that is not over. Some queries for each."""
    observed = reading.recent(now)
    phases = job.phases.open().filter(gpus__gt=0).order_by("element", "index")[:_MOST_PHASES]
    for phase in phases:
        phase.job = job
    return [of_phase(phase, observed, now) for phase in phases]


def of_phase(phase: Phase, observed: Observed, now: float) -> PhaseOutlook:
    """Return the outlook of a phase that is not over: it waits, or it runs."""
    request = request_of(phase)
    attempt = phase.attempts.open().select_related("phase__job__project").first()
    gpus = phase.gpus
    if attempt is not None:
        gpus = sum(map(len, attempt.placement.get("gpus", {}).values())) or gpus
    rate = rate_of(observed, request.models)
    if rate is None:
        return PhaseOutlook(phase.name, gpus, None, None, missing=[_NOT_OBSERVED])
    left_s = _left_s(attempt, request.walltime_s, now)
    ahead = outlook.forecast(rate, gpus, left_s)
    if attempt is None or attempt.started_at is None:
        return PhaseOutlook(phase.name, gpus, rate, ahead, missing=[_NOT_BEGUN])
    period_s = request.checkpoint_interval_s
    save_s, missing = _save_s(attempt, period_s, now)
    if save_s is None or period_s is None:
        return PhaseOutlook(phase.name, gpus, rate, ahead, missing=missing)
    start = first_steps.start_of(attempt)
    restart_s = None if start is None else start.s
    advice = outlook.advise(
        rate, gpus, save_s=save_s, interval_s=period_s - save_s, restart_s=restart_s or 0.0
    )
    return PhaseOutlook(phase.name, gpus, rate, ahead, advice, restart_s)


def _left_s(attempt: Attempt | None, walltime_s: float, now: float) -> float:
    if attempt is None or attempt.started_at is None:
        return walltime_s
    return max(walltime_s - (now - attempt.started_at.timestamp()), 0.0)


def _save_s(attempt: Attempt, period_s: float | None, now: float) -> tuple[float | None, list[str]]:
    """Return what a save takes at most, s, or what is missing to say it."""
    if period_s is None:
        return None, [_NO_INTERVAL]
    began = now if attempt.started_at is None else attempt.started_at.timestamp()
    if now - began < 2.0 * period_s:
        return None, [_TOO_YOUNG]
    try:
        found = accounts.of_job(attempt.phase.job, Span(max(began, now - _MEASURED_S), now), now)
    except ParameterError as error:
        return None, [f"its account is too much to add up: {error}"]
    own = [each for each in found.attempts if (each.phase, each.number) == _key(attempt)]
    us = [sum(each.causes.get(cause, 0) for each in own) for cause in CAUSES]
    (took_s,) = save_s(np.array([us], dtype=np.int64), np.array([period_s])).tolist()
    return (None, [_NOT_TOLD]) if math.isnan(took_s) else (took_s, [])


def _key(attempt: Attempt) -> tuple[str, int]:
    return attempt.phase.name, attempt.number
