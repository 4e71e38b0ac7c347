"""Preferences for cheaper and cleaner power: when a phase begins, and at which site. Pure.

A phase that says so prefers the site where its run costs or emits least, and waits for an hour in
which it does, for as long as it agreed to. It is a preference: nothing is held for who waits, and
no other job begins later for it. So a site is chosen in what all others leave.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from admission.core.energy.ahead import Ahead, Later
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import fits_empty, shape_of
from admission.core.request import Placement, Refusal, Request
from admission.core.snapshot import Pending, Snapshot

__all__ = ["preferred_sites", "preferring", "with_preference"]

_HOUR_S = 3600.0
_J_PER_KWH = 3.6e6
#: A later hour that saves less than this share is not waited for: forecasts are no better.
_LEAST_SAVING = 0.05


def preferring(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which phases that prefer a later hour say which."""
    if snapshot.ahead is None or not any(each.request.prefers for each in snapshot.pending):
        return snapshot
    pending = tuple(with_preference(each, snapshot) for each in snapshot.pending)
    return replace(snapshot, pending=pending)


def with_preference(pending: Pending, snapshot: Snapshot) -> Pending:
    """Return a phase with the later hour that it prefers; None: it would begin now."""
    later = None
    # One that moves goes on where its place is kept, and at once.
    if snapshot.ahead is not None and pending.request.prefers and pending.returns_to is None:
        later = _later(pending.request, snapshot, snapshot.ahead)
    return pending if later == pending.later else replace(pending, later=later)


def _later(request: Request, snapshot: Snapshot, ahead: Ahead) -> Later | None:
    until = min(request.submitted_at + request.may_wait_s, request.deadline_at or np.inf)
    if until <= snapshot.now:
        return None
    places = _places(request, snapshot.cluster, ahead)
    run_s = snapshot.expected_s(request, 0.0)
    first = (snapshot.now // _HOUR_S + 1.0) * _HOUR_S
    starts = np.append(snapshot.now, np.arange(first, until + 1e-6, _HOUR_S))
    means = ahead.means(request.prefers, starts, run_s)[list(places)]
    known = np.where(np.isnan(means), np.inf, means)
    if len(starts) == 1 or not len(known) or not np.isfinite(known[:, 0]).any():
        return None
    # Of equal hours the first, and of equal sites the first by name.
    hour = 1 + int(np.argmin(known[:, 1:].min(axis=0)))
    row = int(np.argmin(known[:, hour]))
    now_rate, rate = float(known[:, 0].min()), float(known[row, hour])
    if not now_rate - rate > _LEAST_SAVING * abs(now_rate):
        return None
    site = list(places)[row]
    return Later(
        at=float(starts[hour]), until=until, site=ahead.sites[site], prefers=request.prefers,
        now_rate=now_rate, rate=rate, unit=ahead.unit(request.prefers),
        kwh=places[site].total_w * run_s / _J_PER_KWH,
    )  # fmt: skip


def _places(request: Request, cluster: Cluster, ahead: Ahead) -> dict[int, Placement]:
    """Return where it would stand at each site, by row, were the fleet all its own."""
    found: dict[int, Placement] = {}
    for row, site in enumerate(ahead.sites):
        if request.sites and site not in request.sites:
            continue
        there = replace(request, sites=(site,))
        stands = _on_empty(there, cluster)
        if not isinstance(stands, Refusal):
            found[row] = stands
    return found


def _on_empty(request: Request, cluster: Cluster) -> Placement | Refusal:
    return cluster.kept(("on empty", shape_of(request)), lambda: fits_empty(cluster, request))


def preferred_sites(request: Request, ahead: Ahead | None, now: float, run_s: float) -> list[str]:
    """Return the sites that it may go to of which rates are known, the preferred first.

    None where it prefers none, or has no choice.
    """
    if ahead is None or not request.prefers or len(request.sites) == 1 or len(ahead.sites) < 2:
        return []
    means = ahead.means(request.prefers, np.array([now]), run_s)[:, 0]
    rows = [row for row in np.argsort(means, kind="stable").tolist() if np.isfinite(means[row])]
    return [
        ahead.sites[row] for row in rows if not request.sites or ahead.sites[row] in request.sites
    ]
