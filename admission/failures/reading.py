"""What tells of failures in a span of time, read as signs, and for how long nodes were observed.

A node counts as observed from the moment at which an agent for it was enrolled until that agent was
last heard, without the silences in between. What a log tells of other times counts for no rate, as
those times do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
from django.db.models import Model, Q, QuerySet
from numpy.typing import NDArray

from admission.core.failures import Exposure, Failure, Kind, Sign, failures_of, observed
from admission.core.said import Said
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
from telemetry.models import Agent, AgentSilence, ThrottleEvent, XidEvent
from telemetry.spans import ParameterError, Span
from telemetry.throttle.rules import Severity

__all__ = ["RECENT_S", "Observed", "of_fleet", "recent", "shared"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = TypeVar("Row", bound=Model)

#: Of each kind of record so many at most are looked at for one answer.
MOST_RECORDS = 20_000
#: What is recorded so long before and after the span belongs to failures in it.
_MARGIN = timedelta(minutes=10)
#: Codes of errors of memory, and of NVLink; other critical ones are the GPU's.
_MEMORY, _NVLINK = frozenset({48, 64, 94, 95, 140}), frozenset({74})
#: A contained memory error ends a program, though others go on.
_ENDS_PROGRAM = 94
#: SXid errors of NVSwitches have five digits, and say so where they end what uses the link (guide
#: to fabric managers).
_FIRST_SXID, _FATAL = 10_000, ", Fatal,"
#: Codes that a program may bring about.
_OF_PROGRAMS = frozenset({13, 31, 32, 43, 68, 69})
_SLOWED = {ThrottleCause.HW_POWER_BRAKE: Kind.POWER_BRAKE, ThrottleCause.HW_THERMAL: Kind.HEAT}
_OUTAGES = {
    ScopeKind.POWER_DOMAIN: Kind.POWER_OUTAGE,
    ScopeKind.ZONE: Kind.COOLING_OUTAGE,
    ScopeKind.LINK: Kind.LINK,
}
#: What is said of a collective is said of any of its nodes.
_OF_PEERS = frozenset({Kind.BROKEN, Kind.HUNG})
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
    def silent_s(self) -> Floats:
        """For how long each node was not observed in between, since its agents were silent, s."""
        return self.exposure.silent_s

    @property
    def gpu_exposure_s(self) -> Floats:
        """For how long each GPU was observed, s."""
        return self.exposure_s[self.fleet.gpus.node]


def of_fleet(span: Span, now: float) -> Observed:
    """Return the failures of ``span``, as far as it is over. Ten queries.

    Raises :class:`ParameterError` where there is too much to look at.
    """
    span = Span(span.start, min(span.end, now))
    fleet = snapshot.current()
    if span.end <= span.start:
        return Observed(span, fleet, [], [], _exposure(fleet, Span(span.end, span.end)))
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
    of_switch = Q(xid__gte=_FIRST_SXID, text__contains=_FATAL)
    events = XidEvent.objects.filter(_between("ts", span), told | of_switch).order_by("ts")
    for event in _few(events, "Xid errors"):
        node = fleet.nodes.index_by_id.get(event.node_id)
        if node is None:
            continue
        kind = _kind_of(event.xid)
        yield Sign(
            kind, event.ts.timestamp(), (node,), _said_by(event.xid),
            gpu=fleet.gpus.index_by_id.get(event.gpu_id, -1) if event.gpu_id else -1,
            begins=kind is not Kind.PROGRAM_ERROR,
        )  # fmt: skip


def _kind_of(xid: int) -> Kind:
    if xid in _OF_PROGRAMS:
        return Kind.PROGRAM_ERROR
    if xid in _MEMORY:
        return Kind.GPU_MEMORY
    return Kind.NVLINK if xid in _NVLINK or xid >= _FIRST_SXID else Kind.GPU


def _said_by(xid: int) -> str:
    if xid >= _FIRST_SXID:
        return f"SXid {xid}: fatal error of an NVSwitch"
    return f"Xid {xid}: {xids.meaning_of(xid).title}"


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
        outcome = Attempt.Outcome(row.outcome)
        text = f"{row.key} {outcome.label.lower()}: {row.why or 'nothing says why'}"
        kind, nodes, before_s = outcomes[outcome], _nodes_of(fleet, row), 0.0
        if row.told is not None:
            said = Said(**{**row.told, "kind": Kind(row.told["kind"])})
            kind, before_s = said.kind, said.before_s
            text = f"{text}; {said.node}: {said.text}"
            nodes = _rows(fleet, row.placement, None if kind in _OF_PEERS else said.node)
        yield Sign(kind, row.ended_at.timestamp(), nodes, text, job=row.key, before_s=before_s)


def _nodes_of(fleet: FleetArrays, row: Attempt) -> tuple[int, ...]:
    """Return the node that an attempt names as the first to fail, or all of its nodes."""
    first, named, _ = row.why.partition(": ")
    return _rows(fleet, row.placement, first if named else None)


def _rows(fleet: FleetArrays, placement: Mapping[str, Any], node: str | None) -> tuple[int, ...]:
    """Return the row of a node of an attempt, or the rows of all where that is none of them."""
    names = placement.get("nodes", ())
    if node in names:
        names = [node]
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


def _exposure(fleet: FleetArrays, span: Span) -> Exposure:
    """Return when each node was observed in ``span``. Four queries."""
    agents_of: list[list[int]] = [[] for _ in range(len(fleet.nodes))]
    for agent, rows in _told_by(fleet):
        for row in rows.tolist():
            agents_of[row].append(agent)
    # Nodes of the same agents are observed at the same times.
    watches: dict[tuple[int, ...], int] = {(): -1}
    for several in agents_of:
        watches.setdefault(tuple(sorted(several)), len(watches) - 1)
    lives, silences = _lives(span), _silences(span)
    times: list[tuple[float, float, int]] = []
    for agents, watch in watches.items():
        heard = [(*lives[agent], silences.get(agent, ())) for agent in agents if agent in lives]
        times += [(*each, watch) for each in observed(heard, (span.start, span.end))]
    start, end, watch_of = np.array(times, dtype=np.float64).reshape(-1, 3).T
    of_node = [watches[tuple(sorted(several))] for several in agents_of]
    return Exposure(start, end, watch_of.astype(np.int64), np.array(of_node, dtype=np.int64))


def _told_by(fleet: FleetArrays) -> Iterator[tuple[int, Ints]]:
    """Yield agents with the rows of nodes that they may tell of. Two queries."""
    row_of_node = fleet.nodes.index_by_id
    for agent, node in Agent.nodes.through.objects.values_list("agent_id", "node_id"):
        if node in row_of_node:
            yield agent, np.array([row_of_node[node]], dtype=np.int64)
    site_of_node = fleet.racks.site[fleet.nodes.rack]
    for agent, site in Agent.sites.through.objects.values_list("agent_id", "site_id"):
        if site in fleet.sites.index_by_id:
            yield agent, np.flatnonzero(site_of_node == fleet.sites.index_by_id[site])


def _lives(span: Span) -> dict[int, tuple[float, float]]:
    """Return when each agent was enrolled and last heard, Unix s. One query."""
    heard = Agent.objects.filter(last_seen_at__gte=span.start_at, created_at__lt=span.end_at)
    return {
        agent: (made.timestamp(), last.timestamp())
        for agent, made, last in heard.values_list("pk", "created_at", "last_seen_at")
        if last is not None
    }


def _silences(span: Span) -> dict[int, list[tuple[float, float]]]:
    """Return the silences of each agent that has any in ``span``, Unix s. One query."""
    found: dict[int, list[tuple[float, float]]] = {}
    rows = AgentSilence.objects.filter(until__gt=span.start_at, since__lt=span.end_at)
    for agent, since, until in rows.order_by().values_list("agent_id", "since", "until"):
        found.setdefault(agent, []).append((since.timestamp(), until.timestamp()))
    return found
