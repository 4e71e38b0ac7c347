from __future__ import annotations

import pynvml
import pytest

from headroom.agent.devices import ColumnBuffer
from headroom.agent.nvml import NvmlSource
from headroom.contracts import GpuColumns
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.fake_nvml import FakeNvml


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(nvml: FakeNvml, clock: Clock) -> NvmlSource:
    return NvmlSource(nvml, monotonic=clock)


def test_every_gpu_gives_one_row_in_the_units_of_the_contract(source: NvmlSource) -> None:
    first, second = source.read()

    assert (first["gpu"], second["gpu"]) == (0, 1)
    assert {k: v for k, v in first.items() if v is not None} == {
        "gpu": 0,
        "power_w": 350.5,
        "power_limit_w": 700,
        "energy_j": 123.456,
        "temp_c": 55,
        "temp_limit_c": 87,
        "sm_mhz": 1980,
        "mem_mhz": 2619,
        "util": 99,
        "mem_used": 1024,
        "fan": 40,
        "throttle": 4,
        "ecc": 3,
        "temp_mem_c": 60,
        "throttle_sw_power_cap_ns": 1000,
        "throttle_sync_boost_ns": 0,
        "throttle_sw_thermal_ns": 20,
        "throttle_hw_thermal_ns": 30,
        "throttle_hw_power_brake_ns": 40,
    }


def test_rows_fit_the_contract(source: NvmlSource) -> None:
    buffer = ColumnBuffer(GpuColumns)
    for row in source.read():
        buffer.append(1.0, row)
    block = buffer.take()
    assert block is not None
    assert (len(block), buffer.rejected) == (2, 0)


def test_counters_become_rates(source: NvmlSource, nvml: FakeNvml, clock: Clock) -> None:
    list(source.read())
    clock.now += 2
    nvml.gpus[0].fields[pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX] += 100
    nvml.gpus[0].fields[pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES] += 100
    row = next(iter(source.read()))

    assert row["nvlink_tx"] == 50 * 1024  # NVML counts KiB
    assert row["nvlink_rx"] == 0
    assert row["pcie_rx"] == 50


def test_a_counter_that_was_reset_gives_no_rate(
    source: NvmlSource, nvml: FakeNvml, clock: Clock
) -> None:
    list(source.read())
    clock.now += 1
    nvml.gpus[0].fields[pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES] = 0
    assert next(iter(source.read()))["pcie_tx"] is None


def test_what_is_not_supported_is_null_and_asked_for_once(
    source: NvmlSource, nvml: FakeNvml
) -> None:
    memory_temp = pynvml.NVML_FI_DEV_MEMORY_TEMP
    nvml.gpus[0].failures = {
        "fan": pynvml.NVML_ERROR_NOT_SUPPORTED,
        memory_temp: pynvml.NVML_ERROR_NOT_SUPPORTED,
    }
    for _ in range(3):
        row = next(iter(source.read()))
        assert row["fan"] is None
        assert row.get("temp_mem_c") is None
        assert row["power_w"] == 350.5

    assert nvml.calls["fan"] == 1 + 3  # once for the first GPU, each time for the second
    assert source.errors == 0


def test_a_driver_that_has_no_field_values_at_all(source: NvmlSource, nvml: FakeNvml) -> None:
    nvml.gpus[0].failures = {"fields": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    nvml.gpus[1].failures = {"fields": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    for _ in range(3):
        assert next(iter(source.read()))["power_w"] == 350.5
    assert nvml.calls["fields"] == 2


def test_a_passing_failure_is_null_once_and_counted(source: NvmlSource, nvml: FakeNvml) -> None:
    nvml.gpus[0].failures = {"power": pynvml.NVML_ERROR_UNKNOWN}
    assert next(iter(source.read()))["power_w"] is None
    nvml.gpus[0].failures = {}
    assert next(iter(source.read()))["power_w"] == 350.5
    assert source.errors == 1
    assert "gpu0 power_w" in source.last_error


def test_a_lost_gpu_is_skipped_and_counted_and_the_other_goes_on(
    source: NvmlSource, nvml: FakeNvml, clock: Clock
) -> None:
    list(source.read())
    nvml.gpus[0].failures = {"power": pynvml.NVML_ERROR_GPU_IS_LOST}
    nvml.handles_fail_with = pynvml.NVML_ERROR_GPU_IS_LOST

    assert [row["gpu"] for row in source.read()] == [1]
    assert (source.lost, source.errors) == ([0], 1)

    handles = nvml.calls["handle"]
    for _ in range(5):  # it is left alone for a while
        clock.now += 1
        list(source.read())
    assert nvml.calls["handle"] == handles

    nvml.gpus[0].failures, nvml.handles_fail_with = {}, None
    clock.now += 60
    assert [row["gpu"] for row in source.read()] == [0, 1]
    assert source.errors == 1


def test_a_reloaded_driver_is_taken_up_again(
    source: NvmlSource, nvml: FakeNvml, clock: Clock
) -> None:
    list(source.read())
    for gpu in nvml.gpus:
        gpu.failures = {"power": pynvml.NVML_ERROR_UNINITIALIZED}
    nvml.handles_fail_with = pynvml.NVML_ERROR_UNINITIALIZED
    assert list(source.read()) == []
    clock.now += 60
    assert list(source.read()) == []
    assert nvml.calls["nvmlInit"] > 1

    nvml.handles_fail_with = None
    for gpu in nvml.gpus:
        gpu.failures = {}
    clock.now += 60
    assert len(list(source.read())) == 2


def test_an_xid_is_told_once(source: NvmlSource, nvml: FakeNvml) -> None:
    list(source.read())
    nvml.events = [(1, 63)]
    rows = list(source.read())
    assert [row.get("xid") for row in rows] == [None, 63]
    assert [row.get("xid") for row in source.read()] == [None, None]


def test_the_xid_of_a_lost_gpu_is_told_although_it_has_no_readings(
    source: NvmlSource, nvml: FakeNvml
) -> None:
    list(source.read())
    nvml.gpus[0].failures = {"power": pynvml.NVML_ERROR_GPU_IS_LOST}
    nvml.events = [(0, 79)]
    rows = {row["gpu"]: row for row in source.read()}
    assert rows[0] == {"gpu": 0, "xid": 79}


def test_a_fan_over_its_rating_is_at_its_most(source: NvmlSource, nvml: FakeNvml) -> None:
    nvml.gpus[0].fan = 104
    assert next(iter(source.read()))["fan"] == 100


def test_closing_lets_go_of_the_driver(source: NvmlSource, nvml: FakeNvml) -> None:
    source.close()
    assert nvml.calls["nvmlShutdown"] == 1
