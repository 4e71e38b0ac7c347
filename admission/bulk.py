"""Insert many new rows at once, by COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection, models
from psycopg.types.json import Jsonb

__all__ = ["insert"]


def insert(rows: Sequence[models.Model]) -> None:
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
