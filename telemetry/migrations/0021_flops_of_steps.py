"""FLOPs that loops say their model takes in a step."""

from typing import ClassVar

from django.db import migrations

from telemetry.migrations import _columns

_ROLLED_UP = [form.format("flops_per_step") for form in _columns.MEAN]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0020_silences_of_agents")]
    operations: ClassVar = [
        _columns.add({
            "job_sample": ["flops_per_step float8"],
            "job_minute": _ROLLED_UP,
            "job_hour": _ROLLED_UP,
        })
    ]
