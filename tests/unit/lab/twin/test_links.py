import numpy as np
import pytest

from lab.fleet import inventory, make_fleet
from lab.twin.conditions import Conditions
from lab.twin.links import (
    link_table,
    lossy_fabric_share,
    lossy_tcp_bytes_per_s,
)


def test_links_are_those_of_the_inventory_in_its_order() -> None:
    fleet = make_fleet(gpus=11_000)
    assert len(fleet.sites) == 3
    links = link_table(fleet)
    for i, entry in enumerate(inventory(fleet)["links"]):
        assert links.names[i] == entry["name"]
        assert fleet.sites[links.site[i]] == entry["site"]
        assert links.capacity_bytes_per_s[i] * 8 == pytest.approx(entry["capacity_bits_per_s"])
        assert links.base_latency_s[i] == entry["latency_s"]
        assert links.control_share[i] == entry["control_share"]
        if "peer_site" in entry:
            assert fleet.sites[links.wan_peer[i - links.wan_from]] == entry["peer_site"]
    assert len(links.names) == len(inventory(fleet)["links"])


def test_conditions_have_a_place_for_each_link() -> None:
    for gpus in (8, 64, 1536, 11_000):
        fleet = make_fleet(gpus=gpus)
        assert len(Conditions(fleet).link_loss) == len(link_table(fleet).names)


def test_tcp_reaches_what_mathis_and_others_say() -> None:
    """8948 B a segment, 100 ms, one segment in 10,000 lost: 11 MB/s a stream."""
    loss = np.array([0.0, 1e-4, 4e-4])
    reach = lossy_tcp_bytes_per_s(loss=loss, round_trip_s=np.full(3, 0.1), streams=1)
    assert reach[0] == np.inf
    assert reach[1] == pytest.approx(10.96e6, rel=1e-3)
    assert reach[2] == pytest.approx(reach[1] / 2)


def test_a_fabric_that_loses_packets_sends_a_window_again_for_each() -> None:
    loss = np.array([0.0, 1e-3, 1e-2, 1.0])
    share = lossy_fabric_share(
        loss=loss, bytes_per_s=np.full(4, 42.5e9), round_trip_s=np.full(4, 28e-6)
    )
    window = 42.5e9 * 28e-6 / 4096
    assert share[0] == 1.0
    assert share[1] == pytest.approx(0.999 / (0.999 + 0.001 * window))
    assert share[1] > 0.75
    assert share[2] < 0.3
    assert share[3] == 0.0
