"""The state of all pages: inventory, live frame and summary at one moment, shared by all viewers.

A process makes at most one ``View`` per ``_LEAST_AGE_S``, fewer where it is dear, and none while
nothing changed, so that 200 people looking cost as much as one. What is made from a view (JSON,
panels) is kept in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from django.conf import settings

from dashboard import moments
from dashboard.once import Once
from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from policies.headroom import power
from policies.headroom.columns import Floats
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Limits, Reservations
from policies.scopes import ScopeKind
from telemetry import frame, summary
from telemetry.frame import LiveFrame
from telemetry.summary import FleetSummary

#: Readings come more often than anybody can look: a view serves for this long, s.
_LEAST_AGE_S = 0.5
#: What a large fleet's view and panels take to make is a fifth of the time that they serve for, but
#: they never serve for longer than this, s.
_REST = 5.0
_DEAR_AGE_S = 2.0
#: Ages and staleness go on when no reading comes: a view is made again after this, s.
_MOST_AGE_S = 5.0


@dataclass(frozen=True, eq=False)
class View:
    """Everything that a page of the fleet shows, at ``now`` (Unix s)."""

    fleet: FleetArrays
    frame: LiveFrame
    summary: FleetSummary
    now: float
    #: restrictions in force; budgets of the summary are what they leave
    limits: Limits
    #: what each power domain carries if the other half of its pair fails, W; NaN: it has none
    alone_w: Floats
    #: of a few seconds ago, for what is not read of racks; None: of another inventory
    headroom: Headroom | None = None
    once: Once = field(default_factory=Once)

    @property
    def serves_s(self) -> float:
        """For how long a view is shown before another is made, s."""
        return max(_LEAST_AGE_S, min(_REST * self.once.cost_s, _DEAR_AGE_S))

    @property
    def version(self) -> str:
        """The version: changes with a reading, the inventory or (every 5 s) only the time."""
        return f"{self.frame.version}-{self.fleet.generation}-{int(self.now // _MOST_AGE_S)}"

    @cached_property
    def newest(self) -> float | None:
        """When the newest reading of anything was taken, Unix s; None when there is none."""
        latest = max(
            (float(a["ts"].max()) for a in self.frame.arrays.values() if len(a)), default=0.0
        )
        return latest or None


def current() -> View:
    """Return the newest view of this process."""
    newest, now = _views.peek(), time.time()
    return _views.get(
        partial(_made, now),
        version=partial(_version, now),
        max_age_s=newest.serves_s if newest else 0.0,
        now=now,
    )


def having(row_in: Callable[[FleetArrays], int | None]) -> tuple[View, int | None]:
    """Return the newest view, and the row that ``row_in`` finds in its inventory.

    What it does not find may have come a moment ago: then the inventory is read as it is now.
    """
    view = current()
    if (row := row_in(view.fleet)) is None and snapshot.fresh() is not view.fleet:
        _views.recheck()
        view = current()
        row = row_in(view.fleet)
    return view, row


def _version(now: float) -> Hashable:
    return snapshot.current(), frame.version(), int(now // _MOST_AGE_S)


def _made(now: float) -> View:
    fleet, readings = snapshot.current(), frame.read()
    headroom = moments.current().headroom
    if headroom.fleet is not fleet:  # it has changed since: the next view has it
        return view_of(fleet, readings, now, Reservations.none(fleet), Limits.none(fleet))
    found = view_of(fleet, readings, now, headroom.reservations, headroom.limits)
    return replace(found, headroom=headroom)


def view_of(
    fleet: FleetArrays,
    readings: LiveFrame,
    now: float,
    reservations: Reservations,
    limits: Limits,
) -> View:
    """Return the view of a moment: what is drawn and reserved, under the budgets in force."""
    began = time.thread_time()
    carried = summary.summarize(fleet, readings, now=now, stale_after_s=settings.STALE_AFTER_S)
    powers = power.committed(fleet, carried, reservations, limits)
    racks, domains = powers[ScopeKind.RACK], powers[ScopeKind.POWER_DOMAIN]
    sites = powers[ScopeKind.SITE]
    # A rack's meter and its nodes are read seconds apart: while power rises, a part of it counts as
    # drawn and as still to come. What is reserved never is over a budget; what is drawn may be.
    loaded = summary.with_loads(
        carried,
        nodes_w=powers[ScopeKind.NODE].load_w,
        racks_w=np.maximum(racks.drawn_w, np.fmin(racks.load_w, racks.budget_w)),
        domains_w=np.maximum(domains.drawn_w, np.fmin(domains.load_w, domains.budget_w)),
        sites_w=np.maximum(sites.drawn_w, np.fmin(sites.load_w, sites.budget_w)),
    )
    shown = summary.with_budgets(
        loaded, racks_w=racks.budget_w, domains_w=domains.budget_w, sites_w=sites.budget_w
    )
    return View(
        fleet,
        readings,
        shown,
        now,
        limits,
        power.failover(fleet, racks, domains, carried.domains.idle).load_w,
        once=Once(time.thread_time() - began),
    )


_views: Cache[View] = Cache()
#: Make the next call read everything again. For tests.
invalidate = _views.invalidate
