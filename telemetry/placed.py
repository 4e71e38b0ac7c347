"""Which jobs run on which nodes, as this process last asked: who may speak for a job.

Placements are admission's, which stands above this room: it says at its start where to ask, by
:func:`provide`. Without it no job is placed anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Protocol, TypeAlias

from django.conf import settings

from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from telemetry.directory import AgentScope

__all__ = [
    "PlacedJobs",
    "are_here",
    "here",
    "invalidate",
    "job_of",
    "jobs",
    "just_placed",
    "known",
    "provide",
    "were_here",
]

#: A job that was placed, or whose grace has ended, is seen in every process within this time, s.
MAX_AGE_S = 2.0
#: At least so long lies between two looks, however many names come that are of no job, s.
_LEAST_AGE_S = 0.5

Ids: TypeAlias = frozenset[int]
_NOWHERE: tuple[Ids, Ids] = (frozenset(), frozenset())
_NO_PLACES: dict[str, tuple[Ids, Ids]] = {}


class PlacedJobs(Protocol):
    """Where placements are kept."""

    def generation(self) -> Hashable:
        """Return a value that differs after each placement and each end of one. One cheap query."""

    def placed(self) -> Iterable[tuple[str, Collection[str]]]:
        """Return jobs that run, or ended a short while ago, each with names of its nodes."""

    def ended(self, jobs: Collection[str]) -> Iterable[tuple[str, Collection[str], float]]:
        """Return attempts of ``jobs`` that are over: job, names of its nodes, end in Unix s."""

    def known(self, jobs: Collection[str]) -> set[str]:
        """Return which of ``jobs`` there are or have been."""


def job_of(name: str) -> str:
    """Return the job that ``name`` is of: training loops report as job, job/phase or attempt."""
    return name.partition("/")[0]


class _Places:
    """The nodes and sites of each placed job."""

    def __init__(self) -> None:
        self._source: PlacedJobs | None = None
        self._places: Cache[dict[str, tuple[Ids, Ids]]] = Cache(MAX_AGE_S)

    def provide(self, source: PlacedJobs | None) -> None:
        self._source = source
        self.invalidate()

    def invalidate(self) -> None:
        """Look again at the next call."""
        self._places.invalidate()

    def here(self, scope: AgentScope, names: Collection[str]) -> set[str]:
        found = self._here(scope, names, MAX_AGE_S)
        if len(found) == len(names):
            return found
        # What was placed a moment ago may not be known yet.
        return self._here(scope, names, _LEAST_AGE_S)

    def just_placed(self, scope: AgentScope, names: Collection[str]) -> set[str]:
        return self._here(scope, names, 0.0) if names else set()

    def are_here(self, scope: AgentScope, names: Collection[str]) -> bool:
        return not names or len(self._here(scope, names, MAX_AGE_S)) == len(names)

    def _here(self, scope: AgentScope, names: Collection[str], max_age_s: float) -> set[str]:
        places = self._current(max_age_s)
        return {name for name in names if _is_on(scope, places.get(job_of(name), _NOWHERE))}

    def were_here(self, scope: AgentScope, names: Collection[str], ts: float) -> set[str]:
        if self._source is None or not names:
            return set()
        latest_end = ts - settings.TELEMETRY_JOB_GRACE_S
        attempts = [
            (job, nodes)
            for job, nodes, ended_at in self._source.ended({job_of(name) for name in names})
            if ended_at >= latest_end
        ]
        places = _by_job(attempts, snapshot.current())
        return {name for name in names if _is_on(scope, places.get(job_of(name), _NOWHERE))}

    def jobs(self) -> Collection[str]:
        return self._current(MAX_AGE_S)

    def known(self, names: Collection[str]) -> set[str]:
        if self._source is None or not names:
            return set()
        jobs = self._source.known({job_of(name) for name in names})
        return {name for name in names if job_of(name) in jobs}

    def _current(self, max_age_s: float) -> dict[str, tuple[Ids, Ids]]:
        source = self._source
        if source is None:
            return _NO_PLACES
        return self._places.get(
            lambda: _by_job(source.placed(), snapshot.current()),
            version=lambda: (source.generation(), snapshot.current().generation),
            max_age_s=max_age_s,
        )


def _by_job(
    attempts: Iterable[tuple[str, Collection[str]]], fleet: FleetArrays
) -> dict[str, tuple[Ids, Ids]]:
    """Return the nodes and sites of each job, of which there may be several attempts."""
    rows = fleet.nodes.index_by_name
    site_ids, rack_sites = fleet.sites.ids, fleet.racks.site
    nodes: dict[str, set[int]] = {}
    sites: dict[str, set[int]] = {}
    for job, names in attempts:
        found = [rows[name] for name in names if name in rows]
        nodes.setdefault(job, set()).update(fleet.nodes.ids[found].tolist())
        at = site_ids[rack_sites[fleet.nodes.rack[found]]].tolist()
        sites.setdefault(job, set()).update(at)
    return {job: (frozenset(nodes[job]), frozenset(sites[job])) for job in nodes}


def _is_on(scope: AgentScope, places: tuple[Ids, Ids]) -> bool:
    nodes, sites = places
    return not (scope.node_ids.isdisjoint(nodes) and scope.site_ids.isdisjoint(sites))


_places = _Places()
provide = _places.provide
invalidate = _places.invalidate


def here(scope: AgentScope, names: Collection[str]) -> set[str]:
    """Return which of ``names`` are of jobs placed on the agent's nodes, now or a short while ago.

    A query each 2 s, and one more where placements have changed since.
    """
    return _places.here(scope, names)


def just_placed(scope: AgentScope, names: Collection[str]) -> set[str]:
    """Return which of ``names`` are of jobs placed on the agent's nodes at this moment.

    For names that :func:`here` has not and :func:`known` has: they may have been placed since the
    last look. One query, and one more where placements have changed since.
    """
    return _places.just_placed(scope, names)


def are_here(scope: AgentScope, names: Collection[str]) -> bool:
    """Say whether all of ``names`` are, as far as this process has heard, of such jobs.

    A query each 2 s, and one more where placements have changed since.
    """
    return _places.are_here(scope, names)


def were_here(scope: AgentScope, names: Collection[str], ts: float) -> set[str]:
    """Return which of ``names`` are of jobs that ran on the agent's nodes at ``ts``, Unix s.

    For what comes late out of a spool. An attempt that ended less than ``TELEMETRY_JOB_GRACE_S``
    before ``ts`` counts. One query.
    """
    return _places.were_here(scope, names, ts)


def jobs() -> Collection[str]:
    """Return the jobs that are placed anywhere: the same object until that changes."""
    return _places.jobs()


def known(names: Collection[str]) -> set[str]:
    """Return which of ``names`` are of jobs that admission has, or had. One query."""
    return _places.known(names)
