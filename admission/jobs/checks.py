"""Checks of a specification that only the server can make: its class, names of the inventory."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from admission.jobs.classes import SchedulingClass
from admission.jobs.resolution import Resolved, may_move, may_restart
from fleet.models import HardwareModel
from fleet.partitions import known_profiles, profiles_of
from fleet.snapshot import COOLING_KINDS, FleetArrays
from headroom.contracts import FieldError
from headroom.jobs.spec import CrossSite, JobSpec, PhaseSpec

__all__ = ["problems_of", "unknown"]


def problems_of(resolved: Resolved, fleet: FleetArrays, *, is_operator: bool) -> list[FieldError]:
    """Return all that keeps a specification from being a job of its class on ``fleet``."""
    job_class = resolved.job_class
    found = list(_priority(resolved.spec, is_operator=is_operator))
    for index, (phase, terms) in enumerate(resolved.phases()):
        path = f"phases[{index}]"
        found += _names(phase, fleet, path)
        found += _slices(phase, path)
        found += _cores(phase, fleet, path)
        found += _limits(phase, job_class, path)
        found += _inputs(terms, job_class, path)
        found += _checkpoints(terms, path)
    return found


def _priority(spec: JobSpec, *, is_operator: bool) -> Iterator[FieldError]:
    if spec.priority > 0 and not is_operator:
        yield FieldError(
            code="not_allowed",
            message="a priority above 0 passes over other projects: only operators give it",
            field="priority",
            hint="take 0, and a lower one for what may wait",
        )


def of_a_scheduler(spec: JobSpec) -> list[FieldError]:
    """Return the error for a job that its scheduler, and not a person, would have to send us."""
    if not spec.scheduler:
        return []
    return [
        FieldError(
            code="of_a_scheduler",
            message="jobs of a scheduler come from it",
            field="scheduler",
            hint=f"submit it to {spec.scheduler} as ever: Headroom adopts it; or leave this out",
        )
    ]


def passed_deadline(spec: JobSpec, now: datetime) -> list[FieldError]:
    """Return the error for a ``begin_by`` that no job can keep any more."""
    if spec.begin_by is None or spec.begin_by > now:
        return []
    at = spec.begin_by.astimezone(UTC)
    return [
        FieldError(
            code="in_the_past",
            message=f"{at:%Y-%m-%d %H:%M:%S} UTC has passed",
            field="begin_by",
            hint="give a later time, or leave it out",
        )
    ]


def not_allowed(project: str, job_class: str, allowed: Iterable[str]) -> FieldError:
    """Return the error for a class that is not granted to a project."""
    return FieldError(
        code="class_not_allowed",
        message=f"class {job_class!r} is not granted to project {project!r}",
        field="class",
        hint=f"take one of: {', '.join(sorted(allowed)) or 'none'}; or ask an operator to grant it"
        f" in the admission policy, as projects.{project}.granted",
    )


def unknown(
    kind: str, name: str, known: Iterable[str], field: str, *, hint: str = ""
) -> FieldError:
    """Return the error for a name that is not among ``known``, with those that are close to it."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    some = ", ".join(sorted(names)[:10]) or "none yet"
    return FieldError(
        code=f"unknown_{kind.replace(' ', '_')}",
        message=f"there is no {kind} {name!r}",
        field=field,
        hint=f"do you mean {close[0]!r}?" if close else hint or f"there are: {some}",
    )


def _names(phase: PhaseSpec, fleet: FleetArrays, path: str) -> Iterator[FieldError]:
    locality = phase.locality
    sites = fleet.sites.index_by_name
    asked: list[tuple[str, Sequence[str], Iterable[str], str]] = [
        ("hardware model", phase.gang.models, fleet.models.index_by_name, "gang.models[{}]"),
        ("kind of cooling", phase.thermal.cooling or [], COOLING_KINDS, "thermal.cooling[{}]"),
        ("site", locality.sites, sites, "locality.sites[{}]"),
        ("node", locality.nodes, fleet.nodes.index_by_name, "locality.nodes[{}]"),
        ("site", [locality.data_site], sites, "locality.data_site"),
        *(
            ("site", output.copies, sites, f"outputs[{place}].copies[{{}}]")
            for place, output in enumerate(phase.outputs)
        ),
        (
            "storage endpoint",
            [locality.storage],
            fleet.storage.index_by_path,
            "locality.storage",
        ),
    ]
    for kind, names, known, field in asked:
        for place, name in enumerate(names):
            if name and name not in known:
                yield unknown(kind, name, known, f"{path}.{field.format(place)}")


def _slices(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    """Yield what is wrong with the slice that a phase asks for, by what its models have."""
    name, field = phase.gang.slice, f"{path}.gang.slice"
    if name is None:
        return
    if name not in known_profiles():
        # Time slicing keeps neither memory nor power of those who share a GPU apart.
        hint = "name a MIG profile, such as 1g.10gb: other fractions of a GPU are not handed out"
        yield unknown("slice", name, known_profiles(), field, hint=hint)
        return
    for model in phase.gang.models:
        if name not in profiles_of(model):
            has = ", ".join(profiles_of(model)) or "none, as far as is known"
            yield FieldError(
                code="no_such_slice",
                message=f"{model} has no slice {name!r}",
                field=field,
                hint=f"it has: {has}",
            )


def _cores(phase: PhaseSpec, fleet: FleetArrays, path: str) -> Iterator[FieldError]:
    """Yield what is wrong with the CPU cores that a phase asks for, by what nodes hand out.

    One query, of a phase that asks for some.
    """
    gang = phase.gang
    if gang.cores is None:
        return
    rows = fleet.nodes.model[list(fleet.cores)]
    names = {str(fleet.models.names[row]) for row in rows.tolist()}
    found = [name for name in gang.models or sorted(names) if name in names]
    if not found:
        yield FieldError(
            code="no_cores",
            message="no node without GPUs"
            + (f" of {', '.join(gang.models)}" if gang.models else "")
            + " has cores that the inventory states",
            field=f"{path}.gang.cores",
            hint="state `cores` of its hardware model in the inventory, or ask for GPUs",
        )
        return
    stated = HardwareModel.objects.filter(name__in=found).order_by("name")
    for name, cores, mem_bytes in stated.values_list("name", "cores", "mem_bytes"):
        if cores and gang.cores > cores:
            yield FieldError(
                code="too_many_cores",
                message=f"{gang.cores} cores on a node; {name} has {cores}",
                field=f"{path}.gang.cores",
                hint=f"ask for at most {cores} on each of more `nodes`, or name other models",
            )
        elif cores and gang.mem_bytes is not None:
            yield from _memory(gang.cores, gang.mem_bytes, name, mem_bytes, cores, path)


def _memory(
    cores: int, wanted: float, model: str, mem_bytes: int | None, of: int, path: str
) -> Iterator[FieldError]:
    """Yield a fault where ``cores`` of a node do not bring the memory that is wanted, bytes."""
    field = f"{path}.gang.mem_bytes"
    if mem_bytes is None:
        yield FieldError(
            code="not_known", message=f"the inventory does not state the memory of {model}",
            field=field, hint="state its `mem_bytes`, or leave it out",
        )  # fmt: skip
    elif wanted > cores * mem_bytes / of:
        least = math.ceil(wanted * of / mem_bytes)
        yield FieldError(
            code="too_little_memory",
            message=f"memory comes with cores: {cores} of {of} of {model} bring"
            f" {cores * mem_bytes / of / 1e9:.1f} of {wanted / 1e9:.1f} GB",
            field=field,
            hint=f"ask for {least} cores" if least <= of else "ask for less, or name other models",
        )


def _limits(phase: PhaseSpec, job_class: SchedulingClass, path: str) -> Iterator[FieldError]:
    fewest = phase.gang.min_gpus or phase.gang.gpus
    if job_class.max_gpus is not None and fewest > job_class.max_gpus:
        yield FieldError(
            code="above_class",
            message=f"{fewest} GPUs; all jobs of {job_class.name} together"
            f" have {job_class.max_gpus}",
            field=f"{path}.gang.gpus",
            hint="ask for fewer, or take another class",
        )
    if job_class.max_walltime_s is not None and phase.walltime_s > job_class.max_walltime_s:
        yield FieldError(
            code="above_class",
            message=f"{phase.walltime_s:g} s; {job_class.name} takes at most"
            f" {job_class.max_walltime_s:g} s",
            field=f"{path}.walltime_s",
            hint="ask for less, or take another class",
        )


def _inputs(terms: PhaseSpec, job_class: SchedulingClass, path: str) -> Iterator[FieldError]:
    """Yield a fault for each unpinned input, where a phase may restart or move and must repeat."""
    why = _why_pinned(terms, job_class)
    if not why:
        return
    ways = {
        "image": "give the image by its digest",
        "code_revision": "give the whole id of the commit",
        "data": "give the checksum of each data set, or {} where it reads none",
    }
    for name, way in ways.items():
        if getattr(terms.artifacts, name) is None:
            yield FieldError(
                code="not_pinned",
                message=f"{name} is missing, and {why}",
                field=f"{path}.artifacts.{name}",
                hint=f"{way}; or take a class whose jobs never restart or move",
            )


def _why_pinned(terms: PhaseSpec, job_class: SchedulingClass) -> str:
    if job_class.preemptible:
        return f"jobs of {job_class.name} may be stopped and started again"
    if may_restart(terms, job_class):
        return "the phase may be started again (restart.tolerance)"
    return "the phase may move (throttling.responses)" if may_move(terms) else ""


def _checkpoints(terms: PhaseSpec, path: str) -> Iterator[FieldError]:
    checkpoint = terms.checkpoint
    if checkpoint.cross_site is CrossSite.REQUIRED and checkpoint.interval_s is None:
        yield FieldError(
            code="required",
            message="checkpoints are to be copied to another site, and none are written",
            field=f"{path}.checkpoint.interval_s",
            hint="say how often they are written",
        )
