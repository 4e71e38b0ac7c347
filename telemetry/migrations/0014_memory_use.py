"""How busy the memory of GPUs is: the share of time, and of its bandwidth."""

from typing import ClassVar

from django.db import migrations

_NAMES = ("mem_util", "mem_bw_util")
_ROLLED_UP = ("{0}_n int4", "{0} float4", "{0}_max float4")
#: Each table, and what it gets for each name. Adding a column that may be null touches no row.
_TABLES = {
    "gpu_sample": ("{0} float4",),
    "gpu_minute": _ROLLED_UP,
    "gpu_hour": _ROLLED_UP,
}


def _columns(table: str) -> list[str]:
    return [form.format(name) for name in _NAMES for form in _TABLES[table]]


def _alter(table: str, verb: str) -> str:
    parts = [f"{verb} {column if verb.startswith('ADD') else column.split()[0]}"
             for column in _columns(table)]
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
    dependencies: ClassVar = [("telemetry", "0013_sampled_throttling")]
    operations: ClassVar = [
        migrations.RunSQL(_all("ADD COLUMN"), _all("DROP COLUMN IF EXISTS")),
    ]
