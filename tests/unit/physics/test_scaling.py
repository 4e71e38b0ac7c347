from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics import scaling
from physics.errors import ImpossibleArgumentError, UnfittableError
from physics.law import Array
from physics.scaling import (
    TEXTBOOK_TABLE_5,
    EfficiencyTable,
    amdahl_limit,
    amdahl_serial_share,
    amdahl_speedup,
    compound_loss,
    effective_rate_flops,
    efficiency_at,
    fit_usl,
    gpus_for_rate,
    gpus_total,
    gpus_worth,
    gustafson_serial_share,
    gustafson_speedup,
    lost_share,
    marginal_share,
    measured_efficiency,
    microbatches_for_bubble,
    needed_rate_flops,
    pipeline_bubble,
    strong_scaling_efficiency,
    torus_size,
    total_peak_flops,
    training_time,
    useful_share,
    usl_peak_gpus,
    usl_speedup,
    weak_scaling_efficiency,
)
from tests.unit.physics.law_checks import check_arrays, check_refusals

H100_FLOPS = 989e12
sizes = st.integers(1, 100_000)
shares = st.floats(0.0, 1.0)
positive_shares = st.floats(1e-3, 1.0)
losses = st.floats(0.0, 0.2)

GOOD: dict[str, dict[str, Any]] = {
    "amdahl_limit": {"serial_share": 0.1},
    "amdahl_serial_share": {"gpus": 32, "speedup": 7.8},
    "amdahl_speedup": {"gpus": 32, "serial_share": 0.1},
    "compound_loss": {
        "gpus": 1024,
        "peak_flops": H100_FLOPS,
        "mfu": 0.5,
        "efficiency": 0.5,
        "goodput": 0.77,
    },
    "effective_rate_flops": {
        "gpus": 1024,
        "peak_flops": H100_FLOPS,
        "mfu": 0.5,
        "efficiency": 0.5,
        "goodput": 0.77,
    },
    "efficiency_at": {"gpus": 4096, "loss_per_doubling": 0.05},
    "gpus_for_rate": {
        "target_rate_flops": 1e17,
        "peak_flops": H100_FLOPS,
        "mfu": 0.5,
        "goodput": 0.77,
        "loss_per_doubling": 0.05,
    },
    "gpus_total": {"nodes": 32, "gpus_per_node": 8},
    "gpus_worth": {"gpus": 1024, "speedup": 1.1, "loss_per_doubling": 0.05},
    "gustafson_serial_share": {"gpus": 32, "speedup": 29.0},
    "gustafson_speedup": {"gpus": 32, "serial_share": 0.1},
    "lost_share": {"mfu": 0.5, "efficiency": 0.5, "goodput": 0.77},
    "marginal_share": {"gpus": 1024, "added_gpus": 8, "loss_per_doubling": 0.05},
    "measured_efficiency": {
        "throughput_ratio": 2.5,
        "reference_gpus": 1024,
        "gpus": 4096,
        "reference_efficiency": 0.5,
    },
    "microbatches_for_bubble": {"stages": 8, "bubble": 0.05, "chunks": 2},
    "needed_rate_flops": {"parameters": 7e9, "tokens": 2e12, "time_s": 1e6},
    "pipeline_bubble": {"stages": 8, "microbatches": 133, "chunks": 2},
    "strong_scaling_efficiency": {
        "reference_gpus": 8,
        "reference_time_s": 100.0,
        "gpus": 64,
        "time_s": 15.0,
    },
    "torus_size": {"x": 16, "y": 20, "z": 28},
    "total_peak_flops": {"gpus": 1024, "peak_flops": H100_FLOPS},
    "training_time": {
        "parameters": 7e9,
        "tokens": 2e12,
        "gpus": 1024,
        "effective_rate_flops": 2e17,
    },
    "useful_share": {"mfu": 0.5, "efficiency": 0.5, "goodput": 0.77},
    "usl_peak_gpus": {"contention": 0.01, "coherency": 1e-6},
    "usl_speedup": {"gpus": 32, "contention": 0.01, "coherency": 1e-6},
    "weak_scaling_efficiency": {"reference_time_s": 10.0, "time_s": 12.0},
}
SERIES: dict[str, dict[str, list[float]]] = {
    "fit_usl": {"gpus": [1, 8, 64, 512], "throughput": [1.0, 7.0, 40.0, 100.0]}
}


def row(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def test_the_checks_below_cover_every_law() -> None:
    laws = {name for name in scaling.__all__ if name[0].islower()}
    assert laws == GOOD.keys() | SERIES.keys()


@pytest.mark.parametrize("name", [*GOOD, *SERIES])
def test_an_impossible_argument_is_named(name: str) -> None:
    check_refusals(getattr(scaling, name), (GOOD | SERIES)[name])


@pytest.mark.parametrize("name", GOOD)
def test_arrays_give_what_their_elements_give_one_by_one(name: str) -> None:
    check_arrays(getattr(scaling, name), GOOD[name])


# Speedup of fixed and of growing work


@pytest.mark.parametrize(
    ("gpus", "speedup"), [(1, 1.0), (32, 7.805), (256, 9.660), (1024, 9.913), (8192, 9.989)]
)
def test_ten_percent_of_serial_work_caps_the_speedup_at_ten(gpus: int, speedup: float) -> None:
    assert amdahl_speedup(gpus=gpus, serial_share=0.1) == pytest.approx(speedup, abs=5e-4)
    assert amdahl_limit(serial_share=0.1) == 10.0


def test_without_serial_work_the_speedup_is_the_number_of_gpus_and_has_no_limit() -> None:
    assert amdahl_speedup(gpus=4096, serial_share=0.0) == 4096.0
    assert amdahl_limit(serial_share=row(0.0, 1.0)).tolist() == [math.inf, 1.0]


@given(gpus=sizes, more=sizes, serial_share=shares)
def test_a_speedup_grows_with_the_gpus_and_stays_under_its_limit(
    gpus: int, more: int, serial_share: float
) -> None:
    speedup = amdahl_speedup(gpus=gpus, serial_share=serial_share)
    assert speedup <= amdahl_speedup(gpus=gpus + more, serial_share=serial_share) * (1 + 1e-12)
    assert speedup <= min(gpus, amdahl_limit(serial_share=serial_share)) * (1 + 1e-12)
    assert gustafson_speedup(gpus=gpus, serial_share=serial_share) >= speedup * (1 - 1e-12)


@given(gpus=st.integers(2, 100_000), serial_share=shares)
def test_the_serial_share_comes_back_from_the_speedup(gpus: int, serial_share: float) -> None:
    fixed = amdahl_speedup(gpus=gpus, serial_share=serial_share)
    grown = gustafson_speedup(gpus=gpus, serial_share=serial_share)
    assert amdahl_serial_share(gpus=gpus, speedup=fixed) == pytest.approx(serial_share, abs=1e-9)
    assert gustafson_serial_share(gpus=gpus, speedup=grown) == pytest.approx(serial_share, abs=1e-9)


def test_a_speedup_beyond_linear_shows_as_a_negative_serial_share() -> None:
    assert amdahl_serial_share(gpus=8, speedup=9.0) < 0.0
    assert gustafson_serial_share(gpus=8, speedup=9.0) < 0.0


def test_one_gpu_has_no_serial_share() -> None:
    with pytest.raises(ImpossibleArgumentError, match="gpus must be a whole number, at least 2"):
        amdahl_serial_share(gpus=1, speedup=1.0)


def test_strong_scaling_wants_less_time_and_weak_scaling_the_same() -> None:
    strong = {"reference_gpus": 8, "reference_time_s": 100.0, "gpus": 64}
    assert strong_scaling_efficiency(**strong, time_s=12.5) == 1.0
    assert strong_scaling_efficiency(**strong, time_s=25.0) == 0.5
    assert weak_scaling_efficiency(reference_time_s=100.0, time_s=100.0) == 1.0
    assert weak_scaling_efficiency(reference_time_s=100.0, time_s=125.0) == 0.8


def test_two_runs_give_a_relative_efficiency_and_with_a_reference_an_absolute_one() -> None:
    measured = measured_efficiency(
        throughput_ratio=2.5, reference_gpus=1024, gpus=4096, reference_efficiency=0.5
    )
    assert (measured.relative, measured.absolute) == (0.625, 0.3125)


# The Universal Scalability Law


@given(gpus=sizes, contention=shares)
def test_without_coherency_the_universal_law_is_amdahls(gpus: int, contention: float) -> None:
    universal = usl_speedup(gpus=gpus, contention=contention, coherency=0.0)
    amdahl = amdahl_speedup(gpus=gpus, serial_share=contention)
    assert universal == pytest.approx(amdahl, rel=1e-9)


@given(contention=st.floats(0.0, 0.9), coherency=st.floats(1e-8, 1e-2))
def test_the_universal_law_peaks_where_it_says(contention: float, coherency: float) -> None:
    peak = usl_peak_gpus(contention=contention, coherency=coherency)
    below, above = max(math.floor(peak * 0.9), 1), math.ceil(peak * 1.1) + 1
    around = usl_speedup(
        gpus=row(below, round(peak), above), contention=contention, coherency=coherency
    )
    assert around.max() == pytest.approx(around[1], rel=1e-9)


def test_the_peak_is_one_gpu_or_at_infinity_at_the_ends() -> None:
    peaks = usl_peak_gpus(
        contention=row(0.0, 0.1, 1.0, 2.0, 0.0), coherency=row(0.0, 0.0, 0.0, 0.1, 5.0)
    )
    assert peaks.tolist() == [math.inf, math.inf, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("coherency", [0.0, 1e-6, 1e-4])
@pytest.mark.parametrize("contention", [0.0, 0.003, 0.1])
def test_a_fit_finds_the_law_that_made_the_series(contention: float, coherency: float) -> None:
    gpus = row(8, 64, 512, 4096, 100_000)
    throughput = 421.0 * usl_speedup(gpus=gpus, contention=contention, coherency=coherency)
    fit = fit_usl(gpus=gpus, throughput=throughput)
    assert fit.single_throughput == pytest.approx(421.0, rel=1e-6)
    assert fit.contention == pytest.approx(contention, rel=1e-6, abs=1e-9)
    assert fit.coherency == pytest.approx(coherency, rel=1e-6, abs=1e-12)
    assert fit.rmse_share < 1e-9


def test_a_fit_is_the_least_squares_of_the_relative_deviation() -> None:
    rng = np.random.default_rng(1)
    gpus = row(1, 2, 4, 8, 16, 32, 64, 128)
    law = {"contention": 0.02, "coherency": 2e-4}
    throughput = usl_speedup(gpus=gpus, **law) * (1.0 + 0.03 * rng.standard_normal(gpus.size))
    fit = fit_usl(gpus=gpus, throughput=throughput)

    def squares(single: float, contention: float, coherency: float) -> float:
        fitted = single * usl_speedup(gpus=gpus, contention=contention, coherency=coherency)
        return float(np.sum((throughput / fitted - 1.0) ** 2))

    best = (fit.single_throughput, fit.contention, fit.coherency)
    assert squares(*best) == pytest.approx(np.sum(fit.residuals**2), rel=1e-9)
    assert fit.rmse_share == pytest.approx(math.sqrt(squares(*best) / gpus.size), rel=1e-9)
    for index in range(3):
        for factor in (0.99, 1.01):
            moved = [each * (factor if i == index else 1.0) for i, each in enumerate(best)]
            assert squares(*moved) > squares(*best)


def test_a_fit_does_not_depend_on_the_unit_of_throughput() -> None:
    gpus, throughput = (row(*series) for series in SERIES["fit_usl"].values())
    fits = [fit_usl(gpus=gpus, throughput=throughput * scale) for scale in (1e-9, 1e15)]
    assert fits[0].contention == pytest.approx(fits[1].contention, rel=1e-9)
    assert fits[0].coherency == pytest.approx(fits[1].coherency, rel=1e-9)


def test_two_sizes_determine_no_fit() -> None:
    with pytest.raises(UnfittableError, match="three sizes"):
        fit_usl(gpus=row(8, 8, 64), throughput=row(1.0, 1.1, 6.0))


def test_a_collapse_faster_than_the_law_is_not_fitted() -> None:
    with pytest.raises(UnfittableError, match="falls faster"):
        fit_usl(gpus=row(100, 200, 400), throughput=row(1.0, 1e-3, 1e-6))


# The table


def test_the_table_is_linear_in_the_doublings_of_the_gpus() -> None:
    gpus = row(1, 2, 32, 256, 512, 1024, 4096, 8192)
    expected = [1.0, 0.98, 0.9, 0.7, 0.6, 0.5, 0.4, 0.35]
    assert efficiency_at(gpus=gpus) == pytest.approx(expected, abs=1e-12)


def test_beyond_the_table_an_assumption_must_be_stated() -> None:
    with pytest.raises(ImpossibleArgumentError, match=r"at most 8192.*loss_per") as refused:
        efficiency_at(gpus=row(8192, 8193))
    assert refused.value.argument == "gpus"
    stated = efficiency_at(gpus=row(8192, 16384, 2**30), loss_per_doubling=0.05)
    assert stated == pytest.approx([0.35, 0.30, 0.0], abs=1e-12)
    assert efficiency_at(gpus=100_000, loss_per_doubling=0.0) == 0.35


def test_a_table_that_begins_at_one_gpu_keeps_its_value_there() -> None:
    table = EfficiencyTable(sizes=(1, 4), efficiencies=(0.9, 0.7), source="test")
    assert efficiency_at(gpus=row(1, 2, 4), table=table) == pytest.approx([0.9, 0.8, 0.7])


@pytest.mark.parametrize(
    ("sizes", "efficiencies", "argument"),
    [
        ((), (), "sizes"),
        ((8, 8), (0.9, 0.8), "sizes"),
        ((0, 8), (0.9, 0.8), "sizes"),
        ((8, 12.5), (0.9, 0.8), "sizes"),
        ((8, float("nan")), (0.9, 0.8), "sizes"),
        ((8, float("inf")), (0.9, 0.8), "sizes"),
        ((8, 16), (0.9,), "efficiencies"),
        ((8, 16), (0.9, 1.1), "efficiencies"),
        ((8, 16), (0.9, 0.0), "efficiencies"),
        ((8, 16), (0.9, float("nan")), "efficiencies"),
    ],
)
def test_an_impossible_table_is_refused(sizes: Any, efficiencies: Any, argument: str) -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        EfficiencyTable(sizes=sizes, efficiencies=efficiencies, source="test")
    assert refused.value.argument == argument


def test_no_amdahl_curve_goes_through_the_table() -> None:
    gpus = row(*TEXTBOOK_TABLE_5.sizes)
    speedup = gpus * row(*TEXTBOOK_TABLE_5.efficiencies)
    implied = amdahl_serial_share(gpus=gpus, speedup=speedup)
    assert 100.0 * implied == pytest.approx([0.36, 0.17, 0.098, 0.023], abs=0.005)
    # The serial share of the first row leaves 3.3 % at the last, where the table has 35 %.
    from_first = amdahl_speedup(gpus=8192, serial_share=implied[0]) / 8192
    assert from_first == pytest.approx(0.033, abs=5e-4)


def test_no_universal_law_goes_through_the_table_either() -> None:
    gpus = row(*TEXTBOOK_TABLE_5.sizes)
    fit = fit_usl(gpus=gpus, throughput=gpus * row(*TEXTBOOK_TABLE_5.efficiencies))
    # Even with the throughput of one GPU free, which the table says is 1.
    assert fit.single_throughput == pytest.approx(0.775, abs=5e-4)
    assert np.abs(fit.residuals).max() == pytest.approx(0.249, abs=5e-4)
    assert fit.rmse_share == pytest.approx(0.155, abs=5e-4)


# What is left of the peak


def test_half_of_half_of_77_percent_is_left() -> None:
    kept = {"mfu": 0.5, "efficiency": 0.5, "goodput": 0.77}
    fleet = {"gpus": 1024, "peak_flops": H100_FLOPS}
    assert useful_share(**kept) == 0.1925
    assert lost_share(**kept) == 0.8075
    assert total_peak_flops(**fleet) == 1_012_736e12
    assert effective_rate_flops(**fleet, **kept) == pytest.approx(194_951.68e12, rel=1e-12)


def test_a_factor_left_out_loses_nothing() -> None:
    assert useful_share() == 1.0
    assert lost_share(efficiency=0.35) == 0.65


@given(gpus=sizes, mfu=shares, efficiency=shares, goodput=shares)
def test_the_losses_and_the_rest_add_up_to_the_peak(
    gpus: int, mfu: float, efficiency: float, goodput: float
) -> None:
    kept = {"mfu": mfu, "efficiency": efficiency, "goodput": goodput}
    loss = compound_loss(gpus=gpus, peak_flops=H100_FLOPS, **kept)
    parts = (
        loss.lost_to_mfu_flops,
        loss.lost_to_scaling_flops,
        loss.lost_to_overhead_flops,
        loss.effective_rate_flops,
    )
    assert min(parts) >= 0.0
    assert math.fsum(parts) == pytest.approx(loss.total_peak_flops, rel=1e-12)
    assert loss.lost_share == lost_share(**kept)
    assert loss.useful_share == useful_share(**kept)


# How many GPUs


def rate_of(gpus: int, loss: float | None = None) -> float:
    efficiency = efficiency_at(gpus=gpus, loss_per_doubling=loss)
    rate = effective_rate_flops(
        gpus=gpus, peak_flops=H100_FLOPS, mfu=0.4, efficiency=efficiency, goodput=0.77
    )
    return float(rate)


def gpus_of(
    rate: float, loss: float | None = None, table: EfficiencyTable = TEXTBOOK_TABLE_5
) -> int:
    gpus = gpus_for_rate(
        target_rate_flops=rate,
        peak_flops=H100_FLOPS,
        mfu=0.4,
        goodput=0.77,
        loss_per_doubling=loss,
        table=table,
    )
    return int(gpus)


@given(gpus=st.integers(1, 8192))
def test_the_gpus_for_the_rate_of_n_gpus_are_n(gpus: int) -> None:
    assert gpus_of(rate_of(gpus)) == gpus
    if gpus < 8192:
        assert gpus_of(rate_of(gpus) * (1 + 1e-9)) == gpus + 1


@given(gpus=st.integers(8193, 300_000), loss=st.floats(0.0, 0.05))
def test_it_holds_beyond_the_table_too(gpus: int, loss: float) -> None:
    assert gpus_of(rate_of(gpus, loss), loss) == gpus


@given(rate=st.floats(1e14, 7e17), factor=st.floats(1.0, 1.2))
def test_a_higher_rate_never_takes_fewer_gpus(rate: float, factor: float) -> None:
    assert gpus_of(rate) <= gpus_of(rate * factor)


def test_a_rate_out_of_reach_is_refused_with_the_size_that_is_not_enough() -> None:
    with pytest.raises(ImpossibleArgumentError, match="8192 GPUs, unless") as refused:
        gpus_of(rate_of(8192) * 1.001)
    assert refused.value.argument == "target_rate_flops"
    with pytest.raises(ImpossibleArgumentError, match="385749 GPUs, beyond which more GPUs do"):
        gpus_of(1e20, loss=0.05)


def test_the_size_at_which_more_gpus_do_less_is_found() -> None:
    gpus = np.arange(380_000.0, 390_000.0)
    busy = gpus * efficiency_at(gpus=gpus, loss_per_doubling=0.05)
    assert abs(gpus[busy.argmax()] - 385_749) <= 1


def test_a_dip_in_a_table_is_not_taken_for_the_end_of_the_rise() -> None:
    # 64 GPUs do less than 32; 512 more than both.
    table = EfficiencyTable(sizes=(32, 64, 512), efficiencies=(0.9, 0.3, 0.3), source="test")
    gpus = np.arange(1.0, 513.0)
    busy = gpus * efficiency_at(gpus=gpus, table=table)
    rate = H100_FLOPS * 0.4 * 0.77
    for wanted in (0.5, 10.0, 28.0, busy[:64].max(), 30.0, 100.0, busy[-1]):
        first = gpus[busy >= wanted * (1 - 1e-12)][0]
        assert gpus_of(wanted * rate, table=table) == first


def test_a_faster_program_is_worth_more_gpus_than_its_share() -> None:
    gpus = row(32, 256, 1024, 4096)
    worth = gpus_worth(gpus=gpus, speedup=1.1)
    assert worth.tolist() == [4.0, 33.0, 121.0, 507.0]
    assert np.all(worth > 0.1 * gpus)
    assert gpus_worth(gpus=1024, speedup=1.0) == 0.0


def test_an_added_gpu_does_less_than_one_that_was_there() -> None:
    gpus = row(1, 32, 256, 1024, 4096)
    assert np.all(marginal_share(gpus=gpus) < efficiency_at(gpus=gpus))
    # From 32 to 64 GPUs: (64 · 0.8333 - 32 · 0.9) / 32.
    assert marginal_share(gpus=32, added_gpus=32) == pytest.approx(0.766667, abs=1e-6)
    assert marginal_share(gpus=500_000, loss_per_doubling=0.05) < 0.0


# How long it trains


def test_a_training_run_takes_six_flop_for_each_parameter_and_token() -> None:
    run = {"parameters": 70e9, "tokens": 15e12}
    time = training_time(**run, gpus=1024, effective_rate_flops=194_951.68e12)
    assert time.work_flop == 6.3e24
    assert time.time_s / 86_400 == pytest.approx(374.0, abs=0.05)
    assert time.gpu_time_h == pytest.approx(1024 * time.time_s / 3600)


@given(
    parameters=st.floats(1e6, 1e13), tokens=st.floats(1e6, 1e14), rate_flops=st.floats(1e12, 1e21)
)
def test_the_needed_rate_trains_in_the_time(
    parameters: float, tokens: float, rate_flops: float
) -> None:
    run = {"parameters": parameters, "tokens": tokens}
    time = training_time(**run, gpus=8, effective_rate_flops=rate_flops)
    needed = needed_rate_flops(**run, time_s=time.time_s)
    assert needed == pytest.approx(rate_flops, rel=1e-12)


# Layout


def test_a_pipeline_of_8_stages_needs_133_microbatches_for_a_bubble_of_5_percent() -> None:
    assert pipeline_bubble(stages=8, microbatches=133) == pytest.approx(0.05)
    assert microbatches_for_bubble(stages=8, bubble=0.05) == 133.0


def test_a_pipeline_of_one_stage_has_no_bubble() -> None:
    assert pipeline_bubble(stages=1, microbatches=1) == 0.0
    assert microbatches_for_bubble(stages=1, bubble=0.01) == 1.0


@given(stages=st.integers(1, 128), bubble=positive_shares, chunks=st.integers(1, 8))
def test_the_fewest_microbatches_keep_the_bubble(stages: int, bubble: float, chunks: int) -> None:
    fewest = microbatches_for_bubble(stages=stages, bubble=bubble, chunks=chunks)
    layout = {"stages": stages, "chunks": chunks}
    assert pipeline_bubble(microbatches=fewest, **layout) <= bubble * (1 + 1e-9)
    if fewest > 1:
        assert pipeline_bubble(microbatches=fewest - 1, **layout) > bubble * (1 - 1e-9)


def test_published_fleets_have_the_size_of_their_layout() -> None:
    assert gpus_total(nodes=row(32, 3072), gpus_per_node=8).tolist() == [256.0, 24_576.0]
    assert torus_size(x=16, y=20, z=28) == 8960.0
    assert torus_size(x=16, y=16) == 256.0
