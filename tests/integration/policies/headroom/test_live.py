"""Headroom of a real fleet: from the inventory, the live frame, Redis and the database."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet import snapshot
from fleet.models import HardwareModel, Meter, StorageEndpoint
from headroom.contracts import MeterColumns, NodeReport, StorageColumns, TelemetryBatch
from policies.headroom import fits, live
from policies.headroom.columns import FIELDS
from policies.headroom.models import HostFit, ThermalFit
from policies.scopes import ScopeKind
from telemetry import stream
from telemetry.frame import FrameWriter
from telemetry.lemons.models import LemonFinding
from telemetry.models import XidEvent
from tests.builders.fleet import SmallFleet, push, small_fleet

RACK, SITE, NODE = ScopeKind.RACK, ScopeKind.SITE, ScopeKind.NODE


def later(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


@pytest.fixture
def fleet() -> SmallFleet:
    return small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))


def test_it_has_every_kind(fleet: SmallFleet) -> None:
    fleet.report()
    headroom = live.current(time.time())
    for kind in FIELDS:
        assert len(headroom.table(kind)) == len(headroom.table(kind).names)
    rack = headroom.table(RACK).row("oslo/A01")
    # two nodes of four GPUs at 400 W
    assert rack["power_load_w"] == pytest.approx(2 * (1600 + 600 + 1600 / 2800 * 1400))
    assert not rack["stale"]


def test_what_loads_were_makes_slopes_and_a_restart_does_not_lose_them(fleet: SmallFleet) -> None:
    start = time.time() - 120
    for step in range(6):
        at = start + 20 * step
        fleet.report(at=at, power_w=300.0 + 10 * step)
        headroom = live.current(at)
    first = live.current(start + 101.5)
    live.invalidate()
    again = live.current(start + 102.5)
    for found in (first, again):
        # 8 GPUs of a rack, hosts in proportion, 10 W each 20 s
        slope = found.table(RACK).row("oslo/A01")["power_slope_w_per_s"]
        assert slope == pytest.approx(8 * 0.5 * (1 + 1400 / 2800), rel=0.01)
    ahead = again.table(SITE).row("oslo")
    # Without a record a slope makes no forecast, and no claim.
    assert ahead["power_load_5m_w"] == ahead["power_load_w"]
    assert ahead["power_over_from_s"] == float("inf")
    assert ahead["power_exhausted_in_s"] > 0
    assert headroom.table(SITE).row("oslo")["power_load_w"] == ahead["power_load_w"]


def test_a_change_of_the_inventory_keeps_what_loads_were(fleet: SmallFleet) -> None:
    start = time.time() - 120
    for step in range(5):
        fleet.report(at=start + 20 * step, power_w=300.0 + 10 * step)
        live.current(start + 20 * step)
    StorageEndpoint.objects.create(site=fleet.sites["oslo"], name="nvme")
    fleet.gpu("oslo-a01-n1", 3).delete()
    fleet.report(at=start + 100, only=["oslo-a02-n1", "oslo-a02-n2"], power_w=350.0)
    snapshot.invalidate()
    headroom = live.current(start + 101)
    slope = headroom.table(RACK).row("oslo/A02")["power_slope_w_per_s"]
    assert slope == pytest.approx(8 * 0.5 * 1.5, rel=0.01)


def test_links_count_by_their_percentile(fleet: SmallFleet) -> None:
    start = time.time() - 300
    link = "oslo/A01/uplink"
    for step in range(30):
        fleet.report(at=start + 10 * step, links={link: 5e10 if step == 15 else 1e9})
        headroom = live.current(start + 10 * step + 1)
    found = headroom.table(ScopeKind.LINK).row(link)
    # one of thirty readings is above the 95th percentile
    assert found["link_load_bits_per_s"] == pytest.approx(8e9)
    assert found["link_headroom_bits_per_s"] == pytest.approx(8e11 - 8e9)


def test_fits_lemons_errors_and_hosts_are_read_from_the_database(fleet: SmallFleet) -> None:
    fleet.report(temp_c=50.0)
    gpu, now = fleet.gpu("oslo-a01-n1", 0), datetime.now(UTC)
    ThermalFit.objects.create(
        gpu=gpu, resistance_c_per_w=0.2, capacitance_j_per_c=100.0, ambient_c=20.0, trust=0.9,
        fitted_at=now,
    )  # fmt: skip
    HostFit.objects.create(
        model=HardwareModel.objects.get(name="host"), idle_w=100.0, share=0.5, spread_w=5.0,
        readings=50, fitted_at=now,
    )  # fmt: skip
    LemonFinding.objects.create(
        gpu=gpu, metric="hot_core", since=now, seen_at=now, score=9, own=80, peers_median=60,
        peers=7, among="rack",
    )  # fmt: skip
    for age in (5, 90):
        XidEvent.objects.create(node=gpu.node, gpu=gpu, ts=now - timedelta(minutes=age), xid=79)
    headroom = live.current(time.time())
    node = headroom.table(NODE).row("oslo-a01-n1")
    assert node["power_load_w"] == pytest.approx(1600 + 100 + 800)
    assert (node["lemon_gpus"], node["xid_recent"]) == (1.0, 1.0)
    gpus = headroom.table(ScopeKind.GPU)
    assert gpus.row("oslo-a01-n1/0")["thermal_steady_margin_c"] == pytest.approx(87 - 100)
    assert gpus.row("oslo-a01-n1/1")["thermal_confidence"] == 0.3
    assert headroom.table(SITE).row("oslo")["lemon_gpus"] == 1.0


def test_mounts_count_for_the_endpoint_of_their_name_or_of_their_node(fleet: SmallFleet) -> None:
    for name in ("nvme", "archive"):
        StorageEndpoint.objects.create(site=fleet.sites["oslo"], name=name)
    nvme = StorageEndpoint.objects.get(name="nvme")
    node = fleet.nodes["oslo-a01-n1"]
    node.storage_endpoint = nvme
    node.save()
    now = time.time()
    storage = StorageColumns(
        ts=[now] * 3, mount=["/data", "archive", "/data"], fsync_s=[0.5, 3.0, 0.5]
    )
    batch = TelemetryBatch(
        agent=fleet.agent.name, boot_id="b", seq=1, oldest_seq=1, sent_at=now,
        nodes=[NodeReport(node=node.name, storage=storage)],
    )  # fmt: skip
    push(fleet.agent, batch, received_at=now)
    found = live.current(now).table(ScopeKind.STORAGE)
    assert found.row("oslo/nvme")["fsync_s"] == pytest.approx(0.5)
    assert found.row("oslo/archive")["fsync_s"] == pytest.approx(3.0)
    assert found.columns["mounts"].tolist() == [1.0, 1.0]
    # When Redis has lost them, the frame makes mounts again from the samples, too.
    stream.connection().flushall()
    FrameWriter(0)
    live.invalidate()
    assert live.current(now).table(ScopeKind.STORAGE).columns["mounts"].tolist() == [1.0, 1.0]


def test_labels_are_those_of_nodes(fleet: SmallFleet) -> None:
    node = fleet.nodes["oslo-a02-n1"]
    node.labels = {"team": "vision"}
    node.save()
    table = live.current(time.time()).table(NODE)
    assert table.labels[table.index_by_name[node.name]] == {"team": "vision"}
    assert live.current(time.time()).table(RACK).labels == [{}, {}]


def test_evaluating_again_asks_the_database_for_nothing(fleet: SmallFleet) -> None:
    fleet.report()
    now = time.time()
    live.current(now)
    fleet.report(power_w=500.0)
    with CaptureQueriesContext(connection) as queries:
        live.current(now + 1.5)
    # the generation of the inventory, and what attempts hold, each every two seconds at most
    assert len(queries) <= 2


def test_gpus_are_fitted_from_their_samples(fleet: SmallFleet) -> None:
    now = time.time()
    rng = np.random.default_rng(1)
    temp_c, power_w = 40.0, 300.0
    for step in range(90):
        if step % 6 == 0:
            power_w = float(rng.uniform(150, 690))
        fleet.report(
            at=now - 1800 + 20 * step, only=["oslo-a01-n1"], power_w=power_w, temp_c=temp_c
        )
        settled_c = 25.0 + 0.06 * power_w
        temp_c = settled_c + (temp_c - settled_c) * float(np.exp(-20.0 / 60.0))
    assert fits.refit(now) == 4
    found = ThermalFit.objects.filter(resistance_c_per_w__isnull=False)
    assert {each.gpu.node.name for each in found} == {"oslo-a01-n1"}
    assert [each.resistance_c_per_w for each in found] == pytest.approx([0.06] * 4, rel=0.02)
    # Each GPU was tried; those without a good fit soon again, the others in an hour.
    assert ThermalFit.objects.count() == 16
    assert fits.refit(now + 60) == 0
    assert fits.refit(now + 700) == 0
    tried = {fit.gpu.node.name for fit in ThermalFit.objects.filter(fitted_at__gt=later(now + 650))}
    assert tried == fleet.nodes.keys() - {"oslo-a01-n1"}
    assert fits.refit(now + 3700) == 0
    # Those readings are too old by then; what was found of them stays.
    assert found.count() == 4


def test_hosts_are_fitted_to_nodes_that_read_themselves(fleet: SmallFleet) -> None:
    for name, node in fleet.nodes.items():
        Meter.objects.create(name=f"m-{name}", node=node)
    now = time.time()
    for step in range(8):
        at = now - 300 + 30 * step
        watts = 250.0 + 40 * step
        fleet.report(at=at, power_w=watts)
        batch = TelemetryBatch(
            agent=fleet.agent.name, boot_id="m", seq=step + 1, oldest_seq=1, sent_at=at,
            meters=MeterColumns(
                ts=[at] * 4,
                meter=[f"m-{name}" for name in fleet.nodes],
                power_w=[4 * watts * 1.2 + 700] * 4,
            ),
        )  # fmt: skip
        push(fleet.agent, batch, received_at=at)
        fits.refit_hosts(live.current(at))
    fit = HostFit.objects.get()
    assert fit.idle_w == pytest.approx(700, rel=0.01)
    assert fit.share == pytest.approx(0.2, rel=0.01)
    assert fit.readings == 32


def test_a_first_fit_of_hosts_counts_within_seconds(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic()
    monkeypatch.setattr(live._hosts, "_clock", lambda: clock)
    fleet.report()
    before = live.current(time.time()).host_share
    model = HardwareModel.objects.get(nodes=next(iter(fleet.nodes.values())))
    HostFit.objects.create(
        model=model,
        idle_w=700.0,
        share=0.2,
        spread_w=1.0,
        readings=32,
        fitted_at=later(time.time()),
    )
    clock += 10.0
    now = time.time() + 2.0
    assert (before > 0.3).all()
    assert live.current(now).host_share.tolist() == [0.2] * len(before)
