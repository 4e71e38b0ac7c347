"""Forecasts held against "as now": what is judged, at which pace, and which bars there are."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from lab.commands.forecasts import MOST_RATIO, NOTHING, bars_missed, forecasts, table
from lab.forecasts.judging import ClaimsJudged, Judged, judged
from lab.forecasts.series import Series, fast_gpus, queues
from tests.data_sets import data_set


def noise(seconds: int = 60_000) -> Series:
    rng = np.random.default_rng(3)
    values = 1_000.0 + rng.normal(0.0, 50.0, (seconds // 20, 2))
    return Series(
        "noise", "W", 20.0 * np.arange(len(values), dtype=np.float64), values, chosen_on=False
    )


def test_a_series_is_judged_at_each_horizon_beside_as_now() -> None:
    found = [each for each in judged(noise()) if isinstance(each, Judged)]
    assert [each.horizon_s for each in found] == [60.0, 300.0, 900.0, 1800.0, 3600.0]
    assert all(each.method < 0.85 * each.as_now for each in found[:4])
    assert all(each.ratio < 0.95 and each.shown_share > 0.2 for each in found[:3])
    # Before it was shown, "as now" was said.
    assert all(each.method <= each.said <= each.as_now for each in found[:3])
    assert not bars_missed(found)


def test_short_series_are_judged_at_a_faster_pace() -> None:
    short = noise()
    fast = replace(short, t_s=short.t_s[:1000] / 20.0, values=short.values[:1000])
    assert {each.pace_s for each in judged(fast)} == {1.0}
    assert not list(judged(replace(short, t_s=short.t_s[:20], values=short.values[:20])))


def test_what_was_not_read_for_long_is_not_known() -> None:
    series = Series("gap", "W", np.array([0.0, 2.0, 4.0, 90.0]), np.ones((4, 1)), chosen_on=False)
    assert np.isnan(series.at(np.array([3.0, 23.0, 50.0, 90.0]))[:, 0]).tolist() == [
        False, False, True, False,
    ]  # fmt: skip


def test_a_forecast_that_is_worse_than_as_now_misses_its_bar() -> None:
    found = [each for each in judged(noise()) if isinstance(each, Judged)]
    worse = replace(found[0], said=1.01 * MOST_RATIO * found[0].as_now, coverage=0.5)
    assert len(bars_missed([worse, *found[1:]])) == 2


def test_the_table_has_series_horizons_and_claims() -> None:
    all_of_it = list(judged(noise()))
    found = [each for each in all_of_it if isinstance(each, Judged)]
    claims = [each for each in all_of_it if isinstance(each, ClaimsJudged)]
    lines = table(found, claims)
    assert sum(line.startswith("noise") for line in lines) == 6
    assert "came true" in lines[-1]


def test_a_missing_data_set_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    kept = tmp_path / "kept.json"
    done = CliRunner().invoke(
        forecasts, ["--data", str(tmp_path), "--chosen-on", "--json", str(kept)]
    )
    assert done.exit_code == NOTHING
    assert "not judged" in done.output
    assert set(json.loads(kept.read_text())["not_judged"]) >= {"philly-jobs, alibaba-openb-jobs"}


@pytest.mark.parametrize("read", [fast_gpus, queues])
def test_whole_kinds_are_unseen(read) -> None:  # type: ignore[no-untyped-def]
    name = "gpu-power-fast" if read is fast_gpus else "helios-earth-vc-queue"
    found = {each.name: each.chosen_on for each in read(data_set(name).parent)}
    assert 0 < sum(found.values()) < len(found)
