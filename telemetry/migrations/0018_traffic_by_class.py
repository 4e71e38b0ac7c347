"""What links have sent of each class of traffic."""

from typing import ClassVar

from django.db import migrations

from telemetry.migrations import _columns

_CLASSES = ("control", "collective", "checkpoint", "data", "artifact", "log", "operator")


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0017_throttle_events_by_end")]
    operations: ClassVar = [
        _columns.add({"link_sample": [f"tx_{name}_bytes_per_s float4" for name in _CLASSES]})
    ]
