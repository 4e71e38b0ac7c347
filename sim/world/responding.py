"""What running jobs are told: response, shedding, restrictions on batches, drains, fallback.

The same decisions as those of ``admission.directives`` on the server, made by the same functions;
what the server writes into its ledger and has agents hear is done to the gangs, a little later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from admission.core.elastic import draw_of
from admission.core.fallback import Fallback, next_state
from admission.core.fallback import Standing as FallbackStanding
from admission.core.response import (
    Level,
    Responded,
    Standing,
    Subject,
    Throttling,
    is_over,
    respond,
)
from admission.core.shedding import (
    SAVE_S,
    USUAL_SAVE_S,
    Candidate,
    Reach,
    Room,
    least_loss,
    lost_gpu_s,
    margins_by_rack,
    needs_of,
)
from admission.core.sites import Sites, facts_of
from admission.core.watts import Watts
from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind
from sim.world.gangs import Gang, Gangs, Job
from sim.world.policy import Policy

__all__ = ["Directing"]

Array = NDArray[np.float64]

#: Attempts that were lost count for the fallback of a job for so long, s.
_FAILURES_WITHIN_S = 3600.0


@dataclass(eq=False)
class Directing:
    """What is remembered of telling running jobs."""

    policy: Policy
    gangs: Gangs
    epoch_s: float
    #: does something once a gang has heard of it
    later: Callable[[Callable[[], None], Gang], None]
    note: Callable[[str, str, str], None]
    #: what every rack has left by true watts, as a share: for pauses without need
    true_margins: Callable[[Reach], Array]
    #: whether more is drawn somewhere than may be, by what is read; and whether that is new
    is_over: bool = False
    goes_over: bool = False
    #: since when each scope is over its budget, Unix s
    _over_since: dict[Scope, float] = field(default_factory=dict)
    _reach: Reach | None = None
    fallback: dict[str, FallbackStanding] = field(default_factory=dict)

    def step(
        self, headroom: Headroom, in_force: InForce, jobs: Sequence[Job], now: datetime
    ) -> None:
        """Do one round."""
        approach = self.policy.approach
        if approach.moves:
            self._fall_back(headroom, in_force, jobs, now.timestamp())
        self._drain(headroom.fleet, in_force)
        self._limit_batches(headroom.fleet, in_force)
        was_over, self.goes_over = self.is_over, False
        if not len(self.gangs) or not (approach.responds or approach.sheds):
            return
        room, responded = Room.of(headroom), None
        self.is_over = bool((room.left_w < 0.0).any())
        self.goes_over = self.is_over and not was_over
        if approach.responds:
            responded = self._respond(headroom, room, now.timestamp())
        if approach.sheds:
            self._shed(headroom, responded, now.timestamp())

    def reach_of(self, fleet: FleetArrays) -> Reach:
        if self._reach is None or self._reach.fleet is not fleet:
            self._reach = Reach.of(fleet)
        return self._reach

    # --- Graduated response ----------------------------------------------------------------------

    def _respond(self, headroom: Headroom, room: Room, now: float) -> Responded:
        """Have jobs give way or go back as their margins want it."""
        reach = self.reach_of(headroom.fleet)
        concerned = self._concerned(margins_by_rack(room, reach), headroom.fleet)
        watts = Watts(headroom)
        terms = {gang.key: _terms(gang, headroom.fleet) for gang in concerned}
        subjects = [_subject(gang, terms[gang.key], watts) for gang in concerned]
        responded = respond(subjects, room, reach, now=now, tuning=self.policy.response)
        for gang in concerned:
            after = responded.standings[gang.key]
            forgets = is_over(after, now, self.policy.response)
            gang.standing = Standing() if forgets else after
        needless = self._needless(responded, reach)
        for change in responded.changes:
            gang = self.gangs.by_key[change.key]
            self.note(change.level.name.lower(), change.key, f"{change.margin:.6f}")
            self._tell(gang, terms[change.key], change.level)
            if change.level is Level.PAUSED:
                gang.job.pauses += 1
                gang.job.false_pauses += change.key in needless
        return responded

    def _needless(self, responded: Responded, reach: Reach) -> set[str]:
        """Return the jobs that pause though, by true watts, their margin is as they want it."""
        pausing = [each.key for each in responded.changes if each.level is Level.PAUSED]
        if not pausing:
            return set()
        margins, found = self.true_margins(reach), set()
        for key in pausing:
            gang = self.gangs.by_key[key]
            below = gang.job.arrival.throttling.pause_below
            racks = reach.fleet.nodes.rack[gang.nodes]
            if below is not None and float(margins[racks].min()) >= below:
                found.add(key)
        return found

    def _concerned(self, margins: Array, fleet: FleetArrays) -> list[Gang]:
        """Return gangs whose margin asks for something, or that something is remembered of."""
        found = []
        for gang in self.gangs:
            terms = gang.job.arrival.throttling
            asked = [each for each in (terms.shrink_below, terms.pause_below) if each is not None]
            if gang.leaves_s is not None or not asked:
                continue
            least = float(margins[fleet.nodes.rack[gang.nodes]].min())
            if least < max(asked) or gang.standing != Standing():
                found.append(gang)
        return found

    def _tell(self, gang: Gang, terms: Throttling, level: Level) -> None:
        def hear() -> None:
            shrinks = level is not Level.FULL and terms.shrink_below is not None
            gang.response_scale = terms.batch_scale if shrinks and terms.cap_w is None else 1.0
            gang.response_cap_w = terms.cap_w if shrinks and terms.cap_w is not None else np.inf
            gang.is_paused = level is Level.PAUSED
            self.gangs.tell(gang)

        self.later(hear, gang)

    # --- Shedding --------------------------------------------------------------------------------

    def _shed(self, headroom: Headroom, responded: Responded | None, now: float) -> None:
        """End the jobs that lose the least where more is drawn than may be, for too long."""
        reach, watts = self.reach_of(headroom.fleet), Watts(headroom)
        room = Room.proven(headroom)
        over = {need.scope for need in needs_of(room, reach)}
        self._over_since = {scope: self._over_since.get(scope, now) for scope in over}
        late = {
            scope
            for scope, since in self._over_since.items()
            if now - since >= self.policy.shed_after_s
        }
        if not late:
            return
        if responded is not None:
            room = Room(room.budget_w, np.maximum(room.left_w, responded.left_w))
        self._free_what_ends(room, reach, watts)
        needs = [need for need in needs_of(room, reach) if need.scope in late]
        if not needs:
            return
        staying = [gang for gang in self.gangs if gang.leaves_s is None]
        choice = least_loss([self._candidate(each, watts) for each in staying], needs, reach)
        for candidate in choice.chosen:
            self.stop(self.gangs.by_key[candidate.key], "shedding", str(needs[0].scope))

    def _free_what_ends(self, room: Room, reach: Reach, watts: Watts) -> None:
        for gang in self.gangs:
            if gang.leaves_s is not None:
                freed_w = np.maximum(watts.drawn_w(gang) - watts.idle_w(gang), 0.0)
                places, carried_w = reach.carried(gang.nodes.tolist(), freed_w.tolist())
                room.left_w[places] += carried_w

    def _candidate(self, gang: Gang, watts: Watts) -> Candidate:
        freed_w = np.maximum(watts.drawn_w(gang) - watts.idle_w(gang), 0.0)
        return Candidate(
            key=gang.key,
            nodes=tuple(gang.nodes.tolist()),
            watts=tuple(freed_w.tolist()),
            lost_gpu_s=lost_gpu_s(
                gpus=len(gang.gpus),
                started_at=gang.started_s,
                last_checkpoint_at=gang.saved_s,
                now=self.gangs.now_s,
            ),
            tier=0 if gang.request.preemptible else 1,
        )

    # --- Ending ----------------------------------------------------------------------------------

    def stop(self, gang: Gang, owner: str, why: str) -> None:
        """Have a gang save and end, and its job wait again."""
        if gang.leaves_s is not None:
            return
        saves = gang.request.checkpoint_interval_s is not None
        gang.leaves_s = self.gangs.now_s + self.policy.directive_delay_s
        gang.why, gang.told_s = owner, self.gangs.now_s
        if saves:
            gang.leaves_s += SAVE_S.get(owner, USUAL_SAVE_S)
            self.later(partial(self.gangs.save, gang), gang)
        self.note("stop", gang.key, f"{owner}: {why}")

    # --- Restrictions ----------------------------------------------------------------------------

    def _drain(self, fleet: FleetArrays, in_force: InForce) -> None:
        for standing in in_force.of(RestrictionKind.DRAIN):
            rows = in_force.node_rows(fleet, standing.scope)
            for gang in list(self.gangs):
                if gang.request.preemptible and np.isin(gang.nodes, rows).any():
                    self.stop(gang, "restriction", str(standing.scope))

    def _limit_batches(self, fleet: FleetArrays, in_force: InForce) -> None:
        """Have jobs keep to the batches that restrictions leave them."""
        found = in_force.of(RestrictionKind.MAX_BATCH_SCALE)
        for gang in self.gangs:
            limit = min(
                (each.number for each in found if is_in(gang, each.scope, fleet, in_force)),
                default=1.0,
            )
            if limit != gang.batch_limit:
                gang.batch_limit = limit
                self.note("batch", gang.key, f"{limit:g}")
                self.later(partial(self.gangs.tell, gang), gang)

    # --- Fallback --------------------------------------------------------------------------------

    def _fall_back(
        self, headroom: Headroom, in_force: InForce, jobs: Sequence[Job], now: float
    ) -> None:
        """Move jobs whose sites ask for it between the states."""
        sites = Sites(headroom, in_force)
        troubled = sites.troubled
        if not troubled and not self.fallback:
            return
        for job in jobs:
            if job.home in troubled or job.key in self.fallback:
                self._follow(job, sites, now)

    def _follow(self, job: Job, sites: Sites, now: float) -> None:
        standing = self.fallback.get(job.key, FallbackStanding())
        recent = [at for at in job.failures_s if self.gangs.now_s - at < _FAILURES_WITHIN_S]
        facts = facts_of(sites, job.home, job.request, len(recent), moves=job.arrival.moves)
        after, taken = next_state(standing, facts, self.policy.fallback, now=now)
        self.fallback[job.key] = after
        if taken is not None:
            self.go(job, after.state, taken.why)
        elif after.state is Fallback.PRIMARY_SITE and not after.open_since:
            del self.fallback[job.key]

    def go(self, job: Job, state: Fallback, why: str) -> None:
        """Have a job go on as ``state`` says; what runs where it may not be any more ends."""
        self.note("fallback", job.key, f"{state}: {why}")
        gang = self.gangs.by_key.get(job.key)
        if gang is None:
            return
        is_home = set(gang.placement.sites) == {job.home}
        if (state is Fallback.REGIONAL and job.home in gang.placement.sites) or (
            state is Fallback.LOCAL_ONLY and not is_home
        ):
            self.stop(gang, "fallback", why)

    def move_all(self, scope: Scope, state: Fallback, in_force: InForce, fleet: FleetArrays) -> int:
        """Have all jobs that run in a place go on as ``state`` says, as a playbook asks for it."""
        moved = 0
        for gang in list(self.gangs):
            if gang.job.arrival.moves and is_in(gang, scope, fleet, in_force):
                at = self.epoch_s + self.gangs.now_s
                self.fallback[gang.key] = FallbackStanding(state, at)
                self.go(gang.job, state, f"a playbook asks for it in {scope}")
                moved += 1
        return moved


def is_in(gang: Gang, scope: Scope, fleet: FleetArrays, in_force: InForce) -> bool:
    """Say whether some part of a gang is in ``scope``."""
    if scope.kind is ScopeKind.JOB:
        return scope.name in (gang.request.job, gang.key)
    if scope.kind is ScopeKind.CLASS:
        return gang.request.job_class == scope.name
    if scope.kind in (ScopeKind.STORAGE, ScopeKind.LINK):
        return gang.placement.storage == scope.name
    return bool(np.isin(gang.nodes, in_force.node_rows(fleet, scope)).any())


def _terms(gang: Gang, fleet: FleetArrays) -> Throttling:
    """Return what a gang agrees to: a smaller batch, or else a cap, and then a pause."""
    terms, request = gang.job.arrival.throttling, gang.request
    if terms.shrink_below is None or terms.batch_scale < 1.0:
        return terms
    draw = draw_of(fleet, int(fleet.gpus.model[gang.gpus[0]]), 0, request)
    placed_w = gang.placement.power_cap_w or draw.peak_w
    if draw.lowest_w >= placed_w:
        return Throttling(None, terms.pause_below)
    speed = draw.speed(draw.lowest_w) / draw.speed(placed_w)
    return Throttling(terms.shrink_below, terms.pause_below, speed, draw.lowest_w)


def _subject(gang: Gang, terms: Throttling, watts: Watts) -> Subject:
    capped_w = None if terms.cap_w is None else tuple(watts.capped_w(gang, terms.cap_w).tolist())
    return Subject(
        key=gang.key,
        throttling=terms,
        standing=gang.standing,
        gpus=len(gang.gpus),
        nodes=tuple(gang.nodes.tolist()),
        draw_w=tuple(watts.drawn_w(gang).tolist()),
        floor_w=tuple(watts.idle_w(gang).tolist()),
        peak_w=tuple(watts.peak_w(gang).tolist()),
        capped_w=capped_w,
    )
