"""Actions of people on jobs: each one transaction, with a line in the history and the audit log.

Those who call have looked up the job among what the user may change.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction

from accounts import audit
from accounts.models import AuditEntry, User
from accounts.roles import Capability
from admission.core.request import Request
from admission.jobs import catalog, checks, history, inserting, limits, progress
from admission.jobs.amending import amended
from admission.jobs.classes import SchedulingClass
from admission.jobs.limits import Holder, OverLimit
from admission.jobs.models import Attempt, Job, JobEvent, JobRevision, Phase, Project
from admission.jobs.requests import made_for, requests_of, stored
from admission.jobs.terms import terms_of
from admission.policy.catalog import policy_in_force
from fleet import snapshot
from headroom.contracts import FieldError
from headroom.jobs import reading
from headroom.jobs.reading import SpecError
from headroom.jobs.spec import JobSpec, PhaseSpec

__all__ = [
    "Conflict",
    "OverLimit",
    "Prepared",
    "SpecError",
    "Submitted",
    "amend",
    "amendment_problems",
    "cancel",
    "hold",
    "prepare",
    "release",
    "set_priority",
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


# --- Submitting -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A checked specification that is not written yet. Requests are those of its phases."""

    spec: JobSpec
    name: str
    project: Project
    job_class: SchedulingClass
    requests: list[Request]
    holders: tuple[Holder, ...]


@dataclass(frozen=True)
class Submitted:
    """A submitted job with its phases; not ``created`` where the same submission came before."""

    job: Job
    phases: list[Phase]
    created: bool


def prepare(spec: JobSpec, user: User, now: datetime) -> Prepared:
    """Check a specification on the server. One query, and another where the inventory is old.

    Raises :class:`SpecError`, and :class:`OverLimit` where it has more phases than a job may have.
    """
    admitted = catalog.for_submission(user, spec.project)
    project, classes = admitted.project, admitted.classes
    job_class = classes.get(spec.job_class)
    problems = []
    if project is None:
        mine = Project.objects.open_to(user).values_list("name", flat=True)
        problems.append(checks.unknown("project", spec.project, mine, "project"))
    if job_class is None:
        problems.append(checks.unknown("class", spec.job_class, classes, "class"))
    elif admitted.allowed is not None and spec.job_class not in admitted.allowed:
        problems.append(checks.not_allowed(spec.project, spec.job_class, admitted.allowed))
    else:
        problems += checks.problems_of(
            spec, job_class, snapshot.current(), is_operator=user.can(Capability.EDIT_POLICIES)
        )
    if project is None or job_class is None or problems:
        raise SpecError(problems)
    limits.check_size(admitted.holders, len(spec.phases))
    name = spec.name or f"{spec.project}-{''.join(secrets.choice(_LETTERS) for _ in range(8))}"
    requests = requests_of(spec, job_class, name=name, submitted_at=now)
    return Prepared(spec, name, project, job_class, requests, admitted.holders)


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
    prepared = prepare(spec, user, now)
    job = _new_job(prepared, user, now, idempotency_key)
    pairs = zip(spec.phases, prepared.requests, strict=True)
    phases = [_phase(job, index, *pair, now) for index, pair in enumerate(pairs)]
    told = history.event(0, history.SUBMITTED, f"Submitted by {job.submitted_by}", now)
    of_job = {"project": spec.project, "job_class": spec.job_class}
    changed = audit.changes(None, _state_of(job))
    entry = audit.entry(user, "job.submit", job.name, **of_job, **changed)
    try:
        with transaction.atomic():
            is_new = _insert(prepared, job, phases, told, entry)
    except limits.OverLimit:
        # What was taken before was counted then.
        if not idempotency_key or not _has_earlier(user, idempotency_key):
            raise
        is_new = False
    if is_new:
        return Submitted(job, phases, created=True)
    job = _earlier(prepared, user, idempotency_key)
    return Submitted(job, list(job.phases.all()), created=False)


def _insert(
    prepared: Prepared, job: Job, phases: list[Phase], told: JobEvent, entry: AuditEntry
) -> bool:
    limits.charge(prepared.holders)
    limits.check(prepared.holders, job.submitted_by, prepared.project.pk, len(phases))
    return inserting.insert(job, phases, told, entry)


def _has_earlier(user: User, idempotency_key: str) -> bool:
    return Job.objects.filter(
        submitted_by=user.get_username(), idempotency_key=idempotency_key
    ).exists()


def _new_job(prepared: Prepared, user: User, now: datetime, idempotency_key: str) -> Job:
    spec = prepared.spec
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
    )


def _phase(job: Job, index: int, phase: PhaseSpec, request: Request, now: datetime) -> Phase:
    return Phase(
        job=job,
        name=phase.name,
        index=index,
        needs=phase.needs,
        state=Phase.State.WAITING if phase.needs else Phase.State.QUEUED,
        request=stored(request),
        gpus=phase.gang.gpus,
        queued_at=None if phase.needs else now,
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
        and earlier.spec != reading.as_json(prepared.spec)
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


# --- While it is there ----------------------------------------------------------------------------


@transaction.atomic
def cancel(job: Job, user: User, *, why: str, now: datetime) -> Job:
    """End a job: phases that wait end at once, others are told to. Raises :class:`Conflict`."""
    job = _open(job)
    text = f"Cancelled by {user.get_username()}" + (f": {why}" if why else "")
    history.event(job.pk, history.CANCELLED, text, now).save()
    before = _phases(job)
    over = {"state": Phase.State.CANCELLED, "ended_at": now, "reason": "", "reason_since": None}
    job.phases.filter(state__in=Phase.PENDING).update(**over)
    # The next cycle tells their executors.
    stopped = Attempt.objects.open().filter(phase__job=job)
    stopped.update(outcome=Attempt.Outcome.CANCELLED, why=text[:500])
    job.phases.filter(state__in=Phase.ACTIVE).update(state=Phase.State.STOPPING)
    progress.settle(job, now)
    audit.record(user, "job.cancel", job.name, why=why, **audit.changes(before, _phases(job)))
    return job


def _state_of(job: Job) -> audit.State:
    """Return a job with a digest for its specification, whose texts the revisions keep."""
    digest = hashlib.sha256(msgspec.json.encode(job.spec, order="sorted")).hexdigest()
    return {**audit.state(job), "spec": f"sha256:{digest}"}


def _phases(job: Job) -> audit.State:
    """Return the fields of a job's phases that people change: states and holds. One query."""
    return {
        f"phase {each.name}": {
            "state": each.state, "held_by": each.held_by, "hold_reason": each.hold_reason
        }
        for each in job.phases.order_by("index")
    }  # fmt: skip


@transaction.atomic
def hold(job: Job, user: User, *, why: str, now: datetime) -> Job:
    """Let none of its phases begin until it is released. Running ones go on."""
    job = _open(job)
    by = user.get_username()
    before = _phases(job)
    waiting = job.phases.filter(state__in=Phase.PENDING)
    if not waiting.update(held_by=by, hold_reason=why[:500]):
        raise Conflict("nothing_waits", "none of its phases waits to begin", "cancel it instead")
    text = f"Held by {by}" + (f": {why}" if why else "")
    history.event(job.pk, history.HELD, text, now).save()
    audit.record(user, "job.hold", job.name, why=why, **audit.changes(before, _phases(job)))
    return job


@transaction.atomic
def release(job: Job, user: User, *, now: datetime) -> Job:
    """Let its phases begin again. Raises :class:`Conflict` where none is held."""
    job = _open(job)
    before = _phases(job)
    held = job.phases.exclude(held_by="")
    if not held.update(held_by="", hold_reason=""):
        raise Conflict("not_held", "none of its phases is held")
    text = f"Released by {user.get_username()}"
    history.event(job.pk, history.RELEASED_HOLD, text, now).save()
    audit.record(user, "job.release", job.name, **audit.changes(before, _phases(job)))
    return job


def set_priority(job: Job, user: User, priority: int, *, now: datetime) -> Job:
    """Give it another priority. Raises :class:`SpecError`, :class:`Conflict`."""
    return _changed(job, user, {"priority": priority}, now=now)


def amend(job: Job, phase: str, change: Mapping[str, Any], user: User, *, now: datetime) -> Job:
    """Change the request of a waiting phase; ``change`` is as in a counterfactual.

    The specification before it is kept as a revision. Raises :class:`SpecError` and
    :class:`Conflict`.
    """
    return _changed(job, user, change, phase=phase, now=now)


def amendment_problems(job: Job, phase: str, change: Mapping[str, Any]) -> list[FieldError]:
    """Return why :func:`amend` would refuse ``change`` of an operator."""
    try:
        _amended(job, phase, change, is_operator=True)
    except SpecError as error:
        return error.problems
    return []


@transaction.atomic
def _changed(
    job: Job, user: User, change: Mapping[str, Any], *, phase: str = "", now: datetime
) -> Job:
    job = _open(job)
    if phase and not job.phases.filter(name=phase, state__in=Phase.PENDING).exists():
        raise Conflict("not_waiting", f"phase {phase!r} does not wait to begin")
    new = _amended(job, phase, change, is_operator=user.can(Capability.EDIT_POLICIES))
    by = user.get_username()
    JobRevision.objects.create(
        job=job,
        number=job.revision,
        spec=job.spec,
        replaced_at=now,
        replaced_by=by,
        change=new.told[:500],
    )
    before = _state_of(job)
    job.spec, job.revision = reading.as_json(new.spec), job.revision + 1
    job.job_class, job.priority = new.spec.job_class, new.spec.priority
    job.save(update_fields=["spec", "revision", "job_class", "priority"])
    _rewrite(job, new.job_class)
    text = f"{new.told}, by {by}"
    history.event(job.pk, history.AMENDED, text, now, phase=phase, revision=job.revision).save()
    told = audit.changes(before, _state_of(job))
    audit.record(user, "job.amend", job.name, phase=phase, change=new.told, **told)
    return job


@dataclass(frozen=True)
class _Amended:
    spec: JobSpec
    job_class: SchedulingClass
    told: str


def _amended(job: Job, phase: str, change: Mapping[str, Any], *, is_operator: bool) -> _Amended:
    classes = catalog.current()
    values = job.spec
    if change.get("job_class"):
        # What the old class gave its phases stays with them: the new one changes nothing else.
        values = _written_out(values, classes.get(job.job_class))
    values, told = amended(values, phase, change)
    spec = reading.convert(values)
    job_class = classes.get(spec.job_class)
    if job_class is None:
        raise SpecError([checks.unknown("class", spec.job_class, classes, "class")])
    allowed = policy_in_force().classes_of.get(spec.project)
    if allowed is not None and job_class.name not in {*allowed, job.job_class}:
        raise SpecError([checks.not_allowed(spec.project, job_class.name, allowed)])
    may_raise = is_operator or spec.priority <= job.priority
    problems = checks.problems_of(spec, job_class, snapshot.current(), is_operator=may_raise)
    if problems:
        raise SpecError(problems)
    return _Amended(spec, job_class, told)


def _written_out(values: dict[str, Any], job_class: SchedulingClass | None) -> dict[str, Any]:
    spec = reading.convert(values)
    if job_class is None:
        return values
    phases = [terms_of(phase, job_class) for phase in spec.phases]
    return reading.as_json(msgspec.structs.replace(spec, phases=phases))


def _rewrite(job: Job, job_class: SchedulingClass) -> None:
    """Rewrite the requests of waiting phases from the specification as it is now."""
    rows: list[Phase] = []
    for row in job.phases.filter(state__in=Phase.PENDING):
        row.job = job
        request = made_for(row, {job_class.name: job_class})
        row.request, row.gpus = stored(request), request.gpus
        rows.append(row)
    Phase.objects.bulk_update(rows, ["request", "gpus"])


def _open(job: Job) -> Job:
    """Lock the job. Raises :class:`Conflict` where it is over."""
    locked = progress.lock(job.pk)
    if locked.state not in Job.OPEN:
        raise Conflict("ended", f"the job is over: {locked.get_state_display().lower()}")
    return locked
