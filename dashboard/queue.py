"""The queue page: filters from the URL, waiting phases with reasons, and running ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Sum
from django.urls import reverse

from accounts.models import User
from accounts.visibility import Visibility
from admission.bookings.models import Booking
from admission.bookings.store import scope_of as scope_of_booking
from admission.core.reasons import ReasonToken
from admission.jobs.models import Attempt, Job, Phase, PhaseQuerySet, Project
from admission.queue import queue_status
from dashboard import fixes, reasons, scopes
from dashboard.fixes import Found
from dashboard.reasons import scope_of
from fleet.snapshot import FleetArrays

State = Phase.State

#: A cycle runs every two seconds: a status that is older than this is old, s.
BOARD_OLD_S = 15.0
#: What has ended is listed for so long.
ENDED_SHOWN = timedelta(hours=24)


class Tab(StrEnum):
    """Which phases are listed."""

    QUEUED = "queued"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


_STATES: dict[Tab, Sequence[str]] = {
    Tab.QUEUED: (State.QUEUED,),
    Tab.WAITING: (State.WAITING,),
    Tab.RUNNING: Phase.ACTIVE,
}
#: A cycle has not looked yet at what has no reason.
NO_REASON = "none-yet"
#: Of jobs that one submitted oneself, or of those of one's projects.
MINE = ("jobs", "projects")


# --- Filters -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters in the URL. Empty: all."""

    state: Tab = Tab.QUEUED
    reason: str = ""
    job_class: str = ""
    project: str = ""
    site: str = ""
    search: str = ""
    mine: str = ""
    error: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The filters as a query string, without empty ones."""
        given = {
            "state": "" if self.state is Tab.QUEUED else self.state.value,
            "reason": self.reason,
            "class": self.job_class,
            "project": self.project,
            "site": self.site,
            "search": self.search,
            "mine": self.mine,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def narrowed(self) -> bool:
        """Whether anything but the state is filtered."""
        return bool(self.params.keys() - {"state"})

    @property
    def names_jobs(self) -> bool:
        """Whether it filters by facts that are hidden from readers who may not see the job."""
        return bool(self.project or self.search or self.mine)


def read(params: Mapping[str, str]) -> Filters:
    """Return the filters of a query string. ``error`` names those that are wrong and left out."""
    given = {name: value.replace("\0", "").strip()[:200] for name, value in params.items()}
    known = {"state": [*Tab], "reason": [*ReasonToken, NO_REASON], "mine": MINE}
    wrong = [
        f"there is no {name} {given[name][:40]!r}"
        for name, values in known.items()
        if given.get(name) and given[name] not in values
    ]
    state, reason = given.get("state", ""), given.get("reason", "")
    return Filters(
        state=Tab(state) if state in known["state"] else Tab.QUEUED,
        reason=reason if reason in known["reason"] else "",
        job_class=given.get("class", ""),
        project=given.get("project", ""),
        site=given.get("site", ""),
        search=given.get("search", ""),
        mine=given.get("mine", "") if given.get("mine") in MINE else "",
        error=", ".join(wrong),
    )


def narrowed(filters: Filters, user: User) -> PhaseQuerySet:
    """Return the open phases that pass all filters but state and reason."""
    found = Phase.objects.open().order_by()
    if filters.names_jobs:
        found = found.filter(job__in=Job.objects.visible_to(user))
    if filters.job_class:
        found = found.filter(job__job_class=filters.job_class)
    if filters.project:
        found = found.filter(job__project__name=filters.project)
    if filters.search:
        found = found.filter(job__name__icontains=filters.search)
    if filters.mine:
        found = found.filter(_mine(filters.mine, user, "job__"))
    return found.filter(_at_site(filters.site)) if filters.site else found


def _mine(whose: str, user: User, job: str) -> Q:
    """Match what belongs to jobs that ``user`` submitted, or to those of the user's projects.

    ``job``: the way from a row to its job, with what stands before a field of it.
    """
    if whose == "jobs":
        return Q(**{f"{job}submitted_by": user.get_username()})
    return Q(**{f"{job}project__in": user.projects.all()})


def _at_site(site: str) -> Q:
    """Match phases that run at ``site``, and waiting ones that may go there."""
    held = Attempt.objects.open().filter(phase=OuterRef("pk"), placement__sites__contains=[site])
    may_go = ~Q(request__has_key="sites") | Q(request__sites__contains=[site])
    return (Q(state__in=Phase.PENDING) & may_go) | (Q(state__in=Phase.ACTIVE) & Q(Exists(held)))


# --- How many ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many phases wait for one dominant reason. ``share``: of the most frequent one's."""

    token: str
    meaning: str
    count: int
    gpus: int
    oldest: datetime | None
    share: float


@dataclass(frozen=True, slots=True)
class Now:
    """How many there are in the filters, whatever the state and reason that are chosen."""

    by_tab: dict[Tab, int]
    held: int
    running_gpus: int
    queued_gpus: int
    oldest: datetime | None
    oldest_reason: str
    reasons: list[ReasonCount] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.by_tab.values())


def current(filters: Filters, user: User) -> Now:
    """Return the phases in numbers. One query."""
    rows = list(
        narrowed(filters, user)
        .values_list("state", "reason")
        .annotate(
            count=Count("pk"),
            held=Count("pk", filter=~Q(held_by="")),
            gpus=Sum("gpus"),
            oldest=Min("queued_at"),
        )
    )
    by_state, gpus = Counter[str](), Counter[str]()
    for state, _, count, _, wanted, _ in rows:
        by_state[state] += count
        gpus[state] += wanted
    queued = [row for row in rows if row[0] == State.QUEUED]
    # What somebody holds does not wait for the fleet.
    aged = [row for row in queued if row[5] is not None and row[1] != ReasonToken.ON_HOLD]
    first = min(aged, key=lambda row: row[5], default=None)
    return Now(
        by_tab={tab: sum(by_state[state] for state in states) for tab, states in _STATES.items()},
        held=sum(row[3] for row in rows if row[0] in Phase.PENDING),
        running_gpus=sum(gpus[state] for state in Phase.ACTIVE),
        queued_gpus=gpus[State.QUEUED],
        oldest=first[5] if first else None,
        oldest_reason=first[1] if first else "",
        reasons=_counted(queued),
    )


def _counted(rows: Sequence[tuple[str, str, int, int, int, datetime | None]]) -> list[ReasonCount]:
    most = max((row[2] for row in rows), default=1)
    found = [
        ReasonCount(
            token=reason or NO_REASON,
            meaning=reasons.meaning(reason) or "A cycle has not looked at it yet",
            count=count,
            gpus=gpus,
            oldest=oldest,
            share=count / most,
        )
        for _, reason, count, _, gpus, oldest in rows
    ]
    return sorted(found, key=lambda each: (-each.count, each.token))


@dataclass(frozen=True, slots=True)
class Brief:
    """The queue in a line: how many wait, the longest wait, s, and why that one waits.

    What somebody holds counts, and is not the longest: it does not wait for the fleet.
    """

    waiting: int
    oldest_s: float
    reason: str


def brief(now: float) -> Brief | None:
    """Return the queue by the last cycle (``now`` in Unix s); None: there was none of late.

    What waits for a phase of its own job is left out. One round trip to Redis.
    """
    cycle = queue_status.read()
    if cycle is None:
        return None
    needs = {
        ReasonToken.DEPENDENCY_PENDING,
        ReasonToken.DEPENDENCY_NEVER_MET,
        ReasonToken.ARTIFACT_PENDING,
    }
    waits = [each for each in cycle.counts if each.reason not in needs]
    free = [each for each in waits if each.reason != ReasonToken.ON_HOLD]
    oldest = max(free, key=lambda each: each.oldest_s, default=None)
    return Brief(
        waiting=sum(each.count for each in waits),
        oldest_s=oldest.oldest_s + max(now - cycle.at, 0.0) if oldest else math.nan,
        reason=oldest.reason if oldest else "",
    )


def age_s(cycle: queue_status.QueueStatus | None, now: float) -> float | None:
    """Return the age of the last cycle, s, where it is larger than it should be; else None."""
    since_s = now - cycle.at if cycle else 0.0
    return since_s if since_s > BOARD_OLD_S else None


# --- What is booked -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BookingRow:
    """Hosts that are kept for somebody. ``project`` is empty for maintenance."""

    booking: Booking
    what: str
    href: str
    project: str
    reason: str
    is_running: bool


def booked(user: User, fleet: FleetArrays, now: datetime) -> list[BookingRow]:
    """Return the bookings that are not over, the next first. Two queries."""
    known = set(Project.objects.visible_to(user).values_list("pk", flat=True))
    found = []
    for row in Booking.objects.live(now).select_related("project"):
        scope, is_known = scope_of_booking(row), row.is_known_to(known)
        project = row.project.name if row.project and is_known else "another project"
        found.append(
            BookingRow(
                booking=row,
                what=row.what,
                href=scopes.href(fleet, scope) if scope else "",
                project=project if row.project_id else "",
                reason=row.reason if is_known else "",
                is_running=row.state_at(now) == "running",
            )
        )
    return found


# --- The list ------------------------------------------------------------------------------------


def listed(filters: Filters, user: User) -> list[int]:
    """Return the ids of the phases that pass ``filters``, in the order of the queue.

    What waits is in the order in which the last cycle tried it, and what came since behind it;
    what runs begins with what began last.
    """
    found = narrowed(filters, user).filter(state__in=_STATES[filters.state])
    if filters.state is Tab.RUNNING:
        return list(found.order_by("-started_at", "-pk").values_list("pk", flat=True))
    if filters.reason:
        found = found.filter(reason="" if filters.reason == NO_REASON else filters.reason)
    places = queue_status.positions()
    rows = list(found.values_list("pk", "job__name", "name", "index", "element"))
    after = len(places) + 1
    rows.sort(key=lambda row: (places.get(f"{row[1]}/{row[2]}", after), row[0]))
    # The elements of an array share a line: it is that of the first of them.
    lines: dict[object, int] = {}
    for pk, job, _, index, element in rows:
        lines.setdefault(pk if element is None else (job, index), pk)
    return list(lines.values())


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One waiting phase. Readers who may not see its job get neither name nor link."""

    phase: Phase
    #: empty: not to be seen
    name: str
    href: str
    project: str
    position: int | None
    token: str
    sentence: str
    where: str
    where_href: str
    p10_s: float | None
    p90_s: float | None
    #: why it cannot start though the fleet were all its own; empty: it can
    never: str
    #: what would start it now; None: nobody has looked
    fix: Found | None
    #: of an array: how many of its elements wait in this line
    elements: int = 1

    @property
    def fix_is_due(self) -> bool:
        """Whether to look for a fix of it."""
        return bool(self.name) and (self.fix is None or self.fix.is_due)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One phase that holds GPUs."""

    phase: Phase
    name: str
    href: str
    project: str
    attempt: Attempt | None
    gpus: int
    nodes: int
    sites: list[str]
    peak_w: float
    power_cap_w: float | None


def _fetched(ids: Sequence[int]) -> list[Phase]:
    by_id = (
        Phase.objects.filter(pk__in=ids)
        .select_related("job__project")
        .defer("job__spec", "request")
        .in_bulk()
    )
    return [by_id[pk] for pk in ids if pk in by_id]


def queue_rows(ids: Sequence[int], visibility: Visibility, fleet: FleetArrays) -> list[QueueRow]:
    """Return the lines of waiting phases. Three queries at most, and two round trips to Redis."""
    phases = _fetched(ids)
    keys = [phase.key for phase in phases]
    seen = visibility.seen(keys)
    pending_statuses, found = queue_status.pending_statuses(keys), fixes.known(keys)
    visibility.read(
        each.sentence for line in pending_statuses.values() for each in line.reasons[:1]
    )
    return [
        _queue_row(
            phase, visibility if is_seen else None, pending_statuses.get(phase.key), fleet, found
        )
        for phase, is_seen in zip(phases, seen, strict=True)
    ]


def _queue_row(
    phase: Phase,
    visibility: Visibility | None,
    pending_status: queue_status.PendingStatus | None,
    fleet: FleetArrays,
    found: Mapping[str, Found],
) -> QueueRow:
    """Return a line. ``visibility`` None: its job is not to be seen."""
    is_seen = visibility is not None
    reason = pending_status.reasons[0] if pending_status and pending_status.reasons else None
    where = scope_of(reason) if reason else None
    return QueueRow(
        phase=phase,
        name=phase.key if is_seen else "",
        href=href(phase) if is_seen else "",
        project=phase.job.project.name if is_seen else "",
        position=pending_status.position if pending_status else None,
        token=reason.token if reason else phase.reason,
        sentence=visibility.text(reason.sentence) if reason and visibility else "",
        where=scopes.words(where) if where and is_seen else "",
        where_href=scopes.href(fleet, where) if where and is_seen else "",
        p10_s=pending_status.p10_s if pending_status else None,
        p90_s=pending_status.p90_s if pending_status else None,
        never=pending_status.never if pending_status and is_seen else "",
        fix=found.get(phase.key) if is_seen else None,
        elements=pending_status.elements if pending_status else 1,
    )


def href(phase: Phase) -> str:
    """Return the page of a phase."""
    return f"{reverse('job-page', args=[phase.job.name])}?phase={phase.name}"


def run_rows(ids: Sequence[int], visibility: Visibility) -> list[RunRow]:
    """Return the lines of phases that hold GPUs. Three queries at most."""
    phases = _fetched(ids)
    seen = visibility.seen([phase.key for phase in phases])
    held: dict[int, Attempt] = {}
    for attempt in Attempt.objects.open().filter(phase__in=ids):
        held[attempt.phase_id] = attempt
    return [
        _run_row(phase, is_seen, held.get(phase.pk))
        for phase, is_seen in zip(phases, seen, strict=True)
    ]


def _run_row(phase: Phase, is_seen: bool, attempt: Attempt | None) -> RunRow:
    placement = attempt.placement if attempt else {}
    return RunRow(
        phase=phase,
        name=phase.key if is_seen else "",
        href=href(phase) if is_seen else "",
        project=phase.job.project.name if is_seen else "",
        attempt=attempt,
        gpus=sum(len(held) for held in placement.get("gpus", {}).values()) or phase.gpus,
        nodes=len(placement.get("nodes", ())),
        sites=list(placement.get("sites", ())),
        peak_w=float(sum(placement.get("peak_w", {}).values())),
        power_cap_w=placement.get("power_cap_w"),
    )


# --- What has ended ------------------------------------------------------------------------------


def ended(filters: Filters, user: User, now: datetime) -> QuerySet[Attempt]:
    """Return the attempts that ended of late, of jobs that ``user`` may see, the newest first."""
    found = Attempt.objects.filter(
        ended_at__gte=now - ENDED_SHOWN, phase__job__in=Job.objects.visible_to(user)
    ).select_related("phase__job__project")
    if filters.job_class:
        found = found.filter(phase__job__job_class=filters.job_class)
    if filters.project:
        found = found.filter(phase__job__project__name=filters.project)
    if filters.search:
        found = found.filter(phase__job__name__icontains=filters.search)
    if filters.mine:
        found = found.filter(_mine(filters.mine, user, "phase__job__"))
    if filters.site:
        found = found.filter(placement__sites__contains=[filters.site])
    return found.defer("phase__job__spec", "phase__request").order_by("-ended_at", "-pk")
