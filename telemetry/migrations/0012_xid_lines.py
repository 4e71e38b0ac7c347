"""One row for each line of a kernel log: several may have one time, code and GPU."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0011_partitions_by_function")]

    operations: ClassVar = [
        migrations.RemoveConstraint(model_name="xidevent", name="xid_event_key"),
        migrations.AddConstraint(
            model_name="xidevent",
            constraint=models.UniqueConstraint(
                fields=("node", "ts", "xid", "gpu", "pci", "text"),
                name="xid_event_line",
                nulls_distinct=False,
            ),
        ),
    ]
