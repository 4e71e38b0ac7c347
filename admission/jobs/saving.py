"""Write new jobs down: all rows of all of them in one statement.

Thousands are submitted within a minute. Row by row, what is written costs more than all else that
a submission does together, here and in Postgres; and a document of many rows is made and read for
less than a statement with a place for each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from django.db import connection, models

from accounts.models import AuditEntry
from admission.jobs.models import Job, JobEvent, Phase

__all__ = ["NewJob", "save"]


@dataclass(frozen=True)
class NewJob:
    """Rows that are not saved: a job, its phases, its first event, its line in the audit log.

    There is one phase at least.
    """

    job: Job
    phases: Sequence[Phase]
    event: JobEvent
    entry: AuditEntry


# As they are given, the key of a job is its place among them.
_INSERT = """
WITH given AS (SELECT * FROM json_populate_recordset(NULL::{jobs}, %s)),
job AS (
    INSERT INTO {jobs} ({job_columns}) SELECT {job_columns} FROM given ORDER BY id
    ON CONFLICT DO NOTHING RETURNING id, name
),
placed AS (SELECT given.id AS place, job.id AS job FROM job JOIN given USING (name)),
event AS (
    INSERT INTO {events} (job_id, {event_columns}) SELECT job, {event_columns}
    FROM json_populate_recordset(NULL::{events}, %s) JOIN placed ON place = job_id
),
entry AS (
    INSERT INTO {entries} ({entry_columns}) SELECT {entry_columns}
    FROM json_populate_recordset(NULL::{entries}, %s) AS one JOIN placed ON place = one.id
    ORDER BY place
),
phase AS (
    INSERT INTO {phases} (job_id, {phase_columns}) SELECT job, {phase_columns}
    FROM json_populate_recordset(NULL::{phases}, %s) JOIN placed ON place = job_id
    RETURNING job_id, id, "index"
)
SELECT place, job, phase.id, phase."index" FROM phase JOIN placed ON job = job_id
"""


def save(new: Sequence[NewJob]) -> list[bool]:
    """Save jobs, each of another name; say of each whether it was new.

    All rows of a new one are saved, and its job and phases have their keys then. None is where
    there is a job of its name or idempotency key, also among those before it.
    """
    given = [
        [_row(each.job, id=place) for place, each in enumerate(new)],
        [_row(each.event, job_id=place) for place, each in enumerate(new)],
        [_row(each.entry, id=place) for place, each in enumerate(new)],
        [_row(row, job_id=place) for place, each in enumerate(new) for row in each.phases],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_statement(), [msgspec.json.encode(rows).decode() for rows in given])
        keys: list[tuple[int, int, int, int]] = cursor.fetchall()
    saved = [False] * len(new)
    for place, job_id, key, index in keys:
        saved[place] = True
        new[place].job.pk = job_id
        phase = next(each for each in new[place].phases if each.index == index)
        phase.pk, phase.job_id = key, job_id
    return saved


@cache
def _statement() -> str:
    models = {"job": Job, "event": JobEvent, "entry": AuditEntry, "phase": Phase}
    names = {"job": "jobs", "event": "events", "entry": "entries", "phase": "phases"}
    tables = {names[each]: model._meta.db_table for each, model in models.items()}
    columns = {f"{each}_columns": _columns(model) for each, model in models.items()}
    return _INSERT.format(**tables, **columns)


@cache
def _fields(model: type[models.Model]) -> list[Any]:
    """Return the fields of a row without its own key and that of its job."""
    fields = model._meta.concrete_fields
    return [each for each in fields if not each.primary_key and each.attname != "job_id"]


def _columns(model: type[models.Model]) -> str:
    return ", ".join(f'"{each.column}"' for each in _fields(model))


def _row(row: models.Model, **of: int) -> dict[str, Any]:
    values = {each.column: each.pre_save(row, add=True) for each in _fields(type(row))}
    return {**values, **of}
