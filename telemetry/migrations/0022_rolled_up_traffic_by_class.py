"""What links have sent of each class of traffic, by the minute and by the hour."""

from typing import ClassVar

from django.db import migrations

from telemetry.migrations import _columns

_CLASSES = ("control", "collective", "checkpoint", "data", "artifact", "log", "operator")
_ROLLED_UP = [
    form.format(f"tx_{name}_bytes_per_s") for name in _CLASSES for form in _columns.PEAK
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0021_flops_of_steps")]
    operations: ClassVar = [_columns.add({"link_minute": _ROLLED_UP, "link_hour": _ROLLED_UP})]
