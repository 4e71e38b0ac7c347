"""A fleet whose nodes want the power that real nodes drew, and whose agents obey.

What runs on them is a recording; what is allowed is the server's word. A node draws what it drew
in the recording as long as no cap holds its GPUs to less, so a budget that the recording breaks can
be seen broken, defended, and given free again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from headroom.replay.recording import Recording
from lab.demo import Stage, node_agents
from lab.fleet import COMFORTABLE, GPUS_PER_NODE, NODES_PER_RACK, Fleet, Rack, inventory
from lab.training import Load
from lab.twin import NO_FAILURES, Twin
from lab.twin.state import AWAKE_BASE, AWAKE_SLOPE

Array = NDArray[np.float64]

SITE = "recorded"
#: A recording may ask for more than 1, a GPU at its rating, but for no more than this.
_MOST_ACTIVITY = 1.5
#: Of the feeds. Their capacity is raised by it, so that they may carry the share asked for.
_DERATING = 0.8
_NEVER, _NOTHING = np.zeros(1), np.zeros(1)


class Demand:
    """The power that each node of a recording wants at any time, W: linear between its readings.

    Readings at or below zero are a meter's fault, and say nothing. Before the first reading and
    after the last one a node wants nothing but to idle.
    """

    def __init__(self, recording: Recording) -> None:
        t_s, power_w = np.asarray(recording.t_s), np.asarray(recording.power_w)
        node, good = np.asarray(recording.node), np.asarray(recording.power_w) > 0.0
        self._series = [
            # A node without a good reading wants nothing.
            (t_s[here] - recording.start_s, power_w[here]) if here.any() else (_NEVER, _NOTHING)
            for here in (good & (node == n) for n in range(len(recording.nodes)))
        ]

    def __len__(self) -> int:
        return len(self._series)

    def at(self, t_s: float) -> Array:
        """Return the wanted power of each node, ``t_s`` seconds after the first reading."""
        return np.array([np.interp(t_s, times, powers, 0.0, 0.0) for times, powers in self._series])

    def total_peak_w(self, nodes: slice) -> float:
        """Return the most that ``nodes`` want together."""
        moments = np.unique(np.concatenate([times for times, _ in self._series[nodes]]))
        total = sum(np.interp(moments, *series) for series in self._series[nodes])
        return float(np.max(total))


class RecordedTwin(Twin):
    """The twin of such a fleet. The recording begins when :meth:`begin` is called."""

    def __init__(self, fleet: Fleet, demand: Demand, *, seed: int) -> None:
        self._demand = demand
        self._began_s = np.inf
        super().__init__(fleet, seed=seed, failures=NO_FAILURES)

    def begin(self) -> None:
        """Let the recording begin now."""
        self._began_s = self.now_s

    def _set_busy(self, busy: NDArray[np.bool_]) -> None:
        super()._set_busy(np.ones_like(busy))

    def _work(self, load: Load) -> None:
        """Set the activity at which each GPU, at full clocks, draws its share of the demand."""
        self.load = load
        parts = self.parts
        wanted_w = np.zeros(len(self.fleet.nodes))
        if self.now_s >= self._began_s:
            wanted_w = self._demand.at(self.now_s - self._began_s)
        # The host's share holds what the supplies lose of the GPUs' power, as it was a step ago.
        gpu_w = np.repeat((wanted_w - self.host_w) / GPUS_PER_NODE, GPUS_PER_NODE)
        rise_w = parts.awake_w - parts.idle_w
        waking = (gpu_w - parts.idle_w - AWAKE_BASE * rise_w) / (
            AWAKE_SLOPE * rise_w + parts.dynamic_w
        )
        awake = (gpu_w - parts.awake_w) / parts.dynamic_w
        activity = np.where(AWAKE_BASE + AWAKE_SLOPE * waking < 1.0, waking, awake)
        self.activity = activity.clip(0.0, _MOST_ACTIVITY)
        self._awake = np.minimum(AWAKE_BASE + AWAKE_SLOPE * self.activity, 1.0)


def make_recorded_fleet(nodes: int) -> Fleet:
    """Return a fleet of ``nodes`` nodes in two rows of racks, each row on a feed of its own."""
    racks = -(-nodes // NODES_PER_RACK)
    first_row = -(-racks // 2)
    return Fleet(
        tuple(
            Rack(
                site=SITE,
                row="A" if at < first_row else "B",
                position=at if at < first_row else at - first_row,
                kind=COMFORTABLE,
                nodes=min(NODES_PER_RACK, nodes - at * NODES_PER_RACK),
            )
            for at in range(racks)
        )
    )


def recorded_inventory(fleet: Fleet, demand: Demand, *, feed_shares: tuple[float, float]) -> str:
    """Return the inventory as YAML: each feed may carry its share of the highest demand of its row.

    No feed has another to stand in for it, and there are no meters: the GPUs are what is known.
    """
    document: dict[str, Any] = inventory(fleet, networked=False)
    (site,) = document["sites"]
    split = sum(rack.nodes for rack in fleet.racks if rack.row == "A")
    rows = {"A": slice(0, split), "B": slice(split, len(fleet.nodes))}
    peaks_w = {row: demand.total_peak_w(nodes) for row, nodes in rows.items()}
    usable_w = {
        f"feed-{row.lower()}": share * peaks_w[row]
        for row, share in zip(rows, feed_shares, strict=True)
    }
    for domain in site["power_domains"]:
        domain.pop("pair", None)
        domain.pop("side", None)
        if domain["name"] in usable_w:
            domain["capacity_w"] = round(usable_w[domain["name"]] / _DERATING)
            domain["derating"] = _DERATING
    for rack in site["racks"]:
        del rack["feed_b" if rack["row"] == "A" else "feed_a"]
    text: str = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)
    return text


def recorded_stage(recording: Recording, *, feed_shares: tuple[float, float], seed: int) -> Stage:
    """Return the fleet that plays ``recording`` once its agents push."""
    demand = Demand(recording)
    fleet = make_recorded_fleet(len(demand))
    twin = RecordedTwin(fleet, demand, seed=seed)
    text = recorded_inventory(fleet, demand, feed_shares=feed_shares)
    return Stage(twin, text, node_agents(fleet), begin=twin.begin)
