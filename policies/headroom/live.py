"""Headroom of the fleet as it is now: the shell that reads the inputs of ``evaluate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from django.conf import settings
from django.db.models import Count

from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from policies.headroom import forecasts
from policies.headroom.columns import Floats, Ints
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.history import History
from policies.headroom.hosts import curves_of
from policies.headroom.inputs import Limits, Mounts, Outlook, Past, Reservations, ThermalFits
from policies.headroom.models import HostFit, ThermalFit
from policies.headroom.past import (
    LINK_SLOTS,
    LINKS_EVERY_S,
    LOAD_SLOTS,
    LOAD_TABLES,
    LOADS_EVERY_S,
    link_trends,
    links_of,
    load_trends,
    loads_of,
)
from policies.headroom.replicas import Replicas, StoreFact, replicas_of
from policies.scopes import ScopeKind
from telemetry import frame as live_frame
from telemetry import placed
from telemetry.lemons.models import LemonFinding
from telemetry.models import CheckpointFact, Mount, XidEvent
from telemetry.summary import HostCurves

#: Xid errors count for this long.
XIDS_WITHIN = timedelta(hours=1)
#: What is read of the database is read again after this long, s; fits are slow to change.
_KNOWN_FOR_S = 30.0
_FITS_KNOWN_FOR_S = 300.0
#: Until hosts are fitted for the first time, much more is assumed of them than they draw.
_HOSTS_KNOWN_FOR_S = 10.0
_OUTLOOK_KNOWN_FOR_S = 10.0
_REPLICAS_KNOWN_FOR_S = 10.0
#: An evaluation serves for this long, s: a page asks for several things at once.
_SERVES_S = 1.0
LOADS = History("loads", LOAD_TABLES, every_s=LOADS_EVERY_S, slots=LOAD_SLOTS)
LINKS = History("links", ("links",), every_s=LINKS_EVERY_S, slots=LINK_SLOTS)

#: Says what admitted jobs have reserved, given the headroom with nothing reserved.
ReservedIn: TypeAlias = Callable[[Headroom], Reservations]


# --- What the database knows ---------------------------------------------------------------------


def _thermal_fits(fleet: FleetArrays) -> ThermalFits:
    """One query."""
    fits = ThermalFit.objects.filter(resistance_c_per_w__isnull=False).values_list(
        "gpu_id", "resistance_c_per_w", "capacitance_j_per_c", "ambient_c", "trust"
    )
    found = ThermalFits.none(fleet)
    rows = np.array(list(fits), dtype=np.float64).reshape(-1, 5)
    row, known = _rows_of(fleet.gpus.ids, rows[:, 0].astype(np.int64))
    for place, values in enumerate(
        (found.resistance_c_per_w, found.capacitance_j_per_c, found.ambient_c, found.trust), 1
    ):
        values[row] = rows[known, place]
    return found


def _rows_of(ids: Ints, wanted: Ints) -> tuple[Ints, Any]:
    """Return the rows in ``ids`` of the ``wanted`` that are there, and a mask of these."""
    if not len(ids):
        return np.zeros(0, dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    known = ids[order[place]] == wanted
    return order[place[known]], known


def _host_curves(fleet: FleetArrays) -> HostCurves | None:
    """One query."""
    fits = {model: (idle, share) for model, idle, share in HostFit.objects.values_list(
        "model_id", "idle_w", "share"
    )}  # fmt: skip
    return curves_of(fleet, fits)


@dataclass(frozen=True, eq=False)
class _Health:
    lemon_gpus: Ints
    xids: Ints


def _health(fleet: FleetArrays, now: float) -> _Health:
    """Count lemons and Xid errors by node. Two queries."""
    since = datetime.fromtimestamp(now, UTC) - XIDS_WITHIN
    lemons = LemonFinding.objects.open().order_by().values_list("gpu__node")
    xids = XidEvent.objects.filter(ts__gte=since).order_by().values_list("node")
    return _Health(
        _by_node(fleet, lemons.annotate(Count("gpu", distinct=True))),
        _by_node(fleet, xids.annotate(Count("pk"))),
    )


def _by_node(fleet: FleetArrays, counts: Any) -> Ints:
    found = np.zeros(len(fleet.nodes), dtype=np.int64)
    for node, count in counts:
        row = fleet.nodes.index_by_id.get(node)
        if row is not None:
            found[row] = count
    return found


def _mounts(fleet: FleetArrays) -> Mounts:
    """Return mounts with their endpoints. One query.

    A mount that is called as an endpoint of its site is one of that; else of that of its node.
    """
    ids, endpoints = [], []
    for key, node, name in Mount.objects.values_list("pk", "node_id", "name"):
        row = fleet.nodes.index_by_id.get(node)
        if row is None:
            continue
        site = fleet.sites.names[fleet.racks.site[fleet.nodes.rack[row]]]
        usual = int(fleet.nodes.storage[row])
        ids.append(key)
        endpoints.append(fleet.storage.index_by_path.get(f"{site}/{name}", usual))
    return Mounts(np.array(ids, dtype=np.int64), np.array(endpoints, dtype=np.int64))


def _replicas(fleet: FleetArrays) -> Replicas:
    """Return how far other sites are behind with the jobs that run. One query; none without any."""
    jobs = placed.jobs()
    rows = CheckpointFact.objects.filter(job__among=jobs).order_by("job") if jobs else ()
    facts = (
        StoreFact(
            job=row.job,
            site_id=row.site_id,
            run=row.run,
            step=row.step,
            saved_at=None if row.saved_at is None else row.saved_at.timestamp(),
            size_bytes=row.bytes,
            lacking_bytes=row.lag_bytes,
            told_at=row.told_at.timestamp(),
        )
        for row in rows
    )
    return replicas_of(facts, fleet.sites.index_by_id)


# --- What was, and what is now -------------------------------------------------------------------


_measured: Cache[Headroom] = Cache(_SERVES_S)
_with_reserved: Cache[Headroom] = Cache()
_trends: Cache[tuple[dict[ScopeKind, Floats], Floats]] = Cache()
_link_use: Cache[tuple[Floats, Floats]] = Cache()
_thermal: Cache[ThermalFits] = Cache(_FITS_KNOWN_FOR_S)
_hosts: Cache[HostCurves | None] = Cache(_HOSTS_KNOWN_FOR_S)
_outlook: Cache[Outlook | None] = Cache(_OUTLOOK_KNOWN_FOR_S)
_faults: Cache[_Health] = Cache(_KNOWN_FOR_S)
_mounted: Cache[Mounts] = Cache(_KNOWN_FOR_S)
_replicated: Cache[Replicas] = Cache(_REPLICAS_KNOWN_FOR_S)
_reserved_in: list[ReservedIn] = []


def provide_reservations(reserved_in: ReservedIn | None) -> None:
    """Have :func:`current` ask ``reserved_in`` for the reservations that it is not given."""
    _reserved_in[:] = [] if reserved_in is None else [reserved_in]
    invalidate()


def invalidate() -> None:
    """Have the next calls read and compute all anew, as in a process that has just begun."""
    for evaluated in (_measured, _with_reserved):
        evaluated.invalidate()
    kept = (_trends, _link_use, _thermal, _hosts, _outlook, _faults, _mounted, _replicated)
    for read in (*kept, LOADS, LINKS):
        read.invalidate()


def current(
    now: float, *, limits: Limits | None = None, reservations: Reservations | None = None
) -> Headroom:
    """Return the headroom of the fleet at ``now`` (Unix seconds), at most a second old.

    ``limits``: restrictions in force; ``policies.current`` reads them. ``reservations``: those of
    admitted jobs; left out, they are asked of whoever has called :func:`provide_reservations`.
    Reads the inventory, the live frame and the past, and keeps the loads of now for evaluations to
    come. At 100,000 GPUs it takes some tenths of a second.
    """
    before = measured(now, limits=limits)
    return _with_reserved.get(partial(_noted, before, reservations), of=(before, reservations))


def _noted(measured: Headroom, reservations: Reservations | None) -> Headroom:
    """Return the headroom with ``reservations``, or with those of admitted jobs, and note loads."""
    if reservations is None and _reserved_in:
        reservations = _reserved_in[0](measured)
    found = measured
    if reservations is not None:
        found = replace(measured, reservations=reservations)
    # The past of evaluations to come, where the last slot is old enough.
    LOADS.note(found.fleet, found.at, loads_of(found))
    LINKS.note(found.fleet, found.at, links_of(found))
    return found


def measured(now: float, *, limits: Limits | None = None) -> Headroom:
    """Return the headroom as :func:`current` does, with nothing reserved."""
    fleet, frame = snapshot.current(), live_frame.read()

    def evaluated() -> Headroom:
        return evaluate(
            fleet,
            frame,
            now=now,
            restrictions=limits,
            past=_past(fleet, now),
            stale_after_s=settings.STALE_AFTER_S,
        )

    return _measured.get(evaluated, of=(fleet.generation, frame.version, limits), now=now)


def lasting(fleet: FleetArrays) -> Past:
    """Return the inputs that change slowly, as of now: fits of heat and of hosts, and mounts."""
    of = fleet.generation
    return replace(
        Past.none(fleet),
        thermal=_thermal.get(partial(_thermal_fits, fleet), of=of),
        mounts=_mounted.get(partial(_mounts, fleet), of=of),
        hosts=_hosts.get(partial(_host_curves, fleet), of=of),
    )


def _past(fleet: FleetArrays, now: float) -> Past:
    times, loads = LOADS.window(fleet)
    slopes, still_s = _trends.get(
        partial(load_trends, fleet, times, loads), of=(fleet.generation, *times.tolist())
    )
    times, links = LINKS.window(fleet)
    link_slope, link_bits_per_s = _link_use.get(
        partial(link_trends, times, links), of=(fleet.generation, *times.tolist())
    )
    health = _faults.get(partial(_health, fleet, now), of=fleet.generation)
    return replace(
        lasting(fleet),
        slopes={**slopes, ScopeKind.LINK: link_slope},
        gpu_still_s=still_s,
        link_bits_per_s=link_bits_per_s,
        lemon_gpus=health.lemon_gpus,
        xids=health.xids,
        replicas=_replicated.get(partial(_replicas, fleet), of=fleet.generation, now=now),
        outlook=_outlook.get(partial(forecasts.outlook, fleet), of=fleet.generation, now=now),
    )
