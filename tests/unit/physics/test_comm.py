import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.comm import (
    algorithm_bandwidth_bytes_per_s,
    all_to_all_s,
    bandwidth_ratio,
    best_all_reduce,
    bus_bandwidth_bytes_per_s,
    communication_ratio,
    double_tree_all_reduce_s,
    exposed_communication_s,
    fiber_latency_s,
    gradient_bytes,
    halving_doubling_all_reduce_s,
    hierarchical_all_reduce_s,
    lanes_bytes_per_s,
    line_rate_bytes_per_s,
    links_bytes_per_s,
    ratio_by_model,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_broadcast_s,
    ring_reduce_scatter_s,
    ring_traffic_bytes,
    ring_traffic_factor,
    ring_tree_crossover_bytes,
    time_at_bus_bandwidth_s,
    transfer_s,
    tree_all_reduce_s,
)
from physics.errors import ImpossibleArgumentError, ShapeMismatchError

Law = Callable[..., Any]

#: Rules of thumb of "Fleet Foundations": InfiniBand NDR between nodes, NVLink 4 within.
NDR: dict[str, Any] = {"link_bytes_per_s": 50e9, "latency_s": 5e-6}
NODE: dict[str, Any] = {
    "ranks_per_node": 8,
    "node_link_bytes_per_s": 450e9,
    "node_latency_s": 0.5e-6,
    "rails": 8,
}
ALL_REDUCES: list[Law] = [
    ring_all_reduce_s,
    tree_all_reduce_s,
    double_tree_all_reduce_s,
    halving_doubling_all_reduce_s,
]
ONE_WAY: list[Law] = [ring_reduce_scatter_s, ring_all_gather_s, all_to_all_s]
COLLECTIVES = [*ALL_REDUCES, *ONE_WAY, ring_broadcast_s]
BUS_FACTORS = {
    "all-reduce": 1.75,
    "all-gather": 0.875,
    "reduce-scatter": 0.875,
    "all-to-all": 0.875,
    "broadcast": 1.0,
    "reduce": 1.0,
    "send": 1.0,
}

ranks_ = st.integers(1, 200_000)
# None, or a byte at least: times of less than that are below what floats can tell apart.
messages = st.just(0.0) | st.floats(1.0, 1e12)
links = st.floats(1e6, 1e13)
latencies = st.floats(0.0, 0.1)


def close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-15)


# Collectives


@pytest.mark.parametrize(
    ("message_bytes", "flat_ms", "hierarchical_ms"), [(14e9, 560.36, 122.57), (680e6, 29.64, 6.26)]
)
def test_256_gpus_take_the_times_of_the_reference_tables(
    message_bytes: float, flat_ms: float, hierarchical_ms: float
) -> None:
    flat_s = ring_all_reduce_s(ranks=256, message_bytes=message_bytes, **NDR)
    levels_s = hierarchical_all_reduce_s(ranks=256, message_bytes=message_bytes, **NDR, **NODE)
    assert round(flat_s * 1e3, 2) == flat_ms
    assert round(levels_s * 1e3, 2) == hierarchical_ms


@pytest.mark.parametrize(
    ("collective", "hops", "messages_sent"),
    [
        (ring_all_reduce_s, 14, 1.75),
        (tree_all_reduce_s, 6, 6.0),
        (halving_doubling_all_reduce_s, 6, 1.75),
        (ring_reduce_scatter_s, 7, 0.875),
        (ring_all_gather_s, 7, 0.875),
        (all_to_all_s, 7, 0.875),
    ],
)
def test_eight_ranks_take_so_many_latencies_and_send_so_much_of_the_message(
    collective: Law, hops: int, messages_sent: float
) -> None:
    # One second a latency, a thousand seconds a message.
    took_s = collective(ranks=8, message_bytes=1000.0, link_bytes_per_s=1.0, latency_s=1.0)
    assert took_s == hops + messages_sent * 1000.0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_has_nobody_to_talk_to(collective: Law) -> None:
    assert collective(ranks=1, message_bytes=1e9, **NDR) == 0.0
    assert collective(ranks=1, message_bytes=0.0, link_bytes_per_s=1.0, latency_s=0.0) == 0.0


@given(
    collective=st.sampled_from(COLLECTIVES),
    ranks=ranks_,
    message=messages,
    link=links,
    latency=latencies,
    factor=st.sampled_from([2, 64]),
)
def test_as_many_times_more_bytes_and_bandwidth_change_nothing(
    collective: Law, ranks: int, message: float, link: float, latency: float, factor: int
) -> None:
    once = collective(ranks=ranks, message_bytes=message, link_bytes_per_s=link, latency_s=latency)
    scaled = collective(
        ranks=ranks,
        message_bytes=message * factor,
        link_bytes_per_s=link * factor,
        latency_s=latency,
    )
    assert once == scaled


@given(
    collective=st.sampled_from(COLLECTIVES),
    low=ranks_,
    high=ranks_,
    message=messages,
    link=links,
    latency=latencies,
)
def test_more_ranks_of_a_power_of_two_never_take_less_time(
    collective: Law, low: int, high: int, message: float, link: float, latency: float
) -> None:
    # Between powers of two, halving-doubling pays for its excess ranks: see its own test.
    few, many = sorted(2 ** (each.bit_length() - 1) for each in (low, high))
    setup = {"message_bytes": message, "link_bytes_per_s": link, "latency_s": latency}
    assert collective(ranks=few, **setup) <= collective(ranks=many, **setup) * (1 + 1e-12)


@given(
    collective=st.sampled_from([ring_all_reduce_s, tree_all_reduce_s, ring_broadcast_s]),
    low=ranks_,
    high=ranks_,
    message=messages,
    link=links,
    latency=latencies,
)
def test_more_ranks_never_take_less_time(
    collective: Law, low: int, high: int, message: float, link: float, latency: float
) -> None:
    few, many = sorted((low, high))
    setup = {"message_bytes": message, "link_bytes_per_s": link, "latency_s": latency}
    assert collective(ranks=few, **setup) <= collective(ranks=many, **setup) * (1 + 1e-12)


@given(
    collective=st.sampled_from(COLLECTIVES),
    ranks=ranks_,
    low=messages,
    high=messages,
    link=links,
    latency=latencies,
)
def test_a_longer_message_never_takes_less_time(
    collective: Law, ranks: int, low: float, high: float, link: float, latency: float
) -> None:
    short, long = sorted((low, high))
    setup = {"ranks": ranks, "link_bytes_per_s": link, "latency_s": latency}
    assert collective(message_bytes=short, **setup) <= collective(message_bytes=long, **setup) * (
        1 + 1e-12
    )


@given(
    all_reduce=st.sampled_from(ALL_REDUCES),
    ranks=ranks_,
    message=messages,
    link=links,
    latency=latencies,
)
def test_no_all_reduce_sends_less_than_the_least_traffic(
    all_reduce: Law, ranks: int, message: float, link: float, latency: float
) -> None:
    took_s = all_reduce(
        ranks=ranks, message_bytes=message, link_bytes_per_s=link, latency_s=latency
    )
    least_s = ring_traffic_bytes(ranks=ranks, message_bytes=message) / link
    assert took_s >= least_s * (1 - 1e-12)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_an_array_gives_what_its_elements_give_one_by_one(collective: Law) -> None:
    ranks = np.array([1, 2, 3, 7, 8, 100, 4096])
    message = np.array([[0.0], [1.0], [1e6], [14e9]])
    sweep = collective(ranks=ranks, message_bytes=message, **NDR)
    singles = [
        [collective(ranks=int(n), message_bytes=float(m), **NDR) for n in ranks]
        for m in message[:, 0]
    ]
    assert sweep.shape == (4, 7)
    assert sweep.tolist() == singles
    assert isinstance(singles[0][0], float)


@given(ranks=ranks_, message=messages, link=links, latency=latencies)
def test_a_ring_all_reduce_is_a_reduce_scatter_and_an_all_gather(
    ranks: int, message: float, link: float, latency: float
) -> None:
    setup: dict[str, Any] = {
        "ranks": ranks,
        "message_bytes": message,
        "link_bytes_per_s": link,
        "latency_s": latency,
    }
    halves_s = ring_reduce_scatter_s(**setup) + ring_all_gather_s(**setup)
    assert close(ring_all_reduce_s(**setup), halves_s)


@pytest.mark.parametrize("power", range(53))
def test_a_tree_has_a_level_for_each_doubling(power: int) -> None:
    setup: dict[str, Any] = {"message_bytes": 0.0, "link_bytes_per_s": 1.0, "latency_s": 1.0}
    assert tree_all_reduce_s(ranks=2.0**power, **setup) == 2 * power
    assert tree_all_reduce_s(ranks=2.0**power + 1, **setup) == 2 * (power + 1)


@given(ranks=st.integers(2, 200_000), wire_s=st.floats(1e-9, 100.0), latency=st.floats(1e-9, 0.1))
def test_a_double_tree_cuts_its_message_into_the_best_number_of_chunks(
    ranks: int, wire_s: float, latency: float
) -> None:
    took_s = double_tree_all_reduce_s(
        ranks=ranks, message_bytes=wire_s, link_bytes_per_s=1.0, latency_s=latency
    )
    height = (ranks - 1).bit_length()
    best = math.sqrt((height - 1) * wire_s / latency)
    chunks = np.append(np.geomspace(1.0, 1e6, 50), max(best, 1.0))
    each_s = 2.0 * (height + chunks - 1.0) * (latency + wire_s / chunks)
    assert close(took_s, each_s.min())


def test_without_latency_a_double_tree_sends_the_message_twice() -> None:
    took_s = double_tree_all_reduce_s(
        ranks=[2, 3, 1000],  # type: ignore[arg-type]
        message_bytes=100.0,
        link_bytes_per_s=10.0,
        latency_s=0.0,
    )
    assert took_s.tolist() == [20.0, 20.0, 20.0]


@given(ranks=ranks_, message=messages, link=links, latency=latencies)
def test_a_double_tree_is_never_slower_than_a_tree(
    ranks: int, message: float, link: float, latency: float
) -> None:
    setup: dict[str, Any] = {
        "ranks": ranks,
        "message_bytes": message,
        "link_bytes_per_s": link,
        "latency_s": latency,
    }
    assert double_tree_all_reduce_s(**setup) <= tree_all_reduce_s(**setup) * (1 + 1e-12)


def test_ranks_beyond_a_power_of_two_cost_halving_doubling_a_message_there_and_back() -> None:
    setup: dict[str, Any] = {"message_bytes": 1000.0, "link_bytes_per_s": 1.0, "latency_s": 1.0}
    four_s = halving_doubling_all_reduce_s(ranks=4, **setup)
    assert four_s == 4 + 1500
    for ranks in (5, 6, 7):
        assert halving_doubling_all_reduce_s(ranks=ranks, **setup) == four_s + 2 * 1001


def test_a_broadcast_of_a_long_message_takes_little_more_than_sending_it_once() -> None:
    assert ring_broadcast_s(ranks=2, message_bytes=1e9, **NDR) == pytest.approx(0.020005)
    assert ring_broadcast_s(ranks=256, message_bytes=1e12, **NDR) == pytest.approx(20.3, rel=0.01)
    # Not worth cutting: one hop after the other.
    assert ring_broadcast_s(ranks=5, message_bytes=0.0, **NDR) == pytest.approx(4 * 5e-6)


# Two levels


def test_within_one_node_only_the_fast_link_counts() -> None:
    node_s = ring_all_reduce_s(ranks=8, message_bytes=1e9, link_bytes_per_s=450e9, latency_s=0.5e-6)
    levels_s = hierarchical_all_reduce_s(ranks=8, message_bytes=1e9, **NDR, **NODE)
    assert close(levels_s, node_s)
    part_s = hierarchical_all_reduce_s(ranks=4, message_bytes=1e9, **NDR, **NODE)
    assert part_s < levels_s


@pytest.mark.parametrize(
    ("across_nodes", "flat"),
    list(zip(["ring", "tree", "double-tree", "halving-doubling"], ALL_REDUCES, strict=True)),
)
def test_nodes_of_one_gpu_and_one_rail_are_a_flat_all_reduce(across_nodes: Any, flat: Law) -> None:
    lone = NODE | {"ranks_per_node": 1, "rails": 1, "across_nodes": across_nodes}
    levels_s = hierarchical_all_reduce_s(ranks=96, message_bytes=1e9, **NDR, **lone)
    assert levels_s == flat(ranks=96, message_bytes=1e9, **NDR)


@pytest.mark.parametrize(
    ("rails", "milliseconds"), [(1, 597.26), (2, 326.01), (8, 122.57), (16, 88.67)]
)
def test_rails_share_the_traffic_across_nodes(rails: int, milliseconds: float) -> None:
    setup = NODE | {"rails": rails}
    took_s = hierarchical_all_reduce_s(ranks=256, message_bytes=14e9, **NDR, **setup)
    assert round(took_s * 1e3, 2) == milliseconds


@given(nodes=st.integers(1, 64), message=messages)
def test_rails_as_fast_as_the_links_of_a_node_leave_the_traffic_of_a_flat_ring(
    nodes: int, message: float
) -> None:
    # With k = g rails of the node's own bandwidth, both levels together send 2 (N-1)/N of it.
    setup: dict[str, Any] = {"ranks": 8 * nodes, "message_bytes": message}
    links: dict[str, Any] = {"link_bytes_per_s": 50e9, "latency_s": 0.0}
    node = NODE | {"node_link_bytes_per_s": 50e9, "node_latency_s": 0.0}
    levels_s = hierarchical_all_reduce_s(**setup, **links, **node)
    assert close(levels_s, ring_all_reduce_s(**setup, **links))


def test_ranks_that_do_not_fill_their_nodes_are_refused() -> None:
    with pytest.raises(
        ImpossibleArgumentError, match=r"ranks must be a multiple of ranks_per_node"
    ):
        hierarchical_all_reduce_s(ranks=[16, 12], message_bytes=1e9, **NDR, **NODE)  # type: ignore[arg-type]


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^across_nodes must be one of ring, tree"):
        hierarchical_all_reduce_s(
            ranks=16,
            message_bytes=1e9,
            **NDR,
            **NODE,
            across_nodes="star",  # type: ignore[arg-type]
        )


# The choice of an algorithm


@pytest.mark.parametrize(
    ("ranks", "message_bytes", "fastest"),
    [
        (1, 1e9, "ring"),
        (2, 1e9, "ring"),
        (256, 14e9, "halving-doubling"),
        (1000, 0.0, "tree"),
        (1000, 1e3, "halving-doubling"),
        (1000, 10e6, "double-tree"),
        (1000, 100e9, "ring"),
    ],
)
def test_the_fastest_all_reduce_depends_on_ranks_and_message(
    ranks: int, message_bytes: float, fastest: str
) -> None:
    assert best_all_reduce(ranks=ranks, message_bytes=message_bytes, **NDR).fastest == fastest


def test_the_times_are_those_of_the_single_algorithms() -> None:
    ranks, message = np.array([[3], [256], [1000]]), np.array([1e3, 1e6, 1e9, 1e12])
    best = best_all_reduce(ranks=ranks, message_bytes=message, **NDR)
    times = [best.ring_s, best.tree_s, best.double_tree_s, best.halving_doubling_s]
    for took_s, algorithm in zip(times, ALL_REDUCES, strict=True):
        assert np.array_equal(took_s, algorithm(ranks=ranks, message_bytes=message, **NDR))
    assert np.array_equal(best.fastest_s, np.min(times, axis=0))
    names = np.array(["ring", "tree", "double-tree", "halving-doubling"])
    assert np.array_equal(best.fastest, names[np.argmin(times, axis=0)])


@given(ranks=st.integers(4, 200_000), link=links, latency=st.floats(1e-9, 0.1))
def test_the_crossover_is_where_ring_and_tree_take_as_long(
    ranks: int, link: float, latency: float
) -> None:
    setup: dict[str, Any] = {"ranks": ranks, "link_bytes_per_s": link, "latency_s": latency}
    crossover = ring_tree_crossover_bytes(**setup)

    def ring_and_tree(message: float) -> tuple[float, float]:
        return (
            ring_all_reduce_s(message_bytes=message, **setup),
            tree_all_reduce_s(message_bytes=message, **setup),
        )

    ring_s, tree_s = ring_and_tree(crossover)
    assert close(ring_s, tree_s)
    ring_s, tree_s = ring_and_tree(crossover * 1.01)
    assert ring_s < tree_s
    ring_s, tree_s = ring_and_tree(crossover * 0.99)
    assert ring_s > tree_s


def test_up_to_three_ranks_a_tree_never_wins() -> None:
    assert ring_tree_crossover_bytes(ranks=[1, 2, 3], **NDR).tolist() == [0.0, 0.0, 0.0]  # type: ignore[arg-type]


# Traffic and measured bandwidth


def test_the_traffic_of_a_ring_nears_twice_the_message() -> None:
    assert ring_traffic_factor(ranks=1) == 0.0
    assert ring_traffic_factor(ranks=256) == 1.9921875
    assert ring_traffic_factor(ranks=1e9) == pytest.approx(2.0)
    assert ring_traffic_bytes(ranks=256, message_bytes=14e9) == 27.890625e9


def test_gradients_in_bf16_take_two_bytes_a_parameter() -> None:
    assert gradient_bytes(parameters=7e9) == 14e9
    assert gradient_bytes(parameters=7e9, bytes_per_parameter=4) == 28e9


@pytest.mark.parametrize(("collective", "factor"), BUS_FACTORS.items())
def test_the_bus_bandwidth_of_eight_ranks_is_that_of_nccl_tests(
    collective: Any, factor: float
) -> None:
    measured = {"message_bytes": 8e9, "communication_s": 0.04}
    assert algorithm_bandwidth_bytes_per_s(**measured) == 200e9
    bus = bus_bandwidth_bytes_per_s(ranks=8, collective=collective, **measured)
    assert bus == pytest.approx(factor * 200e9)


@given(
    collective=st.sampled_from(list(BUS_FACTORS)),
    ranks=st.integers(2, 200_000),
    message=st.floats(1.0, 1e12),
    communication=st.floats(1e-6, 1e3),
)
def test_the_time_at_the_measured_bus_bandwidth_is_the_measured_one(
    collective: Any, ranks: int, message: float, communication: float
) -> None:
    bus = bus_bandwidth_bytes_per_s(
        ranks=ranks, message_bytes=message, communication_s=communication, collective=collective
    )
    again_s = time_at_bus_bandwidth_s(
        ranks=ranks, message_bytes=message, bus_bandwidth_bytes_per_s=bus, collective=collective
    )
    assert close(again_s, communication)


@given(ranks=st.integers(2, 200_000), message=st.floats(1.0, 1e12), link=links)
def test_a_ring_without_latency_has_the_bus_bandwidth_of_its_links(
    ranks: int, message: float, link: float
) -> None:
    took_s = ring_all_reduce_s(
        ranks=ranks, message_bytes=message, link_bytes_per_s=link, latency_s=0.0
    )
    bus = bus_bandwidth_bytes_per_s(ranks=ranks, message_bytes=message, communication_s=took_s)
    assert close(bus, link)


def test_one_rank_takes_no_time_at_any_bus_bandwidth() -> None:
    assert time_at_bus_bandwidth_s(ranks=1, message_bytes=1e9, bus_bandwidth_bytes_per_s=1e9) == 0.0


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^collective must be one of all-reduce"):
        time_at_bus_bandwidth_s(
            ranks=8,
            message_bytes=1e9,
            bus_bandwidth_bytes_per_s=1e9,
            collective="gossip",  # type: ignore[arg-type]
        )


# Communication against computation


def test_the_verdict_on_a_small_model_flips_with_the_model_of_the_network() -> None:
    small = ratio_by_model(ranks=256, message_bytes=680e6, compute_s=0.01, **NDR, **NODE)
    assert round(small.flat_ring_ratio, 2) == 2.96
    assert small.flat_ring_verdict == "communication-bound"
    assert round(small.hierarchical_ratio, 2) == 0.63
    assert small.hierarchical_verdict == "overlappable"
    assert small.verdict_flips is True
    assert (small.measured_s, small.measured_ratio, small.measured_verdict) == (None, None, None)


def test_a_large_model_is_overlappable_under_either() -> None:
    large = ratio_by_model(ranks=256, message_bytes=14e9, compute_s=5.0, **NDR, **NODE)
    assert round(large.flat_ring_ratio, 4) == 0.1121
    assert round(large.hierarchical_ratio, 4) == 0.0245
    assert large.verdict_flips is False


def test_a_measured_bus_bandwidth_stands_beside_the_models_and_can_flip_the_verdict() -> None:
    setup: dict[str, Any] = {"ranks": 256, "message_bytes": 14e9, "compute_s": 0.6}
    both = ratio_by_model(**setup, **NDR, **NODE)
    assert both.verdict_flips is False
    slow = ratio_by_model(**setup, **NDR, **NODE, bus_bandwidth_bytes_per_s=40e9)
    assert slow.measured_s == pytest.approx(27.890625 / 40)
    assert slow.measured_ratio == pytest.approx(slow.measured_s / 0.6)
    assert slow.measured_verdict == "communication-bound"
    assert slow.verdict_flips is True


def test_many_configurations_are_judged_at_once() -> None:
    compute = np.array([0.001, 0.01, 0.1])
    sweep = ratio_by_model(
        ranks=256,
        message_bytes=680e6,
        compute_s=compute,
        **NDR,
        **NODE,
        bus_bandwidth_bytes_per_s=np.array([[40e9], [400e9]]),
    )
    assert sweep.verdict_flips.tolist() == [[False, True, False]] * 2
    assert sweep.measured_verdict.tolist() == [
        ["communication-bound", "communication-bound", "overlappable"],
        ["communication-bound", "overlappable", "overlappable"],
    ]
    assert sweep.flat_ring_s.shape == sweep.hierarchical_ratio.shape == (2, 3)


def test_a_ratio_says_which_model_it_assumes() -> None:
    ratio = communication_ratio(communication_s=0.02964375, compute_s=0.01, model="ring")
    assert (ratio.model, ratio.verdict) == ("ring", "communication-bound")
    assert ratio.ratio == pytest.approx(2.964375)


@pytest.mark.parametrize(
    ("communication_s", "verdict"),
    [(0.0, "overlappable"), (0.999, "overlappable"), (1.0, "communication-bound")],
)
def test_from_one_on_communication_cannot_hide(communication_s: float, verdict: str) -> None:
    ratio = communication_ratio(communication_s=communication_s, compute_s=1.0, model="measured")
    assert ratio.verdict == verdict


def test_a_ratio_without_a_known_model_is_refused() -> None:
    with pytest.raises(
        ImpossibleArgumentError, match=r"^model must be one of point-to-point, ring"
    ):
        communication_ratio(communication_s=1.0, compute_s=1.0, model="guess")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compute_s", "overlap", "exposed_s"),
    [(10.0, 0.0, 4.0), (10.0, 0.75, 1.0), (10.0, 1.0, 0.0), (1.0, 0.75, 3.0), (0.0, 1.0, 4.0)],
)
def test_what_may_overlap_hides_behind_the_computation_that_is_there(
    compute_s: float, overlap: float, exposed_s: float
) -> None:
    assert (
        exposed_communication_s(communication_s=4.0, compute_s=compute_s, overlap=overlap)
        == exposed_s
    )


@given(communication=st.floats(0.0, 1e6), compute=st.floats(0.0, 1e6), overlap=st.floats(0.0, 1.0))
def test_exposed_communication_is_part_of_the_communication(
    communication: float, compute: float, overlap: float
) -> None:
    exposed_s = exposed_communication_s(
        communication_s=communication, compute_s=compute, overlap=overlap
    )
    assert 0.0 <= exposed_s <= communication
    assert exposed_s >= communication - compute


# Links


def test_a_message_takes_the_latency_and_its_bytes_over_the_bandwidth() -> None:
    assert transfer_s(message_bytes=0.0, link_bytes_per_s=50e9, latency_s=5e-6) == 5e-6
    assert transfer_s(message_bytes=16e6, link_bytes_per_s=450e9, latency_s=0.0) == pytest.approx(
        35.556e-6, rel=1e-4
    )


@pytest.mark.parametrize(
    ("line_rate", "directions", "gigabytes_per_s"),
    [(400e9, 1, 50.0), (1600e9, 1, 200.0), (100e9, 1, 12.5), (4800e9, 2, 1200.0)],
)
def test_eight_bits_of_line_rate_are_a_byte(
    line_rate: float, directions: int, gigabytes_per_s: float
) -> None:
    rate = line_rate_bytes_per_s(line_rate_bits_per_s=line_rate, directions=directions)
    assert rate == gigabytes_per_s * 1e9


@pytest.mark.parametrize(
    ("encoding", "gigabytes_per_s"),
    [("none", 64.0), ("128b/130b", 63.02), ("64b/66b", 62.06), ("8b/10b", 51.2)],
)
def test_encoding_takes_its_part_of_sixteen_pcie_gen5_lanes(
    encoding: Any, gigabytes_per_s: float
) -> None:
    setup: dict[str, Any] = {"lanes": 16, "lane_rate_bits_per_s": 32e9, "encoding": encoding}
    assert round(lanes_bytes_per_s(**setup) / 1e9, 2) == gigabytes_per_s
    assert lanes_bytes_per_s(**setup, directions=2) == 2 * lanes_bytes_per_s(**setup)


@pytest.mark.parametrize(
    ("links", "each", "per_direction", "total"),
    [(18, 50e9, 450e9, 900e9), (18, 100e9, 900e9, 1800e9), (7, 128e9, 448e9, 896e9)],
)
def test_a_bundle_of_links_has_half_its_total_per_direction(
    links: int, each: float, per_direction: float, total: float
) -> None:
    assert links_bytes_per_s(links=links, link_total_bytes_per_s=each) == per_direction
    assert links_bytes_per_s(links=links, link_total_bytes_per_s=each, directions=2) == total


@pytest.mark.parametrize("directions", [0, 1.5, 3, float("nan")])
def test_a_link_has_one_direction_or_two(directions: float) -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^directions must be 1 "):
        line_rate_bytes_per_s(line_rate_bits_per_s=1e9, directions=directions)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^encoding must be one of none, 8b/10b"):
        lanes_bytes_per_s(lanes=16, lane_rate_bits_per_s=32e9, encoding="nrz")  # type: ignore[arg-type]


def test_light_takes_forty_milliseconds_for_8000_kilometers_of_fiber() -> None:
    assert fiber_latency_s(distance_m=8e6) == 0.04
    assert fiber_latency_s(distance_m=0.0) == 0.0
    with pytest.raises(ImpossibleArgumentError, match=r"velocity_m_per_s must be above 0 and at"):
        fiber_latency_s(distance_m=8e6, velocity_m_per_s=3.1e8)


def test_nvlink_is_nine_times_infiniband_per_direction() -> None:
    assert bandwidth_ratio(fast_bytes_per_s=450e9, slow_bytes_per_s=50e9) == 9.0


# What is refused


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize(
    "argument", ["ranks", "message_bytes", "compute_s", "bus_bandwidth_bytes_per_s", *NDR, *NODE]
)
def test_an_impossible_argument_is_named(argument: str, bad: float) -> None:
    good = {"ranks": 256, "message_bytes": 1e9, "compute_s": 1.0} | NDR | NODE
    with pytest.raises(ImpossibleArgumentError, match=f"^{argument} must be"):
        ratio_by_model(**good | {argument: bad})


def test_half_a_rank_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"ranks must be a whole number"):
        ring_all_reduce_s(ranks=2.5, message_bytes=1e9, **NDR)


def test_arrays_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(ShapeMismatchError, match=r"ranks \(2,\)"):
        ring_all_reduce_s(ranks=np.ones(2), message_bytes=np.ones(3), **NDR)
