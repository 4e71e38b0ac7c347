"""The fleet without one of its parts, of any kind of :data:`KINDS`. Pure.

The same code as ever evaluates it. What fails is taken out of the inventory, so that a rack on two
feeds draws all of its load from the one that is left; what has no power any more draws nothing. A
link or a storage endpoint that fails is one that falls silent: that is how it would be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fleet.groups import above
from fleet.tables import METER_TARGETS, FleetArrays
from policies.headroom.columns import Bools, Ints
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Mounts
from policies.scopes import Scope, ScopeKind, row_of
from telemetry.live_frame import Array, Frame

__all__ = ["KINDS", "Outage", "without"]

#: The kinds of things that may fail.
KINDS = (
    ScopeKind.SITE,
    ScopeKind.POWER_DOMAIN,
    ScopeKind.ZONE,
    ScopeKind.RACK,
    ScopeKind.LINK,
    ScopeKind.STORAGE,
)
#: For so long nothing was heard of a link or mount that has failed, s: any reading is old by then.
_SILENT_S = 86_400.0
#: No inventory has this generation: what is kept for one is not taken for another.
_NONE = -1


@dataclass(frozen=True, eq=False)
class Outage:
    """The headroom of a fleet in which ``scope`` has just failed, with nothing reserved.

    ``dark`` says of each rack whether it has no power any more. ``after`` is of the same moment as
    the headroom that it was made of, and aligned with the same inventory.
    """

    scope: Scope
    dark: Bools
    after: Headroom

    @cached_property
    def dark_gpus(self) -> Bools:
        """Say of each GPU whether it has no power any more."""
        fleet = self.after.fleet
        return np.asarray(self.dark[fleet.nodes.rack[fleet.gpus.node]])


def without(headroom: Headroom, scope: Scope) -> Outage:
    """Return the fleet at the moment of ``headroom`` without ``scope``, of one of :data:`KINDS`.

    Raises :class:`~policies.scopes.UnknownScope` where the inventory has no such thing, and
    ValueError for other kinds.
    """
    if scope.kind not in KINDS:
        raise ValueError(f"what follows when a {scope.kind} fails is not known")
    failed = _failed(headroom.fleet, scope)
    after = evaluate(
        failed.fleet,
        _FrameWithout(headroom.frame, failed, headroom.past.mounts, headroom.at),
        now=headroom.at,
        restrictions=headroom.limits,
        past=headroom.past,
        stale_after_s=headroom.readings.stale_after_s,
    )
    return Outage(scope, failed.racks, after)


@dataclass(frozen=True, eq=False)
class _Failed:
    """The inventory without what fails, and which power domains and racks have no power.

    ``links`` and ``storage`` are the rows of those that fail by themselves.
    """

    fleet: FleetArrays
    domains: Bools
    racks: Bools
    links: tuple[int, ...] = ()
    storage: tuple[int, ...] = ()

    @cached_property
    def nodes(self) -> Bools:
        return np.asarray(self.racks[self.fleet.nodes.rack])

    def silent(self, kind: str, mounts: Mounts) -> Ints:
        """Return the ids of the links or mounts of which nothing is heard any more."""
        if kind == "link":
            links = self.fleet.links
            dead = np.append(self.racks, False)[links.rack]
            dead[list(self.links)] = True
            return np.asarray(links.ids[dead])
        return np.asarray(mounts.ids[np.isin(mounts.endpoint, self.storage)])

    def ids(self, kind: str) -> Ints:
        """Return the database ids of the things of a kind of readings that have no power."""
        fleet = self.fleet
        if kind == "gpu":
            return np.asarray(fleet.gpus.ids[self.nodes[fleet.gpus.node]])
        if kind == "host":
            return np.asarray(fleet.nodes.ids[self.nodes])
        meters, dead = fleet.meters, np.zeros(len(fleet.meters), dtype=bool)
        below = {"power_domain": self.domains, "rack": self.racks, "node": self.nodes}
        for name, lost in below.items():
            mine = meters.target_kind == METER_TARGETS.index(name)
            dead[mine] = lost[meters.target[mine]]
        return np.asarray(meters.ids[dead])


def _failed(fleet: FleetArrays, scope: Scope) -> _Failed:
    row = row_of(fleet, scope)
    domains, racks = np.zeros(len(fleet.domains), bool), np.zeros(len(fleet.racks), bool)
    if scope.kind is ScopeKind.ZONE:
        capacity_w = np.where(np.arange(len(fleet.zones)) == row, 0.0, fleet.zones.capacity_w)
        zones = replace(fleet.zones, capacity_w=capacity_w)
        fleet = replace(fleet, generation=_NONE, zones=zones)
    elif scope.kind is ScopeKind.POWER_DOMAIN:
        return _without_power(fleet, _below(fleet, row))
    elif scope.kind is ScopeKind.SITE:
        return _without_site(fleet, row)
    elif scope.kind is ScopeKind.LINK:
        return _Failed(fleet, domains, racks, links=(row,))
    elif scope.kind is ScopeKind.STORAGE:
        return _Failed(fleet, domains, racks, storage=(row,))
    else:
        racks[row] = True
    return _Failed(fleet, np.asarray(domains), np.asarray(racks))


def _without_site(fleet: FleetArrays, row: int) -> _Failed:
    links = fleet.links
    return _Failed(
        fleet,
        np.asarray(fleet.domains.site == row),
        np.asarray(fleet.racks.site == row),
        links=tuple(np.flatnonzero((links.site == row) | (links.peer_site == row)).tolist()),
        storage=tuple(np.flatnonzero(fleet.storage.site == row).tolist()),
    )


def _below(fleet: FleetArrays, row: int) -> Bools:
    """Say of each power domain whether it is the one at ``row``, or hangs on it."""
    return np.asarray((above(fleet, np.arange(len(fleet.domains))) == row).any(axis=0))


def _without_power(fleet: FleetArrays, dead: Bools) -> _Failed:
    """Return a fleet whose racks hang on the ``dead`` power domains no more."""
    racks, domains = fleet.racks, fleet.domains
    lost = np.append(dead, False)
    feed_a, feed_b = (np.where(lost[feed], -1, feed) for feed in (racks.feed_a, racks.feed_b))
    had_power = (racks.feed_a >= 0) | (racks.feed_b >= 0)
    dark = had_power & (feed_a < 0) & (feed_b < 0)
    # What is left of a pair has no other half whose load it could still have to take over.
    alone = dead | lost[domains.pair]
    left = replace(
        fleet,
        generation=_NONE,
        racks=replace(racks, feed_a=feed_a, feed_b=feed_b),
        domains=replace(domains, pair=np.where(alone, -1, domains.pair)),
    )
    return _Failed(left, dead, dark)


class _FrameWithout:
    """A frame in which what has no power draws nothing, as of a moment (Unix s).

    Of links and mounts that have failed nothing is heard.
    """

    def __init__(self, frame: Frame, failed: _Failed, mounts: Mounts, at: float) -> None:
        self._frame, self._failed, self._mounts, self._at = frame, failed, mounts, at

    def fields(self, kind: str, ids: Ints, *names: str) -> Mapping[str, Array]:
        """See :class:`~telemetry.live_frame.Frame`."""
        found = self._frame.fields(kind, ids, *names)
        if kind in ("link", "storage"):
            return self._silenced(found, np.isin(ids, self._failed.silent(kind, self._mounts)))
        if kind not in ("gpu", "host", "meter"):
            return found
        dead = np.isin(ids, self._failed.ids(kind))
        if not dead.any():
            return found
        still = {"ts": self._at, "power_w": 0.0, "cpu_power_w": 0.0}
        return {
            name: np.where(dead, still[name], values) if name in still else values
            for name, values in found.items()
        }

    def _silenced(self, found: Mapping[str, Array], dead: Bools) -> Mapping[str, Array]:
        if not dead.any() or "ts" not in found:
            return found
        last = np.minimum(found["ts"], self._at - _SILENT_S)
        return {**found, "ts": np.where(dead, last, found["ts"])}
