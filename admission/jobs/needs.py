"""Needs on other jobs, and on phases in other ways than to succeed: what they are, how they stand.

A phase that needs others of its job to succeed has their names. All else is a :class:`Dependency`:
a row that is open until what it waits for has come about, or never will.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Q

from accounts.models import User
from admission.core.snapshot import Unmet
from admission.jobs.models import Dependency, Job
from headroom.contracts import FieldError
from headroom.jobs import array
from headroom.jobs.spec import JobSpec, Need, When
from headroom.jobs.words import lasting

__all__ = [
    "Fate",
    "Standing",
    "Unmets",
    "checked",
    "fates",
    "has_any",
    "has_any_of",
    "kept",
    "plain",
    "standing",
    "text_of",
    "unmet",
    "why_never",
    "write_each",
]


_State = Dependency.State
#: In place of an element: that with the index of the one that waits.
SAME = "same"


class Standing(enum.Enum):
    """How a need stands."""

    OPEN = enum.auto()
    MET = enum.auto()
    #: it cannot come about any more
    NEVER = enum.auto()


@dataclass(frozen=True)
class Fate:
    """How a job, or a part of it, stands for those that need it."""

    has_succeeded: bool = False
    #: it failed, or was cancelled
    has_failed: bool = False
    is_over: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None


def standing(when: str, after_s: float, fate: Fate, now: datetime) -> Standing:
    """Return how a need stands at ``now``: ``after_s`` after what it waits for came about. Pure."""
    came_at, never = {
        When.SUCCEEDED: (fate.ended_at if fate.has_succeeded else None, fate.has_failed),
        When.FAILED: (fate.ended_at if fate.has_failed else None, fate.is_over),
        When.ENDED: (fate.ended_at if fate.is_over else None, False),
        When.STARTED: (fate.started_at, fate.is_over),
    }[When(when)]
    if came_at is None:
        return Standing.NEVER if never else Standing.OPEN
    is_due = now >= came_at + timedelta(seconds=after_s)
    return Standing.MET if is_due else Standing.OPEN


# --- In specifications ---------------------------------------------------------------------------


def plain(needs: Iterable[str | Need]) -> list[str]:
    """Return the names of phases of the same job that have to succeed."""
    return [each for each in needs if isinstance(each, str)]


def _others(spec: JobSpec) -> Iterator[tuple[str, str, Need]]:
    """Yield path, name of the phase (empty: the whole job) and need of all that are rows."""
    for place, need in enumerate(spec.needs):
        yield f"needs[{place}]", "", need
    for index, phase in enumerate(spec.phases):
        for place, each in enumerate(phase.needs):
            if not isinstance(each, str):
                yield f"phases[{index}].needs[{place}]", phase.name, each


def has_any(spec: Mapping[str, Any]) -> bool:
    """Say whether the specification of a saved job has needs that are rows."""
    phases = (each for phase in spec.get("phases", ()) for each in phase.get("needs", ()))
    return bool(spec.get("needs")) or any(not isinstance(each, str) for each in phases)


def has_any_of(spec: JobSpec) -> bool:
    """Say whether a specification has needs that are rows."""
    return any(True for _ in _others(spec))


def checked(spec: JobSpec, user: User, now: datetime) -> tuple[list[Dependency], list[FieldError]]:
    """Return the needs of a new job as rows without a job, and all that is wrong with them.

    A query, and another, where it needs other jobs. Only jobs that ``user`` sees can be needed.
    """
    asked = list(_others(spec))
    if not asked:
        return [], []
    names = {need.job for _, _, need in asked if need.job}
    jobs = {job.name: job for job in Job.objects.visible_to(user).filter(name__in=names)}
    rows, problems = [], []
    for path, phase, need in asked:
        target = jobs.get(need.job) if need.job else None
        problem = _problem(path, need, target, spec)
        if problem is not None:
            problems.append(problem)
            continue
        row = Dependency(
            phase=phase, on_job=target, on=need.job or "", on_phase=need.phase or "",
            on_element=None if need.element == SAME else need.element,
            state=_State.EACH if need.element == SAME else _State.OPEN,
            when=need.when.value, after_s=need.after_s,
        )  # fmt: skip
        rows.append((path, row))
    problems += _hopeless(rows, now)
    return [row for _, row in rows], problems


def _problem(path: str, need: Need, target: Job | None, spec: JobSpec) -> FieldError | None:
    """Return what is wrong with a need on another job; those on own phases are checked before."""
    if not need.job:
        return None
    if target is None:
        return FieldError(
            code="unknown_job",
            message=f"there is no job {need.job!r}, or it is of a project that is not yours",
            field=f"{path}.job",
            hint="submit that one first, and give its name",
        )
    phases = [each["name"] for each in target.spec["phases"]]
    if need.phase is not None and need.phase not in phases:
        return FieldError(
            code="unknown_phase",
            message=f"job {need.job} has no phase {need.phase!r}",
            field=f"{path}.phase",
            hint=f"name one of {', '.join(phases[:10])}",
        )
    missing = _missing(target, need.element, spec)
    if missing is not None:
        return FieldError(
            code="no_such_element",
            message=f"job {need.job} has no element {missing}",
            field=f"{path}.element",
            hint=f"its elements: {target.spec.get('array') or 'none, it is no array'}",
        )
    return None


def _missing(target: Job, element: int | str | None, spec: JobSpec) -> int | None:
    """Return the first element that is needed and not there."""
    if element is None:
        return None
    needed = {element} if isinstance(element, int) else set(array.read(spec.array or "").indices)
    text = target.spec.get("array")
    return min(needed - set(array.read(text).indices if text else ()), default=None)


def _hopeless(rows: Sequence[tuple[str, Dependency]], now: datetime) -> Iterator[FieldError]:
    """Yield an error for each need on another job that can never be met. One query."""
    others = [(path, row) for path, row in rows if row.on and row.state == _State.OPEN]
    for (path, row), fate in zip(others, fates([row for _, row in others]), strict=True):
        if standing(row.when, row.after_s, fate, now) is Standing.NEVER:
            yield FieldError(
                code="never_met",
                message=f"this can never be met: it waits for {text_of(row)}, and"
                f" {why_never(fate)}",
                field=path,
                hint="leave it out, or submit what it waits for again",
            )


# --- As they stand -------------------------------------------------------------------------------

_FATES = """
SELECT job.state, job.ended_at, job.elements IS NULL OR job.elements_reached >= job.elements,
       found.*
FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) WITH ORDINALITY AS need (job, phase, element)
LEFT JOIN admission_jobs_job AS job ON job.id = need.job
LEFT JOIN LATERAL (
    SELECT count(*), bool_and(state = 'succeeded'), bool_or(state IN ('failed', 'cancelled')),
           bool_and(state IN ('succeeded', 'failed', 'cancelled')), min(started_at), max(ended_at)
    FROM admission_jobs_phase AS phase
    WHERE phase.job_id = job.id
      AND (need.phase = '' OR phase.name = concat_ws('.', need.phase, phase.element))
      AND (need.element IS NULL OR phase.element = need.element)
) AS found ON true
ORDER BY need.ordinality
"""


def fates(rows: Sequence[Dependency]) -> list[Fate]:
    """Return the fate of what each of ``rows`` waits for; they need not be saved. One query."""
    if not rows:
        return []
    jobs, phases = [row.on_job_id for row in rows], [row.on_phase for row in rows]
    with connection.cursor() as cursor:
        cursor.execute(_FATES, [jobs, phases, [row.on_element for row in rows]])
        found = cursor.fetchall()
    return [_fate(row, *each) for row, each in zip(rows, found, strict=True)]


def _fate(
    need: Dependency,
    state: str | None,
    job_ended_at: datetime | None,
    is_whole: bool | None,
    count: int,
    succeeded: bool | None,
    failed: bool | None,
    over: bool | None,
    started_at: datetime | None,
    ended_at: datetime | None,
) -> Fate:
    """Return the fate of a job, or of some of its phases, from what is written of them.

    ``is_whole``: all elements of the array have phases. A job that is gone has failed.
    """
    job_is_over = state not in Job.OPEN
    is_of_job = not need.on_phase and need.on_element is None
    if is_of_job or not count:
        has_succeeded = is_of_job and state == Job.State.SUCCEEDED
        has_failed = job_is_over and not has_succeeded
        return Fate(has_succeeded, has_failed, job_is_over, started_at, job_ended_at)
    all_there = bool(is_whole) or need.on_element is not None
    return Fate(
        bool(succeeded) and all_there, bool(failed), bool(over) and all_there, started_at, ended_at
    )


def kept(job: Job, element: int | None = None) -> frozenset[int]:
    """Return the places in its specification of phases that wait for needs which are rows.

    Of an array: those of ``element``. One query, where it has any.
    """
    if not has_any(job.spec):
        return frozenset()
    mine = Q(element=None) | Q(element=element)
    open_ = job.dependencies.filter(mine, state__in=Dependency.KEEPS)
    return _places(job, set(open_.values_list("phase", flat=True)))


def _places(job: Job, waiting: Set[str]) -> frozenset[int]:
    phases = job.spec["phases"]
    return frozenset(index for index, phase in enumerate(phases) if waiting & {"", phase["name"]})


def write_each(job: Job, elements: Collection[int]) -> frozenset[int]:
    """Write down what each of ``elements`` waits for of its own; return what waits, as `kept` does.

    One query, where the job has needs that are rows, and another where there are such.
    """
    if not has_any(job.spec):
        return frozenset()
    each = list(job.dependencies.filter(state=_State.EACH))
    Dependency.objects.bulk_create(
        Dependency(
            job=job, phase=row.phase, element=element, on_job_id=row.on_job_id, on=row.on,
            on_phase=row.on_phase, on_element=element, when=row.when, after_s=row.after_s,
        )
        for row in each
        for element in elements
    )  # fmt: skip
    return _places(job, {row.phase for row in each})


#: By job, name of the phase in the specification ("": all of them), and element (None: all).
Unmets = dict[tuple[int, str, int | None], list[Unmet]]


def unmet(jobs: Iterable[int]) -> Unmets:
    """Return what phases wait for. One query."""
    found: Unmets = {}
    rows = Dependency.objects.filter(job__in=jobs, state__in=Dependency.KEEPS).order_by("pk")
    for row in rows:
        never = row.why if row.state == Dependency.State.NEVER else ""
        key = row.job_id, row.phase, row.element
        found.setdefault(key, []).append(Unmet(text_of(row), never))
    return found


# --- In words ------------------------------------------------------------------------------------

_TO = {When.SUCCEEDED: "succeed", When.FAILED: "fail", When.ENDED: "end", When.STARTED: "start"}


def text_of(need: Dependency) -> str:
    """Return what a need waits for, as in "job prepare to succeed"."""
    parts = []
    if need.state == _State.EACH:
        parts.append("the element of the same index")
    if need.on_element is not None:
        parts.append(f"element {need.on_element}")
    if need.on_phase:
        parts.append(f"phase {need.on_phase}")
    if need.on:
        parts.append(f"job {need.on}")
    text = f"{' of '.join(parts)} to {_TO[When(need.when)]}"
    return f"{text}, and {lasting(need.after_s)} more" if need.after_s else text


def why_never(fate: Fate) -> str:
    """Return why what a need waits for never comes about."""
    if fate.has_succeeded:
        return "that has succeeded"
    return "that has failed or was cancelled" if fate.started_at else "that never began"
