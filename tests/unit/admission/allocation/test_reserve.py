"""What admitted jobs reserve, and what that leaves of the fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.allocation import reservation
from admission.core.allocation.joint import Learned
from admission.core.allocation.reservation import BIN_EDGES_W, AllocationArrays, Rules, Traffic
from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import Headroom
from policies.headroom.power import steps_by
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, all_read, headroom_of

RULES = Rules()
FLEET = make_arrays(racks=2, nodes=2, gpus=8)
#: Eight GPUs at 400 W, and the host that goes with them (1400 W idle, 4600 W rated).
NODE_W = 8 * 400.0 + 1400.0 + 400 / 700 * 3200.0
PEAK_W = 10_000.0


def held(
    *nodes: int, gpus: int = 8, peak_w: Any = PEAK_W, fleet: FleetArrays = FLEET, **given: Any
) -> AllocationArrays:
    """Return one allocation of ``gpus`` GPUs on each of ``nodes``, which began an hour ago."""
    count = len(nodes)
    first = [fleet.gpu_bounds[node] for node in nodes]
    fields: dict[str, Any] = {
        "node": np.array(nodes, dtype=np.int64),
        "peak_w": np.broadcast_to(peak_w, count),
        "gpus": np.full(count, gpus),
        "started_at": np.full(count, NOW - 3600.0),
        "expected_end_at": np.full(count, np.nan),
        "p99_w": np.full(count, np.nan),
        "read_s": np.zeros(count),
        "gang": np.arange(count),
        "kind": np.arange(count),
        "learned": learned(count, np.nan, 1.0),
        "gpu": np.array([at + i for at in first for i in range(gpus)], dtype=np.int64),
        "gpu_allocation": np.repeat(np.arange(count), gpus),
        "links": Traffic.none(),
        "storage": Traffic.none(),
    }
    plain = (Traffic, Learned)
    fields |= {k: v if isinstance(v, plain) else np.asarray(v) for k, v in given.items()}
    return AllocationArrays(**fields)


def with_reserved(held: AllocationArrays, headroom: Headroom) -> Headroom:
    found = reservation.reserve(held, headroom.fleet, headroom.summary, now=NOW, rules=RULES)
    return replace(headroom, reservations=found.fleet)


def watts(held: AllocationArrays, headroom: Headroom) -> Any:
    found = reservation.reserve(held, headroom.fleet, headroom.summary, now=NOW, rules=RULES)
    return found.watts.tolist()


# --- Allocations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p99_w", "read_s", "expected_w"),
    [
        pytest.param(np.nan, 0.0, PEAK_W, id="its peak before anything was read"),
        pytest.param(900.0, 299.0, PEAK_W, id="and until it has warmed up"),
        pytest.param(900.0, 300.0, PEAK_W, id="from there it comes down"),
        pytest.param(900.0, 420.0, (PEAK_W + 7920.0) / 2, id="half of the way in two minutes"),
        pytest.param(900.0, 9000.0, 7920.0, id="to its 99th percentile and a tenth"),
        pytest.param(300.0, 9000.0, NODE_W, id="and never under what it draws"),
        pytest.param(2000.0, 9000.0, PEAK_W, id="nor, on paper, over its peak"),
        pytest.param(np.inf, 9000.0, PEAK_W, id="nor where what it drew has no bound"),
    ],
)
def test_a_reservation_comes_down_from_the_peak_to_what_was_drawn(
    p99_w: float, read_s: float, expected_w: float
) -> None:
    mine = held(0, p99_w=[p99_w], read_s=[read_s])
    assert watts(mine, headroom_of(FLEET, all_read(FLEET))) == [pytest.approx(expected_w)]


def test_what_was_never_seen_at_work_reserves_its_peak_however_long_it_was_read() -> None:
    quiet = held(0, p99_w=[500.0], read_s=[9000.0], learned=learned(1, 450.0, 0.0))
    assert watts(quiet, headroom_of(FLEET, all_read(FLEET))) == [PEAK_W]


def test_what_was_quiet_so_far_reserves_what_others_of_its_kind_drew() -> None:
    quiet = held(0, p99_w=[500.0], read_s=[9000.0], learned=learned(1, 750.0, 2.0))
    assert watts(quiet, headroom_of(FLEET, all_read(FLEET))) == [pytest.approx(1.1 * 8 * 900.0)]


def test_what_draws_more_than_its_peak_reserves_what_it_draws() -> None:
    mine = held(0, peak_w=1000.0, p99_w=[100.0], read_s=[9000.0])
    assert watts(mine, headroom_of(FLEET, all_read(FLEET))) == [pytest.approx(NODE_W)]


def test_what_has_not_begun_reserves_its_peak_whatever_was_read() -> None:
    mine = held(0, p99_w=[600.0], read_s=[9000.0], started_at=[np.nan])
    assert watts(mine, headroom_of(FLEET, all_read(FLEET))) == [PEAK_W]


def test_what_was_read_before_it_began_reserves_its_peak() -> None:
    # A reading of its first seconds may be of what stood there before.
    mine = held(0, p99_w=[900.0], read_s=[9000.0], started_at=[NOW - 6.0])
    early = all_read(FLEET, ts=np.full(len(FLEET.gpus), NOW - 3.0))
    assert watts(mine, headroom_of(FLEET, early)) == [PEAK_W]
    assert watts(mine, headroom_of(FLEET, all_read(FLEET))) == [pytest.approx(7920.0)]


def test_what_falls_silent_is_back_at_its_peak() -> None:
    mine = held(0, 1, p99_w=[800.0, 800.0], read_s=[9000.0, 9000.0])
    read_at = NOW - np.arange(len(FLEET.gpus)) // 8 * 300.0
    frame = all_read(FLEET, ts=read_at)
    assert watts(mine, headroom_of(FLEET, frame)) == [pytest.approx(7040.0), PEAK_W + 200.0]


def test_a_part_of_a_node_has_its_part_of_the_host() -> None:
    mine = held(0, gpus=2, peak_w=100.0)
    host_w = NODE_W - 3200.0
    assert watts(mine, headroom_of(FLEET, all_read(FLEET))) == [pytest.approx(800 + host_w / 4)]


def test_that_others_draw_more_than_usual_makes_no_room_for_what_is_about_to_begin() -> None:
    def on(count: int, **given: Any) -> AllocationArrays:
        usual = learned(count, 300.0, 1000.0)
        read: dict[str, Any] = {"p99_w": np.full(count, 300.0), "read_s": np.full(count, 9000.0)}
        return held(*range(count), learned=usual, **read, **given)

    seen = on(3)
    begins = on(4, started_at=[NOW - 3600.0] * 3 + [np.nan])
    plain = headroom_of(FLEET, all_read(FLEET))
    before, after = (
        with_reserved(each, plain).powers[ScopeKind.SITE].load_w for each in (seen, begins)
    )
    assert after - before == pytest.approx(PEAK_W - NODE_W)


# --- The fleet ------------------------------------------------------------------------------------


def test_a_node_carries_reservations_and_what_nobody_has_reserved() -> None:
    mine = held(0, gpus=4, peak_w=8000.0)
    plain = headroom_of(FLEET, all_read(FLEET))
    full = with_reserved(mine, plain)
    node, rack = full.powers[ScopeKind.NODE], full.powers[ScopeKind.RACK]
    # The other four GPUs, with their half of the host, are somebody else's.
    assert node.load_w.tolist() == pytest.approx([8000 + NODE_W / 2, NODE_W, NODE_W, NODE_W])
    assert rack.load_w[0] == pytest.approx(8000 + 1.5 * NODE_W)
    assert rack.load_w[1] == pytest.approx(2 * NODE_W)


def test_two_attempts_on_a_node_add_up() -> None:
    both = held(
        0, 0, peak_w=[5000.0, 6000.0], gpus=4,
        gpu=np.arange(8), gpu_allocation=np.repeat([0, 1], 4),
    )  # fmt: skip
    full = with_reserved(both, headroom_of(FLEET, all_read(FLEET)))
    assert full.powers[ScopeKind.NODE].load_w[0] == pytest.approx(11_000.0)


def test_a_rack_meter_and_a_reservation_do_not_count_the_same_watts_twice() -> None:
    frame = make_frame(FLEET, now=NOW, gpu={"power_w": 400.0}, meter={"power_w": 2 * NODE_W})
    full = with_reserved(held(0, 1), headroom_of(FLEET, frame))
    assert full.powers[ScopeKind.RACK].load_w[0] == pytest.approx(2 * PEAK_W)


def learned(count: int, mean_w: float, samples: float) -> Learned:
    """Return what was seen of GPUs that swing by a fifth around their mean, W with their host."""
    return Learned(
        np.full(count, mean_w),
        np.full(count, 1.2 * mean_w),
        np.full(count, 0.08 * mean_w),
        np.full(count, samples),
    )


def test_a_rack_and_all_above_it_reserve_the_joint_peak() -> None:
    warm: dict[str, Any] = {"p99_w": np.full(4, 1080.0), "read_s": np.full(4, 9000.0)}
    plain = headroom_of(FLEET, all_read(FLEET))
    alone = with_reserved(held(0, 1, 2, 3, **warm, learned=learned(4, 900.0, 1e6)), plain)
    gang = with_reserved(
        held(0, 1, 2, 3, **warm, learned=learned(4, 900.0, 1e6), gang=[0, 0, 0, 0]), plain
    )
    new = with_reserved(held(0, 1, 2, 3, **warm, learned=learned(4, 900.0, 0.0)), plain)
    swing_w = 8 * 180.0
    for found, rack_w, site_w in (
        (alone, 14_400.0 + 2**0.5 * swing_w, 28_800.0 + 2.0 * swing_w),
        (gang, 14_400.0 + 2.0 * swing_w, 28_800.0 + 4.0 * swing_w),
        (new, 2 * PEAK_W, 4 * PEAK_W),
    ):
        powers = found.powers
        assert powers[ScopeKind.RACK].load_w == pytest.approx([rack_w] * 2, rel=3e-3)
        assert powers[ScopeKind.SITE].load_w == pytest.approx([site_w], rel=3e-3)
        top = powers[ScopeKind.POWER_DOMAIN].load_w.max()
        assert top == pytest.approx(site_w, rel=3e-3)
        assert (powers[ScopeKind.RACK].reserved_w <= rack_w * 1.003).all()


def test_what_falls_silent_is_back_at_its_peak_in_its_rack_too() -> None:
    mine = held(0, 1, learned=learned(2, 800.0, 1e6))
    read_at = NOW - np.arange(len(FLEET.gpus)) // 8 * 300.0
    full = with_reserved(mine, headroom_of(FLEET, all_read(FLEET, ts=read_at)))
    silent_w = PEAK_W + 200.0
    known_w = 8 * 960.0
    assert full.powers[ScopeKind.RACK].load_w[0] == pytest.approx(silent_w + known_w, rel=5e-3)


def test_a_gang_gives_back_its_share_of_the_joint_peak_when_it_ends() -> None:
    mine = held(0, 1, learned=learned(2, 900.0, 1e6))
    plain = headroom_of(FLEET, all_read(FLEET))
    found = reservation.reserve(mine, FLEET, plain.summary, now=NOW, rules=RULES)
    rack_w = replace(plain, reservations=found.fleet).powers[ScopeKind.RACK].load_w[0]
    assert found.watts.tolist() == [PEAK_W] * 2
    assert found.shares_w.sum() == pytest.approx(rack_w)
    assert (found.shares_w >= found.drawn.watts).all()


def test_nothing_held_reserves_nothing() -> None:
    plain = headroom_of(FLEET, all_read(FLEET))
    full = with_reserved(held(), plain)
    for kind in (ScopeKind.NODE, ScopeKind.RACK, ScopeKind.SITE):
        assert full.powers[kind].load_w.tolist() == plain.powers[kind].load_w.tolist()


def test_links_count_until_readings_show_it_and_storage_always() -> None:
    new, known = [0.0], [9000.0]
    for read_s, link in ((new, 5e9), (known, 0.0)):
        traffic = Traffic(np.array([2]), np.array([0]), np.array([5e9]))
        store = Traffic(np.array([0]), np.array([0]), np.array([2e9]))
        mine = held(0, links=traffic, storage=store, read_s=read_s, p99_w=[500.0])
        headroom = headroom_of(FLEET, all_read(FLEET))
        found = reservation.reserve(mine, FLEET, headroom.summary, now=NOW, rules=RULES).fleet
        assert found.link_bits_per_s[2] == link
        assert found.storage_bytes_per_s[0] == 2e9


def test_forecasts_know_what_has_still_to_come_and_what_ends() -> None:
    mine = held(
        0, 2, started_at=[NOW - 20.0, NOW - 3600.0], expected_end_at=[np.nan, NOW + 120.0],
        read_s=[0.0, 9000.0], p99_w=[np.nan, 600.0],
    )  # fmt: skip
    full = with_reserved(mine, headroom_of(FLEET, all_read(FLEET)))
    rises, ends = full.reservations.steps.at.tolist()
    assert (rises, ends) == (NOW + 40.0, NOW + 120.0)
    assert full.reservations.steps.rack.tolist() == [0, 1]
    soon = steps_by(FLEET, full.reservations.steps, NOW, 300.0)[ScopeKind.RACK]
    assert soon == pytest.approx([PEAK_W - NODE_W, -NODE_W])


# --- What was drawn -------------------------------------------------------------------------------


NEVER_FORGETS = Rules(forgets_in_s=1e12)


def noted(draws_w: list[float], rules: Rules = NEVER_FORGETS) -> Any:
    seconds = np.zeros((1, len(BIN_EDGES_W)))
    for each in draws_w:
        seconds = reservation.noted(
            seconds, np.array([each]), np.array([True]), np.array([20.0]), rules
        )
    return seconds


def test_a_quantile_is_the_upper_edge_of_its_bin() -> None:
    seconds = noted([*[410.0] * 196, *[640.0] * 3, 900.0])
    assert reservation.quantile_w(seconds, 0.5).tolist() == [425.0]
    assert reservation.quantile_w(seconds, 0.99).tolist() == [650.0]
    assert reservation.quantile_w(seconds, 1.0).tolist() == [900.0]
    assert reservation.read_for_s(seconds).tolist() == [pytest.approx(4000.0)]


def test_what_was_never_read_has_no_quantile() -> None:
    assert np.isnan(reservation.quantile_w(np.zeros((2, len(BIN_EDGES_W))), 0.99)).all()


def test_old_readings_count_less_and_in_the_end_not() -> None:
    seconds = noted([*[700.0] * 10, *[300.0] * 1000], Rules(forgets_in_s=600.0))
    assert reservation.quantile_w(seconds, 0.99).tolist() == [300.0]
    assert noted([700.0] * 10, Rules(forgets_in_s=600.0)).sum() < 200.0


def test_a_draw_over_all_bins_has_no_bound() -> None:
    assert reservation.quantile_w(noted([5000.0]), 0.99).tolist() == [np.inf]


def test_only_what_is_known_is_noted() -> None:
    seconds = reservation.noted(
        np.zeros((2, len(BIN_EDGES_W))), np.array([300.0, 300.0]), np.array([True, False]),
        np.array([20.0, 20.0]), RULES,
    )  # fmt: skip
    assert reservation.read_for_s(seconds).tolist() == [20.0, 0.0]


# --- Always ---------------------------------------------------------------------------------------

_watts = st.floats(0.0, 20_000.0)


@given(
    st.lists(st.tuples(_watts, st.floats(0, 1e5), st.floats(0, 3000), st.booleans()), max_size=4),
    st.lists(st.floats(0.0, 900.0), min_size=32, max_size=32),
    st.sets(st.integers(0, 31)),
)
def test_silence_never_makes_headroom_larger(
    jobs: list[tuple[float, float, float, bool]], gpu_w: list[float], silent: set[int]
) -> None:
    """Invariants 1 and 3: all that is reserved counts, and the more so what is not read."""
    mine = held(
        *range(len(jobs)),
        peak_w=[each[0] for each in jobs],
        read_s=[each[1] for each in jobs],
        p99_w=[each[2] for each in jobs],
        started_at=[NOW - 3600.0 if each[3] else np.nan for each in jobs],
    ) if jobs else held()  # fmt: skip
    read_at = np.array([NOW - 100.0 if i in silent else NOW for i in range(32)])
    read = headroom_of(FLEET, all_read(FLEET, power_w=np.array(gpu_w)))
    unread = headroom_of(FLEET, all_read(FLEET, power_w=np.array(gpu_w), ts=read_at))
    full, dark = with_reserved(mine, read), with_reserved(mine, unread)
    for kind in (ScopeKind.NODE, ScopeKind.RACK, ScopeKind.POWER_DOMAIN, ScopeKind.SITE):
        assert (dark.powers[kind].load_w >= full.powers[kind].load_w - 1e-6).all()
        assert (full.powers[kind].load_w >= read.powers[kind].load_w - 1e-6).all()
    reserved = np.array(watts(mine, read))
    drawn = reservation.drawn(mine, FLEET, read.summary).watts
    assert (reserved >= drawn - 1e-9).all()
    assert (reserved <= np.maximum(mine.peak_w, drawn) + 1e-9).all()
