"""What sites are committed to draw from now on, beside their budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from admission.allocation import open_attempts
from admission.bookings.models import Booking
from admission.calendar.planned import booked_sites_w
from admission.core.ahead import Ahead, Limit, Spans, ahead
from admission.core.allocation.allocations import Allocations
from admission.core.placement.topology import Floats, Ints
from admission.core.slices import in_parts
from admission.policy.catalog import policy_in_force
from fleet.groups import sum_by
from policies import current
from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import ScopeKind
from telemetry.spans import Span

__all__ = ["committed"]

#: As many buckets as a span is looked at in.
BUCKETS = 672


def committed(span: Span) -> dict[str, Ahead]:
    """Return what each site is committed to in ``span``, which begins now. A few queries.

    What runs now counts with what it reserves until its walltime is up, and as idle then; bookings
    of projects with what their hosts are rated for beyond idle, and all else as it draws now. Of
    budgets, what restrictions on the site allow while they last. Jobs that wait do not count.
    """
    headroom = current.headroom(span.start)
    fleet = headroom.fleet
    held = open_attempts.current(fleet)
    runs, of_site = _running(headroom, held)
    booked = list(Booking.objects.live(span.start_at).filter(starts_at__lt=span.end_at))
    booked_w = [booked_sites_w(row, fleet) for row in booked]
    limits = _limits(span)
    power = headroom.powers[ScopeKind.SITE]
    budget_w = _unrestricted_w(headroom)
    return {
        str(name): ahead(
            max(float(power.load_w[site]) - float(runs.watts[of_site == site].sum()), 0.0),
            float(budget_w[site]),
            _at_site(site, runs, of_site, booked, booked_w),
            limits.get(str(name), ()),
            start=span.start,
            step_s=span.length_s / BUCKETS,
            buckets=BUCKETS,
        )
        for site, name in enumerate(fleet.sites.names.tolist())
    }


def _running(headroom: Headroom, held: Allocations) -> tuple[Spans, Ints]:
    """Return what open attempts reserve beyond idle until their ends, by node, and the sites."""
    reserved = held.reserved(in_parts(headroom, held.gpus), policy_in_force().reserve)
    fleet, arrays = headroom.fleet, held.arrays
    idle_w = sum_by(
        np.nan_to_num(held.fleet.gpus.idle_w[arrays.gpu]), arrays.gpu_allocation, len(arrays)
    )
    part = arrays.gpus / np.maximum(held.fleet.node_gpus[arrays.node], 1)
    idle_w += part * np.nan_to_num(fleet.nodes.host_idle_w[arrays.node])
    # One that is past its walltime has not ended for that.
    end_at = np.maximum(arrays.expected_end_at, headroom.at + 1.0)
    return (
        Spans(
            np.full(len(end_at), headroom.at), end_at, np.maximum(reserved.shares_w - idle_w, 0.0)
        ),
        fleet.racks.site[fleet.nodes.rack[arrays.node]],
    )


def _at_site(
    site: int, runs: Spans, of_site: Ints, booked: list[Booking], booked_w: list[Floats]
) -> Spans:
    here = of_site == site
    return Spans(
        np.append(runs.begin_at[here], [row.starts_at.timestamp() for row in booked]),
        np.append(runs.end_at[here], [row.ends_at.timestamp() for row in booked]),
        np.append(runs.watts[here], [watts[site] for watts in booked_w]),
    )


def _unrestricted_w(headroom: Headroom) -> Floats:
    """Return the budgets of sites but for restrictions, W."""
    limits = replace(headroom.limits, budget_w={})
    return replace(headroom, limits=limits).powers[ScopeKind.SITE].budget_w


def _limits(span: Span) -> Mapping[str, list[Limit]]:
    """Return the budgets that restrictions set sites, in force or announced, by site. A query."""
    rows = Restriction.objects.standing(span.start_at).filter(
        kind=RestrictionKind.POWER_BUDGET_W, scope_kind=ScopeKind.SITE
    )
    found: dict[str, list[Limit]] = {}
    for row in rows:
        if row.value is None:
            continue
        begin_at = row.starts_at or datetime.fromtimestamp(span.start, UTC)
        limit = Limit(begin_at.timestamp(), row.expires_at.timestamp(), row.value)
        found.setdefault(row.scope_name, []).append(limit)
    return found
