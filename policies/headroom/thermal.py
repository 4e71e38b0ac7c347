"""Heat of GPUs: how far each is from slowdown, where it settles, and when it throttles.

What is not read is assumed at its rated power, and never to be cooler than it was read last. A GPU
that was never heard is taken to be at its slowdown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fleet.groups import at, least_by, most_by, ratio, sum_by
from fleet.tables import METER_KINDS, METER_TARGETS, FleetArrays
from physics.thermal import power_at_temperature_w, steady_state_c, time_to_throttle_s
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.inputs import Past, still_enough
from policies.scopes import ScopeKind
from telemetry.live_frame import Readings
from telemetry.summary import GpuSummary

#: Without a fit a GPU is taken for one that its maker lets run at rated power in air this warm …
DESIGN_AMBIENT_C = 40.0
#: … that is cooled by air this warm, where the inventory states no supply temperature …
UNKNOWN_SUPPLY_C = 30.0
#: … that takes so long to warm by 63 % of what a change of power brings …
DEFAULT_TIME_CONSTANT_S = 60.0
#: … and is worth this much beside a fit without error.
DEFAULT_TRUST = 0.3
#: Slowdown of a GPU that neither reads it nor has it rated.
UNKNOWN_SLOWDOWN_C = 85.0
#: The laws refuse what is colder, as a wrong reading, fit or rating may be.
ABSOLUTE_ZERO_C = -273.15

_TEMPERATURE = METER_KINDS.index("temperature")
_ON_ZONE = METER_TARGETS.index("cooling_zone")
_ON_RACK = METER_TARGETS.index("rack")
_ON_NODE = METER_TARGETS.index("node")


@dataclass(frozen=True, eq=False)
class Parts:
    """Thermal parameters of each GPU: its fit, or defaults."""

    resistance_c_per_w: Floats
    capacitance_j_per_c: Floats
    ambient_c: Floats
    limit_c: Floats
    trust: Floats


@dataclass(frozen=True, eq=False)
class Heat:
    """Heat of the scopes of one kind; of groups that of their tightest GPU. NaN: unknown.

    ``trust`` is the mean over GPUs: 0 for one that is stale.
    """

    margin_c: Floats
    mem_margin_c: Floats
    shutdown_margin_c: Floats
    steady_margin_c: Floats
    throttle_in_s: Floats
    hottest_c: Floats
    trust: Floats
    throttling: Floats
    gpus: Floats


@dataclass(frozen=True, eq=False)
class GpuTemperatures:
    """The readings that heat is judged by, aligned with GPUs. Stale ones are in it, too."""

    temp_c: Floats
    mem_c: Floats
    limit_c: Floats
    #: core read fresh
    read: Bools
    heard: Bools
    throttling: Bools


@dataclass(frozen=True, eq=False)
class Sources:
    """GPUs as sources of heat: temperatures, inlets and parameters, each made when asked for.

    ``gpus`` draw what they do: a what-if of other loads has the same temperatures.
    """

    gpus: GpuSummary
    past: Past

    @cached_property
    def seen(self) -> GpuTemperatures:
        return temperatures(self.gpus)

    @cached_property
    def inlets(self) -> Inlets:
        return inlets(self.gpus.readings)

    @cached_property
    def parts(self) -> Parts:
        fleet, gpus = self.gpus.readings.fleet, self.gpus
        made = parts(fleet, self.past, self.seen, gpus.rated_w, self.inlets.rack_last_c)
        return as_settled(made, self.seen, gpus.load_w, self.past.gpu_still_s)


def temperatures(gpus: GpuSummary) -> GpuTemperatures:
    """Return the temperatures and slowdown limits in the readings that ``gpus`` sum up."""
    limit_c = np.where(np.isnan(gpus.slowdown_c), UNKNOWN_SLOWDOWN_C, gpus.slowdown_c)
    return GpuTemperatures(
        temp_c=np.maximum(gpus.temp_c.astype(np.float64), ABSOLUTE_ZERO_C),
        mem_c=gpus.temp_mem_c.astype(np.float64),
        limit_c=np.maximum(limit_c, ABSOLUTE_ZERO_C),
        read=gpus.fresh & ~np.isnan(gpus.temp_c),
        heard=~np.isnan(gpus.age_s),
        throttling=gpus.throttling,
    )


def parts(
    fleet: FleetArrays, past: Past, seen: GpuTemperatures, rated_w: Floats, inlet_c: Floats
) -> Parts:
    """Return the thermal parameters of each GPU. ``inlet_c`` is aligned with racks."""
    fits, limit_c = past.thermal, seen.limit_c
    rise_c = np.maximum(limit_c - DESIGN_AMBIENT_C, 1.0)
    by_design = rise_c / np.maximum(rated_w, 1.0)
    unfitted = np.isnan(fits.resistance_c_per_w)
    resistance = np.where(unfitted, by_design, fits.resistance_c_per_w)
    capacitance = np.where(
        np.isnan(fits.capacitance_j_per_c),
        DEFAULT_TIME_CONSTANT_S / resistance,
        fits.capacitance_j_per_c,
    )
    rack = fleet.nodes.rack[fleet.gpus.node]
    supply_c = at(fleet.zones.supply_c, fleet.racks.zone)
    supply_c = np.where(np.isnan(supply_c), UNKNOWN_SUPPLY_C, supply_c)
    supply_c = np.maximum(np.fmax(supply_c, inlet_c), ABSOLUTE_ZERO_C)
    return Parts(
        resistance_c_per_w=resistance,
        capacitance_j_per_c=capacitance,
        ambient_c=np.where(np.isnan(fits.ambient_c), supply_c[..., rack], fits.ambient_c),
        limit_c=limit_c,
        trust=np.where(np.isnan(fits.trust), DEFAULT_TRUST, fits.trust),
    )


def as_settled(parts: Parts, seen: GpuTemperatures, load_w: Floats, still_s: Floats) -> Parts:
    """Return ``parts`` with the ambient that readings imply for GPUs whose heat has settled.

    A fit may be an hour old, and the air has changed since. Where power has been still for long
    enough, the temperature that is read is the one at which the GPU settles.
    """
    settled = seen.read & still_enough(
        still_s, parts.resistance_c_per_w * parts.capacitance_j_per_c
    )
    explained_c = np.maximum(seen.temp_c - load_w * parts.resistance_c_per_w, ABSOLUTE_ZERO_C)
    ambient_c = np.where(settled, explained_c, parts.ambient_c)
    return Parts(
        parts.resistance_c_per_w, parts.capacitance_j_per_c, ambient_c, parts.limit_c, parts.trust
    )


def settles_at_w(
    *, limit_c: Floats, ambient_c: Floats, resistance_c_per_w: Floats, margin_c: float = 0.0
) -> Floats:
    """Return the power at which GPUs settle ``margin_c`` below their limits, W.

    0 where that is none; inf where there is no limit (inf).
    """
    is_limited = np.isfinite(limit_c)
    limit_w = power_at_temperature_w(
        temp_c=np.maximum(np.where(is_limited, limit_c - margin_c, 0.0), ABSOLUTE_ZERO_C),
        ambient_c=np.maximum(ambient_c, ABSOLUTE_ZERO_C),
        resistance_c_per_w=resistance_c_per_w,
    )
    return np.where(is_limited, limit_w, np.inf)


def of_gpus(fleet: FleetArrays, parts: Parts, seen: GpuTemperatures, load_w: Floats) -> Heat:
    """Return the heat of every GPU under the load ``load_w``, W."""
    model_c = steady_state_c(
        power_w=load_w, ambient_c=parts.ambient_c, resistance_c_per_w=parts.resistance_c_per_w
    )
    # Without a reading: at its slowdown, or where it was last.
    core_c = np.where(np.isnan(seen.temp_c), parts.limit_c, seen.temp_c)
    settled_c = np.where(seen.read, model_c, np.maximum(model_c, core_c))
    worst_c = np.where(seen.read, core_c, settled_c)
    mem_c = np.where(seen.heard, seen.mem_c, fleet.gpus.slowdown_mem_c)
    trust = np.where(seen.read, parts.trust, 0.0)
    return Heat(
        margin_c=parts.limit_c - worst_c,
        mem_margin_c=fleet.gpus.slowdown_mem_c - mem_c,
        shutdown_margin_c=fleet.gpus.shutdown_c - worst_c,
        steady_margin_c=parts.limit_c - settled_c,
        throttle_in_s=time_to_throttle_s(
            temp_c=core_c,
            limit_c=parts.limit_c,
            power_w=load_w,
            ambient_c=parts.ambient_c,
            resistance_c_per_w=parts.resistance_c_per_w,
            capacitance_j_per_c=parts.capacitance_j_per_c,
        ),
        hottest_c=np.where(seen.read, seen.temp_c, np.nan),
        trust=trust,
        throttling=seen.throttling.astype(np.float64),
        gpus=np.ones(load_w.shape[-1]),
    )


def grouped(heat: Heat, group: Ints, groups: int) -> Heat:
    """Return the heat of groups: of nodes from GPUs, of racks from nodes, and so on."""
    gpus = sum_by(heat.gpus, group, groups)
    return Heat(
        margin_c=least_by(heat.margin_c, group, groups),
        mem_margin_c=least_by(heat.mem_margin_c, group, groups),
        shutdown_margin_c=least_by(heat.shutdown_margin_c, group, groups),
        steady_margin_c=least_by(heat.steady_margin_c, group, groups),
        throttle_in_s=least_by(heat.throttle_in_s, group, groups),
        hottest_c=most_by(heat.hottest_c, group, groups),
        trust=ratio(sum_by(np.nan_to_num(heat.trust) * heat.gpus, group, groups), gpus),
        throttling=sum_by(heat.throttling, group, groups),
        gpus=gpus,
    )


def of_all(fleet: FleetArrays, gpus: Heat) -> dict[ScopeKind, Heat]:
    """Return the heat of GPUs, nodes, racks, zones and sites."""
    nodes = grouped(gpus, fleet.gpus.node, len(fleet.nodes))
    racks = grouped(nodes, fleet.nodes.rack, len(fleet.racks))
    return {
        ScopeKind.GPU: gpus,
        ScopeKind.NODE: nodes,
        ScopeKind.RACK: racks,
        ScopeKind.ZONE: grouped(racks, fleet.racks.zone, len(fleet.zones)),
        ScopeKind.SITE: grouped(racks, fleet.racks.site, len(fleet.sites)),
    }


def columns(heat: Heat) -> dict[str, Any]:
    """Return the thermal columns of one kind."""
    return {
        "thermal_margin_c": heat.margin_c,
        "thermal_mem_margin_c": heat.mem_margin_c,
        "shutdown_margin_c": heat.shutdown_margin_c,
        "thermal_steady_margin_c": heat.steady_margin_c,
        "throttle_in_s": heat.throttle_in_s,
        "thermal_confidence": heat.trust,
        "hottest_c": heat.hottest_c,
        "throttling": heat.throttling,
        "throttling_share": ratio(heat.throttling, heat.gpus),
        "gpus": heat.gpus,
    }


@dataclass(frozen=True, eq=False)
class Inlets:
    """Warmest temperature that meters read, °C; NaN where none does.

    ``rack_last_c`` has stale readings, too: air is not cooler for falling silent.
    """

    site_c: Floats
    zone_c: Floats
    rack_c: Floats
    rack_last_c: Floats


def inlets(readings: Readings) -> Inlets:
    """Return the readings of temperature meters at zones, racks and nodes."""
    fleet, meters = readings.fleet, readings.fleet.meters
    here = meters.kind == _TEMPERATURE
    record = readings.frame.fields("meter", meters.ids[here], "ts", "temp_c")
    fresh_c = np.where(readings.is_fresh(record["ts"]), record["temp_c"], np.nan)
    rack_c, rack_last_c = (
        _inlet_of_racks(fleet, here, each.astype(np.float64))
        for each in (fresh_c, record["temp_c"])
    )
    zones = len(fleet.zones)
    on_zone = meters.target_kind[here] == _ON_ZONE
    zone_c = np.fmax(
        most_by(fresh_c[..., on_zone], meters.target[here][on_zone], zones),
        most_by(rack_c, fleet.racks.zone, zones),
    )
    site_c = np.fmax(
        most_by(rack_c, fleet.racks.site, len(fleet.sites)),
        most_by(zone_c, fleet.zones.site, len(fleet.sites)),
    )
    return Inlets(site_c, zone_c, rack_c, rack_last_c)


def _inlet_of_racks(fleet: FleetArrays, here: Bools, reading_c: Floats) -> Floats:
    kind, target = fleet.meters.target_kind[here], fleet.meters.target[here]
    on_node, count = kind == _ON_NODE, len(fleet.racks)
    return np.fmax(
        most_by(reading_c[..., kind == _ON_RACK], target[kind == _ON_RACK], count),
        most_by(reading_c[..., on_node], fleet.nodes.rack[target[on_node]], count),
    )
