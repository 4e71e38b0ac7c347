"""What ranks of training loops report: waiting, lost time, memory, and which of them is slow."""

from typing import ClassVar

from django.db import migrations

_FLOATS = ("data_wait_s", "sync_s", "lost_share", "rank_spread")
_ROLLED_UP = [
    form.format(name)
    for name in ("tokens_per_s", *_FLOATS, "rank_mem_bytes")
    for form in ("{0}_n int4", "{0} float4", "{0}_max float4")
]
#: Each table, and what it gets. Adding a column that may be null touches no row.
_TABLES = {
    "job_sample": [
        "tokens_per_s float8", *(f"{name} float4" for name in _FLOATS),
        "rank_mem_bytes int8", "slowest_rank int4",
    ],
    "job_minute": _ROLLED_UP,
    "job_hour": _ROLLED_UP,
}


def _alter(table: str, verb: str) -> str:
    parts = [f"{verb} {column if verb.startswith('ADD') else column.split()[0]}"
             for column in _TABLES[table]]
    return f"ALTER TABLE {{}} {', '.join(parts)}"


def _all(verb: str) -> str:
    """Return statements for the tables, and for partitions of theirs on their way elsewhere."""
    own = ";\n".join(_alter(table, verb).format(table) for table in _TABLES)
    moving = "\n".join(
        f"""
        FOR moving IN SELECT relation FROM telemetry_detachedpartition WHERE "table" = '{table}'
        LOOP EXECUTE format('{_alter(table, verb).format("%I")}', moving); END LOOP;"""
        for table in _TABLES
    )
    return f"{own};\nDO $$ DECLARE moving text; BEGIN {moving}\nEND $$;"


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0014_memory_use")]
    operations: ClassVar = [
        migrations.RunSQL(_all("ADD COLUMN"), _all("DROP COLUMN IF EXISTS")),
    ]
