"""The scheduling classes in force: the built-in ones, replaced by those of operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import connection

from accounts.models import User
from accounts.roles import Capability
from admission.core.policy import AdmissionPolicy
from admission.core.sharing import Stated
from admission.jobs import classes, resolution
from admission.jobs.classes import SchedulingClass
from admission.jobs.limits import Holder, limits_of, member_of
from admission.jobs.models import ClassVersion, Phase, Project, UserLimits
from admission.policy.reading import compiled
from policies.documents.life import Kind, Refused
from policies.documents.models import States

__all__ = ["CLASSES", "Admitted", "as_json", "current", "for_submission", "for_submissions"]


def current() -> dict[str, SchedulingClass]:
    """Return all classes by name. One query."""
    return _with_built_in(ClassVersion.objects.active().values_list("text", flat=True))


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
        SELECT text FROM admission_jobs_classversion WHERE state = 'active' ORDER BY name
    ),
    (SELECT text FROM admission_policy_admissionpolicyversion WHERE state = 'active')
FROM unnest(%s::text[], %s::bool[], %s::bigint[])
    WITH ORDINALITY AS given (name, is_operator, user_id, place)
LEFT JOIN admission_jobs_project AS project
    ON project.name = given.name AND (given.is_operator OR EXISTS (
        SELECT FROM admission_jobs_project_members AS member
        WHERE member.project_id = project.id AND member.user_id = given.user_id
    ))
LEFT JOIN admission_jobs_userlimits AS own ON own.user_id = given.user_id
ORDER BY place
"""
_LIMITS = ("max_pending_jobs", "max_pending_phases", "max_phases_per_job", "submissions_per_s")


@dataclass(frozen=True)
class Admitted:
    """The terms of a submission: its project, None where there is none, its classes and limits."""

    project: Project | None
    classes: dict[str, SchedulingClass]
    #: the names of those that the project may use
    allowed: frozenset[str] = frozenset()
    holders: tuple[Holder, ...] = ()


def for_submission(user: User, project: str) -> Admitted:
    """Return a project of ``Project.objects.open_to(user)``, all classes, the limits. One query.

    Operators are held to the limits of projects alone: they set them.
    """
    if not user.can(Capability.SUBMIT_JOBS):
        return Admitted(None, current())
    return for_submissions([(user, project)])[0]


def for_submissions(asked: Sequence[tuple[User, str]]) -> list[Admitted]:
    """Return the terms of each user, who may submit jobs, and project. One query."""
    given: list[list[str] | list[bool] | list[int]] = [
        [project for _, project in asked],
        [user.can(Capability.EDIT_POLICIES) for user, _ in asked],
        [user.pk for user, _ in asked],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_FOR_SUBMISSION, given)
        rows = cursor.fetchall()
    return [_admitted(user, project, row) for (user, project), row in zip(asked, rows, strict=True)]


def _admitted(user: User, project: str, row: tuple[Any, ...]) -> Admitted:
    key, *values, texts, policy = row
    classes = _with_built_in(texts)
    in_force = (None if policy is None else compiled(policy)) or AdmissionPolicy()
    allowed = in_force.grants.allowed(project, classes.values())
    if key is None:
        return Admitted(None, classes, allowed)
    found = Project(pk=key, name=project, **dict(zip(_LIMITS, values[:4], strict=True)))
    own = UserLimits(**dict(zip(_LIMITS, values[4:], strict=True)))
    of_project = Holder("project", key, project, limits_of(found, "project"))
    of_user = Holder("user", user.pk, user.get_username(), limits_of(own, "user"))
    if user.can(Capability.EDIT_POLICIES):
        return Admitted(found, classes, allowed, (of_project,))
    stated = in_force.shares.projects.get(project, Stated()).per_user.of(user.get_username())
    in_project = member_of(key, project, user.pk, user.get_username(), stated)
    return Admitted(found, classes, allowed, (of_user, in_project, of_project))


def as_json(job_class: SchedulingClass) -> dict[str, Any]:
    """Return all fields of a class as plain values; of its defaults those that it gives."""
    return {
        **msgspec.structs.asdict(job_class),
        "defaults": msgspec.to_builtins(job_class.defaults),
    }


def _in_force(version: ClassVersion, was: str, retired: list[ClassVersion]) -> None:  # noqa: ARG001 - the kind names them
    _rewrite_requests(classes.parse(version.text))


def _may_retire(version: ClassVersion) -> None:
    """Refuse to leave jobs without a class."""
    if version.state == States.ACTIVE and version.name not in classes.built_in():
        raise Refused(
            f"no built-in class takes the place of {version.name}",
            hint="activate a version with max_running: 0 to have no more of its jobs begin",
        )


def _back_to_built_in(version: ClassVersion, was: str) -> None:
    if was == States.ACTIVE:
        _rewrite_requests(classes.built_in()[version.name])


CLASSES = Kind(
    noun="class",
    model=ClassVersion,
    name_of=lambda text: classes.parse(text).name,
    promoted=_in_force,
    may_retire=_may_retire,
    retired=_back_to_built_in,
)


def _rewrite_requests(job_class: SchedulingClass) -> None:
    """Rewrite the requests of waiting phases from the class as it is now."""
    waiting = Phase.objects.pending().filter(job__job_class=job_class.name)
    rows = list(waiting.select_related("job__project").select_for_update(of=("self",)))
    for row in rows:
        row.request = resolution.stored(resolution.made_for(row, {job_class.name: job_class}))
    Phase.objects.bulk_update(rows, ["request"], batch_size=500)
