"""A place or a project as a hub: what is open about it, what limits it, what runs there, what was
done, and what its reader may do, each a link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.urls import reverse

from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.annotations.held import held_at
from admission.jobs.models import Attempt, Job, Project
from dashboard import outages, playbooks, queue, scopes
from dashboard.queue import RunRow
from fleet.snapshot import FleetArrays
from policies.about import About, AboutPlace
from policies.incidents import visible as seen_incidents
from policies.incidents.models import Incident
from policies.playbooks import visible as seen_runs
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.restrictions import visible as seen_restrictions
from policies.restrictions.kinds import KINDS
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind

__all__ = ["Act", "Done", "Hub", "Link", "acts", "of_project", "of_scope"]

#: Of each list so many are shown.
MOST = 20
#: What was done is told for so long.
_DONE_WITHIN = timedelta(hours=24)


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
    about = AboutPlace(fleet, scope)
    above = [Link(scopes.words(each), scopes.href(fleet, each)) for each in about.above]
    held = Attempt.objects.open().filter(held_at(about, now.timestamp())).order_by("-pk")
    phases = list(dict.fromkeys(held.values_list("phase_id", flat=True)))
    return _hub(scopes.words(scope), about, above, phases, visibility, now)


def of_project(project: Project, visibility: Visibility, now: datetime) -> Hub:
    """Return what is open about the jobs of a project, and which of them hold GPUs.

    Nine queries, and one to four for the jobs; some more for readers who do not see all jobs.
    """
    recent = Q(state__in=Job.OPEN) | Q(ended_at__gte=now - _DONE_WITHIN)
    names = Job.objects.filter(recent, project=project).values_list("name", flat=True)
    running = Attempt.objects.open().filter(phase__job__project=project).order_by("-pk")
    phases = list(dict.fromkeys(running.values_list("phase_id", flat=True)))
    return _hub(f"project {project.name}", _Jobs(frozenset(names)), [], phases, visibility, now)


def _hub(
    words: str,
    about: About,
    above: list[Link],
    phases: list[int],
    visibility: Visibility,
    now: datetime,
) -> Hub:
    incidents = Incident.objects.seen_by(visibility)
    restrictions = Restriction.objects.seen_by(visibility)
    runs = PlaybookRun.objects.seen_by(visibility)
    opened = about.of_incidents(incidents.unresolved(), firing=True)
    in_force = about.of(restrictions.in_force(now))
    return Hub(
        words=words,
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


@dataclass(frozen=True)
class _Jobs(About):
    """The jobs of these names."""

    names: frozenset[str]

    def has(self, scope: Scope) -> bool:
        return scope.kind is ScopeKind.JOB and scope.name.partition("/")[0] in self.names


# --- What was done -------------------------------------------------------------------------------


def _done(about: About, visibility: Visibility, since: datetime) -> list[Done]:
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


def _newest(about: About, rows: QuerySet[Any], order: str) -> Iterable[Any]:
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
