"""What still runs in a place that is being drained: whose it is, and why it is still there.

A place is empty only if it is known to be: load that no job here holds counts as well, and so do
nodes of which nobody hears.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from accounts.visibility import Visibility
from admission.allocation import open_attempts
from admission.core.allocation.allocations import Allocations, busy
from admission.core.slices import in_parts
from admission.directives.models import Directive
from admission.directives.placed import PlacedRows
from admission.directives.running import Active
from fleet.groups import count_by
from fleet.snapshot import FleetArrays
from headroom.jobs.words import counted
from policies.headroom.columns import Bools
from policies.headroom.evaluate import Headroom
from policies.scopes import Scope, nodes_in

__all__ = ["Remaining", "Still", "Why", "remaining_in"]

#: So many jobs are named in a sentence.
_NAMED = 5


class Why(enum.StrEnum):
    """Why a job is still in a place that is being drained."""

    #: it was told to end, and is about to
    ENDING = "ending"
    #: it agreed to be stopped, and has not been told yet
    NOT_TOLD = "not_told"
    #: it did not agree to be stopped
    STAYS = "stays"


@dataclass(frozen=True)
class Still:
    """A job in the place. ``key`` and ``project`` are empty where its reader may not see it."""

    key: str
    project: str
    #: of its GPUs those in the place
    gpus: int
    why: Why
    #: of one that is about to end: when it was told
    told_at: datetime | None
    #: None: it has not begun
    expected_end_at: datetime | None
    #: it was expected to have ended by now
    is_late: bool

    @property
    def job(self) -> str:
        return self.key.partition("/")[0]

    @property
    def said(self) -> str:
        """Why it is still there, in words."""
        if self.why is Why.ENDING:
            told = "" if self.told_at is None else f" at {self.told_at:%H:%M:%S} UTC"
            return f"was told to end{told}"
        if self.why is Why.NOT_TOLD:
            return "may be stopped, and has not been told yet"
        end = self.expected_end_at
        expected = "which was expected" if self.is_late else "expected"
        until = "" if end is None else f", {expected} at {end:%m-%d %H:%M} UTC"
        return f"may not be stopped, and runs to its end{until}"


@dataclass(frozen=True)
class Remaining:
    """What still runs in a place: the jobs with the most GPUs there first."""

    jobs: tuple[Still, ...]
    #: nodes on which something runs that no job here holds
    unowned: tuple[str, ...]
    #: nodes that nobody hears of: what runs there is not known
    silent: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether it is known that nothing runs there."""
        return not (self.jobs or self.unowned or self.silent)

    @property
    def said(self) -> str:
        """All of it as one line; it names no more than some jobs."""
        if self.is_empty:
            return "nothing runs there any more"
        return "; ".join([*([self._jobs_said] if self.jobs else []), *self.besides])

    @property
    def besides(self) -> list[str]:
        """What is there beside jobs, in words."""
        found = []
        if self.unowned:
            found.append(f"{_nodes(self.unowned)} at work, for no job of Headroom")
        if self.silent:
            found.append(f"{_nodes(self.silent)} silent: what runs there is not known")
        return found

    @property
    def _jobs_said(self) -> str:
        seen = [each for each in self.jobs if each.key][:_NAMED]
        said = [f"{each.key} of {each.project} {each.said}" for each in seen]
        if len(self.jobs) > len(said):
            said.append(f"{len(self.jobs) - len(said)} more")
        return f"{counted(len(self.jobs), 'job')} still there: {'; '.join(said)}"


def remaining_in(scope: Scope, headroom: Headroom, visibility: Visibility) -> Remaining:
    """Return what still runs in ``scope``. Four queries at most.

    ``headroom`` is of now. Raises :class:`~policies.scopes.UnknownScope`.
    """
    held = open_attempts.current(headroom.fleet)
    here = nodes_in(headroom.fleet, scope)
    placed = PlacedRows(held)
    there = placed.load(placed.ids[placed.on_nodes(np.flatnonzero(here))].tolist())
    return Remaining(
        jobs=tuple(_still(there, set(_names(headroom.fleet, here)), visibility, headroom.at)),
        unowned=_names(headroom.fleet, here & _unowned(headroom, held)),
        silent=_names(headroom.fleet, here & headroom.summary.nodes.stale),
    )


def _still(
    there: Sequence[Active], names: set[str], visibility: Visibility, now: float
) -> list[Still]:
    told = _told_at(each.id for each in there)
    seen = visibility.seen([each.key for each in there])
    found = [
        Still(
            key=each.phase.key if is_seen else "",
            project=each.request.project if is_seen else "",
            gpus=_gpus_on(each, names),
            why=_why(each),
            told_at=told.get(each.id),
            expected_end_at=each.phase.expected_end_at,
            is_late=_is_late(each, now),
        )
        for each, is_seen in zip(there, seen, strict=True)
    ]
    return sorted(found, key=lambda each: -each.gpus)


def _why(each: Active) -> Why:
    if each.is_ending:
        return Why.ENDING
    return Why.NOT_TOLD if each.request.preemptible else Why.STAYS


def _is_late(each: Active, now: float) -> bool:
    end = each.phase.expected_end_at
    return end is not None and end.timestamp() <= now


def _told_at(ids: Iterable[int]) -> dict[int, datetime]:
    """Return when each attempt was told to end, of those that were. One query."""
    rows = Directive.objects.live().filter(attempt__in=list(ids), kind__in=Directive.ENDING)
    return dict(rows.order_by("-issued_at").values_list("attempt", "issued_at"))


def _gpus_on(each: Active, names: set[str]) -> int:
    held = each.attempt.placement.get("gpus", {})
    return sum(len(gpus) for node, gpus in held.items() if node in names)


def _unowned(headroom: Headroom, held: Allocations) -> Bools:
    """Say on which nodes something runs that no job here holds."""
    parts = in_parts(headroom, held.gpus)
    works = busy(parts) & ~held.gpus
    return np.asarray(count_by(works, parts.fleet.gpus.node, len(headroom.fleet.nodes)) > 0)


def _names(fleet: FleetArrays, nodes: Bools) -> tuple[str, ...]:
    return tuple(fleet.nodes.names[nodes].tolist())


def _nodes(names: Sequence[str]) -> str:
    first = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{first}{more} {'is' if len(names) == 1 else 'are'}"
