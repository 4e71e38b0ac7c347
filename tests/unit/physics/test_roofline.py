import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.comm import ring_all_reduce_s
from physics.errors import ImpossibleArgumentError
from physics.hardware import TEXTBOOK
from physics.roofline import (
    attainable_flops,
    ceilings,
    data_parallel_intensity_flop_per_byte,
    decode_intensity_flop_per_byte,
    decode_tokens_per_s,
    gemm_intensity_flop_per_byte,
    iron_law_s,
    kv_cache_bytes,
    mfu_band,
    model_flops_utilization,
    ridge_point_flop_per_byte,
    throughput_at_mfu_tokens_per_s,
    weight_bytes,
    work_per_token_flop,
)

H100: dict[str, Any] = {"peak_flops": 989e12, "memory_bytes_per_s": 3.35e12}
#: Llama 3 8B: its parameters, and its keys and values for one token of context.
LLAMA = 8.03e9
LLAMA_CACHE: dict[str, Any] = {"layers": 32, "kv_heads": 8, "head_size": 128}

rates = st.floats(1e9, 1e18)
bandwidths = st.floats(1e6, 1e14)
intensities = st.floats(0.0, 1e5)
sizes = st.integers(1, 100_000)
parameters_ = st.floats(1e6, 1e13)


def close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-9)


# Ceilings


def test_the_ridge_of_an_h100_is_at_295_flop_per_byte() -> None:
    assert round(ridge_point_flop_per_byte(**H100), 1) == 295.2


@given(peak=rates, memory=bandwidths)
def test_at_the_ridge_both_ceilings_meet(peak: float, memory: float) -> None:
    part = {"peak_flops": peak, "memory_bytes_per_s": memory}
    ridge = ridge_point_flop_per_byte(**part)
    assert close(attainable_flops(**part, intensity_flop_per_byte=ridge), peak)
    assert close(attainable_flops(**part, intensity_flop_per_byte=ridge / 2), peak / 2)
    assert attainable_flops(**part, intensity_flop_per_byte=ridge * 2) == peak


@given(peak=rates, memory=bandwidths, low=intensities, high=intensities)
def test_more_intensity_never_slows_a_kernel(
    peak: float, memory: float, low: float, high: float
) -> None:
    low, high = sorted((low, high))
    part = {"peak_flops": peak, "memory_bytes_per_s": memory}
    slow, fast = attainable_flops(**part, intensity_flop_per_byte=np.array([low, high]))
    assert slow <= fast <= peak


@pytest.mark.parametrize(
    ("intensity", "binding", "attainable"),
    [(0.0, "memory", 0.0), (1.0, "memory", 3.35e12), (1000.0, "compute", 989e12)],
)
def test_memory_binds_below_the_ridge_and_compute_above(
    intensity: float, binding: str, attainable: float
) -> None:
    under = ceilings(**H100, intensity_flop_per_byte=intensity)
    assert (under.binding, under.attainable_flops) == (binding, attainable)
    assert under.compute_flops == 989e12
    assert under.memory_flops == intensity * 3.35e12
    assert under.network_flops is None


def test_a_slow_network_is_a_third_ceiling() -> None:
    under = ceilings(
        **H100,
        intensity_flop_per_byte=np.array([10.0, 1000.0]),
        network_bytes_per_s=50e9,
        network_intensity_flop_per_byte=np.array([[1000.0], [12_000.0], [50_000.0]]),
    )
    assert under.binding.tolist() == [
        ["memory", "network"],
        ["memory", "network"],
        ["memory", "compute"],
    ]
    assert under.network_flops[:, 0].tolist() == [5e13, 6e14, 2.5e15]
    assert under.compute_flops.shape == under.memory_flops.shape == (3, 2)
    lowest = np.minimum(np.minimum(under.compute_flops, under.memory_flops), under.network_flops)
    assert np.array_equal(under.attainable_flops, lowest)


@pytest.mark.parametrize("given_", ["network_bytes_per_s", "network_intensity_flop_per_byte"])
def test_half_a_network_is_refused_and_the_missing_half_named(given_: str) -> None:
    missing = {"network_bytes_per_s", "network_intensity_flop_per_byte"} - {given_}
    half: dict[str, Any] = {given_: 1.0}
    with pytest.raises(ImpossibleArgumentError) as caught:
        ceilings(**H100, intensity_flop_per_byte=1.0, **half)
    assert {caught.value.argument} == missing


@given(
    ranks=st.integers(2, 100_000),
    tokens=sizes,
    parameters=parameters_,
    peak=st.floats(1e12, 1e16),
    link=st.floats(1e8, 1e12),
)
def test_the_network_binds_where_an_all_reduce_takes_longer_than_the_step(
    ranks: int, tokens: int, parameters: float, peak: float, link: float
) -> None:
    under = ceilings(
        peak_flops=peak,
        memory_bytes_per_s=1e14,
        intensity_flop_per_byte=1e5,
        network_bytes_per_s=link,
        network_intensity_flop_per_byte=data_parallel_intensity_flop_per_byte(
            ranks=ranks, tokens=tokens
        ),
    )
    step_s = tokens * work_per_token_flop(parameters=parameters, phase="training") / peak
    all_reduce_s = ring_all_reduce_s(
        ranks=ranks,
        message_bytes=weight_bytes(parameters=parameters),
        link_bytes_per_s=link,
        latency_s=0.0,
    )
    assert close(all_reduce_s / step_s, under.compute_flops / under.network_flops)


def test_gradients_have_no_intensity_where_nobody_takes_them() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^ranks must be a whole number, at least 2"):
        data_parallel_intensity_flop_per_byte(ranks=1, tokens=1)


# Matrix products


def test_a_square_product_has_a_third_of_its_side_as_intensity_in_bf16() -> None:
    assert gemm_intensity_flop_per_byte(rows=4096, columns=4096, depth=4096) == 4096 / 3


def test_a_product_with_a_vector_moves_its_matrix_for_one_use() -> None:
    thin = gemm_intensity_flop_per_byte(rows=4096, columns=1, depth=4096)
    assert thin == pytest.approx(1.0, rel=1e-3)
    assert thin < 1.0


@given(rows=sizes, columns=sizes, depth=sizes, factor=st.integers(2, 5))
def test_a_larger_product_is_never_less_intense(
    rows: int, columns: int, depth: int, factor: int
) -> None:
    small = gemm_intensity_flop_per_byte(rows=rows, columns=columns, depth=depth)
    for larger in (
        {"rows": rows * factor, "columns": columns, "depth": depth},
        {"rows": rows, "columns": columns * factor, "depth": depth},
        {"rows": rows, "columns": columns, "depth": depth * factor},
    ):
        assert gemm_intensity_flop_per_byte(**larger) >= small * (1 - 1e-12)


@given(rows=sizes, columns=sizes, depth=sizes)
def test_halving_the_bytes_of_elements_doubles_the_intensity(
    rows: int, columns: int, depth: int
) -> None:
    shape: dict[str, Any] = {"rows": rows, "columns": columns, "depth": depth}
    bf16 = gemm_intensity_flop_per_byte(**shape)
    assert close(gemm_intensity_flop_per_byte(**shape, element_bytes=1), 2 * bf16)


# Decoding


def test_llama_8b_reads_16_gigabytes_and_works_16_gigaflop_per_token() -> None:
    assert weight_bytes(parameters=LLAMA) == 16.06e9
    assert work_per_token_flop(parameters=LLAMA) == 16.06e9
    assert work_per_token_flop(parameters=LLAMA, phase="training") == 3 * 16.06e9


def test_one_stream_of_llama_8b_decodes_209_tokens_per_second_on_an_h100() -> None:
    assert decode_intensity_flop_per_byte(parameters=LLAMA) == 1.0
    rate = decode_tokens_per_s(memory_bytes_per_s=3.35e12, parameters=LLAMA)
    assert round(rate, 1) == 208.6
    assert decode_tokens_per_s(**H100, parameters=LLAMA) == rate


def test_keys_and_values_of_8192_tokens_of_llama_8b_take_a_gibibyte() -> None:
    assert kv_cache_bytes(**LLAMA_CACHE, tokens=8192) == 2.0**30


def test_a_batch_multiplies_tokens_until_compute_binds() -> None:
    rates = decode_tokens_per_s(
        **H100,
        parameters=LLAMA,
        batch=np.array([1, 2, 256, 512, 1024]),
    )
    assert rates[1] == 2 * rates[0]
    assert rates[2] == pytest.approx(256 * rates[0])
    # The ridge is at 295 sequences: from there on, 989e12 / 16.06e9.
    assert rates[3] == rates[4] == pytest.approx(61_581.6, abs=0.1)


def test_the_cache_of_a_batch_keeps_memory_the_bottleneck() -> None:
    cache = kv_cache_bytes(**LLAMA_CACHE, tokens=8192)
    setup: dict[str, Any] = {"parameters": LLAMA, "kv_cache_bytes": cache}
    intensities = decode_intensity_flop_per_byte(**setup, batch=np.array([1, 64, 10**9]))
    assert intensities[0] < 1.0 < intensities[1]
    # However large the batch: 2 P over one sequence's cache.
    assert intensities[2] == pytest.approx(2 * LLAMA / 2**30, rel=1e-6)
    rate = decode_tokens_per_s(**H100, **setup, batch=1024)
    assert rate == pytest.approx(1024 * 3.35e12 / (16.06e9 + 1024 * 2**30))


@given(
    batch=sizes, parameters=parameters_, cache=st.floats(0.0, 1e12), peak=rates, memory=bandwidths
)
def test_decoding_is_a_kernel_under_its_roofline(
    batch: int, parameters: float, cache: float, peak: float, memory: float
) -> None:
    part = {"peak_flops": peak, "memory_bytes_per_s": memory}
    work: dict[str, Any] = {"parameters": parameters, "batch": batch, "kv_cache_bytes": cache}
    rate = decode_tokens_per_s(**part, **work)
    intensity = decode_intensity_flop_per_byte(**work)
    attainable = attainable_flops(**part, intensity_flop_per_byte=intensity)
    assert close(rate * work_per_token_flop(parameters=parameters), attainable)


@given(low=sizes, high=sizes, cache=st.floats(0.0, 1e12))
def test_a_larger_batch_never_decodes_fewer_tokens(low: int, high: int, cache: float) -> None:
    low, high = sorted((low, high))
    few, many = decode_tokens_per_s(
        **H100, parameters=LLAMA, batch=np.array([low, high]), kv_cache_bytes=cache
    )
    assert few <= many * (1 + 1e-12)


# Time and utilization


def test_the_iron_law_adds_moving_computing_and_waiting() -> None:
    work: dict[str, Any] = {"data_bytes": 3.35e12, "work_flop": 989e12, "latency_s": 0.25}
    assert iron_law_s(**H100, **work, efficiency=1.0) == 2.25
    assert iron_law_s(**H100, **work, efficiency=0.5) == 3.25
    nothing: dict[str, Any] = {"data_bytes": 0.0, "work_flop": 0.0, "latency_s": 0.0}
    assert iron_law_s(**H100, **nothing, efficiency=0.5) == 0.0


@given(data=st.floats(0.0, 1e15), work=st.floats(0.0, 1e18), efficiency=st.floats(0.01, 1.0))
def test_full_overlap_would_at_most_halve_the_time(
    data: float, work: float, efficiency: float
) -> None:
    took_s = iron_law_s(
        **H100, data_bytes=data, work_flop=work, efficiency=efficiency, latency_s=0.0
    )
    longer_s = max(data / 3.35e12, work / (989e12 * efficiency))
    assert longer_s * (1 - 1e-12) <= took_s <= 2 * longer_s * (1 + 1e-12)


@pytest.mark.parametrize("efficiency", [0.0, 1.01, float("nan")])
def test_an_efficiency_of_nothing_or_above_one_is_refused(efficiency: float) -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^efficiency must be above 0 and at most 1"):
        iron_law_s(**H100, data_bytes=1.0, work_flop=1.0, efficiency=efficiency, latency_s=0.0)


def test_palm_trained_at_the_utilization_that_was_published() -> None:
    # Chowdhery et al. 2022: 238,300 tokens/s on 6,144 TPU v4, 45.7 % without attention.
    mfu = model_flops_utilization(
        throughput_tokens_per_s=238_300.0, parameters=540.35e9, peak_flops=275e12, gpus=6144
    )
    assert round(mfu, 3) == 0.457


@given(
    mfu=st.floats(0.001, 1.0),
    parameters=parameters_,
    peak=rates,
    gpus=sizes,
    phase=st.sampled_from(["training", "inference"]),
)
def test_throughput_and_utilization_are_inverses(
    mfu: float, parameters: float, peak: float, gpus: int, phase: Any
) -> None:
    run: dict[str, Any] = {
        "parameters": parameters,
        "peak_flops": peak,
        "gpus": gpus,
        "phase": phase,
    }
    rate = throughput_at_mfu_tokens_per_s(mfu=mfu, **run)
    assert close(model_flops_utilization(throughput_tokens_per_s=rate, **run), mfu)


def test_training_a_token_takes_three_times_the_work_of_inference() -> None:
    run: dict[str, Any] = {"mfu": 0.5, "parameters": LLAMA, "peak_flops": 989e12, "gpus": 8}
    training = throughput_at_mfu_tokens_per_s(**run)
    assert close(throughput_at_mfu_tokens_per_s(**run, phase="inference"), 3 * training)


def test_more_tokens_than_the_peak_allows_are_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^throughput_tokens_per_s must be within"):
        model_flops_utilization(
            throughput_tokens_per_s=[10.0, 1e9],  # type: ignore[arg-type]
            parameters=LLAMA,
            peak_flops=989e12,
        )


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"^phase must be one of training, inference"):
        work_per_token_flop(parameters=LLAMA, phase="dreaming")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("argument", ["memory_bytes_per_s", "parameters", "batch", "peak_flops"])
def test_an_impossible_argument_is_named(argument: str, bad: float) -> None:
    good: dict[str, Any] = H100 | {"parameters": LLAMA, "batch": 8}
    with pytest.raises(ImpossibleArgumentError, match=f"^{argument} must be"):
        decode_tokens_per_s(**good | {argument: bad})


def test_an_array_gives_what_its_elements_give_one_by_one() -> None:
    batches = np.array([1, 8, 64, 512])
    caches = np.array([[0.0], [1e6], [1e9]])
    setup: dict[str, Any] = {**H100, "parameters": LLAMA}
    sweep = decode_tokens_per_s(**setup, batch=batches, kv_cache_bytes=caches)
    singles = [
        [decode_tokens_per_s(**setup, batch=int(b), kv_cache_bytes=float(c)) for b in batches]
        for c in caches[:, 0]
    ]
    assert sweep.tolist() == singles
    assert isinstance(singles[0][0], float)


# The band of well-optimized training


def test_the_band_is_that_of_the_textbook() -> None:
    low, high = (TEXTBOOK.figure(f"references.training.mfu_{end}") for end in ("low", "high"))
    found = mfu_band(mfu=np.array([low - 0.01, low, high, high + 0.01]))
    assert np.array(found.band).tolist() == ["below", "within", "within", "above"]


def test_what_is_to_be_won_is_the_way_to_the_band() -> None:
    found = mfu_band(mfu=0.2)
    assert found.speedup_to_low == pytest.approx(1.5)
    assert found.speedup_to_high == pytest.approx(2.5)
    assert mfu_band(mfu=0.6).speedup_to_high == 1.0


def test_a_band_upside_down_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        mfu_band(mfu=0.4, low_mfu=0.5, high_mfu=0.3)
    assert refused.value.argument == "high_mfu"
