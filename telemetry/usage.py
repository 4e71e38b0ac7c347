"""The size of each table, in Postgres and in the cold tier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import Max, Min, Sum

from telemetry import tiers
from telemetry.cold.models import ColdFile
from telemetry.samples import existing_partitions

# Rows as the last ANALYZE or autovacuum has counted them: -1 where none has.
_IN_POSTGRES = """
SELECT coalesce(sum(greatest(child.reltuples, 0)), 0)::int8,
       coalesce(sum(pg_relation_size(child.oid) + pg_indexes_size(child.oid)), 0)::int8
FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = %s::regclass
"""


@dataclass(frozen=True)
class Usage:
    """Rows and bytes of one table in one place. ``rows`` of Postgres are an estimate."""

    table: str
    is_cold: bool
    rows: int
    bytes: int
    oldest: datetime | None
    newest: datetime | None


def usage() -> Iterator[Usage]:
    """Yield the size of every table in each place in which it has rows."""
    for kept in tiers.kept():
        yield from (each for each in (_hot(kept), _cold(kept)) if each.bytes)


def _hot(kept: tiers.Kept) -> Usage:
    with connection.cursor() as cursor:
        cursor.execute(_IN_POSTGRES, [kept.table.name])
        rows, size = cursor.fetchone()
        partitions = existing_partitions(cursor.cursor, kept.table.name)
    oldest = partitions[0].start if partitions else None
    newest = partitions[-1].end if partitions else None
    return Usage(kept.table.name, False, rows, size, oldest, newest)


def _cold(kept: tiers.Kept) -> Usage:
    found = ColdFile.objects.filter(table=kept.table.name).aggregate(
        total=Sum("rows"), size=Sum("bytes"), oldest=Min("start"), newest=Max("end")
    )
    rows, size = found["total"] or 0, found["size"] or 0
    return Usage(kept.table.name, True, rows, size, found["oldest"], found["newest"])
