"""What an accelerator can reach: compute, memory and network ceilings; decoding; utilization.

A ceiling is an upper bound: kernels stay under it. Peaks are those of dense arithmetic in the
precision that is used, bandwidths those of data sheets: nothing reaches either in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics._choice import chosen
from physics.errors import ImpossibleArgumentError
from physics.law import Bound, Count, NonNegative, Positive, Values, law, require

__all__ = [
    "Ceilings",
    "MfuBand",
    "attainable_flops",
    "ceilings",
    "data_parallel_intensity_flop_per_byte",
    "decode_intensity_flop_per_byte",
    "decode_tokens_per_s",
    "gemm_intensity_flop_per_byte",
    "iron_law_s",
    "kv_cache_bytes",
    "mfu_band",
    "model_flops_utilization",
    "ridge_point_flop_per_byte",
    "throughput_at_mfu_tokens_per_s",
    "weight_bytes",
    "work_per_token_flop",
]

Phase: TypeAlias = Literal["training", "inference"]
#: A share by which something is divided.
PositiveShare: TypeAlias = Annotated[
    Values, Bound("above 0 and at most 1", low=0.0, above_low=True, high=1.0)
]
#: How many ranks there are where one would have nobody to talk to.
Several: TypeAlias = Annotated[Values, Bound("a whole number, at least 2", low=2.0, whole=True)]

#: FLOP per parameter and token. A backward pass costs twice a forward pass.
_FLOP_PER_PARAMETER: Mapping[str, float] = {"training": 6.0, "inference": 2.0}


@dataclass(frozen=True)
class Ceilings:
    """The rate that each resource admits, the least of them, and the name of that resource."""

    compute_flops: Values
    memory_flops: Values
    network_flops: Values | None
    attainable_flops: Values
    binding: str | NDArray[np.str_]


@dataclass(frozen=True)
class MfuBand:
    """Where an MFU lies beside what well-optimized training reaches, and what is to be won.

    ``band`` is "below", "within" or "above".
    """

    band: str | NDArray[np.str_]
    #: How much faster the same GPUs train at the low end of the band, and at its high end; 1 where
    #: they are there.
    speedup_to_low: Values
    speedup_to_high: Values


@law
def ridge_point_flop_per_byte(*, peak_flops: Positive, memory_bytes_per_s: Positive) -> Values:
    """Return the intensity from which compute binds, FLOP/B: ``I_ridge = R_peak / BW``.

    Both arguments broadcast. The network has a ridge point of its own: give its bandwidth instead.
    Source: Williams, Waterman and Patterson 2009.
    """
    return np.divide(peak_flops, memory_bytes_per_s)


@law
def attainable_flops(
    *,
    peak_flops: Positive,
    memory_bytes_per_s: Positive,
    intensity_flop_per_byte: NonNegative,
) -> Values:
    """Return the rate that a kernel can reach, FLOP/s: ``R = min(R_peak, I · BW)``.

    ``intensity_flop_per_byte`` is I, useful FLOP per byte moved to or from memory. All arguments
    broadcast. An upper bound: it assumes that arithmetic and transfers overlap fully.
    Source: Williams, Waterman and Patterson 2009.
    """
    return np.minimum(peak_flops, np.multiply(intensity_flop_per_byte, memory_bytes_per_s))


@law
def ceilings(
    *,
    peak_flops: Positive,
    memory_bytes_per_s: Positive,
    intensity_flop_per_byte: NonNegative,
    network_bytes_per_s: Positive | None = None,
    network_intensity_flop_per_byte: NonNegative | None = None,
) -> Ceilings:
    """Return the rate under each ceiling, FLOP/s, and which one binds.

    ``compute = R_peak``, ``memory = I · BW``, ``network = I_net · BW_net``; the least is attainable
    and ``binding`` is "compute", "memory" or "network" (on a tie the first of these). The network
    counts where both of its arguments are given: ``network_bytes_per_s`` per accelerator and
    direction, ``network_intensity_flop_per_byte`` in useful FLOP per byte sent: see
    :func:`data_parallel_intensity_flop_per_byte`. All arguments broadcast. An upper bound: it
    assumes that the three overlap fully. Source: Williams, Waterman and Patterson 2009; the third
    ceiling: Fleet Foundations.
    """
    rates = [peak_flops, np.multiply(intensity_flop_per_byte, memory_bytes_per_s)]
    network_flops = _network(network_bytes_per_s, network_intensity_flop_per_byte)
    if network_flops is not None:
        rates.append(network_flops)
    spread = np.stack(np.broadcast_arrays(*rates))
    return Ceilings(
        compute_flops=spread[0],
        memory_flops=spread[1],
        network_flops=None if network_flops is None else spread[2],
        attainable_flops=spread.min(axis=0),
        binding=np.array(["compute", "memory", "network"])[spread.argmin(axis=0)],
    )


@law
def gemm_intensity_flop_per_byte(
    *, rows: Count, columns: Count, depth: Count, element_bytes: Positive = 2.0
) -> Values:
    """Return the intensity of a matrix product, FLOP/B: ``2·m·n·k / (b · (m·k + k·n + m·n))``.

    ``rows`` is m and ``columns`` is n of the result, ``depth`` is k, which is summed over;
    ``element_bytes`` is b of all three matrices: 2 for BF16. All arguments broadcast. An upper
    bound: each matrix crosses memory once, as it does where tiles fit into the cache.
    """
    elements = rows * depth + depth * columns + rows * columns
    return 2.0 * rows * columns * depth / (elements * element_bytes)


@law
def weight_bytes(*, parameters: Positive, bytes_per_parameter: Positive = 2.0) -> Values:
    """Return the size of a model's weights, B: ``W = P · b``.

    ``bytes_per_parameter`` is 2 for BF16, 1 for FP8, 0.5 for 4-bit weights without their scales.
    Both arguments broadcast. Count the parameters: "8B" may be 8.03e9.
    """
    return np.multiply(parameters, bytes_per_parameter)


@law
def work_per_token_flop(*, parameters: Positive, phase: Phase = "inference") -> Values:
    """Return the work of one token, FLOP: ``2·P`` for inference, ``6·P`` for training.

    Of a mixture of experts, P counts the parameters that a token meets. Attention to the context is
    left out: ``4 · layers · width`` FLOP more per token of context in a forward pass. For an 8B
    model (32 layers of width 4,096) that is a tenth of 2·P at 3,000 tokens, and as much at 31,000.
    Source: Kaplan et al. 2020.
    """
    return chosen("phase", phase, _FLOP_PER_PARAMETER) * np.asarray(parameters)


@law
def kv_cache_bytes(
    *,
    layers: Count,
    kv_heads: Count,
    head_size: Count,
    tokens: Count,
    element_bytes: Positive = 2.0,
) -> Values:
    """Return the keys and values kept for one sequence, B: ``2 · layers · heads · size · t · b``.

    ``kv_heads`` are those of keys and values, fewer than those of queries under grouped-query
    attention; ``tokens`` is t, the context so far; ``element_bytes`` is b: 2 for BF16. All
    arguments broadcast.
    """
    return 2.0 * layers * kv_heads * head_size * tokens * element_bytes


@law
def decode_intensity_flop_per_byte(
    *,
    parameters: Positive,
    bytes_per_parameter: Positive = 2.0,
    batch: Count = 1.0,
    kv_cache_bytes: NonNegative = 0.0,
) -> Values:
    """Return the intensity of decoding, FLOP/B: ``I = 2·P·n / (P·b + n·c)``.

    One step gives each of n sequences (``batch``) a token: it reads the weights once, and of each
    sequence its cache of ``kv_cache_bytes`` (c; see the law of that name). All arguments broadcast.
    1 for one BF16 stream without cache; with cache it never passes ``2·P/c``, at any batch.
    """
    read = _decode_read(parameters, bytes_per_parameter, batch, kv_cache_bytes)
    return 2.0 * np.multiply(parameters, batch) / read


@law
def decode_tokens_per_s(
    *,
    memory_bytes_per_s: Positive,
    parameters: Positive,
    bytes_per_parameter: Positive = 2.0,
    batch: Count = 1.0,
    kv_cache_bytes: NonNegative = 0.0,
    peak_flops: Positive | None = None,
) -> Values:
    """Return the tokens per second that decoding reaches, all sequences together.

    ``n / max((P·b + n·c) / BW, 2·P·n / R_peak)`` for n sequences (``batch``) with
    ``kv_cache_bytes`` (c) each; a sequence gets an n-th of it. Without ``peak_flops`` only memory
    binds, which holds far below the ridge point. All arguments broadcast. An upper bound for one
    accelerator, or for several that share weights evenly (bandwidth and peak of all, talking
    not counted).
    """
    step_s = _decode_read(parameters, bytes_per_parameter, batch, kv_cache_bytes)
    step_s = step_s / memory_bytes_per_s
    if peak_flops is not None:
        step_s = np.maximum(step_s, 2.0 * np.multiply(parameters, batch) / peak_flops)
    return batch / step_s


@law
def data_parallel_intensity_flop_per_byte(
    *, ranks: Several, tokens: Count, bytes_per_parameter: Positive = 2.0
) -> Values:
    """Return training work per byte that a rank sends, FLOP/B: ``6·t / (2 (N-1)/N · b)``.

    ``tokens`` is t, what one rank processes between two all-reduces of the gradients, which have
    ``bytes_per_parameter`` (b). The number of parameters cancels out: both the work and the traffic
    grow with it. All arguments broadcast. Valid for plain data parallelism (no sharding, no model
    parallelism) of a dense model. It is the network's intensity of :func:`ceilings`.
    """
    return 3.0 * np.multiply(tokens, ranks) / ((ranks - 1.0) * bytes_per_parameter)


@law
def iron_law_s(
    *,
    data_bytes: NonNegative,
    memory_bytes_per_s: Positive,
    work_flop: NonNegative,
    peak_flops: Positive,
    efficiency: PositiveShare,
    latency_s: NonNegative,
) -> Values:
    """Return the time of a piece of work, s: ``T = D/BW + O/(R·η) + L``.

    ``data_bytes`` is D, ``work_flop`` O, ``peak_flops`` R, ``efficiency`` η (the share of the peak
    that arithmetic reaches when its data is there), ``latency_s`` L. All arguments broadcast. The
    sum holds where nothing overlaps; with full overlap the longer of the first two terms remains,
    so the sum is at most twice too long. Source: Fleet Foundations, recap.
    """
    moving_s = np.divide(data_bytes, memory_bytes_per_s)
    return moving_s + np.divide(work_flop, np.multiply(peak_flops, efficiency)) + latency_s


@law
def model_flops_utilization(
    *,
    throughput_tokens_per_s: NonNegative,
    parameters: Positive,
    peak_flops: Positive,
    gpus: Count = 1.0,
    phase: Phase = "training",
) -> Values:
    """Return the MFU, 0 to 1: ``tokens/s · w·P / (N · R_peak)``, w = 6 to train, 2 to infer.

    ``throughput_tokens_per_s`` is that of all ``gpus`` together, ``peak_flops`` that of one, in the
    precision that is used and without sparsity. Work done twice (recomputed activations) does not
    count. A throughput above the peak is refused: the peak or the parameters are not those of this
    run. All arguments broadcast. Source: Chowdhery et al. 2022, without their attention term.
    """
    per_parameter = chosen("phase", phase, _FLOP_PER_PARAMETER)
    work_flops = per_parameter * np.multiply(throughput_tokens_per_s, parameters)
    share = work_flops / np.multiply(gpus, peak_flops)
    # A throughput computed from the peak itself may come out a rounding error above it.
    require(share <= 1.0 + 1e-9, "throughput_tokens_per_s", "within what peak_flops and gpus allow")
    return np.minimum(share, 1.0)


@law
def mfu_band(
    *, mfu: PositiveShare, low_mfu: PositiveShare = 0.30, high_mfu: PositiveShare = 0.50
) -> MfuBand:
    """Return whether an MFU is in the band of well-optimized training: ``low ≤ MFU ≤ high``.

    Below it there is something to win: stalls of memory, launches of kernels, pipeline bubbles,
    operators that are not fused. Above it the hardware is used excellently. The speedups are
    ``max(end / MFU, 1)``. All arguments broadcast. Valid for large dense models on current
    accelerators, with the MFU of :func:`model_flops_utilization`. Source: Fleet Foundations,
    compute numbers.
    """
    require(np.less_equal(low_mfu, high_mfu), "high_mfu", "at least low_mfu")
    bands = [np.less(mfu, low_mfu), np.greater(mfu, high_mfu)]
    return MfuBand(
        band=np.select(bands, ["below", "above"], "within"),
        speedup_to_low=np.maximum(low_mfu / mfu, 1.0),
        speedup_to_high=np.maximum(high_mfu / mfu, 1.0),
    )


@law
def throughput_at_mfu_tokens_per_s(
    *,
    mfu: PositiveShare,
    parameters: Positive,
    peak_flops: Positive,
    gpus: Count = 1.0,
    phase: Phase = "training",
) -> Values:
    """Return the throughput of all GPUs at an MFU, tokens/s: ``MFU · N · R_peak / (w·P)``.

    The inverse of :func:`model_flops_utilization`, with its w. All arguments broadcast.
    """
    per_parameter = chosen("phase", phase, _FLOP_PER_PARAMETER)
    return mfu * np.multiply(gpus, peak_flops) / np.multiply(per_parameter, parameters)


def _decode_read(
    parameters: Values, bytes_per_parameter: Values, batch: Values, cache_bytes: Values
) -> Values:
    return np.multiply(parameters, bytes_per_parameter) + np.multiply(batch, cache_bytes)


def _network(bytes_per_s: Values | None, intensity: Values | None) -> Values | None:
    if bytes_per_s is None and intensity is None:
        return None
    if bytes_per_s is None:
        raise ImpossibleArgumentError(
            "network_bytes_per_s", "given with network_intensity_flop_per_byte"
        )
    if intensity is None:
        raise ImpossibleArgumentError(
            "network_intensity_flop_per_byte", "given with network_bytes_per_s"
        )
    return np.multiply(bytes_per_s, intensity)
