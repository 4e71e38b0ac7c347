"""How much of an event's throttled time no counter tells."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0012_xid_lines")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="throttleevent",
            name="sampled_s",
            field=models.FloatField(
                db_default=0.0,
                default=0.0,
                help_text="Of that, known by the masks of readings and no counter",
            ),
        ),
    ]
