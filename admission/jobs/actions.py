"""Actions on jobs: each one transaction, with its line in the history and the audit log.

Those who call have looked up the job among what the user may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from admission.jobs import catalog, checks, elements, history, progress
from admission.jobs.amending import amended
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Attempt, Job, JobRevision, Phase, PhaseQuerySet
from admission.jobs.resolution import Resolved, of_element, requests_of, stored
from admission.jobs.submission import Conflict, state_of
from admission.policy.catalog import policy_in_force
from fleet import snapshot
from headroom.contracts import FieldError
from headroom.jobs import array, reading
from headroom.jobs.reading import SpecError

__all__ = [
    "amend",
    "amendment_problems",
    "cancel",
    "end",
    "hold",
    "release",
    "set_priority",
]


@transaction.atomic
def cancel(job: Job, user: User, *, why: str, now: datetime, only: str = "") -> Job:
    """End a job: phases that wait end at once, others are told to. Raises :class:`Conflict`.

    ``only``: indices of elements of an array, such as ``3,7-9``; the others go on.
    """
    job = _open(job)
    chosen = _chosen(job, only) if only else None
    what = "Cancelled" if chosen is None else f"Elements {only[:200]} cancelled"
    text = f"{what} by {user.get_username()}" + (f": {why}" if why else "")
    history.event(job.pk, history.CANCELLED, text, now).save()
    before = _phases(job)
    phases = job.phases.all()
    if chosen is not None:
        left_out = elements.leave_out(job, chosen, now)
        phases = phases.filter(element__in=chosen)
        if not left_out and not phases.open().exists():
            raise Conflict("ended", f"elements {only[:200]} are over")
    elif job.elements is not None:
        job.elements_reached = job.elements
        job.save(update_fields=["elements_reached"])
    waiting = phases.filter(state__in=Phase.PENDING)
    waiting.update(**Phase.ended(Phase.State.CANCELLED, now))
    _stop(phases, outcome=Attempt.Outcome.CANCELLED, why=text[:500])
    progress.settle(job, now)
    told = {"elements": only} if only else {}
    changed = audit.changes(before, _phases(job))
    audit.record(user, "job.cancel", job.name, why=why, **told, **changed)
    return job


@transaction.atomic
def end(
    job: Job, outcome: Attempt.Outcome, *, why: str, exit_code: int | None, now: datetime
) -> None:
    """End an interactive job that runs, as its terminal has ended. Raises :class:`Conflict`.

    ``outcome`` is the end of its attempt, ``exit_code`` that of the terminal's command.
    """
    job = _open(job)
    _stop(job.phases.all(), outcome=outcome, why=why[:500], exit_code=exit_code)
    history.event(job.pk, history.TERMINAL_ENDED, f"Ends: {why}", now, outcome=outcome.value).save()


def _stop(phases: PhaseQuerySet, **ended: Any) -> None:
    """Have what runs of ``phases`` end as is given, but for what was told to end otherwise."""
    running = phases.filter(state__in=Phase.ACTIVE)
    attempts = Attempt.objects.open().filter(phase__in=running)
    # The next cycle tells their executors.
    attempts.exclude(outcome__in=Attempt.SETTLED).update(**ended)
    running.update(state=Phase.State.STOPPING)


def _chosen(job: Job, only: str) -> frozenset[int]:
    """Return the elements that ``only`` names. Raises :class:`Conflict`."""
    if job.elements is None:
        raise Conflict("no_array", "it is no array", "cancel the whole job")
    try:
        chosen = frozenset(array.indices_of(only))
    except array.ArrayError as error:
        raise Conflict("no_such_element", str(error), error.hint) from error
    unknown = sorted(chosen - set(elements.array_of(job).indices))
    if unknown:
        some = ", ".join(map(str, unknown[:5]))
        raise Conflict(
            "no_such_element", f"it has no element {some}", f"its elements: {job.spec['array']}"
        )
    return chosen


def _phases(job: Job) -> audit.State:
    """Return what people change of a job's phases: states and holds. One query.

    Of an array it is how many of its elements are in each state.
    """
    if job.elements is not None:
        held = {"held_by": job.held_by, "hold_reason": job.hold_reason}
        return {"elements": {**elements.counts_of([job])[job.pk], **held}}
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
    hold = {"held_by": by, "hold_reason": why[:500]}
    waiting = job.phases.filter(state__in=Phase.PENDING)
    has_left = job.elements is not None and job.elements_reached < job.elements
    if has_left:
        # Its elements to come are born held.
        _set(job, hold)
    if not waiting.update(**hold) and not has_left:
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
    nobody, was_held = {"held_by": "", "hold_reason": ""}, bool(job.held_by)
    _set(job, nobody)
    if not held.update(**nobody) and not was_held:
        raise Conflict("not_held", "none of its phases is held")
    text = f"Released by {user.get_username()}"
    history.event(job.pk, history.RELEASED_HOLD, text, now).save()
    audit.record(user, "job.release", job.name, **audit.changes(before, _phases(job)))
    return job


def _set(job: Job, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        setattr(job, name, value)
    job.save(update_fields=list(values))


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
    if phase and not _waiting(job, phase):
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
    before = state_of(job)
    spec = new.resolved.spec
    job.spec, job.revision = reading.as_json(spec), job.revision + 1
    job.job_class, job.priority = spec.job_class, spec.priority
    job.save(update_fields=["spec", "revision", "job_class", "priority"])
    _rewrite(job, new.resolved)
    text = f"{new.told}, by {by}"
    history.event(job.pk, history.AMENDED, text, now, phase=phase, revision=job.revision).save()
    told = audit.changes(before, state_of(job))
    audit.record(user, "job.amend", job.name, phase=phase, change=new.told, **told)
    return job


def _waiting(job: Job, phase: str) -> bool:
    """Say whether a phase waits; of an array, whether it does of any element."""
    if job.elements is None:
        return job.phases.filter(name=phase, state__in=Phase.PENDING).exists()
    names = [each["name"] for each in job.spec["phases"]]
    name = _in_spec(job.spec, phase)
    if name not in names:
        return False
    waiting = job.phases.filter(index=names.index(name), state__in=Phase.PENDING)
    return job.elements_reached < job.elements or waiting.exists()


def _in_spec(spec: Mapping[str, Any], phase: str) -> str:
    """Return the name that the specification has for a phase of an element: all have the same."""
    return array.name_in_spec(phase) if spec.get("array") else phase


@dataclass(frozen=True)
class _Amended:
    resolved: Resolved
    told: str


def _amended(job: Job, phase: str, change: Mapping[str, Any], *, is_operator: bool) -> _Amended:
    classes = catalog.current()
    values = job.spec
    if change.get("job_class"):
        # What the old class gave its phases stays with them: the new one changes nothing else.
        values = _written_out(values, classes.get(job.job_class))
    values, told = amended(values, _in_spec(values, phase), change)
    spec = reading.convert(values)
    job_class = classes.get(spec.job_class)
    if job_class is None:
        raise SpecError([checks.unknown("class", spec.job_class, classes, "class")])
    allowed = policy_in_force().grants.allowed(spec.project, classes.values())
    if job_class.name not in {*allowed, job.job_class}:
        raise SpecError([checks.not_allowed(spec.project, job_class.name, allowed)])
    may_raise = is_operator or spec.priority <= job.priority
    resolved = Resolved(spec, job_class)
    problems = checks.problems_of(resolved, snapshot.current(), is_operator=may_raise)
    if problems:
        raise SpecError(problems)
    return _Amended(resolved, told)


def _written_out(values: dict[str, Any], job_class: SchedulingClass | None) -> dict[str, Any]:
    if job_class is None:
        return values
    resolved = Resolved(reading.convert(values), job_class)
    return reading.as_json(msgspec.structs.replace(resolved.spec, phases=resolved.terms))


def _rewrite(job: Job, resolved: Resolved) -> None:
    """Rewrite the requests of waiting phases from the specification as it is now."""
    requests = requests_of(
        resolved, name=job.name, submitted_at=job.submitted_at, user=job.submitted_by
    )
    rows = list(job.phases.filter(state__in=Phase.PENDING))
    for row in rows:
        queued_at = row.request["submitted_at"]
        request = of_element(requests[row.index], row.element, queued_at)
        row.request, row.gpus = stored(request), request.gpus
    Phase.objects.bulk_update(rows, ["request", "gpus"])


def _open(job: Job) -> Job:
    """Lock the job. Raises :class:`Conflict` where it is over."""
    locked = progress.lock(job.pk)
    if locked.state not in Job.OPEN:
        raise Conflict("ended", f"the job is over: {locked.get_state_display().lower()}")
    return locked
