import msgspec
import numpy as np
import pytest

from headroom.contracts import (
    GpuColumns,
    TelemetryBatch,
    ThrottleCause,
    check_shape,
    decode_batch,
    encode_batch,
)
from lab.fleet import inventory, make_fleet
from lab.readings import Frame, join, join_reports, xid_columns
from lab.twin import XIDS, FailureModel, Twin, XidLine
from lab.twin.network import Network


def make_frame(*, gpus: int = 1536, warm_up_s: float = 900.0) -> tuple[Twin, Network, Frame]:
    twin = Twin(make_fleet(gpus=gpus), seed=7)
    network = Network(twin, seed=7)
    for _ in range(int(warm_up_s / 30)):
        twin.advance(30.0)
        network.advance(30.0)
    return twin, network, Frame(twin, network)


@pytest.fixture(scope="module")
def made() -> tuple[Twin, Network, Frame]:
    return make_frame()


Made = tuple[Twin, Network, Frame]


def gpus_of(frame: Frame, node: int) -> GpuColumns:
    gpus = frame.node(node, 1.0).gpus
    assert gpus is not None
    return gpus


def test_every_reading_keeps_the_contract(made: Made) -> None:
    _, _, frame = made
    sites = range(len(frame.fleet.sites))
    for batch in (
        TelemetryBatch(
            agent="a",
            boot_id="b",
            seq=1,
            oldest_seq=1,
            sent_at=1.0,
            nodes=[frame.node(i, 1.0) for i in range(len(frame.fleet.nodes))],
        ),
        *(
            TelemetryBatch(
                agent="a",
                boot_id="b",
                seq=1,
                oldest_seq=1,
                sent_at=1.0,
                links=frame.links(site, 1.0),
                meters=frame.meters(site, 1.0),
            )
            for site in sites
        ),
    ):
        assert decode_batch(encode_batch(batch), json=False) == batch
        assert decode_batch(msgspec.json.encode(batch), json=True) == batch


def test_links_and_meters_are_those_of_the_inventory(made: Made) -> None:
    _, _, frame = made
    document = inventory(frame.fleet)
    sites = range(len(frame.fleet.sites))
    links = [name for site in sites for name in frame.links(site, 1.0).link]
    meters = [name for site in sites for name in frame.meters(site, 1.0).meter]
    assert sorted(links) == sorted(link["name"] for link in document["links"])
    assert sorted(meters) == sorted(meter["name"] for meter in document["meters"])


def test_power_meters_read_watts_and_zone_meters_degrees(made: Made) -> None:
    _, _, frame = made
    meters = frame.meters(0, 1.0)
    kinds = {meter["name"]: meter["kind"] for meter in inventory(frame.fleet)["meters"]}
    assert meters.power_w is not None
    assert meters.temp_c is not None
    for name, watts, celsius in zip(meters.meter, meters.power_w, meters.temp_c, strict=True):
        assert (watts is None) == (kinds[name] == "temperature")
        assert (celsius is None) == (kinds[name] == "power")


def test_meters_add_up_the_power_tree(made: Made) -> None:
    twin, _, frame = made
    meters = frame.meters(0, 1.0)
    assert meters.power_w is not None
    read = {name: watts or 0.0 for name, watts in zip(meters.meter, meters.power_w, strict=True)}
    racks = sum(read[f"oslo/{rack.name}"] for rack in frame.fleet.racks_of("oslo"))
    pdus = sum(watts for name, watts in read.items() if "/pdu-" in name)
    feeds = read["oslo/feed-a"] + read["oslo/feed-b"]
    assert racks == pytest.approx(twin.rack_w[:12].sum(), rel=1e-3)
    # Racks are read to 10 W.
    assert pdus == pytest.approx(racks, rel=1e-4)
    assert racks < feeds < read["oslo/utility"] < 1.05 * racks


def test_a_rack_draws_its_gpus_its_hosts_and_its_switches(made: Made) -> None:
    twin, _, frame = made
    reports = [frame.node(i, 1.0) for i in range(8)]
    nodes_w = sum(
        sum(watts or 0.0 for watts in report.gpus.power_w or [])
        + sum(watts or 0.0 for watts in report.host.power_w or [])
        for report in reports
        if report.gpus and report.host
    )
    assert twin.rack_w[0] == pytest.approx(nodes_w + 900.0, rel=1e-3)


def test_what_a_model_lacks_is_left_out(made: Made) -> None:
    _, _, frame = made
    l40s = gpus_of(frame, 191)
    h100 = gpus_of(frame, 0)
    assert l40s.nvlink_tx is None
    assert l40s.temp_mem_c is None
    assert h100.nvlink_tx is not None
    assert h100.temp_mem_c is not None
    assert h100.fan is None


def test_idle_gpus_have_no_job_no_use_and_a_low_clock(made: Made) -> None:
    twin, _, frame = made
    idle = int(np.flatnonzero(twin.workload.job_of_node == 0)[0])
    gpus = gpus_of(frame, idle)
    assert gpus.job == [None] * 8
    assert gpus.util == [0.0] * 8
    assert set(gpus.throttle or []) == {1}
    assert max(mhz or 0.0 for mhz in gpus.sm_mhz or []) <= 345.0


def test_busy_gpus_of_a_node_name_one_job(made: Made) -> None:
    twin, _, frame = made
    busy = int(np.flatnonzero(twin.workload.job_of_node)[0])
    assert set(gpus_of(frame, busy).job or []) == {
        twin.workload.names[twin.workload.job_of_node[busy]]
    }


def test_a_capped_gpu_says_so_in_mask_clock_and_counter(made: Made) -> None:
    twin, _, frame = made
    cap = ThrottleCause.SW_POWER_CAP.value
    held = ((twin.throttle & cap) > 0) & (twin.clock < 0.99)
    node = int(np.flatnonzero(held.reshape(-1, 8).all(axis=1))[0])
    gpus = gpus_of(frame, node)
    assert all((mask or 0) & cap for mask in gpus.throttle or [])
    assert all((mhz or 0.0) < 1980.0 for mhz in gpus.sm_mhz or [])
    assert all((ns or 0) > 0 for ns in gpus.throttle_sw_power_cap_ns or [])


def test_no_xid_is_null_and_one_is_its_code() -> None:
    twin, network, frame = make_frame(gpus=8, warm_up_s=0.0)
    assert gpus_of(frame, 0).xid == [None] * 8
    twin.xid[3] = 79
    assert gpus_of(Frame(twin, network), 0).xid == [None, None, None, 79, None, None, None, None]


def test_lines_of_the_kernel_log_have_the_time_at_which_they_came() -> None:
    lines = [XidLine(100.0, 11, 79), XidLine(130.0, 8, 31)]
    block = xid_columns(lines, now_s=160.0, ts=1_000.0)
    assert (block.ts, block.xid, block.gpu) == ([940.0, 970.0], [79, 31], [3, 0])


def test_an_xid_is_logged_when_it_comes() -> None:
    unlucky = FailureModel(xid_per_gpu_s=1e-2, xid_shape=1.0)
    twin = Twin(make_fleet(gpus=8), seed=7, failures=unlucky)
    twin.advance(60.0)
    assert {line.xid for line in twin.xid_log} <= set(XIDS)
    times = [line.at_s for line in twin.xid_log]
    assert times == sorted(times)
    assert 0.0 < times[0] <= times[-1] <= twin.now_s


def test_a_frame_does_not_change_when_the_twin_goes_on() -> None:
    twin, network, frame = make_frame(gpus=128, warm_up_s=60.0)
    before = frame.node(0, 1.0), frame.links(0, 1.0), frame.meters(0, 1.0)
    twin.advance(120.0)
    network.advance(120.0)
    assert (frame.node(0, 1.0), frame.links(0, 1.0), frame.meters(0, 1.0)) == before


def test_joined_reports_have_the_rows_of_all() -> None:
    twin, network, first = make_frame(gpus=8, warm_up_s=60.0)
    twin.advance(30.0)
    second = Frame(twin, network)
    joined = join_reports([first.node(0, 1.0), second.node(0, 31.0)])
    assert joined.gpus is not None
    assert joined.gpus.ts == [1.0] * 8 + [31.0] * 8
    meters = join([first.meters(0, 1.0), second.meters(0, 31.0)])
    batch = TelemetryBatch(
        agent="a", boot_id="b", seq=1, oldest_seq=1, sent_at=31.0, nodes=[joined], meters=meters
    )
    check_shape(batch)


def test_links_carry_no_more_than_their_capacity_and_some_are_used(made: Made) -> None:
    twin, network, _ = made
    use = network.tx_bytes_per_s / network.links.capacity_bytes_per_s
    assert (use <= 1.0).all()
    assert use.max() > 0.1
    assert (network.latency_s >= network.links.base_latency_s).all()
    errors = network.errors.copy()
    network.advance(3600.0)
    assert (network.errors >= errors).all()
    assert twin.spans_racks.any()
