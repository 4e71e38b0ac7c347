"""Resolve a specification with its class: the terms of each phase, and its request to the solver.

Terms are what a phase says itself, else what its class says, else what is usual. They are resolved
once for a submission or an amendment (:class:`Resolved`); checks and requests both read them. The
request is written with its phase and kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from admission.core.request import Locality, Request
from admission.jobs.classes import Defaults, SchedulingClass
from admission.jobs.models import Job, Phase
from fleet.partitions import share_of
from headroom.jobs import array
from headroom.jobs.rules import LEVELS
from headroom.jobs.spec import (
    Checkpoint,
    CrossSite,
    Gang,
    JobSpec,
    Level,
    LocalitySpec,
    Network,
    PhaseSpec,
    Power,
    Promotion,
    Response,
    Restart,
    Sensitivity,
    Thermal,
    Throttling,
    Tolerance,
)

__all__ = [
    "LOCALITIES",
    "MARGINS_C",
    "Resolved",
    "made_for",
    "may_move",
    "may_restart",
    "of_element",
    "request_of",
    "requests_of",
    "stored",
    "terms_of",
    "terms_of_phase",
]

S = TypeVar("S", bound=Struct)

#: Below the temperature of slowdown, by how much heat hurts, °C.
MARGINS_C = {Sensitivity.LOW: 0.0, Sensitivity.NORMAL: 3.0, Sensitivity.HIGH: 8.0}

_USUAL = Defaults(
    power=Power(burst_allowed=False),
    thermal=Thermal(sensitivity=Sensitivity.NORMAL, cooling=[]),
    locality=LocalitySpec(required=Level.SITE, balanced=False, storage_bytes_per_s=0.0),
    network=Network(cross_site_bits_per_s=0.0),
    checkpoint=Checkpoint(size_bytes=0.0, cross_site=CrossSite.NONE),
    restart=Restart(tolerance=Tolerance.NONE, max_restarts=3, backoff_s=10.0),
    throttling=Throttling(
        responses=[Response.CONTINUE],
        shrink_below=0.1,
        pause_below=0.05,
        min_batch_scale=1.0,
        max_slowdown=0.0,
    ),
)

LOCALITIES: dict[Level, Locality] = dict(zip(Level, Locality, strict=True))

_DEFAULTS = {
    each.name: each.default
    for each in dataclasses.fields(Request)
    if each.default is not dataclasses.MISSING
}
_ABSENT = object()


@dataclass(frozen=True)
class Resolved:
    """A specification with its class, and the terms of each phase."""

    spec: JobSpec
    job_class: SchedulingClass

    @cached_property
    def terms(self) -> list[PhaseSpec]:
        """The terms of each phase, in order."""
        return [terms_of(phase, self.job_class) for phase in self.spec.phases]

    def phases(self) -> Iterator[tuple[PhaseSpec, PhaseSpec]]:
        """Yield each phase as it was sent, with its terms."""
        return zip(self.spec.phases, self.terms, strict=True)


# --- Terms ---------------------------------------------------------------------------------------


def terms_of(phase: PhaseSpec, job_class: SchedulingClass) -> PhaseSpec:
    """Return ``phase`` with all fields filled in that it leaves out.

    What stays None is not known (expected peak, a step) or not wanted (a cap, checkpoints). Where
    what the phase says and what its class says do not go together, the phase is right.
    """
    filled = {
        name: _filled(getattr(phase, name), getattr(job_class.defaults, name), usual)
        for name, usual in msgspec.structs.asdict(_USUAL).items()
    }
    filled["power"] = _cap_within_peak(filled["power"])
    filled["thermal"] = _with_margin(filled["thermal"])
    filled["locality"] = _with_preference(filled["locality"])
    filled["throttling"] = _in_order(filled["throttling"], phase.throttling)
    if phase.gang.slice or phase.gang.cores:
        filled |= _without_caps(filled["power"], filled["throttling"])
    return msgspec.structs.replace(phase, **filled)


def terms_of_phase(phase: Phase, classes: Mapping[str, SchedulingClass]) -> PhaseSpec:
    """Return the terms of a row, whose job is read too. A class that is gone has no defaults."""
    job = phase.job
    spec = msgspec.convert(job.spec["phases"][phase.index], PhaseSpec)
    return terms_of(spec, classes.get(job.job_class) or SchedulingClass(name=job.job_class))


def may_restart(terms: PhaseSpec, job_class: SchedulingClass) -> bool:
    """Say whether a phase can be started a second time."""
    return job_class.preemptible or terms.restart.tolerance is not Tolerance.NONE


def may_move(terms: PhaseSpec) -> bool:
    """Say whether a phase can go on at another site."""
    return Response.MIGRATE in (terms.throttling.responses or [])


def _filled(said: S, by_class: S, usual: S) -> S:
    """Return a section whose fields come from the first of the three that sets them."""
    values: dict[str, Any] = {}
    for name in said.__struct_fields__:
        given = (getattr(each, name) for each in (said, by_class, usual))
        values[name] = next((value for value in given if value not in (None, "")), None)
    return msgspec.structs.replace(
        said, **{name: value for name, value in values.items() if value is not None}
    )


def _cap_within_peak(power: Power) -> Power:
    if power.lowest_cap_w is None or power.expected_peak_w is None:
        return power
    lowest_w = min(power.lowest_cap_w, power.expected_peak_w)
    return msgspec.structs.replace(power, lowest_cap_w=lowest_w)


def _without_caps(power: Power, throttling: Throttling) -> dict[str, Struct]:
    """Return the terms of a slice or of cores: a cap is of a GPU as a whole."""
    responses = [each for each in throttling.responses or [] if each is not Response.CONTINUE]
    return {
        "power": msgspec.structs.replace(power, lowest_cap_w=None),
        "throttling": msgspec.structs.replace(throttling, responses=responses, max_slowdown=0.0),
    }


def _with_margin(thermal: Thermal) -> Thermal:
    if thermal.margin_c is not None:
        return thermal
    sensitivity = thermal.sensitivity or Sensitivity.NORMAL
    return msgspec.structs.replace(thermal, margin_c=MARGINS_C[sensitivity])


def _with_preference(locality: LocalitySpec) -> LocalitySpec:
    required = locality.required or Level.SITE
    preferred = min(locality.preferred or required, required, key=LEVELS.index)
    return msgspec.structs.replace(locality, preferred=preferred)


def _in_order(filled: Throttling, said: Throttling) -> Throttling:
    """Pause at or below the headroom at which the batch shrinks."""
    shrink, pause = filled.shrink_below or 0.0, filled.pause_below or 0.0
    if pause <= shrink:
        return filled
    if said.pause_below is None:
        return msgspec.structs.replace(filled, pause_below=shrink)
    return msgspec.structs.replace(filled, shrink_below=pause)


# --- Requests ------------------------------------------------------------------------------------


def request_of(phase: Phase) -> Request:
    """Return the request that was kept with ``phase``."""
    return msgspec.convert(phase.request, Request)


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
    resolved: Resolved, *, name: str, submitted_at: datetime, user: str = ""
) -> list[Request]:
    """Return one request for each phase of a job called ``name`` that ``user`` submits."""
    spec = resolved.spec
    return [
        _request(
            terms,
            resolved.job_class,
            job=name,
            project=spec.project,
            user=user,
            priority=spec.priority,
            submitted_at=submitted_at.timestamp(),
            deadline_at=spec.begin_by.timestamp() if spec.begin_by else None,
            executor=spec.scheduler,
        )
        for terms in resolved.terms
    ]


def of_element(request: Request, element: int | None, since: float) -> Request:
    """Return a request that waits for the fleet ``since`` then, Unix s.

    ``element``: of an array; None: of a job that is none.
    """
    if element is None:
        return dataclasses.replace(request, submitted_at=since)
    name = array.name_of(request.phase, element)
    key = f"{request.job}/{name}"
    return dataclasses.replace(request, key=key, phase=name, submitted_at=since)


def made_for(phase: Phase, classes: Mapping[str, SchedulingClass]) -> Request:
    """Return the request of a row as its job and its class are now, its job and project read."""
    job = phase.job
    request = _request(
        terms_of_phase(phase, classes),
        classes.get(job.job_class) or SchedulingClass(name=job.job_class),
        job=job.name,
        project=job.project.name,
        user=job.submitted_by,
        priority=job.priority,
        submitted_at=job.submitted_at.timestamp(),
        deadline_at=_deadline(job),
        executor=job.spec.get("scheduler", ""),
    )
    return of_element(request, phase.element, phase.request["submitted_at"])


def _deadline(job: Job) -> float | None:
    text = job.spec.get("begin_by")
    return msgspec.convert(text, datetime).timestamp() if text else None


def _gpu_share(gang: Gang) -> float:
    """Return what one GPU, slice or core of a gang counts for, of a GPU.

    Of several models the most; cores count for nothing.
    """
    if gang.cores is not None:
        return 0.0
    return 1.0 if gang.slice is None else share_of(gang.slice, gang.models)


def _held(gang: Gang) -> dict[str, Any]:
    """Return what a gang holds, by the names of a request: GPUs, or cores."""
    if gang.cores is None:
        return {
            "gpus": gang.gpus,
            "min_gpus": gang.min_gpus or gang.gpus,
            "max_gpus": gang.max_gpus,
            "gpus_per_node": gang.gpus_per_node,
        }
    count = gang.cores * (gang.nodes or 1)
    return {"gpus": count, "min_gpus": count, "gpus_per_node": gang.cores, "cores": True}


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
        **_held(gang),
        slice=gang.slice or "",
        gpu_share=_gpu_share(gang),
        models=tuple(gang.models),
        cooling=tuple(terms.thermal.cooling or ()),
        sites=tuple(locality.sites),
        nodes=tuple(locality.nodes),
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
        prefers=terms.energy.prefer or "",
        may_wait_s=terms.energy.may_wait_s if terms.energy.prefer else 0.0,
        takes=tuple((each.phase, each.output) for each in terms.inputs),
        promotes=terms.promotion is not None,
        matrices=tuple(
            (each.phase, each.output) for each in (terms.promotion or Promotion()).matrix
        ),
        **of_job,
    )
