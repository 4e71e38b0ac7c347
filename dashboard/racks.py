"""One rack now: nodes and GPUs with their readings, feeds, totals. Values for the Rack page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboard import scale, units
from dashboard.state import View
from fleet.density import excess
from fleet.tables import COOLING_KINDS, FleetArrays
from headroom.contracts import ThrottleCause
from telemetry.live_frame import is_fresh
from telemetry.summary import FULL_HEAT_MARGIN_C, RackSummary
from telemetry.throttle import THROTTLE_BITS

#: How GPUs may be colored: name and label.
GPU_METRICS = {
    "heat": "Heat",
    "power": "Power",
    "clocks": "Clocks",
    "throttle": "Throttle",
    "age": "Age",
}
DEFAULT_GPU_METRIC = "heat"
GPU_LEGENDS = {
    "heat": (
        "0 °C",
        f"{FULL_HEAT_MARGIN_C:.0f} °C",
        "to the slowdown temperature; the number is °C",
    ),
    "power": ("0 %", "100 %", "of the power limit left; the number is W"),
    "clocks": ("0 %", "100 %", "of the highest SM clock; the number is MHz"),
    "throttle": ("throttling", "not", "the number counts causes"),
    "age": ("stale", "now", "age of the reading"),
}


@dataclass(frozen=True)
class GpuCell:
    """One GPU. NaN is unknown."""

    id: int
    index: int
    level: int
    #: what is written in the cell
    figure: str
    #: what is read out
    words: str


@dataclass(frozen=True)
class NodeLine:
    """One node."""

    id: int
    name: str
    position_u: int
    height_u: int
    load_w: float
    enforced_w: float
    hottest_c: float
    heat_margin_c: float
    clock_ratio: float
    throttling: int
    age_s: float
    stale: bool
    seen: bool
    gpus: list[GpuCell]

    @property
    def state(self) -> str:
        """ "never heard from", "stale" or nothing."""
        if not self.seen:
            return "never heard from"
        return "stale" if self.stale else ""


@dataclass(frozen=True)
class Feed:
    """A feed of the rack. W."""

    side: str
    name: str
    load_w: float
    usable_w: float
    left_w: float
    #: what it carries when the other half of its pair fails; NaN without one
    alone_w: float

    @property
    def alone_left_w(self) -> float:
        return self.usable_w - self.alone_w

    @property
    def bar_label(self) -> str:
        return (
            f"feed {self.name}: {units.kilowatts(self.load_w)} kW"
            f" of {units.kilowatts(self.usable_w)} kW usable"
        )


@dataclass(frozen=True)
class RackNow:
    """One rack."""

    id: int
    name: str
    site: str
    row: str
    height_u: int
    zone: str
    #: that it is too dense for its kind of cooling, in a sentence; empty: it is not, or not known
    density: str
    load_w: float
    budget_w: float
    #: the budget by the inventory, of which a restriction may leave less
    inventory_w: float
    measured_w: float
    enforced_w: float
    hottest_c: float
    heat_margin_c: float
    link_use: float
    age_s: float
    seen: bool
    throttling: int
    #: GPUs that throttle though nobody asked for it
    unexpected: int
    gpus: int
    stale_nodes: int
    nodes: list[NodeLine]
    feeds: list[Feed]

    @property
    def left_w(self) -> float:
        return self.budget_w - self.load_w

    @property
    def is_over(self) -> bool:
        return self.left_w < 0

    @property
    def is_lowered(self) -> bool:
        return self.budget_w < self.inventory_w

    @property
    def share(self) -> float:
        return self.load_w / self.budget_w if self.budget_w > 0 else math.nan


def rack_now(view: View, row: int, metric: str, stale_after_s: float) -> RackNow:
    """Return the rack in a row of the inventory, its GPUs colored by ``metric``."""
    racks, now = view.fleet.racks, view.summary.racks
    nodes = _nodes(view, row, metric, stale_after_s)
    zone = int(racks.zone[row])
    return RackNow(
        id=int(racks.ids[row]),
        name=str(racks.names[row]),
        site=str(view.fleet.sites.names[racks.site[row]]),
        row=str(racks.row[row]),
        height_u=int(racks.height_u[row]),
        zone=str(view.fleet.zones.names[zone]) if zone >= 0 else "",
        density=_density(view.fleet, row),
        inventory_w=float(racks.budget_w[row]),
        **_floats(now, row),
        seen=bool(now.seen[row]),
        throttling=int(now.throttling[row]),
        unexpected=int(now.unexpected[row]),
        gpus=int(now.gpus[row]),
        stale_nodes=sum(node.stale for node in nodes),
        nodes=nodes,
        feeds=_feeds(view, row),
    )


def _density(fleet: FleetArrays, row: int) -> str:
    """Return that a rack is too dense for its kind of cooling, in words; "" where it is not."""
    zone = int(fleet.racks.zone[row])
    if zone < 0:
        return ""
    here = fleet.nodes.rack == row
    gpus_w = fleet.gpus.rated_w[here[fleet.gpus.node]].sum()
    found = excess(
        COOLING_KINDS[fleet.zones.kind[zone]],
        rated_w=float(np.nansum(fleet.nodes.host_rated_w[here]) + gpus_w),
        budget_w=float(fleet.racks.budget_w[row]),
    )
    return found.sentence if found else ""


def _floats(racks: RackSummary, row: int) -> dict[str, float]:
    names = (
        "load_w",
        "budget_w",
        "measured_w",
        "enforced_w",
        "hottest_c",
        "heat_margin_c",
        "link_use",
        "age_s",
    )
    return {name: float(getattr(racks, name)[row]) for name in names}


def _feeds(view: View, row: int) -> list[Feed]:
    domains, now = view.fleet.domains, view.summary.domains
    feeds = []
    for side, column in (("A", view.fleet.racks.feed_a), ("B", view.fleet.racks.feed_b)):
        domain = int(column[row])
        if domain < 0:
            continue
        feeds.append(
            Feed(
                side=side,
                name=str(domains.names[domain]),
                load_w=float(now.load_w[domain]),
                usable_w=float(now.usable_w[domain]),
                left_w=float(now.headroom_w[domain]),
                alone_w=float(view.alone_w[domain]),
            )
        )
    return feeds


def _nodes(view: View, rack: int, metric: str, stale_after_s: float) -> list[NodeLine]:
    fleet, now = view.fleet, view.summary.nodes
    first, last = fleet.node_bounds[rack : rack + 2].tolist()
    lines = []
    for row in range(first, last):
        lines.append(
            NodeLine(
                id=int(fleet.nodes.ids[row]),
                name=str(fleet.nodes.names[row]),
                position_u=int(fleet.nodes.position_u[row]),
                height_u=int(fleet.nodes.height_u[row]),
                load_w=float(now.load_w[row]),
                enforced_w=float(now.enforced_w[row]),
                hottest_c=float(now.hottest_c[row]),
                heat_margin_c=float(now.heat_margin_c[row]),
                clock_ratio=float(now.clock_ratio[row]),
                throttling=int(now.throttling[row]),
                age_s=float(now.age_s[row]),
                stale=bool(now.stale[row]),
                seen=bool(now.seen[row]),
                gpus=_gpus(view, row, metric, stale_after_s),
            )
        )
    return lines


def _gpus(view: View, node: int, metric: str, stale_after_s: float) -> list[GpuCell]:
    fleet = view.fleet
    first, last = fleet.gpu_bounds[node : node + 2].tolist()
    read = view.frame.rows("gpu", fleet.gpus.ids[first:last])
    age_s = view.now - read["ts"]
    seen = read["ts"] > 0
    slowdown_c = np.where(
        np.isnan(read["temp_limit_c"]), fleet.gpus.slowdown_c[first:last], read["temp_limit_c"]
    )
    heat_c = slowdown_c - read["temp_c"]
    margin = _gpu_margin(
        metric, read, heat_c, fleet.gpus.sm_max_mhz[first:last], age_s / stale_after_s
    )
    stale = ~is_fresh(read["ts"], view.now, stale_after_s)
    # What an old reading says of a limit is not "over now", it is not known.
    levels = scale.levels(np.where(stale, np.fmax(margin, 0.0), margin), stale=stale, seen=seen)
    return [
        GpuCell(
            id=int(fleet.gpus.ids[first + i]),
            index=int(fleet.gpus.index[first + i]),
            level=int(levels[i]),
            figure=_figure(metric, read[i], float(age_s[i])) if seen[i] else units.DASH,
            words=_words(read[i], float(heat_c[i]), float(age_s[i])),
        )
        for i in range(last - first)
    ]


def _gpu_margin(
    metric: str,
    read: NDArray[Any],
    heat_c: NDArray[Any],
    sm_max_mhz: NDArray[Any],
    age_share: NDArray[Any],
) -> NDArray[Any]:
    margin: NDArray[Any]
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "power":
            # At its limit a GPU does what it was told to: nothing left, but not over.
            margin = np.maximum(0.0, 1.0 - read["power_w"] / read["power_limit_w"])
        elif metric == "clocks":
            margin = read["sm_mhz"] / sm_max_mhz
        elif metric == "throttle":
            margin = np.where(read["throttle"] & THROTTLE_BITS, 0.0, 1.0)
        elif metric == "age":
            margin = np.clip(1.0 - age_share, 0.0, 1.0)
        else:
            margin = heat_c / FULL_HEAT_MARGIN_C
    return margin


def _figure(metric: str, read: Any, age_s: float) -> str:
    if metric == "throttle":
        return str(len(_causes(int(read["throttle"]))))
    if metric == "age":
        return units.age(age_s)
    field = {"heat": "temp_c", "power": "power_w", "clocks": "sm_mhz"}[metric]
    value = float(read[field])
    return units.DASH if math.isnan(value) else f"{value:.0f}"


def _words(read: Any, heat_c: float, age_s: float) -> str:
    """Return all values of a GPU as a sentence."""
    if read["ts"] == 0:
        return "never heard from"
    power, limit = float(read["power_w"]), float(read["power_limit_w"])
    parts = [
        f"{units.number(power)} of {units.number(limit)} W",
        f"{units.celsius(float(read['temp_c']))}, {units.celsius(heat_c)} to slowdown",
        f"{units.number(float(read['sm_mhz']))} MHz",
    ]
    if tokens := _causes(int(read["throttle"])):
        parts.append("throttling: " + ", ".join(tokens))
    parts.append(f"{units.age(age_s)} old")
    return " · ".join(parts)


def _causes(mask: int) -> list[str]:
    return [cause.token for cause in ThrottleCause if mask & cause]


def throttle_causes(view: View, row: int) -> list[tuple[str, int]]:
    """Return the causes for which GPUs of a rack throttle now, with how many GPUs, most first."""
    fleet = view.fleet
    first, last = fleet.node_bounds[row : row + 2].tolist()
    begin, end = fleet.gpu_bounds[first], fleet.gpu_bounds[last]
    masks = view.frame.rows("gpu", fleet.gpus.ids[begin:end])["throttle"]
    counts = [(c.token, int(((masks & c.value) != 0).sum())) for c in ThrottleCause]
    return sorted(((t, n) for t, n in counts if n), key=lambda pair: -pair[1])
