"""What tells of failures in a span of time, read as signs, and for how long nodes were observed.

A node counts as observed from the moment at which an agent for it was enrolled until that agent was
last heard. Silences in between count as observed: what failed then would have been told later. What
a log tells of the time before counts for no rate, as that time does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
from django.db.models import Model, Q, QuerySet
from numpy.typing import NDArray

from admission.core.failures import Exposure, Failure, Kind, Sign, failures_of
from admission.jobs.models import Attempt
from fleet import snapshot
from fleet.cache import KeyedCache
from fleet.snapshot import FleetArrays
from headroom.contracts import ThrottleCause
from policies.firings import Severity as IncidentSeverity
from policies.incidents.models import Incident
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in, row_of
from telemetry.faults import xids
from telemetry.faults.models import EccEvent
from telemetry.models import Agent, ThrottleEvent, XidEvent
from telemetry.spans import ParameterError, Span
from telemetry.throttle.rules import Severity

__all__ = ["RECENT_S", "Observed", "of_fleet", "recent", "shared"]

Floats = NDArray[np.float64]
Row = TypeVar("Row", bound=Model)

#: Of each kind of record so many at most are looked at for one answer.
MOST_RECORDS = 20_000
#: What is recorded so long before and after the span belongs to failures in it.
_MARGIN = timedelta(minutes=10)
#: Codes of errors of memory, and of NVLink; other critical ones are the GPU's.
_MEMORY, _NVLINK = frozenset({48, 64, 94, 95, 140}), frozenset({74})
#: A contained memory error ends a program, though others go on.
_ENDS_PROGRAM = 94
#: Codes that a program may bring about.
_OF_PROGRAMS = frozenset({13, 31, 32, 43, 68, 69})
_SLOWED = {ThrottleCause.HW_POWER_BRAKE: Kind.POWER_BRAKE, ThrottleCause.HW_THERMAL: Kind.HEAT}
_OUTAGES = {
    ScopeKind.POWER_DOMAIN: Kind.POWER_OUTAGE,
    ScopeKind.ZONE: Kind.COOLING_OUTAGE,
    ScopeKind.LINK: Kind.LINK,
}
#: Owners of restrictions that act by themselves, on what they saw.
_AUTOMATIC = ("rule:", "playbook:")


#: What counts as recent, s: rates that advice goes by.
RECENT_S = 30 * 86_400.0
#: Rates move slowly: recent failures serve for a minute.
shared = KeyedCache(60.0)


@dataclass(frozen=True, eq=False)
class Observed:
    """The failures of a span, and when each node was observed in it.

    ``rated`` are those that fell into time in which their nodes were observed: rates are of them.
    """

    span: Span
    fleet: FleetArrays
    failures: list[Failure]
    rated: list[Failure]
    exposure: Exposure

    @property
    def exposure_s(self) -> Floats:
        """For how long each node was observed, s."""
        return self.exposure.seconds

    @property
    def gpu_exposure_s(self) -> Floats:
        """For how long each GPU was observed, s."""
        return self.exposure_s[self.fleet.gpus.node]


def of_fleet(span: Span, now: float) -> Observed:
    """Return the failures of ``span``, as far as it is over. Nine queries.

    Raises :class:`ParameterError` where there is too much to look at.
    """
    span = Span(span.start, min(span.end, now))
    fleet = snapshot.current()
    if span.end <= span.start:
        return Observed(span, fleet, [], [], _unobserved(fleet))
    found = failures_of(_signs(fleet, span))
    within = [each for each in found if span.start <= each.at < span.end]
    exposure = _exposure(fleet, span)
    return Observed(span, fleet, within, list(filter(exposure.holds, within)), exposure)


def recent(now: float) -> Observed:
    """Return the failures of the last 30 days, at most a minute old. Raises as :func:`of_fleet`."""
    return shared.get("recent", lambda: of_fleet(Span(now - RECENT_S, now), now))


def _signs(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    yield from _xids(fleet, span)
    yield from _memory_errors(fleet, span)
    yield from _ends(fleet, span)
    yield from _slowdowns(fleet, span)
    yield from _outages(fleet, span)
    yield from _drains(fleet, span)


def _few(rows: QuerySet[Row], what: str) -> Iterable[Row]:
    found = list(rows[: MOST_RECORDS + 1])
    if len(found) > MOST_RECORDS:
        raise ParameterError("from", f"more than {MOST_RECORDS} {what}: ask for a shorter span")
    return found


def _between(field: str, span: Span) -> Q:
    return Q(**{f"{field}__gte": span.start_at - _MARGIN, f"{field}__lt": span.end_at + _MARGIN})


def _xids(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    told = xids.condition(Severity.CRITICAL) | Q(xid__in={_ENDS_PROGRAM, *_OF_PROGRAMS})
    events = XidEvent.objects.filter(_between("ts", span), told).order_by("ts")
    for event in _few(events, "Xid errors"):
        node = fleet.nodes.index_by_id.get(event.node_id)
        if node is None:
            continue
        kind = _kind_of(event.xid)
        title = xids.meaning_of(event.xid).title
        yield Sign(
            kind, event.ts.timestamp(), (node,), f"Xid {event.xid}: {title}",
            gpu=fleet.gpus.index_by_id.get(event.gpu_id, -1) if event.gpu_id else -1,
            begins=kind is not Kind.PROGRAM_ERROR,
        )  # fmt: skip


def _kind_of(xid: int) -> Kind:
    if xid in _OF_PROGRAMS:
        return Kind.PROGRAM_ERROR
    if xid in _MEMORY:
        return Kind.GPU_MEMORY
    return Kind.NVLINK if xid in _NVLINK else Kind.GPU


def _memory_errors(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    for event in _few(
        EccEvent.objects.filter(_between("at", span)).order_by("at"), "memory errors"
    ):
        gpu = fleet.gpus.index_by_id.get(event.gpu_id)
        if gpu is not None:
            text = f"{event.count} uncorrected memory errors"
            node = int(fleet.gpus.node[gpu])
            yield Sign(Kind.GPU_MEMORY, event.at.timestamp(), (node,), text, gpu=gpu)


def _ends(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    outcomes = {Attempt.Outcome.FAILED: Kind.EXIT, Attempt.Outcome.LOST: Kind.NODE_LOST}
    ended = Attempt.objects.filter(_between("ended_at", span), outcome__in=outcomes)
    for row in _few(ended.order_by("ended_at"), "ends of jobs"):
        if row.ended_at is None:
            continue
        kind = outcomes[Attempt.Outcome(row.outcome)]
        said = row.why or "nothing says why"
        text = f"{row.key} {Attempt.Outcome(row.outcome).label.lower()}: {said}"
        yield Sign(kind, row.ended_at.timestamp(), _nodes_of(fleet, row), text, job=row.key)


def _nodes_of(fleet: FleetArrays, row: Attempt) -> tuple[int, ...]:
    """Return the node that an attempt names as the first to fail, or all of its nodes."""
    names = row.placement.get("nodes", ())
    first, named, _ = row.why.partition(": ")
    if named and first in names:
        names = [first]
    rows = fleet.nodes.index_by_name
    return tuple(sorted(rows[name] for name in names if name in rows))


def _slowdowns(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    events = ThrottleEvent.objects.filter(
        cause__in=_SLOWED, expected=False, severity=Severity.CRITICAL,
        opened_at__lt=span.end_at + _MARGIN, updated_at__gte=span.start_at - _MARGIN,
    ).order_by("opened_at")  # fmt: skip
    for event in _few(events, "throttle events"):
        gpu = fleet.gpus.index_by_id.get(event.gpu_id)
        if gpu is not None:
            yield Sign(
                _SLOWED[ThrottleCause(event.cause)], event.opened_at.timestamp(),
                (int(fleet.gpus.node[gpu]),), f"{event.get_cause_display()} throttled a GPU",
                gpu=gpu, begins=False, until=event.updated_at.timestamp(),
            )  # fmt: skip


def _outages(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    is_open = Q(resolved_at__isnull=True) | Q(resolved_at__gte=span.start_at - _MARGIN)
    incidents = Incident.objects.filter(
        is_open, severity=IncidentSeverity.CRITICAL, scope_kind__in=_OUTAGES,
        opened_at__lt=span.end_at + _MARGIN,
    ).order_by("opened_at")  # fmt: skip
    for incident in _few(incidents, "incidents"):
        nodes = _hit(fleet, incident.scope)
        if nodes:
            end = span.end if incident.resolved_at is None else incident.resolved_at.timestamp()
            yield Sign(
                _OUTAGES[incident.scope.kind], incident.opened_at.timestamp(), nodes,
                f"{incident.number}: {incident.title}", begins=False, until=end,
            )  # fmt: skip


def _hit(fleet: FleetArrays, scope: Scope) -> tuple[int, ...]:
    """Return the nodes that an incident may hit: of a link, those of its site."""
    try:
        if scope.kind is ScopeKind.LINK:
            site = fleet.links.site[row_of(fleet, scope)]
            return tuple(np.flatnonzero(fleet.racks.site[fleet.nodes.rack] == site).tolist())
        return tuple(np.flatnonzero(nodes_in(fleet, scope)).tolist())
    except UnknownScope:
        return ()


def _drains(fleet: FleetArrays, span: Span) -> Iterator[Sign]:
    by_itself = Q(*[("owner__startswith", each) for each in _AUTOMATIC], _connector=Q.OR)
    drains = Restriction.objects.filter(
        _between("effect_at", span), by_itself, kind=RestrictionKind.DRAIN,
        scope_kind__in=(ScopeKind.NODE, ScopeKind.GPU),
    ).order_by("effect_at")  # fmt: skip
    for row in _few(drains, "drains"):
        nodes = _hit(fleet, Scope(ScopeKind(row.scope_kind), row.scope_name))
        if nodes:
            text = f"drained by {row.owner}: {row.reason}"
            yield Sign(Kind.DRAIN, row.in_force_since.timestamp(), nodes, text)


def _unobserved(fleet: FleetArrays) -> Exposure:
    never = np.full(len(fleet.nodes), -np.inf)
    return Exposure(-never, never, never.copy())


def _exposure(fleet: FleetArrays, span: Span) -> Exposure:
    """Return when each node was observed in ``span``. Three queries."""
    rows = Agent.objects.filter(last_seen_at__isnull=False)
    lives = {
        pk: (made.timestamp(), last.timestamp())
        for pk, made, last in rows.values_list("pk", "created_at", "last_seen_at")
        if last is not None
    }
    found = _unobserved(fleet)

    def observe(agent: int, nodes: NDArray[np.int64] | NDArray[np.bool_]) -> None:
        if agent in lives:
            found.start[nodes] = np.minimum(found.start[nodes], lives[agent][0])
            found.heard[nodes] = np.maximum(found.heard[nodes], lives[agent][1])

    row_of_node = fleet.nodes.index_by_id
    by_agent: dict[int, list[int]] = {}
    for agent, node in Agent.nodes.through.objects.values_list("agent_id", "node_id"):
        if node in row_of_node:
            by_agent.setdefault(agent, []).append(row_of_node[node])
    for agent, nodes in by_agent.items():
        observe(agent, np.array(nodes, dtype=np.int64))
    site_of_node = fleet.racks.site[fleet.nodes.rack]
    for agent, site in Agent.sites.through.objects.values_list("agent_id", "site_id"):
        if site in fleet.sites.index_by_id:
            observe(agent, site_of_node == fleet.sites.index_by_id[site])
    start = np.maximum(found.start, span.start)
    return Exposure(start, np.minimum(found.heard, span.end), found.heard)
