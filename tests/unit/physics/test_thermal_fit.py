"""The fit of R and C, on series that the law itself made and noise was put on."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from physics.errors import ImpossibleArgumentError, ShapeMismatchError, UnfittableError
from physics.thermal import fit_rc, fit_rc_many, rc_step_c

Array = NDArray[np.float64]

#: R, C and ambient of parts with time constants of 18 to 75 s.
PARTS = [(0.052, 480.0, 25.0), (0.08, 900.0, 30.0), (0.12, 150.0, 20.0), (0.03, 2500.0, 35.0)]
#: The last is slow, and power warms it little: it takes four hours to know it as well.
HOURS = [1, 1, 1, 4]


def made(
    seed: int,
    part: tuple[float, float, float] = PARTS[0],
    *,
    samples: int = 3600,
    interval_s: float = 1.0,
    steps: int = 60,
    noise_c: float = 1.0,
    ambient_swing_c: float = 0.0,
) -> dict[str, Any]:
    """Return a part under jobs that come and go, sampled at uneven distances: an hour, or more."""
    rng = np.random.default_rng(seed)
    resistance, capacitance, ambient_c = part
    apart_s = interval_s * rng.uniform(0.3, 1.7, samples - 1)
    time_s = np.append(0.0, np.cumsum(apart_s))
    edges_s = np.sort(rng.uniform(0.0, time_s[-1], steps))
    power_w = rng.uniform(70.0, 700.0, steps + 1)[np.searchsorted(edges_s, time_s)]
    ambients_c = ambient_c + ambient_swing_c * np.sin(time_s / 600.0)
    temp_c = np.empty(samples)
    temp_c[0] = ambient_c + 15.0
    decay = np.exp(-apart_s / (resistance * capacitance))
    settled_c = ambients_c + power_w * resistance
    for k in range(samples - 1):
        temp_c[k + 1] = settled_c[k] + (temp_c[k] - settled_c[k]) * decay[k]
    noise_c_of = rng.normal(0.0, noise_c, samples)
    return {
        "time_s": time_s,
        "temp_c": temp_c + noise_c_of,
        "power_w": power_w,
        "ambient_c": ambients_c,
    }


def without_ambient(series: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in series.items() if name != "ambient_c"}


def test_the_series_are_those_of_the_law() -> None:
    series = made(1, noise_c=0.0, samples=50)
    after_c = rc_step_c(
        temp_c=series["temp_c"][:-1],
        power_w=series["power_w"][:-1],
        ambient_c=25.0,
        resistance_c_per_w=0.052,
        capacitance_j_per_c=480.0,
        dt_s=np.diff(series["time_s"]),
    )
    assert after_c == pytest.approx(series["temp_c"][1:])


@pytest.mark.parametrize(("part", "hours"), list(zip(PARTS, HOURS, strict=True)))
@pytest.mark.parametrize("seed", range(5))
def test_under_1_degree_of_noise_r_and_c_are_found_within_2_percent(
    seed: int, part: tuple[float, float, float], hours: int
) -> None:
    series = made(seed, part, samples=3600 * hours, steps=60 * hours)
    found = fit_rc(**without_ambient(series))
    assert found.resistance_c_per_w == pytest.approx(part[0], rel=0.02)
    assert found.capacitance_j_per_c == pytest.approx(part[1], rel=0.02)
    assert found.ambient_c == pytest.approx(part[2], abs=0.5)
    assert found.rmse_c == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_an_ambient_that_wanders_is_no_matter_where_it_is_measured(seed: int) -> None:
    series = made(seed, ambient_swing_c=4.0)
    measured = fit_rc(**series)
    assert measured.resistance_c_per_w == pytest.approx(0.052, rel=0.02)
    assert measured.capacitance_j_per_c == pytest.approx(480.0, rel=0.02)
    assert measured.ambient_c == pytest.approx(series["ambient_c"].mean())
    assert measured.ambient_error_c == 0.0
    assert fit_rc(**without_ambient(series)).rmse_c > 1.5


def test_a_fit_without_noise_gives_back_the_part() -> None:
    found = fit_rc(**without_ambient(made(2, noise_c=0.0, samples=500, interval_s=5.0)))
    assert found.resistance_c_per_w == pytest.approx(0.052, rel=1e-4)
    assert found.capacitance_j_per_c == pytest.approx(480.0, rel=1e-4)
    assert found.time_constant_s == pytest.approx(24.96, rel=1e-4)
    assert found.rmse_c < 1e-3


def test_the_errors_are_those_of_many_fits() -> None:
    noise = np.random.default_rng(0).normal(0.0, 1.0, (200, 400))
    series = made(3, noise_c=0.0, samples=400, interval_s=4.0, steps=25)
    found = fit_rc_many(
        time_s=series["time_s"], temp_c=series["temp_c"] + noise, power_w=series["power_w"]
    )
    for value, error, true in (
        (found.resistance_c_per_w, found.resistance_error_c_per_w, 0.052),
        (found.capacitance_j_per_c, found.capacitance_error_j_per_c, 480.0),
        (found.time_constant_s, found.time_constant_error_s, 24.96),
        (found.ambient_c, found.ambient_error_c, 25.0),
    ):
        assert np.std((value - true) / error) == pytest.approx(1.0, abs=0.2)
        assert abs(np.mean((value - true) / error)) < 0.3


def test_many_parts_at_once_are_the_same_as_one_by_one() -> None:
    series = [made(seed, part, samples=300) for seed, part in enumerate(PARTS)]
    names = ("time_s", "temp_c", "power_w")
    together = fit_rc_many(**{name: np.stack([each[name] for each in series]) for name in names})
    for i, each in enumerate(series):
        alone = fit_rc(**without_ambient(each))
        for name, value in vars(alone).items():
            assert getattr(together, name)[i] == pytest.approx(value, rel=1e-6)


def test_parts_may_stand_in_any_shape() -> None:
    series = without_ambient(made(4, samples=300))
    grid = np.broadcast_to(series["temp_c"], (2, 3, 300))
    assert fit_rc_many(**series | {"temp_c": grid}).resistance_c_per_w.shape == (2, 3)
    assert isinstance(fit_rc_many(**series).resistance_c_per_w, float)


def test_a_missing_temperature_has_no_say() -> None:
    series = without_ambient(made(5, samples=600))
    weight = np.ones(600)
    weight[100:400:3] = 0.0
    spoiled = np.where(weight > 0.0, series["temp_c"], -200.0)
    first = fit_rc_many(weight=weight, **series)
    second = fit_rc_many(weight=weight, **series | {"temp_c": spoiled})
    assert first.resistance_c_per_w == pytest.approx(second.resistance_c_per_w, rel=1e-6)
    assert first.capacitance_error_j_per_c > fit_rc_many(**series).capacitance_error_j_per_c


def test_a_part_that_cannot_be_fitted_does_not_spoil_the_others() -> None:
    series = made(6, samples=600)
    power_w = np.stack([series["power_w"], np.full(600, 400.0)])
    found = fit_rc_many(time_s=series["time_s"], temp_c=series["temp_c"], power_w=power_w)
    assert np.isnan(found.resistance_c_per_w).tolist() == [False, True]


def test_a_power_that_never_moves_determines_nothing() -> None:
    series = without_ambient(made(7, samples=300)) | {"power_w": np.full(300, 400.0)}
    with pytest.raises(UnfittableError, match="the power never moves"):
        fit_rc(**series)


@pytest.mark.parametrize(
    "changes",
    [
        {"temp_c": np.random.default_rng(1).normal(40.0, 1.0, 300)},
        {"power_w": 400.0 + np.random.default_rng(2).normal(0.0, 0.5, 300)},
    ],
    ids=["temperature is noise", "power hardly moves"],
)
def test_a_series_that_says_too_little_is_refused(changes: dict[str, Array]) -> None:
    series = without_ambient(made(8, samples=300)) | changes
    with pytest.raises(UnfittableError, match="does not determine R and C"):
        fit_rc(**series)


def test_a_part_that_power_cools_is_refused() -> None:
    series = without_ambient(made(9, samples=300))
    with pytest.raises(UnfittableError):
        fit_rc(**series | {"temp_c": 100.0 - series["temp_c"]})


def test_samples_too_far_apart_determine_no_capacitance() -> None:
    with pytest.raises(UnfittableError):
        fit_rc(**without_ambient(made(10, samples=300, interval_s=300.0, steps=299)))


def test_five_readings_are_too_few() -> None:
    with pytest.raises(UnfittableError, match="at least 6 readings"):
        fit_rc(**without_ambient(made(11, samples=5)))


def test_readings_at_one_moment_are_too_few() -> None:
    series = without_ambient(made(11, samples=20)) | {"time_s": np.zeros(20)}
    with pytest.raises(UnfittableError):
        fit_rc(**series)


def test_readings_at_the_same_time_are_allowed() -> None:
    series = without_ambient(made(12))
    doubled = {name: np.repeat(values, 2) for name, values in series.items()}
    found = fit_rc(**doubled)
    assert found.resistance_c_per_w == pytest.approx(fit_rc(**series).resistance_c_per_w, rel=1e-4)


def test_times_that_go_back_are_refused() -> None:
    series = without_ambient(made(13, samples=20))
    with pytest.raises(ImpossibleArgumentError, match="time_s must be in rising order"):
        fit_rc(**series | {"time_s": series["time_s"][::-1]})


def test_series_of_unlike_length_are_refused() -> None:
    series = made(14, samples=20)
    with pytest.raises(ShapeMismatchError):
        fit_rc(**without_ambient(series) | {"power_w": series["power_w"][:-1]})
    with pytest.raises(ImpossibleArgumentError, match="ambient_c must be one number, or one"):
        fit_rc(**series | {"ambient_c": series["ambient_c"][:-1]})


def test_one_reading_is_no_series() -> None:
    with pytest.raises(UnfittableError, match="not a series"):
        fit_rc_many(time_s=0.0, temp_c=40.0, power_w=100.0)
