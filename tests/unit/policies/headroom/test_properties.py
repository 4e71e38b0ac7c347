"""What holds of headroom whatever is read: silence never raises it, and it adds up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.groups import above
from fleet.snapshot import METER_KINDS, METER_TARGETS, FleetArrays, MeterTable
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Past, Reservations
from policies.scopes import ScopeKind
from telemetry.frame import LiveFrame, never_seen
from tests.builders.arrays import SLOWDOWN_C, SLOWDOWN_MEM_C, make_arrays, make_frame
from tests.unit.policies.headroom.scenes import AMBIENT_C, NOW, fitted, headroom_of

seeds = st.integers(0, 2**32 - 1)

#: What may only fall when something falls silent, and what may only rise.
FALLS = (
    "power_headroom_w", "power_exhausted_in_s", "failover_headroom_w",
    "cooling_headroom_w", "cooling_exhausted_in_s", "thermal_margin_c", "thermal_mem_margin_c",
    "shutdown_margin_c", "thermal_steady_margin_c", "throttle_in_s", "thermal_confidence",
    "link_headroom_bits_per_s", "link_bulk_headroom_bits_per_s", "link_exhausted_in_s", "tightest",
)  # fmt: skip
RISES = (
    "power_load_w", "power_use", "power_load_5m_w", "power_load_15m_w", "power_load_60m_w",
    "failover_load_w", "cooling_load_w", "cooling_use", "link_load_bits_per_s", "link_use",
)  # fmt: skip
KINDS = tuple(kind for kind in ScopeKind if kind not in (ScopeKind.CLASS, ScopeKind.JOB))


def a_fleet() -> FleetArrays:
    """Two rows at two sites, with power meters on racks (two on the first), nodes and domains."""
    fleet = make_arrays(sites=2, racks=5, nodes=2, gpus=2, budget_w=12_000.0, pdu_w=40_000.0)
    on = [("rack", 0), ("rack", 0), ("rack", 3), ("node", 1), ("node", 7)]
    on += [("power_domain", row) for row in (0, 2, 3, 6)]
    count = len(on)
    meters = MeterTable(
        ids=np.arange(count) + 1,
        names=np.array([f"m{i}" for i in range(count)], dtype=np.object_),
        kind=np.full(count, METER_KINDS.index("power")),
        target_kind=np.array([METER_TARGETS.index(kind) for kind, _ in on]),
        target=np.array([row for _, row in on]),
    )
    return replace(fleet, meters=meters)


def readings(fleet: FleetArrays, rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Return a reading of everything, some of it stale already, or missing."""
    gpus, nodes, meters, links = (
        len(each) for each in (fleet.gpus, fleet.nodes, fleet.meters, fleet.links)
    )

    def ts(count: int) -> Any:
        return NOW - rng.choice([0.0, 5.0, 99.0], count, p=[0.6, 0.3, 0.1])

    def maybe(values: Any) -> Any:
        return np.where(rng.random(len(values)) < 0.3, np.nan, values)

    return {
        "gpu": {
            "ts": ts(gpus),
            "power_w": rng.uniform(50, 700, gpus),
            "temp_c": rng.uniform(25, SLOWDOWN_C, gpus),
            "temp_mem_c": rng.uniform(25, SLOWDOWN_MEM_C, gpus),
            "power_limit_w": maybe(rng.uniform(300, 700, gpus)),
            "throttle": rng.choice([0, 0x20], gpus),
        },
        "host": {
            "ts": ts(nodes),
            "power_w": maybe(rng.uniform(500, 6000, nodes)),
            "cpu_power_w": maybe(rng.uniform(100, 5000, nodes)),
        },
        "meter": {"ts": ts(meters), "power_w": rng.uniform(-500, 20_000, meters)},
        "link": {
            "ts": ts(links),
            "tx_bytes_per_s": rng.uniform(0, 1.2e11, links),
            "rx_bytes_per_s": maybe(rng.uniform(0, 1.2e11, links)),
        },
    }


def a_past(fleet: FleetArrays, rng: np.random.Generator) -> Past:
    sizes = {
        ScopeKind.SITE: len(fleet.sites), ScopeKind.ZONE: len(fleet.zones),
        ScopeKind.POWER_DOMAIN: len(fleet.domains), ScopeKind.RACK: len(fleet.racks),
        ScopeKind.NODE: len(fleet.nodes), ScopeKind.GPU: len(fleet.gpus),
        ScopeKind.LINK: len(fleet.links),
    }  # fmt: skip
    resistance = rng.choice([np.nan, 0.05, 0.09, 0.13], len(fleet.gpus))
    return replace(
        fitted(fleet, resistance),
        slopes={kind: rng.normal(0, 20, size) for kind, size in sizes.items()},
        gpu_still_s=rng.choice([0.0, 500.0], len(fleet.gpus)),
        link_bits_per_s=rng.uniform(0, 9e11, len(fleet.links)),
    )


def assert_no_larger(before: Headroom, after: Headroom, *, unknown_may_be: bool = False) -> None:
    """Check every column of every kind. What is unknown afterwards is not larger."""
    for kind in KINDS:
        one, other = before.table(kind).columns, after.table(kind).columns
        for names, sign in ((FALLS, 1.0), (RISES, -1.0)):
            for name in one.keys() & set(names):
                was, now = sign * one[name], sign * other[name]
                if name == "tightest" and unknown_may_be:
                    continue
                worse = (now <= was + 1e-6 * np.maximum(np.abs(was), 1.0)) | np.isnan(was)
                worse |= np.isnan(now) & (np.isnan(was) | unknown_may_be)
                assert worse.all(), (kind, name, was[~worse], now[~worse])


@settings(max_examples=70, deadline=None)
@given(seed=seeds)
def test_whatever_ages_no_headroom_is_larger(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = a_fleet()
    read, past = readings(fleet, rng), a_past(fleet, rng)
    # Above what GPUs are rated for, too.
    read["gpu"]["power_w"] *= rng.choice([1.0, 1.3])
    read["gpu"]["temp_c"] += rng.choice([0.0, 10.0])
    before = headroom_of(fleet, make_frame(fleet, now=NOW, **read), past=past)
    for fields in read.values():
        ages = rng.random(len(fields["ts"])) < rng.choice([0.05, 0.5])
        fields["ts"] = fields["ts"] - np.where(ages, 100.0, 0.0)
    after = headroom_of(fleet, make_frame(fleet, now=NOW, **read), past=past)
    assert_no_larger(before, after)


def without(frame: LiveFrame, kind: str, ids: Any) -> LiveFrame:
    """Return ``frame`` as if some things had never been heard."""
    arrays = {name: records.copy() for name, records in frame.arrays.items()}
    arrays[kind][ids] = never_seen(kind, len(ids))
    return LiveFrame("2", arrays)


@settings(max_examples=70, deadline=None)
@given(seed=seeds, kind=st.sampled_from(["gpu", "link"]))
def test_whatever_is_lost_no_headroom_is_larger(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    fleet = a_fleet()
    past = a_past(fleet, rng)
    frame = make_frame(fleet, now=NOW, **readings(fleet, rng))
    ids = (fleet.gpus if kind == "gpu" else fleet.links).ids
    if kind == "gpu":
        # Where no GPU was ever heard and a meter reads, that is the truth of a node: no GPUs of
        # metered nodes are lost here.
        ids = ids[~np.isin(fleet.gpus.node, (1, 7))]
    lost = ids[rng.random(len(ids)) < rng.choice([0.1, 0.6])]
    before = headroom_of(fleet, frame, past=past)
    after = headroom_of(fleet, without(frame, kind, lost), past=past)
    assert_no_larger(before, after, unknown_may_be=kind == "link")


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_what_is_reserved_never_raises_headroom(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = a_fleet()
    past = a_past(fleet, rng)
    frame = make_frame(fleet, now=NOW, **readings(fleet, rng))
    reserved = Reservations(
        rack_w=rng.uniform(0, 30_000, len(fleet.racks)),
        node_w=rng.uniform(0, 9_000, len(fleet.nodes)),
        link_bits_per_s=rng.uniform(0, 1e11, len(fleet.links)),
        storage_bytes_per_s=np.zeros(len(fleet.storage)),
    )
    before = headroom_of(fleet, frame, past=past)
    after = headroom_of(fleet, frame, past=past, reservations=reserved)
    for kind in KINDS:
        one, other = before.table(kind).columns, after.table(kind).columns
        for name in one.keys() & {"power_headroom_w", "failover_headroom_w", "cooling_headroom_w"}:
            fine = (other[name] <= one[name] + 1e-6) | np.isnan(one[name])
            assert fine.all(), (kind, name)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, factor=st.sampled_from([0.001, 0.5, 3.0, 1e4]))
def test_it_does_not_depend_on_the_unit_of_power(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    fleet = a_fleet()
    read = readings(fleet, rng)
    for fields in (read["gpu"], read["host"], read["meter"]):
        for name in fields.keys() & {"power_w", "cpu_power_w", "power_limit_w"}:
            fields[name] = fields[name].astype(np.float32).astype(np.float64)
    # Single precision in the frame: powers of two would be exact, these are not.
    before = headroom_of(fleet, make_frame(fleet, now=NOW, **read))
    for fields in (read["gpu"], read["host"], read["meter"]):
        for name in fields.keys() & {"power_w", "cpu_power_w", "power_limit_w"}:
            fields[name] = fields[name] * factor
    larger = replace(
        fleet,
        gpus=replace(fleet.gpus, rated_w=factor * fleet.gpus.rated_w),
        nodes=replace(
            fleet.nodes,
            host_rated_w=factor * fleet.nodes.host_rated_w,
            host_idle_w=factor * fleet.nodes.host_idle_w,
        ),
        racks=replace(fleet.racks, budget_w=factor * fleet.racks.budget_w),
        domains=replace(fleet.domains, capacity_w=factor * fleet.domains.capacity_w),
        zones=replace(fleet.zones, capacity_w=factor * fleet.zones.capacity_w),
    )
    after = headroom_of(larger, make_frame(larger, now=NOW, **read))
    for kind in KINDS:
        one, other = before.table(kind).columns, after.table(kind).columns
        for name in one.keys() & {"power_headroom_w", "failover_load_w", "cooling_load_w"}:
            np.testing.assert_allclose(other[name], factor * one[name], rtol=1e-4, atol=factor)
        for name in one.keys() & {"power_use", "power_confidence", "cooling_use"}:
            np.testing.assert_allclose(other[name], one[name], rtol=1e-4)


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_it_does_not_depend_on_the_ids_of_things(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = a_fleet()
    read, past = readings(fleet, rng), a_past(fleet, rng)
    shuffled = replace(
        fleet,
        **{
            name: replace(table, ids=rng.permutation(3 * len(table))[: len(table)] + 1)
            for name in ("gpus", "nodes", "meters", "links")
            for table in [getattr(fleet, name)]
        },
    )
    one = headroom_of(fleet, make_frame(fleet, now=NOW, **read), past=past)
    other = headroom_of(shuffled, make_frame(shuffled, now=NOW, **read), past=past)
    for kind in KINDS:
        for name, values in one.table(kind).columns.items():
            np.testing.assert_array_equal(other.table(kind).columns[name], values, str(name))


# --- Oracles in plain Python ---------------------------------------------------------------------


def path(fleet: FleetArrays, feed: int) -> list[int]:
    """Return a feed and all above it."""
    found = []
    while feed >= 0:
        found.append(feed)
        feed = int(fleet.domains.parent[feed])
    return found


def carried(fleet: FleetArrays, rack_w: list[float], failed: int = -1) -> list[float]:
    """Return what each domain carries when ``failed`` is gone, rack by rack."""
    out = [0.0] * len(fleet.domains)
    for rack, watts in enumerate(rack_w):
        feeds = [int(fleet.racks.feed_a[rack]), int(fleet.racks.feed_b[rack])]
        alive = [feed for feed in feeds if feed >= 0 and failed not in path(fleet, feed)]
        for feed in alive:
            for domain in path(fleet, feed):
                out[domain] += watts / len(alive)
    return out


def wired_anyhow(rng: np.random.Generator) -> FleetArrays:
    """Return a fleet whose racks hang on any feeds, or on one, or on none."""
    fleet = make_arrays(sites=1, racks=9, nodes=1, gpus=2, rack_meters=False)
    count = len(fleet.domains)
    a = rng.integers(-1, count - 1, len(fleet.racks))
    b = rng.integers(-1, count - 1, len(fleet.racks))
    # A rack's two feeds are not the same, and none hangs on the other.
    clash = [
        y in path(fleet, x) or x in path(fleet, y)
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    return replace(fleet, racks=replace(fleet.racks, feed_a=a, feed_b=np.where(clash, -1, b)))


@settings(max_examples=80, deadline=None)
@given(seed=seeds)
def test_feeds_carry_what_hangs_on_them_also_when_their_pair_fails(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = wired_anyhow(rng)
    power_w = rng.uniform(50, 700, len(fleet.gpus))
    headroom = headroom_of(
        fleet, make_frame(fleet, now=NOW, gpu={"power_w": power_w, "temp_c": 40.0})
    )
    rack_w = headroom.table(ScopeKind.RACK).columns["power_load_w"].tolist()
    domains = headroom.table(ScopeKind.POWER_DOMAIN).columns
    assert domains["power_load_w"] == pytest.approx(carried(fleet, rack_w))
    for row, mate in enumerate(fleet.domains.pair.tolist()):
        if mate >= 0:
            alone_w = carried(fleet, rack_w, failed=mate)[row]
            assert domains["failover_load_w"][row] == pytest.approx(alone_w)


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_paths_up_the_tree_are_those_of_parents(seed: int) -> None:
    fleet = wired_anyhow(np.random.default_rng(seed))
    levels = above(fleet, fleet.racks.feed_a)
    for rack, feed in enumerate(fleet.racks.feed_a.tolist()):
        assert [row for row in levels[:, rack].tolist() if row >= 0] == path(fleet, feed)


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_loads_and_margins_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = make_arrays(sites=2, racks=3, nodes=2, gpus=2, rack_meters=False)
    count = len(fleet.gpus)
    ts = NOW - rng.choice([0.0, 99.0], count)
    power_w = np.float32(rng.uniform(50, 700, count)).astype(float)
    temp_c = np.float32(rng.uniform(25, 86, count)).astype(float)
    frame = make_frame(
        fleet, now=NOW, gpu={"ts": ts, "power_w": power_w, "temp_c": temp_c, "temp_mem_c": 40.0}
    )
    headroom = headroom_of(fleet, frame, past=fitted(fleet))
    loads, margins = [0.0] * 6, [np.inf] * 6
    for node in range(len(fleet.nodes)):
        rack, gpus_w = int(fleet.nodes.rack[node]), 0.0
        for gpu in range(2 * node, 2 * node + 2):
            fresh = ts[gpu] == NOW
            gpus_w += power_w[gpu] if fresh else 700.0
            hot_c = temp_c[gpu] if fresh else max(temp_c[gpu], AMBIENT_C + 0.052 * 700.0)
            margins[rack] = min(margins[rack], SLOWDOWN_C - hot_c)
        loads[rack] += gpus_w + 1400.0 + gpus_w / 1400.0 * 3200.0
    racks = headroom.table(ScopeKind.RACK).columns
    assert racks["power_load_w"] == pytest.approx(loads)
    assert racks["thermal_margin_c"] == pytest.approx(margins)
    site = headroom.table(ScopeKind.SITE).columns
    assert site["power_load_w"] == pytest.approx([sum(loads[:3]), sum(loads[3:])])
    assert site["thermal_margin_c"] == pytest.approx([min(margins[:3]), min(margins[3:])])
