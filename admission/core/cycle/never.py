"""Jobs that cannot start as they are asked for, though the fleet were all theirs.

Neither an end nor a turn in the queue helps them, so nobody tells them when they start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakValueDictionary

from admission.core.cycle.change import Counterfactual, Price, sentence
from admission.core.cycle.decide import Decisions
from admission.core.cycle.tries import Tries
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import fits_empty, shape_of
from admission.core.reasons import Reason, ReasonToken, dominant
from admission.core.request import Placement, Refusal, Request
from admission.core.snapshot import ClassRules

__all__ = ["Hopeless", "Never", "is_up_to_its_request", "least_speed", "never"]

#: Of these an empty fleet may have none to-day and others to-morrow: air cools, readings come back.
_PASSING = frozenset({ReasonToken.THERMAL, ReasonToken.TELEMETRY_STALE})
#: For these a job waits whatever it asks for, and so does any other request in its place.
_GATED = frozenset(
    {
        ReasonToken.SPEC_INVALID,
        ReasonToken.ON_HOLD,
        ReasonToken.DEPENDENCY_NEVER_MET,
        ReasonToken.DEPENDENCY_PENDING,
        ReasonToken.ARTIFACT_PENDING,
    }
)
#: A job with checkpoints may take so many runs of its walltime; one without has to end in one.
_MOST_RUNS = 4.0
#: Jobs of which nothing is known run for half of what they ask for.
_USUAL_SHARE = 0.5
#: A look at the queue tries so many jobs that were not tried before, and a job again after so long.
_MOST_TRIED = 64
_KNOWN_FOR_S = 600.0


@dataclass(frozen=True)
class Never:
    """Why a job cannot start, were the fleet all its own: the first reason in order of precedence.

    And changes under which it could, once there is room; none were found where there are none.
    """

    reason: Reason
    ways: tuple[Counterfactual, ...] = ()


def is_up_to_its_request(token: ReasonToken) -> bool:
    """Say whether a job that waits for this reason is asked whether it can start at all, and how.

    It is not where gates hold it back.
    """
    return token not in _GATED


def never(cluster: Cluster, request: Request, speed: float) -> Never | None:
    """Return why a job cannot start on a fleet that were all its own; None where it can.

    The ways out leave it at least so much of its ``speed``.
    """
    reason = _reason(cluster, request)
    return None if reason is None else Never(reason, _ways(cluster, request, speed))


def least_speed(request: Request, run_share: float | None) -> float:
    """Return the share of its speed that a job needs for a change to be worth offering.

    Slower than that its work is not done: within its walltime, of which others of its project use
    ``run_share``, or with its checkpoints in a few runs.
    """
    if request.checkpoint_interval_s is not None:
        return 1.0 / _MOST_RUNS
    return _USUAL_SHARE if run_share is None else min(max(run_share, 1.0 / _MOST_RUNS), 1.0)


def _reason(cluster: Cluster, request: Request) -> Reason | None:
    found = fits_empty(cluster, request)
    if not isinstance(found, Refusal) or any(each.token in _PASSING for each in found.reasons):
        return None
    return dominant(list(found.reasons))


def _ways(cluster: Cluster, request: Request, speed: float) -> tuple[Counterfactual, ...]:
    def placed(asked: Request) -> Placement | None:
        found = fits_empty(cluster, asked)
        return None if isinstance(found, Refusal) else found

    tries = Tries(request, placed, speed)
    for changes in (tries.single(), tries.double()):
        found: dict[object, Counterfactual] = {}
        for change in changes:
            changed = change.apply(request, _NO_CLASSES)
            where = placed(changed)
            if changed == request or where is None:
                continue
            slower = 1.0 - (1.0 - where.slowdown) * min(changed.gpus / request.gpus, 1.0)
            if slower <= 1.0 - speed:
                price = Price(slower=slower)
                text = sentence(change, request, where, price, None, begins="can start")
                found[change] = Counterfactual(change, text, where, price)
        if found:
            return tuple(sorted(found.values(), key=lambda each: each.price.slower))
    return ()


_NO_CLASSES: dict[str, ClassRules] = {}


@dataclass(eq=False)
class _Found:
    """What was found of a shape: when, Unix s, and why it cannot be placed; empty: it can."""

    at: float = -math.inf
    why: str = ""


class Hopeless:
    """The waiting jobs that cannot start, looked for a few at a time and remembered by shape.

    To ask for one job takes the solver a moment, and a queue has many. So some are found a look or
    two after they came.
    """

    def __init__(self) -> None:
        self._fleet: object = None
        #: by key of a job: its request, and what was found of its shape
        self._known: dict[str, tuple[Request, _Found]] = {}
        #: as long as some job has that shape
        self._shapes = WeakValueDictionary[object, _Found]()

    def look(self, decisions: Decisions) -> dict[str, str]:
        """Return why jobs cannot start, in a sentence, by key."""
        cluster, now = decisions.snapshot.cluster, decisions.snapshot.now
        if self._fleet is not cluster.fleet:
            self._fleet, self._known = cluster.fleet, {}
            self._shapes.clear()
        before, self._known = self._known, {}
        told: dict[str, str] = {}
        tries_left = _MOST_TRIED
        for key, waiting in decisions.waiting.items():
            if not is_up_to_its_request(waiting.dominant.token):
                continue
            request = waiting.request
            known = before.get(key)
            # Most of a queue is as it was, and of the same requests.
            if known is None or known[0] is not request:
                known = request, self._shapes.setdefault(shape_of(request), _Found())
            self._known[key] = known
            found = known[1]
            if tries_left and now - found.at > _KNOWN_FOR_S:
                tries_left -= 1
                reason = _reason(cluster, request)
                found.at, found.why = now, "" if reason is None else reason.sentence
            if found.why:
                told[key] = found.why
        return told
