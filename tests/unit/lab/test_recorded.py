"""A fleet that wants what a recording drew."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
import yaml

from headroom.replay.description import MACHINES
from headroom.replay.recording import Recording
from lab.fleet import GPUS_PER_NODE
from lab.recorded import Demand, RecordedTwin, make_recorded_fleet, recorded_inventory

NODES = 20


def recording(*readings: tuple[float, int, float]) -> Recording:
    """Return a recording of :data:`NODES` nodes from (time, node, power)."""
    t_s, node, power_w = zip(*sorted(readings), strict=True)
    return Recording(
        title="made",
        hardware=MACHINES["h100-immersed"],
        nodes=tuple(f"node_{n}" for n in range(NODES)),
        runs=("run",),
        t_s=array("d", t_s),
        node=array("q", node),
        run=array("q", [0] * len(t_s)),
        power_w=array("d", power_w),
    )


def steady(power_w: float, *, seconds: int = 200) -> Recording:
    return recording(*((float(t), n, power_w) for t in range(0, seconds, 2) for n in range(NODES)))


def played(made: Recording, seconds: float) -> RecordedTwin:
    twin = RecordedTwin(make_recorded_fleet(NODES), Demand(made), seed=3)
    twin.advance(60.0)
    twin.begin()
    twin.advance(seconds)
    return twin


@pytest.mark.parametrize("power_w", [3_000.0, 5_000.0, 6_200.0])
def test_nodes_draw_what_they_drew(power_w: float) -> None:
    twin = played(steady(power_w), 100.0)
    assert twin.node_w == pytest.approx(np.full(NODES, power_w), rel=0.02)


def test_before_and_after_the_recording_nodes_idle() -> None:
    idle_w = played(steady(6_000.0, seconds=60), 180.0).node_w
    assert (idle_w < 3_000.0).all()


def test_a_cap_holds_what_is_drawn_and_letting_go_brings_it_back() -> None:
    twin = played(steady(6_000.0), 60.0)
    gpus = np.arange(NODES * GPUS_PER_NODE)
    twin.set_caps(gpus, cap_w=np.full(len(gpus), 300.0), cap_mhz=np.full(len(gpus), np.inf))
    twin.advance(10.0)
    assert (twin.power_w <= 300.0 + 1e-6).all()
    free = np.full(len(gpus), np.inf)
    twin.set_caps(gpus, cap_w=free, cap_mhz=free)
    twin.advance(20.0)
    assert twin.node_w == pytest.approx(np.full(NODES, 6_000.0), rel=0.02)


def test_a_meters_fault_wants_nothing() -> None:
    with_faults = recording((0.0, 0, 5_000.0), (2.0, 0, 0.0), (4.0, 0, -40.0), (6.0, 0, 5_000.0))
    assert Demand(with_faults).at(3.0)[0] == 5_000.0


def test_each_row_hangs_on_a_feed_of_its_own_that_carries_its_share_of_the_peak() -> None:
    demand, fleet = Demand(steady(6_000.0)), make_recorded_fleet(NODES)
    (site,) = yaml.safe_load(recorded_inventory(fleet, demand, feed_shares=(0.9, 1.2)))["sites"]
    usable = {
        domain["name"]: domain["capacity_w"] * domain["derating"]
        for domain in site["power_domains"]
        if domain["kind"] == "feed"
    }
    nodes = {"A": 0, "B": 0}
    for rack in site["racks"]:
        nodes[rack["row"]] += len(rack["nodes"])
        assert ("feed_a" in rack, "feed_b" in rack) == (rack["row"] == "A", rack["row"] == "B")
    assert usable["feed-a"] == pytest.approx(0.9 * 6_000.0 * nodes["A"], rel=1e-4)
    assert usable["feed-b"] == pytest.approx(1.2 * 6_000.0 * nodes["B"], rel=1e-4)
