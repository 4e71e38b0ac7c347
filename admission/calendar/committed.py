"""What places are committed to from now on, beside their budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from admission.allocation import open_attempts
from admission.bookings.models import Booking
from admission.calendar.planned import booked_nodes_w
from admission.core.ahead import Ahead, Limit, Spans, ahead
from admission.core.allocation.allocations import Allocations
from admission.core.placement.topology import Floats
from admission.core.slices import in_parts
from admission.policy.catalog import policy_in_force
from fleet.feeds import carried_share
from fleet.groups import sum_by
from policies import current
from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind, racks_in, row_of
from telemetry.spans import Span

__all__ = ["KINDS", "committed", "committed_at"]

#: As many buckets as a span is looked at in.
BUCKETS = 672
#: The places of which it can be told.
KINDS = (
    ScopeKind.SITE, ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.LINK,
)  # fmt: skip


def committed(span: Span) -> dict[str, Ahead]:
    """Return what each site is committed to in ``span``, which begins now. A few queries.

    What runs now counts with what it reserves until its walltime is up, and as idle then; bookings
    of projects with what their hosts are rated for beyond idle, and all else as it draws now. Of
    budgets, what restrictions on the site allow while they last. Jobs that wait do not count.
    """
    known = _known(span)
    names = known.headroom.fleet.sites.names.tolist()
    return {str(name): _at(known, Scope(ScopeKind.SITE, str(name)), span) for name in names}


def committed_at(scope: Scope, span: Span) -> Ahead:
    """Return the same of one place of :data:`KINDS`. Raises UnknownScope.

    A power domain carries half of each rack on two feeds. Of a link it is traffic, bit/s: that of
    what runs until its walltime is up, and all else as it is carried now; bookings do not say what
    they will send. NaN where its load is not known.
    """
    return _at(_known(span), scope, span)


@dataclass(frozen=True, eq=False)
class _Known:
    """What is held and booked on the fleet. ``runs``: W beyond idle of each allocation."""

    headroom: Headroom
    #: the same, but for what restrictions leave of budgets
    unrestricted: Headroom
    held: Allocations
    runs: Spans
    booked: Spans
    #: W of each booking, by node
    booked_w: Sequence[Floats]
    limits: Mapping[Scope, Sequence[Limit]]


def _known(span: Span) -> _Known:
    headroom = current.headroom(span.start)
    held = open_attempts.current(headroom.fleet)
    rows = list(Booking.objects.live(span.start_at).filter(starts_at__lt=span.end_at))
    return _Known(
        headroom=headroom,
        unrestricted=replace(headroom, limits=replace(headroom.limits, budget_w={})),
        held=held,
        runs=_running(headroom, held),
        booked=Spans(
            np.array([row.starts_at.timestamp() for row in rows]),
            np.array([row.ends_at.timestamp() for row in rows]),
            np.zeros(len(rows)),
        ),
        booked_w=[booked_nodes_w(row, headroom.fleet) for row in rows],
        limits=_limits(span),
    )


def _running(headroom: Headroom, held: Allocations) -> Spans:
    """Return what open attempts reserve beyond idle until their ends, by allocation."""
    reserved = held.reserved(in_parts(headroom, held.gpus), policy_in_force().reserve)
    fleet, arrays = headroom.fleet, held.arrays
    idle_w = sum_by(
        np.nan_to_num(held.fleet.gpus.idle_w[arrays.gpu]), arrays.gpu_allocation, len(arrays)
    )
    part = arrays.gpus / np.maximum(held.fleet.node_gpus[arrays.node], 1)
    idle_w += part * np.nan_to_num(fleet.nodes.host_idle_w[arrays.node])
    # One that is past its walltime has not ended for that.
    end_at = np.maximum(arrays.expected_end_at, headroom.at + 1.0)
    return Spans(
        np.full(len(end_at), headroom.at), end_at, np.maximum(reserved.shares_w - idle_w, 0.0)
    )


def _at(known: _Known, scope: Scope, span: Span) -> Ahead:
    is_link = scope.kind is ScopeKind.LINK
    load, budget = _load_and_budget(known, scope)
    runs, booked = _traffic(known, scope) if is_link else _drawn(known, scope)
    return ahead(
        float(np.maximum(load - runs.amount.sum(), 0.0)),
        budget,
        Spans(
            np.append(runs.begin_at, booked.begin_at),
            np.append(runs.end_at, booked.end_at),
            np.append(runs.amount, booked.amount),
        ),
        known.limits.get(scope, ()),
        start=span.start,
        step_s=span.length_s / BUCKETS,
        buckets=BUCKETS,
    )


def _load_and_budget(known: _Known, scope: Scope) -> tuple[float, float]:
    """Return the load of a place now, and its budget but for restrictions; NaN: not known."""
    headroom, row = known.headroom, row_of(known.headroom.fleet, scope)
    if scope.kind is ScopeKind.LINK:
        columns = headroom.table(scope.kind).columns
        load = columns["link_load_bits_per_s"][row]
        return float(load), float(columns["link_capacity_bits_per_s"][row])
    if scope.kind is ScopeKind.ZONE:
        return float(headroom.zone_load_w[row]), float(headroom.zone_capacity_w[row])
    budget_w = known.unrestricted.powers[scope.kind].budget_w
    return float(headroom.powers[scope.kind].load_w[row]), float(budget_w[row])


def _drawn(known: _Known, scope: Scope) -> tuple[Spans, Spans]:
    """Return what runs at a place and what is booked there, W, as far as the place carries it."""
    fleet = known.headroom.fleet
    share = _share(known.headroom, scope)[fleet.nodes.rack]
    of_runs = share[known.held.arrays.node]
    here = of_runs > 0.0
    runs = Spans(
        known.runs.begin_at[here], known.runs.end_at[here], (known.runs.amount * of_runs)[here]
    )
    booked_w = np.array([float((share * each).sum()) for each in known.booked_w])
    return runs, replace(known.booked, amount=booked_w)


def _share(headroom: Headroom, scope: Scope) -> Floats:
    """Return the share of each rack's load that a place carries."""
    fleet = headroom.fleet
    if scope.kind is ScopeKind.POWER_DOMAIN:
        return carried_share(fleet, row_of(fleet, scope))
    return racks_in(fleet, scope).astype(np.float64)


def _traffic(known: _Known, scope: Scope) -> tuple[Spans, Spans]:
    """Return the traffic on a link of what runs, bit/s, and none of bookings."""
    links = known.held.arrays.links
    here = links.on == row_of(known.headroom.fleet, scope)
    of = links.allocation[here]
    nothing = np.zeros(0)
    return (
        Spans(known.runs.begin_at[of], known.runs.end_at[of], links.rate[here]),
        Spans(nothing, nothing, nothing),
    )


def _limits(span: Span) -> Mapping[Scope, list[Limit]]:
    """Return the budgets that restrictions set, in force or announced, by place. A query."""
    rows = Restriction.objects.standing(span.start_at).filter(kind=RestrictionKind.POWER_BUDGET_W)
    found: dict[Scope, list[Limit]] = {}
    for row in rows:
        if row.value is None:
            continue
        begin_at = row.starts_at or datetime.fromtimestamp(span.start, UTC)
        limit = Limit(begin_at.timestamp(), row.expires_at.timestamp(), row.value)
        found.setdefault(row.scope, []).append(limit)
    return found
