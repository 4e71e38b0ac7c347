"""Fallback of jobs: from what is so at their sites to where they go on, by policy or a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from django.db import transaction
from django.db.models import Count, Q

from accounts import audit
from admission.core.fallback import (
    Fallback,
    Policy,
    Standing,
    Transition,
    next_state,
    read_policy,
)
from admission.directives import actions
from admission.directives.models import JobFallback
from admission.jobs import catalog, history
from admission.jobs.models import Attempt, Job, Phase
from admission.jobs.terms import may_move, terms_of_phase
from fleet.snapshot import LINK_KINDS, FleetArrays
from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from accounts.models import User

__all__ = ["FALLBACK", "Sites", "away", "fall_back", "move", "policy", "set_state"]

FALLBACK = "fallback"
_WAN = LINK_KINDS.index("wan")
#: A site from which so much is not heard is looked at, and with it the jobs that are at home there.
_SILENT = 0.5
_FAILED = (Attempt.Outcome.FAILED, Attempt.Outcome.LOST)


@cache
def policy() -> Policy:
    """Return the policy that is built in."""
    path = Path(__file__).parent / "builtin" / "fallback.yaml"
    return read_policy(path.read_text(encoding="utf-8"))


def away() -> dict[str, tuple[Fallback, str]]:
    """Return state and home of each open job that is not at its primary site. One query."""
    rows = Job.objects.open().exclude(fallback_state=Fallback.PRIMARY_SITE)
    found = rows.values_list("name", "fallback_state", "jobfallback__home")
    return {name: (Fallback(state), home or "") for name, state, home in found}


# --- What is so at sites --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sites:
    """Facts of all sites at one moment, by row of the inventory."""

    headroom: Headroom
    in_force: InForce

    @property
    def fleet(self) -> FleetArrays:
        return self.headroom.fleet

    @cached_property
    def silent_share(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        fleet = self.fleet
        site = fleet.racks.site[fleet.nodes.rack[fleet.gpus.node]]
        count = len(fleet.sites)
        silent = np.bincount(site, weights=~self.headroom.summary.gpus.read, minlength=count)
        gpus = np.bincount(site, minlength=count)
        return np.divide(silent, gpus, out=np.zeros(count), where=gpus > 0)

    @cached_property
    def power_margin(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        power = self.headroom.powers[ScopeKind.SITE]
        share = np.full(len(self.fleet.sites), np.nan)
        left_w = power.budget_w - power.drawn_w
        np.divide(left_w, power.budget_w, out=share, where=power.budget_w > 0)
        return share

    @cached_property
    def wan_up(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """1 where some WAN link of a site is heard, 0 where none is, NaN where it has none."""
        links = self.fleet.links
        up = np.full(len(self.fleet.sites), np.nan)
        heard = ~np.asarray(self.headroom.links["stale"], dtype=bool)
        for row in np.flatnonzero(links.kind == _WAN).tolist():
            for site in (int(links.site[row]), int(links.peer_site[row])):
                if site >= 0:
                    up[site] = np.fmax(up[site], float(heard[row]))
        return up

    def _whole(self, kind: RestrictionKind) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Say of each site whether a restriction holds for all of its racks."""
        fleet = self.fleet
        under = self.in_force.racks_under(fleet, kind)
        free = np.bincount(fleet.racks.site[~under], minlength=len(fleet.sites))
        racks = np.bincount(fleet.racks.site, minlength=len(fleet.sites))
        return np.asarray((free == 0) & (racks > 0))

    @cached_property
    def draining(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return self._whole(RestrictionKind.DRAIN)

    @cached_property
    def is_open(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        closed = self._whole(RestrictionKind.NO_NEW_LAUNCHES) | self.draining
        return np.asarray(~closed & (self.silent_share < _SILENT))

    def named(self, kind: RestrictionKind) -> set[Scope]:
        """Return the sites, jobs and classes that a restriction of ``kind`` names."""
        return {each.scope for each in self.in_force.of(kind)}

    @cached_property
    def troubled(self) -> set[str]:
        """Return the sites whose jobs have to be looked at."""
        names = self.fleet.sites.names
        rows = self.draining | (self.silent_share >= _SILENT) | (self.wan_up == 0)
        named = self.named(RestrictionKind.LOCAL_ONLY) | self.named(RestrictionKind.HOLD_FOR_REVIEW)
        sites = {scope.name for scope in named if scope.kind is ScopeKind.SITE}
        return sites | {str(name) for name in names[rows]}


def _facts(
    sites: Sites, home: str, phase: Phase, failures: int, *, moves: bool
) -> dict[str, float]:
    """Return the facts of one job. What is not known is left out."""
    request = phase.request
    row = sites.fleet.sites.index_by_name.get(home)
    scopes = {
        Scope(ScopeKind.SITE, home),
        Scope(ScopeKind.JOB, phase.job.name),
        Scope(ScopeKind.CLASS, phase.job.job_class),
    }
    saves = request.get("checkpoint_interval_s") is not None
    facts = {
        "may_move": float(moves),
        "checkpoint_elsewhere": float(bool(request.get("cross_site_checkpoint")) or not saves),
        "local_only": float(bool(scopes & sites.named(RestrictionKind.LOCAL_ONLY))),
        "review": float(bool(scopes & sites.named(RestrictionKind.HOLD_FOR_REVIEW))),
        "failures_in_hour": float(failures),
        "other_site_open": float(_other_is_open(sites, home, request)),
    }
    if row is None:
        return facts
    return facts | {
        "site_silent_share": float(sites.silent_share[row]),
        "site_power_margin": float(sites.power_margin[row]),
        "site_draining": float(sites.draining[row]),
        "wan_up": float(sites.wan_up[row]),
    }


def _other_is_open(sites: Sites, home: str, request: Mapping[str, Any]) -> bool:
    names = sites.fleet.sites.names[sites.is_open].tolist()
    # One that asked for its home alone takes any other: see core.fallback.restricted.
    asked = set(request.get("sites") or ()) - {home}
    return any(name != home and (not asked or name in asked) for name in names)


# --- By policy ------------------------------------------------------------------------------------


def fall_back(headroom: Headroom, in_force: InForce, *, now: datetime) -> int:
    """Move jobs whose sites ask for it between the states; return how many moved."""
    sites = Sites(headroom, in_force)
    concerned = _concerned(sites)
    if not concerned:
        return 0
    failed = _failures([phase.job_id for phase, _ in concerned], now - timedelta(hours=1))
    classes, moved = catalog.current(), 0
    for phase, home in concerned:
        moves = may_move(terms_of_phase(phase, classes))
        facts = _facts(sites, home, phase, failed.get(phase.job_id, 0), moves=moves)
        moved += _follow(phase.job, home, facts, now)
    return moved


def _failures(jobs: Iterable[int], since: datetime) -> dict[int, int]:
    """Return how many attempts of each job were lost or have failed. One query."""
    rows = Attempt.objects.filter(phase__job__in=jobs, ended_at__gt=since, outcome__in=_FAILED)
    return dict(rows.order_by().values_list("phase__job").annotate(Count("pk")))


def _concerned(sites: Sites) -> list[tuple[Phase, str]]:
    """Return a phase of each job that is away, or at home where something is the matter.

    The one that runs, or else the one that is next. At most three queries, and one where nothing is
    the matter anywhere.
    """
    wanted = Q(job__fallback_state__in=[each for each in Fallback if each != Fallback.PRIMARY_SITE])
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
    """Return the home of each job: what is written down, where it ran first, or what it asks for.

    One query.
    """
    rows = list(phases)
    began = Attempt.objects.filter(phase__job__in=[row.job_id for row in rows])
    first = dict(
        began.order_by("phase__job", "-released_at").values_list("phase__job", "placement__sites")
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


def _follow(job: Job, home: str, facts: Mapping[str, float], now: datetime) -> bool:
    row: JobFallback | None = getattr(job, "jobfallback", None)
    standing = Standing(
        Fallback(job.fallback_state),
        0.0 if row is None else row.since.timestamp(),
        {} if row is None else row.open_since,
    )
    after, transition = next_state(standing, facts, policy(), now=now.timestamp())
    if transition is not None:
        return _take(job, home, transition, by=FALLBACK, now=now)
    open_since = dict(after.open_since)
    if open_since != standing.open_since:
        JobFallback.objects.update_or_create(
            job=job,
            defaults={"open_since": open_since},
            create_defaults={"home": home, "since": job.submitted_at, "open_since": open_since},
        )
    return False


@transaction.atomic
def _take(job: Job, home: str, transition: Transition, *, by: str, now: datetime) -> bool:
    """Write a transition down with its evidence, and do what it asks of what runs."""
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
    """End attempts that stand where the job may not be any more; their phases wait again."""
    attempts = list(Attempt.objects.open().filter(phase__job=job).select_related("phase"))
    if transition.state is Fallback.REGIONAL:
        leaving = [each for each in attempts if home in each.placement.get("sites", ())]
    elif transition.state is Fallback.LOCAL_ONLY:
        leaving = [each for each in attempts if set(each.placement.get("sites", ())) != {home}]
    else:
        return
    site = home if transition.state is Fallback.LOCAL_ONLY else ""
    actions.stop(
        leaving, owner=FALLBACK, cause=f"{transition.state}", now=now, site=site,
        why=f"goes on by {transition.state}: {transition.why}",
        evidence=dict(transition.evidence),
    )  # fmt: skip


# --- By people and playbooks ----------------------------------------------------------------------


def move(job: Job, state: Fallback, *, why: str, by: str, now: datetime) -> bool:
    """Bring a job to a state, whatever the policy says now; return whether it was in another.

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
    if move(job, state, why=why, by=f"user:{user.get_username()}", now=now):
        audit.record(user, "job.fallback", job.name, state=state.value, why=why)
    return job
