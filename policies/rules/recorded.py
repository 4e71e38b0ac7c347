"""Headroom as it was: the columns that rules look at, for many moments at once. Pure.

What stood in the tables of :mod:`policies.headroom` at each moment is made again from readings, as
arrays of times by scopes, and only as far as some rule asks for it. What readings do not tell, such
as the fits of heat that were known then, is left out: it is unknown, and :func:`not_recorded` says
so to whoever asks for a replay.

Loads are committed here, too: measured where a reading is fresh, rated where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.tables import METER_KINDS, METER_TARGETS
from policies.headroom.columns import Table
from policies.headroom.evaluate import Headroom
from policies.headroom.power import Power, failover
from policies.scopes import ScopeKind
from telemetry.summary import UNRATED_GPU_W, UNRATED_HOST_W, carried_w
from telemetry.throttle import THROTTLE_BITS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: A slope is taken over so much of the past, s.
SLOPE_OVER_S = 300.0

_POWER_METER = METER_KINDS.index("power")
_INLET_METER = METER_KINDS.index("temperature")
_PLACED = (ScopeKind.SITE, ScopeKind.ZONE, ScopeKind.RACK, ScopeKind.NODE, ScopeKind.GPU)
#: Columns that do not change with readings: they are taken from the inventory as it is now.
_LASTING = frozenset(
    {
        "name",
        "site",
        "gpus",
        "is_wan",
        "power_budget_w",
        "cooling_capacity_w",
        "supply_c",
        "link_capacity_bits_per_s",
        "link_control_bits_per_s",
        "storage_capacity_bytes_per_s",
    }
)
_POWER = frozenset(
    {
        "power_load_w",
        "power_drawn_w",
        "power_measured_w",
        "power_headroom_w",
        "power_use",
        "power_drawn_use",
        "power_slope_w_per_s",
        "power_exhausted_in_s",
        "power_confidence",
    }
)
_HEAT = frozenset(
    {
        "thermal_margin_c",
        "thermal_mem_margin_c",
        "shutdown_margin_c",
        "hottest_c",
        "throttling",
        "throttling_share",
    }
)
_RECORDED: dict[ScopeKind, frozenset[str]] = {
    ScopeKind.SITE: _POWER | _HEAT | {"stale_nodes", "stale_share"},
    ScopeKind.ZONE: _HEAT
    | {
        "cooling_load_w",
        "cooling_headroom_w",
        "cooling_use",
        "cooling_slope_w_per_s",
        "cooling_exhausted_in_s",
    },
    ScopeKind.POWER_DOMAIN: _POWER | {"failover_load_w", "failover_headroom_w"},
    ScopeKind.RACK: _POWER | _HEAT | {"inlet_c", "stale_nodes", "stale_share"},
    ScopeKind.NODE: _POWER | _HEAT,
    ScopeKind.GPU: _POWER | _HEAT,
    ScopeKind.LINK: frozenset(
        {
            "link_load_bits_per_s",
            "link_headroom_bits_per_s",
            "link_use",
            "retransmits_per_s",
            "latency_s",
            "latency_inflation",
        }
    ),
    ScopeKind.STORAGE: frozenset(),
}


def not_recorded(kind: ScopeKind, fields: frozenset[str]) -> list[str]:
    """Return which of ``fields`` a replay cannot tell."""
    known = _RECORDED[kind] | _LASTING | {"labels", "stale", "age_s"}
    if kind is ScopeKind.STORAGE:
        known -= {"stale", "age_s"}
    return sorted(fields - known)


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings on a grid: arrays of times by things, aligned with the inventory; NaN: none fresh.

    A reading stands for as long as it is fresh. ``gpu_age_s`` and ``link_age_s`` are the ages of
    the newest one, NaN before the first.
    """

    times: Floats
    step_s: float
    #: how old a reading may be, s
    fresh_s: float
    #: by field: power_w, temp_c, temp_mem_c, temp_limit_c, throttle, job_id
    gpu: Mapping[str, Floats]
    gpu_age_s: Floats
    host_power_w: Floats
    meter_power_w: Floats
    meter_temp_c: Floats
    #: by field: tx_bytes_per_s, rx_bytes_per_s, retransmits_per_s, latency_s
    link: Mapping[str, Floats]
    link_age_s: Floats


class History:
    """The columns of every kind of scope over the times of ``readings``.

    ``now`` is headroom as of now, of which what lasts is taken.
    """

    def __init__(self, now: Headroom, readings: Readings) -> None:
        self._now = now
        self._fleet = now.fleet
        self._read = readings

    def shape(self, kind: ScopeKind) -> tuple[int, int]:
        """Return the number of times and of scopes."""
        return len(self._read.times), len(self._now.table(kind))

    def columns(self, kind: ScopeKind, fields: frozenset[str]) -> dict[str, NDArray[Any]]:
        """Return ``fields`` of a kind, as far as they are recorded: times by scopes, or scopes."""
        table = self._now.table(kind)
        found: dict[str, NDArray[Any]] = {"name": table.names}
        for name in fields | {"site"}:
            if name in _LASTING:
                found[name] = table.columns[name]
            elif name in _RECORDED[kind] or name in ("stale", "age_s"):
                made = self._column(kind, name, table)
                if made is not None:
                    found[name] = made
        return found

    def labels(self, kind: ScopeKind) -> Sequence[Mapping[str, str]]:
        """Return the labels of each scope, as they are now."""
        return self._now.table(kind).labels

    def _column(self, kind: ScopeKind, name: str, table: Table) -> NDArray[Any] | None:
        if name in ("stale", "age_s"):
            return self._silence(kind, name)
        if name in _POWER:
            return self._power(kind, name, table)
        if name in _HEAT:
            return self._heat(kind, name, table)
        makers: dict[str, Callable[[], NDArray[Any]]] = {
            "inlet_c": lambda: self._inlet_c,
            "stale_nodes": lambda: self._stale_nodes(kind),
            "stale_share": lambda: _ratio(self._stale_nodes(kind), self._nodes_in(kind)),
            "failover_load_w": lambda: self._failover_w,
            "failover_headroom_w": lambda: table.columns["power_budget_w"] - self._failover_w,
        }
        if name in makers:
            return makers[name]()
        return self._cooling(name, table) if kind is ScopeKind.ZONE else self._link(name, table)

    # --- Power -----------------------------------------------------------------------------------

    @cached_property
    def _gpu_w(self) -> Floats:
        rated = self._fleet.gpus.rated_w
        rated = np.where(np.isnan(rated), UNRATED_GPU_W, rated)
        read = self._read.gpu["power_w"]
        return np.where(np.isnan(read), rated, read)

    @cached_property
    def _node_w(self) -> Floats:
        fleet = self._fleet
        rated = np.where(np.isnan(fleet.gpus.rated_w), UNRATED_GPU_W, fleet.gpus.rated_w)
        gpus_w = _sums(self._gpu_w, fleet.gpu_bounds)
        most_w = _sums(rated[None, :], fleet.gpu_bounds)
        host_rated = fleet.nodes.host_rated_w
        host_rated = np.where(np.isnan(host_rated), UNRATED_HOST_W, host_rated)
        idle = np.nan_to_num(fleet.nodes.host_idle_w)
        share = np.clip(_ratio(gpus_w, most_w), 0.0, 1.0)
        assumed = idle + np.where(np.isnan(share), 1.0, share) * (host_rated - idle)
        host_w = self._read.host_power_w
        load = gpus_w + np.where(np.isnan(host_w), assumed, host_w)
        metered = self._metered("node", len(fleet.nodes))
        return np.where(np.isnan(metered), load, metered)

    @cached_property
    def _rack_w(self) -> Floats:
        nodes_w = _sums(self._node_w, self._fleet.node_bounds)
        metered = self._metered("rack", len(self._fleet.racks))
        # A silent node may draw again at any moment: the larger of the two stands.
        safe = np.where(self._stale_nodes(ScopeKind.RACK) > 0, np.fmax(metered, nodes_w), metered)
        return np.where(np.isnan(metered), nodes_w, safe)

    @cached_property
    def _domain_w(self) -> Floats:
        carried = self._rack_w @ self._carried
        return np.fmax(carried, self._metered("power_domain", len(self._fleet.domains)))

    @cached_property
    def _carried(self) -> Floats:
        """What each power domain carries of one watt of each rack: racks by domains."""
        fleet = self._fleet
        ones = np.eye(len(fleet.racks))
        rows = [carried_w(fleet, one) for one in ones]
        return np.array(rows).reshape(len(fleet.racks), len(fleet.domains))

    @cached_property
    def _moved(self) -> Floats:
        """What moves to each power domain, of one watt of each rack, when its other half fails."""
        fleet = self._fleet
        nothing = np.zeros(len(fleet.racks))
        rows = []
        for rack, carried in enumerate(self._carried):
            one = nothing.copy()
            one[rack] = 1.0
            moved = failover(fleet, _as_power(one), _as_power(carried)).load_w - carried
            rows.append(np.nan_to_num(moved))
        return np.array(rows).reshape(len(fleet.racks), len(fleet.domains))

    @cached_property
    def _failover_w(self) -> Floats:
        pair = self._fleet.domains.pair
        unknown = np.maximum(self._domain_w - self._rack_w @ self._carried, 0.0)
        load = self._domain_w + self._rack_w @ self._moved + unknown[:, pair]
        return np.where(pair >= 0, load, np.nan)

    def _load_w(self, kind: ScopeKind) -> Floats:
        if kind is ScopeKind.SITE:
            fleet = self._fleet
            racks = _grouped(self._rack_w, fleet.racks.site, len(fleet.sites))
            roots = fleet.domains.parent < 0
            at_roots = _grouped(
                self._domain_w[:, roots], fleet.domains.site[roots], len(fleet.sites)
            )
            return np.maximum(racks, at_roots)
        return {
            ScopeKind.GPU: self._gpu_w,
            ScopeKind.NODE: self._node_w,
            ScopeKind.RACK: self._rack_w,
        }.get(kind, self._domain_w if kind is ScopeKind.POWER_DOMAIN else self._rack_w)

    def _read_w(self, kind: ScopeKind) -> Floats:
        """What of the load rests on fresh readings."""
        fleet = self._fleet
        gpu_w = np.nan_to_num(self._read.gpu["power_w"])
        if kind is ScopeKind.GPU:
            return gpu_w
        node_w = _sums(gpu_w, fleet.gpu_bounds) + np.nan_to_num(self._read.host_power_w)
        metered = self._metered("node", len(fleet.nodes))
        node_w = np.where(np.isnan(metered), node_w, metered)
        if kind is ScopeKind.NODE:
            return node_w
        metered = self._metered("rack", len(fleet.racks))
        nodes_w = _sums(node_w, fleet.node_bounds)
        rack_w = np.fmax(metered, nodes_w)
        if kind is ScopeKind.RACK:
            return rack_w
        if kind is ScopeKind.SITE:
            return _grouped(rack_w, fleet.racks.site, len(fleet.sites))
        metered = self._metered("power_domain", len(fleet.domains))
        return np.fmax(metered, rack_w @ self._carried)

    def _power(self, kind: ScopeKind, name: str, table: Table) -> Floats:
        load = self._load_w(kind)
        budget = table.columns["power_budget_w"]
        # Readings know of nothing that was reserved and not drawn.
        if name in ("power_load_w", "power_drawn_w"):
            return load
        if name == "power_measured_w":
            read = self._read_w(kind)
            return np.where(read > 0, read, np.nan)
        if name == "power_headroom_w":
            return np.asarray(budget - load)
        if name in ("power_use", "power_drawn_use"):
            return _ratio(load, budget)
        if name == "power_confidence":
            share = _ratio(self._read_w(kind), load)
            return np.where(load > 0, np.clip(share, 0.0, 1.0), 1.0)
        slope = _slope(load, self._read.step_s)
        return slope if name == "power_slope_w_per_s" else _exhausted_in_s(budget - load, slope)

    def _metered(self, target: str, count: int) -> Floats:
        """Power by meters, W; NaN where a thing has none, or one of them is not fresh or faulty."""
        meters = self._fleet.meters
        here = (meters.kind == _POWER_METER) & (meters.target_kind == METER_TARGETS.index(target))
        read = self._read.meter_power_w[:, here]
        read = np.where(read > 0, read, np.nan)
        total = _grouped(read, meters.target[here], count)
        has_one = np.bincount(meters.target[here], minlength=count) > 0
        return np.where(has_one, total, np.nan)

    # --- Heat ------------------------------------------------------------------------------------

    @cached_property
    def _gpu_heat(self) -> dict[str, Floats]:
        gpus, read = self._fleet.gpus, self._read.gpu
        limit = np.where(np.isnan(read["temp_limit_c"]), gpus.slowdown_c, read["temp_limit_c"])
        mask = read["throttle"]
        bits = np.nan_to_num(mask).astype(np.int64) & THROTTLE_BITS
        return {
            "thermal_margin_c": limit - read["temp_c"],
            "thermal_mem_margin_c": gpus.slowdown_mem_c - read["temp_mem_c"],
            "shutdown_margin_c": gpus.shutdown_c - read["temp_c"],
            "hottest_c": read["temp_c"],
            "throttling": (bits != 0).astype(np.float64),
        }

    def _heat(self, kind: ScopeKind, name: str, table: Table) -> Floats:
        if name == "throttling_share":
            return _ratio(self._heat(kind, "throttling", table), table.columns["gpus"])
        values = self._gpu_heat[name]
        if name == "throttling":
            return self._over(kind, values, _sums, _grouped)
        if name == "hottest_c":
            return self._over(kind, values, _most, _most_by)
        return -self._over(kind, -values, _most, _most_by)

    def _over(
        self,
        kind: ScopeKind,
        values: Floats,
        runs: Callable[[Floats, Ints], Floats],
        groups: Callable[[Floats, Ints, int], Floats],
    ) -> Floats:
        """Take values of GPUs together over what they are in."""
        fleet = self._fleet
        if kind is ScopeKind.GPU:
            return values
        nodes = runs(values, fleet.gpu_bounds)
        if kind is ScopeKind.NODE:
            return nodes
        racks = runs(nodes, fleet.node_bounds)
        if kind is ScopeKind.SITE:
            return groups(racks, fleet.racks.site, len(fleet.sites))
        if kind is ScopeKind.ZONE:
            return groups(racks, fleet.racks.zone, len(fleet.zones))
        return racks

    @property
    def _inlet_c(self) -> Floats:
        meters = self._fleet.meters
        racks = METER_TARGETS.index("rack")
        here = (meters.kind == _INLET_METER) & (meters.target_kind == racks)
        read = self._read.meter_temp_c[:, here]
        return _most_by(read, meters.target[here], len(self._fleet.racks))

    # --- Cooling, links --------------------------------------------------------------------------

    def _cooling(self, name: str, table: Table) -> Floats:
        fleet = self._fleet
        load = _grouped(self._rack_w, fleet.racks.zone, len(fleet.zones))
        capacity = table.columns["cooling_capacity_w"]
        if name == "cooling_load_w":
            return load
        if name == "cooling_headroom_w":
            return np.asarray(capacity - load)
        if name == "cooling_use":
            return _ratio(load, capacity)
        slope = _slope(load, self._read.step_s)
        return slope if name == "cooling_slope_w_per_s" else _exhausted_in_s(capacity - load, slope)

    def _link(self, name: str, table: Table) -> Floats:
        link, capacity = self._read.link, table.columns["link_capacity_bits_per_s"]
        if name in ("retransmits_per_s", "latency_s"):
            return link[name]
        if name == "latency_inflation":
            return _ratio(link["latency_s"], np.nan_to_num(self._fleet.links.latency_s))
        busiest = np.fmax(link["tx_bytes_per_s"], link["rx_bytes_per_s"]) * 8.0
        # One that fell silent is taken to be full; of one never heard nothing is known.
        silent = np.isnan(busiest) & ~np.isnan(self._read.link_age_s)
        load = np.where(silent, capacity, busiest)
        if name == "link_load_bits_per_s":
            return load
        return (
            np.asarray(capacity - load)
            if name.startswith("link_headroom")
            else _ratio(load, capacity)
        )

    # --- Silence ---------------------------------------------------------------------------------

    @cached_property
    def _stale_gpu(self) -> Bools:
        # The age is of a row, whatever of it was asked for.
        return ~(self._read.gpu_age_s < self._read.fresh_s)

    @cached_property
    def _stale_node(self) -> Bools:
        stale = _sums(self._stale_gpu.astype(np.float64), self._fleet.gpu_bounds) > 0
        return stale & np.isnan(self._metered("node", len(self._fleet.nodes)))

    def _nodes_in(self, kind: ScopeKind) -> Floats:
        nodes = np.ones((1, len(self._fleet.nodes)))
        return self._of_nodes(kind, nodes)

    def _stale_nodes(self, kind: ScopeKind) -> Floats:
        return self._of_nodes(kind, self._stale_node.astype(np.float64))

    def _of_nodes(self, kind: ScopeKind, nodes: Floats) -> Floats:
        fleet = self._fleet
        racks = _sums(nodes, fleet.node_bounds)
        if kind is ScopeKind.SITE:
            return _grouped(racks, fleet.racks.site, len(fleet.sites))
        return racks

    def _silence(self, kind: ScopeKind, name: str) -> NDArray[Any] | None:
        if kind is ScopeKind.LINK:
            stale = np.isnan(self._read.link["tx_bytes_per_s"])
            return stale if name == "stale" else self._read.link_age_s
        if kind not in _PLACED:
            return None
        if name == "age_s":
            return self._over(kind, self._read.gpu_age_s, _most, _most_by)
        return self._over(kind, self._stale_gpu.astype(np.float64), _sums, _grouped) > 0


# --- Arrays of times by things -------------------------------------------------------------------


def _as_power(load_w: Floats) -> Power:
    nothing = np.zeros(len(load_w))
    return Power(
        budget_w=nothing,
        drawn_w=load_w,
        load_w=load_w,
        measured_w=nothing,
        read_w=nothing,
        reserved_w=nothing,
    )


def _ratio(part: Floats, whole: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def _sums(values: Floats, bounds: Ints) -> Floats:
    """Return the sums of runs of columns; NaN where a run has one."""
    return _over_runs(np.add, values, bounds, 0.0)


def _most(values: Floats, bounds: Ints) -> Floats:
    """Return the largest known value of each run of columns; NaN where none is known."""
    return _over_runs(np.fmax, values, bounds, np.nan)


def _over_runs(join: np.ufunc, values: Floats, bounds: Ints, empty: float) -> Floats:
    out = np.full((len(values), len(bounds) - 1), empty)
    filled = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(filled):
        out[:, filled] = join.reduceat(values, bounds[filled], axis=1)
    return out


def _grouped(values: Floats, group: Ints, count: int) -> Floats:
    """Return the sums of the columns of each group; -1 is none."""
    return _by_group(np.add, values, group, count, 0.0)


def _most_by(values: Floats, group: Ints, count: int) -> Floats:
    return _by_group(np.fmax, values, group, count, np.nan)


def _by_group(join: np.ufunc, values: Floats, group: Ints, count: int, empty: float) -> Floats:
    order = np.argsort(group, kind="stable")
    order = order[group[order] >= 0]
    bounds = np.searchsorted(group[order], np.arange(count + 1))
    return _over_runs(join, values[:, order], bounds, empty)


def _slope(values: Floats, step_s: float) -> Floats:
    """Return how values move, per second, over the last minutes; NaN at the beginning."""
    half = max(1, round(SLOPE_OVER_S / step_s / 2))
    out = np.full(values.shape, np.nan)
    if len(values) >= 2 * half:
        sums = np.cumsum(np.vstack([np.zeros((1, values.shape[1])), values]), axis=0)
        means = (sums[half:] - sums[:-half]) / half
        out[2 * half - 1 :] = (means[half:] - means[:-half]) / (half * step_s)
    return out


def _exhausted_in_s(left: Floats, slope: Floats) -> Floats:
    with np.errstate(all="ignore"):
        wait = np.where(slope > 0, left / slope, np.inf)
    wait = np.where(np.isnan(slope) | np.isnan(left), np.nan, wait)
    return np.where(left <= 0, 0.0, wait)
