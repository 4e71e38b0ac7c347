"""Readings side by side, and the fits that come of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from physics.thermal import rc_step_c
from policies.headroom.fits import FEWEST_READINGS, MOST_READINGS, fits_of, series_of
from policies.headroom.hosts import Rating, host_curve, host_pairs, ratings_of
from policies.headroom.live import _rows_of
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, headroom_of


def rows_of(gpu: int, count: int, *, resistance: float = 0.06, seed: int = 1) -> dict[str, Any]:
    """Return readings each 10 s of a part whose power steps each minute."""
    rng = np.random.default_rng(seed)
    power_w = np.repeat(rng.uniform(100, 700, count // 6 + 1), 6)[:count]
    temp_c = np.empty(count)
    temp_c[0] = 40.0
    for i in range(1, count):
        temp_c[i] = rc_step_c(
            temp_c=temp_c[i - 1], power_w=power_w[i - 1], ambient_c=25.0,
            resistance_c_per_w=resistance, capacitance_j_per_c=500.0, dt_s=10.0,
        )  # fmt: skip
    return {
        "gpu_id": np.full(count, gpu, dtype=np.int32),
        "ts": (np.arange(count) * 10_000_000).astype(np.int64),
        "power_w": power_w.astype(np.float32),
        "temp_c": (temp_c + rng.normal(0, 0.3, count)).astype(np.float32),
    }


def together(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_gpus_with_readings_of_other_lengths_are_fitted_side_by_side() -> None:
    rows = together(
        rows_of(3, 360, resistance=0.05), rows_of(8, 200, resistance=0.09), rows_of(9, 20)
    )
    found = fits_of(series_of(rows))
    assert found.keys() == {3, 8}
    assert found[3]["resistance_c_per_w"] == pytest.approx(0.05, rel=0.03)
    assert found[8]["resistance_c_per_w"] == pytest.approx(0.09, rel=0.03)
    assert found[8]["ambient_c"] == pytest.approx(25.0, abs=1.5)
    assert 0.8 < found[3]["trust"] <= 1.0


def test_missing_readings_have_no_say() -> None:
    rows = rows_of(1, 360)
    whole = fits_of(series_of(rows))[1]
    rows["temp_c"][50:80] = np.nan
    rows["power_w"][200:205] = np.nan
    holes = fits_of(series_of(rows))[1]
    assert holes["resistance_c_per_w"] == pytest.approx(whole["resistance_c_per_w"], rel=0.03)


def test_a_gpu_whose_power_never_moves_has_no_fit() -> None:
    rows = rows_of(1, 100)
    rows["power_w"][:] = 400.0
    assert fits_of(series_of(rows)) == {}


def test_no_readings_are_no_fits() -> None:
    rows = {name: values[:0] for name, values in rows_of(1, 10).items()}
    assert fits_of(series_of(rows)) == {}
    assert len(series_of(rows_of(1, FEWEST_READINGS - 1)).gpu_ids) == 0


def test_only_the_newest_readings_count() -> None:
    series = series_of(rows_of(1, MOST_READINGS + 100))
    assert series.time_s.shape == (1, MOST_READINGS)
    assert series.time_s[0, 0] == 1000.0


def test_hosts_are_seen_where_all_gpus_and_the_node_read() -> None:
    fleet = make_arrays(racks=1, nodes=3, gpus=2, rack_meters=False)
    ts = np.array([NOW, NOW, NOW, NOW - 99, NOW, NOW])
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 300.0, "ts": ts},
        host={"power_w": np.array([900.0, 900.0, np.nan])},
    )  # fmt: skip
    pairs = host_pairs(headroom_of(fleet, frame))
    assert list(pairs) == [2]  # the id of the node model
    assert pairs[2].tolist() == [[600.0, 1500.0]]


def test_hosts_at_rest_say_nothing_of_hosts_at_work() -> None:
    rating = Rating(gpus_w=5_600.0, host_range_w=3_200.0)
    gpus_w = np.linspace(500.0, 600.0, 100)
    at_rest = np.stack([gpus_w, 1_400.0 + 1.009 * gpus_w], axis=1)
    curve = host_curve(at_rest, rating)
    assert curve is not None
    assert curve.share == pytest.approx(0.5 * 3_200.0 / 5_600.0)
    assert curve.idle_w + curve.share * 550.0 == pytest.approx(1_400.0 + 0.009 * 550.0)

    gpus_w = np.linspace(2_900.0, 5_000.0, 100)
    at_work = np.stack([gpus_w, 1_350.0 + 1.23 * gpus_w], axis=1)
    curve = host_curve(np.concatenate([at_rest, at_work]), rating)
    assert curve is not None
    assert 0.2 < curve.share < 0.3


def test_many_nodes_at_rest_do_not_hide_what_those_at_work_draw() -> None:
    rating = Rating(gpus_w=5_600.0, host_range_w=3_200.0)
    rest_w = np.linspace(500.0, 1_400.0, 300)
    at_rest = np.stack([rest_w, 1_360.0 + 1.2 * rest_w], axis=1)
    gpus_w = np.linspace(2_900.0, 5_000.0, 60)
    more_w = np.resize([0.0, 100.0, 200.0], 60)
    at_work = np.stack([gpus_w, 1_360.0 + 1.22 * gpus_w + more_w], axis=1)

    curve = host_curve(np.concatenate([at_rest, at_work]), rating)

    assert curve is not None
    told_w = curve.idle_w + (1.0 + curve.share) * gpus_w
    assert 0.85 <= (at_work[:, 1] <= told_w + 1e-6).mean() < 0.95


def test_a_node_is_rated_for_what_is_written_on_its_parts() -> None:
    fleet = make_arrays(racks=1, nodes=2, gpus=8)
    range_w = float(fleet.nodes.host_rated_w[0] - fleet.nodes.host_idle_w[0])
    assert ratings_of(fleet) == {2: Rating(8 * 700.0, range_w)}


def test_rows_are_found_by_ids_in_any_order() -> None:
    rows, known = _rows_of(np.array([9, 4, 7]), np.array([7, 5, 9, 100]))
    assert rows.tolist() == [2, 0]
    assert known.tolist() == [True, False, True, False]
    assert len(_rows_of(np.array([], dtype=np.int64), np.array([3]))[0]) == 0
