"""The faults of a scenario, on the conditions of a twin.

What is wrong at a moment is a function of scenario, fleet, seed and clock alone: each time, all
conditions are written anew. So a fault is a lease that nobody has to take back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from headroom.errors import HeadroomError
from lab.fleet import GPUS_PER_NODE, Fleet, inventory
from lab.matrix.result import Span
from lab.matrix.scenario import QUANTITIES, Fault, FaultKind, Level, Scenario
from lab.twin import Conditions, domain_names

__all__ = ["Faults", "TargetError", "cannot_do", "spans"]

Bools = NDArray[np.bool_]
Array = NDArray[np.float64]

#: What the twin has nothing for.
_CANNOT = {
    FaultKind.CPU_QUOTA: "the twin has no CPUs: run this on a real command",
    **dict.fromkeys(
        (FaultKind.SHRINK_BATCH, FaultKind.PAUSE, FaultKind.MOVE),
        "jobs of the twin are told by what decides for them: run this on a real command",
    ),
}


class TargetError(HeadroomError, ValueError):
    """A fault is on something that the fleet does not have."""


def cannot_do(scenario: Scenario) -> str:
    """Return why the twin cannot play a scenario; "": it can."""
    told = {fault.kind: _CANNOT[fault.kind] for fault in scenario.faults if fault.kind in _CANNOT}
    return "; ".join(f"{kind}: {why}" for kind, why in told.items())


def spans(scenario: Scenario) -> list[Span]:
    """Return when each fault of a scenario acts, for reports."""
    return [
        Span(
            name=fault.kind,
            from_s=fault.at_s,
            to_s=min(fault.until_s, scenario.duration_s),
            said=_said(fault),
        )
        for fault in scenario.faults
    ]


def _said(fault: Fault) -> str:
    needed, _ = QUANTITIES[fault.kind]
    amounts = [f"{name} {getattr(fault, name):g}" for name in needed if getattr(fault, name)]
    target = fault.target
    on = ", ".join(target.names) or ("" if target.count else "all")
    some = f"{target.count} drawn" if target.count else ""
    return "; ".join(part for part in (*amounts, f"{fault.level}: {some} {on}".strip()) if part)


class Faults:
    """Writes the conditions of a moment: see :meth:`__call__`. Raises :class:`TargetError`."""

    def __init__(self, scenario: Scenario, fleet: Fleet, *, seed: int) -> None:
        names = _Names(fleet)
        self._leases = [
            (
                fault.at_s,
                fault.until_s,
                _act_of(_On(fault, names.chosen(fault, place, seed), names)),
            )
            for place, fault in enumerate(scenario.faults)
            if fault.kind not in _CANNOT
        ]

    def __call__(self, now_s: float, conditions: Conditions) -> None:
        """Set ``conditions`` to those at ``now_s`` seconds of the run."""
        conditions.reset()
        for at_s, until_s, act in self._leases:
            if at_s <= now_s < until_s:
                act(conditions)


def _per_gpu(fleet: Fleet, by_rack: list[float]) -> Array:
    return np.repeat(np.array(by_rack)[fleet.rack_of_node], GPUS_PER_NODE)


_Act = Callable[[Conditions], None]


class _Names:
    """Names and places of the possible targets of faults."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        document = inventory(fleet)
        links = document["links"]
        self.gpu_limit_w = _per_gpu(fleet, [rack.power_limit_w for rack in fleet.racks])
        self.gpu_top_mhz = _per_gpu(fleet, [rack.kind.gpu.sm_max_mhz for rack in fleet.racks])
        self.link_bits_per_s = np.array([link["capacity_bits_per_s"] for link in links], float)
        endpoints = [(site, site["storage_endpoints"][0]) for site in document["sites"]]
        self.storage_bytes_per_s = np.array([end["capacity_bytes_per_s"] for _, end in endpoints])
        self.of: dict[Level, list[str]] = {
            Level.SITE: fleet.sites,
            Level.ZONE: [f"{site}/zone-{row.lower()}" for site, row in fleet.rows],
            Level.DOMAIN: ["/".join(each) for each in domain_names(fleet)],
            Level.RACK: [f"{rack.site}/{rack.name}" for rack in fleet.racks],
            Level.NODE: fleet.nodes,
            Level.LINK: [link["name"] for link in links],
            Level.STORAGE: [f"{site['name']}/{end['name']}" for site, end in endpoints],
        }

    def chosen(self, fault: Fault, place: int, seed: int) -> Bools:
        """Return the members of its level that the fault at ``place`` of the list is on."""
        target, names = fault.target, self.of[fault.level]
        patterns = target.names or ("*",)
        found = np.array([any(fnmatchcase(name, each) for each in patterns) for name in names])
        if not found.any():
            shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise TargetError(
                f"faults[{place}].target.names: no {fault.level} of this fleet is called"
                f" {' or '.join(patterns)}: there are {shown or 'none'}"
            )
        if target.count is None or target.count >= found.sum():
            return found
        rng = np.random.default_rng([seed, place])
        drawn = np.zeros_like(found)
        drawn[rng.choice(np.flatnonzero(found), size=target.count, replace=False)] = True
        return drawn

    def nodes(self, chosen: Bools, level: Level) -> Bools:
        """Return the nodes in the chosen sites, zones or racks, or the nodes themselves."""
        fleet = self.fleet
        if level is Level.NODE:
            return chosen
        of_rack = {
            Level.RACK: np.arange(len(fleet.racks)),
            Level.ZONE: fleet.row_of_rack,
            Level.SITE: fleet.site_of_rack,
        }[level]
        nodes: Bools = chosen[of_rack][fleet.rack_of_node]
        return nodes

    def zones(self, chosen: Bools, level: Level) -> Bools:
        """Return the zones in the chosen sites, or the zones themselves."""
        if level is Level.ZONE:
            return chosen
        site = {name: i for i, name in enumerate(self.fleet.sites)}
        zones: Bools = chosen[[site[name] for name, _ in self.fleet.rows]]
        return zones


@dataclass(frozen=True)
class _On:
    """A fault and the places of its level that it is on."""

    fault: Fault
    chosen: Bools
    names: _Names

    @property
    def nodes(self) -> Bools:
        return self.names.nodes(self.chosen, self.fault.level)

    @property
    def gpus(self) -> Bools:
        return np.repeat(self.nodes, GPUS_PER_NODE)

    @property
    def zones(self) -> Bools:
        return self.names.zones(self.chosen, self.fault.level)

    def given(self, name: str) -> float:
        """Return a quantity that reading has made sure of."""
        value = getattr(self.fault, name)
        if value is None:
            raise ValueError(f"{name} is missing: read scenarios with lab.matrix.reading")
        return float(value)

    def share_of(self, name: str, full: Array) -> Array:
        """Return the shares that are left: as given, or ``name`` over the full values."""
        if self.fault.share is not None:
            return np.full(len(full), self.fault.share)
        return np.minimum(self.given(name) / full, 1.0)


def _act_of(on: _On) -> _Act:
    """Return the act of a fault on neutral conditions. Of two on one thing the worse counts."""
    kind, at_storage = on.fault.kind, on.fault.level is Level.STORAGE
    if kind in _SWITCHES:
        return _switch(_SWITCHES[kind], on.nodes)
    match kind:
        case FaultKind.SITE_ISOLATED:
            return _switch("site_isolated", on.chosen)
        case FaultKind.FEED_LOSS:
            return _switch("domain_lost", on.chosen)
        case FaultKind.SUPPLY_TEMPERATURE:
            return _add("supply_offset_c", on.zones, on.given("offset_c"))
        case FaultKind.CLOCK_SKEW:
            return _add("clock_skew_s", on.nodes, on.given("skew_s"))
        case FaultKind.LYING_SENSOR:
            return _lie(on)
        case FaultKind.LINK_LATENCY:
            array = "storage_latency_s" if at_storage else "link_extra_latency_s"
            return _raise(array, on.chosen, on.given("latency_s"))
        case FaultKind.LINK_LOSS:
            array = "storage_loss" if at_storage else "link_loss"
            return _raise(array, on.chosen, on.given("loss_share"))
        case FaultKind.LINK_JITTER:
            return _raise("link_jitter_s", on.chosen, on.given("jitter_s"))
    return _less(on)


#: Kinds that are on or off, by node.
_SWITCHES = {
    FaultKind.NODE_LOSS: "node_down",
    FaultKind.KILL: "node_down",
    FaultKind.STALE_TELEMETRY: "node_silent",
}


def _less(on: _On) -> _Act:
    """Return the act of a kind that leaves less of something."""
    names, kind, on_rack = on.names, on.fault.kind, on.fault.level is Level.RACK
    if kind is FaultKind.POWER_LIMIT:
        return _lower("power_limit_share", on.gpus, on.share_of("limit_w", names.gpu_limit_w))
    if kind is FaultKind.CLOCK_LIMIT:
        return _lower("clock_share", on.gpus, on.share_of("limit_mhz", names.gpu_top_mhz))
    if kind is FaultKind.LINK_BANDWIDTH:
        left = on.share_of("bits_per_s", names.link_bits_per_s)
        return _lower("link_capacity_share", on.chosen, left)
    if kind is FaultKind.STORAGE_SLOW:
        left = on.share_of("bytes_per_s", names.storage_bytes_per_s)
        return _lower("storage_share", on.chosen, left)
    if kind is FaultKind.COOLING_LOSS:
        return _lower("zone_capacity_share", on.zones, on.given("share"))
    array = "rack_budget_share" if on_rack else "domain_budget_share"
    return _lower(array, on.chosen, on.given("share"))


def _lie(on: _On) -> _Act:
    if on.fault.stuck:
        return _switch("stuck", on.nodes)
    if on.fault.offset_c is not None:
        return _add("temp_bias_c", on.nodes, on.fault.offset_c)
    bias, nodes = on.given("factor"), on.nodes

    def act(conditions: Conditions) -> None:
        conditions.power_bias[nodes] = bias

    return act


def _lower(array: str, chosen: Bools, share: float | Array) -> _Act:
    left = np.where(chosen, share, np.inf)

    def act(conditions: Conditions) -> None:
        values: Array = getattr(conditions, array)
        np.minimum(values, left, out=values)

    return act


def _raise(array: str, chosen: Bools, value: float) -> _Act:
    least = np.where(chosen, value, -np.inf)

    def act(conditions: Conditions) -> None:
        values: Array = getattr(conditions, array)
        np.maximum(values, least, out=values)

    return act


def _add(array: str, chosen: Bools, value: float) -> _Act:
    more = np.where(chosen, value, 0.0)

    def act(conditions: Conditions) -> None:
        getattr(conditions, array)[:] += more

    return act


def _switch(array: str, chosen: Bools) -> _Act:
    def act(conditions: Conditions) -> None:
        getattr(conditions, array)[chosen] = True

    return act
