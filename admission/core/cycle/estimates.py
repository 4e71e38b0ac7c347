"""When a job that waits will start, as a range, and how far such ranges have held.

A forecast plays the queue on: jobs in order take what running ones give back. It knows nothing of
jobs that come later, of those that end early, and of places. How far off forecasts were, by how
far ahead they looked, makes a range of each: four starts of five are to fall into theirs. Who still
waits counts with what has passed already, or ranges would follow those who were lucky.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from admission.core.cycle.backfill import Ending
from admission.core.cycle.decide import Decisions, Waiting
from admission.core.reasons import ReasonToken
from admission.core.request import Placement, Request

__all__ = ["Calibration", "Estimate", "estimate", "estimates", "forecasts"]

#: Waits shorter than this are alike, s.
_SHORT_S = 30.0
#: Forecasts are off by as much as others that looked as far ahead, to a factor of this.
_FACTOR = 6.0
#: Of so many of the last starts errors are kept, for each distance.
_KEPT = 256
#: Of starts within so long a time, s, so many count for each distance: what nobody could know
#: puts all of them off alike, and a burst of a thousand says no more than a few of them.
_TOGETHER_S = 300.0
_MOST_TOGETHER = 3
#: Where fewer were seen for a distance, those for all distances count.
_FEW = 24
#: Shares of starts that are to come before the low end, the middle and the high end of a range.
_SHARES = (0.1, 0.5, 0.9)
#: Besides what was seen, errors of up to this factor either way are taken to have been seen: …
_UNKNOWN_FACTOR = 8.0
#: … so many of them. The first starts of a burst say little of the others of it.
_UNSEEN = 32
_ROUNDING = 1e-9
_PRIOR = tuple(math.log(_UNKNOWN_FACTOR) * (2.0 * n / (_UNSEEN - 1) - 1.0) for n in range(_UNSEEN))
#: Sets of sites that jobs are queued for, of which the ends are looked at apart.
_MOST_SITE_POOLS = 24
#: Before these nobody knows when a job starts: it takes somebody or another job.
_OPEN_ENDED = frozenset(
    {
        ReasonToken.SPEC_INVALID,
        ReasonToken.DEPENDENCY_NEVER_MET,
        ReasonToken.BOOKED,
        ReasonToken.DEPENDENCY_PENDING,
        ReasonToken.HARDWARE_MISMATCH,
        ReasonToken.COOLING_MISMATCH,
        ReasonToken.LOCALITY_UNSATISFIABLE,
    }
)


@dataclass(frozen=True)
class Estimate:
    """In how many seconds from now a job starts: of ten such jobs one before ``p10_s``, …

    ``forecast_s`` is what the range was made of. ``basis`` says what it rests on.
    """

    p10_s: float
    p50_s: float
    p90_s: float
    forecast_s: float
    basis: str


@dataclass(frozen=True)
class _Errors:
    """Errors of forecasts that looked as far ahead: the last ones, as logarithms of ratios.

    ``taken`` of them are of the stretch of time, ``stretch``, that the last is of.
    """

    last: tuple[float, ...] = ()
    stretch: int = -1
    taken: int = 0

    def and_those(self, more: Sequence[float], stretch: int) -> _Errors:
        taken = self.taken if stretch == self.stretch else 0
        counted = _spaced(more, _MOST_TOGETHER - taken)
        return _Errors((*self.last, *counted)[-_KEPT:], stretch, taken + len(counted))


@dataclass(frozen=True)
class _Spread:
    """Errors at the low end, in the middle, and at the high end of a range."""

    at: tuple[float, ...]
    basis: str


@dataclass(frozen=True)
class Calibration:
    """The errors of past forecasts, and how many starts fell into their ranges. A value.

    ``waiting`` are those that have not come true yet: how far they are off at least.
    """

    by_distance: Mapping[int, _Errors] = field(default_factory=dict)
    starts: int = 0
    within: int = 0
    waiting: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    #: made when first asked for, by distance
    _spreads: dict[int, _Spread] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as plain values for JSON."""
        errors = {
            str(key): {
                "last": [round(each, 4) for each in one.last],
                "stretch": one.stretch,
                "taken": one.taken,
            }
            for key, one in self.by_distance.items()
        }
        return {"starts": self.starts, "within": self.within, "errors": errors}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Calibration:
        """Return the calibration that :meth:`as_json` wrote."""
        errors = {
            int(key): _Errors(tuple(one["last"]), one["stretch"], one["taken"])
            for key, one in document["errors"].items()
        }
        return Calibration(errors, document["starts"], document["within"])

    @property
    def coverage(self) -> float | None:
        """The share of starts that fell into their ranges; None before there was one."""
        return self.within / self.starts if self.starts else None

    def learn(self, starts: Sequence[tuple[Estimate, float]], at: float) -> Calibration:
        """Return the calibration after jobs started at ``at`` (Unix s).

        Of each what it was told, and how many seconds after that it started.
        """
        errors: dict[int, list[float]] = {}
        for given, waited_s in starts:
            errors.setdefault(_distance(given.forecast_s), []).append(
                _error(given.forecast_s, waited_s)
            )
        stretch = int(at // _TOGETHER_S)
        learned = {
            key: self.by_distance.get(key, _Errors()).and_those(more, stretch)
            for key, more in errors.items()
        }
        within = sum(given.p10_s <= waited_s <= given.p90_s for given, waited_s in starts)
        return Calibration(
            {**self.by_distance, **learned}, self.starts + len(starts), self.within + within
        )

    def beside(self, waiting: Iterable[tuple[float, float]], at: float) -> Calibration:
        """Return the calibration with the jobs that still wait at ``at`` (Unix s).

        Of each when it was told its range (Unix s), and the forecast of that, s. Without them only
        those count that have started, and of those who were told the same these are the lucky ones.
        """
        together: dict[tuple[int, int], list[float]] = {}
        for told_at, forecast_s in waiting:
            key = _distance(forecast_s), int(told_at // _TOGETHER_S)
            together.setdefault(key, []).append(_error(forecast_s, max(at - told_at, 0.0)))
        found: dict[int, tuple[float, ...]] = {}
        for (distance, _), errors in together.items():
            found[distance] = (*found.get(distance, ()), *_spaced(errors, _MOST_TOGETHER))
        return Calibration(self.by_distance, self.starts, self.within, found)

    def estimate(self, forecast_s: float) -> Estimate:
        """Return the range for a forecast."""
        key = _distance(forecast_s)
        if key not in self._spreads:
            self._spreads[key] = self._spread(key)
        spread = self._spreads[key]
        low_s, middle_s, high_s = (
            max((forecast_s + _SHORT_S) * math.exp(each) - _SHORT_S, 0.0) for each in spread.at
        )
        return Estimate(low_s, middle_s, high_s, forecast_s, spread.basis)

    def _spread(self, key: int) -> _Spread:
        seen = self.by_distance.get(key, _Errors()).last
        waiting = self.waiting.get(key, ())
        basis = f"the queue played on, and how far off that was for {len(seen)} starts"
        if len(seen) < _FEW:
            seen = tuple(each for one in self.by_distance.values() for each in one.last)
            waiting = tuple(each for one in self.waiting.values() for each in one)
            basis = "the queue played on; too few starts were seen to say how far that holds"
        return _Spread(_quantiles((*seen, *_PRIOR), waiting), basis)


def _error(forecast_s: float, waited_s: float) -> float:
    return math.log((waited_s + _SHORT_S) / (forecast_s + _SHORT_S))


def _spaced(values: Sequence[float], most: int) -> list[float]:
    """Return at most so many of ``values``, evenly from the first to the last."""
    if len(values) <= most:
        return list(values)
    step = (len(values) - 1) / max(most - 1, 1)
    return [values[round(place * step)] for place in range(most)]


def _distance(forecast_s: float) -> int:
    return round(math.log(max(forecast_s, 0.0) / _SHORT_S + 1.0, _FACTOR))


def _clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _quantiles(known: Sequence[float], at_least: Sequence[float]) -> tuple[float, ...]:
    """Return the quantiles ``_SHARES`` of all errors.

    Of those that still wait it is known that theirs are ``at_least`` so much: the estimator is that
    of Kaplan and Meier (1958).
    """
    ordered = sorted([(each, False) for each in known] + [(each, True) for each in at_least])
    found: list[float] = []
    beyond = 1.0
    for place, (error, still_waits) in enumerate(ordered):
        if not still_waits:
            beyond *= 1.0 - 1.0 / (len(ordered) - place)
        while len(found) < len(_SHARES) and beyond <= 1.0 - _SHARES[len(found)] + _ROUNDING:
            found.append(error)
    return (*found, *[ordered[-1][0]] * (len(_SHARES) - len(found)))


def estimate(decisions: Decisions, key: str, calibration: Calibration) -> Estimate | None:
    """Return when the job ``key`` starts; None where unknown. Raises KeyError if it does not wait.

    To ask for many take :func:`estimates`: it plays the queue on once.
    """
    waiting = decisions.waiting[key]
    forecast_s = forecasts(decisions, upto=waiting.position).get(key)
    return None if forecast_s is None else calibration.estimate(forecast_s)


def estimates(
    decisions: Decisions, calibration: Calibration, *, never: Container[str] = ()
) -> dict[str, Estimate]:
    """Return when each waiting job starts, by key; those without an estimate are left out.

    ``never``: the keys of those that cannot.
    """
    found = forecasts(decisions, never=never)
    return {key: calibration.estimate(s) for key, s in found.items()}


def forecasts(
    decisions: Decisions, *, upto: int | None = None, never: Container[str] = ()
) -> dict[str, float]:
    """Return in how many seconds each waiting job would start if nothing came in between.

    Those of which nobody can say it are left out, and those that ``never`` can: keys. ``upto``: the
    first so many in order.
    """
    queue, now = decisions.after, decisions.snapshot.now
    pace, pools = _pace(decisions), _Pools(decisions)
    kept = {each.request.key: each.at - now for each in queue.reservations.kept}
    found: dict[str, float] = {}
    for each in list(decisions.waiting.values())[:upto]:
        if each.dominant.token in _OPEN_ENDED or _is_held(each) or each.request.key in never:
            continue
        start_s = pools.of(each).start(each.request, pace * each.request.walltime_s)
        known_s = kept.get(each.request.key, math.inf)
        found[each.request.key] = max(min(start_s, known_s), _least_s(each, now))
    return found


def _is_held(waiting: Waiting) -> bool:
    dominant = waiting.dominant
    return dominant.token is ReasonToken.ON_HOLD and "not_before" not in dominant.evidence


def _least_s(waiting: Waiting, now: float) -> float:
    """Return how long a job waits at least for a time that is known, s."""
    evidence = waiting.dominant.evidence
    until = evidence.get("until", evidence.get("not_before", now))
    return max(float(until) - now, 0.0)


def _pace(decisions: Decisions) -> float:
    """Return the median share of their walltime that running jobs are expected to use."""
    shares = [
        (each.expected_end_at - each.started_at) / each.request.walltime_s
        for each in decisions.snapshot.running
        if each.request.walltime_s > 0
    ]
    return _clipped(statistics.median(shares), 0.01, 1.0) if shares else 1.0


class _Pool:
    """GPUs that are given back one after the other, and taken by jobs in order."""

    def __init__(self, ends: Iterable[tuple[float, int]], now: float) -> None:
        self._now = now
        #: when the last that were given back were
        self._at = now
        self._ends = list(ends)
        heapq.heapify(self._ends)
        self._left = 0

    def start(self, request: Request, runs_s: float) -> float:
        """Take the GPUs of a job; return in how many seconds it has all of them."""
        wanted = request.min_gpus
        while self._left < wanted and self._ends:
            end_at, gpus = heapq.heappop(self._ends)
            self._at = max(self._at, end_at)
            self._left += gpus
        if self._left < wanted:
            # More than all that run have: what it waits for is none of them.
            return self._at - self._now + runs_s
        self._left -= wanted
        heapq.heappush(self._ends, (self._at + runs_s, wanted))
        return self._at - self._now


class _Pools:
    """The pools of GPUs that jobs take from: those of a quota, or at a set of sites."""

    def __init__(self, decisions: Decisions) -> None:
        self._now = decisions.snapshot.now
        self._endings = list(_expected(decisions))
        sites = Counter(each.request.sites for each in decisions.waiting.values())
        #: those that many jobs may go to; the others are taken to be anywhere
        self._sites = {names for names, _ in sites.most_common(_MOST_SITE_POOLS)}
        self._pools: dict[tuple[str, ...], _Pool] = {}

    def of(self, waiting: Waiting) -> _Pool:
        request, token = waiting.request, waiting.dominant.token
        if token is ReasonToken.QUOTA_EXCEEDED:
            key: tuple[str, ...] = ("project", request.project)
        elif token is ReasonToken.CONCURRENCY_CAP:
            key = ("class", request.job_class)
        else:
            key = ("sites", *request.sites) if request.sites in self._sites else ("sites",)
        if key not in self._pools:
            ends = [
                (each.at, len(each.placement.gpus))
                for each in self._endings
                if _is_in(key, each.request, each.placement)
            ]
            self._pools[key] = _Pool(ends, self._now)
        return self._pools[key]


def _expected(decisions: Decisions) -> Iterator[Ending]:
    """Yield the jobs that hold GPUs, with when they are expected to give them back.

    Decisions count on walltimes; most jobs end before.
    """
    snapshot = decisions.snapshot
    now, overrun_s = snapshot.now, snapshot.tuning.overrun_s
    ran = {each.request.key: each.expected_end_at for each in snapshot.running}
    for key, ending in decisions.after.endings.items():
        slowdown = ending.placement.slowdown
        at = ran.get(key, now + snapshot.expected_s(ending.request, slowdown))
        at = at if at > now else now + overrun_s
        yield replace(ending, at=min(at, ending.at))


def _is_in(key: tuple[str, ...], request: Request, placement: Placement) -> bool:
    kind, *names = key
    if kind == "project":
        return request.project in names
    if kind == "class":
        return request.job_class in names
    return not names or not set(names).isdisjoint(placement.sites)
