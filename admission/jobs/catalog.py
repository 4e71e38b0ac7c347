"""The scheduling classes in force: the built-in ones, and what operators put in their place."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection, transaction
from django.db.models import Max

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from admission.jobs import classes, requests
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import ClassVersion, Phase, Project
from headroom.contracts import FieldError
from headroom.jobs.reading import SpecError

__all__ = ["as_json", "current", "for_submission", "newest_versions", "write"]


def newest_versions() -> list[ClassVersion]:
    """Return the version in force of each class that an operator has written."""
    return list(ClassVersion.objects.order_by("name", "-number").distinct("name"))


def current() -> dict[str, SchedulingClass]:
    """Return all classes by name. One query."""
    return _with_built_in(row.text for row in newest_versions())


def _with_built_in(texts: Iterable[str]) -> dict[str, SchedulingClass]:
    written = map(classes.parse, texts)
    return {**classes.built_in(), **{each.name: each for each in written}}


#: Through the ORM this is two queries, and costs four times as much: it is asked with each job.
_FOR_SUBMISSION = """
SELECT
    (
        SELECT project.id FROM admission_jobs_project AS project
        WHERE project.name = %(name)s AND (%(is_operator)s OR EXISTS (
            SELECT FROM admission_jobs_project_members AS member
            WHERE member.project_id = project.id AND member.user_id = %(user_id)s
        ))
    ),
    ARRAY(
        SELECT DISTINCT ON (name) text FROM admission_jobs_classversion
        ORDER BY name, number DESC
    )
"""


def for_submission(user: User, project: str) -> tuple[Project | None, dict[str, SchedulingClass]]:
    """Return a project of ``Project.objects.open_to(user)``, and all classes. One query."""
    if not user.can(Capability.SUBMIT_JOBS):
        return None, current()
    given: dict[str, str | bool | int] = {
        "name": project,
        "is_operator": user.can(Capability.EDIT_POLICIES),
        "user_id": user.pk,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FOR_SUBMISSION, given)
        (key, texts) = cursor.fetchone()
    return None if key is None else Project(pk=key, name=project), _with_built_in(texts)


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
    last = ClassVersion.objects.filter(name=name).aggregate(last=Max("number"))["last"]
    row = ClassVersion.objects.create(
        name=name, number=(last or 0) + 1, text=text, author=user.get_username(), created_at=now
    )
    audit.record(user, "class.write", name, number=row.number)
    _rewrite_requests(found)
    return row


def _rewrite_requests(job_class: SchedulingClass) -> None:
    """Have phases that wait ask for what the class now says."""
    waiting = Phase.objects.pending().filter(job__job_class=job_class.name)
    rows = list(waiting.select_related("job__project").select_for_update(of=("self",)))
    for row in rows:
        row.request = requests.stored(requests.made_for(row, {job_class.name: job_class}))
    Phase.objects.bulk_update(rows, ["request"], batch_size=500)
