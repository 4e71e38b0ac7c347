"""Reasons for which a job waits, and changes under which it would start with the next cycle.

Every change that is told of was tried on the queue as the cycle left it, by the code that decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from admission.core.cycle.decide import Admission, Decisions, Waiting, trace_of
from admission.core.cycle.order import Order
from admission.core.cycle.queue import Stage, Verdict
from admission.core.placement.place import place
from admission.core.reasons import PRECEDENCE, Reason, ReasonToken, dominant
from admission.core.request import Locality, Placement, Refusal, Request
from admission.core.snapshot import ClassRules, Pending

__all__ = ["Change", "Counterfactual", "DryRun", "Explanation", "dry_run", "explain"]

#: Caps are told in whole steps of this, W, rounded down: what fits under more fits under less.
_CAP_STEP_W = 5.0
#: Slowdown that a change allows is told in whole steps of this.
_SLOWDOWN_STEP = 0.01


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change to a job that waits. None: as it is."""

    lowest_cap_w: float | None = None
    #: goes with a cap: how much slower it may become, as a share
    max_slowdown: float | None = None
    #: just so many
    gpus: int | None = None
    sites: tuple[str, ...] | None = None
    #: how close together it has to stand at least
    locality: Locality | None = None
    job_class: str | None = None

    def apply(self, request: Request, classes: Mapping[str, ClassRules]) -> Request:
        """Return ``request`` with this change. Raises KeyError for a class that is not there."""
        return replace(request, **self._edits(request, classes))

    def _edits(self, request: Request, classes: Mapping[str, ClassRules]) -> dict[str, Any]:
        edits: dict[str, Any] = {}
        if self.lowest_cap_w is not None:
            edits["lowest_cap_w"] = self.lowest_cap_w
        if self.max_slowdown is not None:
            edits["max_slowdown"] = self.max_slowdown
        if self.gpus is not None:
            edits |= {"gpus": self.gpus, "min_gpus": self.gpus}
        if self.sites is not None:
            edits["sites"] = self.sites
        if self.locality is not None:
            edits |= {
                "required": self.locality,
                "preferred": min(request.preferred, self.locality),
            }
        if self.job_class is not None:
            own = classes.get(request.job_class, ClassRules(request.job_class))
            more = classes[self.job_class].priority - own.priority
            edits |= {"job_class": self.job_class, "priority": request.priority + more}
        return edits

    def as_json(self) -> dict[str, Any]:
        """Return the changed fields, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {name: value for name, value in values.items() if value is not None}
        if self.locality is not None:
            found["locality"] = self.locality.name.lower().replace("_", "-")
        if self.sites is not None:
            found["sites"] = list(self.sites)
        return found


@dataclass(frozen=True)
class Counterfactual:
    """A change under which the job starts with the next cycle, and where it would stand."""

    change: Change
    sentence: str
    placement: Placement
    #: against what it asks for now, as a share of its speed
    slowdown: float
    #: always: it was tried by the code that decides
    verified: bool = True


@dataclass(frozen=True)
class Explanation:
    """Why a job waits: its dominant reason and all reasons, its position, counterfactuals."""

    key: str
    dominant: Reason
    reasons: tuple[Reason, ...]
    position: int
    counterfactuals: tuple[Counterfactual, ...]


@dataclass(frozen=True)
class DryRun:
    """The outcome of the next cycle for a job that were submitted now."""

    outcome: Admission | Waiting
    counterfactuals: tuple[Counterfactual, ...] = ()


def explain(decisions: Decisions, key: str) -> Explanation:
    """Say why the job ``key`` waits. Raises KeyError for one that does not."""
    waiting = decisions.waiting[key]
    search = _Search.of_waiting(decisions, key)
    reasons = _all_reasons(decisions, search, waiting.reasons)
    return Explanation(
        key,
        dominant(list(reasons)),
        reasons,
        waiting.position,
        search.counterfactuals() if _is_up_to_its_request(reasons) else (),
    )


def dry_run(decisions: Decisions, pending: Pending) -> DryRun:
    """Return the outcome of the next cycle for ``pending``, which may but need not be queued."""
    search = _Search.of_new(decisions, pending)
    verdict = search.verdict(pending.request)
    trace = trace_of(search.order, search.place_in_order, verdict)
    if verdict.stage is Stage.ADMITTED and verdict.placement is not None:
        return DryRun(Admission(pending.request, verdict.placement, trace))
    reasons, position = verdict.reasons, search.place_in_order + 1
    outcome = Waiting(pending.request, reasons, dominant(list(reasons)), position, trace)
    is_up_to_it = _is_up_to_its_request(reasons)
    return DryRun(outcome, search.counterfactuals() if is_up_to_it else ())


def _is_up_to_its_request(reasons: tuple[Reason, ...]) -> bool:
    """Say whether another request may help: it does not where gates hold the job back."""
    return dominant(list(reasons)).token not in (
        ReasonToken.SPEC_INVALID,
        ReasonToken.ON_HOLD,
        ReasonToken.DEPENDENCY_PENDING,
    )


def _all_reasons(
    decisions: Decisions, search: _Search, known: tuple[Reason, ...]
) -> tuple[Reason, ...]:
    """Return the reasons of the cycle, and those of the checks that it did not reach.

    Each token once, in order of precedence.
    """
    request = search.pending.request
    found = list(known)
    here = place(search.queue.cluster, request)
    if isinstance(here, Refusal):
        found += here.reasons
        if not isinstance(place(decisions.snapshot.cluster, request), Refusal):
            found.append(_taken_by_others(len(decisions.admitted)))
    by_token: dict[ReasonToken, Reason] = {}
    for each in found:
        by_token.setdefault(each.token, each)
    return tuple(sorted(by_token.values(), key=lambda each: PRECEDENCE[each.token]))


def _taken_by_others(started: int) -> Reason:
    text = f"would have fitted before this cycle, in which {started} jobs ahead of it began"
    token = ReasonToken.BEHIND_HIGHER_PRIORITY
    return Reason(token, 0.0, 0.0, "", None, text, {"started": started})


class _Search:
    """Changes of one job, tried on the queue as it is when the next cycle comes to the job."""

    def __init__(
        self,
        decisions: Decisions,
        pending: Pending,
        order: Order,
        place_in_order: int,
        rank: int,
    ) -> None:
        self.pending = pending
        self.order = order
        self.place_in_order = place_in_order
        self.rank = rank
        self._decisions = decisions
        self._after = decisions.after
        self.queue = decisions.after.at_turn(rank, pending.request.key)

    @classmethod
    def of_waiting(cls, decisions: Decisions, key: str) -> _Search:
        order, rank = decisions.after.order, decisions.after.rank_of(key)
        return cls(decisions, order.pending[rank], order, rank, rank)

    @classmethod
    def of_new(cls, decisions: Decisions, pending: Pending) -> _Search:
        """Search for a job that is not queued, or has another priority in the queue."""
        return cls(decisions, pending, *decisions.after.order_with(pending))

    def verdict(self, request: Request) -> Verdict:
        return self.queue.verdict(replace(self.pending, request=request), self.rank)

    # --- The changes ------------------------------------------------------------------------------

    def counterfactuals(self) -> tuple[Counterfactual, ...]:
        """Return the changes that hold, one of a kind, those that cost least work first."""
        found = [each for change in self._single() if (each := self._tried(change))]
        if not found:
            changes = dict.fromkeys(self._double())
            found = [each for change in changes if (each := self._tried(change))]
        return tuple(sorted(found, key=lambda each: each.slowdown))

    def _single(self) -> Iterator[Change]:
        for change in (
            self._capped(self.pending.request),
            self._smaller(self.pending.request),
            self._elsewhere(),
            self._looser(),
        ):
            if change is not None:
                yield change
        if self._is_up_to_its_class():
            for name in self._after.snapshot.classes:
                if name != self.pending.request.job_class:
                    yield Change(job_class=name)

    def _is_up_to_its_class(self) -> bool:
        """Say whether caps of its class or jobs ahead of it are in its way, and not the fleet."""
        reasons = self._decisions.waiting.get(self.pending.request.key)
        now = reasons.reasons if reasons else self.verdict(self.pending.request).reasons
        return any(each.token in _BY_CLASS for each in now)

    def _double(self) -> Iterator[Change]:
        """Yield a cap together with fewer GPUs, and each of both with other sites."""
        request = self.pending.request
        anywhere = replace(request, sites=())
        for base in (request, anywhere) if request.sites else (request,):
            found = self._placed(_willing_to_be_capped(_willing_to_shrink(base)))
            if found is not None:
                yield self._as_found(request, found)

    def _capped(self, request: Request) -> Change | None:
        found = self._placed(_willing_to_be_capped(request))
        return None if found is None else self._as_found(request, found)

    def _smaller(self, request: Request) -> Change | None:
        if request.min_gpus <= 1 and request.gpus <= 1:
            return None
        found = self._placed(_willing_to_shrink(request))
        return None if found is None else self._as_found(request, found)

    def _elsewhere(self) -> Change | None:
        request = self.pending.request
        if not request.sites:
            return None
        found = self._placed(replace(request, sites=()))
        return None if found is None else self._as_found(request, found)

    def _looser(self) -> Change | None:
        request = self.pending.request
        if request.required is Locality.FLEET:
            return None
        found = self._placed(replace(request, required=Locality.FLEET))
        if found is None or found.locality <= request.required:
            return None
        return Change(locality=found.locality)

    def _placed(self, request: Request) -> Placement | None:
        """Return the placement with which it would be admitted, if any."""
        verdict = self.verdict(request)
        return verdict.placement if verdict.stage is Stage.ADMITTED else None

    def _as_found(self, request: Request, found: Placement) -> Change:
        """Return the least change of ``request`` that allows ``found``."""
        sites: tuple[str, ...] | None = None
        if request.sites and not set(found.sites) <= set(request.sites):
            sites = tuple(sorted({*request.sites, *found.sites}))
        gpus = len(found.gpus) if len(found.gpus) < request.min_gpus else None
        cap_w, slowdown = found.power_cap_w, None
        if cap_w is not None:
            cap_w = _CAP_STEP_W * math.floor(cap_w / _CAP_STEP_W)
            slowdown = _SLOWDOWN_STEP * (1 + math.ceil(found.slowdown / _SLOWDOWN_STEP))
        return Change(lowest_cap_w=cap_w, max_slowdown=slowdown, gpus=gpus, sites=sites)

    def _tried(self, change: Change) -> Counterfactual | None:
        """Return ``change`` with its placement if the job starts under it; else None."""
        old = self.pending.request
        request = change.apply(old, self._after.snapshot.classes)
        if request == old:
            return None
        search: _Search = self
        if request.priority != old.priority:
            search = _Search.of_new(self._decisions, replace(self.pending, request=request))
            if request.priority < old.priority and self._makes_way(request):
                return None
        verdict = search.verdict(request)
        if verdict.stage is not Stage.ADMITTED or verdict.placement is None:
            return None
        placement = verdict.placement
        speed = (1.0 - placement.slowdown) * min(request.gpus / old.gpus, 1.0)
        text = _sentence(change, old, placement, 1.0 - speed)
        return Counterfactual(change, text, placement, 1.0 - speed)

    def _makes_way(self, request: Request) -> bool:
        """Say whether other jobs may start or get reservations once the job is further back.

        What would come of that is not known without deciding anew on all.
        """
        key, after = request.key, self._after
        return (
            after.keeps_room_for(key)
            or after.quotas.draws_on_what_is_kept_for(key, request)
            or any(
                reason.evidence.get("kept_for") == key
                for waiting in self._decisions.waiting.values()
                for reason in waiting.reasons
            )
        )


#: Reasons that another class may cure: it has caps of its own, and another place in the order.
_BY_CLASS = frozenset(
    {
        ReasonToken.CONCURRENCY_CAP,
        ReasonToken.STAGGERED_START,
        ReasonToken.BEHIND_HIGHER_PRIORITY,
        ReasonToken.BACKFILL_RESERVATION,
    }
)


def _willing_to_be_capped(request: Request) -> Request:
    return replace(request, lowest_cap_w=0.0, max_slowdown=1.0)


def _willing_to_shrink(request: Request) -> Request:
    return replace(request, min_gpus=1)


def _sentence(change: Change, old: Request, placement: Placement, slowdown: float) -> str:
    parts = []
    if change.lowest_cap_w is not None and placement.power_cap_w is not None:
        parts.append(f"at {placement.power_cap_w:.0f} W per GPU")
    if change.gpus is not None:
        parts.append(f"with {change.gpus} of its {old.gpus} GPUs")
    if change.sites is not None:
        parts.append(f"at site {' and '.join(placement.sites)}")
    if change.locality is not None:
        parts.append(f"spread over its {_WHOLES[change.locality]}")
    if change.job_class is not None:
        parts.append(f"in class {change.job_class}")
    slower = f" ({100.0 * slowdown:.0f} % slower)" if slowdown >= 0.005 else ""
    return f"starts now {' '.join(parts)}{slower}"


_WHOLES = {
    Locality.NODE: "node",
    Locality.RACK: "rack",
    Locality.SWITCH_DOMAIN: "switch domain",
    Locality.ZONE: "cooling zone",
    Locality.SITE: "site",
    Locality.FLEET: "sites",
}
