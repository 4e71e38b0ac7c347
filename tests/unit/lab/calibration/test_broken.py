"""A twin that is broken on purpose is found out: bars are not so wide that anything passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.calibration import caps, cluster, heat, node_power, single, sources, swings
from lab.calibration.result import Comparison
from lab.hardware import H200, IMMERSED_H100
from lab.training.measured import SHAPES
from tests.data_sets import data_set

SMALL = "8node_resnet"


def over(found: Iterable[Comparison]) -> str:
    """Return what is over its bar or more than it was, in one text."""
    return "\n".join(str(each) for each in found if not (each.holds and each.is_as_good_as_it_was))


def data() -> Path:
    return data_set(sources.NODE_POWER).parent


def test_heat_that_takes_half_a_minute_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(H200, fast_resistance_c_per_w=0.0, capacitance_j_per_c=700.0)
    monkeypatch.setattr(heat, "H200", slow)
    found = over(heat.compare(data_set(sources.FAST_POWER).parent))
    assert "core, over idle 1 s after the begin" in found
    assert "long load, idle and duty cycles" in found


def test_hosts_that_draw_three_hundred_watts_more_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hungry = replace(IMMERSED_H100, idle_w=IMMERSED_H100.idle_w + 300.0, rated_w=2100.0)
    monkeypatch.setattr(node_power, "IMMERSED_H100", hungry)
    real_w = np.concatenate([run.power_w for run in sources.node_power(data(), SMALL)[1:]])
    twin = node_power.simulate(SMALL, SHAPES[SMALL], 150.0, seed=1)
    found = over(node_power.compare_sample(SMALL, real_w, twin.power_w.ravel()))
    assert "mean" in found
    assert "50 % quantile" in found
    assert "Wasserstein" in found


@pytest.mark.slow
def test_a_job_that_never_pauses_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = replace(SHAPES[node_power.LARGEST], comm_share=0.0, eval_every_s=160.0, eval_s=30.0)
    read = node_power.simulate(node_power.LARGEST, steady, 800.0, seed=1)
    monkeypatch.setattr(swings, "measured_run", lambda *_: read)
    found = over([*swings.compare_swings(data()), *swings.compare_dips(data())])
    assert "changes of a node by more than 500 W" in found
    assert "standard deviation of the change of all nodes" in found
    assert "period" in found
    assert "length" in found


def test_power_that_falls_with_the_square_of_speed_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caps, "POWER_EXPONENT", 2.0)
    found = over(caps.compare(data_set(sources.POWER_LIMITS).parent))
    assert "power-limits/v100: speed under limits of half of the highest and more" in found


def test_a_warmer_cluster_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SEREN", replace(cluster.SEREN, supply_c=26.0))
    found = over(cluster.compare(data_set(sources.FLEET).parent))
    assert "cluster/gpu_temp: Wasserstein distance" in found


def test_a_gpu_that_idles_higher_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "H200", replace(H200, idle_w=95.0))
    found = over(single.compare(data_set(sources.CAPTURES).parent))
    assert "H200-SXM5-141GB, idle" in found
    assert "idle server of 8 H200s" in found
