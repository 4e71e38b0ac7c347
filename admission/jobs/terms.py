"""The terms of a phase: its own, else those of its class, else the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from admission.jobs.classes import Defaults, SchedulingClass
from admission.jobs.models import Phase
from headroom.jobs.rules import LEVELS
from headroom.jobs.spec import (
    Checkpoint,
    CrossSite,
    Level,
    LocalitySpec,
    Network,
    PhaseSpec,
    Power,
    Response,
    Restart,
    Sensitivity,
    Thermal,
    Throttling,
    Tolerance,
)

__all__ = ["MARGINS_C", "may_move", "may_restart", "terms_of", "terms_of_phase"]

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
