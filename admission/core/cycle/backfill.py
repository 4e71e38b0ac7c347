"""Reservations for blocked jobs: when enough will be free, and where they will stand then.

Others may go ahead of them while that does not put them off: those that end before, and those that
fit beside them on the fleet as it will be then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from admission.core.placement.cluster import Cluster
from admission.core.placement.place import placed
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Placement, Request
from policies.headroom.binding import balance

#: Project and user.
Account = tuple[str, str]

__all__ = [
    "CURED_BY_ENDS",
    "Ending",
    "Moved",
    "Reservation",
    "Reservations",
    "held_by",
    "hold_free_part",
    "pool_of",
]

#: Reasons that go away when jobs end. The others have to be cured otherwise.
CURED_BY_ENDS = frozenset(
    {
        ReasonToken.GPU_SHORTAGE,
        ReasonToken.TOPOLOGY_UNSATISFIABLE,
        ReasonToken.RACK_POWER,
        ReasonToken.FEED_POWER,
        ReasonToken.FEED_REDUNDANCY,
        ReasonToken.SITE_POWER,
        ReasonToken.THERMAL,
        ReasonToken.COOLING_CAPACITY,
        ReasonToken.LINK,
        ReasonToken.STORAGE,
    }
)

#: The solver is asked again each time that so many more of the jobs have ended, as a share; then
#: between the last time that it was not enough and the first that it was.
_STRIDE = 0.25


@dataclass(frozen=True)
class Ending:
    """A job that holds GPUs, and when it gives them back at the latest (Unix s)."""

    at: float
    request: Request
    placement: Placement


@dataclass(frozen=True)
class Moved:
    """A running job that saves and ends, and where it goes on.

    ``more`` is what it does not hold yet of its new ``placement``: that is held for it from now on.
    One that gives GPUs back and stays where it is has no more.
    ``request`` is that of ``more``: data that is carried already is not carried twice.
    """

    placement: Placement
    more: Placement
    request: Request


@dataclass(frozen=True, eq=False)
class Reservation:
    """The reservation of a blocked job: where it will start, and from when on (Unix s).

    ``then`` is the fleet at that time, ``at`` by its clock, with the job on it; ``rank`` its place
    in the order.
    ``beside`` are the jobs with reservations made before it that are to run then.
    """

    request: Request
    rank: int
    at: float
    placement: Placement
    then: Cluster
    beside: frozenset[str] = frozenset()

    def reason(self, request: Request, now: float, end_at: float) -> Reason:
        """Return why a job that would run from ``now`` until ``end_at`` has to wait for it."""
        need, have = end_at - now, self.at - now
        told = balance(need, have, "s")
        text = (
            f"would run {told.told(told.short)} longer than the {told.told(told.have)} after which"
            " another job, which is ahead of it, is to have what it needs itself"
            if end_at > self.at
            else "would take what comes free from another job, which is ahead of it and of somebody"
            " for whom nothing runs"
        )
        evidence = {"kept_for": self.request.key, "kept_at": self.at}
        token = ReasonToken.BACKFILL_RESERVATION
        return Reason(token, need, have, "s", None, text, evidence)


#: Returns where a job may stand on the fleet as it will be then, by its clock; None: nowhere. The
#: last is where something is kept for it already, if it is.
Standing = Callable[[Cluster, Request, Placement | None], Placement | None]


def _anywhere(then: Cluster, request: Request, _kept: Placement | None) -> Placement | None:
    return placed(then, request)


class Reservations:
    """The reservations of the first jobs that are blocked.

    ``cluster`` is the fleet as it is now. Whoever is put on it is told of by :meth:`take`, too.
    ``opened`` is the same with the places open that restrictions close to further jobs: how many
    run there by the time that something is kept is for quotas to say.
    ``endings`` are all that stand on it. ``accounts`` says whose jobs are, by key.
    ``standing`` says where a reserved job may stand: where the solver places it, unless said else.
    """

    def __init__(
        self,
        cluster: Cluster,
        endings: Sequence[Ending],
        *,
        most: int,
        accounts: Mapping[str, Account] | None = None,
        opened: Cluster | None = None,
        standing: Standing | None = None,
    ) -> None:
        self._cluster, self._accounts = cluster, accounts or {}
        self._standing = standing or _anywhere
        #: whose jobs run
        self._run = {self._accounts.get(each.request.key) for each in endings}
        self._endings = sorted(endings, key=_when)
        self._most = most
        #: the fleet once the first ``_ended`` of the endings are over, with all that is kept
        self._ahead, self._ended, self._latest = (opened or cluster).copy(), 0, cluster.now
        #: who began since, and is not there yet: nobody looks ahead until something is kept
        self._begun: list[Ending] = []
        #: the fleet as it is now less what is kept of it
        self._beside: Cluster | None = None
        #: the fleet once all have ended, as it was found not to be enough for somebody
        self._all_over: Cluster | None = None
        self.kept: list[Reservation] = []
        #: of those, the ones that are to run on the fleet ahead
        self._kept_ahead: set[str] = set()
        #: whether reserved jobs may get other places: none for whom others give way
        self._may_move = True

    @property
    def is_full(self) -> bool:
        return len(self.kept) >= self._most

    def may_reserve(self, request: Request) -> bool:
        """Say whether a blocked job may have room kept: the first of those that want alike.

        One of the same models and sites has it already where it is not. Its turn comes: to keep
        room for several makes all others wait longer, and few of them begin sooner by it.
        """
        pool = pool_of(request)
        return all(pool_of(each.request) != pool for each in self.kept)

    def reserve(self, request: Request, rank: int) -> bool:
        """Reserve room for a blocked job from when there will be enough; False if never."""
        if self._all_over is not None and self._standing(self._all_over, request, None) is None:
            return False
        self._catch_up()
        # Of the fleet as it is now, with nothing kept, it is known that it is not enough.
        now = self._standing(self._ahead, request, None) if self.kept else None
        first = self._search(request) if now is None else (self._ahead.copy(), self._ended, now)
        if first is None:
            return False
        ahead, ended, found = first
        ahead.allocate(found, request)
        if ended > self._ended:
            self._latest = max(self._endings[ended - 1].at, self._latest)
        over = {each.request.key for each in self._endings[self._ended : ended]}
        beside = frozenset(self._kept_ahead - over)
        self._ahead, self._ended, self._kept_ahead = ahead, ended, {*beside, request.key}
        self._expect(Ending(self._latest + request.walltime_s, request, found))
        self._keep(Reservation(request, rank, self._latest, found, ahead.copy(), beside))
        return True

    def _search(self, request: Request) -> tuple[Cluster, int, Placement] | None:
        """Return the fleet once just so many of the endings are over that a job has its place.

        With how many these are, and the place. None where all are not enough.
        """
        ahead, before, stride = self._ahead, self._ended, 1
        while before < len(self._endings):
            upto = min(before + stride, len(self._endings))
            later = self._once_over(ahead, before, upto)
            found = self._standing(later, request, None)
            if found is not None:
                return self._first_enough(request, (ahead, before), (later, upto, found))
            ahead, before, stride = later, upto, max(1, int(_STRIDE * (upto - self._ended)))
        self._all_over = ahead
        return None

    def _first_enough(
        self,
        request: Request,
        short: tuple[Cluster, int],
        enough: tuple[Cluster, int, Placement],
    ) -> tuple[Cluster, int, Placement]:
        """Return the first fleet that is enough between one that is not and one that is."""
        while enough[1] - short[1] > 1:
            cluster, ended = short
            middle = (ended + enough[1]) // 2
            then = self._once_over(cluster, ended, middle)
            found = self._standing(then, request, None)
            if found is None:
                short = then, middle
            else:
                enough = then, middle, found
        cluster, ended, place = enough
        # With all that end at that very moment: what is left over of them others may have.
        upto = bisect_right(self._endings, self._endings[ended - 1].at, lo=ended, key=_end_of)
        return self._once_over(cluster, ended, upto), upto, place

    def _once_over(self, cluster: Cluster, ended: int, upto: int) -> Cluster:
        """Return the fleet once the endings from ``ended`` up to ``upto`` are over, too.

        As it is then: what is booked for others from that time on is not there to be had.
        """
        then = cluster.copy()
        then.now = max(cluster.now, self._endings[upto - 1].at)
        then.free_all(held_by(self._endings[ended:upto]))
        return then

    def reserve_after(
        self,
        leaving: Sequence[Ending],
        at: float,
        request: Request,
        rank: int,
        placement: Placement,
        opened: Cluster,
    ) -> None:
        """Reserve ``placement`` for a job that others are preempted for.

        It must be in the way of none that something is kept for. ``leaving``: those others, as they
        are expected to end else, and ``at``: when all of them have left. ``opened`` is the fleet as
        it is now, as where reservations begin.
        """
        self._may_move = False
        self._catch_up()
        then = opened.copy()
        then.now = at
        to_come, self._ended = self._endings[self._ended :], 0
        for each in sorted(leaving, key=_when, reverse=True):
            place = bisect_left(to_come, _when(each), key=_when)
            if to_come[place : place + 1] == [each]:
                self._ahead.free_all(held_by([to_come.pop(place)]))
        self._endings = to_come
        then.free_all(held_by(leaving))
        then.allocate(placement, request)
        if at + request.walltime_s > self._latest:
            self._ahead.allocate(placement, request)
            self._expect(Ending(at + request.walltime_s, request, placement))
        self._keep(Reservation(request, rank, at, placement, then))

    def _keep(self, reservation: Reservation) -> None:
        self.kept.append(reservation)
        if self._beside is not None:
            hold_free_part(self._beside, reservation.placement, reservation.request)

    def _catch_up(self) -> None:
        """Have those on the fleet ahead that began since it was last looked at."""
        if not self._begun:
            return
        for each in self._begun:
            self._ahead.allocate(each.placement, each.request)
        self._endings[self._ended :] = sorted(
            [*self._endings[self._ended :], *self._begun], key=_when
        )
        self._begun = []

    def _expect(self, ending: Ending) -> None:
        insort(self._endings, ending, lo=self._ended, key=_when)

    def take(self, request: Request, placement: Placement, end_at: float) -> None:
        """Note that a job holds ``placement`` until ``end_at``. It must delay no reserved job."""
        if not self.kept and self._beside is None:
            self._begun.append(Ending(end_at, request, placement))
            return
        arranged = self._arranged_beside(request, placement, end_at, self.kept)
        if arranged is not None:
            self._move(arranged)
        unmoved = len(self.kept) - len(arranged or ())
        for each in self.kept[:unmoved]:
            if self._stays(each, request, end_at):
                each.then.allocate(placement, request)
        if arranged is not None:
            self._ahead = self.kept[-1].then.copy()
        elif end_at > self._latest:
            self._ahead.allocate(placement, request)
        if end_at > self._latest:
            self._expect(Ending(end_at, request, placement))
        if self._beside is not None:
            hold_free_part(self._beside, placement, request)

    def in_the_way_of(
        self, request: Request, placement: Placement, end_at: float, rank: int
    ) -> Reservation | None:
        """Return the reservation before ``rank`` that a placement until ``end_at`` puts off.

        A job is put off where it has its place at that time neither there nor elsewhere.
        """
        before = [each for each in self.kept if each.rank < rank]
        for each in before:
            if self._is_taken(each, request, placement, end_at):
                if self._arranged_beside(request, placement, end_at, before) is not None:
                    return None
                return each
        return None

    def put_off_by(
        self, request: Request, placement: Placement, end_at: float
    ) -> list[Reservation]:
        """Return the reservations that a placement until ``end_at`` puts off."""
        if self._arranged_beside(request, placement, end_at, self.kept) is not None:
            return []
        return [each for each in self.kept if self._is_taken(each, request, placement, end_at)]

    def _is_taken(
        self, kept: Reservation, request: Request, placement: Placement, end_at: float
    ) -> bool:
        """Say whether a ``placement`` until ``end_at`` would take its place from a reserved job."""
        return self._stays(kept, request, end_at) and not kept.then.admits(placement, request)

    def _stays(self, kept: Reservation, request: Request, end_at: float) -> bool:
        """Say whether a job that ends at ``end_at`` counts as being there when a reserved one is.

        What is over by then does not, unless it is of somebody who has jobs that run, and the other
        of somebody who has none: a stream of short jobs would take all that comes free.
        """
        if end_at > kept.at:
            return True
        whose, others = self._whose(kept.request), self._whose(request)
        return whose not in self._run and others in self._run

    def _whose(self, request: Request) -> Account:
        return self._accounts.get(request.key, (request.project, ""))

    def _arranged_beside(
        self,
        request: Request,
        placement: Placement,
        end_at: float,
        kept: Sequence[Reservation],
    ) -> list[Reservation] | None:
        """Return the last of ``kept``, arranged so that a placement until ``end_at`` fits beside.

        From the first on whose place it would take: each starts at its time, here or elsewhere.
        None where none has to move, or not all can.
        """
        taken = (self._is_taken(each, request, placement, end_at) for each in kept)
        first = next((place for place, is_taken in enumerate(taken) if is_taken), None)
        if first is None or not self._may_move:
            return None
        found: list[Reservation] = []
        #: those that get another place, before and after
        moved: dict[str, tuple[Reservation, Reservation]] = {}
        for each in kept[first:]:
            then = each.then.copy()
            then.free(each.placement, each.request)
            others = [moved[key] for key in sorted(each.beside & moved.keys())]
            for old, _ in others:
                then.free(old.placement, old.request)
            holds = [(new.placement, new.request) for _, new in others]
            if self._stays(each, request, end_at):
                holds.append((placement, request))
            if not _all_fit(then, holds):
                return None
            stays = then.admits(each.placement, each.request)
            stands = each.placement if stays else self._standing(then, each.request, each.placement)
            if stands is None:
                return None
            then.allocate(stands, each.request)
            found.append(replace(each, placement=stands, then=then))
            if not stays:
                moved[each.request.key] = each, found[-1]
        return found

    def _move(self, arranged: Sequence[Reservation]) -> None:
        """Give the last of the reserved jobs the places that they were found to have."""
        self.kept[-len(arranged) :] = arranged
        places = {each.request.key: each.placement for each in arranged}
        self._endings = [
            replace(each, placement=places.get(each.request.key, each.placement))
            for each in self._endings
        ]
        self._beside = self._all_over = None

    def are_put_off_by(
        self,
        leaving: Sequence[Ending],
        request: Request,
        placement: Placement,
        end_at: float,
        rank: int,
    ) -> bool:
        """Say whether some before ``rank`` is put off by a job that others give way to.

        ``leaving``: those others, as they are expected to end else. ``end_at``: when the job ends
        that begins once they have left.
        """
        for each in self.kept:
            if each.rank < rank and end_at > each.at:
                then = each.then.copy()
                # The others are over by then, and not in it any more.
                if still := [one for one in leaving if one.at > each.at]:
                    then.free_all(held_by(still))
                if not then.admits(placement, request):
                    return True
        return False

    def are_put_off_by_move(
        self, running: Ending, moved: Moved, end_at: float, but_for: str = ""
    ) -> bool:
        """Say whether a job that goes on until ``end_at`` after a move puts off a reserved one.

        ``running``: as it is expected to end else; ``but_for``: the key of one that is not asked.
        """
        return any(
            bool(more.gpus) and not each.then.admits(more, moved.request)
            for each in self.kept
            if end_at > each.at and each.request.key != but_for
            for more in [_then_of(running, moved, each.at)]
        )

    def move(self, running: Ending, moved: Moved, end_at: float) -> None:
        """Note that a job goes on until ``end_at`` after a move.

        ``running``: as it was expected to end else.
        """
        for each in self.kept:
            if end_at > each.at:
                hold_free_part(each.then, _then_of(running, moved, each.at), moved.request)
        if self._beside is not None:
            hold_free_part(self._beside, moved.more, moved.request)

    def beside(self, request: Request) -> Placement | None:
        """Return a placement on resources that are free now and reserved for nobody."""
        if self._beside is None:
            self._beside = self._cluster.copy()
            for each in self.kept:
                hold_free_part(self._beside, each.placement, each.request)
        return placed(self._beside, request)

    def of_those_before(
        self, rank: int, cluster: Cluster, behind: Sequence[tuple[int, Ending]] = ()
    ) -> Reservations:
        """Return the reservations of those before ``rank``, on ``cluster``: to be read only.

        ``behind``: who is taken off the fleet, on which it stood, and in which place of the order.
        """
        found = Reservations(cluster, (), most=0)
        found.kept = [self._without(each, behind) for each in self.kept if each.rank < rank]
        found._may_move, found._standing = self._may_move, self._standing
        found._accounts, found._run = self._accounts, self._run
        return found

    def _without(self, kept: Reservation, behind: Sequence[tuple[int, Ending]]) -> Reservation:
        # Whoever was there before the reservation was made counts by its end alone.
        stay = [
            each
            for rank, each in behind
            if each.at > kept.at or (rank > kept.rank and self._stays(kept, each.request, each.at))
        ]
        if not stay:
            return kept
        then = kept.then.copy()
        then.free_all(held_by(stay))
        return replace(kept, then=then)

    def is_soon_to_count(self, ending: Ending, rank: int, later_s: float) -> bool:
        """Say whether a job would be there when one before ``rank`` begins, if begun later."""
        return any(
            not self._stays(each, ending.request, ending.at)
            and self._stays(each, ending.request, ending.at + later_s)
            for each in self.kept
            if each.rank < rank
        )


def _then_of(running: Ending, moved: Moved, at: float) -> Placement:
    """Return what a job that moves has more at ``at`` than it was expected to have then."""
    return moved.placement if running.at <= at else moved.more


def held_by(endings: Iterable[Ending]) -> list[tuple[Placement, Request]]:
    """Return the placements with the requests that hold them, for a :class:`Cluster`."""
    return [(each.placement, each.request) for each in endings]


def _end_of(ending: Ending) -> float:
    return ending.at


def _when(ending: Ending) -> tuple[float, str]:
    return ending.at, ending.request.key


def pool_of(request: Request) -> tuple[tuple[str, ...], ...]:
    """Return what says on which GPUs of a fleet a request may stand."""
    named = (request.executor, *request.nodes)
    return request.models, request.sites, request.artifact_sites, request.cooling, named


def _all_fit(cluster: Cluster, holds: Iterable[tuple[Placement, Request]]) -> bool:
    """Allocate placements one after the other; say whether all fit."""
    for placement, request in holds:
        if not cluster.admits(placement, request):
            return False
        cluster.allocate(placement, request)
    return True


def hold_free_part(cluster: Cluster, placement: Placement, request: Request) -> None:
    """Hold those GPUs of ``placement`` that are free, with their part of its power."""
    part = _free_part(cluster, placement)
    if part.gpus:
        cluster.allocate(part, request)


def _free_part(cluster: Cluster, placement: Placement) -> Placement:
    gpus, nodes = placement.gpu_rows, placement.node_rows
    free = cluster.gpu_free[gpus]
    if free.all():
        return placement
    row = np.searchsorted(nodes, cluster.fleet.gpus.node[gpus])
    share = np.bincount(row, weights=free, minlength=len(nodes)) / np.bincount(row)
    peak_w = share * placement.node_peak_w
    stays = share > 0
    return replace(
        placement,
        gpus=tuple(gpus[free].tolist()),
        nodes=tuple(nodes[stays].tolist()),
        peak_w=tuple(peak_w[stays].tolist()),
    )
