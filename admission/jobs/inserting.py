"""A new job with all rows beside it, in one statement.

Thousands are submitted within a minute. Row by row, what is written costs more than all else that
a submission does together, here and in Postgres.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.db import connection, models

from accounts.models import AuditEntry
from admission.jobs.models import Job, JobEvent, Phase

__all__ = ["insert"]

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


def insert(job: Job, phases: list[Phase], event: JobEvent, entry: AuditEntry) -> bool:
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
    """Return the fields that a row brings along: all but its key and its job's."""
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
