"""The diagnosis of a job on live data: why it waits, why it ended, or where its time goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from accounts.visibility import Visibility
from admission.core.diagnosis import (
    Found,
    of_account,
    of_failure,
    of_failures_ahead,
    of_slow_gpu,
    of_straggler,
)
from admission.core.failures import Cause as FailureCause
from admission.diagnosis import straggling
from admission.diagnosis.straggling import Held
from admission.failures import job_outlook
from admission.failures import reading as failures
from admission.failures.job_outlook import PhaseOutlook
from admission.failures.told import evidence_of
from admission.goodput import reading as accounts
from admission.goodput.told import told
from admission.jobs import visible
from admission.jobs.models import Attempt, Job, Phase
from admission.queue import queue_status
from telemetry.spans import ParameterError, Span

__all__ = ["JobDiagnosis", "of_job"]

#: Of a job so many gangs that run are looked at for stragglers.
_MOST_GANGS = 8
#: An account goes back so far at most, s.
_ACCOUNT_S = 86_400.0
_AROUND = timedelta(hours=1)
_ENDED_BADLY = {Attempt.Outcome.FAILED.value: "failed", Attempt.Outcome.LOST.value: "was lost"}
_NO_FLOPS = (
    "whether its kernels are slow: no specification states FLOPs; give tokens per second and "
    "parameters to headroom plan diagnose utilization"
)


@dataclass(frozen=True, slots=True)
class JobDiagnosis:
    """What binds a job, the worst first, on what that rests, and what cannot be told."""

    job: str
    found: list[Found]
    evidence: list[str] = field(default_factory=list)
    cannot_tell: list[str] = field(default_factory=list)
    outlooks: list[PhaseOutlook] = field(default_factory=list)
    stragglers: list[Held] = field(default_factory=list)


def of_job(job: Job, visibility: Visibility, now: float) -> JobDiagnosis:
    """Return the diagnosis of a job. Some tens of queries, and an account of up to a day."""
    answer = JobDiagnosis(job.name, [], cannot_tell=[_NO_FLOPS])
    _wait(job, visibility, answer)
    _end(job, visibility, now, answer)
    _stragglers(job, now, answer)
    try:
        _account(job, now, answer)
        answer.outlooks.extend(job_outlook.of_phases(job, now))
    except ParameterError as error:
        answer.cannot_tell.append(f"what its time went to: {error}")
    for each in answer.outlooks:
        _ahead(each, answer)
        answer.cannot_tell.extend(f"{each.phase}: {what}" for what in each.missing)
    return answer


def _wait(job: Job, visibility: Visibility, answer: JobDiagnosis) -> None:
    """Add why its first phase that waits does so."""
    phase = job.phases.filter(state=Phase.State.QUEUED).order_by("element", "index").first()
    if phase is None:
        return
    phase.job = job
    status = queue_status.pending_statuses([phase.key]).get(phase.key)
    shown = visible.pending_status(status, visibility) if status else None
    if shown is None or not shown.reasons:
        answer.cannot_tell.append(f"why {phase.name} waits: no cycle has looked at it")
        return
    reason = shown.reasons[0]
    lever = f"see what would start it now: headroom explain {job.name}"
    answer.found.append(Found(reason.token, f"{phase.name} waits: {reason.sentence}", lever))


def _end(job: Job, visibility: Visibility, now: float, answer: JobDiagnosis) -> None:
    """Add what ended its last attempt that ended badly, where nothing of it runs since."""
    ended = Attempt.objects.filter(phase__job=job, ended_at__isnull=False)
    last = ended.select_related("phase").order_by("-ended_at").first()
    if last is None or last.ended_at is None or last.outcome not in _ENDED_BADLY:
        return
    around = Span((last.ended_at - _AROUND).timestamp(), (last.ended_at + _AROUND).timestamp())
    observed = failures.of_fleet(around, max(now, around.start + 1.0))
    failure = next((each for each in observed.failures if last.key in each.jobs), None)
    name = f"attempt {last.number} of {last.phase.name}"
    how = _ENDED_BADLY[last.outcome]
    if failure is None:
        answer.found.append(of_failure(name, how, FailureCause.UNKNOWN, "node"))
        answer.evidence.extend([last.why] if last.why else [])
        return
    answer.found.append(of_failure(name, how, failure.cause, failure.component))
    answer.evidence.extend(evidence_of(failure, visibility))


def _stragglers(job: Job, now: float, answer: JobDiagnosis) -> None:
    """Add what holds back the gangs that run, or the one that ran last."""
    begun = Attempt.objects.filter(phase__job=job).select_related("phase__job")
    running = list(begun.open().order_by("pk")[:_MOST_GANGS])
    last = [] if running else list(begun.order_by("-ended_at")[:1])
    for attempt in running + last:
        held = straggling.of_attempt(attempt, now)
        answer.stragglers.append(held)
        name = f"attempt {attempt.number} of {attempt.phase.name}"
        answer.found.extend(of_straggler(name, each) for each in held.ranks)
        answer.found.extend(
            of_slow_gpu(name, each.name, each.own_mhz, each.peers_mhz, each.among)
            for each in held.gpus
        )


def _account(job: Job, now: float, answer: JobDiagnosis) -> None:
    lived = accounts.lived(job, now)
    if lived is None:
        answer.cannot_tell.append("where its time goes: it has held no GPU yet")
        return
    span = Span(max(lived.start, lived.end - _ACCOUNT_S), lived.end)
    account = accounts.of_job(job, span, now)
    found = of_account(account.causes)
    if found is not None:
        answer.found.append(found)
    untold = told(job.name, account)["cannot_tell"]
    if untold:
        names = ", ".join(each.replace("_", " ") for each in untold)
        answer.cannot_tell.append(f"{names}: its loop has not told")


def _ahead(outlook: PhaseOutlook, answer: JobDiagnosis) -> None:
    """Add what failures will cost a phase that runs, where all of it is known."""
    if outlook.advice is None or outlook.rate is None or outlook.forecast is None:
        return
    found = of_failures_ahead(
        outlook.rate, outlook.gpus, outlook.forecast.time_s, outlook.advice,
        outlook.restart_s or 0.0,
    )  # fmt: skip
    if found is not None:
        answer.found.append(found)
