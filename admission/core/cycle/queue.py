"""The queue in the middle of a cycle: allocations, reservations, and whether a job may start."""

from __future__ import annotations

import copy
import enum
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np

from admission.core.cycle.backfill import CURED_BY_ENDS, Ending, Moved, Reservations
from admission.core.cycle.entitlement import Holdings
from admission.core.cycle.gates import gates
from admission.core.cycle.order import Columns, Order, order
from admission.core.cycle.preference import preferred_sites
from admission.core.cycle.quotas import Quotas
from admission.core.cycle.stagger import Ramp
from admission.core.cycle.stayers import Stayers
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import fits_empty, may_stand, place, placed
from admission.core.placement.topology import Bools, Ints
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Locality, Placement, Refusal, Request
from admission.core.snapshot import Pending, Running, Snapshot
from fleet.tables import FleetArrays

__all__ = ["Queue", "Stage", "Verdict", "close", "moved_to"]


class Stage(enum.IntEnum):
    """The checks of a job, in the order in which they are done."""

    GATES = 0
    QUOTAS = 1
    FLEET = 2
    RESERVATIONS = 3
    RAMP = 4
    ADMITTED = 5


@dataclass(frozen=True)
class Verdict:
    """The last check that a job reached, and why it passed no further.

    ``placement`` is where it would stand as far as the fleet goes; None where it would not.
    """

    stage: Stage
    reasons: tuple[Reason, ...] = ()
    placement: Placement | None = None

    @cached_property
    def is_cured_by_ends(self) -> bool:
        """Whether it fits nowhere now, and may fit when other jobs have ended."""
        return self.stage is Stage.FLEET and any(
            each.token in CURED_BY_ENDS for each in self.reasons
        )

    @property
    def is_cured_by_lenders(self) -> bool:
        """Whether it may start when others of its cohort give back what they borrow, if at all."""
        return (
            self.stage is Stage.QUOTAS
            and self.placement is None
            and all(each.evidence.get("pool") for each in self.reasons)
        )

    @cached_property
    def may_change(self) -> bool:
        """Whether a later round may change it, when reservations are made anew.

        Or where it was over what it is allowed in the place that it had, and that is taken.
        """
        if self.stage is Stage.QUOTAS and self.placement is not None:
            return True
        return self.stage in (Stage.RAMP, Stage.ADMITTED) or any(
            each.token is ReasonToken.BACKFILL_RESERVATION for each in self.reasons
        )

    @property
    def may_start_yet(self) -> bool:
        """Whether the job may start in a later round of the cycle, once it fits.

        Where it waits for others' heat, or for what others hold, it begins with the next cycle: a
        dry run does not foresee what others take meanwhile.
        """
        return self.stage in (Stage.QUOTAS, Stage.RESERVATIONS)


#: Holds what no further job may take.
_NOBODY = Request(
    key="", job="", phase="", project="", job_class="", priority=0, submitted_at=0.0,
    gpus=0, min_gpus=0, walltime_s=0.0,
)  # fmt: skip


class Queue:
    """The waiting jobs in order, with free resources, quotas and reservations, from a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.cluster = snapshot.cluster.copy()
        self.endings = {
            each.request.key: Ending(self.end_of(each), each.request, each.placement)
            for each in snapshot.running
        }
        #: by key: those that start now but for the heat of others, with their rank
        self.staggered: dict[str, tuple[int, Request, Placement]] = {}
        #: by key, of those of the round before that do not hold the same place again: where they
        #: stood, and which of them each was, in order
        self._left: dict[str, tuple[int, Placement]] = {}
        self._closed: frozenset[int] = frozenset()
        self._closing: list[Placement] = []
        #: project and user of each job, by key
        jobs: Iterable[Pending | Running] = (*snapshot.pending, *snapshot.running)
        self._accounts = {each.request.key: (each.request.project, each.user) for each in jobs}
        #: those that ran when the cycle began
        self._before = frozenset(self.endings)
        #: those that were asked to give way since
        self.leaving: set[str] = set()
        #: those that fit once what is about to end has ended
        self.awaiting: set[str] = set()
        #: by key of a job that moves: what is held for it beside what it has
        self.moved: dict[str, Moved] = {}
        for each in snapshot.running:
            self._hold_for_move(each)
        #: jobs that were asked to give way within the hour, by project
        self.disrupted = Counter(snapshot.disrupted)
        self.quotas = self._quotas()
        #: those that end sooner than the quotas remember: as they were to end, and when they do
        self._sooner: list[tuple[Ending, float]] = []
        #: made when it is first asked for, for the order of the last round
        self._ranks: dict[str, int] | None = None
        #: the same: whom one behind passes in a later order, by how much later
        self._passed: dict[float, Bools] = {}
        #: the same: who is to end later by then, after somebody else
        self._passing: dict[float, list[Ending]] = {}
        #: by key, of those that wait when the cycle begins
        self._columns = Columns.of(snapshot.pending, snapshot.now)
        self.users = {each.request.key: each.user for each in snapshot.pending}
        self.begin_round()

    def _quotas(self) -> Quotas:
        """Return the quotas as used by the jobs that ran when the cycle began."""
        snapshot = self.snapshot
        found = Quotas(self.cluster.fleet, snapshot.projects, snapshot.classes, snapshot.caps)
        for key in self._before:
            ending, moved = self.endings[key], self.moved.get(key)
            found.take(ending.request, moved.placement if moved else ending.placement, ending.at)
        found.remember()
        return found

    @property
    def now(self) -> float:
        return self.snapshot.now

    def end_of(self, running: Running) -> float:
        """Return when a running job ends at the latest, never before now, Unix s.

        That is by its walltime, as for those that wait: to expect some to end sooner than the
        others keeps room for the first in order from earlier on, and so keeps it from everybody.
        """
        tuning = self.snapshot.tuning
        end_at = running.ends_by
        if end_at <= self.now:
            end_at = self.now + tuning.overrun_s
        if running.preempting:
            end_at = min(end_at, self.now + tuning.preemption_grace_s)
        if _stays_in_place(running, running.returns_to):
            # What it has now it has again then.
            end_at = self.now + running.request.walltime_s
        return end_at

    @cached_property
    def stayers(self) -> Stayers:
        """Those that ran on when the cycle began: no end is soon."""
        soon = self.now + self.snapshot.tuning.preemption_grace_s
        staying = [
            each
            for each in self.snapshot.running
            if not each.preempting and self.endings[each.request.key].at > soon
        ]
        return Stayers.of(staying, self.now)

    def are_staying(self) -> Bools:
        """Say which of ``stayers`` run on: those that were asked by nobody to give way."""
        row_of = self.stayers.row_of
        found = np.ones(len(row_of), dtype=bool)
        found[[row_of[key] for key in self.leaving if key in row_of]] = False
        return found

    @cached_property
    def holdings(self) -> Holdings:
        """What projects hold, and what is due to them."""
        snapshot = self.snapshot
        return Holdings(
            snapshot.projects,
            snapshot.running,
            [each.request for each in compress(snapshot.pending, self._columns.can_run)],
            free_gpus=snapshot.cluster.free_gpus,
        )

    # --- Who moves --------------------------------------------------------------------------------

    def _hold_for_move(self, running: Running) -> None:
        """Hold for a job that was told to move what it is to have, where that is still free."""
        if running.returns_to is None:
            return
        moved = moved_to(self.cluster.fleet, running, running.returns_to)
        # What is gone from the inventory since cannot be held.
        if moved.more.gpus and self.cluster.admits(moved.more, moved.request):
            self.cluster.allocate(moved.more, moved.request)
            self.moved[running.request.key] = moved

    def move(self, running: Running, moved: Moved) -> None:
        """Hold what a running job is to have that moves from now on."""
        key, now = running.request.key, self.now
        before = self.endings[key]
        self.quotas = self.quotas.without([(running.request, before.placement, before.at)])
        if moved.more.gpus:
            self.cluster.allocate(moved.more, moved.request)
        self.moved[key] = moved
        preempting = replace(running, preempting=True, returns_to=moved.placement)
        after = self.endings[key] = replace(before, at=self.end_of(preempting))
        self.quotas.take(running.request, moved.placement, after.at)
        self.reservations.move(before, moved, now + running.request.walltime_s)
        self.ramp.add(moved.more)

    # --- What happens -----------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Begin anew with the first in order: drop the reservations of those that wait.

        The order is made anew, too: what has started counts against the share of its project.
        """
        snapshot = self.snapshot
        self._running = (*snapshot.running, *self._started())
        self.order: Order = self._ordered(self._columns_next(), self.now)
        for each in self._closing:
            self.cluster.free(each, _NOBODY)
        for _, request, placement in self.staggered.values():
            self.cluster.free(placement, request)
        self._left = {
            key: (at, place) for at, (key, (_, _, place)) in enumerate(self.staggered.items())
        }
        self._closed, self._closing, self.staggered = frozenset(), [], {}
        #: those that quotas are kept for, and their rank
        self.short_of_quota: list[tuple[Request, int]] = []
        self.quotas.go_back()
        for was, at in self._sooner:
            self.quotas.end_sooner(was.request, was.placement, was.at, at)
        if self._sooner:
            self.quotas.remember()
            self._sooner = []
        for key, ending in self.endings.items():
            if key not in self._before:
                self.quotas.take(ending.request, ending.placement, ending.at)
        self.ramp = Ramp(self.cluster.fleet, self._running, self.now, snapshot.tuning)
        self._close_full_places()
        self.reservations = Reservations(
            self.cluster,
            (*self.endings.values(), *self._to_come()),
            most=snapshot.tuning.reservations,
            accounts=self._accounts,
            opened=self._opened(),
            standing=self._placed_then,
        )

    def _to_come(self) -> list[Ending]:
        """Return what is held for those that move, and until when."""
        return [
            Ending(self.now + each.request.walltime_s, each.request, each.more)
            for each in self.moved.values()
        ]

    def start(self, request: Request, placement: Placement) -> None:
        """Start a job at ``placement``."""
        end_at = self.now + request.walltime_s
        self._hold(request, placement, end_at)
        self.endings[request.key] = Ending(end_at, request, placement)
        self.holdings.add(request.project, request.counted(len(placement.gpus)))
        self.ramp.add(placement)
        self._close_full_places()

    def stagger(self, request: Request, rank: int, placement: Placement) -> None:
        """Reserve its place for a job that starts as soon as its zone can take more heat."""
        self._hold(request, placement, self.now + request.walltime_s)
        self.staggered[request.key] = rank, request, placement
        self.ramp.add(placement)
        self._close_full_places()

    def _hold(self, request: Request, placement: Placement, end_at: float) -> None:
        self.cluster.allocate(placement, request)
        if self._left.get(request.key, (0, None))[1] == placement:
            del self._left[request.key]
        self.quotas.take(request, placement, end_at)
        self.reservations.take(request, placement, end_at)

    def left_at(self, ending: Ending) -> float:
        """Return when a running job has left that is told to now, Unix s: it may save before."""
        return min(ending.at, self.now + self.snapshot.tuning.preemption_grace_s)

    def make_room(
        self, keys: Iterable[str], request: Request, rank: int, placement: Placement
    ) -> None:
        """Keep ``placement`` for a job that running ones, ``keys``, give way to."""
        leaving = [self.endings[key] for key in keys]
        for before in leaving:
            key, at = before.request.key, self.left_at(before)
            ending = self.endings[key] = replace(before, at=at)
            self.quotas.end_sooner(before.request, before.placement, before.at, at)
            self._sooner.append((before, at))
            self.leaving.add(key)
            self.disrupted[ending.request.project] += 1
            given_back = ending.request.counted(len(ending.placement.gpus))
            self.holdings.add(ending.request.project, -given_back)
        self.await_end(request, placement)
        left_at = max(map(self.left_at, leaving))
        self.reservations.reserve_after(leaving, left_at, request, rank, placement, self._opened())
        self._keep_quotas(request, rank)

    def await_end(self, request: Request, placement: Placement) -> None:
        """Note that a job is to have ``placement`` once what is about to end has ended.

        That counts as held: its project asks back no more than is due to it.
        """
        if request.key not in self.awaiting:
            self.holdings.add(request.project, request.counted(len(placement.gpus)))
            self.awaiting.add(request.key)

    def _keep_quotas(self, request: Request, rank: int) -> None:
        last = self.reservations.kept[-1]
        self.quotas.keep(request, rank, last.at, last.placement)

    def keep_for(self, request: Request, rank: int, verdict: Verdict) -> None:
        """Reserve for a refused job, so that those behind it do not take its resources."""
        by_ends = (
            not self.reservations.is_full
            and verdict.is_cured_by_ends
            and self._may_reserve(request)
        )
        by_quota = verdict.stage is Stage.QUOTAS and self.quotas.may_keep(request)
        if not (by_ends or by_quota):
            return
        # For what could not start though it were alone nothing is kept: others would wait in vain.
        if not self._could_start_alone(request):
            return
        if by_quota:
            self.short_of_quota.append((request, rank))
            self.quotas.keep(request, rank, self.now, verdict.placement)
        elif self.reservations.reserve(request, rank):
            self._keep_quotas(request, rank)

    def _could_start_alone(self, request: Request) -> bool:
        """Say whether a job starts where nothing else runs, be it with its fewest GPUs."""
        sizes = sorted({request.gpus, request.least_gpus}, reverse=True)
        return any(self._is_ever_let(replace(request, gpus=gpus)) for gpus in sizes)

    def _is_ever_let(self, request: Request) -> bool:
        ever = fits_empty(self.cluster, request)
        return not isinstance(ever, Refusal) and self.quotas.ever_let(request, ever)

    def _may_reserve(self, request: Request) -> bool:
        """Say whether room on the fleet is kept for a blocked job.

        It is for one that others give way to, also beside one ahead of it that wants alike: those
        behind it would take what they leave.
        """
        return request.key in self.awaiting or self.reservations.may_reserve(request)

    def _close_full_places(self) -> None:
        """Take the free GPUs out of the fleet where restrictions let no further job run."""
        nodes = self.quotas.full_nodes() - self._closed
        if not nodes:
            return
        self._closed |= nodes
        if (closing := close(self.cluster, nodes)) is not None:
            self._closing.append(closing)

    def _opened(self) -> Cluster:
        """Return the fleet with those places open: itself where there are none."""
        if not self._closing:
            return self.cluster
        opened = self.cluster.copy()
        for each in self._closing:
            opened.free(each, _NOBODY)
        return opened

    def _placed_then(
        self, then: Cluster, request: Request, kept: Placement | None
    ) -> Placement | None:
        """Return where a reserved job may stand on the fleet as it will be then; None: nowhere.

        Not where restrictions let no further job run by then. Who has a place, ``kept``, gets no
        other where they limit how many run: what they let run is not kept for it there.
        """
        quotas = self.quotas
        closed = quotas.full_nodes_at(then.now) if kept is None else quotas.other_places(kept)
        if closed:
            then = then.copy()
            close(then, closed)
        return placed(then, request)

    def opened_by(
        self, ended: Sequence[str], so_far: Sequence[str] = ()
    ) -> list[tuple[Placement, Request]]:
        """Return what is closed as long as jobs, by key, run: it is open once these are over, too.

        ``so_far``: those that are over already.
        """
        if not self._closing:
            return []
        still, before = (
            self.quotas_after(keys).full_nodes() for keys in ((*so_far, *ended), so_far)
        )
        fleet = self.cluster.fleet
        closed = np.flatnonzero(self.are_closed())
        opened = closed[_are_on(before - still, fleet.gpus.node[closed], fleet)]
        return [(_closed_to_all(opened, fleet), _NOBODY)] if len(opened) else []

    def are_closed(self) -> Bools:
        """Say which GPUs nobody has since restrictions let no further job run there."""
        found = np.zeros(len(self.cluster.fleet.gpus), dtype=bool)
        for each in self._closing:
            found[list(each.gpus)] = True
        return found

    def quotas_after(self, ended: Sequence[str]) -> Quotas:
        """Return the quotas once jobs, by key, have given way and back what they hold of them."""
        endings = [self.endings[key] for key in ended]
        soon = self.now + self.snapshot.tuning.preemption_grace_s
        return self.quotas.once_over(
            [(each.request, each.placement, each.at) for each in endings], soon
        )

    # --- Verdicts ---------------------------------------------------------------------------------

    def verdict(self, pending: Pending, rank: int) -> Verdict:
        """Say whether a job may start now, with ``rank`` for its place in the order."""
        request = pending.request
        if reasons := gates(pending, self.now):
            return Verdict(Stage.GATES, reasons)
        end_at = self.now + request.walltime_s
        fitted = self.quotas.fitted(request, end_at, rank)
        if isinstance(fitted, tuple):
            return Verdict(Stage.QUOTAS, fitted)
        kept = pending.returns_to
        if kept is not None and self._has_again(kept, request, end_at, rank):
            return self._beside_others(request, request, kept, rank)
        found = place(self.cluster, fitted)
        if isinstance(found, Refusal):
            return self._refused(fitted, found)
        return self._beside_others(request, fitted, found, rank)

    def _has_again(self, kept: Placement, request: Request, end_at: float, rank: int) -> bool:
        """Say whether a job that moved stands where it was to: as large as its quotas leave it."""
        gpus = len(kept.gpus)
        if gpus < request.min_gpus:
            return False
        as_kept = replace(request, gpus=gpus, min_gpus=gpus)
        fitted = self.quotas.fitted(as_kept, end_at, rank)
        return not isinstance(fitted, tuple) and may_stand(self.cluster, as_kept, kept)

    def has_more_room(self, behind: int) -> bool:
        """Say whether a job of the round before finds more free than it did then.

        ``behind``: before so many of those that wait for others' heat it was tried. Of these some
        do not stand where they stood.
        """
        first = next(iter(self._left.values()), None)
        return first is not None and first[0] < behind

    def again(self, pending: Pending, rank: int, before: Verdict) -> Verdict:
        """Return the verdict of a later round: a job that did not fit fits no better now.

        But others may have taken what it is allowed since.
        """
        if before.stage is Stage.FLEET:
            request = pending.request
            fitted = self.quotas.fitted(request, self.now + request.walltime_s, rank)
            if isinstance(fitted, tuple):
                return Verdict(Stage.QUOTAS, fitted)
        return self.verdict(pending, rank) if before.may_change else before

    def _refused(self, request: Request, refusal: Refusal) -> Verdict:
        """Say whether it would fit but for the places where restrictions let no further job run."""
        if self._closing:
            found = place(self._opened(), request)
            if not isinstance(found, Refusal):
                return Verdict(Stage.QUOTAS, tuple(self.quotas.full_places()), found)
            refusal = found
        return Verdict(Stage.FLEET, refusal.reasons)

    def _beside_others(
        self, request: Request, fitted: Request, found: Placement, rank: int
    ) -> Verdict:
        end_at = self.now + request.walltime_s
        kept = self.reservations.in_the_way_of(fitted, found, end_at, rank)
        if kept is not None:
            other = self._elsewhere(fitted, end_at, rank)
            if other is None:
                why = kept.reason(fitted, self.now, end_at)
                return Verdict(Stage.RESERVATIONS, (why,), found)
            found = other
        if fitted is not request:
            speed = (1.0 - found.slowdown) * fitted.gpus / request.gpus
            found = replace(found, slowdown=1.0 - speed)
        if reasons := self.quotas.refusals(request, found, end_at, rank):
            fewer = self._with_fewer(request, fitted, found, rank)
            return fewer or Verdict(Stage.QUOTAS, reasons, found)
        if reason := self.ramp.refusal(self.cluster, found):
            return Verdict(Stage.RAMP, (reason,), found)
        return Verdict(Stage.ADMITTED, (), found)

    def _with_fewer(
        self, request: Request, fitted: Request, found: Placement, rank: int
    ) -> Verdict | None:
        """Return the verdict on a job with as many GPUs as the watts of its project are for.

        None where it has no more at ``found``, or so many stand nowhere.
        """
        fewer = self.quotas.fewer(fitted, found, self.now + request.walltime_s, rank)
        placement = placed(self.cluster, fewer) if fewer is not None else None
        if fewer is None or placement is None:
            return None
        return self._beside_others(request, fewer, placement, rank)

    def _elsewhere(self, request: Request, end_at: float, rank: int) -> Placement | None:
        """Return a placement that delays no reserved job."""
        found = self.reservations.beside(request)
        if found is None or not self.cluster.admits(found, request):
            return None
        if self.reservations.in_the_way_of(request, found, end_at, rank) is not None:
            return None
        return found

    # --- Preferred sites --------------------------------------------------------------------------

    def preferred(
        self, request: Request, placement: Placement, rank: int, *, is_held: bool
    ) -> Placement:
        """Return where a job that would begin at ``placement`` stands at a site that it prefers.

        In what all others leave once they were tried: ``placement`` where that is nowhere.
        ``is_held``: it holds ``placement`` already.
        """
        end_at = self.now + request.walltime_s
        quotas, ramp = self.quotas, self.ramp
        if is_held:
            quotas = quotas.without([(request, placement, end_at)])
            ramp = ramp.without([placement])
        run_s = self.snapshot.expected_s(request, 0.0)
        for site in preferred_sites(request, self.snapshot.ahead, self.now, run_s):
            if placement.sites == (site,):
                break
            found = place(self.cluster, replace(request, sites=(site,)))
            if (
                not isinstance(found, Refusal)
                and len(found.gpus) == len(placement.gpus)
                and self.reservations.in_the_way_of(request, found, end_at, rank) is None
                and not quotas.refusals(request, found, end_at, rank)
                and ramp.refusal(self.cluster, found) is None
            ):
                return found
        return placement

    def start_instead(self, request: Request, old: Placement, new: Placement) -> None:
        """Have a job that starts stand at ``new``. The next round goes by it, this one is over."""
        self.cluster.free(old, request)
        self.cluster.allocate(new, request)
        self.endings[request.key] = replace(self.endings[request.key], placement=new)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for room, for its quotas or for others' heat, as far as tried."""
        return bool(self.reservations.kept or self.short_of_quota or self.staggered)

    def widen(self, starting: Running, wider: Moved) -> None:
        """Have a job that starts have more than it asks for. The next round goes by it."""
        end_at = self.now + starting.request.walltime_s
        self.start_instead(starting.request, starting.placement, wider.placement)
        self.quotas.take(starting.request, wider.more, end_at)
        self.holdings.add(starting.request.project, starting.request.counted(len(wider.more.gpus)))
        self.ramp.add(wider.more)

    # --- What if ----------------------------------------------------------------------------------

    def at_turn(self, rank: int, key: str = "") -> Queue:
        """Return the queue at the turn of ``rank`` in the next cycle: only jobs before it count.

        ``key`` is the job that stands there: what is kept for it is not in its own way. The queue
        that is returned shares much with this one: ask it, and change nothing.
        """
        behind = [
            (its_rank, request, placement)
            for its_rank, request, placement in self.staggered.values()
            if its_rank >= rank or request.key == key
        ]
        if not behind and all(each.rank < rank for each in self.reservations.kept):
            return self
        turn = copy.copy(self)
        if behind:
            turn.cluster = self.cluster.copy()
            turn.cluster.free_all([(placement, request) for _, request, placement in behind])
            turn.ramp = self.ramp.without([placement for _, _, placement in behind])
            turn._give_back([(request, placement) for _, request, placement in behind])
        gone = [
            (its_rank, Ending(self._end_if_now(request), request, place))
            for its_rank, request, place in behind
        ]
        turn.reservations = self.reservations.of_those_before(rank, turn.cluster, gone)
        return turn

    def _end_if_now(self, request: Request) -> float:
        return self.now + request.walltime_s

    def is_settled_before(self, rank: int, later_s: float) -> bool:
        """Say whether what those before ``rank`` are to have is theirs ``later_s`` later, too.

        It is not of one for whom something is kept, or that waits for others' heat, and that
        another passes in the order by then: of the two that one is to have it. Nor where one that
        waits for heat ends just when what it stands on, or its quotas, are kept for others, ahead
        of it or behind: begun later it would still have of that. Nor where one that was told to
        leave does so just then, or one that waits would end just then: later it does so after that.
        """
        waits = [each for each in self.staggered.values() if each[0] < rank]
        kept = {*self._room_kept_for().values(), *self.quotas.kept_for().values()}
        holds = {*(each for each in kept if each < rank), *(its_rank for its_rank, _, _ in waits)}
        if holds and self._passed_by(later_s)[sorted(holds)].any():
            return False
        if self._some_end_where_quotas_are_kept(rank, later_s):
            return False
        ends = [Ending(self._end_if_now(each), each, place) for _, each, place in waits]
        ends += self._passing_ends(later_s)
        return not any(self._soon_runs_into_others(each, rank, later_s) for each in ends)

    def _soon_runs_into_others(self, ending: Ending, rank: int, later_s: float) -> bool:
        """Say whether one has of what is kept, if it ends later."""
        return self.reservations.is_soon_to_count(
            ending, rank, later_s
        ) or self.quotas.are_soon_drawn_on(
            ending.request, ending.placement, ending.at, rank, later_s
        )

    def _some_end_where_quotas_are_kept(self, rank: int, later_s: float) -> bool:
        """Say whether one that waits before ``rank`` would have of a kept quota, if begun later.

        Then it is that which is in its way, and quotas are kept for it, too.
        """
        for at, its_rank in self.quotas.kept_at():
            end_at = self.now + self.order.columns.walltime_s[its_rank + 1 : rank]
            if ((end_at <= at) & (at < end_at + later_s)).any():
                return True
        return False

    def _passing_ends(self, later_s: float) -> list[Ending]:
        """Return the running jobs whose ends are told from now on, and pass others' when later."""
        if later_s not in self._passing:
            self._passing[later_s] = self._found_passing(later_s)
        return self._passing[later_s]

    def _found_passing(self, later_s: float) -> list[Ending]:
        by_walltime = {each.request.key: each.ends_by for each in self.snapshot.running}
        from_now_on, fixed = [], []
        for key, each in self.endings.items():
            if by_walltime.get(key, each.at) == each.at:
                fixed.append(each.at)
            else:
                from_now_on.append(each)
        fixed.sort()
        return [
            each
            for each in from_now_on
            if bisect_left(fixed, each.at) < bisect_left(fixed, each.at + later_s)
        ]

    def is_passed(self, pending: Pending, rank: int, later_s: float) -> bool:
        """Say whether one behind a job that waits, or would, is ahead of it ``later_s`` later.

        Then it is for that one that something is kept, and what the job has now may be part of it.
        """
        if rank < len(self.order) and self.order.pending[rank] is pending:
            return bool(self._passed_by(later_s)[rank])
        _, _, then = self.order_with(pending, later_s)
        return then > rank

    def _passed_by(self, later_s: float) -> Bools:
        """Say by rank whether one behind is ahead ``later_s`` later."""
        if later_s not in self._passed:
            columns = self.order.columns
            then = self._ordered(columns, self.now + later_s).columns
            place = np.empty(len(then.by_key), dtype=np.int64)
            place[np.argsort(columns.by_key)] = np.argsort(then.by_key)
            first = np.append(np.minimum.accumulate(place[::-1])[::-1], len(place))
            self._passed[later_s] = first[1:] < place
        return self._passed[later_s]

    def _give_back(self, behind: Sequence[tuple[Request, Placement]]) -> None:
        """Open the quotas, and the places that restrictions close, that jobs behind have taken."""
        self.quotas = self.quotas.without(
            [(request, placement, self.now + request.walltime_s) for request, placement in behind]
        )
        for each in self._closing:
            self.cluster.free(each, _NOBODY)
        self._closed, self._closing = frozenset(), []
        self._close_full_places()

    def _columns_next(self) -> Columns:
        waits = [each.request.key not in self.endings for each in self._columns.pending]
        return self._columns if all(waits) else self._columns.chosen(np.flatnonzero(waits))

    def _ordered(self, columns: Columns, now: float) -> Order:
        snapshot = self.snapshot
        return order(
            columns,
            self._running,
            snapshot.projects,
            now=now,
            tuning=snapshot.tuning,
        )

    def rank_of(self, key: str) -> int:
        """Return the place in the order of a job that waits. Raises KeyError."""
        if self._ranks is None:
            self._ranks = {each.request.key: at for at, each in enumerate(self.order.pending)}
        return self._ranks[key]

    def keeps_room_for(self, key: str) -> bool:
        """Say whether a place on the fleet is reserved for a waiting job."""
        return key in self._room_kept_for()

    def _room_kept_for(self) -> dict[str, int]:
        """Return the jobs with a reserved place, with their ranks."""
        kept = {each.request.key: each.rank for each in self.reservations.kept}
        return kept | {name: rank for name, (rank, _, _) in self.staggered.items()}

    def order_with(self, pending: Pending, after_s: float = 0.0) -> tuple[Order, int, int]:
        """Return the order with ``pending`` in it, its place there, and its rank in this queue.

        The order is that of a cycle which comes ``after_s`` seconds after this one.
        Its rank here is such that all for whom something is kept and who would be before it are.
        """
        columns = self.order.columns.with_last(pending, self.now)
        found = self._ordered(columns, self.now + after_s)
        at = next(n for n, each in enumerate(found.pending) if each is pending)
        before = {each.request.key for each in found.pending[:at]}
        kept = self._room_kept_for() | self.quotas.kept_for()
        return found, at, 1 + max((kept[name] for name in before & kept.keys()), default=-1)

    def _started(self) -> list[Running]:
        """Return the jobs that have started in this cycle."""
        return [
            Running(
                each.request,
                each.placement,
                self.now,
                each.at,
                user=self.users.get(key, ""),
            )
            for key, each in self.endings.items()
            if key not in self._before
        ]

    def pending_next(self) -> Sequence[Pending]:
        """Return the phases that wait when the next cycle begins, as far as is known now."""
        return [each for each in self.snapshot.pending if each.request.key not in self.endings]


# --- Moves ----------------------------------------------------------------------------------------


def moved_to(fleet: FleetArrays, running: Running, target: Placement) -> Moved:
    """Return what a running job is to have at ``target`` beside what it holds now.

    On nodes where it is now that is what ``target`` reserves beyond what it does now.
    """
    own = running.placement
    now_w = dict(zip(own.nodes, own.peak_w, strict=True))
    more_w = {
        node: max(watts - now_w.get(node, 0.0), 0.0)
        for node, watts in zip(target.nodes, target.peak_w, strict=True)
    }
    gpus = tuple(sorted(set(target.gpus) - set(own.gpus)))
    takes = set(fleet.gpus.node[list(gpus)].tolist())
    nodes = tuple(node for node, watts in more_w.items() if watts > 0.0 or node in takes)
    more = replace(target, gpus=gpus, nodes=nodes, peak_w=tuple(more_w[node] for node in nodes))
    request = replace(running.request, storage_bytes_per_s=0.0, cross_site_bits_per_s=0.0)
    return Moved(target, more, request)


def _stays_in_place(running: Running, target: Placement | None) -> bool:
    """Say whether a job that moves keeps some of the GPUs that it has."""
    return target is not None and not set(target.gpus).isdisjoint(running.placement.gpus)


def close(cluster: Cluster, nodes: frozenset[int]) -> Placement | None:
    """Take the free GPUs of some nodes out of a fleet; return them. None: there are none."""
    fleet = cluster.fleet
    gpus = np.flatnonzero(_are_on(nodes, fleet.gpus.node, fleet) & cluster.gpu_free)
    if not len(gpus):
        return None
    closing = _closed_to_all(gpus, fleet)
    cluster.allocate(closing, _NOBODY)
    return closing


def _are_on(nodes: frozenset[int], node: Ints, fleet: FleetArrays) -> Bools:
    """Say of each row of a node whether it is one of ``nodes``."""
    here = np.zeros(len(fleet.nodes), dtype=bool)
    here[list(nodes)] = True
    return here[node]


def _closed_to_all(gpus: Ints, fleet: FleetArrays) -> Placement:
    """Return the placement by which nobody has those GPUs, which draw nothing by it."""
    nodes = np.unique(fleet.gpus.node[gpus])
    return Placement(
        gpus=tuple(gpus.tolist()), nodes=tuple(nodes.tolist()), peak_w=(0.0,) * len(nodes),
        power_cap_w=None, slowdown=0.0, locality=Locality.FLEET,
        sites=(), racks=(), switch_domains=(), storage="",
    )  # fmt: skip
