"""What racks, sites and power domains carry, from the inventory and the live frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet import snapshot
from fleet.models import Gpu, HardwareModel, Link, Meter, Node, PowerDomain, Rack, Site
from fleet.snapshot import FleetArrays
from telemetry.frame import KINDS, LiveFrame, never_seen
from telemetry.summary import DIMENSIONS, FleetSummary, HostCurves, summarize
from tests.integration.telemetry.conftest import make_node

NOW = 1_000_000.0
STALE_S = 30.0


@pytest.fixture
def fleet(h100: HardwareModel) -> FleetArrays:
    """One site with an A/B pair, two racks on both feeds, a node of eight H100s in each."""
    host = HardwareModel.objects.create(name="host", kind="node", rated_w=4_000, idle_w=1_000)
    site = Site.objects.create(name="oslo")
    utility = PowerDomain.objects.create(
        site=site, name="utility", kind="utility", capacity_w=100_000, derating=0.8
    )
    feeds = [
        PowerDomain.objects.create(
            site=site, name=f"feed-{side}", kind="feed", parent=utility, capacity_w=20_000,
            pair="1", side=side,
        )
        for side in "AB"
    ]  # fmt: skip
    for name in ("A01", "A02"):
        rack = Rack.objects.create(
            site=site, name=name, row="A", budget_w=12_000, feed_a=feeds[0], feed_b=feeds[1]
        )
        Node.objects.filter(pk=make_node(f"n-{name}", rack, h100).pk).update(model=host)
        Link.objects.create(
            name=f"up-{name}", kind="leaf-uplink", site=site, rack=rack, capacity_bits_per_s=8e9
        )
    Meter.objects.create(name="m1", node=Node.objects.get(name="n-A01"))
    return snapshot.load()


def make_frame(**readings: dict[int, dict[str, float]]) -> LiveFrame:
    """A frame with what is given for each kind: {database id: {field: value}}."""
    arrays = {kind: never_seen(kind, 1) for kind in KINDS}
    for kind, records in readings.items():
        arrays[kind] = never_seen(kind, max(records) + 1)
        for key, fields in records.items():
            for name, value in {"ts": NOW, **fields}.items():
                arrays[kind][name][key] = value
    return LiveFrame("1", arrays)


def all_gpus(**fields: float) -> dict[int, dict[str, float]]:
    return dict.fromkeys(Gpu.objects.values_list("pk", flat=True), fields)


def run(fleet: FleetArrays, frame: LiveFrame) -> FleetSummary:
    return summarize(fleet, frame, now=NOW, stale_after_s=STALE_S)


def test_a_fleet_that_was_never_heard_is_taken_at_its_rating(fleet: FleetArrays) -> None:
    racks = run(fleet, make_frame()).racks
    assert racks.load_w.tolist() == [8 * 700 + 4_000] * 2
    assert not racks.seen.any()
    assert racks.stale.all()
    assert np.isnan(racks.measured_w).all()
    assert np.isnan(racks.age_s).all()


def test_fresh_gpus_count_as_measured_with_the_host_between_idle_and_rated(
    fleet: FleetArrays,
) -> None:
    racks = run(fleet, make_frame(gpu=all_gpus(power_w=350.0))).racks
    assert racks.load_w.tolist() == [8 * 350 + 2_500] * 2
    assert racks.measured_w.tolist() == [8 * 350] * 2
    assert not racks.stale.any()


def test_stale_gpus_count_at_their_rating(fleet: FleetArrays) -> None:
    frame = make_frame(gpu=all_gpus(power_w=100.0, ts=NOW - STALE_S - 1))
    racks = run(fleet, frame).racks
    assert racks.load_w.tolist() == [8 * 700 + 4_000] * 2
    assert racks.age_s.tolist() == [31.0] * 2
    assert racks.seen.all()
    assert racks.stale.all()


def test_a_nodes_meter_stands_above_the_sum_of_its_gpus(fleet: FleetArrays) -> None:
    meter = Meter.objects.get().pk
    frame = make_frame(gpu=all_gpus(power_w=350.0), meter={meter: {"power_w": 7_000.0}})
    assert run(fleet, frame).racks.load_w.tolist() == [7_000, 8 * 350 + 2_500]


def test_a_meter_at_or_below_zero_is_not_believed(fleet: FleetArrays) -> None:
    meter = Meter.objects.get().pk
    for power_w in (0.0, -2.0):
        racks = run(fleet, make_frame(meter={meter: {"power_w": power_w}})).racks
        assert racks.load_w[0] == 8 * 700 + 4_000


def test_a_node_that_only_a_meter_speaks_for_is_not_stale(fleet: FleetArrays) -> None:
    meter = Meter.objects.get().pk
    racks = run(fleet, make_frame(meter={meter: {"power_w": 7_000.0}})).racks
    assert racks.stale.tolist() == [False, True]
    assert racks.measured_w[0] == 7_000


def test_a_node_whose_gpus_fell_silent_is_stale_though_its_meter_speaks(
    fleet: FleetArrays,
) -> None:
    meter = Meter.objects.get().pk
    frame = make_frame(
        gpu=all_gpus(power_w=350.0, ts=NOW - 99), meter={meter: {"power_w": 7_000.0}}
    )
    assert run(fleet, frame).racks.stale[0]


def test_what_was_read_last_is_the_least_that_a_silent_thing_draws(fleet: FleetArrays) -> None:
    meter, old = Meter.objects.get().pk, NOW - STALE_S - 1
    frame = make_frame(
        gpu=all_gpus(power_w=900.0, ts=old),
        host={pk: {"power_w": 6_000.0, "ts": old} for pk in fleet.nodes.ids.tolist()},
        meter={meter: {"power_w": 14_000.0, "ts": old}},
    )
    assert run(fleet, frame).nodes.load_w.tolist() == [14_000, 8 * 900 + 6_000]


def test_of_two_meters_of_a_rack_one_alone_does_not_halve_its_load(fleet: FleetArrays) -> None:
    for name in "ab":
        Meter.objects.create(name=name, rack=Rack.objects.get(name="A01"))
    fleet = snapshot.load()
    a, b = (Meter.objects.get(name=name).pk for name in "ab")
    readings = {a: {"power_w": 3_000.0}, b: {"power_w": 3_500.0}}
    both = make_frame(gpu=all_gpus(power_w=350.0), meter=readings)
    assert run(fleet, both).racks.load_w[0] == 6_500
    one = make_frame(gpu=all_gpus(power_w=350.0), meter={a: {"power_w": 3_000.0}})
    # GPUs and host then say what the other feed carries, too.
    assert run(fleet, one).racks.load_w[0] == 5_300
    silent = {a: {"power_w": 3_000.0}, b: {"power_w": 3_500.0, "ts": NOW - 99}}
    assert (
        run(fleet, make_frame(gpu=all_gpus(power_w=100.0), meter=silent)).racks.load_w[0] == 6_500
    )


def test_a_fitted_host_counts_where_nothing_of_it_is_read(fleet: FleetArrays) -> None:
    hosts = HostCurves(idle_w=np.array([500.0, np.nan]), share=np.array([0.25, np.nan]))
    frame = make_frame(gpu=all_gpus(power_w=350.0))
    found = summarize(fleet, frame, now=NOW, stale_after_s=STALE_S, hosts=hosts)
    assert found.nodes.load_w.tolist() == [2_800 + 500 + 700, 2_800 + 2_500]
    read = make_frame(
        gpu=all_gpus(power_w=350.0),
        host={pk: {"power_w": 2_000.0} for pk in fleet.nodes.ids.tolist()},
    )
    found = summarize(fleet, read, now=NOW, stale_after_s=STALE_S, hosts=hosts)
    assert found.nodes.load_w.tolist() == [4_800, 4_800]


def test_heat_margin_is_to_the_gpus_own_limit_or_its_models(fleet: FleetArrays) -> None:
    gpus = all_gpus(temp_c=60.0)
    hot = min(gpus)
    gpus[hot] = {"temp_c": 80.0, "temp_limit_c": 85.0}
    racks = run(fleet, make_frame(gpu=gpus)).racks
    assert racks.heat_margin_c.tolist() == [5.0, 27.0]
    assert racks.hottest_c.tolist() == [80.0, 60.0]
    assert DIMENSIONS[racks.tightest_dimension[0]] in ("power", "heat")


def test_the_tightest_dimension_is_the_least_margin(fleet: FleetArrays) -> None:
    link = Link.objects.get(name="up-A02").pk
    frame = make_frame(
        gpu=all_gpus(power_w=100.0, temp_c=40.0), link={link: {"tx_bytes_per_s": 0.95e9}}
    )
    racks = run(fleet, frame).racks
    assert DIMENSIONS[racks.tightest_dimension[1]] == "links"
    assert racks.tightest[1] == pytest.approx(0.05)
    assert racks.link_use[1] == pytest.approx(0.95)
    assert np.isnan(racks.link_use[0])


def test_throttling_gpus_are_counted_and_idle_ones_are_not(fleet: FleetArrays) -> None:
    gpus = all_gpus(throttle=1)
    for pk in list(gpus)[:3]:
        gpus[pk] = {"throttle": 0x24}
    summary = run(fleet, make_frame(gpu=gpus))
    assert summary.racks.throttling.sum() == 3
    assert summary.sites.throttling.tolist() == [3]


def test_only_a_power_limit_that_somebody_lowered_is_an_expected_throttling(
    fleet: FleetArrays,
) -> None:
    gpus = all_gpus(throttle=0)
    capped, capped_and_hot, at_rating, hot = list(gpus)[:4]
    gpus[capped] = {"throttle": 0x4, "power_limit_w": 400.0}
    gpus[capped_and_hot] = {"throttle": 0x24, "power_limit_w": 400.0}
    gpus[at_rating] = {"throttle": 0x4, "power_limit_w": 700.0}
    gpus[hot] = {"throttle": 0x20}
    summary = run(fleet, make_frame(gpu=gpus))
    unexpected = fleet.gpus.ids[summary.gpus.unexpected].tolist()
    assert unexpected == sorted([capped_and_hot, at_rating, hot])
    assert summary.racks.throttling.sum() == 4
    assert summary.racks.unexpected.sum() == 3
    assert summary.sites.unexpected_racks.tolist() == [(summary.racks.unexpected > 0).sum()]


def test_each_feed_of_a_pair_carries_half_and_the_utility_all(fleet: FleetArrays) -> None:
    summary = run(fleet, make_frame(gpu=all_gpus(power_w=350.0)))
    load = dict(zip(fleet.domains.names.tolist(), summary.domains.load_w.tolist(), strict=True))
    assert load == {"feed-A": 5_300, "feed-B": 5_300, "utility": 10_600}
    assert summary.sites.budget_w.tolist() == [80_000]
    assert summary.domains.headroom_w.tolist() == [20_000 - 5_300] * 2 + [80_000 - 10_600]


def test_an_empty_fleet_has_an_empty_summary(db: None) -> None:
    summary = run(snapshot.load(), make_frame())
    assert len(summary.racks.load_w) == len(summary.sites.load_w) == 0


def test_a_rack_without_nodes_has_all_its_margin(db: None) -> None:
    site = Site.objects.create(name="oslo")
    Rack.objects.create(site=site, name="A01", budget_w=1_000)
    racks = run(snapshot.load(), make_frame()).racks
    assert racks.power_margin.tolist() == [1.0]
    assert not racks.seen.any()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_silence_never_raises_headroom(fleet: FleetArrays, data: Any) -> None:
    """Whatever of a live fleet falls silent, no rack, site or domain looks freer than before."""
    ids = fleet.gpus.ids.tolist()
    power = data.draw(st.lists(st.floats(0, 700), min_size=len(ids), max_size=len(ids)))
    silent = data.draw(st.sets(st.sampled_from(ids)))
    gpus = {pk: {"power_w": watts} for pk, watts in zip(ids, power, strict=True)}
    before = run(fleet, make_frame(gpu=gpus))
    for pk in silent:
        gpus[pk] = {**gpus[pk], "ts": NOW - 100}
    after = run(fleet, make_frame(gpu=gpus))
    assert (after.racks.load_w >= before.racks.load_w - 1e-6).all()
    assert (after.sites.load_w >= before.sites.load_w - 1e-6).all()
    assert (after.domains.headroom_w <= before.domains.headroom_w + 1e-6).all()


def test_what_a_host_reads_of_itself_counts_as_measured(fleet: FleetArrays) -> None:
    hosts = {pk: {"power_w": 2_000.0} for pk in fleet.nodes.ids.tolist()}
    nodes = run(fleet, make_frame(gpu=all_gpus(power_w=350.0), host=hosts)).nodes
    assert nodes.load_w.tolist() == nodes.measured_w.tolist() == [8 * 350 + 2_000] * 2


def test_a_node_of_no_known_model_is_not_taken_to_draw_nothing(db: None) -> None:
    site = Site.objects.create(name="oslo")
    rack = Rack.objects.create(site=site, name="A01", budget_w=4_000)
    node = Node.objects.create(name="n1", rack=rack)
    frame = make_frame(host={node.pk: {"cpu_power_w": 120.0}})
    summary = run(snapshot.load(), frame)
    assert summary.racks.load_w.tolist() == [1_000]
    assert np.isnan(summary.sites.measured_w).all()
