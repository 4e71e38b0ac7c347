"""Writes of many rows at once: locks on phases that wait, and inserts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from django.db import connection, models
from psycopg.types.json import Jsonb

__all__ = ["SeenPhase", "add", "lock"]

# What somebody is at work on is left to the next cycle: nothing waits for anybody, so that nobody
# waits in a circle. The lock of the job is that of whoever changes it or its phases, and events
# refer to it.
_LOCK = """
SELECT phase.id
FROM unnest(%s::bigint[], %s::bigint[]) AS seen (id, version)
JOIN admission_jobs_phase AS phase USING (id)
JOIN admission_jobs_job AS job ON job.id = phase.job_id
WHERE phase.xmin::text::bigint = seen.version
FOR NO KEY UPDATE OF phase, job SKIP LOCKED
"""


class SeenPhase(Protocol):
    """A phase as somebody saw it. ``version`` changes whenever its row does."""

    @property
    def id(self) -> int: ...
    @property
    def version(self) -> int: ...


def lock(rows: Sequence[SeenPhase]) -> set[int]:
    """Lock phases and their jobs until the transaction ends; return the ids that it got.

    Left out are those that have changed since they were seen, or that somebody is at work on.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [[row.id for row in rows], [row.version for row in rows]])
        return {pk for (pk,) in cursor.fetchall()}


def add(rows: Sequence[models.Model]) -> None:
    """Insert new rows of one model, and give them their keys. Two statements, in a transaction.

    By COPY: to have the ORM write hundreds costs as much as to decide on them. Fields are written
    as they are: those of models here are of plain types, texts, times, lists of numbers and JSON.
    """
    if not rows:
        return
    table, fields = rows[0]._meta.db_table, rows[0]._meta.concrete_fields
    columns = ", ".join(f'"{field.column}"' for field in fields)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)",
            [table, len(rows)],
        )
        for row, (key,) in zip(rows, cursor.fetchall(), strict=True):
            row.pk = key
        with cursor.copy(f'COPY "{table}" ({columns}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row([_value(field, row) for field in fields])


def _value(field: models.Field[Any, Any], row: models.Model) -> Any:
    value = getattr(row, field.attname)
    return Jsonb(value) if isinstance(field, models.JSONField) else value
