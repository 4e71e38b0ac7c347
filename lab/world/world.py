"""A fleet, its queue and its policies in one process, on one clock.

Each step: what is wrong is stated, jobs come, the twin goes on, gangs make progress, and what was
decided a moment ago is done. Each cycle: readings become headroom, rules fire and restrict, and
admission decides who starts, who gives way and who waits, as on the server and by its functions.

The same fleet, arrivals, policy and seed give the same record, to the byte.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.allocation.allocations import Allocations, busy, running_of
from admission.core.allocation.reservation import Reserved
from admission.core.cycle.controlled import starting_low
from admission.core.cycle.decide import Admission, Decisions
from admission.core.directives.standing import Standing, is_in_time
from admission.core.holding import ROOM_WITHIN_S
from admission.core.moving import RETURNS_WITHIN_S, within_the_hour
from admission.core.placement.cluster import Cluster
from admission.core.placement.gpu_use import GpuUses, uses_of
from admission.core.preempting import disrupted
from admission.core.request import Request
from admission.core.response.fallback import Fallback, restricted
from admission.core.sharing import PastUse
from admission.core.snapshot import (
    ClassRules,
    ConcurrencyCap,
    Pending,
    ProjectShare,
    Snapshot,
)
from lab.fleet import Fleet
from lab.twin import Conditions, FailureModel, Twin
from lab.twin.network import Network
from lab.twin.storage import Storage
from lab.world.agents import Agents
from lab.world.arrival import Arrival
from lab.world.directing import Directing
from lab.world.fleet_arrays import Rows, arrays_of, with_budgets
from lab.world.frame import Sensors
from lab.world.gangs import EPOCH_S, Gang, Gangs, Job, Saved
from lab.world.holding import Holding
from lab.world.lemons import Lemons
from lab.world.operators import Operators
from lab.world.policing import Directive, Policing
from lab.world.policy import Policy
from lab.world.record import JobOutcome, Ledger, Record, drawn_w
from lab.world.sampling import Sampling
from lab.world.seeing import Seeing
from policies.headroom.evaluate import Headroom as HeadroomNow
from policies.headroom.reach import Reach, Room
from policies.limiting import budgets_in
from policies.playbooks.machine import Outcome, Progress
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import ScopeKind

__all__ = ["EPOCH_S", "World"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: What was lost waits so long before it begins again, s.
_BACKOFF_S = 30.0
#: How long operators take to answer, by the median, s.
_ANSWERS_AFTER_S = 300.0
#: Of so many jobs of a project that ended last the share of their walltime is remembered.
_REMEMBERED = 50
#: Where nothing happens there is a cycle so often, s: rules leave out longer gaps.
_CALM_S = 30.0
#: After something has gone wrong, and while more is drawn than may be, a cycle follows each step,
#: as on the server all the time: for so long, s.
_HURRY_S = 30.0
#: What has heard that it is to stand still does so within, s.
_COMES_TO_REST_S = 6.0
#: Pauses are leases, which are renewed so often, s.
_RENEWS_S = 30.0


class World:
    """A closed loop. :meth:`run` is its only way forward."""

    def __init__(
        self,
        fleet: Fleet,
        arrivals: Sequence[Arrival],
        policy: Policy | None = None,
        *,
        seed: int,
        conditions_at: Callable[[float, Conditions], None] | None = None,
        operators: Operators | None = None,
        failures: FailureModel | None = None,
        projects: Mapping[str, ProjectShare] | None = None,
        classes: Mapping[str, ClassRules] | None = None,
        step_s: float = 2.0,
        sample_s: float = 10.0,
        cycle_s: float = 10.0,
        others_share: float = 0.0,
        acting_share: float = 1.0,
        hosts: Mapping[int, Array] | None = None,
        rack_inlets: bool = False,
        finds_lemons: bool = False,
    ) -> None:
        """``conditions_at`` states the faults at a second of the twin, anew at each step.

        ``others_share``: the share of nodes that another scheduler fills with load of its own.
        ``acting_share``: that of nodes whose agents set limits; others only read. ``hosts``: what
        was learned of hosts before (:attr:`hosts`). ``rack_inlets``: racks have meters of the air
        that they take in, and not only zones. ``finds_lemons``: GPUs are compared with their peers,
        which the twin has bad ones among, too.
        """
        for name, value in {"step_s": step_s, "sample_s": sample_s, "cycle_s": cycle_s}.items():
            if not 0.0 < value < np.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {value}")
        self.fleet, self.policy, self.seed = fleet, policy or Policy(), seed
        self._conditions_at = conditions_at
        self._step_s, self._sample_s, self._cycle_s = step_s, sample_s, cycle_s
        self.twin = _make_twin(fleet, seed, failures, step_s, others_share)
        self.network = Network(self.twin, seed=seed)
        self.storage = Storage(fleet, self.twin.conditions)
        self._inventory = arrays_of(fleet, rack_inlets=rack_inlets)
        self._rows = Rows.of(fleet, self._inventory)
        self._jobs = [
            Job(number, each, replace(each.request, submitted_at=EPOCH_S + each.at_s))
            for number, each in enumerate(sorted(arrivals, key=lambda a: (a.at_s, a.request.key)))
        ]
        self._site_of_node = fleet.site_of_rack[fleet.rack_of_node]
        acts = _spread(acting_share, len(fleet.nodes))
        self._agents = Agents(self.twin, self._site_of_node, acts)
        self._come = 0
        #: that have come and not ended, by key
        self.open: dict[str, Job] = {}
        self.gangs = Gangs(self.twin, self.network, self.storage, self._inventory, self._rows)
        sensors = Sensors(self.twin, self.network, self._inventory, self._rows, epoch_s=EPOCH_S)
        lemons = Lemons(self._inventory) if finds_lemons else None
        self._seeing = Seeing(
            self.policy, sensors, self.gangs, self._inventory, hosts or {}, lemons
        )
        self.ledger = Ledger(self.twin)
        self._sampling = Sampling(self.twin)
        self._policing = Policing(
            self.policy,
            operators or Operators(seed, _ANSWERS_AFTER_S),
            fleet=lambda: self._seeing.arrays,
            issue=self._issue,
            note=self.ledger.note,
        )
        self._directing = Directing(
            self.policy,
            self.gangs,
            self._policing.book,
            later=self._later,
            note=self.ledger.note,
            true_margins=self._true_margins,
        )
        self._projects, self._classes = dict(projects or {}), classes or {}
        self._used = PastUse(self.policy.shares.half_life_s)
        #: when a job was asked to give way, Unix s, and of which project
        self._preempted: list[tuple[float, str]] = []
        self._moved_at: list[float] = []
        self._ratios: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        #: what is to be done, at which second of the twin
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._told = 0
        self._cycles = self._samples = 0
        #: what the last cycle saw: to leave one out where nothing has happened since
        self._cycled_s = self._decided_s = -np.inf
        #: jobs have come or gone, begun or ended, or may be where they could not be before
        self._hurries_until_s = -np.inf
        self._is_news = True
        self._decided_on = -1
        self._wrong = b""
        self._limits_version: tuple[int, bytes] = (-1, b"")
        self._capped: Bools = np.zeros(fleet.gpu_count, dtype=np.bool_)
        self._budgets_asked: tuple[ActiveRestriction, ...] = ()
        #: in the inventory's rows: what the controller said last, and who heard nothing then
        self._ordered_w: Array = np.full(fleet.gpu_count, np.inf)
        self._ordered_deaf = b""
        self._holding = Holding(self.policy.unmanaged, self.policy.control)
        self._paused_s = -np.inf
        self._budgets = self._make_budgets()
        self._shares_seen: tuple[bytes, bytes] = (b"", b"")

    @property
    def now(self) -> float:
        """Unix time of the twin's clock."""
        return EPOCH_S + self.twin.now_s

    @property
    def in_force(self) -> InForce:
        """The restrictions in force."""
        return self._policing.leases.in_force(_moment(self.now))

    # --- Going on --------------------------------------------------------------------------------

    @property
    def hosts(self) -> dict[int, Array]:
        """What is known of the draw of hosts: W of GPUs and node by id of the model."""
        return self._seeing.hosts

    def run(self, until_s: float, progress: Callable[[float], None] | None = None) -> Record:
        """Go on until ``until_s`` seconds of the twin; return the record so far.

        ``progress`` is told the twin's clock at each sample.
        """
        while self.twin.now_s < until_s - 1e-6:
            self._step(min(self._step_s, until_s - self.twin.now_s))
            is_due = self.twin.now_s >= self._cycles * self._cycle_s - 1e-6
            if self.twin.now_s <= self._hurries_until_s or (is_due and not self._is_calm()):
                self._cycle()
            if is_due:
                self._cycles = int(self.twin.now_s / self._cycle_s + 1e-6) + 1
            if self.twin.now_s >= self._samples * self._sample_s - 1e-6:
                self._samples = int(self.twin.now_s / self._sample_s + 1e-6) + 1
                self._sample()
                if progress is not None:
                    progress(self.twin.now_s)
        return self._record()

    def restrict(self, wanted: Wanted) -> None:
        """Put a restriction in force as somebody issues it now. Raises BadRestriction."""
        now = _moment(self.now)
        self._policing.book.check(wanted, now)
        self._policing.book.apply([wanted], now=now)
        self._is_news, self._hurries_until_s = True, self.twin.now_s + _HURRY_S

    def _step(self, dt_s: float) -> None:
        twin = self.twin
        if self._conditions_at is not None:
            twin.conditions.reset()
            self._conditions_at(twin.now_s + dt_s, twin.conditions)
            self._mind_what_is_wrong()
        twin.advance(dt_s)
        if self._agents.step():
            self._mark_capped()
        done, lost = self.gangs.advance(dt_s)
        for gang in lost:
            self._lose(gang)
        for gang in done:
            self._finish(gang)
        self._come_due()
        while self._due and self._due[0][0] <= twin.now_s:
            heapq.heappop(self._due)[2]()
        self._end_leaving()
        if self.policy.approach.controls:
            self._control()
        self._follow_budgets()
        self.ledger.count(dt_s, self._budgets, self._capped)

    def _mind_what_is_wrong(self) -> None:
        """Run cycles at each step for a while after a fault begins or ends."""
        wrong = b"".join(
            values.tobytes()
            for values in vars(self.twin.conditions).values()
            if isinstance(values, np.ndarray)
        )
        if self._wrong and wrong != self._wrong:
            self._hurries_until_s = self.twin.now_s + _HURRY_S
        self._wrong = wrong

    def _come_due(self) -> None:
        while self._come < len(self._jobs):
            job = self._jobs[self._come]
            if job.arrival.at_s > self.twin.now_s:
                return
            self.open[job.key] = job
            self._come += 1
            self._is_news = True

    def _later(self, act: Callable[[], None], gang: Gang | None = None) -> None:
        """Do something once agents have heard of it, and all nodes of ``gang`` if it is given.

        What nodes do not hear is said to them again.
        """
        self._told += 1
        at_s = self.twin.now_s + self.policy.directive_delay_s
        say: Callable[[], None] = partial(self._say, act, gang)
        heapq.heappush(self._due, (at_s, self._told, say))

    def _say(self, act: Callable[[], None], gang: Gang | None) -> None:
        if gang is not None and self.gangs.by_slot.get(gang.slot) is not gang:
            return
        if gang is not None and not self._hears(gang):
            self._later(act, gang)
            return
        act()

    def _hears(self, gang: Gang) -> bool:
        return not self._agents.deaf[self._rows.node[gang.nodes]].any()

    # --- Ends of attempts ------------------------------------------------------------------------

    def _finish(self, gang: Gang) -> None:
        job = gang.job
        self._leave(gang, Saved(job.arrival.runs_s, self.gangs.safe(gang).checkpoint))
        job.state, job.ended_s = "done", self.twin.now_s
        self._close(job)
        ran_s = self.twin.now_s - gang.started_s
        self._ratios[job.request.project].append(min(ran_s / job.request.walltime_s, 1.0))

    def _lose(self, gang: Gang) -> None:
        """End an attempt whose GPU or node is gone: nothing is saved any more."""
        gang.job.failures_s.append(self.twin.now_s)
        self._leave(gang, self.gangs.safe(gang))
        self._again(gang, "lost")

    def _end_leaving(self) -> None:
        for gang in [gang for gang in self.gangs if gang.leaves_s is not None]:
            saved = self.gangs.is_saved(gang)
            told = self.twin.now_s >= gang.told_s + self.policy.directive_delay_s
            is_late = self.twin.now_s >= (gang.leaves_s or 0.0)
            # At most once: what cannot be reached may go on, and begins nowhere else meanwhile.
            if (is_late or (told and saved)) and self._hears(gang):
                self._leave(gang, self.gangs.safe(gang))
                self._again(gang, gang.why)

    def _leave(self, gang: Gang, keeps: Saved) -> None:
        self.gangs.end(gang, keeps=keeps)
        self._used.change(gang.job.request.project, "", -len(gang.gpus), self.now)
        self._directing.forget(gang, _moment(self.now))
        self._is_news = True

    def _again(self, gang: Gang, why: str) -> None:
        """Queue the job of an attempt that ended early again, if it may be restarted."""
        job = gang.job
        self.ledger.note("end", job.key, why)
        if gang.returns_to is not None:
            job.state, job.not_before_s = "queued", self.twin.now_s
            job.returns_to, job.returns_by_s = gang.returns_to, gang.told_s + RETURNS_WITHIN_S
            return
        job.restarts += 1
        if job.restarts > job.arrival.max_restarts:
            job.state, job.ended_s = "failed", self.twin.now_s
            self._close(job)
            return
        job.state, job.not_before_s = "queued", self.twin.now_s + _BACKOFF_S

    def _close(self, job: Job) -> None:
        self.ledger.note(job.state, job.key)
        self._directing.fallback.pop(job.key, None)
        del self.open[job.key]

    # --- Deciding --------------------------------------------------------------------------------

    def _is_calm(self) -> bool:
        """Say whether a cycle can be left out, since it would find the same as the last one.

        No job has come, gone or waits, none gives way, no rule is about to fire, and nothing is
        restricted. Loads and heat alone move on, which the next cycle within :data:`_CALM_S` sees.
        """
        return (
            not self._is_news
            and self.twin.now_s - self._cycled_s < _CALM_S - self._cycle_s / 2
            and not any(job.state == "queued" for job in self.open.values())
            and self._policing.is_idle
            and all(gang.is_at_ease for gang in self.gangs)
        )

    def _cycle(self) -> None:
        self.network.advance(min(self.twin.now_s - self._cycled_s, _CALM_S))
        self._cycled_s = self.twin.now_s
        headroom, held, reserved = self._seeing.look(self.now, self.in_force)
        now, approach = _moment(self.now), self.policy.approach
        room = headroom
        if self._holding.starts_low:
            room, held, reserved = self._brought_down(headroom, held)
            # What is held at a cap has not more than that to come.
            headroom = replace(headroom, reservations=reserved.fleet)
        if approach.follows_rules:
            self._policing.step(headroom, now)
        self._decide(room, held, reserved, self.in_force)
        jobs = list(self.open.values())
        self._directing.step(
            self._seeing.held(), headroom, self.in_force, jobs, now, kept=self._holding.kept
        )  # fmt: skip
        self._set_caps()
        if self._directing.goes_over:
            self._hurries_until_s = self.twin.now_s + _HURRY_S

    # --- Controlling -----------------------------------------------------------------------------

    def _control(self) -> None:
        """Look at what is drawn, and have agents set the caps that hold it."""
        headroom = self._seeing.measured(self.now, self.in_force)
        before = self._holding.paused
        nodes = self._rows.node
        cap_w = self._holding.step(
            headroom,
            self._seeing.held_by_all(),
            acts=self._agents.acts[nodes],
            ready=self._ready[nodes],
            standing=self._standing(),
        )
        if self._holding.paused.saves_w.keys() != before.saves_w.keys() or self._pauses_due():
            self._directing.hold_still(tuple(self._holding.paused.saves_w), _moment(self.now))
            self._paused_s = self.twin.now_s
        for key, start_w in self._holding.may_start().items():
            self._begin(self.gangs.waiting[key], start_w)
        for gang in list(self.gangs.waiting.values()):
            if self.twin.now_s - gang.started_s > ROOM_WITHIN_S:
                self._go_without(gang)
        deaf = self._agents.deaf.tobytes()
        if deaf != self._ordered_deaf or not np.array_equal(cap_w, self._ordered_w):
            self._ordered_w, self._ordered_deaf = cap_w, deaf
            holder = self.twin.job_of_gpu[self._rows.gpu].copy()
            self._later(partial(self._hear_orders, cap_w, holder))

    def _standing(self) -> Standing:
        """Return who may have to stand still: only where somebody has lowered a budget."""
        if not self.in_force.of(RestrictionKind.POWER_BUDGET_W):
            return Standing()
        within_s = self.policy.directive_delay_s + _COMES_TO_REST_S
        speeds = {
            gang.id: 1.0 - gang.job.request.max_slowdown
            for gang in self.gangs
            if gang.job.arrival.throttling.pause_below is not None and not gang.is_ending
        }
        in_time = is_in_time(self.in_force, _moment(self.now), within_s)
        return Standing(speeds, is_in_time=in_time)

    def _pauses_due(self) -> bool:
        """Say whether pauses have to be renewed."""
        is_late = self.twin.now_s - self._paused_s >= _RENEWS_S
        return bool(self._holding.paused.saves_w) and is_late

    def _hear_orders(self, cap_w: Array, holder: Ints) -> None:
        """Have agents set caps on what still runs where it ran when they were decided."""
        rows = self._rows.gpu
        same = self.twin.job_of_gpu[rows] == holder
        self._agents.hear_of_orders(rows[same], cap_w[same])
        self._mark_capped()

    def _brought_down(
        self, headroom: HeadroomNow, held: Allocations
    ) -> tuple[HeadroomNow, Allocations, Reserved]:
        """Return the fleet, what is held and reserved once running load has given way."""
        down, arrays = self._holding.brought_down(headroom, held)
        held = replace(held, arrays=arrays)
        reserved = held.reserved(down, self.policy.reserve)
        return replace(down, reservations=reserved.fleet), held, reserved

    def _go_without(self, gang: Gang) -> None:
        """Let go of GPUs for which no room could be made, and queue the job again."""
        del self.gangs.waiting[gang.id]
        self.ledger.note("no-room", gang.job.key)
        gang.job.state, gang.job.not_before_s = "queued", self.twin.now_s + _BACKOFF_S
        self._is_news = True

    def _decide(
        self, headroom: HeadroomNow, held: Allocations, reserved: Reserved, in_force: InForce
    ) -> None:
        version = self._policing.leases.version
        waited_s = self.twin.now_s - self._decided_s
        if self._holding.paused.saves_w:  # what stands still goes on before anything starts
            return
        if not self._is_news and version == self._decided_on and waited_s < _CALM_S:
            return
        self._is_news, self._decided_s, self._decided_on = False, self.twin.now_s, version
        pending = self._pending(headroom)
        if not pending and not self._could_grow():
            return
        counted = headroom
        if self.policy.approach.reads_live:
            counted = replace(
                headroom, reservations=type(headroom.reservations).none(headroom.fleet)
            )
        cluster = Cluster.of(
            counted,
            in_force,
            self._occupied(headroom, held),
            now=self.now,
            kept_shares=self._kept_shares,
        )
        self._note_reserved(cluster)
        if not self.policy.approach.enforces_budgets:
            cluster = _endless(cluster)
        snapshot = Snapshot(
            now=self.now,
            cluster=cluster,
            pending=pending,
            running=running_of(held, reserved),
            projects=self._shares(),
            classes=self._classes,
            caps=_concurrency(in_force),
            tuning=self.policy.tuning,
            preemption=self.policy.preemption,
            disrupted=disrupted(self._preempted, self.now),
            moving=self.policy.moving,
            moved=within_the_hour(self._moved_at, self.now),
            curves={key: job.curve for key, job in self.open.items() if job.measured},
            room=self._room(),
            draws=self._holding.draws,
            run_shares={name: median(found) for name, found in self._ratios.items() if found},
        )
        if self._holding.starts_low:
            snapshot = starting_low(snapshot)
        decisions = self.policy.approach.decide(snapshot)
        # Who waits for others' heat starts though nothing comes or ends.
        self._is_news = bool(decisions.admitted or decisions.preempt or decisions.after.staggered)
        self._admit(decisions)
        self._preempt(decisions)
        self._move(decisions)

    def _could_grow(self) -> bool:
        """Say whether something runs that may have more GPUs, or give some back."""
        moving = self.policy.moving
        return (moving.grows or moving.shrinks) and any(self._elastic())

    def _elastic(self) -> Iterator[Gang]:
        return (gang for gang in self.gangs if gang.job.request.is_elastic)

    def _room(self) -> Room | None:
        """Return what budgets have left by what is drawn; None: nobody heeds them."""
        if not self.policy.approach.enforces_budgets:
            return None
        return Room.of(self._seeing.measured(self.now, self.in_force))

    @property
    def _kept_shares(self) -> tuple[float, float]:
        return self.policy.control.kept_shares if self._holding.starts_low else (0.0, 0.0)

    def _pending(self, headroom: HeadroomNow) -> tuple[Pending, ...]:
        sites = tuple(headroom.fleet.sites.names.tolist())
        return tuple(
            Pending(
                request=self._as_asked(job, sites),
                held_by="review" if self._is_held(job) else "",
                not_before=EPOCH_S + job.not_before_s,
                returns_to=job.returns_to if self.twin.now_s < job.returns_by_s else None,
            )
            for job in self.open.values()
            if job.state == "queued"
        )

    def _is_held(self, job: Job) -> bool:
        status = self._directing.fallback.get(job.key)
        return status is not None and status.state is Fallback.HELD

    def _as_asked(self, job: Job, sites: tuple[str, ...]) -> Request:
        """Return a job's request as its fallback and the approach leave it."""
        request = job.request
        status = self._directing.fallback.get(job.key)
        if status is not None:
            request = restricted(request, status.state, home=job.home, all_sites=sites)
        if not self.policy.approach.caps and request.lowest_cap_w is not None:
            request = replace(request, lowest_cap_w=None)
        return request

    def _occupied(self, headroom: HeadroomNow, held: Allocations) -> GpuUses:
        """Return by what each GPU is taken, or that nobody would run a job there."""
        ready = self._ready[self._rows.node]
        return uses_of(held.gpus, busy(headroom), ~ready[headroom.fleet.gpus.node])

    @property
    def _ready(self) -> Bools:
        """Say of each node whether it takes jobs."""
        return np.asarray(self.twin.queued & ~self._agents.deaf)

    def _shares(self) -> dict[str, ProjectShare]:
        return self._used.of(self.policy.shares.applied(self._projects.values()), self.now)

    def _admit(self, decisions: Decisions) -> None:
        for each in decisions.admitted:
            slowdown = each.placement.slowdown
            self._place(each, decisions.snapshot.expected_s(each.request, slowdown))

    def _place(self, admission: Admission, expected_s: float) -> None:
        job, placement = self.open[admission.request.key], admission.placement
        request = replace(admission.request, submitted_at=job.request.submitted_at)
        starts_low = self._holding.starts_low
        if starts_low:
            # Its cap is the controller's, which has to know what it agreed to.
            request, placement = job.request, replace(placement, power_cap_w=None)
        gang = self.gangs.place(job, request, placement, expected_s=expected_s)
        job.state = "starting"
        if not starts_low:
            self._begin(gang, np.inf)

    def _begin(self, gang: Gang, cap_w: float) -> None:
        job, placement = gang.job, gang.placement
        if not self.gangs.begin(gang):
            job.state = "queued"
            return
        job.state, job.returns_to = "running", None
        self._used.change(job.request.project, "", len(gang.gpus), self.now)
        if job.started_s is None:
            job.started_s = self.twin.now_s
            job.first_site = placement.sites[0] if len(placement.sites) == 1 else ""
        cap_w = min(cap_w, np.inf if placement.power_cap_w is None else placement.power_cap_w)
        cap = "" if np.isinf(cap_w) else f" at {cap_w:g} W"
        self.ledger.note("start", job.key, f"{placement.gpus}{cap}")
        if self.policy.approach.controls:
            gpus = self._rows.gpu[gang.gpus]
            self._agents.hear_of_orders(gpus, np.full(len(gpus), cap_w))
        self._mark_capped()

    def _preempt(self, decisions: Decisions) -> None:
        for leaving in decisions.preempt:
            gang = self.gangs.by_key.get(leaving.key)
            if gang is not None:
                self._preempted.append((self.now, gang.job.request.project))
                self._directing.stop(
                    [gang], owner="preemption", cause=leaving.for_key, why=leaving.sentence,
                    now=_moment(self.now),
                )  # fmt: skip

    def _move(self, decisions: Decisions) -> None:
        for move in decisions.moves.chosen:
            gang = self.gangs.by_key.get(move.key)
            if gang is not None:
                self._moved_at.append(self.now)
                gang.returns_to = move.placement
                self._directing.stop(
                    [gang], owner=move.kind, cause=move.for_key or move.key, why=move.sentence,
                    now=_moment(self.now),
                )  # fmt: skip

    # --- What is restricted, and asked -----------------------------------------------------------

    def _set_caps(self) -> None:
        """Have agents set the caps in force: those that hear of them."""
        version = self._policing.leases.version, self._agents.deaf.tobytes()
        if version == self._limits_version:
            return
        self._limits_version = version
        in_force, fleet = self.in_force, self._seeing.arrays
        cap_w = np.empty(len(fleet.gpus))
        cap_mhz = np.empty(len(fleet.gpus))
        cap_w[self._rows.gpu] = in_force.by_gpu(fleet, RestrictionKind.POWER_CAP_W)
        cap_mhz[self._rows.gpu] = in_force.by_gpu(fleet, RestrictionKind.CLOCK_CAP_MHZ)
        self._later(partial(self._hear_caps, cap_w, cap_mhz))

    def _hear_caps(self, cap_w: Array, cap_mhz: Array) -> None:
        self._agents.hear_of_restrictions(cap_w, cap_mhz)
        self._mark_capped()

    def _mark_capped(self) -> None:
        """Note which GPUs somebody has capped: their throttling is expected."""
        twin = self.twin
        self._capped = np.isfinite(twin.cap_w) | np.isfinite(twin.cap_mhz)
        for gang in self.gangs:
            if np.isfinite(gang.cap_w):
                self._capped[self._rows.gpu[gang.gpus]] = True

    def _issue(self, directive: Directive) -> Outcome:
        """Carry out a playbook's request to the jobs in a place."""
        self.ledger.note(directive.kind, str(directive.scope), directive.to)
        there = self._directing.within(directive.scope, self._seeing.held(), self.in_force)
        now, why = _moment(self.now), f"a playbook asks for it in {directive.scope}"
        if directive.kind == "migrate":
            if not self.policy.approach.moves:
                return Outcome(Progress.FAILED, "nothing moves")
            self._directing.move(there, Fallback(directive.to), why, now)
        elif directive.kind == "resume":
            self._directing.resume(there, directive.key, why, now)
        else:
            for gang in there:
                self._later(partial(self.gangs.save, gang), gang)
        return Outcome(Progress.DONE, f"{len(there)} jobs")

    # --- Budgets ---------------------------------------------------------------------------------

    def _follow_budgets(self) -> None:
        """Write lowered budgets into the inventory, as an operator would."""
        conditions = self.twin.conditions
        seen = (conditions.rack_budget_share.tobytes(), conditions.domain_budget_share.tobytes())
        asked = tuple(self.in_force.met_at(_moment(self.now), RestrictionKind.POWER_BUDGET_W))
        if seen == self._shares_seen and asked == self._budgets_asked:
            return
        self._shares_seen, self._budgets_asked = seen, asked
        self._budgets = self._make_budgets()
        rack_share = conditions.rack_budget_share[self._rows.rack]
        domain_share = conditions.domain_budget_share[self._rows.domain]
        arrays = self._inventory
        if (rack_share < 1.0).any() or (domain_share < 1.0).any():
            arrays = with_budgets(self._inventory, rack_share=rack_share, domain_share=domain_share)
        self._seeing.arrays = arrays
        self._is_news = True

    def _make_budgets(self) -> dict[str, Array]:
        """Return budgets of racks, power domains, zones and sites now, W, in the twin's rows."""
        twin, conditions = self.twin, self.twin.conditions
        site_w = np.empty(len(self.fleet.sites))
        site_w[self._rows.site] = self._inventory.sites.budget_w
        tops = np.flatnonzero(twin.domains.parent < 0)
        share = np.ones(len(site_w))
        np.minimum.at(share, twin.domains.site[tops], conditions.domain_budget_share[tops])
        budgets = {
            "rack": twin.parts.rack_budget_w * conditions.rack_budget_share,
            "domain": twin.domains.budget_w * conditions.domain_budget_share,
            "zone": twin.parts.zone_capacity_w,
            "site": site_w * share,
        }
        return self._as_asked_of(budgets)

    def _as_asked_of(self, budgets: dict[str, Array]) -> dict[str, Array]:
        """Return budgets as restrictions in force lower them, from when they have to be met."""
        rows, found = self._rows, dict(budgets)
        table = {
            ScopeKind.RACK: ("rack", rows.rack),
            ScopeKind.POWER_DOMAIN: ("domain", rows.domain),
            ScopeKind.ZONE: ("zone", rows.zone),
            ScopeKind.SITE: ("site", rows.site),
        }
        for kind, asked_w in budgets_in(self._budgets_asked, self._inventory).items():
            name, row = table[kind]
            limit_w = np.empty(len(asked_w))
            limit_w[row] = asked_w
            found[name] = np.fmin(found[name], limit_w)
        return found

    def _true_margins(self, reach: Reach) -> Array:
        """Return for each rack the margin of the tightest budget above it, by true watts."""
        twin, drawn = self.twin, drawn_w(self.twin)
        by_rack = 1.0 - drawn["rack"] / self._budgets["rack"]
        site = 1.0 - drawn["site"] / self._budgets["site"]
        zone = 1.0 - drawn["zone"] / self._budgets["zone"]
        domain = 1.0 - drawn["domain"] / self._budgets["domain"]
        least = np.minimum.reduce(
            [
                by_rack,
                site[self.fleet.site_of_rack],
                zone[self.fleet.row_of_rack],
                domain[twin.domains.rack_a],
                domain[twin.domains.rack_b],
            ]
        )
        return np.asarray(least[self._rows.rack])

    def _note_reserved(self, cluster: Cluster) -> None:
        whole_w = cluster.constants.empty_room_w[:-1]
        known = np.isfinite(whole_w) & (whole_w > 0.0)
        worst = float((-cluster.room_w[:-1][known] / whole_w[known]).max(initial=0.0))
        self.ledger.reserved_over_share = max(self.ledger.reserved_over_share, worst)

    # --- What it comes to ------------------------------------------------------------------------

    def _sample(self) -> None:
        queued = sum(job.state == "queued" for job in self.open.values())
        self._sampling.take(
            self._budgets,
            self._capped,
            queued=queued,
            paused_gpus=sum(len(gang.gpus) for gang in self.gangs if gang.is_paused),
            firing=self._policing.firing,
            restrictions=len(self.in_force.restrictions),
        )

    def _record(self) -> Record:
        outcomes = [self._outcome(job) for job in self._jobs[: self._come]]
        ledger = self.ledger
        return Record(
            seed=self.seed,
            policy=self.policy.name,
            sites=tuple(self.fleet.sites),
            until_s=self.twin.now_s,
            times_s=self._sampling.times(),
            series=self._sampling.series(),
            jobs=outcomes,
            decisions=list(ledger.decisions),
            over_budget_s=dict(ledger.over_s),
            worst_over_w=dict(ledger.over_w),
            reserved_over_share=ledger.reserved_over_share,
            energy_j=float(ledger.site_j.sum()),
            site_energy_j=ledger.site_j.copy(),
            throttle_gpu_s=dict(ledger.throttle_gpu_s),
            unexpected_throttle_gpu_s=ledger.unexpected_gpu_s,
            work_gpu_s=sum(each.work_gpu_s for each in outcomes),
            lost_gpu_s=sum(each.lost_gpu_s for each in outcomes),
            busy_gpu_s=ledger.busy_gpu_s,
            others_gpu_s=ledger.others_gpu_s,
            trips=int(self.twin.trips.sum()),
            digest=ledger.digest(),
        )

    def _outcome(self, job: Job) -> JobOutcome:
        gang = self.gangs.by_key.get(job.key)
        done_s = job.saved.work_s if gang is None else self.gangs.done_s(gang)
        ran_s = 0.0 if gang is None else self.twin.now_s - gang.started_s
        held_s = 0.0 if gang is None else ran_s * len(gang.gpus)
        clocked_s = job.clocked_s + (0.0 if gang is None else self.gangs.clocked_s(gang))
        ran_s += job.ran_s
        return JobOutcome(
            key=job.key,
            project=job.request.project,
            state=job.state,
            submitted_s=job.arrival.at_s,
            started_s=job.started_s,
            ended_s=job.ended_s,
            gpus=job.request.gpus,
            work_gpu_s=done_s * job.request.gpus,
            lost_gpu_s=job.lost_gpu_s,
            held_gpu_s=job.gpu_s + held_s,
            restarts=job.restarts,
            pauses=job.pauses,
            false_pauses=job.false_pauses,
            retries=job.retries,
            checkpoint_ok=job.checkpoint_ok,
            sync_delay_s=job.sync_delay_s,
            final_loss=job.final_loss,
            speed=None if ran_s <= 0.0 else clocked_s / ran_s,
            max_slowdown=job.request.max_slowdown,
        )


def _make_twin(
    fleet: Fleet, seed: int, failures: FailureModel | None, step_s: float, others_share: float
) -> Twin:
    others = _spread(others_share, len(fleet.nodes))
    given: dict[str, Any] = {} if failures is None else {"failures": failures}
    return Twin(fleet, seed=seed, queued=~others, substep_s=step_s, **given)


def _spread(share: float, count: int) -> Bools:
    """Return ``share`` of ``count`` places, evenly spread."""
    upto = np.floor(share * np.arange(count + 1))
    return np.asarray(np.diff(upto) > 0)


def _endless(cluster: Cluster) -> Cluster:
    """Return a fleet on which only GPUs are short."""
    constants = replace(
        cluster.constants,
        limit_c=np.full(len(cluster.constants.limit_c), np.inf),
        empty_room_w=np.full(len(cluster.constants.empty_room_w), np.inf),
        _heat={},
        memo={},
    )
    return replace(cluster.endless(), constants=constants, refused={}, hopeless={}, scratch={})


def _concurrency(in_force: InForce) -> tuple[ConcurrencyCap, ...]:
    return tuple(
        ConcurrencyCap(each.scope, int(each.number), each.id, each.reason)
        for each in in_force.of(RestrictionKind.MAX_CONCURRENT_JOBS)
    )


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)
