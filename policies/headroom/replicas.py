"""How far other sites are behind with the checkpoints of the jobs that run at a site. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from fleet.groups import count_by, most_by
from policies.headroom.columns import Floats, Ints

__all__ = ["Replicas", "StoreFact", "columns", "replicas_of"]

#: Keepers tell again each 30 s. After twice that, what they have told grows old, s.
_ON_TIME_S = 60.0


@dataclass(frozen=True)
class StoreFact:
    """What a keeper has told of the checkpoints of a job in the store of one site.

    ``step``, ``saved_at`` and ``size_bytes`` are None where none counts there, ``lacking_bytes`` of
    the store at the loop. Times are Unix s.
    """

    job: str
    site_id: int
    run: str
    step: int | None
    saved_at: float | None
    size_bytes: float | None
    lacking_bytes: float | None
    told_at: float


@dataclass(frozen=True, eq=False)
class Replicas:
    """How far the site that is least behind is behind the loop of each job, as it was told.

    Arrays of one length. ``site`` is the row of that at which the job runs; NaN: no checkpoint of
    it is whole at another site. ``told_at`` is Unix s.
    """

    site: Ints
    behind_s: Floats
    behind_steps: Floats
    behind_bytes: Floats
    told_at: Floats

    @staticmethod
    def none() -> Replicas:
        """Nobody has told."""
        nothing = np.zeros(0)
        return Replicas(np.zeros(0, dtype=np.int64), nothing, nothing, nothing, nothing)


def replicas_of(facts: Iterable[StoreFact], site_rows: Mapping[int, int]) -> Replicas:
    """Return how far other sites are behind, of the jobs of which somebody has told of another.

    ``facts`` come by job; ``site_rows`` has the row of each site by its id.
    """
    found = [
        behind
        for _, told in groupby(facts, key=attrgetter("job"))
        if (behind := _behind(list(told), site_rows)) is not None
    ]
    if not found:
        return Replicas.none()
    rows = np.array(found, dtype=np.float64)
    return Replicas(rows[:, 0].astype(np.int64), *rows[:, 1:].T)


def _behind(
    told: Sequence[StoreFact], site_rows: Mapping[int, int]
) -> tuple[float, float, float, float, float] | None:
    """Return a row of :class:`Replicas` for one job."""
    at_loops = [each for each in told if each.lacking_bytes is None and each.site_id in site_rows]
    # Where it ran before nobody may have told since.
    loop = max(at_loops, key=attrgetter("told_at"), default=None)
    if loop is None or loop.saved_at is None or loop.step is None:
        return None
    others = [each for each in told if each.site_id != loop.site_id]
    if not others:
        return None
    lags = [_lag(loop, each) for each in others if each.run == loop.run]
    known = [each for each in lags if each is not None]
    best = min(known, default=(np.nan, np.nan, loop.size_bytes or 0.0))
    return (site_rows[loop.site_id], *best, loop.told_at)


def _lag(loop: StoreFact, other: StoreFact) -> tuple[float, float, float] | None:
    """Return seconds, steps and bytes by which a store is behind; None: nothing counts there."""
    if other.saved_at is None or other.step is None or loop.saved_at is None or loop.step is None:
        return None
    behind_s = loop.saved_at - other.saved_at
    if behind_s <= 0.0:
        return 0.0, 0.0, 0.0
    missing_bytes = loop.size_bytes if other.lacking_bytes is None else other.lacking_bytes
    return behind_s, max(float(loop.step - other.step), 0.0), missing_bytes or 0.0


def columns(replicas: Replicas, now: float | Floats, sites: int) -> dict[str, Any]:
    """Return the columns of sites: the worst of the jobs that run there.

    What was told is a while old while a checkpoint is being sent, and when nobody tells any more.
    Then it grows with the time: silence is never taken for being level.
    """
    unheard_s = np.maximum(now - replicas.told_at - _ON_TIME_S, 0.0)
    is_bare = np.isnan(replicas.behind_s)
    return {
        "checkpoint_lag_s": most_by(replicas.behind_s + unheard_s, replicas.site, sites),
        "checkpoint_lag_steps": most_by(replicas.behind_steps, replicas.site, sites),
        "checkpoint_lag_bytes": most_by(replicas.behind_bytes, replicas.site, sites),
        "checkpoint_bare_jobs": count_by(is_bare, replicas.site, sites),
    }
