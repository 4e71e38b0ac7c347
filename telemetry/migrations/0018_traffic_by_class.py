"""What links have sent of each class of traffic."""

from typing import ClassVar

from django.db import migrations

_CLASSES = ("control", "collective", "checkpoint", "data", "artifact", "log", "operator")
_NAMES = [f"tx_{name}_bytes_per_s" for name in _CLASSES]


def _alter(verb: str, kind: str = "") -> str:
    """Return statements for the table, and for partitions of it on their way elsewhere.

    Adding a column that may be null touches no row.
    """
    parts = ", ".join(f"{verb} {name}{kind}" for name in _NAMES)
    return f"""
        ALTER TABLE link_sample {parts};
        DO $$ DECLARE moving text; BEGIN
        FOR moving IN SELECT relation FROM telemetry_detachedpartition WHERE "table" = 'link_sample'
        LOOP EXECUTE format('ALTER TABLE %I {parts}', moving); END LOOP;
        END $$;"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0017_throttle_events_by_end")]
    operations: ClassVar = [
        migrations.RunSQL(_alter("ADD COLUMN", " float4"), _alter("DROP COLUMN IF EXISTS")),
    ]
