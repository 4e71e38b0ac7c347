"""Consequences of an outage as a reader may see them: names of others' jobs are counted only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from accounts.visibility import Visibility
from admission.core.outage import Consequences

__all__ = ["told"]

#: So many jobs of each list are named; more are counted.
MOST = 100


def told(found: Consequences, visibility: Visibility) -> dict[str, Any]:
    """Return consequences as JSON. One query where the reader does not see all jobs.

    Lists have at most :data:`MOST` entries, those that are hit most first, and ``…_count`` counts
    all. A cap of now is null where there is none.
    """
    hit = _named([each.key for each in found.hit[:MOST]], visibility)
    slowed = _named([each.key for each in found.slowed[:MOST]], visibility)
    return {
        "scope": {"kind": found.scope.kind.value, "name": found.scope.name},
        "dark": {"racks": found.dark_racks, "gpus": found.dark_gpus, "w": found.dark_w},
        "jobs_hit_count": len(found.hit),
        "jobs_hit": [
            {"key": key, "gpus": each.gpus, "dark_gpus": each.dark}
            for key, each in zip(hit, found.hit, strict=False)
        ],
        "over": [
            {
                "kind": each.scope.kind.value,
                "name": each.scope.name,
                "load_w": each.load_w,
                "budget_w": each.budget_w,
                "short_w": each.short_w,
            }
            for each in found.over
        ],
        "controller_acts": found.is_held,
        "slowed_count": len(found.slowed),
        "slowed_gpus": sum(each.gpus for each in found.slowed),
        "slowed_w": found.slowed_w,
        "slowed": [
            {
                "key": key,
                "rack": each.rack,
                "gives_way": each.kind.name.lower(),
                "gpus": each.gpus,
                "was_w": each.was_w if math.isfinite(each.was_w) else None,
                "cap_w": each.cap_w,
            }
            for key, each in zip(slowed, found.slowed, strict=False)
        ],
        "paused_count": len(found.paused),
        "paused": _named(found.paused[:MOST], visibility),
        "stopped_count": len(found.stopped),
        "stopped": _named(found.stopped[:MOST], visibility),
        "short_w": found.short_w,
    }


def _named(keys: Sequence[str], visibility: Visibility) -> list[str]:
    return visibility.shown(list(keys))
