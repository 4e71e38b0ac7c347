import numpy as np
import pytest

from headroom.traffic import TrafficClass
from lab.fleet import WAN_BITS_PER_S, make_fleet
from lab.hardware import H100
from lab.training import JOB_KINDS
from lab.training.paths import NIC_SHARE
from lab.twin import Twin
from lab.twin.network import LEAVES_SHARE, WAN_BACKGROUND_BYTES_PER_S, Network
from tests.unit.lab.twin.placed import PlacedTwin, make_racks

NIC = NIC_SHARE * H100.nic_bytes_per_s


def test_paths_say_where_a_gang_stands() -> None:
    twin = PlacedTwin(make_racks(sites=2, racks=2))
    one, two, far = twin.gang(0, nodes=1), twin.gang(0, 1), twin.gang(1, 2)
    part = twin.workload.begin_task("part", JOB_KINDS["train"], 0.0, nodes=1)
    assert part is not None
    twin.hold(np.array([250, 251, 253]), part)
    paths = Network(twin, seed=1).paths
    slots = [one, two, far, part]
    assert paths.gpus[slots].tolist() == [8, 64, 64, 3]
    assert paths.nodes[slots].tolist() == [1, 8, 8, 1]
    assert paths.racks[slots].tolist() == [1, 2, 2, 1]
    assert paths.sites[slots].tolist() == [1, 1, 2, 1]
    assert paths.site[slots].tolist() == [0, 0, 0, 1]
    assert paths.nodes[0] == 0


def test_parts_of_a_node_that_are_not_side_by_side_are_one_node() -> None:
    twin = PlacedTwin(make_racks(racks=1))
    a, b = (twin.workload.begin_task("x", JOB_KINDS["train"], 0.0, nodes=1) for _ in range(2))
    assert a is not None
    assert b is not None
    twin.hold(np.array([0, 2, 4]), a)
    twin.hold(np.array([1, 3, 9]), b)
    paths = Network(twin, seed=1).paths
    assert paths.nodes[[a, b]].tolist() == [1, 2]
    assert paths.gpus[[a, b]].tolist() == [3, 3]


def test_a_healthy_fabric_holds_nobody_back() -> None:
    twin = PlacedTwin(make_racks(racks=4))
    slots = [twin.gang(0, 1), twin.gang(0, 1), twin.gang(2, 3, nodes=8)]
    network = Network(twin, seed=1)
    assert network.paths.now.rail_bytes_per_s[slots] == pytest.approx([NIC] * 3)
    assert [network.flow_share(slot) for slot in slots] == pytest.approx([1.0] * 3)


def test_a_weak_uplink_is_shared_evenly_by_those_who_leave_their_rack() -> None:
    twin = PlacedTwin(make_racks(racks=4))
    first, second, inside, elsewhere = (
        twin.gang(0, 1), twin.gang(0, 2), twin.gang(3, nodes=4), twin.gang(2, 3),
    )  # fmt: skip
    network = Network(twin, seed=1)
    twin.conditions.link_capacity_share[0] = 0.2
    uplink = 0.2 * 0.95 * network.links.capacity_bytes_per_s[0]
    even = uplink / (2 * 32 * LEAVES_SHARE)
    assert even < NIC
    assert network.paths.now.rail_bytes_per_s[[first, second]] == pytest.approx([even] * 2)
    assert network.flow_share(first) == pytest.approx(even / NIC)
    assert network.flow_share(inside) == network.flow_share(elsewhere) == 1.0
    twin.let_go(second)
    assert network.flow_share(first) == pytest.approx(min(2 * even / NIC, 1.0))
    twin.conditions.reset()
    assert network.flow_share(first) == 1.0


def test_paths_stay_the_same_object_until_something_changes() -> None:
    twin = PlacedTwin(make_racks(sites=2, racks=2))
    twin.gang(0, 1)
    network = Network(twin, seed=1)
    before = network.paths
    network.advance(1.0)
    assert network.paths is before
    for name, value in (
        ("link_capacity_share", 0.5), ("link_extra_latency_s", 0.1), ("link_jitter_s", 0.1),
        ("link_loss", 0.1), ("site_isolated", True),
    ):  # fmt: skip
        getattr(twin.conditions, name)[0] = value
        assert network.paths is not before, name
        before = network.paths
        assert network.paths is before, name
    twin.gang(0, nodes=1)
    assert network.paths is not before


def test_latency_and_jitter_are_those_of_the_worst_way() -> None:
    twin = PlacedTwin(make_racks(racks=4))
    gang, other = twin.gang(0, 1), twin.gang(2, 3)
    network = Network(twin, seed=1)
    twin.conditions.link_extra_latency_s[1] = 1e-3
    twin.conditions.link_jitter_s[1] = 2e-4
    now, alone = network.paths.now, network.paths.alone
    # Up and down, and on average as much again as the jitter.
    assert now.rail_latency_s[gang] - alone.rail_latency_s[gang] == pytest.approx(2.4e-3)
    assert now.rail_latency_s[other] == alone.rail_latency_s[other]
    assert now.wait_s[gang] > 0.0
    assert now.wait_s[other] == 0.0


def test_the_latest_of_many_is_later_than_the_latest_of_few() -> None:
    twin = PlacedTwin(make_racks(racks=2))
    few, many = twin.gang(0, 1, nodes=1), twin.gang(0, 1, nodes=6)
    network = Network(twin, seed=1)
    twin.conditions.link_jitter_s[:] = 1e-3
    wait_s = network.paths.now.wait_s
    assert 0.0 < wait_s[few] < wait_s[many]
    # Of n exponential delays the largest is H(n) of their means; one mean is in the latency.
    harmonic = sum(1.0 / n for n in range(1, 13))
    assert wait_s[many] == pytest.approx(3e-3 * (harmonic - 1.0), rel=0.01)


def test_losses_in_the_fabric_cost_those_who_cross_it() -> None:
    twin = PlacedTwin(make_racks(racks=4))
    gang, other = twin.gang(0, 1), twin.gang(2, 3)
    network = Network(twin, seed=1)
    twin.conditions.link_loss[0] = 1e-3
    assert network.flow_share(gang) < 0.9
    assert network.flow_share(other) == 1.0
    assert network.paths.fabric_loss[[gang, other]].tolist() == [2e-3, 0.0]


def test_a_gang_at_two_sites_shares_the_wan() -> None:
    twin = PlacedTwin(make_racks(sites=2, racks=2))
    first = twin.gang(0, 2)
    network = Network(twin, seed=1)
    free = 0.9 * WAN_BITS_PER_S / 8 - WAN_BACKGROUND_BYTES_PER_S
    assert network.paths.now.wan_bytes_per_s[first] == pytest.approx(free)
    second = twin.gang(1, 3)
    assert network.paths.now.wan_bytes_per_s[[first, second]] == pytest.approx([free / 2] * 2)
    assert network.paths.alone.wan_bytes_per_s[second] == pytest.approx(free)
    assert network.flow_share(first) == pytest.approx(0.5)


def test_nothing_gets_out_of_an_isolated_site() -> None:
    twin = PlacedTwin(make_racks(sites=2, racks=2))
    apart, together = twin.gang(0, 2), twin.gang(0, 1)
    network = Network(twin, seed=1)
    assert np.isfinite(network.copy_s(0, 1, 1e12))
    twin.conditions.site_isolated[1] = True
    assert network.flow_share(apart) == 0.0
    assert network.flow_share(together) == 1.0
    assert network.copy_s(0, 1, 1e12) == np.inf
    assert network.copy_s(0, 0, 1e12) == 0.0


def test_a_copy_between_sites_gets_its_share_and_goes_the_shorter_way() -> None:
    twin = PlacedTwin(make_racks(sites=5, racks=1))
    network = Network(twin, seed=1)
    free = 0.9 * WAN_BITS_PER_S / 8 - WAN_BACKGROUND_BYTES_PER_S
    assert network.copy_s(0, 1, free) == pytest.approx(1.0 + 0.0042)
    assert network.copy_s(3, 1, free) == pytest.approx(1.0 + 2 * 0.0042)
    assert network.copy_s(0, 4, free) == pytest.approx(1.0 + 0.0042)
    twin.gang(0, 1)
    assert network.copy_bytes_per_s(0, 1) == pytest.approx(free / 2)
    assert network.copy_bytes_per_s(2, 3) == pytest.approx(free)


def test_latency_and_loss_hold_tcp_back_between_sites() -> None:
    twin = PlacedTwin(make_racks(sites=2, racks=2))
    gang = twin.gang(0, 2)
    network = Network(twin, seed=1)
    wan = network.links.wan_from
    twin.conditions.link_loss[wan:] = 1e-3
    lossy = network.paths.now.wan_bytes_per_s[gang]
    twin.conditions.link_extra_latency_s[wan:] = 0.05
    slow = network.paths.now.wan_bytes_per_s[gang]
    assert 0.0 < slow < lossy / 5.0 < network.paths.alone.wan_bytes_per_s[gang] / 5.0


def test_what_links_send_is_told_by_class() -> None:
    twin = Twin(make_fleet(gpus=1536), seed=7)
    network = Network(twin, seed=7)
    seen = dict.fromkeys(network.sent_by_class(), 0.0)
    wan = network.links.wan_from
    for _ in range(300):
        twin.advance(2.0)
        network.advance(2.0)
        sent = network.sent_by_class()
        for each, by_link in sent.items():
            assert (by_link >= 0.0).all()
            seen[each] += float(by_link.sum())
        # On the fabric all is marked; on the WAN the background is not.
        marked = np.sum([*sent.values()], axis=0)
        assert marked[:wan] == pytest.approx(network.tx_bytes_per_s[:wan], rel=1e-9)
        assert (marked[wan:] < network.tx_bytes_per_s[wan:]).all()
        assert not sent[TrafficClass.CHECKPOINT][:wan].any()
    assert all(seen.values())


def test_readings_show_the_conditions() -> None:
    twin = Twin(make_fleet(gpus=1536), seed=7)
    network = Network(twin, seed=7)

    def settle() -> None:
        for _ in range(30):
            twin.advance(2.0)
            network.advance(2.0)

    settle()
    wan = network.links.wan_from
    busiest = int(network.tx_bytes_per_s[: network.links.racks].argmax())
    before = network.tx_bytes_per_s.copy()
    assert (before[wan:] > 0.0).all()
    conditions = twin.conditions
    conditions.link_capacity_share[busiest] = 0.02
    conditions.link_extra_latency_s[wan] = 0.08
    conditions.link_loss[wan] = 0.01
    conditions.site_isolated[1] = True
    settle()
    least = 0.02 * network.links.capacity_bytes_per_s[busiest]
    assert network.tx_bytes_per_s[busiest] <= least * 1.01 < before[busiest]
    assert network.tx_bytes_per_s[wan:].max() < 0.01 * before[wan:].min()
    assert network.latency_s[wan] > 0.08
    assert network.latency_s[wan + 1] < 0.01
    conditions.reset()
    settle()
    assert network.tx_bytes_per_s[wan:] == pytest.approx(before[wan:], rel=0.5)
    assert network.tx_bytes_per_s[busiest] > 2.0 * least


def test_a_link_that_loses_packets_shows_them_as_sent_again() -> None:
    twin = PlacedTwin(make_racks(sites=2, racks=2))
    twin.gang(0, 1)
    network = Network(twin, seed=1)
    twin.conditions.link_loss[0] = 1e-3
    for _ in range(20):
        network.advance(5.0)
    assert network.retransmits_per_s[0] == pytest.approx(
        network.tx_bytes_per_s[0] / 4096 * 1e-3, rel=0.01
    )
    assert network.retransmits_per_s[1] == 0.0


def test_the_same_seed_gives_the_same_readings() -> None:
    def readings() -> np.ndarray:
        twin = Twin(make_fleet(gpus=512), seed=3)
        network = Network(twin, seed=3)
        for _ in range(5):
            twin.advance(10.0)
            network.advance(10.0)
        return np.concatenate([network.tx_bytes_per_s, network.rx_bytes_per_s, network.latency_s])

    assert np.array_equal(readings(), readings())
