"""Reservations for blocked jobs: when enough will be free, and where they will stand then.

Others may go ahead of them while that does not put them off: those that end before, and those that
fit beside them on the fleet as it will be then.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Placement, Refusal, Request
from policies.headroom.binding import balance

__all__ = ["CURED_BY_ENDS", "Ending", "Reservation", "Reservations", "held_by"]

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

#: The solver is asked again each time that so many more of the jobs have ended, as a share.
_STRIDE = 0.25


@dataclass(frozen=True)
class Ending:
    """A job that holds GPUs, and when it gives them back at the latest (Unix s)."""

    at: float
    request: Request
    placement: Placement


@dataclass(frozen=True, eq=False)
class Reservation:
    """The reservation of a blocked job: where it will start, and from when on (Unix s).

    ``then`` is the fleet at that time with the job on it; ``rank`` its place in the order.
    """

    request: Request
    rank: int
    at: float
    placement: Placement
    then: Cluster

    def is_put_off_by(self, request: Request, placement: Placement, end_at: float) -> bool:
        """Say whether a ``placement`` until ``end_at`` would delay the reserved job."""
        return end_at > self.at and not self.then.admits(placement, request)

    def reason(self, request: Request, end_at: float) -> Reason:
        need, have = end_at - self.then.now, self.at - self.then.now
        told = balance(need, have, "s")
        text = (
            f"would run {told.told(told.short)} longer than the {told.told(told.have)} after which"
            " another job, which is ahead of it, is to have what it needs itself"
        )
        evidence = {"kept_for": self.request.key, "kept_at": self.at}
        token = ReasonToken.BACKFILL_RESERVATION
        return Reason(token, need, have, "s", None, text, evidence)


class Reservations:
    """The reservations of the first jobs that are blocked.

    ``cluster`` is the fleet as it is now. Whoever is put on it is told of by :meth:`take`, too.
    ``endings`` are all that stand on it.
    """

    def __init__(self, cluster: Cluster, endings: Sequence[Ending], *, most: int) -> None:
        self._cluster = cluster
        self._endings = sorted(endings, key=_when)
        self._most = most
        #: the fleet once the first ``_ended`` of the endings are over, with all that is kept
        self._ahead, self._ended, self._latest = cluster.copy(), 0, cluster.now
        #: the fleet as it is now less what is kept of it
        self._beside: Cluster | None = None
        #: the fleet once all have ended, as it was found not to be enough for somebody
        self._all_over: Cluster | None = None
        self.kept: list[Reservation] = []

    @property
    def is_full(self) -> bool:
        return len(self.kept) >= self._most

    def reserve(self, request: Request, rank: int) -> bool:
        """Reserve room for a blocked job from when there will be enough; False if never."""
        if self._all_over is not None and _placed(self._all_over, request) is None:
            return False
        ahead, ended = self._ahead.copy(), self._ended
        # Of the fleet as it is now, with nothing kept, it is known that it is not enough.
        found = _placed(ahead, request) if self.kept else None
        stride = 1
        while found is None and ended < len(self._endings):
            upto = min(ended + stride, len(self._endings))
            ahead.free_all(held_by(self._endings[ended:upto]))
            ended, stride = upto, max(1, int(_STRIDE * (upto - self._ended)))
            found = _placed(ahead, request)
        if found is None:
            self._all_over = ahead
            return False
        ahead.allocate(found, request)
        if ended > self._ended:
            self._latest = max(self._endings[ended - 1].at, self._latest)
        self._ahead, self._ended = ahead, ended
        self._expect(Ending(self._latest + request.walltime_s, request, found))
        self._keep(Reservation(request, rank, self._latest, found, ahead.copy()))
        return True

    def reserve_after(
        self, leaving: Sequence[Ending], request: Request, rank: int, placement: Placement
    ) -> None:
        """Reserve ``placement`` for a job that others, ``leaving``, are preempted for.

        It must be in the way of none that something is kept for.
        """
        at = max(each.at for each in leaving)
        then = self._cluster.copy()
        gone = {each.request.key for each in leaving}
        to_come, self._ended = self._endings[self._ended :], 0
        self._ahead.free_all(held_by(each for each in to_come if each.request.key in gone))
        self._endings = [each for each in to_come if each.request.key not in gone]
        then.free_all(held_by(leaving))
        then.allocate(placement, request)
        if at + request.walltime_s > self._latest:
            self._ahead.allocate(placement, request)
            self._expect(Ending(at + request.walltime_s, request, placement))
        self._keep(Reservation(request, rank, at, placement, then))

    def _keep(self, reservation: Reservation) -> None:
        self.kept.append(reservation)
        if self._beside is not None:
            _hold_free_part(self._beside, reservation.placement, reservation.request)

    def _expect(self, ending: Ending) -> None:
        insort(self._endings, ending, lo=self._ended, key=_when)

    def take(self, request: Request, placement: Placement, end_at: float) -> None:
        """Note that a job holds ``placement`` until ``end_at``. It must delay no reserved job."""
        for each in self.kept:
            if end_at > each.at:
                each.then.allocate(placement, request)
        if end_at > self._latest:
            self._ahead.allocate(placement, request)
            self._expect(Ending(end_at, request, placement))
        if self._beside is not None:
            _hold_free_part(self._beside, placement, request)

    def in_the_way_of(
        self, request: Request, placement: Placement, end_at: float, rank: int
    ) -> Reservation | None:
        """Return the reservation before ``rank`` that a placement until ``end_at`` puts off."""
        for each in self.kept:
            if each.rank < rank and each.is_put_off_by(request, placement, end_at):
                return each
        return None

    def beside(self, request: Request) -> Placement | None:
        """Return a placement on resources that are free now and reserved for nobody."""
        if self._beside is None:
            self._beside = self._cluster.copy()
            for each in self.kept:
                _hold_free_part(self._beside, each.placement, each.request)
        return _placed(self._beside, request)

    def of_those_before(self, rank: int, cluster: Cluster) -> Reservations:
        """Return the reservations of those before ``rank``, on ``cluster``: to be read only."""
        found = Reservations(cluster, (), most=0)
        found.kept = [each for each in self.kept if each.rank < rank]
        return found


def held_by(endings: Iterable[Ending]) -> list[tuple[Placement, Request]]:
    """Return the placements with the requests that hold them, for a :class:`Cluster`."""
    return [(each.placement, each.request) for each in endings]


def _when(ending: Ending) -> tuple[float, str]:
    return ending.at, ending.request.key


def _placed(cluster: Cluster, request: Request) -> Placement | None:
    found = place(cluster, request)
    return None if isinstance(found, Refusal) else found


def _hold_free_part(cluster: Cluster, placement: Placement, request: Request) -> None:
    """Hold those GPUs of ``placement`` that are free, with their part of its power."""
    part = _free_part(cluster, placement)
    if part.gpus:
        cluster.allocate(part, request)


def _free_part(cluster: Cluster, placement: Placement) -> Placement:
    gpus = np.array(placement.gpus, dtype=np.int64)
    node = cluster.fleet.gpus.node[gpus]
    free = cluster.gpu_free[gpus]
    if free.all():
        return placement
    nodes = np.array(placement.nodes, dtype=np.int64)
    row = np.searchsorted(nodes, node)
    share = np.bincount(row, weights=free, minlength=len(nodes)) / np.bincount(row)
    peak_w = share * np.array(placement.peak_w)
    stays = share > 0
    return replace(
        placement,
        gpus=tuple(gpus[free].tolist()),
        nodes=tuple(nodes[stays].tolist()),
        peak_w=tuple(peak_w[stays].tolist()),
    )
