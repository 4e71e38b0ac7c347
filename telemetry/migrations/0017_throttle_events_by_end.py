"""Which throttle events were going on in a span is asked for each hour: an index by their end."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies: ClassVar = [("telemetry", "0016_checkpoint_facts")]

    operations: ClassVar = [
        AddIndexConcurrently(
            model_name="throttleevent",
            index=models.Index(fields=["closed_at"], name="throttle_event_closed"),
        ),
    ]
