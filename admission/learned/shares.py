"""The past use of the fleet by projects, older use counting less, for their fair share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from admission.jobs.models import Project

__all__ = ["HALF_LIFE_S", "decayed", "note"]

#: What was used so long ago counts half.
HALF_LIFE_S = 7 * 24 * 3600.0
#: Written down so often, s.
_EVERY_S = 30.0


def decayed(project: Project, now: float) -> float:
    """Return the GPU seconds that ``project`` has used, as they count at ``now`` (Unix s)."""
    if project.used_at is None:
        return project.used_gpu_s
    ago_s = max(now - project.used_at.timestamp(), 0.0)
    return float(project.used_gpu_s * 0.5 ** (ago_s / HALF_LIFE_S))


def note(gpus: Mapping[int, int], now: float) -> int:
    """Add the present use of projects, by id, to their past use; return how many were written.

    One query, and one where it is due. What is held counts for the time since it was last noted, so
    it may be called as often as one likes.
    """
    at, due = datetime.fromtimestamp(now, UTC), []
    for project in Project.objects.all():
        since_s = now - project.used_at.timestamp() if project.used_at else 0.0
        # Also of those that hold nothing: what they hold next must not count for the time before.
        if project.used_at is None or since_s >= _EVERY_S:
            project.used_gpu_s = decayed(project, now) + gpus.get(project.pk, 0) * since_s
            project.used_at = at
            due.append(project)
    Project.objects.bulk_update(due, ["used_gpu_s", "used_at"])
    return len(due)
