"""Read open attempts from the database, and keep their allocations as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import numpy as np
from django.db import connection

from admission.core.allocation.allocations import (
    Allocations,
    OpenAttempt,
    PlacementRows,
    allocations_of,
    placement_rows_of,
)
from admission.core.allocation.joint import Learned
from admission.core.allocation.reservation import Floats
from admission.core.request import Request, placement_from_json
from admission.core.slices import in_parts
from admission.jobs.models import Attempt, Phase
from admission.policy.catalog import policy_in_force
from fleet.cache import Cache
from fleet.slicing import holdable
from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Reservations

__all__ = [
    "PastAttempts",
    "current",
    "during",
    "fresh",
    "invalidate",
    "recheck",
    "reserved_in",
]

#: Pages and rules see what is held as it was at most so long ago, s.
_SERVES_S = 2.0
_MOVING = frozenset({Phase.State.PAUSING, Phase.State.STOPPING})


# --- Reading -------------------------------------------------------------------------------------

# Which attempts are open, and whether anything of them has changed: rows are told apart by the
# transactions that wrote them last. Most stay as they were from one cycle to the next.
_VERSIONS = """
SELECT attempt.id, attempt.xmin::text, phase.xmin::text, draw.xmin::text
FROM admission_jobs_attempt AS attempt
JOIN admission_jobs_phase AS phase ON phase.id = attempt.phase_id
LEFT JOIN admission_learned_draw AS draw ON draw.attempt_id = attempt.id
WHERE attempt.state IN ('dispatched', 'running')
ORDER BY attempt.id
"""
_FIELDS = (
    "pk", "key", "phase_id", "phase__job__project_id", "phase__state", "phase__expected_end_at",
    "dispatched_at", "started_at", "checkpoint_at", "outcome", "draw__p99_w", "draw__read_s",
    "draw__image", "draw__mean_w", "draw__high_w", "draw__deviation_w", "draw__samples",
    "phase__job__submitted_by", "phase__returns_to",
)  # fmt: skip


class _Reader:
    """The open attempts that this process has read: only those that changed are read again."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Read all of it again."""
        self._of: FleetArrays | None = None
        self._found: Allocations | None = None
        #: by attempt
        self._placed: dict[int, PlacementRows] = {}
        self._open: dict[int, tuple[tuple[Any, ...], OpenAttempt]] = {}

    def read(self, fleet: FleetArrays) -> Allocations:
        """Return the allocations of now: the same object where nothing has changed."""
        self._found = self._read(holdable(fleet))
        return self._found

    def _read(self, fleet: FleetArrays) -> Allocations:
        if self._of is not fleet:
            self._of, self._placed, self._open = fleet, {}, {}
        with connection.cursor() as cursor:
            cursor.execute(_VERSIONS)
            versions = {row[0]: row for row in cursor.fetchall()}
        known = {
            pk: found
            for pk, version in versions.items()
            if (found := self._open.get(pk)) is not None and found[0] == version
        }
        changed = [pk for pk in versions if pk not in known]
        placed = {pk: self._placed[pk] for pk in versions if pk in self._placed}
        placed |= _placed([pk for pk in changed if pk not in placed], fleet)
        for row in _rows(changed):
            # One may have been deleted, with its job, between the queries.
            if row[0] in placed:
                known[row[0]] = versions[row[0]], _open(row, placed[row[0]], fleet)
        self._placed, self._open = placed, known
        last = self._found
        is_same = last is not None and last.fleet is fleet and not changed
        if last is not None and is_same and len(known) == len(last.attempts):
            return last
        return allocations_of(fleet, [(known[pk][1], placed[pk]) for pk in versions if pk in known])


_reader = _Reader()
_allocations: Cache[Allocations] = Cache()
#: Have the next look of this process read the database.
recheck = _allocations.recheck


def invalidate() -> None:
    """Have the next look of this process read all of it again."""
    _reader.forget()
    _allocations.invalidate()


def fresh(fleet: FleetArrays) -> Allocations:
    """Return the allocations of this moment. One query, two more where something has changed.

    They are on ``fleet`` by what can be held: see ``fleet.slicing``.
    """
    return _allocations.get(partial(_reader.read, fleet), of=fleet, max_age_s=0.0)


def current(fleet: FleetArrays) -> Allocations:
    """Return the allocations of at most two seconds ago, as :func:`fresh` does."""
    return _allocations.get(partial(_reader.read, fleet), of=fleet, max_age_s=_SERVES_S)


def reserved_in(headroom: Headroom) -> Reservations:
    """Return the reservations of admitted jobs, for everybody's headroom."""
    held = current(headroom.fleet)
    return held.reserved(in_parts(headroom, held.gpus), policy_in_force().reserve).fleet


@dataclass(frozen=True, eq=False)
class PastAttempts:
    """The attempts that held GPUs at some time of a span, on the inventory of now."""

    fleet: FleetArrays
    #: each with its placement, and when it ended, Unix s; inf: it goes on
    found: Sequence[tuple[OpenAttempt, PlacementRows, float]]

    def at(self, now: float) -> Allocations:
        """Return the allocations of one moment of the span, Unix s.

        Draws are those that were read until each attempt's end.
        """
        return allocations_of(
            self.fleet,
            [
                (_as_of(attempt, now), placed)
                for attempt, placed, ended_at in self.found
                if attempt.dispatched_at <= now < ended_at
            ],
        )


def during(fleet: FleetArrays, since: float, until: float) -> PastAttempts:
    """Return the attempts that held GPUs between ``since`` and ``until``, Unix s. Three queries."""
    fleet = holdable(fleet)
    first, last = (datetime.fromtimestamp(at, UTC) for at in (since, until))
    rows = Attempt.objects.overlapping(first, last)
    ends = {
        pk: math.inf if ended is None else ended.timestamp()
        for pk, ended in rows.values_list("pk", "ended_at")
    }
    placed = _placed(list(ends), fleet)
    opened = {
        row[0]: _open(row, placed[row[0]], fleet) for row in _rows(list(ends)) if row[0] in placed
    }
    return PastAttempts(fleet, [(opened[pk], placed[pk], ends[pk]) for pk in sorted(opened)])


def _as_of(attempt: OpenAttempt, now: float) -> OpenAttempt:
    """Return an attempt as it was known at ``now``: without events that came later."""
    begun, saved = attempt.started_at, attempt.checkpoint_at
    has_begun = begun is not None and begun <= now
    started_at = begun if has_begun and begun is not None else None
    return replace(
        attempt,
        started_at=started_at,
        checkpoint_at=saved if saved is not None and saved <= now else None,
        expected_end_at=(started_at or attempt.dispatched_at) + attempt.request.walltime_s,
        is_leaving=False,
        is_running=has_begun,
    )


def _rows(ids: Sequence[int]) -> Iterable[tuple[Any, ...]]:
    return Attempt.objects.filter(pk__among=ids).order_by().values_list(*_FIELDS) if ids else ()


def _placed(ids: Sequence[int], fleet: FleetArrays) -> dict[int, PlacementRows]:
    """Read the placements of attempts, which never change. One query."""
    if not ids:
        return {}
    rows = Attempt.objects.filter(pk__among=ids).values_list("pk", "placement", "phase__request")
    return {key: _placement_rows(document, request, fleet) for key, document, request in rows}


def _placement_rows(
    document: dict[str, Any], asked: dict[str, Any], fleet: FleetArrays
) -> PlacementRows:
    request, placement = msgspec.convert(asked, Request), placement_from_json(document, fleet)
    placed = {name: at for at, name in enumerate(document["nodes"])}
    drawn = [placed[name] for name in fleet.nodes.names[list(placement.nodes)]]
    return placement_rows_of(request, placement, fleet, drawn=drawn, drawn_of=len(placed))


def _open(row: tuple[Any, ...], placed: PlacementRows, fleet: FleetArrays) -> OpenAttempt:
    pk, key, phase, project, state, ends, released, started, saved, outcome, *drawn = row
    p99_w, read_s, image, mean_w, high_w, deviation_w, samples, user, returns_to = drawn
    begun = _seconds(started) or released.timestamp()
    return OpenAttempt(
        id=pk,
        key=key,
        phase_id=phase,
        project_id=project,
        request=placed.request,
        placement=placed.placement,
        dispatched_at=released.timestamp(),
        started_at=_seconds(started),
        checkpoint_at=_seconds(saved),
        expected_end_at=_seconds(ends) or begun + placed.request.walltime_s,
        is_leaving=state in _MOVING or bool(outcome),
        is_running=state == Phase.State.RUNNING,
        drawn=placed.drawn,
        drawn_of=placed.drawn_of,
        p99_w=_drawn(p99_w, placed, np.nan),
        read_s=_drawn(read_s, placed, 0.0),
        kind=(project, image or ""),
        learned=Learned(
            mean_w=_drawn(mean_w, placed, np.nan),
            high_w=_drawn(high_w, placed, np.nan),
            deviation_w=_drawn(deviation_w, placed, np.nan),
            samples=_drawn(samples, placed, 0.0),
        ),
        user=user,
        returns_to=placement_from_json(returns_to, fleet) if returns_to else None,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _drawn(values: list[float] | None, placed: PlacementRows, unknown: float) -> Floats:
    # Rows from before something was learned hold nothing of it.
    if not values:
        return np.full(len(placed.drawn), unknown)
    return np.array(values, dtype=np.float64)[placed.drawn]
