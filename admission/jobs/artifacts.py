"""Artifacts that phases hand on: recorded as they are made, and handed to those that take them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from admission.core.handover import Handover, Recorded
from admission.jobs import history
from admission.jobs.models import Artifact, ArtifactCopy, Attempt, Job, JobEvent, Phase
from headroom.jobs.artifacts import variable_of
from headroom.jobs.words import in_bytes
from headroom.work.contract import Cells, Measured

__all__ = [
    "RECORDED",
    "Line",
    "Place",
    "handed",
    "known_of",
    "lines_of",
    "of_jobs",
    "outputs_of",
    "record",
    "variables",
]

#: A kind of events: an artifact was measured.
RECORDED = "artifact"


def of_jobs(jobs: Collection[int]) -> dict[int, dict[tuple[str, str], Artifact]]:
    """Return the artifacts of jobs with their copies, by job, and by phase and name.

    Jobs that are phases of one pipeline have each other's: of two of one name what was recorded
    last, where it is not their own. Three queries; none without jobs.
    """
    if not jobs:
        return {}
    mates = _mates(jobs)
    rows = Artifact.objects.filter(phase__job__in={*jobs, *(pk for some in mates for pk in some)})
    made: dict[int, dict[tuple[str, str], Artifact]] = {}
    for row in rows.select_related("phase__job").prefetch_related("copies").order_by("recorded_at"):
        made.setdefault(row.phase.job_id, {})[row.phase.name, row.name] = row
    found = {pk: dict(made[pk]) for pk in jobs if pk in made}
    for some in mates:
        theirs = [item for pk in some for item in made.get(pk, {}).items()]
        of_run = dict(sorted(theirs, key=lambda item: item[1].recorded_at))
        found |= {pk: {**of_run, **made.get(pk, {})} for pk in some & set(jobs)}
    return found


def _mates(jobs: Collection[int]) -> list[set[int]]:
    """Return the jobs of each pipeline that one of ``jobs`` is a phase of. One query."""
    asked = Job.objects.filter(pk__in=jobs).exclude(pipeline="")
    runs = Job.objects.filter(
        project__in=asked.values("project"), pipeline__in=asked.values("pipeline")
    )
    found: dict[tuple[int, str], set[int]] = {}
    for project, pipeline, pk in runs.values_list("project_id", "pipeline", "pk"):
        found.setdefault((project, pipeline), set()).add(pk)
    return list(found.values())


def known_of(artifacts: Mapping[tuple[str, str], Artifact]) -> Handover:
    """Return what is recorded of the artifacts of one job, for the solver."""
    return Handover(recorded={taken: _recorded(row) for taken, row in artifacts.items()})


def _recorded(row: Artifact) -> Recorded:
    found = {copy.site: copy.digest for copy in row.copies.all()}
    outputs = _phase_spec(row.phase).get("outputs", ())
    wanted = next((each.get("copies", ()) for each in outputs if each["name"] == row.name), ())
    return Recorded(
        row.digest, row.size_bytes, row.site, {**found, row.site: row.digest},
        copies=tuple(wanted), cells=row.cells,
    )  # fmt: skip


# --- Made ----------------------------------------------------------------------------------------


def outputs_of(spec: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the artifacts that a phase makes, by its specification, as machines take them."""
    return tuple(
        {field: each[field] for field in ("name", "path", "matrix") if each.get(field)}
        for each in spec.get("outputs", ())
    )


def record(attempt: Attempt, measured: Iterable[Measured], now: datetime) -> None:
    """Record the artifacts that an attempt has made, its phase and job read. A query for each.

    Call it in the transaction that ends the attempt. What is recorded already stays as it is.
    """
    phase = attempt.phase
    declared = {each["name"]: each for each in _phase_spec(phase).get("outputs", ())}
    events = []
    for found in measured:
        if (output := declared.get(found.name)) is None:
            continue
        fields = {
            "path": output["path"], "digest": found.digest, "size_bytes": found.size_bytes,
            "attempt": attempt.key, "recorded_at": now,
        }  # fmt: skip
        if _save(phase, output, _site_of(attempt), fields, found.cells):
            events.append(_event(phase, output, found, _site_of(attempt), now))
    JobEvent.objects.bulk_create(events)


def _save(
    phase: Phase,
    output: Mapping[str, Any],
    site: str,
    fields: Mapping[str, Any],
    cells: Cells | None,
) -> bool:
    """Save an artifact, or a copy of one; return whether it is new."""
    if (of := output.get("copy_of")) is None:
        made = {**fields, "site": site, "cells": msgspec.to_builtins(cells)}
        return Artifact.objects.get_or_create(phase=phase, name=output["name"], defaults=made)[1]
    source = of_jobs([phase.job_id]).get(phase.job_id, {}).get((of["phase"], of["output"]))
    if source is None or source.site == site:
        return False
    return ArtifactCopy.objects.get_or_create(artifact=source, site=site, defaults=fields)[1]


def _event(
    phase: Phase, output: Mapping[str, Any], found: Measured, site: str, now: datetime
) -> JobEvent:
    of = output.get("copy_of")
    what = f"a copy of {of['phase']}/{of['output']}" if of else found.name
    text = f"{phase.name} made {what} at {site}: {in_bytes(found.size_bytes)}, {found.digest}"
    data = {"artifact": found.name, "digest": found.digest, "size_bytes": found.size_bytes}
    return history.event(phase.job_id, RECORDED, text, now, phase=phase.name, **data)


# --- To be looked at -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """An artifact at one site. Without a digest nobody has measured it there yet."""

    site: str
    path: str = ""
    digest: str = ""
    recorded_at: datetime | None = None
    #: it is as it was made; None: nobody has measured it there
    is_whole: bool | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """An artifact that a phase is to make. Before it is recorded it has no digest and no size."""

    phase: str
    name: str
    path: str
    digest: str = ""
    size_bytes: int | None = None
    #: of the result of a matrix: how many cells ended how
    cells: Mapping[str, int] | None = None
    #: where it was made first, then where copies are, or have to be
    places: tuple[Place, ...] = ()


def lines_of(job: Job) -> list[Line]:
    """Return the artifacts that a job's phases declare, in their order. Two queries."""
    declared = [
        (phase["name"], output)
        for phase in job.spec["phases"]
        for output in phase.get("outputs", ())
        if not output.get("copy_of")
    ]
    made = of_jobs([job.pk]).get(job.pk, {}) if declared else {}
    return [_line(phase, output, made.get((phase, output["name"]))) for phase, output in declared]


def _line(phase: str, output: Mapping[str, Any], row: Artifact | None) -> Line:
    wanted = output.get("copies", ())
    if row is None:
        places = tuple(Place(site) for site in wanted)
        return Line(phase, output["name"], output["path"], places=places)
    made = Place(row.site, row.path, row.digest, row.recorded_at, is_whole=True)
    copies = {
        each.site: Place(
            each.site, each.path, each.digest, each.recorded_at, each.digest == row.digest
        )
        for each in row.copies.all()
    }
    missing = [Place(site) for site in wanted if site not in {row.site, *copies}]
    places = (made, *copies.values(), *missing)
    return Line(phase, row.name, row.path, row.digest, row.size_bytes, row.cells, places)


# --- Taken ---------------------------------------------------------------------------------------


def handed(attempt: Attempt, artifacts: Mapping[tuple[str, str], Artifact]) -> list[dict[str, str]]:
    """Return what a phase takes, as machines verify it: ``name``, ``digest`` and ``path`` of each.

    At the site of a copy it is that which is taken. One that is not recorded has no digest, which
    nothing has: the command is not started.
    """
    site = _site_of(attempt)
    return [
        _handed(each, artifacts.get((each["phase"], each["output"])), site)
        for each in _phase_spec(attempt.phase).get("inputs", ())
    ]


def _handed(asked: Mapping[str, str], row: Artifact | None, site: str) -> dict[str, str]:
    path, digest = asked.get("path") or "", ""
    if row is not None:
        copies: Sequence[ArtifactCopy] = [each for each in row.copies.all() if each.site == site]
        path, digest = path or (copies[0].path if copies else row.path), row.digest
    name = f"artifact/{asked['phase']}/{asked['output']}"
    return {"name": name, "digest": digest, "path": path}


def variables(inputs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables that tell a command where the artifacts lie that it takes."""
    found: dict[str, str] = {}
    for each in inputs:
        _, phase, output = each["name"].split("/")
        name = variable_of(phase, output)
        found |= {name: each["path"], f"{name}_DIGEST": each["digest"]}
    return found


def _phase_spec(phase: Phase) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = phase.job.spec["phases"][phase.index]
    return spec


def _site_of(attempt: Attempt) -> str:
    """Return the site where an attempt runs; of several the first."""
    return next(iter(attempt.placement.get("sites") or ()), "")
