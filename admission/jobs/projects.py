"""Projects: their present use, and the actions of operators on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from accounts import audit
from accounts.models import User
from admission.jobs.models import Project, UserLimits

__all__ = [
    "Use",
    "UserUse",
    "create",
    "limit_user",
    "set_memberships",
    "update",
    "user_use",
    "uses",
]


@dataclass(frozen=True)
class Use:
    """The GPUs and watts that a project holds, and how many of its phases wait and run.

    Slices of GPUs count by their shares.
    """

    gpus_held: float = 0.0
    reserved_w: float = 0.0
    waiting: int = 0
    running: int = 0


# By what one of its GPUs counts for, which requests leave out where that is one.
_HELD = """coalesce(round(sum(
        jsonb_array_length(jsonb_path_query_array(attempt.placement, '$.gpus.*[*]'))
        * coalesce((phase.request ->> 'gpu_share')::numeric, 1)), 3), 0)"""
_USES = f"""
SELECT job.project_id,
    {_HELD},
    coalesce(sum((attempt.placement ->> 'total_w')::float), 0),
    count(*) FILTER (WHERE phase.state IN ('waiting', 'queued')),
    count(attempt.id)
FROM admission_jobs_phase phase
JOIN admission_jobs_job job ON job.id = phase.job_id
LEFT JOIN admission_jobs_attempt attempt
    ON attempt.phase_id = phase.id AND attempt.state IN ('dispatched', 'running')
WHERE phase.state NOT IN ('succeeded', 'failed', 'cancelled') AND job.project_id = ANY(%s)
GROUP BY job.project_id
"""  # noqa: S608 - all of it is ours


def uses(project_ids: Iterable[int]) -> dict[int, Use]:
    """Return the present use of each of these projects, by id. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_USES, [list(project_ids)])
        return {row[0]: Use(float(row[1]), float(row[2]), row[3], row[4]) for row in cursor}


@dataclass(frozen=True)
class UserUse:
    """What one user holds of a project, and has waiting there."""

    gpus: float = 0.0
    running: int = 0
    pending_jobs: int = 0
    pending_phases: int = 0


_USER_USE = f"""
SELECT
    {_HELD},
    count(attempt.id),
    count(DISTINCT job.id) FILTER (WHERE phase.state IN ('waiting', 'queued')),
    count(*) FILTER (WHERE phase.state IN ('waiting', 'queued'))
FROM admission_jobs_phase phase
JOIN admission_jobs_job job ON job.id = phase.job_id
LEFT JOIN admission_jobs_attempt attempt
    ON attempt.phase_id = phase.id AND attempt.state IN ('dispatched', 'running')
WHERE phase.state NOT IN ('succeeded', 'failed', 'cancelled')
    AND job.state IN ('queued', 'running') AND job.project_id = %s AND job.submitted_by = %s
"""  # noqa: S608 - all of it is ours


def user_use(project_id: int, user: str) -> UserUse:
    """Return the present use that a user makes of a project. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_USER_USE, [project_id, user])
        gpus, *counts = cursor.fetchone()
        return UserUse(float(gpus), *counts)


@transaction.atomic
def create(user: User, *, members: Iterable[User] = (), **fields: Any) -> Project:
    """Add a project."""
    project = Project.objects.create(**fields)
    project.members.set(members)
    told = audit.changes(None, audit.state(project, "members"))
    audit.record(user, "project.create", project.name, **told)
    return project


@transaction.atomic
def update(
    user: User, project: Project, *, members: Iterable[User] | None = None, **fields: Any
) -> Project:
    """Change a project; ``members`` are all that it has from then on."""
    before = audit.state(project, "members")
    for name, value in fields.items():
        setattr(project, name, value)
    if fields:
        project.save(update_fields=list(fields))
    if members is not None:
        project.members.set(members)
    told = audit.changes(before, audit.state(project, "members"))
    audit.record(user, "project.update", project.name, **told)
    return project


@transaction.atomic
def set_memberships(actor: User, user: User, wanted: Iterable[Project]) -> None:
    """Make ``user`` a member of ``wanted`` and, by hand, of no other project.

    Memberships that groups of the identity provider give are theirs to take back, and stay. Each
    project that changes has its entry in the audit log.
    """
    given = Project.objects.filter(pk__in=user.group_memberships.values("project_id"))
    held, new = set(user.projects.all()), set(wanted)
    for project in sorted((held ^ new) - (held & set(given)), key=lambda each: each.pk):
        before = audit.state(project, "members")
        if project in new:
            project.members.add(user)
        else:
            project.members.remove(user)
        told = audit.changes(before, audit.state(project, "members"))
        audit.record(actor, "project.update", project.name, **told)


@transaction.atomic
def limit_user(user: User, row: UserLimits, **fields: Any) -> None:
    """Change the submission limits of a user."""
    before = None if row.pk is None else audit.state(row)
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()
    told = audit.changes(before, audit.state(row))
    audit.record(user, "user.limit", row.user.get_username(), **told)
