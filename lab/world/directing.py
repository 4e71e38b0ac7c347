"""Directives to running jobs: the step of :mod:`admission.core.directives`, over memory.

What the server writes into its tables and has agents hear is done to the gangs, a little later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.allocation.allocations import Allocations
from admission.core.directives.book import (
    Desired,
    DirectiveBook,
    Kind,
    MemoryDirectives,
    desired_of,
)
from admission.core.directives.fallback import FAILURES_WITHIN_S, FALLBACK, leaves
from admission.core.directives.placed import Active, Placed, save_s, stop_wanted
from admission.core.directives.standing import OWNER, keep_still
from admission.core.directives.step import Step
from admission.core.request import Request
from admission.core.response.checkpoints import Known
from admission.core.response.fallback import Fallback, FallbackStatus, Transition
from admission.core.response.inputs import KnownInputs
from admission.core.response.respond import Level, ResponseStatus, Throttling
from admission.core.response.sites import Sites
from lab.world.gangs import Gang, Gangs, Job
from lab.world.policy import Policy
from policies.headroom.evaluate import Headroom
from policies.headroom.reach import Reach, Room, reach_of
from policies.leases.book import SYSTEM
from policies.restrictions.book import RestrictionBook
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["Directing"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


class _Placed(Placed):
    """All gangs, and a world's memory of them."""

    def __init__(self, held: Allocations, told: Directing) -> None:
        super().__init__(held)
        self._told = told
        self._gangs = {gang.id: gang for gang in told.gangs}

    def below(self) -> Array:
        return np.array([_below(self._gangs[pk]) for pk in self.ids.tolist()], dtype=np.float64)

    def load(self, ids: Iterable[int]) -> list[Gang]:
        found = [self._gangs[pk] for pk in set(ids) if pk in self._gangs]
        return sorted(found, key=lambda each: each.key)

    def remembered(self) -> Iterable[int]:
        return [pk for pk, gang in self._gangs.items() if gang.status != ResponseStatus()]

    def remember(self, statuses: Mapping[int, ResponseStatus]) -> None:
        for pk, status in statuses.items():
            self._gangs[pk].status = status

    def agreed(self, concerned: Sequence[Active]) -> Mapping[int, Throttling]:
        return {each.id: self._gangs[each.id].job.arrival.throttling for each in concerned}

    def overloads(self, over: Collection[Scope], now: datetime) -> Mapping[Scope, datetime]:
        since = self._told.over_since
        since = {scope: since.get(scope, now) for scope in over}
        self._told.over_since = since
        return since

    def stop(self, leaving: Sequence[Active], **asked: Any) -> None:
        self._told.stop([self._gangs[each.id] for each in leaving], **asked)


def _below(gang: Gang) -> float:
    terms = gang.job.arrival.throttling
    asked = [each for each in (terms.shrink_below, terms.pause_below) if each is not None]
    return max(asked, default=-np.inf)


@dataclass(frozen=True)
class _Falling:
    """A job, as the rules of fallback see it."""

    job: Job
    status: FallbackStatus
    failures: int

    @property
    def home(self) -> str:
        return self.job.home

    @property
    def request(self) -> Request:
        return self.job.request

    @property
    def moves(self) -> bool:
        return self.job.arrival.moves

    @property
    def checkpoints(self) -> Known:
        """Nothing: in worlds nobody keeps checkpoints, and what is declared is so."""
        return {}

    @property
    def inputs(self) -> KnownInputs | None:
        """None: nothing is verified in worlds."""
        return None


@dataclass(frozen=True, eq=False)
class _Jobs:
    """The fallback of all jobs that are open."""

    told: Directing
    open: Sequence[Job]
    now: datetime

    def concerned(self, sites: Sites) -> Iterable[_Falling]:
        known, troubled = self.told.fallback, sites.troubled
        named = sites.named(RestrictionKind.HOLD_FOR_REVIEW)
        named |= sites.named(RestrictionKind.LOCAL_ONLY)
        for job in self.open:
            request = job.request
            scopes = {
                Scope(ScopeKind.JOB, request.job), Scope(ScopeKind.CLASS, request.job_class),
            }  # fmt: skip
            if job.home and (job.home in troubled or job.key in known or scopes & named):
                status = known.get(job.key, FallbackStatus())
                yield _Falling(job, status, self._failures(job))

    def _failures(self, job: Job) -> int:
        now_s = self.told.gangs.now_s
        return sum(now_s - at_s < FAILURES_WITHIN_S for at_s in job.failures_s)

    def keep(self, statuses: Sequence[tuple[_Falling, FallbackStatus]]) -> None:
        for job, after in statuses:
            self.told.fallback[job.job.key] = after
            if after.state is Fallback.PRIMARY_SITE and not after.open_since:
                del self.told.fallback[job.job.key]

    def take(self, job: _Falling, transition: Transition) -> bool:
        self.told.go(job.job, transition.state, transition.why, self.now)
        return True


class _Step(Step):
    """One step over a world's memory."""

    def __init__(
        self,
        told: Directing,
        held: Allocations,
        headroom: Headroom,
        in_force: InForce,
        jobs: Sequence[Job],
        now: datetime,
        kept: Bools | None,
    ) -> None:
        super().__init__(
            now,
            directives=told.book,
            restrictions=told.restrictions,
            jobs=_Jobs(told, jobs, now),
            manner=told.policy.manner,
        )
        self._told, self._headroom, self._in_force = told, headroom, in_force
        self._placed, self._kept = _Placed(held, told), kept

    @property
    def placed(self) -> Placed:
        return self._placed

    @property
    def headroom(self) -> Headroom:
        return self._headroom

    @property
    def in_force(self) -> InForce:
        return self._in_force

    @property
    def kept(self) -> Bools | None:
        return self._kept

    def take_up(self) -> None:
        """Take up no requests: those of playbooks are carried out when they are made."""

    def deliver(self) -> None:
        self._told.deliver(self.at)

    def report(self) -> None:
        """Report nothing: playbooks had their answer at once."""


class Directing:
    """The memory of directives to running jobs."""

    def __init__(
        self,
        policy: Policy,
        gangs: Gangs,
        restrictions: RestrictionBook[Any],
        *,
        later: Callable[[Callable[[], None], Gang], None],
        note: Callable[[str, str, str], None],
        true_margins: Callable[[Reach], Array],
    ) -> None:
        """``later`` does something once a gang has heard of it; ``note`` writes decisions down.

        ``true_margins``: what every rack has left by true watts, as a share.
        """
        self.policy, self.gangs, self.restrictions = policy, gangs, restrictions
        self._later, self._note, self._true_margins = later, note, true_margins
        self.leases = MemoryDirectives()
        self.book = DirectiveBook(self.leases)
        #: whether more is drawn somewhere than may be, by what is read; and whether that is new
        self.is_over = self.goes_over = False
        #: since when each scope is over its budget
        self.over_since: Mapping[Scope, datetime] = {}
        #: by job
        self.fallback: dict[str, FallbackStatus] = {}
        approach = policy.approach
        has = {
            "fallback": approach.moves,
            "response": approach.responds,
            "shedding": approach.sheds,
        }
        self._left_out = {name for name, does in has.items() if not does}
        self._acts_on_loads = approach.responds or approach.sheds

    def step(
        self,
        held: Allocations,
        headroom: Headroom,
        in_force: InForce,
        jobs: Sequence[Job],
        now: datetime,
        *,
        kept: Bools | None = None,
    ) -> None:
        """Do one step, without the mechanisms that the approach lacks.

        ``kept`` says of each budget whether the controller keeps it by caps; None: there is none.
        """
        work = _Step(self, held, headroom, in_force, jobs, now, kept)
        for name, part in work.parts():
            if name not in self._left_out:
                part()
        was_over, reach = self.is_over, reach_of(headroom.fleet)
        if self._acts_on_loads and len(self.gangs):
            self.is_over = bool((Room.of(headroom).left_w < 0.0).any())
        self.goes_over = self.is_over and not was_over
        if work.responded is not None:
            self._count(work.responded.changes, reach)

    def _count(self, changes: Sequence[Any], reach: Reach) -> None:
        """Count pauses, and among them those without need: by true watts there was room."""
        by_key = {gang.key: gang for gang in self.gangs}
        pauses = any(change.level is Level.PAUSED for change in changes)
        margins = self._true_margins(reach) if pauses else np.zeros(0)
        for change in changes:
            gang = by_key[change.key]
            self._note(change.level.name.lower(), gang.job.key, f"{change.margin:.6f}")
            if change.level is Level.PAUSED:
                below = gang.job.arrival.throttling.pause_below
                least = float(margins[reach.fleet.nodes.rack[gang.nodes]].min())
                gang.job.pauses += 1
                gang.job.false_pauses += below is not None and least >= below

    # --- Telling ---------------------------------------------------------------------------------

    def deliver(self, now: datetime) -> None:
        """Deliver to gangs the directives that have changed, after the delay of their agents."""
        told: dict[int, list[Any]] = {}
        for row in self.leases:
            if row.expires_at > now:
                told.setdefault(row.attempt_id, []).append(row)
        for gang in self.gangs:
            desired = desired_of(told.get(gang.id, ()))
            if desired != gang.told:
                gang.told = desired
                self._later(partial(self._hear, gang, desired), gang)

    def _hear(self, gang: Gang, desired: Desired) -> None:
        gang.does = desired
        self.gangs.tell(gang)

    def stop(
        self,
        leaving: Sequence[Gang],
        *,
        owner: str,
        cause: str,
        why: str,
        now: datetime,
        site: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Have gangs save and end, and their jobs queue again."""
        chosen = [gang for gang in leaving if not gang.is_ending]
        saves_s = [save_s(owner, gang.request, has_begun=True) for gang in chosen]
        wanted = [
            stop_wanted(
                gang.id, owner=owner, cause=cause, why=why, save_within_s=within_s, now=now,
                site=site, evidence=evidence,
            )
            for gang, within_s in zip(chosen, saves_s, strict=True)
        ]  # fmt: skip
        self.book.issue(wanted, now=now)
        for gang, within_s in zip(chosen, saves_s, strict=True):
            self._end(gang, owner, within_s)
            self._note("stop", gang.job.key, f"{owner}: {why}")

    def _end(self, gang: Gang, owner: str, save_within_s: float) -> None:
        gang.leaves_s = self.gangs.now_s + self.policy.directive_delay_s
        gang.why, gang.told_s = owner, self.gangs.now_s
        # What stands still does not save.
        if save_within_s > 0.0 and not gang.is_paused:
            gang.leaves_s += save_within_s
            self._later(partial(self.gangs.save, gang), gang)

    def forget(self, gang: Gang, now: datetime) -> None:
        """End the directives to a gang that is over."""
        self.book.end(self.leases.of(gang.id), now=now, by=SYSTEM, why="the job has ended")

    def hold_still(self, ids: Sequence[int], now: datetime) -> None:
        """Have exactly these attempts pause for the controller; the others go on."""
        before = {row.attempt_id for row in self.leases if row.owner == OWNER}
        keep_still(self.book, ids, now=now)
        for gang in self.gangs:
            if gang.id in before ^ set(ids):
                gang.job.pauses += gang.id not in before
                self._note("full" if gang.id in before else "paused", gang.job.key, OWNER)
        self.deliver(now)

    # --- Fallback, and what playbooks ask for ----------------------------------------------------

    def go(self, job: Job, state: Fallback, why: str, now: datetime) -> None:
        """Put a job's fallback into ``state``; attempts where it may not be any more end."""
        self.fallback[job.key] = FallbackStatus(state, now.timestamp())
        self._note(FALLBACK, job.key, f"{state}: {why}")
        gang = self.gangs.by_key.get(job.key)
        if gang is not None and leaves(state, job.home, gang.placement.sites):
            site = job.home if state is Fallback.LOCAL_ONLY else ""
            why = f"goes on by {state}: {why}"
            self.stop([gang], owner=FALLBACK, cause=str(state), why=why, now=now, site=site)

    def move(self, there: Sequence[Gang], state: Fallback, why: str, now: datetime) -> None:
        """Bring jobs to a fallback state, regardless of the policy."""
        for gang in there:
            known = self.fallback.get(gang.job.key, FallbackStatus())
            if known.state is not state:
                self.go(gang.job, state, why, now)

    def resume(self, there: Sequence[Gang], by: str, why: str, now: datetime) -> None:
        """End the pauses of gangs by others, so that these go on."""
        for gang in there:
            pauses = [row for row in self.leases.of(gang.id) if row.kind == Kind.PAUSE]
            self.book.end(pauses, now=now, by=by, why=why)
            # The response looks again from the start. If there is no room, it pauses again.
            gang.status = ResponseStatus()

    def within(self, scope: Scope, held: Allocations, in_force: InForce) -> list[Gang]:
        """Return the gangs of which some part is in ``scope``, and that are not about to end."""
        placed = _Placed(held, self)
        found = placed.load(placed.in_scope(scope, in_force).tolist())
        return [gang for gang in found if not gang.is_ending]
