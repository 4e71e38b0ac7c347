import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import pdtr

from physics.errors import ImpossibleArgumentError, ShapeMismatchError, UnfittableError
from physics.reliability import (
    FEWEST_FAILURES,
    WeibullFit,
    compare_rates,
    components_for_probability,
    daly_first_order_interval_s,
    daly_interval_s,
    estimate_mtbf,
    ettr,
    expected_failures,
    expected_run,
    failure_forecast,
    failure_probability,
    failures_at_percentile,
    first_order_waste,
    lemon_nodes,
    mtbf_for_ettr_s,
    mtbf_years,
    optimal_interval_s,
    restart_for_ettr_s,
    series_system_mtbf_s,
    spare_worth,
    system_mtbf_s,
    wall_time_shares,
    weibull_test,
    window_for_probability_s,
    young_interval_s,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
GPU_MTBF_S = 50_000 * HOUR

Floats = NDArray[np.float64]

mtbfs = st.floats(1e2, 1e9)
windows = st.floats(1e-3, 1e8)
counts = st.integers(1, 200_000)
shares = st.floats(0.001, 0.999)
# δ, R and D as parts of the MTBF, τ too.
parts = st.floats(1e-6, 3.0)


def series(*values: float) -> Floats:
    return np.array(values)


# How often a system fails


@pytest.mark.parametrize(
    ("gpus", "hours", "percent"),
    [(256, 195.3, 11.6), (2048, 24.4, 62.6), (8192, 6.1, 98.0), (100_000, 0.5, 100.0)],
)
def test_a_cluster_fails_as_often_as_the_fleet_numbers_say(
    gpus: int, hours: float, percent: float
) -> None:
    forecast = failure_forecast(window_s=DAY, component_mtbf_s=GPU_MTBF_S, components=gpus)
    assert round(forecast.system_mtbf_s / HOUR, 1) == hours
    assert round(100 * forecast.probability, 1) == percent


def test_a_forecast_is_what_its_laws_say_one_by_one() -> None:
    forecast = failure_forecast(
        window_s=DAY, component_mtbf_s=GPU_MTBF_S, components=8192, percentile=0.99
    )
    mtbf_s = system_mtbf_s(component_mtbf_s=GPU_MTBF_S, components=8192)
    window = {"window_s": DAY, "system_mtbf_s": mtbf_s}
    assert forecast.system_mtbf_s == mtbf_s
    assert forecast.expected_failures == expected_failures(**window) == DAY / mtbf_s
    assert forecast.probability == failure_probability(**window)
    assert forecast.failures_at_percentile == failures_at_percentile(percentile=0.99, **window)


def test_nics_count_and_redundant_power_supplies_do_not() -> None:
    kinds = series(50_000, 150_000, 100_000) * HOUR
    mtbf_s = series_system_mtbf_s(component_mtbf_s=kinds, components=series(8192, 8192, 0))
    assert round(mtbf_s / HOUR, 2) == 4.58
    assert round(100 * failure_probability(window_s=DAY, system_mtbf_s=mtbf_s), 2) == 99.47


def test_a_series_system_of_one_kind_is_a_system_of_like_components() -> None:
    one = {"component_mtbf_s": GPU_MTBF_S, "components": 72}
    assert series_system_mtbf_s(**one) == system_mtbf_s(**one)


def test_kinds_are_on_the_last_axis_of_a_series_system() -> None:
    components = np.array([[8, 8], [16, 4], [1, 0]])
    answer = series_system_mtbf_s(component_mtbf_s=series(2.0, 4.0), components=components)
    assert answer.tolist() == [1 / 6, 1 / 9, 2.0]


def test_a_system_of_nothing_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="components must be at least 1 of some kind"):
        series_system_mtbf_s(component_mtbf_s=series(1.0, 2.0), components=series(0, 0))


def test_an_mtbf_of_50_000_hours_is_5_7_years() -> None:
    assert round(mtbf_years(mtbf_h=50_000), 1) == 5.7


def test_without_time_nothing_fails_and_a_tiny_risk_keeps_its_digits() -> None:
    assert failure_probability(window_s=0.0, system_mtbf_s=HOUR) == 0.0
    assert failures_at_percentile(window_s=0.0, system_mtbf_s=HOUR, percentile=0.999) == 0.0
    assert math.isclose(failure_probability(window_s=1e-12, system_mtbf_s=1.0), 1e-12)


@given(windows, mtbfs, counts, counts)
def test_more_components_fail_more(window_s: float, mtbf_s: float, some: int, more: int) -> None:
    risk = {"window_s": window_s, "component_mtbf_s": mtbf_s}
    less, most = (failure_forecast(components=n, **risk) for n in sorted((some, some + more)))
    assert less.system_mtbf_s > most.system_mtbf_s
    assert less.expected_failures < most.expected_failures
    assert less.probability <= most.probability
    assert less.failures_at_percentile <= most.failures_at_percentile


@given(windows, mtbfs, counts)
def test_many_components_and_one_of_their_mtbf_are_the_same(
    window_s: float, mtbf_s: float, gpus: int
) -> None:
    together = failure_forecast(window_s=window_s, component_mtbf_s=mtbf_s * gpus, components=gpus)
    single = failure_forecast(window_s=window_s, component_mtbf_s=mtbf_s, components=1)
    assert math.isclose(together.probability, single.probability)


@given(st.floats(0.0, 500.0), shares)
def test_the_percentile_is_the_least_number_that_is_enough(mean: float, percentile: float) -> None:
    enough = failures_at_percentile(window_s=mean, system_mtbf_s=1.0, percentile=percentile)
    # Summed in logarithms, independent of the incomplete gamma function.
    k = np.arange(enough + 1.0)
    logs = k * math.log(mean) if mean > 0.0 else np.where(k > 0.0, -np.inf, 0.0)
    terms = np.exp(logs - mean - np.array([math.lgamma(each + 1.0) for each in k]))
    assert terms.sum() >= percentile - 1e-9
    assert terms[:-1].sum() < percentile + 1e-9


def test_a_percentile_that_a_number_just_reaches_is_that_number() -> None:
    number, mean = np.arange(60.0), np.array([[0.1], [2.5], [17.0], [45.0]])
    percentile = pdtr(number, mean)
    reached = failures_at_percentile(
        window_s=mean, system_mtbf_s=1.0, percentile=np.clip(percentile, 1e-12, 1.0 - 1e-12)
    )
    inside = (percentile > 1e-12) & (percentile < 1.0 - 1e-12)
    np.testing.assert_array_equal(reached[inside], np.broadcast_to(number, inside.shape)[inside])


@given(shares, mtbfs)
def test_the_window_of_a_probability_has_that_probability(
    probability: float, mtbf_s: float
) -> None:
    window_s = window_for_probability_s(probability=probability, system_mtbf_s=mtbf_s)
    again = failure_probability(window_s=window_s, system_mtbf_s=mtbf_s)
    assert math.isclose(again, probability)


@given(shares, windows, mtbfs)
def test_one_component_more_than_a_probability_allows_exceeds_it(
    probability: float, window_s: float, mtbf_s: float
) -> None:
    risk = {"window_s": window_s, "component_mtbf_s": mtbf_s}
    most = components_for_probability(probability=probability, **risk)
    if 1 <= most <= 2**53:
        within = failure_forecast(components=most, **risk).probability
        assert within <= probability * (1 + 1e-9)
    if most < 1e9:
        assert failure_forecast(components=most + 1, **risk).probability > probability


@given(counts)
def test_the_components_that_gave_a_probability_come_back(gpus: int) -> None:
    risk = {"window_s": HOUR, "component_mtbf_s": GPU_MTBF_S}
    probability = failure_forecast(components=gpus, **risk).probability
    assert components_for_probability(probability=probability, **risk) == gpus


# What observed failures say


def test_llama_3_was_interrupted_once_in_50_677_gpu_hours() -> None:
    estimate = estimate_mtbf(failures=419, exposure_s=16_384 * 54 * DAY)
    assert round(estimate.mtbf_s / HOUR) == 50_677
    assert estimate.lower_s < 50_000 * HOUR < estimate.upper_s


def test_the_bounds_of_an_mtbf_are_those_of_the_chi_squared_tables() -> None:
    estimate = estimate_mtbf(failures=5, exposure_s=1000.0, confidence=0.95)
    assert estimate.mtbf_s == 200.0
    assert math.isclose(estimate.lower_s, 2000.0 / 23.337, rel_tol=1e-4)
    assert math.isclose(estimate.upper_s, 2000.0 / 3.247, rel_tol=1e-4)


def test_without_a_failure_there_is_only_a_lower_bound() -> None:
    estimate = estimate_mtbf(failures=0, exposure_s=1000.0, confidence=0.95)
    assert math.isinf(estimate.mtbf_s)
    assert math.isinf(estimate.upper_s)
    assert math.isclose(estimate.lower_s, 1000.0 / -math.log(0.05))


@pytest.mark.parametrize("mean", [0.5, 3.0, 40.0])
def test_the_true_mtbf_is_within_its_bounds_at_least_as_often_as_promised(mean: float) -> None:
    failures = np.random.default_rng(11).poisson(mean, 20_000).astype(float)
    estimate = estimate_mtbf(failures=failures, exposure_s=mean, confidence=0.9)
    held = np.mean((estimate.lower_s <= 1.0) & (estimate.upper_s >= 1.0))
    assert 0.895 <= held < 0.99


def test_two_rates_compare_as_in_the_textbook() -> None:
    # Breast cancer after fluoroscopy, 41 cases in 28,010 person-years against 15 in 19,017
    # (Boice and Monson 1977, as in Rothman): a ratio of 1.86.
    compared = compare_rates(
        failures_a=41, exposure_a_s=28_010.0, failures_b=15, exposure_b_s=19_017.0
    )
    assert round(compared.rate_ratio, 2) == 1.86
    share = 28_010.0 / (28_010.0 + 19_017.0)
    tail = sum(math.comb(56, k) * share**k * (1 - share) ** (56 - k) for k in range(41, 57))
    assert math.isclose(compared.p_value, 2.0 * tail)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 100.0))
def test_comparing_the_other_way_round_inverts_the_ratio(a: int, b: int, times: float) -> None:
    one = compare_rates(failures_a=a, exposure_a_s=times, failures_b=b, exposure_b_s=1.0)
    other = compare_rates(failures_a=b, exposure_a_s=1.0, failures_b=a, exposure_b_s=times)
    assert math.isclose(one.p_value, other.p_value)
    assert np.isclose(one.lower * other.upper, 1.0) or (one.lower, other.upper) == (0.0, math.inf)
    assert one.lower <= one.upper
    assert 0.0 < one.p_value <= 1.0
    # Significant and "the interval lacks 1" are one statement.
    assert (one.p_value < 0.05) == (one.lower > 1.0 or one.upper < 1.0)


def test_rates_without_failures_have_an_open_interval() -> None:
    compared = compare_rates(
        failures_a=series(0, 4, 0), exposure_a_s=1.0, failures_b=series(3, 0, 0), exposure_b_s=1.0
    )
    np.testing.assert_array_equal(compared.rate_ratio, [0.0, np.inf, np.nan])
    np.testing.assert_array_equal(compared.lower[[0, 2]], 0.0)
    np.testing.assert_array_equal(compared.upper[[1, 2]], np.inf)


def test_equal_rates_are_rarely_called_unlike() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.poisson(mean, 20_000).astype(float) for mean in (12.0, 30.0))
    compared = compare_rates(failures_a=a, exposure_a_s=12.0, failures_b=b, exposure_b_s=30.0)
    assert 0.02 < np.mean(compared.p_value < 0.05) <= 0.05


# Lemons


def test_lemon_p_values_are_binomial_tails_and_q_values_those_of_their_definition() -> None:
    failures, exposure_s = series(4, 0, 1, 0, 2), series(1, 1, 3, 0, 2)
    lemons = lemon_nodes(failures=failures, exposure_s=exposure_s)
    share = exposure_s / 7
    tails = [
        sum(math.comb(7, k) * s**k * (1 - s) ** (7 - k) for k in range(int(n), 8))
        for n, s in zip(failures, share, strict=True)
    ]
    np.testing.assert_allclose(lemons.p_value, tails)
    np.testing.assert_allclose(lemons.expected_failures, 7 * share)
    at_most = [sum(other <= p for other in tails) for p in tails]
    scaled = [p * 5 / rank for p, rank in zip(tails, at_most, strict=True)]
    q_values = [min(q for q, other in zip(scaled, tails, strict=True) if other >= p) for p in tails]
    np.testing.assert_allclose(lemons.q_value, q_values)
    assert lemon_nodes(
        failures=failures, exposure_s=exposure_s, false_discovery=0.15
    ).flagged.tolist() == [True, False, False, False, False]
    assert not lemons.flagged.any()


def test_in_a_healthy_fleet_a_node_is_seldom_flagged() -> None:
    rng = np.random.default_rng(17)
    exposure_s = rng.uniform(10.0, 400.0, 1000) * DAY
    fleets = rng.poisson(exposure_s / (90 * DAY), (400, 1000)).astype(float)
    flagged = [lemon_nodes(failures=each, exposure_s=exposure_s).flagged.any() for each in fleets]
    assert np.mean(flagged) <= 0.05


def test_a_planted_lemon_is_found_and_few_others_with_it() -> None:
    rng = np.random.default_rng(23)
    rates = np.full(2000, 1.0)
    lemons = rng.choice(2000, 10, replace=False)
    rates[lemons] = 15.0
    found, wrong = 0, []
    for failures in rng.poisson(rates, (50, 2000)).astype(float):
        flagged = np.flatnonzero(
            lemon_nodes(failures=failures, exposure_s=np.full(2000, DAY)).flagged
        )
        right = np.isin(flagged, lemons).sum()
        found += right
        wrong.append((flagged.size - right) / max(flagged.size, 1))
    assert found / (50 * 10) > 0.9
    assert np.mean(wrong) <= 0.05


def test_a_hundred_thousand_nodes_take_well_under_a_second() -> None:
    rng = np.random.default_rng(29)
    failures = rng.poisson(0.4, 100_000)
    failures[777] = 12
    begun = time.process_time()
    lemons = lemon_nodes(failures=failures.astype(float), exposure_s=np.full(100_000, 30 * DAY))
    assert time.process_time() - begun < 0.5
    assert np.flatnonzero(lemons.flagged).tolist() == [777]


def test_a_fleet_without_failures_has_no_lemons() -> None:
    lemons = lemon_nodes(failures=series(0, 0), exposure_s=series(1, 0))
    assert lemons.q_value.tolist() == [1.0, 1.0]
    assert not lemons.flagged.any()


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"failures": series(1, -1)}, "failures"),
        ({"failures": series(1, 0.5)}, "failures"),
        ({"exposure_s": series(1, 0)}, "failures"),
        ({"failures": series(0, 0), "exposure_s": series(0, 0)}, "exposure_s"),
        ({"false_discovery": series(0.1, 0.2)}, "false_discovery"),
        ({"false_discovery": 1.0}, "false_discovery"),
    ],
)
def test_impossible_fleets_are_refused_by_name(changes: dict[str, Any], argument: str) -> None:
    fleet: dict[str, Any] = {"failures": series(1, 2), "exposure_s": series(1, 1)}
    with pytest.raises(ImpossibleArgumentError) as refused:
        lemon_nodes(**fleet | changes)
    assert refused.value.argument == argument


# Lifetimes


def lifetimes(
    shape: float, devices: int, until: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw Weibull lifetimes of scale 1, seen until some age: ages, and who failed."""
    lives = rng.weibull(shape, devices)
    return np.minimum(lives, until), (lives < until).astype(float)


def fit(age_s: Floats, failed: Floats, confidence: float = 0.95) -> WeibullFit:
    fitted: WeibullFit = weibull_test(age_s=age_s, failed=failed, confidence=confidence)
    return fitted


def test_ball_bearings_wear_out_as_published() -> None:
    # Lieblein and Zelen 1956, million revolutions; shape and scale as in Lawless 2003.
    bearings = series(17.88, 28.92, 33.00, 41.52, 42.12, 45.60, 48.48, 51.84, 51.96, 54.12, 55.56)
    bearings = np.append(bearings, [67.80, 68.64, 68.64, 68.88, 84.12, 93.12, 98.64, 105.12])
    bearings = np.append(bearings, [105.84, 127.92, 128.04, 173.40])
    fitted = fit(bearings, np.ones(23))
    assert round(fitted.shape, 3) == 2.102
    assert round(fitted.scale_s, 2) == 81.88
    assert fitted.verdict == "wear-out"


@pytest.mark.parametrize(
    ("shape", "verdict"), [(0.6, "infant mortality"), (1.0, "constant rate"), (2.5, "wear-out")]
)
@pytest.mark.parametrize("until", [0.5, math.inf])
def test_the_shape_of_lifetimes_is_found_also_where_most_survive(
    shape: float, until: float, verdict: str
) -> None:
    age_s, failed = lifetimes(shape, 4000, until, np.random.default_rng(31))
    fitted = fit(age_s, failed)
    assert abs(fitted.shape - shape) < 3 * fitted.shape_standard_error < 0.2 * shape
    assert fitted.shape_lower < shape < fitted.shape_upper
    assert math.isclose(fitted.scale_s, 1.0, rel_tol=0.15)
    assert fitted.verdict == verdict


def log_likelihood(age_s: Floats, failed: Floats, shape: float, scale_s: float) -> float:
    powers = (age_s / scale_s) ** shape
    hazards = np.log(shape / scale_s * (age_s / scale_s) ** (shape - 1.0))
    return float((failed * hazards).sum() - powers.sum())


def test_no_other_shape_or_scale_is_likelier() -> None:
    age_s, failed = lifetimes(1.4, 60, 0.8, np.random.default_rng(37))
    fitted = fit(age_s * HOUR, failed)
    best = log_likelihood(age_s * HOUR, failed, fitted.shape, fitted.scale_s)
    for shape_by, scale_by in [(1.001, 1.0), (0.999, 1.0), (1.0, 1.001), (1.0, 0.999)]:
        other = log_likelihood(
            age_s * HOUR, failed, fitted.shape * shape_by, fitted.scale_s * scale_by
        )
        assert other < best
    flat = failed.sum() / age_s.sum() / HOUR
    constant = log_likelihood(age_s * HOUR, failed, 1.0, 1.0 / flat)
    assert math.isclose(fitted.likelihood_ratio, 2.0 * (best - constant), rel_tol=1e-6)


def test_the_standard_error_is_how_much_fits_scatter() -> None:
    rng = np.random.default_rng(41)
    fits = [fit(*lifetimes(1.0, 100, 0.7, rng)) for _ in range(200)]
    errors = np.mean([each.shape_standard_error for each in fits])
    assert math.isclose(np.std([each.shape for each in fits]), errors, rel_tol=0.2)


def test_the_error_of_complete_lifetimes_is_that_of_fishers_information() -> None:
    fitted = fit(*lifetimes(1.7, 4000, math.inf, np.random.default_rng(59)), confidence=0.9)
    relative = fitted.shape_standard_error / fitted.shape
    assert math.isclose(relative, math.sqrt(6.0 / 4000) / math.pi, rel_tol=0.02)
    assert math.isclose(
        math.log(fitted.shape_upper / fitted.shape), 1.6449 * relative, rel_tol=1e-4
    )
    assert math.isclose(fitted.shape**2, fitted.shape_lower * fitted.shape_upper)


def test_a_constant_rate_is_seldom_called_something_else() -> None:
    rng = np.random.default_rng(43)
    verdicts = [fit(*lifetimes(1.0, 200, 0.1, rng)).verdict for _ in range(200)]
    judged = [each for each in verdicts if each != "not enough failures"]
    assert len(judged) > 150
    assert 0.0 < np.mean([each != "constant rate" for each in judged]) < 0.1


@given(st.floats(1e-6, 1e9))
def test_the_unit_of_age_does_not_matter(scale: float) -> None:
    age_s, failed = lifetimes(0.8, 30, 2.0, np.random.default_rng(47))
    one, other = fit(age_s, failed), fit(age_s * scale, failed)
    assert math.isclose(one.shape, other.shape, rel_tol=1e-9)
    assert math.isclose(one.p_value, other.p_value, rel_tol=1e-6)
    assert math.isclose(one.scale_s * scale, other.scale_s, rel_tol=1e-9)


def test_few_failures_give_no_verdict() -> None:
    age_s = np.arange(1.0, 100.0)
    enough = fit(age_s, (age_s <= FEWEST_FAILURES).astype(float))
    few = fit(age_s, (age_s < FEWEST_FAILURES).astype(float))
    assert enough.verdict != "not enough failures"
    assert (few.verdict, few.failures) == ("not enough failures", FEWEST_FAILURES - 1)
    assert math.isnan(few.shape)


def test_failures_all_at_one_age_that_nothing_outlived_cannot_be_fitted() -> None:
    with pytest.raises(UnfittableError, match="one age"):
        fit(np.full(20, 5.0), np.ones(20))


def test_flags_other_than_0_and_1_are_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="failed must be 0 or 1"):
        fit(np.ones(3), series(0, 1, 2))
    with pytest.raises(ShapeMismatchError):
        fit(np.ones(3), np.ones(2))
    with pytest.raises(ImpossibleArgumentError, match="confidence must be one number"):
        weibull_test(age_s=np.ones(3), failed=np.ones(3), confidence=series(0.9, 0.95))


# Checkpoint intervals


@pytest.mark.parametrize(("mtbf_s", "minutes"), [(DAY, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)])
def test_dalys_interval_is_that_of_his_paper(mtbf_s: float, minutes: float) -> None:
    interval_s = daly_interval_s(checkpoint_s=5 * MINUTE, system_mtbf_s=mtbf_s)
    assert math.isclose(interval_s / MINUTE, minutes, abs_tol=0.5 if minutes > 10 else 0.05)


def test_intervals_of_a_10_minute_checkpoint_and_a_day_between_failures() -> None:
    job = {"checkpoint_s": 10 * MINUTE, "system_mtbf_s": DAY}
    assert math.isclose(young_interval_s(**job), math.sqrt(2 * 600 * 86400))
    first = daly_first_order_interval_s(restart_s=HOUR, **job)
    assert math.isclose(first, math.sqrt(2 * 600 * (86400 + 3600)))
    assert daly_first_order_interval_s(restart_s=0.0, **job) == young_interval_s(**job)


@pytest.mark.parametrize("ratio", [1e-4, 1e-3, 0.02, 0.3, 1.0, 4.0])
def test_the_optimal_interval_is_where_the_expected_time_is_least(ratio: float) -> None:
    costs = {"checkpoint_s": ratio * HOUR, "restart_s": MINUTE, "system_mtbf_s": HOUR}

    def overhead(log_interval: float) -> float:
        return float(1.0 / max(ettr(interval_s=math.exp(log_interval), **costs), 1e-300))

    bounds = math.log(1e-3 * HOUR), math.log(1e3 * HOUR)
    least = minimize_scalar(overhead, bounds=bounds, options={"xatol": 1e-12})
    found = optimal_interval_s(checkpoint_s=ratio * HOUR, system_mtbf_s=HOUR)
    assert math.isclose(found, math.exp(least.x), rel_tol=1e-6)


@given(st.floats(1e-18, 10.0))
def test_at_the_optimal_interval_the_slope_of_the_expected_time_is_zero(ratio: float) -> None:
    x = optimal_interval_s(checkpoint_s=ratio, system_mtbf_s=1.0)
    # ln(1 - x) + x = -δ/M, summed as a series where x is small.
    powers = np.arange(2.0, 40.0)
    left = float((x**powers / powers).sum()) if x < 0.4 else -math.log1p(-x) - x
    assert math.isclose(left, ratio, rel_tol=1e-9)


def test_the_optimal_interval_has_its_limits() -> None:
    ratios = series(0.0, 1e-20, 1e-12, 1e3)
    best = optimal_interval_s(checkpoint_s=ratios, system_mtbf_s=1.0)
    young = young_interval_s(checkpoint_s=ratios, system_mtbf_s=1.0)
    assert best[0] == young[0] == daly_interval_s(checkpoint_s=0.0, system_mtbf_s=1.0) == 0.0
    np.testing.assert_allclose(best[1:3], young[1:3], rtol=1e-6)
    assert best[3] == daly_interval_s(checkpoint_s=1e3, system_mtbf_s=1.0) == 1.0


@given(st.floats(1e-9, 0.1), mtbfs)
def test_dalys_interval_is_close_to_the_optimum(ratio: float, mtbf_s: float) -> None:
    job = {"checkpoint_s": ratio * mtbf_s, "system_mtbf_s": mtbf_s}
    assert math.isclose(daly_interval_s(**job), optimal_interval_s(**job), rel_tol=4e-4)


@given(parts, parts, parts, parts)
def test_no_interval_beats_the_optimal_one(
    interval: float, checkpoint: float, restart: float, wait: float
) -> None:
    job = {"checkpoint_s": checkpoint, "restart_s": restart, "queue_wait_s": wait}
    best, other = (
        ettr(system_mtbf_s=1.0, **job),
        ettr(system_mtbf_s=1.0, interval_s=interval, **job),
    )
    assert other <= best * (1 + 1e-12)


@given(st.floats(1e-3, 1e6), parts, parts, parts)
def test_the_unit_of_time_does_not_matter(
    scale: float, interval: float, checkpoint: float, restart: float
) -> None:
    job = {"interval_s": interval, "checkpoint_s": checkpoint, "restart_s": restart}
    scaled = {name: value * scale for name, value in job.items()}
    one, other = ettr(system_mtbf_s=1.0, **job), ettr(system_mtbf_s=scale, **scaled)
    assert math.isclose(one, other, rel_tol=1e-9)
    short = optimal_interval_s(checkpoint_s=checkpoint, system_mtbf_s=1.0)
    long = optimal_interval_s(checkpoint_s=checkpoint * scale, system_mtbf_s=scale)
    assert math.isclose(short * scale, long, rel_tol=1e-9)


# What failures cost a job

JOB = {"interval_s": 0.5, "checkpoint_s": 0.08, "restart_s": 0.15, "queue_wait_s": 0.1}
SHARES = ("useful", "checkpoint", "rework", "restart", "queue_wait")


def run_parts(mtbf_s: float, count: int) -> dict[str, float]:
    """Play ``count`` parts of a job event by event: the mean time spent on each thing."""
    rng = np.random.default_rng(53)
    spent = dict.fromkeys((*SHARES, "failures"), 0.0)
    period_s = JOB["interval_s"] + JOB["checkpoint_s"]
    unfinished = count
    while unfinished:
        failed = rng.exponential(mtbf_s, unfinished)
        failed = failed[failed < period_s]
        spent["rework"] += failed.sum()
        unfinished = restarting = failed.size
        while restarting:
            spent["failures"] += restarting
            spent["queue_wait"] += restarting * JOB["queue_wait_s"]
            failed = rng.exponential(mtbf_s, restarting)
            spent["restart"] += np.minimum(failed, JOB["restart_s"]).sum()
            restarting = int((failed < JOB["restart_s"]).sum())
    spent["useful"], spent["checkpoint"] = count * JOB["interval_s"], count * JOB["checkpoint_s"]
    return {name: value / count for name, value in spent.items()}


@pytest.mark.parametrize("mtbf_s", [0.6, 3.0])
def test_a_job_played_event_by_event_spends_its_time_as_foreseen(mtbf_s: float) -> None:
    played = run_parts(mtbf_s, 200_000)
    wall_s = sum(played[name] for name in SHARES)
    foreseen = wall_time_shares(system_mtbf_s=mtbf_s, **JOB)
    for name in SHARES:
        assert math.isclose(getattr(foreseen, f"{name}_share"), played[name] / wall_s, rel_tol=0.02)
    run = expected_run(work_s=100 * JOB["interval_s"], system_mtbf_s=mtbf_s, **JOB)
    assert math.isclose(run.wall_s, 100 * wall_s, rel_tol=0.01)
    assert math.isclose(run.failures, 100 * played["failures"], rel_tol=0.02)


@given(parts, parts, parts, parts)
def test_shares_of_wall_time_sum_to_one(
    interval: float, checkpoint: float, restart: float, wait: float
) -> None:
    found = wall_time_shares(
        interval_s=interval,
        checkpoint_s=checkpoint,
        restart_s=restart,
        system_mtbf_s=1.0,
        queue_wait_s=wait,
    )
    each = [getattr(found, f"{name}_share") for name in SHARES]
    assert math.isclose(sum(each), 1.0)
    assert min(each) >= 0.0


def test_what_costs_nothing_takes_no_share() -> None:
    free = wall_time_shares(checkpoint_s=0.0, restart_s=0.0, system_mtbf_s=HOUR)
    assert free.useful_share == 1.0
    given_interval = wall_time_shares(
        interval_s=HOUR, checkpoint_s=0.0, restart_s=0.0, system_mtbf_s=HOUR
    )
    assert given_interval.checkpoint_share == given_interval.restart_share == 0.0
    assert math.isclose(given_interval.rework_share, 1.0 - 1.0 / math.expm1(1.0))


def test_where_failures_outrun_checkpoints_nothing_is_done_nor_overflows() -> None:
    hopeless = {"checkpoint_s": 1e4, "restart_s": 1e4, "system_mtbf_s": 1.0}
    assert ettr(**hopeless) == 0.0
    assert math.isinf(expected_run(work_s=1.0, **hopeless).wall_s)


def test_a_run_ends_with_a_checkpoint_of_what_is_left() -> None:
    costs = {"interval_s": 10.0, "checkpoint_s": 2.0, "restart_s": 3.0, "system_mtbf_s": 40.0}
    full = expected_run(work_s=20.0, **costs)
    more = expected_run(work_s=24.0, **costs)
    assert (full.checkpoints, more.checkpoints) == (2.0, 3.0)
    expected = math.exp(3 / 40) * 40.0 * (2 * math.expm1(12 / 40) + math.expm1(6 / 40))
    assert math.isclose(more.wall_s, expected)
    short = expected_run(work_s=4.0, **costs)
    assert (short.checkpoints, short.interval_s) == (1.0, 10.0)
    assert math.isclose(full.wall_s + short.wall_s, more.wall_s)


def test_a_run_of_whole_intervals_has_the_ratio_of_a_long_job() -> None:
    costs = {"interval_s": 0.7, "checkpoint_s": 0.02, "restart_s": 0.3, "system_mtbf_s": 2.0}
    # 2.1 / 0.7 is a little over 3 in floats: no fourth part may come of it.
    run = expected_run(work_s=2.1, **costs)
    assert run.checkpoints == 3.0
    assert math.isclose(run.ettr, ettr(**costs))


def test_without_failures_a_run_takes_its_work_and_its_checkpoints() -> None:
    run = expected_run(
        work_s=100.0, interval_s=30.0, checkpoint_s=1.0, restart_s=60.0, system_mtbf_s=1e15
    )
    assert math.isclose(run.wall_s, 104.0)
    assert run.failures < 1e-12


def test_a_run_without_interval_takes_the_optimal_one_and_needs_a_checkpoint_for_it() -> None:
    costs = {"checkpoint_s": 30.0, "restart_s": 300.0, "system_mtbf_s": 6 * HOUR}
    run = expected_run(work_s=30 * DAY, **costs)
    assert run.interval_s == optimal_interval_s(checkpoint_s=30.0, system_mtbf_s=6 * HOUR)
    with pytest.raises(ImpossibleArgumentError, match="checkpoint_s"):
        expected_run(work_s=DAY, checkpoint_s=0.0, restart_s=0.0, system_mtbf_s=HOUR)


@given(st.floats(0.5, 100.0), st.floats(1.01, 10.0), parts, parts)
def test_a_system_that_fails_less_trains_sooner(
    mtbf_s: float, better: float, checkpoint: float, restart: float
) -> None:
    costs = {"checkpoint_s": checkpoint, "restart_s": restart}
    now = expected_run(work_s=50.0, system_mtbf_s=mtbf_s, **costs)
    then = expected_run(
        work_s=50.0, system_mtbf_s=mtbf_s * better, interval_s=now.interval_s, **costs
    )
    assert then.wall_s < now.wall_s


@given(shares, parts, st.floats(0.0, 3.0), st.none() | parts)
def test_the_mtbf_for_an_ettr_gives_that_ettr(
    share: float, restart: float, wait: float, interval: float | None
) -> None:
    costs = {"checkpoint_s": 0.2, "restart_s": restart, "queue_wait_s": wait}
    limit = 1.0 if interval is None else interval / (interval + 0.2)
    target = share * limit
    mtbf_s = mtbf_for_ettr_s(target_ettr=target, interval_s=interval, **costs)
    assert math.isclose(ettr(system_mtbf_s=mtbf_s, interval_s=interval, **costs), target)


@given(shares, parts, st.floats(0.0, 3.0), st.none() | parts)
def test_the_restart_for_an_ettr_gives_that_ettr(
    share: float, checkpoint: float, wait: float, interval: float | None
) -> None:
    costs = {"checkpoint_s": checkpoint, "system_mtbf_s": 1.0, "queue_wait_s": wait}
    costs |= {} if interval is None else {"interval_s": interval}
    target = share * ettr(restart_s=0.0, **costs)
    restart_s = restart_for_ettr_s(target_ettr=target, **costs)
    assert math.isclose(ettr(restart_s=restart_s, **costs), target, rel_tol=1e-9)


def test_targets_out_of_reach_are_refused_by_name() -> None:
    with pytest.raises(ImpossibleArgumentError, match="target_ettr must be at most what"):
        restart_for_ettr_s(target_ettr=0.99, checkpoint_s=60.0, system_mtbf_s=HOUR)
    with pytest.raises(ImpossibleArgumentError, match="target_ettr must be below"):
        mtbf_for_ettr_s(target_ettr=0.95, interval_s=9.0, checkpoint_s=1.0, restart_s=0.0)


@pytest.mark.parametrize("argument", ["interval_s", "checkpoint_s", "restart_s", "system_mtbf_s"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_impossible_times_are_refused_by_name(argument: str, wrong: float) -> None:
    job = {"interval_s": 1.0, "checkpoint_s": 1.0, "restart_s": 1.0, "system_mtbf_s": 1.0}
    with pytest.raises(ImpossibleArgumentError) as refused:
        ettr(**job | {argument: wrong})
    assert refused.value.argument == argument


def test_many_configurations_are_answered_as_one_by_one() -> None:
    mtbf_s, checkpoint_s = np.array([[HOUR], [DAY]]), series(1.0, 30.0, 600.0)
    costs: dict[str, Any] = {"checkpoint_s": checkpoint_s, "restart_s": 300.0}
    all_of = wall_time_shares(system_mtbf_s=mtbf_s, **costs)
    run = expected_run(work_s=DAY, system_mtbf_s=mtbf_s, **costs)
    needed = mtbf_for_ettr_s(target_ettr=0.9, **costs)
    assert all_of.useful_share.shape == run.wall_s.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        one = {"checkpoint_s": float(checkpoint_s[j]), "restart_s": 300.0}
        here = {"system_mtbf_s": float(mtbf_s[i, 0]), **one}
        assert all_of.useful_share[i, j] == ettr(**here)
        assert run.wall_s[i, j] == expected_run(work_s=DAY, **here).wall_s
        assert needed[j] == mtbf_for_ettr_s(target_ettr=0.9, **one)


# Waste to first order


def test_checkpoints_of_175b_on_8192_gpus_waste_2_36_percent_and_rework_as_much() -> None:
    # 24.5 s at 100 GB/s, 6.1 h between failures: the budget of 3 % for checkpoints holds.
    mtbf_s = system_mtbf_s(component_mtbf_s=GPU_MTBF_S, components=8192)
    best_s = young_interval_s(checkpoint_s=24.5, system_mtbf_s=mtbf_s)
    waste = first_order_waste(checkpoint_s=24.5, system_mtbf_s=mtbf_s, interval_s=best_s)
    assert 100 * waste.checkpoint_share == pytest.approx(2.36, abs=0.005)
    assert 100 * waste.rework_share == pytest.approx(2.36, abs=0.005)
    assert waste.total_share == waste.checkpoint_share + waste.rework_share


@given(checkpoint_s=st.floats(0.1, 1e4), mtbf_s=mtbfs, factor=st.floats(0.01, 100.0))
def test_no_interval_wastes_less_to_first_order_than_youngs(
    checkpoint_s: float, mtbf_s: float, factor: float
) -> None:
    costs = {"checkpoint_s": checkpoint_s, "system_mtbf_s": mtbf_s}
    best_s = young_interval_s(**costs)
    best, other = (
        first_order_waste(interval_s=each, **costs).total_share
        for each in (best_s, best_s * factor)
    )
    assert best <= other * (1.0 + 1e-12)


def test_first_order_waste_nears_the_exact_overhead_where_failures_are_rare() -> None:
    costs = {"checkpoint_s": 10.0, "system_mtbf_s": 1e6, "interval_s": 3600.0}
    exact = wall_time_shares(restart_s=0.0, **costs)
    lost = exact.checkpoint_share + exact.rework_share
    assert first_order_waste(**costs).total_share == pytest.approx(lost, rel=0.01)


# What a spare is worth


def test_without_spares_the_system_is_short_whenever_one_is_in_repair() -> None:
    # A failure a day, a repair of two days: two are in repair on average.
    found = spare_worth(system_mtbf_s=DAY, repair_s=2 * DAY, spares=0)
    assert found.in_repair == 2.0
    assert found.short_share == pytest.approx(1.0 - math.exp(-2.0))
    assert found.gained_share == pytest.approx(2.0 * math.exp(-2.0))


@given(mtbfs, st.floats(1.0, 1e7), st.integers(0, 50))
def test_each_spare_gains_what_the_next_shortage_lacks(
    mtbf_s: float, repair_s: float, spares: int
) -> None:
    case = {"system_mtbf_s": mtbf_s, "repair_s": repair_s}
    found, more = (spare_worth(spares=each, **case) for each in (spares, spares + 1))
    assert found.short_share - found.gained_share == pytest.approx(more.short_share, abs=1e-12)
    assert found.gained_share >= 0.0


def test_a_simulated_repair_shop_is_short_as_often_as_the_law_says() -> None:
    rng = np.random.default_rng(5)
    failed = np.cumsum(rng.exponential(DAY, 200_000))
    # Repairs of one day or of three: only their mean counts.
    back = failed + rng.choice([DAY, 3 * DAY], failed.size)
    moments = rng.uniform(10 * DAY, failed[-1] - 10 * DAY, 20_000)
    in_repair = np.searchsorted(failed, moments) - np.searchsorted(np.sort(back), moments)
    found = spare_worth(system_mtbf_s=DAY, repair_s=2 * DAY, spares=3)
    assert (in_repair > 3).mean() == pytest.approx(found.short_share, abs=0.01)
