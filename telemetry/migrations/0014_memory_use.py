"""How busy the memory of GPUs is: the share of time, and of its bandwidth."""

from typing import ClassVar

from django.db import migrations

from telemetry.migrations import _columns

_NAMES = ("mem_util", "mem_bw_util")
_ROLLED_UP = [form.format(name) for name in _NAMES for form in _columns.PEAK]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0013_sampled_throttling")]
    operations: ClassVar = [
        _columns.add({
            "gpu_sample": [f"{name} float4" for name in _NAMES],
            "gpu_minute": _ROLLED_UP,
            "gpu_hour": _ROLLED_UP,
        })
    ]
