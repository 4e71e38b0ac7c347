"""Consequences of an outage as a reader may see them: names of others' jobs are counted only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from accounts.visibility import Visibility
from admission.core.outage import Consequences
from policies.scopes import ScopeKind

__all__ = ["MOST", "not_known", "told"]

#: So many jobs of each list are named; more are counted.
MOST = 100


def told(found: Consequences, visibility: Visibility) -> dict[str, Any]:
    """Return consequences as JSON. One query where the reader does not see all jobs.

    Lists have at most :data:`MOST` entries, those that are hit most first, and ``…_count`` counts
    all. A cap of now is null where there is none.
    """
    hit = _named([each.key for each in found.hit[:MOST]], visibility)
    slowed = _named([each.key for each in found.slowed[:MOST]], visibility)
    relying = _named([each.key for each in found.relying[:MOST]], visibility)
    moving = _named([each.job for each in found.moves[:MOST]], visibility)
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
        "relying_count": len(found.relying),
        "relying": [
            {
                "key": key,
                "gpus": each.gpus,
                "uses": [use.value for use in each.uses],
                "reserved": each.reserved,
                "unit": "byte/s" if found.scope.kind is ScopeKind.STORAGE else "bit/s",
                "another_way": each.another_way,
                "elsewhere": [{"site": site, "step": step} for site, step in each.elsewhere],
            }
            for key, each in zip(relying, found.relying, strict=False)
        ],
        "moves_count": len(found.moves),
        "moves": [
            {
                "job": job,
                "was": each.was.value,
                "state": each.state.value,
                "after_s": each.after_s,
                "why": each.why,
                "stopped": _named(each.stopped, visibility),
            }
            for job, each in zip(moving, found.moves, strict=False)
        ],
        "not_known": list(not_known(found.scope.kind)),
    }


def not_known(kind: ScopeKind) -> tuple[str, ...]:
    """Return what nobody can say of the outage of a thing of a kind, in sentences."""
    later = "What waits in the queue, and the hours after, are not looked at."
    if kind is ScopeKind.LINK:
        return (
            "Whether a training loop waits, goes on by another link or fails is the loop's and its"
            " library's matter: no directive follows from a link as such. One that fails is"
            " started again as its restart policy says.",
            "What a job sends is known as far as it declares it.",
            later,
        )
    if kind is ScopeKind.STORAGE:
        return (
            "Whether a loop waits for its reads and writes or fails is not known: no directive"
            " follows from an endpoint as such. Checkpoints are not written meanwhile, so that"
            " work since the last one is at risk.",
            "No reading says who uses an endpoint: jobs are told by where they were placed.",
            later,
        )
    return (later,)


def _named(keys: Sequence[str], visibility: Visibility) -> list[str]:
    return visibility.shown(list(keys))
