"""Columns of the tables that readings are in. No migration itself, as its name begins with "_"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import migrations

#: What a roll-up keeps of a field's mean, and of its mean and greatest value.
MEAN = ("{0}_n int4", "{0} float4")
PEAK = (*MEAN, "{0}_max float4")


def add(columns: Mapping[str, Sequence[str]]) -> migrations.RunSQL:
    """Add to each table its ``columns``, as ``util float4``: each may be null, so no row is touched.

    Partitions of it that are on their way elsewhere get them, too.
    """
    gone = {table: [name.split()[0] for name in names] for table, names in columns.items()}
    return migrations.RunSQL(_alter("ADD COLUMN", columns), _alter("DROP COLUMN IF EXISTS", gone))


def _alter(verb: str, columns: Mapping[str, Sequence[str]]) -> str:
    changes = {
        table: ", ".join(f"{verb} {name}" for name in names) for table, names in columns.items()
    }
    own = "\n".join(f"ALTER TABLE {table} {change};" for table, change in changes.items())
    moving = "\n".join(
        f"""
        FOR moving IN SELECT relation FROM telemetry_detachedpartition WHERE "table" = '{table}'
        LOOP EXECUTE format('ALTER TABLE %I {change}', moving); END LOOP;"""
        for table, change in changes.items()
    )
    return f"{own}\nDO $$ DECLARE moving text; BEGIN {moving}\nEND $$;"
