"""Projects: what they hold now, and what operators do with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from accounts import audit
from accounts.models import User
from admission.jobs.models import Project, UserLimits

__all__ = ["Use", "create", "limit_user", "update", "uses"]


@dataclass(frozen=True)
class Use:
    """What a project holds, and how many of its phases wait and run."""

    gpus_held: int = 0
    reserved_w: float = 0.0
    waiting: int = 0
    running: int = 0


_USES = """
SELECT job.project_id,
    coalesce(sum(jsonb_array_length(jsonb_path_query_array(attempt.placement, '$.gpus.*[*]'))), 0),
    coalesce(sum((attempt.placement ->> 'total_w')::float), 0),
    count(*) FILTER (WHERE phase.state IN ('waiting', 'queued')),
    count(attempt.id)
FROM admission_jobs_phase phase
JOIN admission_jobs_job job ON job.id = phase.job_id
LEFT JOIN admission_jobs_attempt attempt
    ON attempt.phase_id = phase.id AND attempt.state IN ('released', 'running')
WHERE phase.state NOT IN ('succeeded', 'failed', 'cancelled') AND job.project_id = ANY(%s)
GROUP BY job.project_id
"""


def uses(project_ids: Iterable[int]) -> dict[int, Use]:
    """Return what each of these projects holds now, by id. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_USES, [list(project_ids)])
        return {row[0]: Use(int(row[1]), float(row[2]), row[3], row[4]) for row in cursor}


@transaction.atomic
def create(user: User, *, members: Iterable[User] = (), **fields: Any) -> Project:
    """Add a project."""
    project = Project.objects.create(**fields)
    project.members.set(members)
    audit.record(user, "project.create", project.name, **_told(fields, members))
    return project


@transaction.atomic
def update(
    user: User, project: Project, *, members: Iterable[User] | None = None, **fields: Any
) -> Project:
    """Change a project; ``members`` are all that it has from then on."""
    for name, value in fields.items():
        setattr(project, name, value)
    if fields:
        project.save(update_fields=list(fields))
    if members is not None:
        project.members.set(members)
    audit.record(user, "project.update", project.name, **_told(fields, members))
    return project


@transaction.atomic
def limit_user(user: User, row: UserLimits, **fields: Any) -> None:
    """Change what a user may submit."""
    before = {name: getattr(row, name) for name in fields}
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()
    audit.record(user, "user.limit", row.user.get_username(), before=before, after=fields)


def _told(fields: dict[str, Any], members: Iterable[User] | None) -> dict[str, Any]:
    named = {} if members is None else {"members": sorted(each.username for each in members)}
    return {**{name: value for name, value in fields.items() if name != "name"}, **named}
