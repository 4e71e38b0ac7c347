"""Take a job: check its specification, resolve it with its class, and save all of it at once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db import transaction

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from admission.core.request import Request
from admission.jobs import catalog, checks, elements, history, limits, needs
from admission.jobs.catalog import Admitted
from admission.jobs.limits import Asked, Holder, OverLimit
from admission.jobs.models import Dependency, Job, Phase, Project
from admission.jobs.resolution import Resolved, requests_of
from admission.jobs.saving import NewJob, save
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
    "Submission",
    "Submitted",
    "prepare",
    "state_of",
    "submit",
    "submit_all",
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
    user: str
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

    @property
    def asked(self) -> Asked:
        """What it asks for, to be held against limits."""
        return Asked(self.holders, self.user, self.project.pk, self.waiting)


@dataclass(frozen=True)
class Submitted:
    """A submitted job with its phases; not ``created`` where the same submission came before."""

    job: Job
    phases: Sequence[Phase]
    created: bool


def prepare(spec: JobSpec, user: User, now: datetime, *, is_new: bool = True) -> Prepared:
    """Check a specification on the server. One query, and another where the inventory is old.

    ``is_new``: it was not submitted before, so its deadline has to lie ahead.

    Raises :class:`SpecError`, and :class:`OverLimit` where it has more phases than a job may have.
    """
    admitted = catalog.for_submission(user, spec.project)
    return _prepare_on(admitted, spec, user, now, is_new=is_new)


def _prepare_on(
    admitted: Admitted, spec: JobSpec, user: User, now: datetime, *, is_new: bool = True
) -> Prepared:
    """Check a specification on terms that are read already: as :func:`prepare` does."""
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
    prepared = Prepared(
        resolved, name, project, requests, user.get_username(), admitted.holders, dependencies
    )
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
    new = _rows_of(prepared, user, now, idempotency_key)
    try:
        with transaction.atomic():
            is_new = _insert_within_limits(prepared, new)
    except OverLimit:
        # What was taken before was counted then.
        if not idempotency_key or not _has_earlier(user, idempotency_key):
            raise
        is_new = False
    if is_new:
        return Submitted(new.job, new.phases, created=True)
    job = _earlier(prepared, user, idempotency_key)
    first = Phase.objects.filter(job=job).order_by("element", "index")
    return Submitted(job, list(first[: len(prepared.requests)]), created=False)


def _rows_of(prepared: Prepared, user: User, now: datetime, idempotency_key: str) -> NewJob:
    """Return the rows of a job, to be saved."""
    spec = prepared.resolved.spec
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
    return NewJob(job, phases, told, entry)


def _insert_within_limits(prepared: Prepared, new: NewJob) -> bool:
    limits.take(prepared.asked)
    (is_new,) = save([new])
    if is_new and prepared.dependencies:
        for each in prepared.dependencies:
            each.job = new.job
            # A need without the name of a job is on a phase of its own.
            each.on_job = each.on_job if each.on else new.job
        Dependency.objects.bulk_create(prepared.dependencies)
        if prepared.array is not None:
            needs.write_each(new.job, prepared.array.indices[:1])
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


# --- Several at once ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submission:
    """A specification that somebody submits."""

    spec: JobSpec
    user: User
    at: datetime
    idempotency_key: str = ""


def submit_all(given: Sequence[Submission]) -> list[NewJob | None]:
    """Submit jobs; return the rows of each that was taken, and None of each that was left out.

    All are taken in one transaction, in which each costs less than one alone. Only what is plainly
    right is: whatever else a submission may be (refused, over a limit, a repeated one, one that
    needs other jobs) is left out, and nothing has become of it: :func:`submit` says what does.
    """
    taken: list[NewJob | None] = [None] * len(given)
    prepared = _all_prepared(given)
    while prepared:
        left_out = _insert_all(prepared)
        if not left_out:
            break
        # Nothing was written: of what is left out nothing is to be counted either.
        prepared = {place: each for place, each in prepared.items() if place not in left_out}
    for place, (_, new) in prepared.items():
        taken[place] = new
    return taken


def _all_prepared(given: Sequence[Submission]) -> dict[int, tuple[Prepared, NewJob]]:
    """Return, by place, what can be submitted without a further look. One query."""
    plain = {place: each for place, each in enumerate(given) if _is_plain(each)}
    if not plain:
        return {}
    asked = [(each.user, each.spec.project) for each in plain.values()]
    found: dict[int, tuple[Prepared, NewJob]] = {}
    names = set()
    for (place, each), admitted in zip(plain.items(), catalog.for_submissions(asked), strict=True):
        try:
            prepared = _prepare_on(admitted, each.spec, each.user, each.at)
        except (SpecError, OverLimit):
            continue
        if prepared.name in names:
            continue
        names.add(prepared.name)
        found[place] = prepared, _rows_of(prepared, each.user, each.at, each.idempotency_key)
    return found


def _is_plain(given: Submission) -> bool:
    """Say whether a submission writes the rows of its job alone, whenever it comes."""
    spec = given.spec
    waits = needs.has_any_of(spec) or spec.array is not None or spec.begin_by is not None
    return given.user.can(Capability.SUBMIT_JOBS) and not waits


def _insert_all(prepared: dict[int, tuple[Prepared, NewJob]]) -> set[int]:
    """Write all jobs down; or nothing, and return the places of those to be left out."""
    places = list(prepared)
    asked = [each.asked for each, _ in prepared.values()]
    with transaction.atomic():
        left_out = limits.take_all(asked)
        if not left_out:
            saved = save([new for _, new in prepared.values()])
            left_out = {at for at, is_new in enumerate(saved) if not is_new}
        if left_out:
            transaction.set_rollback(True)
    return {places[at] for at in left_out}
