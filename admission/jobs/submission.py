"""Take a job: check its specification, resolve it with its class, and save all of it at once."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
from django.db import connection, models, transaction

from accounts import audit
from accounts.models import AuditEntry, User
from accounts.roles import Capability
from admission.core.request import Request
from admission.jobs import catalog, checks, elements, history, limits, needs
from admission.jobs.limits import Holder, OverLimit
from admission.jobs.models import Dependency, Job, JobEvent, Phase, Project
from admission.jobs.resolution import Resolved, requests_of
from fleet import snapshot
from headroom.jobs import array, reading
from headroom.jobs.array import Array
from headroom.jobs.reading import SpecError
from headroom.jobs.spec import JobSpec

__all__ = [
    "Conflict",
    "OverLimit",
    "Prepared",
    "SpecError",
    "Submitted",
    "prepare",
    "state_of",
    "submit",
    "try_out",
]

#: Of names that the server gives: no vowels, so that they spell nothing.
_LETTERS = "bcdfghjkmnpqrstvwxz23456789"


class Conflict(Exception):
    """The job is not as the caller takes it to be. ``code`` names the conflict."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@dataclass(frozen=True)
class Prepared:
    """A checked specification that is not written yet. Requests are those of its phases."""

    resolved: Resolved
    name: str
    project: Project
    requests: list[Request]
    holders: tuple[Holder, ...]
    #: on other jobs, and all that is not a phase of its own to succeed; without a job
    dependencies: list[Dependency]

    @property
    def kept(self) -> frozenset[int]:
        """The places of phases that wait for one of these."""
        waiting = {each.phase for each in self.dependencies}
        phases = self.resolved.spec.phases
        return frozenset(index for index, phase in enumerate(phases) if waiting & {"", phase.name})

    @property
    def array(self) -> Array | None:
        """The array that the job is, if it is one."""
        text = self.resolved.spec.array
        return None if text is None else array.read(text)

    @property
    def waiting(self) -> int:
        """How many phases it has in the queue at once at most."""
        phases = len(self.resolved.spec.phases)
        found = self.array
        return phases if found is None else phases * elements.most_waiting(found, phases)


@dataclass(frozen=True)
class Submitted:
    """A submitted job with its phases; not ``created`` where the same submission came before."""

    job: Job
    phases: list[Phase]
    created: bool


def prepare(spec: JobSpec, user: User, now: datetime, *, is_new: bool = True) -> Prepared:
    """Check a specification on the server. One query, and another where the inventory is old.

    ``is_new``: it was not submitted before, so its deadline has to lie ahead.

    Raises :class:`SpecError`, and :class:`OverLimit` where it has more phases than a job may have.
    """
    admitted = catalog.for_submission(user, spec.project)
    project, classes = admitted.project, admitted.classes
    job_class = classes.get(spec.job_class)
    resolved = None if job_class is None else Resolved(spec, job_class)
    problems = checks.passed_deadline(spec, now) if is_new else []
    if project is None:
        mine = Project.objects.open_to(user).values_list("name", flat=True)
        problems.append(checks.unknown("project", spec.project, mine, "project"))
    if resolved is None:
        problems.append(checks.unknown("class", spec.job_class, classes, "class"))
    elif project is not None and spec.job_class not in admitted.allowed:
        problems.append(checks.not_allowed(spec.project, spec.job_class, admitted.allowed))
    else:
        problems += checks.problems_of(
            resolved, snapshot.current(), is_operator=user.can(Capability.EDIT_POLICIES)
        )
    dependencies, wrong = needs.checked(spec, user, now)
    problems += wrong if is_new else []
    problems += checks.of_a_scheduler(spec)
    if project is None or resolved is None or problems:
        raise SpecError(problems)
    name = spec.name or f"{spec.project}-{''.join(secrets.choice(_LETTERS) for _ in range(8))}"
    requests = requests_of(resolved, name=name, submitted_at=now, user=user.get_username())
    prepared = Prepared(resolved, name, project, requests, admitted.holders, dependencies)
    limits.check_size(admitted.holders, len(spec.phases), prepared.waiting)
    return prepared


def try_out(spec: JobSpec, user: User, now: datetime) -> Prepared:
    """Prepare a job for a dry run: for the solver each phase is as dear as a submission.

    Raises :class:`SpecError` and :class:`OverLimit`.
    """
    prepared = prepare(spec, user, now)
    with transaction.atomic():
        # One that has more phases than may come at once passes when nothing came before it.
        limits.charge(prepared.holders, len(spec.phases))
    return prepared


def submit(spec: JobSpec, user: User, *, now: datetime, idempotency_key: str = "") -> Submitted:
    """Submit a job. Raises :class:`SpecError`, and :class:`Conflict` where its name is taken.

    Raises :class:`OverLimit` where its user or project has too much waiting, or comes too fast.

    With an ``idempotency_key`` the same user can send the same submission again and again.
    """
    # What was in the future, or could be met, when it first came may not be so any more.
    may_be_late = needs.has_any_of(spec) or (spec.begin_by is not None and spec.begin_by <= now)
    is_again = may_be_late and idempotency_key != "" and _has_earlier(user, idempotency_key)
    prepared = prepare(spec, user, now, is_new=not is_again)
    job = _new_job(prepared, user, now, idempotency_key)
    # The first element of an array: the next cycle makes those that it has room for beside it.
    element = None if prepared.array is None else prepared.array.indices[0]
    phases = elements.phase_rows(
        job, spec, prepared.requests, now, element=element, kept=prepared.kept
    )
    told = history.event(0, history.SUBMITTED, f"Submitted by {job.submitted_by}", now)
    of_job = {"project": spec.project, "job_class": spec.job_class}
    changed = audit.changes(None, state_of(job))
    entry = audit.entry(user, "job.submit", job.name, **of_job, **changed)
    try:
        with transaction.atomic():
            is_new = _insert_within_limits(prepared, job, phases, told, entry)
    except OverLimit:
        # What was taken before was counted then.
        if not idempotency_key or not _has_earlier(user, idempotency_key):
            raise
        is_new = False
    if is_new:
        return Submitted(job, phases, created=True)
    job = _earlier(prepared, user, idempotency_key)
    first = Phase.objects.filter(job=job).order_by("element", "index")
    return Submitted(job, list(first[: len(prepared.requests)]), created=False)


def _insert_within_limits(
    prepared: Prepared, job: Job, phases: list[Phase], told: JobEvent, entry: AuditEntry
) -> bool:
    limits.charge(prepared.holders)
    limits.check(prepared.holders, job.submitted_by, prepared.project.pk, prepared.waiting)
    is_new = _save(job, phases, told, entry)
    if is_new and prepared.dependencies:
        for each in prepared.dependencies:
            each.job = job
            # A need without the name of a job is on a phase of its own.
            each.on_job = each.on_job if each.on else job
        Dependency.objects.bulk_create(prepared.dependencies)
        if prepared.array is not None:
            needs.write_each(job, prepared.array.indices[:1])
    return is_new


def _has_earlier(user: User, idempotency_key: str) -> bool:
    return Job.objects.filter(
        submitted_by=user.get_username(), idempotency_key=idempotency_key
    ).exists()


def _new_job(prepared: Prepared, user: User, now: datetime, idempotency_key: str) -> Job:
    spec = prepared.resolved.spec
    return Job(
        name=prepared.name,
        project=prepared.project,
        job_class=spec.job_class,
        priority=spec.priority,
        spec=reading.as_json(spec),
        spec_version=spec.version,
        submitted_by=user.get_username(),
        submitted_at=now,
        labels=spec.labels,
        idempotency_key=idempotency_key,
        elements=None if prepared.array is None else len(prepared.array),
        elements_reached=0 if prepared.array is None else 1,
        interactive=spec.interactive,
    )


def _earlier(prepared: Prepared, user: User, idempotency_key: str) -> Job:
    """Return the job that an earlier try of the same submission made. Raises Conflict."""
    earlier = None
    if idempotency_key:
        earlier = Job.objects.filter(
            submitted_by=user.get_username(), idempotency_key=idempotency_key
        ).first()
    if (
        earlier is not None
        and earlier.revision == 1
        and earlier.spec != reading.as_json(prepared.resolved.spec)
    ):
        raise Conflict(
            "idempotency_key_used",
            f"this key was used for another specification, {earlier.name}",
            "send each submission with a key of its own",
        )
    if earlier is not None:
        return earlier
    raise Conflict(
        "name_taken",
        f"there is a job {prepared.name!r} already",
        "take another name, or none: the server gives one",
    )


def state_of(job: Job) -> audit.State:
    """Return a job for the audit log, with the digest of its specification in place of it."""
    digest = hashlib.sha256(msgspec.json.encode(job.spec, order="sorted")).hexdigest()
    return {**audit.state(job), "spec": f"sha256:{digest}"}


# --- All rows in one statement -------------------------------------------------------------------

# Thousands are submitted within a minute. Row by row, what is written costs more than all else that
# a submission does together, here and in Postgres.
_INSERT = """
WITH job AS (
    INSERT INTO {jobs} ({job_columns}) VALUES ({job_values}) ON CONFLICT DO NOTHING RETURNING id
),
event AS (
    INSERT INTO {events} (job_id, {event_columns}) SELECT job.id, {event_values} FROM job
),
entry AS (
    INSERT INTO {entries} ({entry_columns}) SELECT {entry_values} FROM job
)
INSERT INTO {phases} (job_id, {phase_columns})
SELECT job.id, given.* FROM job, (VALUES {phase_rows}) AS given
RETURNING job_id, id, "index"
"""


def _save(job: Job, phases: list[Phase], event: JobEvent, entry: AuditEntry) -> bool:
    """Save new rows: a job, its phases, its first event, its line in the audit log.

    All of them, and ``job`` and ``phases`` have their keys then; or none, and False, where there
    is a job of this name or idempotency key. ``phases`` are one at least.
    """
    rows = [value for phase in phases for value in _values(phase)]
    given = [*_values(job), *_values(event), *_values(entry), *rows]
    with connection.cursor() as cursor:
        cursor.execute(_statement(len(phases)), given)
        keys: list[tuple[int, int, int]] = cursor.fetchall()
    by_index = {phase.index: phase for phase in phases}
    for job_id, key, index in keys:
        job.pk = by_index[index].job_id = job_id
        by_index[index].pk = key
    return bool(keys)


@cache
def _statement(phases: int) -> str:
    return _INSERT.format(
        jobs=Job._meta.db_table,
        job_columns=_columns(Job),
        job_values=_places(Job),
        events=JobEvent._meta.db_table,
        event_columns=_columns(JobEvent),
        event_values=_places(JobEvent),
        entries=AuditEntry._meta.db_table,
        entry_columns=_columns(AuditEntry),
        entry_values=_places(AuditEntry),
        phases=Phase._meta.db_table,
        phase_columns=_columns(Phase),
        phase_rows=", ".join([f"({_places(Phase)})"] * phases),
    )


@cache
def _fields(model: type[models.Model]) -> list[Any]:
    """Return the fields of a row without its own key and that of its job."""
    fields = model._meta.concrete_fields
    return [each for each in fields if not each.primary_key and each.attname != "job_id"]


def _columns(model: type[models.Model]) -> str:
    return ", ".join(f'"{each.column}"' for each in _fields(model))


def _places(model: type[models.Model]) -> str:
    # A value in a SELECT has no column to take its type from. Text is not cast to its length:
    # that would cut off what an INSERT refuses.
    kinds = (each.rel_db_type(connection) or "" for each in _fields(model))
    return ", ".join(f"%s::{'text' if 'char' in kind else kind}" for kind in kinds)


def _values(row: models.Model) -> list[Any]:
    return [
        each.get_db_prep_save(each.pre_save(row, add=True), connection)
        for each in _fields(type(row))
    ]
