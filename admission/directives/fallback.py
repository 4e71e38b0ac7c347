"""Fallback of jobs: from conditions at their sites to where they go on, by policy or a person."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Count, Q

from accounts import audit
from admission.core.directives.fallback import FAILURES_WITHIN_S, FALLBACK, leaves
from admission.core.request import Request
from admission.core.response.checkpoints import Known
from admission.core.response.fallback import Fallback, FallbackStatus, Transition
from admission.core.response.inputs import KnownInputs, differ_at
from admission.core.response.sites import Sites
from admission.directives import actions
from admission.directives.models import JobFallback
from admission.jobs import catalog, checkpoints, history, inputs, resolution
from admission.jobs.models import Attempt, Job, Phase
from admission.jobs.resolution import may_move, terms_of_phase
from policies.restrictions.kinds import RestrictionKind
from policies.scopes import ScopeKind

if TYPE_CHECKING:
    from accounts.models import User

__all__ = ["JobRows", "away", "move", "set_state", "unfit"]

#: How precisely it is kept when a job was looked at last, s.
_WATCH_S = 15.0
_FAILED = (Attempt.Outcome.FAILED, Attempt.Outcome.LOST)


def away() -> dict[str, tuple[Fallback, str]]:
    """Return state and home of each open job that is not at its primary site. One query."""
    rows = Job.objects.open().exclude(fallback_state=Fallback.PRIMARY_SITE)
    found = rows.values_list("name", "fallback_state", "jobfallback__home")
    return {name: (Fallback(state), home or "") for name, state, home in found}


def unfit(jobs: Collection[str], now: datetime) -> dict[str, frozenset[str]]:
    """Return the sites at which inputs of what waits of ``jobs`` differ, by job.

    Two queries; none where no job is given.
    """
    phases = Phase.objects.pending().filter(job__name__in=jobs).select_related("job")
    rows = list(phases) if jobs else []
    seen = inputs.of_phases(rows, now)
    found: dict[str, frozenset[str]] = {}
    for row in rows:
        at = differ_at(seen.get(row.pk, {}))
        found[row.job.name] = found.get(row.job.name, frozenset()) | at
    return found


# --- By policy ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Falling:
    """A phase of a job whose fallback is to be decided."""

    phase: Phase
    home: str
    failures: int
    moves: bool
    checkpoints: Known
    inputs: KnownInputs | None

    @property
    def job(self) -> Job:
        return self.phase.job

    @property
    def request(self) -> Request:
        return resolution.request_of(self.phase)

    @property
    def status(self) -> FallbackStatus:
        row: JobFallback | None = getattr(self.job, "jobfallback", None)
        return FallbackStatus(
            Fallback(self.job.fallback_state),
            0.0 if row is None else row.since.timestamp(),
            {} if row is None else row.open_since,
            -math.inf if row is None or row.seen_at is None else row.seen_at.timestamp(),
        )


@dataclass(frozen=True)
class JobRows:
    """The fallback of jobs as the database keeps it, at one moment."""

    now: datetime

    def concerned(self, sites: Sites) -> list[_Falling]:
        """See ``core.directives.fallback``. At most seven queries, and one while all is well."""
        concerned = _concerned(sites)
        if not concerned:
            return []
        since = self.now - timedelta(seconds=FAILURES_WITHIN_S)
        failed = _failures([phase.job_id for phase, _ in concerned], since)
        classes = catalog.current()
        facts = checkpoints.of_jobs([phase.job.name for phase, _ in concerned], self.now)
        seen = inputs.of_phases([phase for phase, _ in concerned], self.now)
        return [
            _Falling(
                phase,
                home,
                failed.get(phase.job_id, 0),
                may_move(terms_of_phase(phase, classes)),
                checkpoints.known_of(facts.get(phase.job.name, ())),
                seen.get(phase.pk, {}) if inputs.are_declared(phase) else None,
            )
            for phase, home in concerned
        ]

    def keep(self, statuses: Sequence[tuple[_Falling, FallbackStatus]]) -> None:
        """See ``core.directives.fallback``. One query; none where there is nothing new to keep."""
        rows = [
            JobFallback(
                job=job.job, home=job.home, since=job.job.submitted_at,
                open_since=dict(after.open_since), seen_at=self.now,
            )
            for job, after in statuses
            if after.open_since != job.status.open_since
            or (after.open_since and after.seen_at - job.status.seen_at >= _WATCH_S)
        ]  # fmt: skip
        # Of a row that there is its home and since when it is in its state stay as they are.
        JobFallback.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["job"],
            update_fields=["open_since", "seen_at"],
        )  # fmt: skip

    def take(self, job: _Falling, transition: Transition) -> bool:
        return _take(job.job, job.home, transition, by=FALLBACK, now=self.now)


def _failures(jobs: Iterable[int], since: datetime) -> dict[int, int]:
    """Return how many attempts of each job were lost or have failed. One query."""
    rows = Attempt.objects.filter(phase__job__in=jobs, ended_at__gt=since, outcome__in=_FAILED)
    return dict(rows.order_by().values_list("phase__job").annotate(Count("pk")))


def _concerned(sites: Sites) -> list[tuple[Phase, str]]:
    """Return a phase of each job that is away, or at home where something is or was the matter.

    The one that runs, or else the one that is next. At most three queries, and one where nothing is
    the matter anywhere.
    """
    wanted = Q(job__fallback_state__in=[each for each in Fallback if each != Fallback.PRIMARY_SITE])
    # A way that was open is to be closed: what is the matter next counts from its own beginning.
    wanted |= Q(job__jobfallback__isnull=False) & ~Q(job__jobfallback__open_since={})
    troubled = sites.troubled
    named = sites.named(RestrictionKind.HOLD_FOR_REVIEW) | sites.named(RestrictionKind.LOCAL_ONLY)
    wanted |= Q(job__name__in=[each.name for each in named if each.kind is ScopeKind.JOB])
    wanted |= Q(job__job_class__in=[each.name for each in named if each.kind is ScopeKind.CLASS])
    if troubled:
        wanted |= Q(request__data_site__in=troubled)
        open_ = Attempt.objects.open()
        for site in troubled:
            there = open_.filter(placement__sites__contains=[site])
            wanted |= Q(request__sites=[site]) | Q(pk__in=there.values("phase"))
    rows = Phase.objects.open().filter(wanted).exclude(state=Phase.State.WAITING)
    found: dict[int, Phase] = {}
    for phase in rows.select_related("job__jobfallback").order_by("job_id", "index"):
        known = found.get(phase.job_id)
        if known is None or (phase.state in Phase.ACTIVE and known.state not in Phase.ACTIVE):
            found[phase.job_id] = phase
    homes = _homes(found.values())
    return [(phase, homes[phase.job_id]) for phase in found.values() if homes[phase.job_id]]


def _homes(phases: Iterable[Phase]) -> dict[int, str]:
    """Return the home of each job: as written down, where it ran first, or as it asks for.

    One query.
    """
    rows = list(phases)
    began = Attempt.objects.filter(phase__job__in=[row.job_id for row in rows])
    first = dict(
        began.order_by("phase__job", "-dispatched_at").values_list("phase__job", "placement__sites")
    )
    return {row.job_id: _home(row, first.get(row.job_id) or []) for row in rows}


def _home(phase: Phase, ran_at: Sequence[str]) -> str:
    known: JobFallback | None = getattr(phase.job, "jobfallback", None)
    if known is not None:
        return known.home
    asked = phase.request.get("sites") or ()
    if len(ran_at) == 1:
        return str(ran_at[0])
    return str(phase.request.get("data_site") or (asked[0] if asked else ""))


@transaction.atomic
def _take(job: Job, home: str, transition: Transition, *, by: str, now: datetime) -> bool:
    """Write a transition down with its evidence, and move the running attempts that it concerns."""
    Job.objects.select_for_update().get(pk=job.pk)
    changed = Job.objects.filter(pk=job.pk, fallback_state=transition.was)
    if not changed.update(fallback_state=transition.state):
        return False
    job.fallback_state = transition.state
    JobFallback.objects.update_or_create(
        job=job,
        defaults={"since": now, "open_since": {}},
        create_defaults={"home": home, "since": now, "open_since": {}},
    )
    text = f"{transition.was} → {transition.state}: {transition.why}"
    history.event(
        job.pk, FALLBACK, text, now, was=transition.was.value, state=transition.state.value, by=by,
        home=home, evidence=dict(transition.evidence),
    ).save()  # fmt: skip
    _move_what_runs(job, home, transition, now)
    return True


def _move_what_runs(job: Job, home: str, transition: Transition, now: datetime) -> None:
    """End attempts at sites that the job may no longer use; their phases wait again."""
    attempts = Attempt.objects.open().filter(phase__job=job).select_related("phase")
    leaving = [
        each for each in attempts if leaves(transition.state, home, each.placement.get("sites", ()))
    ]
    if not leaving:
        return
    site = home if transition.state is Fallback.LOCAL_ONLY else ""
    actions.stop(
        leaving, owner=FALLBACK, cause=f"{transition.state}", now=now, site=site,
        why=f"goes on by {transition.state}: {transition.why}",
        evidence=dict(transition.evidence),
    )  # fmt: skip


# --- By people and playbooks ----------------------------------------------------------------------


def move(job: Job, state: Fallback, *, why: str, by: str, now: datetime) -> bool:
    """Bring a job to a state, whatever the policy says now; return whether its state changed.

    The policy goes on from there.
    """
    was = Fallback(job.fallback_state)
    if was is state:
        return False
    phase = job.phases.open().select_related("job__jobfallback").order_by("index").first()
    home = "" if phase is None else _homes([phase])[job.pk]
    return _take(job, home, Transition(was, state, why, {"by": by}), by=by, now=now)


@transaction.atomic
def set_state(job: Job, state: Fallback, user: User, *, why: str, now: datetime) -> Job:
    """Bring a job to a state, as a person."""
    before = audit.stored(job)
    if move(job, state, why=why, by=f"user:{user.get_username()}", now=now):
        told = audit.changes(before, audit.stored(job))
        audit.record(user, "job.fallback", job.name, state=state.value, why=why, **told)
    return job
