"""Which jobs end for one that waits, so that it fits and least work is lost. Bounded in its cost.

Some greedy sets are made, each without what is not needed of it; then sets that would lose less are
tried, the cheapest first, so many of them. Which set is enough only the solver knows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from admission.core.cycle.backfill import held_by, hold_free_part
from admission.core.cycle.queue import Queue, close
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import placed
from admission.core.placement.refusals import may_have_room
from admission.core.request import Locality, Placement, Request
from admission.core.response.shedding import rank_by_watts_per_lost_work
from admission.core.snapshot import Running

__all__ = ["Leaving", "Victim", "Wanted", "cheapest", "groups_of"]

Ints = npt.NDArray[np.int64]
#: The jobs that end, and where the waiting one stands then.
Leaving = tuple[tuple[Running, ...], Placement]
#: A job, and what it is to have.
Taken = tuple[Request, Placement]

#: So many sets are tried by the solver, and looked at, for one job; on fleets of more than so many
#: GPUs fewer are, as each takes longer there.
_MOST_TRIED, _MOST_SEEN, _GPUS = 200, 8_000, 2_000
#: Groups of nodes, such as racks, that a set is made of alone.
_GROUPS = 4
#: What is not needed of a larger set is found without asking the solver each time.
_LARGE = 24


@dataclass(frozen=True)
class Victim:
    """A job that may be stopped, and its cost: work lost, GPU seconds, and what counts as such."""

    running: Running
    cost: float


class Wanted:
    """What one waiting job asks for, by its quotas too where these are in its way."""

    def __init__(
        self,
        queue: Queue,
        request: Request,
        rank: int,
        *,
        by_quota: bool,
        lets_ahead: bool = False,
    ) -> None:
        """``lets_ahead``: those ahead of it who wait for longer take of what comes free first."""
        self.queue, self.request = queue, request
        self._rank, self._by_quota, self._lets_ahead = rank, by_quota, lets_ahead

    def behind_others(self) -> Wanted:
        """Return the same for where those ahead of it have taken of what comes free."""
        return Wanted(
            self.queue, self.request, self._rank, by_quota=self._by_quota, lets_ahead=True
        )

    def fits_soon(self) -> Placement | None:
        """Return where it stands once those jobs end that end within the grace of a preemption."""
        return self.fits(self._ending) if self._ending else None

    def fits(self, ended: Sequence[str], over: Cluster | None = None) -> Placement | None:
        """Return where it would stand once jobs, by key, have ended; None: nowhere.

        ``over``: a copy of the fleet without them, where there is one.
        """
        request: Request | None = self._fitted(ended)
        if request is None:
            return None
        then = over or self.once_over(self.queue.cluster, ended)
        ahead = self._take_what_is_kept(then, ended)
        if self.queue.snapshot.caps:
            close(then, self._kept_nodes(ended, ahead))
        while request is not None and may_have_room(then, request):
            found = placed(then, request)
            if found is None or self._is_allowed(ended, found):
                return found
            request = self.queue.quotas_after(ended).fewer(request, found, self._end_at, self._rank)
        return None

    @property
    def _end_at(self) -> float:
        return self.queue.now + self.request.walltime_s

    @property
    def _soon(self) -> float:
        return self.queue.now + self.queue.snapshot.tuning.preemption_grace_s

    @cached_property
    def _ending(self) -> list[str]:
        """The keys of the jobs that end within the grace of a preemption."""
        return [key for key, each in self.queue.endings.items() if each.at <= self._soon]

    def _fitted(self, ended: Sequence[str]) -> Request | None:
        """Return it with as many GPUs as its quotas leave it once jobs have ended; None: none."""
        quotas = self.queue.quotas_after(ended) if self._by_quota else self.queue.quotas
        fitted = quotas.fitted(self.request, self._end_at, self._rank)
        return None if isinstance(fitted, tuple) else fitted

    def _is_allowed(self, ended: Sequence[str], placement: Placement) -> bool:
        """Say whether its quotas let it stand there, as they are now or once jobs have ended."""
        asked = self.request, placement, self._end_at, self._rank
        if not self.queue.quotas.refusals(*asked):
            return True
        return not self.queue.quotas_after(ended).refusals(*asked)

    def once_over(
        self, cluster: Cluster, ended: Sequence[str], so_far: Sequence[str] = ()
    ) -> Cluster:
        """Return the fleet once jobs, by key, are over, too; ``so_far`` are those that are."""
        cluster = cluster.copy()
        if ended:
            over = held_by([self.queue.endings[key] for key in ended])
            cluster.free_all([*over, *self.queue.opened_by(ended, so_far)])
        return cluster

    def _kept_nodes(self, ended: Sequence[str], ahead: Sequence[Taken]) -> frozenset[int]:
        """Return the nodes where what restrictions let run is kept for those ahead of it.

        ``ahead``: those that take of what comes free, and where.
        """
        quotas = self.queue.quotas_after(ended)
        kept = quotas.kept_nodes(self._end_at, self._rank)
        for request, placement in ahead:
            quotas = quotas.beside(request, placement, self.queue.now + request.walltime_s)
        return kept | quotas.full_nodes() if ahead else kept

    def _take_what_is_kept(self, cluster: Cluster, ended: Sequence[str]) -> list[Taken]:
        """Take what others are to have by the time that the job begins off a fleet.

        ``ended``: the jobs that are over on it. Returns who takes of what comes free, and where.
        """
        # What others have booked is asked for the time that it begins at.
        cluster.now = self._soon
        ahead = [each for each in self.queue.reservations.kept if each.rank < self._rank]
        found: list[Taken] = []
        then = self._then(cluster, ended) if ahead and self._lets_ahead else None
        for each in ahead:
            takes = each.placement if each.at <= self._soon else None
            # One that is to have fewer GPUs than it asks for takes more of what comes free, too.
            if then is not None and (takes is None or len(takes.gpus) < each.request.gpus):
                takes = placed(then, each.request) or takes
            if takes is None:
                continue
            hold_free_part(cluster, takes, each.request)
            if then is not None:
                hold_free_part(then, takes, each.request)
                found.append((each.request, takes))
        return found

    def _then(self, cluster: Cluster, ended: Sequence[str]) -> Cluster:
        """Return a fleet once those that end within the grace of a preemption are over, too."""
        return self.once_over(cluster, [key for key in self._ending if key not in ended], ended)


def cheapest(victims: Sequence[Victim], wanted: Wanted) -> Leaving | None:
    """Return the jobs that end, and where the waiting one stands then; None: all are too few."""
    if not victims:
        return None
    search = _Search(victims, wanted)
    if search.fits(range(len(victims))) is None:
        return None
    best: list[int] | None = None
    for order in search.orders():
        rows = search.without_the_needless(search.enough_of(order))
        if best is None or search.cost(rows) < search.cost(best):
            best = rows
    if best is None:
        return None
    best = search.cheaper_than(best)
    placement = search.fits(best)
    if placement is None:
        return None
    return tuple(victims[row].running for row in best), placement


class _Search:
    def __init__(self, victims: Sequence[Victim], wanted: Wanted) -> None:
        self._victims, self._wanted = victims, wanted
        self._keys = [each.running.request.key for each in victims]
        self._costs = [each.cost for each in victims]
        self._cost = np.array(self._costs)
        #: the cheapest first
        self._by_cost = np.argsort(self._cost, kind="stable")
        cluster, request = wanted.queue.cluster, wanted.request
        group = groups_of(cluster, request.required)
        node_of = cluster.fleet.gpus.node
        free = cluster.gpu_free | wanted.queue.are_closed()
        self._free = np.bincount(group[node_of[free]], minlength=int(group.max()) + 1)
        self._held = _Held.of(victims, group[node_of])
        self._needs = request.min_gpus
        part = min(_GPUS / len(cluster.fleet.gpus), 1.0)
        self._tries_left, self._looks = int(_MOST_TRIED * part), int(_MOST_SEEN * part)
        #: what the solver has said of sets
        self._known: dict[tuple[int, ...], Placement | None] = {}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [self._keys[row] for row in rows]

    def cost(self, rows: Sequence[int]) -> float:
        return sum(self._costs[row] for row in rows)

    def fits(self, rows: Sequence[int], over: Cluster | None = None) -> Placement | None:
        """Return where the waiting job would stand once a set has ended; None: nowhere.

        The solver is asked once. ``over``: a copy of the fleet without the set, where there is one.
        """
        key = tuple(rows)
        if key not in self._known:
            self._known[key] = self._wanted.fits(self.keys(rows), over)
        return self._known[key]

    def _may_fit(self, rows: Sequence[int]) -> bool:
        """Say whether enough GPUs would be free in some group: if not, the solver need not look."""
        free = self._free.copy()
        for row in rows:
            groups, counts = self._held.of_row(row)
            free[groups] += counts
        return bool(free.max() >= self._needs)

    def _fits(self, rows: Sequence[int]) -> bool:
        return self._may_fit(rows) and self.fits(rows) is not None

    # --- Greedy -----------------------------------------------------------------------------------

    def orders(self) -> Iterator[list[int]]:
        """Yield orders in which candidates are taken until these are enough."""
        running = [each.running for each in self._victims]
        ranked = rank_by_watts_per_lost_work(running, self._wanted.queue.now)
        # Whoever is to be spared comes last in each of them: the cost says so.
        tier = self._cost // 1e8
        yield ranked[np.argsort(tier[ranked], kind="stable")].tolist()
        yield np.lexsort((self._cost / self._held.gpus, tier)).tolist()
        yield from self._by_group()

    def _by_group(self) -> Iterator[list[int]]:
        """Yield an order for each of the groups that are cheapest to make room in."""
        if len(self._free) < 2:
            return
        held, short = self._held, self._needs - self._free
        order = np.lexsort((held.row, self._cost[held.row] / held.count, held.group))
        row, count = held.row[order], held.count[order]
        bounds = np.searchsorted(held.group[order], np.arange(len(self._free) + 1))
        would = np.bincount(held.group, held.count, len(self._free))
        found: list[tuple[float, int]] = []
        for group in np.flatnonzero((would > 0) & (would >= short)).tolist():
            part = slice(bounds[group], bounds[group + 1])
            before = np.cumsum(count[part]) - count[part]
            needed = row[part][before < short[group]]
            found.append((self.cost(needed.tolist()), group))
        for _, group in heapq.nsmallest(_GROUPS, found):
            own = row[bounds[group] : bounds[group + 1]]
            rest = self._by_cost[~np.isin(self._by_cost, own)]
            yield [*own.tolist(), *rest.tolist()]

    def enough_of(self, order: list[int]) -> list[int]:
        """Return the first in an order that are enough: all of them together are."""
        wanted, upto, ended = self._wanted, 0, 0
        over = wanted.queue.cluster
        while upto < len(order):
            upto += max(1, upto // 4)
            rows = order[:upto]
            if not self._may_fit(rows):
                continue
            keys = self.keys(rows)
            over, ended = wanted.once_over(over, keys[ended:], keys[:ended]), len(keys)
            if self.fits(rows, over.copy()) is not None:
                break
        return order[:upto]

    def without_the_needless(self, rows: list[int]) -> list[int]:
        """Leave out, the costliest first, those without which the others are enough."""
        kept = list(rows)
        if len(kept) > _LARGE:
            kept = self._needed_for_one_place(kept)
        if len(kept) <= _LARGE:
            for row in sorted(kept, key=lambda row: -self._costs[row]):
                others = [each for each in kept if each != row]
                if self._fits(others):
                    kept = others
        return kept

    def _needed_for_one_place(self, rows: list[int]) -> list[int]:
        """Leave out those beside which the waiting job can stand where it would stand now."""
        found = self.fits(rows)
        if found is None:
            return rows
        queue = self._wanted.queue
        cluster, kept = self._wanted.once_over(queue.cluster, self.keys(rows)), []
        cluster.allocate(found, self._wanted.request)
        for row in sorted(rows, key=lambda row: -self._costs[row]):
            each = self._victims[row].running
            if cluster.admits(each.placement, each.request):
                cluster.allocate(each.placement, each.request)
            else:
                kept.append(row)
        return kept if self.fits(kept) is not None else rows

    # --- All of them ------------------------------------------------------------------------------

    def cheaper_than(self, best: list[int]) -> list[int]:
        """Return the cheapest set of all, or of those that were tried; the cheapest come first."""
        order = self._by_cost.tolist()
        limit = self.cost(best)
        heap: list[tuple[float, tuple[int, ...]]] = [(self._costs[order[0]], (0,))]
        for _ in range(self._looks):
            if not heap or self._tries_left <= 0:
                break
            cost, places = heapq.heappop(heap)
            if cost >= limit:
                break
            rows = [order[each] for each in places]
            if self._may_fit(rows):
                self._tries_left -= 1
                if self.fits(rows) is not None:
                    return rows
            after = places[-1] + 1
            if after < len(order):
                more = self._costs[order[after]]
                heapq.heappush(heap, (cost + more, (*places, after)))
                swapped = cost - self._costs[order[places[-1]]] + more
                heapq.heappush(heap, (swapped, (*places[:-1], after)))
        return best


@dataclass(frozen=True, eq=False)
class _Held:
    """How many GPUs candidates hold in each group: by candidate, and of it by group."""

    row: Ints
    group: Ints
    count: Ints
    #: by candidate: where its part begins, and all that it holds
    bounds: list[int]
    gpus: Ints

    @classmethod
    def of(cls, victims: Sequence[Victim], group_of_gpu: Ints) -> _Held:
        held = [each.running.placement.gpu_rows for each in victims]
        gpus, width = np.array([len(each) for each in held]), int(group_of_gpu.max()) + 1
        row = np.repeat(np.arange(len(held)), gpus)
        keys = row * width + group_of_gpu[np.concatenate(held)]
        keys, count = np.unique(keys, return_counts=True)
        row, group = np.divmod(keys, width)
        bounds = np.searchsorted(row, np.arange(len(held) + 1)).tolist()
        return cls(row, group, count, bounds, np.maximum(gpus, 1))

    def of_row(self, row: int) -> tuple[Ints, Ints]:
        """Return the groups that one holds GPUs of, in order, and how many of each."""
        part = slice(self.bounds[row], self.bounds[row + 1])
        return self.group[part], self.count[part]


def groups_of(cluster: Cluster, required: Locality) -> Ints:
    """Return the group of each node in which a job of that locality has to stand as a whole."""
    nodes = len(cluster.fleet.nodes)
    if required is Locality.NODE:
        return np.arange(nodes)
    if required is Locality.FLEET:
        return np.zeros(nodes, dtype=np.int64)
    return cluster.topology.groups[required]
