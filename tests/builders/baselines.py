"""Hours of gangs as baselines keep them, as if they were computed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from admission.baselines.models import GangHour

__all__ = ["write_gang_hours"]


def write_gang_hours(last: datetime, *power_w: float, **given: Any) -> list[GangHour]:
    """Keep an hour of one attempt for each of ``power_w``, ``last`` being that of the last."""
    fields = {
        "site": "oslo", "rack": "A01", "project": "vision", "phase": "train", "attempt_id": 1,
        "causes": [], **given,
    }  # fmt: skip
    hours = [last - timedelta(hours=before) for before in reversed(range(len(power_w)))]
    return GangHour.objects.bulk_create(
        GangHour(hour=hour, power_w=drawn, **fields)
        for hour, drawn in zip(hours, power_w, strict=True)
    )
