"""The fit of power curves, on runs made by the law and on measured ones."""

import csv

import numpy as np
import pytest
from numpy.typing import NDArray

from physics.errors import ImpossibleArgumentError, ShapeMismatchError, UnfittableError
from physics.power import (
    fit_power_curve,
    fit_power_curves,
    gpu_power_w,
    normalized_throughput,
    throughput_under_cap,
)
from tests.data_sets import data_set

Array = NDArray[np.float64]
GPUS = ("v100", "a40")


def series(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def zeus(gpu: str) -> dict[str, Array]:
    """Return the runs of one GPU: relative throughput, power, cap, and workload by number."""
    with (data_set("zeus-power-limits") / f"summary_power_{gpu}.csv").open() as file:
        rows = list(csv.DictReader(file))
    keys = [(r["dataset"], r["network"], r["batch_size"], r["optimizer"]) for r in rows]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    workload = np.array([numbers[key] for key in keys], dtype=np.float64)
    time_s = np.array([float(r["time_per_epoch"]) for r in rows])
    return {
        "relative_throughput": normalized_throughput(time_s=time_s, workload=workload),
        "power_w": np.array([float(r["average_power"]) for r in rows]),
        "cap_w": np.array([float(r["power_limit"]) for r in rows]),
        "workload": workload,
    }


def runs_of(gpu: str, *, held: bool = False) -> dict[str, Array]:
    """Return what fit_power_curves wants; with ``held``, of workloads that three caps hold back."""
    runs = zeus(gpu)
    near_cap = runs["power_w"] > 0.9 * runs.pop("cap_w")
    workload = runs["workload"].astype(int)
    chosen = (
        np.bincount(workload, near_cap)[workload] >= 3 if held else np.full(len(workload), True)
    )
    return {name: values[chosen] for name, values in runs.items()}


def made(seed: int, *, noise_w: float, exponent: float = 5.0) -> dict[str, Array]:
    """Return runs of ten workloads under nine caps, drawn by the law itself."""
    rng = np.random.default_rng(seed)
    workload = np.repeat(np.arange(10.0), 9)
    static_w = rng.uniform(60.0, 120.0, 10)[workload.astype(int)]
    dynamic_w = rng.uniform(80.0, 200.0, 10)[workload.astype(int)]
    part = {"static_w": static_w, "dynamic_w": dynamic_w, "exponent": exponent}
    throughput = throughput_under_cap(cap_w=np.tile(np.arange(140.0, 320.0, 20.0), 10), **part)
    power_w = gpu_power_w(relative_throughput=throughput, **part)
    power_w = power_w + rng.normal(0.0, noise_w, len(power_w))
    return {"relative_throughput": throughput, "power_w": power_w, "workload": workload}


@pytest.mark.parametrize("gpu", GPUS)
def test_one_exponent_a_gpu_fits_every_measured_workload_within_4_percent(gpu: str) -> None:
    curves = fit_power_curves(**runs_of(gpu))
    assert curves.rmse_share_of_max[0] < 0.04
    assert 5.5 < curves.exponent[0] < 6.5
    assert curves.exponent_error[0] < 0.3


@pytest.mark.parametrize("gpu", GPUS)
def test_workloads_that_caps_hold_back_have_an_exponent_of_5_to_6(gpu: str) -> None:
    curves = fit_power_curves(**runs_of(gpu, held=True))
    assert 5.0 < curves.exponent[0] < 6.0
    assert curves.rmse_share_of_max[0] < 0.042


@pytest.mark.parametrize("gpu", GPUS)
def test_an_exponent_for_each_workload_fits_little_better_than_one_for_all(gpu: str) -> None:
    runs = runs_of(gpu)
    together = fit_power_curves(**runs)
    apart = fit_power_curves(gpu=runs["workload"], **runs)
    rows = np.bincount(runs["workload"].astype(int))
    apart_w = np.sqrt((rows * apart.rmse_w**2).sum() / rows.sum())
    assert 0.85 * together.rmse_w[0] < apart_w < together.rmse_w[0]


@pytest.mark.parametrize("gpu", GPUS)
def test_one_curve_for_all_workloads_fits_none(gpu: str) -> None:
    runs = runs_of(gpu)
    del runs["workload"]
    assert fit_power_curve(**runs).rmse_share_of_max > 0.15


@pytest.mark.parametrize("exponent", [2.0, 3.3, 5.0, 7.5])
def test_a_fit_without_noise_gives_back_the_curve(exponent: float) -> None:
    throughput = np.linspace(0.5, 1.0, 7)
    part = {"static_w": 90.0, "dynamic_w": 160.0, "exponent": exponent}
    power_w = gpu_power_w(relative_throughput=throughput, **part)
    curve = fit_power_curve(relative_throughput=throughput, power_w=power_w)
    assert curve.exponent == pytest.approx(exponent, abs=1e-4)
    assert curve.static_w == pytest.approx(90.0, abs=0.01)
    assert curve.dynamic_w == pytest.approx(160.0, abs=0.01)
    assert curve.rmse_w < 1e-3


def test_runs_whose_cap_does_not_bind_do_no_harm() -> None:
    runs = made(3, noise_w=1.0)
    saturated = fit_power_curves(**runs)
    assert np.count_nonzero(runs["relative_throughput"] == 1.0) > 20
    assert saturated.exponent[0] == pytest.approx(5.0, abs=4 * saturated.exponent_error[0])


def test_the_error_of_an_exponent_is_that_of_many_fits() -> None:
    fits = [fit_power_curves(**made(seed, noise_w=3.0)) for seed in range(60)]
    off = [(fit.exponent[0] - 5.0) / fit.exponent_error[0] for fit in fits]
    assert np.std(off) == pytest.approx(1.0, abs=0.3)


def test_many_gpus_at_once_are_the_same_as_one_by_one() -> None:
    parts = [made(seed, noise_w=2.0, exponent=4.0 + seed) for seed in range(3)]
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    together["gpu"] = np.repeat([4.0, 7.0, 9.0], len(parts[0]["workload"]))
    together["workload"] += 100 * together["gpu"]
    curves = fit_power_curves(**together)
    assert np.unique(curves.gpu).tolist() == [4, 7, 9]
    alone = [fit_power_curves(**part) for part in parts]
    for name in ("static_w", "dynamic_w", "exponent", "exponent_error", "rmse_share_of_max"):
        expected = np.concatenate([getattr(fit, name) for fit in alone])
        assert getattr(curves, name) == pytest.approx(expected, rel=1e-6)


def test_the_order_of_runs_means_nothing() -> None:
    runs = made(5, noise_w=2.0)
    order = np.random.default_rng(5).permutation(len(runs["power_w"]))
    shuffled = fit_power_curves(**{name: values[order] for name, values in runs.items()})
    curves = fit_power_curves(**runs)
    assert shuffled.exponent == pytest.approx(curves.exponent)
    assert shuffled.static_w == pytest.approx(curves.static_w)


def test_a_power_that_only_falls_has_no_dynamic_part() -> None:
    curve = fit_power_curve(
        relative_throughput=series(0.8, 0.9, 1.0), power_w=series(50.0, 49.0, 48.0)
    )
    assert (curve.static_w, curve.dynamic_w) == (49.0, 0.0)
    assert curve.exponent_error == np.inf


def test_the_static_part_is_never_below_zero() -> None:
    throughput = np.linspace(0.6, 1.0, 5)
    curve = fit_power_curve(relative_throughput=throughput, power_w=300.0 * throughput**12)
    assert curve.static_w == 0.0
    assert curve.exponent == pytest.approx(8.0)


def test_throughput_is_that_of_each_workloads_fastest_run() -> None:
    found = normalized_throughput(time_s=series(10.0, 8.0, 3.0, 4.0), workload=series(5, 5, 2, 2))
    assert found.tolist() == [0.8, 1.0, 1.0, 0.75]


def test_a_workload_at_two_speeds_determines_no_exponent() -> None:
    with pytest.raises(UnfittableError, match="three different throughputs"):
        fit_power_curve(
            relative_throughput=series(0.9, 0.9, 1.0, 1.0), power_w=series(90.0, 91.0, 99.0, 98.0)
        )


def test_of_several_gpus_the_one_that_cannot_be_fitted_is_named() -> None:
    with pytest.raises(UnfittableError, match="of GPU 7 ran"):
        fit_power_curves(
            relative_throughput=series(0.8, 0.9, 1.0, 0.9, 1.0),
            power_w=series(60.0, 70.0, 90.0, 50.0, 55.0),
            workload=series(0, 0, 0, 1, 1),
            gpu=series(3, 3, 3, 7, 7),
        )


def test_a_workload_on_two_gpus_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="gpu must be the same"):
        fit_power_curves(
            relative_throughput=series(0.8, 0.9, 1.0),
            power_w=series(60.0, 70.0, 90.0),
            workload=series(0, 0, 0),
            gpu=series(0, 0, 1),
        )


@pytest.mark.parametrize("throughput", [0.0, 1.2, float("nan")])
def test_a_throughput_that_is_no_share_is_refused(throughput: float) -> None:
    with pytest.raises(ImpossibleArgumentError, match="relative_throughput"):
        fit_power_curve(
            relative_throughput=series(throughput, 0.9, 1.0), power_w=series(60.0, 70.0, 90.0)
        )


def test_series_of_unlike_length_are_refused() -> None:
    with pytest.raises(ShapeMismatchError):
        fit_power_curve(relative_throughput=series(0.8, 0.9, 1.0), power_w=series(60.0, 70.0))
