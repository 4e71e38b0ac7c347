"""The scheduling classes in force: the built-in ones, and what operators put in their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection, transaction

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from admission.jobs import classes, requests
from admission.jobs.classes import SchedulingClass
from admission.jobs.limits import Holder, limits_of
from admission.jobs.models import ClassVersion, Phase, Project, UserLimits
from headroom.contracts import FieldError
from headroom.jobs.reading import SpecError

__all__ = ["Admitted", "as_json", "current", "for_submission", "newest_versions", "write"]


def newest_versions() -> list[ClassVersion]:
    """Return the version in force of each class that an operator has written."""
    return list(ClassVersion.objects.order_by("name", "-number").distinct("name"))


def current() -> dict[str, SchedulingClass]:
    """Return all classes by name. One query."""
    return _with_built_in(row.text for row in newest_versions())


def _with_built_in(texts: Iterable[str]) -> dict[str, SchedulingClass]:
    written = map(classes.parse, texts)
    return {**classes.built_in(), **{each.name: each for each in written}}


#: Through the ORM this is three queries, and costs five times as much: it is asked with each job.
_FOR_SUBMISSION = """
SELECT
    project.id, project.max_pending_jobs, project.max_pending_phases, project.max_phases_per_job,
    project.submissions_per_s,
    own.max_pending_jobs, own.max_pending_phases, own.max_phases_per_job, own.submissions_per_s,
    ARRAY(
        SELECT DISTINCT ON (name) text FROM admission_jobs_classversion
        ORDER BY name, number DESC
    )
FROM (SELECT) AS one
LEFT JOIN admission_jobs_project AS project
    ON project.name = %(name)s AND (%(is_operator)s OR EXISTS (
        SELECT FROM admission_jobs_project_members AS member
        WHERE member.project_id = project.id AND member.user_id = %(user_id)s
    ))
LEFT JOIN admission_jobs_userlimits AS own ON own.user_id = %(user_id)s
"""
_LIMITS = ("max_pending_jobs", "max_pending_phases", "max_phases_per_job", "submissions_per_s")


@dataclass(frozen=True)
class Admitted:
    """What a submission is held to: its project, None where there is none, and who is limited."""

    project: Project | None
    classes: dict[str, SchedulingClass]
    holders: tuple[Holder, ...] = ()


def for_submission(user: User, project: str) -> Admitted:
    """Return a project of ``Project.objects.open_to(user)``, all classes, the limits. One query.

    Operators are held to the limits of projects alone: they set them.
    """
    if not user.can(Capability.SUBMIT_JOBS):
        return Admitted(None, current())
    is_operator = user.can(Capability.EDIT_POLICIES)
    given: dict[str, str | bool | int] = {
        "name": project,
        "is_operator": is_operator,
        "user_id": user.pk,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FOR_SUBMISSION, given)
        key, *values, texts = cursor.fetchone()
    classes = _with_built_in(texts)
    if key is None:
        return Admitted(None, classes)
    row = Project(pk=key, name=project, **dict(zip(_LIMITS, values[:4], strict=True)))
    own = UserLimits(**dict(zip(_LIMITS, values[4:], strict=True)))
    of_project = Holder("project", key, project, limits_of(row, "project"))
    of_user = Holder("user", user.pk, user.get_username(), limits_of(own, "user"))
    return Admitted(row, classes, (of_project,) if is_operator else (of_user, of_project))


def as_json(job_class: SchedulingClass) -> dict[str, Any]:
    """Return all fields of a class as plain values; of its defaults those that it gives."""
    return {
        **msgspec.structs.asdict(job_class),
        "defaults": msgspec.to_builtins(job_class.defaults),
    }


@transaction.atomic
def write(user: User, name: str, text: str, *, now: datetime) -> ClassVersion:
    """Put a new version of a class in force, also for jobs of it that wait already.

    Raises :class:`SpecError`.
    """
    found = classes.parse(text)
    if found.name != name:
        raise SpecError([FieldError(
            code="other_name", message=f"the text is of the class {found.name!r}, not {name!r}",
            field="name", hint="a class keeps its name: write another class for another name",
        )])  # fmt: skip
    last = ClassVersion.objects.filter(name=name).order_by("-number").first()
    number = 1 if last is None else last.number + 1
    row = ClassVersion.objects.create(
        name=name, number=number, text=text, author=user.get_username(), created_at=now
    )
    told = audit.changes(None if last is None else audit.state(last), audit.state(row))
    audit.record(user, "class.write", name, number=row.number, **told)
    _rewrite_requests(found)
    return row


def _rewrite_requests(job_class: SchedulingClass) -> None:
    """Have phases that wait ask for what the class now says."""
    waiting = Phase.objects.pending().filter(job__job_class=job_class.name)
    rows = list(waiting.select_related("job__project").select_for_update(of=("self",)))
    for row in rows:
        row.request = requests.stored(requests.made_for(row, {job_class.name: job_class}))
    Phase.objects.bulk_update(rows, ["request"], batch_size=500)
