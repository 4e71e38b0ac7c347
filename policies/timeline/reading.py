"""The figure of an incident: its places, from before it was opened until after it was resolved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
from django.db.models import Case, Min, Q, Value, When

from accounts.visibility import Visibility
from fleet.tables import FleetArrays
from policies.firings import Severity
from policies.incidents import visible
from policies.incidents.models import Incident, IncidentMember, TimelineEntry
from policies.playbooks.models import PlaybookRun
from policies.restrictions import spans as restricted
from policies.restrictions.kinds import gpus_in
from policies.rules.effects import owner_of
from policies.scopes import Scope, ScopeKind, UnknownScope, row_of
from telemetry import series
from telemetry.figures import place as places
from telemetry.figures.model import Absent, Figure, Lane, Line, Mark, Role, Row
from telemetry.figures.place import Look, Place
from telemetry.series import Kind, Method, SeriesRequest
from telemetry.spans import Span

__all__ = ["FIRINGS", "figure", "lived"]

#: So many firings have lanes, the active and the worst first, and their places are read.
FIRINGS = 12
_MOST_ENTRIES = 200
_MOST_RUNS = 50
#: Shown before it was opened and after it was resolved.
_AROUND = timedelta(minutes=10)
_LEAST_SPAN = timedelta(minutes=30)
_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_KINDS = {ScopeKind.RACK: Kind.RACK, ScopeKind.NODE: Kind.NODE}


def lived(incident: Incident, now: datetime) -> Span:
    """Return the time of an incident, with some minutes around it. One query."""
    end = min(now, (incident.resolved_at or now) + _AROUND)
    first = incident.members.aggregate(first=Min("since"))["first"] or incident.opened_at
    start = min(min(first, incident.opened_at) - _AROUND, end - _LEAST_SPAN)
    return Span(start.timestamp(), end.timestamp(), live=end == now)


def figure(incident: Incident, look: Look, fleet: FleetArrays, visibility: Visibility) -> Figure:
    """Return the figure of an incident within ``look``. Some 25 queries.

    Raises :class:`telemetry.spans.ParameterError`.
    """
    members = _members(incident, visibility)
    scopes = [_scope(each) for each in members]
    place = _place(scopes, fleet)
    read = [*_drawn(scopes, fleet, look), *places.rows(place, fleet, look)]
    now = datetime.fromtimestamp(look.now, UTC)
    return Figure(
        start=look.span.start,
        end=look.span.end,
        live=look.span.live,
        rows=[each for each in read if isinstance(each, Row)],
        absent=[each for each in read if isinstance(each, Absent)],
        lanes=[
            *(lane for each in members for lane in _firing(each)),
            *places.lanes(place, look.span),
            *restricted.lanes(_asked_by(incident, members), look.span, visibility, now),
        ],
        marks=[*places.marks(place, look.span), *_entries(incident, look.span, visibility)],
        since=look.since or None,
    )


def _members(incident: Incident, visibility: Visibility) -> list[IncidentMember]:
    ended = Case(When(cleared_at=None, then=Value(0)), default=Value(1))
    rank = Case(*(When(severity=each.value, then=Value(at)) for each, at in _RANK.items()))
    seen = incident.members.filter(visibility.seen_rows())
    return visible.members(seen.order_by(ended, rank, "fired_at", "pk")[:FIRINGS], visibility)


def _scope(member: IncidentMember) -> Scope:
    return Scope(ScopeKind(member.scope_kind), member.scope_name)


# --- What was read -------------------------------------------------------------------------------


def _place(scopes: Sequence[Scope], fleet: FleetArrays) -> Place:
    """Return the GPUs in any of ``scopes`` and their nodes; what is gone has none."""
    inside = np.zeros(len(fleet.gpus), dtype=bool)
    for scope in scopes:
        try:
            inside |= gpus_in(fleet, scope)
        except UnknownScope:
            continue
    nodes = fleet.nodes.ids[np.unique(fleet.gpus.node[inside])]
    return Place([int(each) for each in fleet.gpus.ids[inside]], [int(each) for each in nodes])


def _drawn(scopes: Sequence[Scope], fleet: FleetArrays, look: Look) -> Iterator[Row | Absent]:
    """Yield the draw of the first rack or node among ``scopes``, and the budget of a rack."""
    scope = next((each for each in scopes if each.kind in _KINDS), None)
    if scope is None:
        return
    try:
        row = row_of(fleet, scope)
    except UnknownScope:
        return
    is_rack = scope.kind is ScopeKind.RACK
    wanted = SeriesRequest(
        kind=_KINDS[scope.kind], id=int((fleet.racks if is_rack else fleet.nodes).ids[row]),
        fields=("power_w",), start=look.span.start, end=look.span.end, points=look.points,
        method=Method.MEAN,
    )  # fmt: skip
    found = series.query(wanted, look.now)
    lines = [Line("power_w", "measured")]
    if is_rack:
        budget_w = float(fleet.racks.budget_w[row])
        lines.append(Line("", "budget now", Role.LIMIT, value=budget_w))
    drawn = Row("place_power", f"Power of {scope}", "W", tuple(lines), found.columns, found.step_s)
    if all(value is None for value in found.columns["power_w"]):
        yield Absent(drawn.title)
    else:
        yield _since(drawn, look.since)


def _since(row: Row, since: float) -> Row:
    kept = [at for at, t in enumerate(row.columns["t"]) if (t or 0.0) + (row.step_s or 0.0) > since]
    return replace(row, columns={n: [v[at] for at in kept] for n, v in row.columns.items()})


# --- What happened -------------------------------------------------------------------------------


def _firing(member: IncidentMember) -> Iterator[Lane]:
    """Yield when a firing was pending, and when it fired: two lanes of the same name."""
    scope, since, fired = str(_scope(member)), member.since.timestamp(), member.fired_at.timestamp()
    ended = None if member.cleared_at is None else member.cleared_at.timestamp()
    yield Lane(scope, "pending", [(since, fired)], [f"{member.rule} is pending"])
    yield Lane(
        scope, member.severity, [(fired, ended)], [f"{member.rule} fires, {member.severity}"]
    )


def _asked_by(incident: Incident, members: Sequence[IncidentMember]) -> Q:
    """Return the condition for the restrictions of its rules and playbooks. One query."""
    runs = PlaybookRun.objects.filter(incident_id=incident.pk).values_list("pk", flat=True)
    whose = Q(pk__in=[])
    for run in runs[:_MOST_RUNS]:
        whose |= Q(owner__startswith=f"playbook:{run}/")
    about = [str(_scope(each)) for each in members]
    for rule in {each.rule for each in members}:
        whose |= Q(owner=owner_of(rule), evidence__scope__in=about)
    return whose & Q(issued_at__gte=incident.opened_at - _AROUND)


def _entries(incident: Incident, span: Span, visibility: Visibility) -> list[Mark]:
    found = incident.timeline.filter(at__range=(span.start_at, span.end_at)).order_by("-at", "-pk")
    return [_mark(entry) for entry in visible.entries(found[:_MOST_ENTRIES], visibility)]


def _mark(entry: TimelineEntry) -> Mark:
    if entry.kind.startswith("playbook"):
        kind = "playbook"
    else:
        kind = "incident" if entry.by == "system" else "people"
    return Mark(entry.at.timestamp(), kind, f"{entry.kind} by {entry.by}: {entry.text[:200]}")
