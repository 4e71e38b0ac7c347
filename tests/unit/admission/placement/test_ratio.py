"""Communication beside computing: the narrowest link on the way, and a warning above 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from admission.core.placement.place import place
from admission.core.request import Placement
from fleet.snapshot import LINK_KINDS, FleetArrays
from physics.comm import ring_all_reduce_s
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import make_cluster, make_request, placed

#: Each rack has an uplink of 800 Gbit/s, each site a WAN link of 100 Gbit/s.
FLEET = make_arrays(sites=2, racks=4, nodes=2, gpus=8)


def find(fleet: FleetArrays, **values: Any) -> Placement:
    wants = {"collective_bytes_per_step": 2e9, "step_s": 1.0, **values}
    return placed(place(make_cluster(fleet), make_request(**wants)))


def with_nvlink(fleet: FleetArrays, bits_per_s: float) -> FleetArrays:
    """Have the first uplink of each rack be the NVLink domain of its first node instead."""
    is_uplink = fleet.links.rack >= 0
    first = fleet.node_bounds[:-1][np.maximum(fleet.links.rack, 0)]
    links = replace(
        fleet.links,
        kind=np.where(is_uplink, LINK_KINDS.index("nvlink"), fleet.links.kind),
        node=np.where(is_uplink, first, -1),
        capacity_bits_per_s=np.where(is_uplink, bits_per_s, fleet.links.capacity_bits_per_s),
    )
    return replace(fleet, links=links)


def test_racks_talk_through_their_uplinks() -> None:
    found = find(FLEET, gpus=32)
    expected = ring_all_reduce_s(ranks=32, message_bytes=2e9, link_bytes_per_s=1e11, latency_s=2e-6)
    assert found.comm_ratio == pytest.approx(expected)
    assert found.comm_model.startswith("ring through s")
    assert "(800 Gbit/s)" in found.comm_model
    assert found.warnings == ()


def test_sites_talk_over_the_wan_and_wait_for_it() -> None:
    found = find(FLEET, gpus=96, collective_bytes_per_step=4e10)
    assert found.comm_ratio is not None
    assert found.comm_ratio == pytest.approx(2 * 95 / 96 * 4e10 / 1.25e10 + 190 * 8e-3)
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("communication takes 7.9 times as long as computing (ring")
    assert "wan (100 Gbit/s)" in found.warnings[0]


def test_within_a_node_it_is_the_nvlink_domain() -> None:
    found = find(with_nvlink(FLEET, 3.6e12), gpus=8, sites=("s1",))
    assert found.comm_ratio == pytest.approx(
        ring_all_reduce_s(ranks=8, message_bytes=2e9, link_bytes_per_s=4.5e11, latency_s=2e-6)
    )
    assert "3.60 Tbit/s" in found.comm_model


def test_a_slower_gang_has_more_time_for_it() -> None:
    fleet = make_arrays(racks=4, nodes=2, gpus=8, zone_w=50_000.0)
    full = find(make_arrays(racks=4, nodes=2, gpus=8), gpus=64)
    capped = find(fleet, gpus=64, lowest_cap_w=200.0, max_slowdown=0.6)
    assert capped.power_cap_w is not None
    assert capped.comm_ratio == pytest.approx((full.comm_ratio or 0.0) * (1.0 - capped.slowdown))


@pytest.mark.parametrize(
    "values",
    [
        {"gpus": 8},
        {"gpus": 32, "collective_bytes_per_step": None},
        {"gpus": 32, "step_s": None},
        {"gpus": 1},
    ],
)
def test_where_something_is_not_known_there_is_no_ratio(values: dict[str, Any]) -> None:
    found = find(FLEET, **values)
    assert (found.comm_ratio, found.comm_model, found.warnings) == (None, "", ())
