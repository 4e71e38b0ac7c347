"""Headroom of the fleet as it is now: the shell that reads the inputs of ``evaluate``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from django.conf import settings
from django.db.models import Count

from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies.headroom.columns import Floats, Ints
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.history import History
from policies.headroom.inputs import Limits, Mounts, Past, Reservations, ThermalFits
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
from policies.scopes import ScopeKind
from telemetry import frame as live_frame
from telemetry.lemons.models import LemonFinding
from telemetry.models import Mount, XidEvent
from telemetry.summary import HostCurves

#: Xid errors count for this long.
XIDS_WITHIN = timedelta(hours=1)
#: What is read of the database is read again after this long, s; fits are slow to change.
_KNOWN_FOR_S = 30.0
_FITS_KNOWN_FOR_S = 300.0
#: An evaluation serves for this long, s: a page asks for several things at once.
_SERVES_S = 1.0
LOADS = History("loads", LOAD_TABLES, every_s=LOADS_EVERY_S, slots=LOAD_SLOTS)
LINKS = History("links", ("links",), every_s=LINKS_EVERY_S, slots=LINK_SLOTS)

T = TypeVar("T")

#: Says what admitted jobs have reserved, given the headroom with nothing reserved.
ReservedIn: TypeAlias = Callable[[Headroom], Reservations]


class _Kept(Generic[T]):
    """A value read from the database, kept for a while, for one state of the inventory."""

    def __init__(
        self, read: Callable[[FleetArrays, float], T], known_for_s: float = _KNOWN_FOR_S
    ) -> None:
        self._read = read
        self._known_for_s = known_for_s
        self._found: tuple[int, float, T] | None = None

    def get(self, fleet: FleetArrays, now: float) -> T:
        found, asked_at = self._found, time.monotonic()
        if found is None or found[0] != fleet.generation or asked_at - found[1] > self._known_for_s:
            found = self._found = (fleet.generation, asked_at, self._read(fleet, now))
        return found[2]

    def forget(self) -> None:
        self._found = None


# --- What the database knows ---------------------------------------------------------------------


def _thermal_fits(fleet: FleetArrays, _now: float) -> ThermalFits:
    """Return the thermal fits of GPUs. One query."""
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


def _host_curves(fleet: FleetArrays, _now: float) -> HostCurves | None:
    """Return the fitted power curves of hosts; None where there is none. One query."""
    fits = {model: (idle, share) for model, idle, share in HostFit.objects.values_list(
        "model_id", "idle_w", "share"
    )}  # fmt: skip
    if not fits:
        return None
    unknown = (np.nan, np.nan)
    by_model = np.array([*(fits.get(key, unknown) for key in fleet.models.ids.tolist()), unknown])
    return HostCurves(*by_model[fleet.nodes.model].T)


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


def _mounts(fleet: FleetArrays, _now: float) -> Mounts:
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


# --- What was, and what is now -------------------------------------------------------------------


class _Live:
    """The headroom last computed in this process, and its inputs, shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured: Headroom | None = None
        self._version: tuple[Any, ...] = ()
        self._last: Headroom | None = None
        self._last_of: tuple[Headroom, Reservations | None] | None = None
        self._reserved_in: ReservedIn | None = None
        self._trends: tuple[tuple[Any, ...], dict[ScopeKind, Floats], Floats] | None = None
        self._link_use: tuple[tuple[Any, ...], Floats, Floats] | None = None
        self.thermal = _Kept(_thermal_fits, _FITS_KNOWN_FOR_S)
        self.hosts = _Kept(_host_curves, _FITS_KNOWN_FOR_S)
        self.health = _Kept(_health)
        self.mounts = _Kept(_mounts)

    def provide_reservations(self, reserved_in: ReservedIn | None) -> None:
        self._reserved_in = reserved_in
        self.forget()

    def measured(self, now: float, limits: Limits | None) -> Headroom:
        with self._lock:
            return self._as_measured(now, limits)

    def current(
        self, now: float, limits: Limits | None, reservations: Reservations | None
    ) -> Headroom:
        with self._lock:
            measured = self._as_measured(now, limits)
            last = self._last
            # Both are compared by identity.
            if last is not None and self._last_of == (measured, reservations):
                return last
            self._last_of = (measured, reservations)
            if reservations is None and self._reserved_in is not None:
                reservations = self._reserved_in(measured)
            found = measured
            if reservations is not None:
                found = replace(measured, reservations=reservations)
            _note(found)
            self._last = found
            return found

    def _as_measured(self, now: float, limits: Limits | None) -> Headroom:
        fleet, frame = snapshot.current(), live_frame.read()
        version = (fleet.generation, frame.version, limits)
        found = self._measured
        if found is None or version != self._version or not 0 <= now - found.at < _SERVES_S:
            found = evaluate(
                fleet,
                frame,
                now=now,
                restrictions=limits,
                past=self._past(fleet, now),
                stale_after_s=settings.STALE_AFTER_S,
            )
            self._measured, self._version = found, version
        return found

    def lasting(self, fleet: FleetArrays, now: float) -> Past:
        return replace(
            Past.none(fleet),
            thermal=self.thermal.get(fleet, now),
            mounts=self.mounts.get(fleet, now),
            hosts=self.hosts.get(fleet, now),
        )

    def _past(self, fleet: FleetArrays, now: float) -> Past:
        slopes, still_s = self._loads(fleet)
        link_slope, link_bits_per_s = self._links(fleet)
        health = self.health.get(fleet, now)
        return replace(
            self.lasting(fleet, now),
            slopes={**slopes, ScopeKind.LINK: link_slope},
            gpu_still_s=still_s,
            link_bits_per_s=link_bits_per_s,
            lemon_gpus=health.lemon_gpus,
            xids=health.xids,
        )

    def _loads(self, fleet: FleetArrays) -> tuple[dict[ScopeKind, Floats], Floats]:
        """Return slopes, and for how long each GPU is still: computed anew with each new slot."""
        times, values = LOADS.window(fleet)
        version = (fleet.generation, *times.tolist())
        if self._trends is None or self._trends[0] != version:
            self._trends = (version, *load_trends(fleet, times, values))
        return self._trends[1:]

    def _links(self, fleet: FleetArrays) -> tuple[Floats, Floats]:
        """Return slope and percentile of the traffic of links."""
        times, values = LINKS.window(fleet)
        version = (fleet.generation, *times.tolist())
        if self._link_use is None or self._link_use[0] != version:
            self._link_use = (version, *link_trends(times, values))
        return self._link_use[1:]

    def forget(self) -> None:
        """Forget all, as a process that has just begun."""
        with self._lock:
            self._measured = self._last = self._last_of = None
            self._trends = self._link_use = None
            for each in (self.thermal, self.hosts, self.health, self.mounts):
                each.forget()
            LOADS.forget()
            LINKS.forget()


def _note(headroom: Headroom) -> None:
    """Add the present loads to the history, where its last slot is old enough."""
    LOADS.note(headroom.fleet, headroom.at, loads_of(headroom))
    LINKS.note(headroom.fleet, headroom.at, links_of(headroom))


_live = _Live()
forget = _live.forget


provide_reservations = _live.provide_reservations


def current(
    now: float, *, limits: Limits | None = None, reservations: Reservations | None = None
) -> Headroom:
    """Return the headroom of the fleet at ``now`` (Unix seconds), at most a second old.

    ``limits``: restrictions in force; ``policies.current`` reads them. ``reservations``: those of
    admitted jobs; left out, they are asked of whoever has called :func:`provide_reservations`.
    Reads the inventory, the live frame and the past, and keeps the loads of now for evaluations to
    come. At 100,000 GPUs it takes some tenths of a second.
    """
    return _live.current(now, limits, reservations)


def measured(now: float, *, limits: Limits | None = None) -> Headroom:
    """Return the headroom as :func:`current` does, with nothing reserved."""
    return _live.measured(now, limits)


def lasting(fleet: FleetArrays, now: float) -> Past:
    """Return the inputs that change slowly, as of now: fits of heat and of hosts, and mounts."""
    return _live.lasting(fleet, now)
