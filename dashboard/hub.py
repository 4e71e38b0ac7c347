"""A place or a project as a hub: what is open about it, what limits it, what runs there, what was
done, and what its reader may do, each a link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, cast
from urllib.parse import urlencode

import numpy as np
from django.db.models import Q, QuerySet
from django.urls import reverse

from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.jobs.models import Attempt, Job, Project
from admission.outages.foreseeing import relying
from dashboard import outages, playbooks, queue, scopes
from dashboard.queue import RunRow
from fleet.snapshot import FleetArrays
from policies.incidents import visible as seen_incidents
from policies.incidents.models import Incident, IncidentMember
from policies.incidents.places import Places
from policies.playbooks import visible as seen_runs
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.restrictions import visible as seen_restrictions
from policies.restrictions.kinds import KINDS
from policies.restrictions.models import Restriction
from policies.scopes import Bools, Scope, ScopeKind, racks_in

__all__ = ["Act", "Done", "Hub", "Link", "acts", "of_project", "of_scope"]

#: Of each list so many are shown.
MOST = 20
#: What was done is told for so long.
_DONE_WITHIN = timedelta(hours=24)
#: Of what has no racks, jobs are those that rely on it.
_RELIED_ON = (ScopeKind.LINK, ScopeKind.STORAGE)
_WITHIN_RACKS = (ScopeKind.NODE, ScopeKind.GPU)


@dataclass(frozen=True, slots=True)
class Link:
    """A place in words. ``href`` is empty where it has no page."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Done:
    """Something that is over: a restriction, a run of a playbook or an incident."""

    at: datetime
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Act:
    """Something that the reader may do with a place."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Hub:
    """The newest first. Incidents are those that are not over, restrictions those in force."""

    #: what it is about
    words: str
    #: what the place is a part of, the nearest first
    above: list[Link]
    incidents: list[Incident]
    incidents_all: int
    restrictions: list[Restriction]
    restrictions_all: int
    #: runs of playbooks that are not over
    runs: list[PlaybookRun]
    #: jobs that the reader may not see have no name
    jobs: list[RunRow]
    #: how many phases hold GPUs there
    jobs_all: int
    #: of the last day
    done: list[Done]


def of_scope(fleet: FleetArrays, scope: Scope, visibility: Visibility, now: datetime) -> Hub:
    """Return what is open about a place, its parts, and all that it is a part of.

    Eight queries, and one to four for the jobs; some more for readers who do not see all jobs, and
    for links and storage endpoints. Raises :class:`~policies.scopes.UnknownScope`.
    """
    about = _Place(fleet, scope)
    above = [Link(scopes.words(each), scopes.href(fleet, each)) for each in about.above]
    return _hub(about, above, _phases(about, now), visibility, now)


def of_project(project: Project, visibility: Visibility, now: datetime) -> Hub:
    """Return what is open about the jobs of a project, and which of them hold GPUs.

    Nine queries, and one to four for the jobs; some more for readers who do not see all jobs.
    """
    recent = Q(state__in=Job.OPEN) | Q(ended_at__gte=now - _DONE_WITHIN)
    names = Job.objects.filter(recent, project=project).values_list("name", flat=True)
    running = Attempt.objects.open().filter(phase__job__project=project).order_by("-pk")
    phases = list(dict.fromkeys(running.values_list("phase_id", flat=True)))
    about = _Jobs(f"project {project.name}", frozenset(names))
    return _hub(about, [], phases, visibility, now)


def _hub(
    about: _About, above: list[Link], phases: list[int], visibility: Visibility, now: datetime
) -> Hub:
    incidents = Incident.objects.seen_by(visibility)
    restrictions = Restriction.objects.seen_by(visibility)
    runs = PlaybookRun.objects.seen_by(visibility)
    opened = about.of(incidents.unresolved()) | about.firing(incidents.unresolved())
    in_force = about.of(restrictions.in_force(now))
    return Hub(
        words=about.words,
        above=above,
        incidents=seen_incidents.incidents(
            incidents.filter(pk__in=opened).order_by("-opened_at", "-pk")[:MOST], visibility
        ),
        incidents_all=len(opened),
        restrictions=seen_restrictions.rows(
            restrictions.filter(pk__in=in_force).order_by("-issued_at", "-pk")[:MOST], visibility
        ),
        restrictions_all=len(in_force),
        runs=visibility.veiled(
            runs.filter(pk__in=about.of(runs.live())).order_by("-started_at", "-pk")[:MOST],
            *seen_runs.RUN,
        ),
        jobs=queue.run_rows(phases[:MOST], visibility),
        jobs_all=len(phases),
        done=_done(about, visibility, now - _DONE_WITHIN),
    )


class _About(ABC):
    """Says of the scopes of rows whether they are what a hub is about."""

    words: str

    @abstractmethod
    def has(self, scope: Scope) -> bool:
        """Say whether a row about ``scope`` belongs there."""

    def of(self, rows: QuerySet[Any], key: str = "pk") -> set[int]:
        """Return ``key`` of the rows that are about it. One query."""
        found = rows.order_by().values_list(key, "scope_kind", "scope_name")
        return {pk for pk, kind, name in found if self.has(Scope(ScopeKind(kind), name))}

    def firing(self, incidents: QuerySet[Incident]) -> set[int]:
        """Return those of ``incidents`` of which something fires about it. One query."""
        members = IncidentMember.objects.filter(incident__in=incidents, cleared_at=None)
        return self.of(members, "incident_id")


@dataclass(frozen=True)
class _Jobs(_About):
    """The jobs of these names."""

    words: str
    names: frozenset[str]

    def has(self, scope: Scope) -> bool:
        return scope.kind is ScopeKind.JOB and scope.name.partition("/")[0] in self.names


class _Place(_About):
    """A place, its parts, and what it is a part of."""

    def __init__(self, fleet: FleetArrays, scope: Scope) -> None:
        self.fleet, self.scope, self.words = fleet, scope, scopes.words(scope)
        self._places = Places(fleet)
        self.above = self._places.above(scope)
        self._own = {scope, *self.above}

    @cached_property
    def racks(self) -> Bools:
        """Say of each rack whether it is in the place."""
        if self.scope.kind in _RELIED_ON:
            return np.zeros(len(self.fleet.racks), dtype=bool)
        return racks_in(self.fleet, self.scope)

    @property
    def rack_names(self) -> list[str]:
        found: list[str] = self.fleet.racks.paths[self.racks].tolist()
        return found

    def has(self, scope: Scope) -> bool:
        if scope in self._own:
            return True
        if scope.kind is ScopeKind.GPU:
            return self._has_node(scope.name.rpartition("/")[0])
        if scope.kind is ScopeKind.NODE:
            return self._has_node(scope.name)
        return self.scope in self._places.above(scope)

    def _has_node(self, name: str) -> bool:
        if self.scope.kind in _WITHIN_RACKS:
            return self.scope == Scope(ScopeKind.NODE, name)
        row = self.fleet.nodes.index_by_name.get(name)
        return row is not None and bool(self.racks[self.fleet.nodes.rack[row]])


def _phases(about: _Place, now: datetime) -> list[int]:
    """Return the phases that hold GPUs at a place, or rely on it, the newest first."""
    held = Attempt.objects.open().order_by("-pk")
    if about.scope.kind in _RELIED_ON:
        keys = [each.key for each in relying(about.scope, now.timestamp())]
        held = held.filter(key__in=keys)
    else:
        held = held.filter(placement__racks__has_any_keys=about.rack_names)
    if about.scope.kind is ScopeKind.NODE:
        held = held.filter(placement__nodes__contains=[about.scope.name])
    if about.scope.kind is ScopeKind.GPU:
        node, _, index = about.scope.name.rpartition("/")
        held = held.filter(placement__gpus__contains={node: [int(index)]})
    return list(dict.fromkeys(held.values_list("phase_id", flat=True)))


# --- What was done -------------------------------------------------------------------------------


def _done(about: _About, visibility: Visibility, since: datetime) -> list[Done]:
    """Return what has ended since, the newest first. Six queries at most."""
    ended = Restriction.objects.seen_by(visibility).filter(ended_at__gte=since)
    over = PlaybookRun.objects.seen_by(visibility).filter(ended_at__gte=since)
    closed = Incident.objects.seen_by(visibility).filter(resolved_at__gte=since)
    found = [
        *map(_lifted, seen_restrictions.rows(_newest(about, ended, "-ended_at"), visibility)),
        *map(_ran, visibility.veiled(_newest(about, over, "-ended_at"), *seen_runs.RUN)),
        *map(
            _resolved,
            seen_incidents.incidents(_newest(about, closed, "-resolved_at"), visibility),
        ),
    ]
    return sorted(found, key=lambda each: each.at, reverse=True)[:MOST]


def _newest(about: _About, rows: QuerySet[Any], order: str) -> Iterable[Any]:
    keys = about.of(rows)
    return rows.filter(pk__in=keys).order_by(order, "-pk")[:MOST] if keys else ()


def _lifted(row: Restriction) -> Done:
    why = f": {row.ended_why}" if row.ended_why else ""
    text = f"{row.kind} on {scopes.words(row.scope)} ended{why}"
    return Done(cast(datetime, row.ended_at), text, reverse("restriction", args=[row.pk]))


def _ran(row: PlaybookRun) -> Done:
    text = f"playbook {row.playbook} on {scopes.words(row.scope)}: {row.state}"
    return Done(cast(datetime, row.ended_at), text, reverse("playbook-run", args=[row.pk]))


def _resolved(row: Incident) -> Done:
    text = f"{row.number} {row.state}: {row.title}"
    return Done(cast(datetime, row.resolved_at), text, reverse("incident", args=[row.pk]))


# --- What its reader may do ----------------------------------------------------------------------


def acts(user: User, scope: Scope) -> list[Act]:
    """Return what a user may do with a place. One query for who may run playbooks."""
    made = []
    if href := outages.what_if(scope):
        made.append(Act("what if it fails", href))
    if scope.kind is ScopeKind.SITE:
        query = urlencode({"site": scope.name})
        made.append(Act("what cost most", f"{reverse('losses-page')}?{query}"))
    if user.can(Capability.EDIT_POLICIES) and any(
        scope.kind in kind.scopes for kind in KINDS.values()
    ):
        query = urlencode({"scope_kind": scope.kind.value, "scope": scope.name})
        made.append(Act("restrict it", f"{reverse('issue-restriction')}?{query}"))
    if user.can(Capability.RUN_PLAYBOOKS):
        made += _runnable(scope)
    return made


def _runnable(scope: Scope) -> list[Act]:
    query = urlencode({"kind": scope.kind.value, "scope": scope.name})
    active = PlaybookVersion.objects.active().order_by("name")
    programs = ((row.name, playbooks.program_of(row)) for row in active)
    return [
        Act(f"run {name}", f"{reverse('playbook-page', args=[name])}?{query}")
        for name, program in programs
        if program is not None and scope.kind in program.playbook.scopes
    ]
