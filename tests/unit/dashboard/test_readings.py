from __future__ import annotations

from typing import Any

import pytest

from dashboard import causes, readings
from dashboard.readings import GpuNow
from fleet.models import Gpu, HardwareModel
from headroom.contracts import ThrottleCause
from telemetry import frame

NOW = 1_800_000_000.0


def make_gpu(age_s: float | None = 1.0, index: int = 0, **values: Any) -> GpuNow:
    """A GPU read ``age_s`` ago (None: never), rated 700 W, 87 °C, 1980 MHz."""
    record = frame.never_seen("gpu", 1)[0]
    if age_s is not None:
        record["ts"] = NOW - age_s
    for name, value in values.items():
        record[name] = value
    model = HardwareModel(name="H100", rated_w=700, slowdown_c=87, sm_max_mhz=1980)
    return readings.gpu_now(Gpu(pk=1, index=index, model=model), record, NOW, 30.0)


def test_missing_values_are_none_and_never_zero() -> None:
    gpu = make_gpu(power_w=0.0)
    assert gpu.reading["power_w"] == 0
    assert gpu.reading["temp_c"] is None
    assert (gpu.margin_c, gpu.clock_ratio) == (None, None)


def test_limits_are_those_in_force_and_else_the_rated_ones() -> None:
    rated, told = make_gpu(temp_c=80), make_gpu(temp_c=80, temp_limit_c=83, power_limit_w=500)
    assert (rated.slowdown_c, rated.margin_c, rated.limit_w) == (87, 7, 700)
    assert (told.slowdown_c, told.margin_c, told.limit_w) == (83, 3, 500)


@pytest.mark.parametrize(
    ("gpu", "css"),
    [
        (make_gpu(temp_c=37), "m10"),
        (make_gpu(temp_c=62), "m5"),
        (make_gpu(temp_c=90), "over"),
        (make_gpu(temp_c=62, age_s=31), "stale"),
        (make_gpu(age_s=None), "unknown"),
        (make_gpu(), "unknown"),
    ],
)
def test_the_color_says_how_much_margin_is_left_or_that_nobody_knows(gpu: GpuNow, css: str) -> None:
    assert gpu.heat_class == css


def test_causes_are_named_in_order_of_their_bits() -> None:
    gpu = make_gpu(throttle=0x1 | ThrottleCause.HW_THERMAL | ThrottleCause.SW_POWER_CAP)
    assert [cause.token for cause in gpu.causes] == ["sw_power_cap", "hw_thermal"]


CAP, HEAT = ThrottleCause.SW_POWER_CAP, ThrottleCause.HW_THERMAL


@pytest.mark.parametrize(
    ("gpu", "unexpected"),
    [
        (make_gpu(throttle=CAP, power_limit_w=500), False),
        (make_gpu(throttle=CAP, power_limit_w=700), True),
        (make_gpu(throttle=CAP), True),
        (make_gpu(throttle=CAP | HEAT, power_limit_w=500), True),
        (make_gpu(throttle=0x1, power_limit_w=500), False),
        (make_gpu(throttle=HEAT, age_s=31), False),
        (make_gpu(age_s=None), False),
    ],
)
def test_throttling_is_unexpected_but_by_a_lowered_limit_alone(
    gpu: GpuNow, unexpected: bool
) -> None:
    assert gpu.is_unexpected is unexpected


def test_nothing_is_said_of_now_when_the_reading_is_old() -> None:
    assert make_gpu(throttle=4, age_s=31).causes == []


def test_a_node_is_told_by_its_fresh_readings_alone() -> None:
    cool, hot, old = (
        make_gpu(index=0, temp_c=50, power_w=300, sm_mhz=1980),
        make_gpu(index=1, temp_c=70, power_w=500, sm_mhz=990),
        make_gpu(index=2, temp_c=86, power_w=700, sm_mhz=1980, age_s=300),
    )
    assert readings.hottest([cool, hot, old]) == hot
    assert readings.total([cool, hot, old], "power_w") == 800
    assert readings.mean_clock_ratio([cool, hot, old]) == 0.75


def test_nothing_is_known_of_a_node_whose_gpus_are_silent() -> None:
    gpus = [make_gpu(age_s=None), make_gpu(age_s=None)]
    assert readings.hottest(gpus) is None
    assert readings.total(gpus, "power_w") is None
    assert readings.mean_clock_ratio(gpus) is None


@pytest.mark.parametrize("cause", list(ThrottleCause))
def test_every_cause_has_words(cause: ThrottleCause) -> None:
    words = causes.of(cause)
    assert words.label
    assert words.meaning
    assert causes.by_token(words.token) is cause


def test_an_unknown_token_is_no_cause() -> None:
    assert causes.by_token("gremlins") is None
