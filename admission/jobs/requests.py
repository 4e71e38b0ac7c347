"""Requests to the solver, one for a phase: made when the phase is written, and kept with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from admission.core.request import Locality, Request
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Job, Phase
from admission.jobs.terms import terms_of, terms_of_phase
from headroom.jobs.spec import CrossSite, JobSpec, Level, PhaseSpec

__all__ = ["LOCALITIES", "from_json", "made_for", "request_of", "requests_of", "stored"]

LOCALITIES: dict[Level, Locality] = dict(zip(Level, Locality, strict=True))

_DEFAULTS = {
    each.name: each.default
    for each in dataclasses.fields(Request)
    if each.default is not dataclasses.MISSING
}
_ABSENT = object()


def request_of(phase: Phase) -> Request:
    """Return the request that was kept with ``phase``."""
    return from_json(phase.request)


def from_json(document: dict[str, Any]) -> Request:
    """Return a request as :func:`stored` wrote it."""
    return msgspec.convert(document, Request)


def stored(request: Request) -> dict[str, Any]:
    """Return ``request`` as JSON, without fields that have their default."""
    values = {name: getattr(request, name) for name in _names(request)}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _names(request: Request) -> list[str]:
    return [
        each.name
        for each in dataclasses.fields(request)
        if getattr(request, each.name) != _DEFAULTS.get(each.name, _ABSENT)
    ]


def requests_of(
    spec: JobSpec, job_class: SchedulingClass, *, name: str, submitted_at: datetime
) -> list[Request]:
    """Return one request for each phase of a job called ``name``."""
    return [
        _request(
            terms_of(phase, job_class),
            job_class,
            job=name,
            project=spec.project,
            priority=spec.priority,
            submitted_at=submitted_at.timestamp(),
            deadline_at=spec.begin_by.timestamp() if spec.begin_by else None,
        )
        for phase in spec.phases
    ]


def made_for(phase: Phase, classes: Mapping[str, SchedulingClass]) -> Request:
    """Return the request of a row as its job and its class are now, its job and project read."""
    job = phase.job
    return _request(
        terms_of_phase(phase, classes),
        classes.get(job.job_class) or SchedulingClass(name=job.job_class),
        job=job.name,
        project=job.project.name,
        priority=job.priority,
        submitted_at=job.submitted_at.timestamp(),
        deadline_at=_deadline(job),
    )


def _deadline(job: Job) -> float | None:
    text = job.spec.get("begin_by")
    return msgspec.convert(text, datetime).timestamp() if text else None


def _request(
    terms: PhaseSpec, job_class: SchedulingClass, *, job: str, priority: int, **of_job: Any
) -> Request:
    gang, locality, network = terms.gang, terms.locality, terms.network
    return Request(
        key=f"{job}/{terms.name}",
        job=job,
        phase=terms.name,
        job_class=job_class.name,
        priority=priority + job_class.priority,
        gpus=gang.gpus,
        min_gpus=gang.min_gpus or gang.gpus,
        gpus_per_node=gang.gpus_per_node,
        models=tuple(gang.models),
        cooling=tuple(terms.thermal.cooling or ()),
        sites=tuple(locality.sites),
        gpu_peak_w=None if terms.power.burst_allowed else terms.power.expected_peak_w,
        lowest_cap_w=terms.power.lowest_cap_w,
        max_slowdown=terms.throttling.max_slowdown or 0.0,
        thermal_margin_c=terms.thermal.margin_c or 0.0,
        required=LOCALITIES[locality.required or Level.SITE],
        preferred=LOCALITIES[locality.preferred or Level.SITE],
        balanced=bool(locality.balanced),
        cross_site_bits_per_s=network.cross_site_bits_per_s or 0.0,
        data_site=locality.data_site,
        storage=locality.storage,
        storage_bytes_per_s=locality.storage_bytes_per_s or 0.0,
        collective_bytes_per_step=network.collective_bytes_per_step,
        step_s=network.step_s,
        walltime_s=terms.walltime_s,
        preemptible=job_class.preemptible,
        checkpoint_interval_s=terms.checkpoint.interval_s,
        cross_site_checkpoint=terms.checkpoint.cross_site is CrossSite.REQUIRED,
        **of_job,
    )
