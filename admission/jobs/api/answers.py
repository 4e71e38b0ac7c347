"""Answers of the solver in the shape of the API."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from accounts.visibility import ANOTHER, Visibility
from admission.core.cycle.change import Burden, Counterfactual
from admission.core.cycle.decide import Step
from admission.core.cycle.never import Never
from admission.core.cycle.whatif import DryRun, Explanation
from admission.core.reasons import Reason
from admission.core.request import Placement
from admission.core.response.first_step import FirstStep
from admission.cycle import live
from admission.jobs import elements, needs, visible
from admission.jobs.api.serializers import JobSerializer, PhaseSerializer, array_of
from admission.jobs.applying import applicable_to
from admission.jobs.models import Dependency, Job, Phase
from admission.jobs.submission import Prepared
from admission.queue import queue_status
from headroom.jobs import reading
from headroom.jobs.spec import PhaseSpec

__all__ = ["at", "dry_run", "estimate", "explained", "job", "queued", "told"]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def job(row: Job, phases: Iterable[Phase]) -> dict[str, Any]:
    """Return a job as its serializer does, in a tenth of the time: many are submitted at once."""
    of_phases = [{name: getattr(phase, name) for name in _PHASE} for phase in phases]
    return {
        **{name: getattr(row, name) for name in _JOB},
        "project": row.project.name,
        "array": array_of(row, elements.counts_of([row])),
        "phases": of_phases,
    }


_MADE = ("project", "phases", "array")
_JOB = [name for name in JobSerializer.Meta.fields if name not in _MADE]
_PHASE = PhaseSerializer.Meta.fields


def explained(
    phase: Phase, explanation: Explanation, visibility: Visibility, *, elements: int
) -> dict[str, Any]:
    """Return why a phase waits. ``trace`` and ``estimate`` come from :func:`told`.

    So does the position by which the queue is shown: elements of an array share one.
    """
    return {
        "phase": phase.name,
        "elements": elements,
        "decided_at": at(explanation.at),
        "reasons": _reasons(explanation.reasons, visibility),
        "position": explanation.position,
        "trace": [],
        "estimate": None,
        "counterfactuals": [
            _counterfactual(each, visibility) for each in explanation.counterfactuals
        ],
        "never": _never(explanation.never, visibility),
    }


def told(pending_status: queue_status.PendingStatus, visibility: Visibility) -> dict[str, Any]:
    """Return position, trace and estimate of the last cycle, to stand beside an explanation."""
    trace = [
        msgspec.structs.asdict(each)
        for each in visible.pending_status(pending_status, visibility).trace
    ]
    position = pending_status.position
    return {"position": position, "trace": trace, "estimate": estimate(pending_status)}


def estimate(pending_status: queue_status.PendingStatus) -> dict[str, Any]:
    names = ("p10_s", "p50_s", "p90_s", "basis")
    return {name: getattr(pending_status, name) for name in names}


def dry_run(prepared: Prepared, visibility: Visibility) -> list[dict[str, Any]]:
    """Return what would become of each phase of a job that is not saved: the solver says."""
    spec = prepared.resolved.spec
    job = Job(spec=reading.as_json(spec), job_class=spec.job_class, priority=spec.priority)
    return [
        _tried(job, phase, live.dry_run(request), visibility, prepared.dependencies)
        for phase, request in zip(spec.phases, prepared.requests, strict=True)
    ]


def _tried(
    job: Job,
    phase: PhaseSpec,
    found: DryRun,
    visibility: Visibility,
    dependencies: Iterable[Dependency],
) -> dict[str, Any]:
    placement = found.placement
    return {
        "phase": phase.name,
        "after": needs.plain(phase.needs),
        "needs": [needs.text_of(each) for each in dependencies if each.phase in ("", phase.name)],
        "decided_at": at(found.at),
        "starts": placement is not None,
        "placement": None if placement is None else _where(placement),
        "reasons": _reasons(found.reasons, visibility),
        "position": found.position if placement is None else None,
        "trace": _trace(found.trace, visibility),
        "counterfactuals": [
            _counterfactual(each, visibility)
            for each in applicable_to(job, phase.name, found.counterfactuals)
        ],
        "never": _never(found.never, visibility),
    }


def queued(
    position: int,
    phase: Phase,
    pending_status: queue_status.PendingStatus | None,
    visibility: Visibility,
) -> dict[str, Any]:
    """Return one line of the queue, without names where the job is of another project."""
    job = phase.job
    is_named = visibility.sees(job.name)
    sentence = (
        pending_status.reasons[0].sentence if pending_status and pending_status.reasons else ""
    )
    return {
        "position": position,
        "job": job.name if is_named else None,
        "phase": phase.name if is_named else None,
        "project": job.project.name if is_named else None,
        "what": phase.key if is_named else ANOTHER,
        "job_class": job.job_class,
        "gpus": phase.gpus,
        "elements": pending_status.elements if pending_status else 1,
        "queued_at": phase.queued_at,
        "reason": phase.reason,
        "sentence": visibility.text(sentence) if is_named else "",
        "estimate": estimate(pending_status) if pending_status and is_named else None,
        "never": pending_status.never if pending_status and is_named else "",
    }


def _reasons(reasons: Iterable[Reason], visibility: Visibility) -> list[dict[str, Any]]:
    lines = visible.reasons(queue_status.reason_lines(reasons), visibility)
    return [msgspec.structs.asdict(each) for each in lines]


def _trace(steps: Iterable[Step], visibility: Visibility) -> list[dict[str, Any]]:
    return [dataclasses.asdict(each) for each in visibility.veiled(steps, "sentence")]


def _counterfactual(found: Counterfactual, visibility: Visibility) -> dict[str, Any]:
    begin_at = found.change.begin_at
    return {
        "change": found.change.as_json(),
        "sentence": found.sentence,
        "begins_at": None if begin_at is None else at(begin_at),
        "slowdown": found.slowdown,
        "price": dataclasses.asdict(found.price),
        "costs_others": None if found.burden is None else _burden(found.burden, visibility),
        "placement": _where(found.placement),
        "first_step": None if found.first_step is None else _first_step(found.first_step),
    }


def _first_step(found: FirstStep) -> dict[str, Any]:
    start = None if found.start is None else dataclasses.asdict(found.start)
    way = dataclasses.asdict(found.way)
    return {"in_s": found.in_s, **way, "send_s": found.way.send_s, "start": start}


def _never(found: Never | None, visibility: Visibility) -> dict[str, Any] | None:
    if found is None:
        return None
    names = ("change", "sentence", "slowdown", "placement", "first_step")
    ways = [_counterfactual(each, visibility) for each in found.ways]
    return {
        "reason": _reasons([found.reason], visibility)[0],
        "ways": [{name: each[name] for name in names} for each in ways],
    }


def _burden(burden: Burden, visibility: Visibility) -> dict[str, Any]:
    values = dataclasses.asdict(burden)
    return {"jobs": visibility.shown(values.pop("passed")), **values}


def _where(placement: Placement) -> dict[str, Any]:
    names = (
        "sites", "racks", "power_cap_w", "total_w", "slowdown", "comm_ratio", "comm_model",
        "warnings",
    )  # fmt: skip
    return {
        **{name: getattr(placement, name) for name in names},
        "gpus": len(placement.gpus),
        "nodes": len(placement.nodes),
        "locality": placement.locality.name.lower(),
    }
