"""Time of collectives, and the bandwidth that a measured one amounts to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics._choice import chosen
from physics.law import Count, NonNegative, Positive, Values, law, require

Algorithm: TypeAlias = Literal["ring", "tree", "double-tree", "halving-doubling"]
Collective: TypeAlias = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send"
]


@dataclass(frozen=True)
class AllReduceTimes:
    """Times of the flat all-reduces of one configuration, and the name of the fastest."""

    ring_s: Values
    tree_s: Values
    double_tree_s: Values
    halving_doubling_s: Values
    fastest_s: Values
    fastest: str | NDArray[np.str_]


@law
def ring_traffic_factor(*, ranks: Count) -> Values:
    """Return bytes that each rank sends in an all-reduce per byte of message: ``2 (N-1)/N``.

    0 for one rank, near 2 for many: no all-reduce that only uses links between ranks sends fewer.
    Source: Patarasuk and Yuan 2009.
    """
    return 2.0 * _others(ranks)


@law
def ring_traffic_bytes(*, ranks: Count, message_bytes: NonNegative) -> Values:
    """Return bytes that each rank sends (and receives) in an all-reduce, B: ``2 (N-1)/N · M``.

    All arguments broadcast. Source: Patarasuk and Yuan 2009.
    """
    return 2.0 * _others(ranks) * message_bytes


@law
def gradient_bytes(*, parameters: Positive, bytes_per_parameter: Positive = 2.0) -> Values:
    """Return the message of a data-parallel step, B: ``M = P · b``.

    ``bytes_per_parameter`` is that of the gradients on the wire: 2 for BF16. Plain data parallelism
    all-reduces M once per optimizer step, however many micro-batches the step accumulates. With
    model parallelism, P counts the parameters that one rank holds.
    """
    return np.multiply(parameters, bytes_per_parameter)


@law
def ring_all_reduce_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of a flat ring all-reduce, s: ``2 (N-1)/N · M/B + 2 (N-1) · alpha``.

    Every rank has one port of ``link_bytes_per_s`` and sends to its successor. All arguments
    broadcast; one rank takes no time. Its bandwidth term is the least possible, its latency term
    the largest. Source: Patarasuk and Yuan 2009.
    """
    return _ring(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def tree_all_reduce_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of a binomial tree all-reduce, s: ``2 ⌈log2 N⌉ · (alpha + M/B)``.

    A reduction to a root and a broadcast from it, each level with the whole message and without
    pipelining: for short messages. All arguments broadcast; one rank takes no time.
    Source: Thakur, Rabenseifner and Gropp 2005.
    """
    return _tree(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def double_tree_all_reduce_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of an all-reduce over two pipelined binary trees, s.

    ``2 min over q ≥ 1 of (h + q - 1) · (alpha + M/(q·B))`` with ``h = ⌈log2 N⌉``, which is
    ``2 (√(M/B) + √((h-1)·alpha))²`` where the message is worth cutting and the binomial tree's time
    where not. Each tree carries half of the message in q chunks; who is a leaf in one has two
    children in the other, so every rank sends two chunks per round, and the bandwidth term is
    2 M/B. NCCL's tree is of this kind, with chunk sizes of its own.

    All arguments broadcast; one rank takes no time. q counts as continuous, and a rank posts the
    chunks for both its children at once: one latency. With a latency for each, as in Sanders, Speck
    and Träff 2009 (whose trees these are), alpha counts twice. Derived here from those assumptions.
    """
    return _double_tree(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def halving_doubling_all_reduce_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of an all-reduce by recursive halving and doubling, s.

    ``2 log2 N · alpha + 2 (N-1)/N · M/B`` for a power of two. Otherwise that of the power of two
    below, plus ``2 (alpha + M/B)``: the ranks in excess first hand their vectors to a partner, and
    get the result from it at the end. All arguments broadcast; one rank takes no time. Valid where
    distant ranks reach each other at full bandwidth. Source: Thakur, Rabenseifner and Gropp 2005.
    """
    return _halving_doubling(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def hierarchical_all_reduce_s(
    *,
    ranks: Count,
    ranks_per_node: Count,
    message_bytes: NonNegative,
    node_link_bytes_per_s: Positive,
    node_latency_s: NonNegative,
    rails: Count,
    link_bytes_per_s: Positive,
    latency_s: NonNegative,
    across_nodes: Algorithm = "ring",
) -> Values:
    """Return the time of an all-reduce in two levels, s.

    ``2 ((g-1)/g · M/B_node + (g-1) · alpha_node) + T(N/g ranks, M/k over B, alpha)``: a
    reduce-scatter inside each node, an all-reduce across nodes over k rails at once, an all-gather
    inside each node.

    ``ranks_per_node`` is g, ``rails`` is k: the NICs of a node, each of ``link_bytes_per_s`` per
    direction, each with a k-th of the message. ``node_link_bytes_per_s`` is that of one GPU inside
    its node, per direction. T is the algorithm ``across_nodes``. All arguments broadcast. Ranks
    fill whole nodes, or all fit into one. The three phases follow each other; an implementation
    that pipelines them gets nearer to the slowest of them.
    """
    across = chosen("across_nodes", across_nodes, _FLAT)
    inside = np.minimum(ranks, ranks_per_node)
    nodes = ranks / inside
    require(nodes == np.rint(nodes), "ranks", "a multiple of ranks_per_node, or fewer than that")
    scatter_s = _scatter(inside, np.divide(message_bytes, node_link_bytes_per_s), node_latency_s)
    rail_s = np.divide(message_bytes, np.multiply(rails, link_bytes_per_s))
    return 2.0 * scatter_s + across(nodes, rail_s, latency_s)


@law
def best_all_reduce(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> AllReduceTimes:
    """Return the times, s, of ring, tree, double tree and halving-doubling, and the fastest.

    The formulas are those of the functions of these names. All arguments broadcast. On a tie, the
    one named first here wins. All four are flat: compare with :func:`hierarchical_all_reduce_s`
    where nodes have a fast link inside.
    """
    wire_s = np.divide(message_bytes, link_bytes_per_s)
    ring, tree, double, halving = (each(ranks, wire_s, latency_s) for each in _FLAT.values())
    times = np.stack([ring, tree, double, halving])
    return AllReduceTimes(
        ring_s=ring,
        tree_s=tree,
        double_tree_s=double,
        halving_doubling_s=halving,
        fastest_s=times.min(axis=0),
        fastest=np.array(list(_FLAT))[times.argmin(axis=0)],
    )


@law
def ring_tree_crossover_bytes(
    *, ranks: Count, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the message above which a ring beats a binomial tree, B.

    ``M = B · alpha · (N-1-h) / (h - (N-1)/N)`` with ``h = ⌈log2 N⌉``: where
    :func:`ring_all_reduce_s` equals :func:`tree_all_reduce_s`. All arguments broadcast. 0 up to
    three ranks: there the tree never wins.
    """
    levels = _ceil_log2(ranks)
    # One rank has neither: any denominator gives the 0 that it should.
    extra_wire = np.where(ranks > 1, levels - _others(ranks), 1.0)
    extra_hops = np.maximum(ranks - 1.0 - levels, 0.0)
    return link_bytes_per_s * np.multiply(latency_s, extra_hops) / extra_wire


@law
def ring_reduce_scatter_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of a ring reduce-scatter, s: ``(N-1)/N · M/B + (N-1) · alpha``.

    ``message_bytes`` is the whole vector that each rank brings; it keeps an N-th of the sum. All
    arguments broadcast; one rank takes no time. Source: Thakur, Rabenseifner and Gropp 2005.
    """
    return _scatter(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def ring_all_gather_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of a ring all-gather, s: ``(N-1)/N · M/B + (N-1) · alpha``.

    ``message_bytes`` is the whole vector that each rank has at the end; it brings an N-th. All
    arguments broadcast; one rank takes no time. Source: Thakur, Rabenseifner and Gropp 2005.
    """
    return _scatter(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def all_to_all_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of an all-to-all by pairwise exchange, s: ``(N-1)/N · M/B + (N-1) · alpha``.

    ``message_bytes`` is all that one rank sends, its own share included; each of the others gets an
    N-th. All arguments broadcast; one rank takes no time. Valid where all pairs reach each other at
    full bandwidth at once. Source: Thakur, Rabenseifner and Gropp 2005 (long messages).
    """
    return _scatter(ranks, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def ring_broadcast_s(
    *, ranks: Count, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of a broadcast along a chain of ranks, s.

    ``min over q ≥ 1 of (N - 2 + q) · (alpha + M/(q·B))``, the message in q chunks one behind the
    other: ``(√(M/B) + √((N-2)·alpha))²`` where it is worth cutting. All arguments broadcast; one
    rank takes no time. q counts as continuous. Derived here from the alpha-beta model.
    """
    return _pipeline(ranks - 1.0, np.divide(message_bytes, link_bytes_per_s), latency_s)


@law
def algorithm_bandwidth_bytes_per_s(
    *, message_bytes: Positive, communication_s: Positive
) -> Values:
    """Return the algorithm bandwidth of a measured collective, B/s: ``M/T``.

    All arguments broadcast. It falls with the number of ranks: to compare with a link, take
    :func:`bus_bandwidth_bytes_per_s`. Source: nccl-tests, doc/PERFORMANCE.md.
    """
    return np.divide(message_bytes, communication_s)


@law
def bus_bandwidth_bytes_per_s(
    *,
    ranks: Count,
    message_bytes: Positive,
    communication_s: Positive,
    collective: Collective = "all-reduce",
) -> Values:
    """Return the bus bandwidth of a measured collective, B/s: ``f · M/T``.

    f is ``2 (N-1)/N`` for all-reduce, ``(N-1)/N`` for all-gather, reduce-scatter and all-to-all
    (0 for one rank), and 1 for broadcast, reduce and send. The answer compares with the bandwidth
    of a link per direction at any number of ranks. The time includes latency, so it belongs to this
    message size only. All arguments broadcast. Source: nccl-tests, doc/PERFORMANCE.md.
    """
    factor = chosen("collective", collective, _BUS_FACTOR)
    return factor(ranks) * message_bytes / communication_s


@law
def time_at_bus_bandwidth_s(
    *,
    ranks: Count,
    message_bytes: NonNegative,
    bus_bandwidth_bytes_per_s: Positive,
    collective: Collective = "all-reduce",
) -> Values:
    """Return the time of a collective at a measured bus bandwidth, s: ``f · M / busbw``.

    The inverse of :func:`bus_bandwidth_bytes_per_s`, with its f. Take the bus bandwidth measured at
    about this message size and number of ranks. All arguments broadcast.
    """
    factor = chosen("collective", collective, _BUS_FACTOR)
    return factor(ranks) * message_bytes / bus_bandwidth_bytes_per_s


def _others(ranks: Values) -> Values:
    """Return ``(N-1)/N``, the share of a message that belongs to other ranks."""
    return (ranks - 1.0) / ranks


def _ceil_log2(ranks: Values) -> Values:
    # By the exponent, which is exact: a logarithm of 8 may come out above 3.
    mantissa, exponent = np.frexp(ranks)
    return np.where(mantissa == 0.5, exponent - 1, exponent).astype(np.float64)


def _scatter(ranks: Values, wire_s: Values, latency_s: Values) -> Values:
    return _others(ranks) * wire_s + (ranks - 1.0) * latency_s


def _ring(ranks: Values, wire_s: Values, latency_s: Values) -> Values:
    return 2.0 * _scatter(ranks, wire_s, latency_s)


def _tree(ranks: Values, wire_s: Values, latency_s: Values) -> Values:
    return 2.0 * _ceil_log2(ranks) * np.add(latency_s, wire_s)


def _double_tree(ranks: Values, wire_s: Values, latency_s: Values) -> Values:
    return 2.0 * _pipeline(_ceil_log2(ranks), wire_s, latency_s)


def _halving_doubling(ranks: Values, wire_s: Values, latency_s: Values) -> Values:
    steps = np.frexp(ranks)[1] - 1.0
    paired = np.exp2(steps)
    excess_s = np.where(ranks > paired, 2.0 * np.add(latency_s, wire_s), 0.0)
    return 2.0 * (steps * latency_s + _others(paired) * wire_s) + excess_s


def _pipeline(stages: Values, wire_s: Values, latency_s: Values) -> Values:
    """Return ``min over q ≥ 1 of (stages + q - 1) · (alpha + wire/q)``; no stages take no time."""
    filling_s = np.maximum(stages - 1.0, 0.0) * latency_s
    cut = wire_s + filling_s + 2.0 * np.sqrt(wire_s * filling_s)
    whole = stages * np.add(latency_s, wire_s)
    # The best q is √((stages-1)·wire/alpha). Where that is below 1 the message stays whole.
    return np.where((stages - 1.0) * wire_s >= latency_s, cut, whole)


#: In the order in which a tie is decided.
_FLAT: Mapping[str, Callable[[Values, Values, Values], Values]] = {
    "ring": _ring,
    "tree": _tree,
    "double-tree": _double_tree,
    "halving-doubling": _halving_doubling,
}

#: Bytes over each rank's link per byte of message. From a root, or to it, all of the message goes.
_BUS_FACTOR: Mapping[str, Callable[[Values], Values]] = {
    "all-reduce": lambda ranks: 2.0 * _others(ranks),
    "all-gather": _others,
    "reduce-scatter": _others,
    "all-to-all": _others,
    "broadcast": np.ones_like,
    "reduce": np.ones_like,
    "send": np.ones_like,
}
