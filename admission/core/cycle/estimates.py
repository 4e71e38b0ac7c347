"""When a job that waits will start, as a range: the queue played on, many times.

How jobs end is drawn, from how those like them have ended, and each draw is played on as the cycle
would (``futures``). What the draws leave out makes them off; by how much they were off lately moves
the range (``calibration``): four starts of five are to fall into theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from admission.core.cycle.backfill import Ending, pool_of
from admission.core.cycle.calibration import SHARES, Calibration, Estimate, Given
from admission.core.cycle.decide import Decisions, Waiting
from admission.core.cycle.ends import Like, Ran, RunRecord
from admission.core.cycle.futures import PoolState, starts_s
from admission.core.cycle.queue import Stage
from admission.core.placement.eligibility import Eligibility
from admission.core.reasons import ReasonToken
from admission.core.request import Request
from policies.scopes import Scope, UnknownScope, nodes_in

__all__ = ["estimates", "ranges"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
#: What jobs wait for together: GPUs of a kind at some sites, or those of a quota or a cap.
Key: TypeAlias = tuple[str, tuple[tuple[str, ...], ...]]

#: Futures that are drawn.
_DRAWS = 32
#: Of those that wait for the same GPUs the first so many have a range.
_REACH = 4_000
#: Nobody ends before this, s.
_SOON_S = 1.0
#: Kinds of GPUs and sets of sites that jobs are queued for, which are looked at apart.
_MOST_POOLS = 24
_ANYWHERE: Key = ("fleet", ())
#: Before these nobody knows when a job starts: it takes somebody or another job.
_OPEN_ENDED = frozenset(
    {
        ReasonToken.SPEC_INVALID,
        ReasonToken.DEPENDENCY_NEVER_MET,
        ReasonToken.BOOKED,
        ReasonToken.DEPENDENCY_PENDING,
        ReasonToken.ARTIFACT_PENDING,
        ReasonToken.HARDWARE_MISMATCH,
        ReasonToken.COOLING_MISMATCH,
        ReasonToken.LOCALITY_UNSATISFIABLE,
    }
)
#: Budgets that GPUs of several kinds, and of several schedulers, draw on.
_SHARED = frozenset(
    {
        ReasonToken.RACK_POWER,
        ReasonToken.FEED_POWER,
        ReasonToken.FEED_REDUNDANCY,
        ReasonToken.SITE_POWER,
        ReasonToken.COOLING_CAPACITY,
    }
)


def estimates(
    decisions: Decisions,
    ended: Iterable[Ran],
    calibration: Calibration,
    *,
    never: Container[str] = (),
) -> dict[str, Estimate]:
    """Return when each waiting job starts, by key; those without an estimate are left out.

    ``ended``: how jobs have ended of late. ``never``: the keys of those that cannot start.
    """
    found = ranges(decisions, ended, never=never)
    return {key: calibration.estimate(drawn) for key, drawn in found.items()}


def ranges(
    decisions: Decisions, ended: Iterable[Ran], *, never: Container[str] = ()
) -> dict[str, Given]:
    """Return the range in which each waiting job starts in futures that are drawn, by key.

    Left out are those of which nobody can say it, those that ``never`` can, and those too far back
    in the queue.
    """
    rng = np.random.default_rng(int(decisions.snapshot.now))
    held = _Held.of(decisions)
    record = RunRecord((*ended, *held.running()))
    found: dict[str, Given] = {}
    for pool in _pools(decisions, never):
        state = pool.state(decisions, held, record, rng)
        drawn_s = np.quantile(starts_s(state), SHARES, axis=0)
        if not len(state.held):
            # Nobody gives back what they are short of: whoever changes that, when is not known.
            drawn_s[:, [_is_refused(each) for each in pool.waiting]] = np.inf
        for each, (low_s, middle_s, high_s) in zip(pool.waiting, drawn_s.T.tolist(), strict=True):
            if np.isfinite(high_s):
                least_s = _least_s(each, decisions.snapshot.now)
                at_s = (max(one_s, least_s) for one_s in (low_s, middle_s, high_s))
                found[each.request.key] = Given(each.request.min_gpus, *at_s)
    return found


def _is_refused(waiting: Waiting) -> bool:
    """Say whether a job does not fit now: somebody has to give something back first."""
    return waiting.stage in (Stage.QUOTAS, Stage.FLEET)


def _is_held(waiting: Waiting) -> bool:
    dominant = waiting.dominant
    return dominant.token is ReasonToken.ON_HOLD and "not_before" not in dominant.evidence


def _least_s(waiting: Waiting, now: float) -> float:
    """Return how long a job waits at least for a time that is known, s."""
    evidence = waiting.dominant.evidence
    until = evidence.get("until", evidence.get("not_before", now))
    return max(float(until) - now, 0.0)


# --- Who waits for the same -----------------------------------------------------------------------


@dataclass
class _Pool:
    """GPUs that are given back one after the other, and taken by ``waiting`` in order."""

    key: Key
    #: rows of GPUs that are of the kind and at the sites
    gpus: Bools
    waiting: list[Waiting] = field(default_factory=list)

    def state(
        self, decisions: Decisions, held: _Held, record: RunRecord, rng: np.random.Generator
    ) -> PoolState:
        here = self._holders(decisions, held)
        by_s, ran_s = held.by_s[here], held.ran_s[here]
        allowed_s = held.walltime_s[here]
        like = [held.like[place] for place in here.tolist()]
        shares = record.draw(like, np.minimum(ran_s / allowed_s, 1.0), rng, _DRAWS)
        to_s = np.clip(shares * allowed_s - ran_s, _SOON_S, np.maximum(by_s, _SOON_S))
        wants, users = [each.request for each in self.waiting], decisions.after.users
        walltime_s = np.array([each.walltime_s for each in wants])
        like = [_like(each, users.get(each.key, "")) for each in wants]
        shares = record.draw(like, np.zeros(len(wants)), rng, _DRAWS)
        return PoolState(
            free=self._free(decisions),
            held=held.gpus[here],
            held_by_s=by_s,
            held_to_s=to_s,
            wanted=np.array([each.min_gpus for each in wants], dtype=np.int64),
            walltime_s=walltime_s,
            runs_s=shares * walltime_s,
        )

    def _holders(self, decisions: Decisions, held: _Held) -> NDArray[np.intp]:
        """Return which of those that hold GPUs give back what is waited for, as they end.

        Where nobody stands in the pool, as among the nodes of one scheduler, those do who share
        the budgets that are short.
        """
        here = np.flatnonzero([self._is_in(each) for each in held.endings])
        if len(here):
            return here
        scopes = {
            each.dominant.scope
            for each in self.waiting
            if _is_refused(each) and each.dominant.token in _SHARED
        }
        shared = _gpus_in(decisions, scopes)
        return np.flatnonzero(
            [bool(shared[each.placement.gpus[:1]].any()) for each in held.endings]
        )

    def _free(self, decisions: Decisions) -> int:
        """Return how many GPUs may be had now: fewer than anybody was refused.

        What is free beyond that is short of power, heat, or a place that is large enough.
        """
        free = int((decisions.after.cluster.gpu_free & self.gpus).sum())
        refused = [each.request.min_gpus for each in self.waiting if _is_refused(each)]
        return max(min([free, *(gpus - 1 for gpus in refused)]), 0)

    def _is_in(self, held: Ending) -> bool:
        kind, names = self.key
        if kind == "project":
            return held.request.project in names[0]
        if kind == "class":
            return held.request.job_class in names[0]
        return bool(self.gpus[held.placement.gpus[0]]) if held.placement.gpus else False


def _pools(decisions: Decisions, never: Container[str]) -> Iterable[_Pool]:
    """Return those that wait for the same GPUs, each in order, up to where it reaches."""
    said = [
        each
        for key, each in decisions.waiting.items()
        if each.dominant.token not in _OPEN_ENDED and not _is_held(each) and key not in never
    ]
    kinds = Counter(map(_kind, said))
    apart = {key for key, _ in kinds.most_common(_MOST_POOLS)}
    found: dict[Key, _Pool] = {}
    for each in said:
        key = _kind(each)
        if key[0] == "fleet" and key not in apart:
            key = _ANYWHERE
        if key not in found:
            found[key] = _Pool(key, _gpus_of(decisions, key, each.request))
        if len(found[key].waiting) < _REACH:
            found[key].waiting.append(each)
    return found.values()


def _kind(waiting: Waiting) -> Key:
    request, token = waiting.request, waiting.dominant.token
    if token is ReasonToken.QUOTA_EXCEEDED:
        return "project", ((request.project,),)
    if token is ReasonToken.CONCURRENCY_CAP:
        return "class", ((request.job_class,),)
    return "fleet", pool_of(request)


def _gpus_of(decisions: Decisions, key: Key, request: Request) -> Bools:
    """Return which GPUs of the fleet those of a pool may stand on; ``request``: of one of them."""
    cluster = decisions.snapshot.cluster
    fleet = cluster.fleet
    if key[0] != "fleet" or key == _ANYWHERE:
        return np.ones(len(fleet.gpus), dtype=np.bool_)
    # Others of the pool have their storage elsewhere.
    nodes = Eligibility.of(cluster, replace(request, storage="")).cooled
    found: Bools = nodes[fleet.gpus.node]
    if request.models:
        found &= np.isin(fleet.models.names, request.models)[fleet.gpus.model]
    return found


def _gpus_in(decisions: Decisions, scopes: Iterable[Scope | None]) -> Bools:
    """Return which GPUs of the fleet stand in any of ``scopes``."""
    fleet = decisions.snapshot.cluster.fleet
    nodes = np.zeros(len(fleet.nodes), dtype=np.bool_)
    for scope in scopes:
        # One that has gone meanwhile has nobody in it.
        with suppress(UnknownScope):
            nodes |= nodes_in(fleet, scope) if scope is not None else False
    return np.asarray(nodes[fleet.gpus.node])


@dataclass(frozen=True, eq=False)
class _Held:
    """The jobs that hold GPUs once a cycle is over, as arrays. Times are s from now."""

    endings: list[Ending]
    like: list[Like]
    gpus: NDArray[np.int64]
    #: when they give them back at the latest, for how long they have run and may run
    by_s: Floats
    ran_s: Floats
    walltime_s: Floats

    @classmethod
    def of(cls, decisions: Decisions) -> _Held:
        now, endings = decisions.snapshot.now, list(decisions.after.endings.values())
        running = {each.request.key: each for each in decisions.snapshot.running}
        users = decisions.after.users | {key: each.user for key, each in running.items()}
        begun = [
            running[key].started_at if (key := each.request.key) in running else now
            for each in endings
        ]
        return cls(
            endings,
            [_like(each.request, users.get(each.request.key, "")) for each in endings],
            np.array([len(each.placement.gpus) for each in endings], dtype=np.int64),
            np.array([each.at - now for each in endings], dtype=np.float64),
            np.maximum(now - np.array(begun, dtype=np.float64), 0.0),
            np.array([max(each.request.walltime_s, 1.0) for each in endings], dtype=np.float64),
        )

    def running(self) -> Iterable[Ran]:
        """Return those that run, with the shares of their walltime that they have run for."""
        shares = (self.ran_s / self.walltime_s).tolist()
        return (Ran(like, share, is_over=False)
                for like, share in zip(self.like, shares, strict=True) if share > 0.0)  # fmt: skip


def _like(request: Request, user: str) -> Like:
    return Like(request.project, user, request.gpus, request.walltime_s)
