"""What ranks of training loops report: waiting, lost time, memory, and which of them is slow."""

from typing import ClassVar

from django.db import migrations

from telemetry.migrations import _columns

_FLOATS = ("data_wait_s", "sync_s", "lost_share", "rank_spread")
_ROLLED_UP = [
    form.format(name)
    for name in ("tokens_per_s", *_FLOATS, "rank_mem_bytes")
    for form in _columns.PEAK
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("telemetry", "0014_memory_use")]
    operations: ClassVar = [
        _columns.add({
            "job_sample": [
                "tokens_per_s float8", *(f"{name} float4" for name in _FLOATS),
                "rank_mem_bytes int8", "slowest_rank int4",
            ],
            "job_minute": _ROLLED_UP,
            "job_hour": _ROLLED_UP,
        })
    ]
