"""What the agent makes of what NVML says, through the real ``pynvml`` and a stand-in library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.nvml import NvmlSource
from headroom.agent.nvml.gpu import NvmlGpu
from headroom.contracts import GpuColumns
from tests.standin.nvml import StandIn
from tests.unit.headroom.builders import Clock

GIB = 2**30


class Actuator:
    """Takes what there is to actuate, and does nothing."""

    def __init__(self) -> None:
        self.gpus: list[NvmlGpu] = []

    def step(self, gpus: list[NvmlGpu]) -> None:
        self.gpus = gpus

    def stop(self, gpus: list[NvmlGpu]) -> None:
        pass


def first(source: NvmlSource) -> Row:
    return next(iter(source.read()))


def test_every_gpu_gives_one_row_in_the_units_of_the_contract(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(
        power_mw=350_500, energy_mj=123_456, fan=40, throttle=0x20, ecc=3, memory_used=1024,
        sw_power_cap_ns=1000, sync_boost_ns=0, sw_thermal_ns=20, hw_thermal_ns=30,
        hw_power_brake_ns=40,
    )  # fmt: skip
    machine.gpu(1, temperature=77)

    one, two = source.read()

    assert (one["gpu"], two["gpu"]) == (0, 1)
    assert (one["temp_c"], two["temp_c"]) == (45, 77)
    assert {name: value for name, value in one.items() if value is not None} == {
        "gpu": 0,
        "power_w": 350.5,
        "power_limit_w": 700,
        "energy_j": 123.456,
        "temp_c": 45,
        "temp_limit_c": 87,
        "sm_mhz": 1980,
        "mem_mhz": 2619,
        "util": 90,
        "mem_util": 35,
        "mem_used": 1024,
        "fan": 40,
        "throttle": 0x20,
        "ecc": 3,
        "temp_mem_c": 50,
        "throttle_sw_power_cap_ns": 1000,
        "throttle_sync_boost_ns": 0,
        "throttle_sw_thermal_ns": 20,
        "throttle_hw_thermal_ns": 30,
        "throttle_hw_power_brake_ns": 40,
    }


def test_every_field_that_nvml_can_tell_is_read(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(fan=40, mig=1, instances=f"{GIB} {2 * GIB}", ecc=0)
    list(source.read())
    clock.now += 1
    told = {name for name, value in first(source).items() if value is not None}
    # Not told by NVML: a counter of hardware slowdown, memory bandwidth, and the job. In MIG mode:
    # utilization.
    never = {"throttle_hw_slowdown_ns", "mem_bw_util", "job"}
    untold = {"ts", "xid", "util", "mem_util"} | never
    assert told == set(GpuColumns.__struct_fields__) - untold


def test_a_gpu_is_known_by_its_place_on_the_bus(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(1, pci="00000001:AB:0C.0")
    assert source.gpus_by_pci == {}
    list(source.read())
    assert source.gpus_by_pci == {(0, 0x10, 0): 0, (1, 0xAB, 0x0C): 1}
    machine.gpu(1, lost=1)
    list(source.read())
    assert source.gpus_by_pci[1, 0xAB, 0x0C] == 1


def test_rows_fit_the_contract(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(0, mig=1, instances=f"{GIB}")
    buffer = ColumnBuffer(GpuColumns)
    for row in source.read():
        buffer.append(1.0, row)
    block = buffer.take()
    assert block is not None
    assert (len(block), buffer.rejected) == (2, 0)
    assert block.mig_instances == [1, None]


# --- Power and energy -----------------------------------------------------------------------------


def test_power_is_the_mean_since_the_reading_before(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(power_mw=100_000, energy_mj=1_000_000)
    assert first(source)["power_w"] == 100  # nothing to compare with yet
    clock.now += 2
    machine.gpu(power_mw=100_000, energy_mj=2_300_000)
    row = first(source)
    assert (row["power_w"], row["energy_j"]) == (650, 2300)


def test_the_energy_counter_is_read_as_often_as_is_said(
    machine: StandIn, open_source: Callable[..., NvmlSource], clock: Clock
) -> None:
    machine.gpu(power_mw=300_000, energy_mj=None)
    machine.record_calls()
    source, rows = open_source(energy_s=10.0), []
    for second in range(25):
        machine.gpu(energy_mj=500_000 * second)
        rows.append(next(iter(list(source.read()))))
        clock.now += 1
    told = [second for second, row in enumerate(rows) if row["energy_j"] is not None]
    assert told == [0, 10, 20]
    assert [rows[second]["energy_j"] for second in told] == [0, 5000, 10_000]
    assert {row["power_w"] for row in rows} == {300}
    assert len(machine.calls("nvmlDeviceGetTotalEnergyConsumption")) == 2 * 3


def test_a_limit_told_by_its_margin_stands_until_it_is_read_again(
    machine: StandIn, open_source: Callable[..., NvmlSource], clock: Clock
) -> None:
    machine.gpu(temperature=50, temperature_limit=None, margin=38, slowdown_tlimit=-2)
    source = open_source(energy_s=10.0)
    for _ in range(3):
        assert first(source)["temp_limit_c"] == 90
        machine.gpu(temperature=60)  # its margin is not asked for
        clock.now += 1


def test_power_over_a_time_without_its_counter_is_that_of_the_readings(
    machine: StandIn, open_source: Callable[..., NvmlSource], clock: Clock
) -> None:
    actuator = Actuator()
    source = open_source(energy_s=10.0, actuator=actuator)
    for second in range(6):
        machine.gpu(power_mw=100_000 * second)
        list(source.read())
        clock.now += 1
    assert actuator.gpus[0].mean_w(clock.now - 3.5) == 400  # of 300, 400 and 500 W


@pytest.mark.parametrize(
    ("energy_mj", "why"),
    [
        (1_000_000, "the counter stands still"),
        (3_000, "it was reset"),
        (90_000_000, "no GPU draws 44 kW"),
        (None, "there is no counter"),
    ],
)
def test_where_the_counter_does_not_tell_the_drivers_own_reading_is_taken(
    machine: StandIn, source: NvmlSource, clock: Clock, energy_mj: int | None, why: str
) -> None:
    machine.gpu(power_mw=250_000, energy_mj=1_000_000)
    list(source.read())
    clock.now += 2
    if energy_mj is None:
        machine.gpu(status="nvmlDeviceGetTotalEnergyConsumption:3")
    else:
        machine.gpu(energy_mj=energy_mj)
    assert first(source)["power_w"] == 250, why


def test_after_a_reset_of_the_counter_the_mean_is_taken_up_again(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    for energy_mj in (1_000_000, 3_000):
        machine.gpu(energy_mj=energy_mj)
        list(source.read())
        clock.now += 1
    machine.gpu(energy_mj=503_000)
    assert first(source)["power_w"] == 500


def test_a_counter_of_32_bits_that_comes_to_its_end_goes_on(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(energy_mj=2**32 - 100_000)
    list(source.read())
    clock.now += 1
    machine.gpu(energy_mj=500_000)
    assert first(source)["power_w"] == 600
    clock.now += 1
    machine.gpu(energy_mj=1_200_000)
    assert first(source)["power_w"] == 700


def test_readings_closer_than_the_counters_steps_are_averaged_over_half_a_second(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    # 600 W, by a counter that moves each 0.25 s only.
    watts = []
    for tick in range(16):
        machine.gpu(power_mw=111_000, energy_mj=1_000_000 + 150_000 * (tick // 2))
        watts.append(first(source)["power_w"])
        clock.now += 0.125
    assert watts[:4] == [111] * 4
    assert watts[4:] == [600] * 12


def test_the_power_that_a_limit_holds_down_shows(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(power_mw=800_000, energy_mj=None, limit_max_mw=900_000)
    row = first(source)
    assert (row["power_w"], row["power_limit_w"], row["throttle"]) == (700, 700, 0x4)


# --- Counters -------------------------------------------------------------------------------------


def test_counters_become_rates(machine: StandIn, source: NvmlSource, clock: Clock) -> None:
    machine.gpu(nvlink_tx_kib=5_000, nvlink_rx_kib=6_000, pcie_tx=7_000, pcie_rx=8_000)
    assert first(source)["nvlink_tx"] is None
    clock.now += 2
    machine.gpu(nvlink_tx_kib=5_100, pcie_rx=8_100)
    row = first(source)
    assert row["nvlink_tx"] == 50 * 1024  # NVML counts KiB
    assert (row["nvlink_rx"], row["pcie_tx"], row["pcie_rx"]) == (0, 0, 50)


def test_a_card_without_the_old_nvlink_counters_is_asked_for_the_new_ones(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(nvlink_tx_kib=None, nvlink_rx_kib=None, nvlink_tx_bytes=1000, nvlink_rx_bytes=0)
    list(source.read())  # learns that the old ones are not there
    list(source.read())
    clock.now += 1
    machine.gpu(nvlink_tx_bytes=1500)
    row = first(source)
    assert (row["nvlink_tx"], row["nvlink_rx"]) == (500, 0)


def test_a_counter_that_was_reset_gives_no_rate(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(pcie_tx=100)
    list(source.read())
    clock.now += 1
    machine.gpu(pcie_tx=50)
    assert first(source)["pcie_tx"] is None


# --- What is not supported ------------------------------------------------------------------------


def test_what_is_not_supported_is_null_and_asked_for_once(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(1, fan=40)
    machine.gpu(0, fan=None, memory_temperature=None)
    machine.record_calls()
    for _ in range(3):
        row = first(source)
        assert (row["fan"], row.get("temp_mem_c"), row["temp_c"]) == (None, None, 45)
        list(source.read())
    assert machine.calls("nvmlDeviceGetFanSpeed") == ["0", "1", "1", "1"]
    assert source.errors == 0


def test_a_driver_that_has_no_field_values_at_all(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(status="nvmlDeviceGetFieldValues:13")
    machine.record_calls()
    for _ in range(3):
        for row in source.read():
            assert row["temp_c"] == 45
    assert len(machine.calls("nvmlDeviceGetFieldValues")) == 2
    assert source.errors == 0


def test_a_field_that_the_driver_does_not_know_leaves_the_others(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(status="270:2")
    row = first(source)
    assert (row["throttle_hw_thermal_ns"], row["throttle_sw_thermal_ns"]) == (None, 0)
    assert "throttle_hw_thermal_ns" not in first(source)


def test_a_passing_failure_is_null_once_and_counted(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(0, status="nvmlDeviceGetClockInfo:999")
    assert first(source)["sm_mhz"] is None
    machine.gpu(0, status="")
    assert first(source)["sm_mhz"] == 1980
    assert source.errors == 2  # the clock of the SMs and that of the memory
    assert "gpu0 mem_mhz" in source.last_error


@pytest.mark.parametrize(
    ("slowdown_tlimit", "limit_c"), [(-2, 59 + 26 + 2), (None, 59 + 26)], ids=["H100", "unknown"]
)
def test_a_card_that_tells_margins_only_has_a_limit_all_the_same(
    machine: StandIn, source: NvmlSource, slowdown_tlimit: int | None, limit_c: int
) -> None:
    machine.gpu(temperature=59, margin=26, temperature_limit=None, slowdown_tlimit=slowdown_tlimit)
    for _ in range(2):
        assert first(source)["temp_limit_c"] == limit_c


def test_a_card_without_limit_or_margin_has_none(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(temperature_limit=None, margin=None)
    assert first(source)["temp_limit_c"] is None


def test_a_memory_at_zero_degrees_has_no_sensor(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(memory_temperature=0)
    assert first(source)["temp_mem_c"] is None


def test_a_fan_over_its_rating_is_at_its_most(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(fan=104)
    assert first(source)["fan"] == 100


def test_memory_that_the_driver_keeps_for_itself_is_not_in_use(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(memory_used=77, memory_reserved=GIB)
    assert first(source)["mem_used"] == 77


def test_an_old_driver_counts_what_it_keeps_for_itself_as_in_use(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(memory_used=77, memory_reserved=GIB, status="nvmlDeviceGetMemoryInfo_v2:13")
    assert [first(source)["mem_used"], first(source)["mem_used"]] == [GIB + 77] * 2
    assert source.errors == 0


# --- MIG ------------------------------------------------------------------------------------------


def test_a_gpu_in_mig_mode_has_the_memory_of_its_instances_and_no_utilization(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(0, mig=1, instances=f"{GIB} {3 * GIB} 0")
    one, two = source.read()
    assert (one["mig_instances"], one["mem_used"], one["util"]) == (3, 4 * GIB, None)
    assert (two["mig_instances"], two["util"]) == (None, 90)
    assert source.errors == 0


def test_instances_that_come_and_go_are_counted_at_each_reading(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(0, mig=1, instances=f"{GIB}")
    assert first(source)["mig_instances"] == 1
    machine.gpu(0, instances=f"{GIB} {GIB}")
    row = first(source)
    assert (row["mig_instances"], row["mem_used"]) == (2, 2 * GIB)


def test_slices_are_told_by_profile_and_uuid_in_the_order_of_nvml(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(0, mig=1, instances="0 0", profiles="3g.40gb 1g.10gb")
    list(source.read())
    first_gpu = "00000000-0000-0000-0000-000000000000"
    assert dict(source.slices[0]) == {
        "3g.40gb": f"MIG-{first_gpu}-0", "1g.10gb": f"MIG-{first_gpu}-1",
    }  # fmt: skip
    assert [profile for profile, _ in source.slices[0]] == ["3g.40gb", "1g.10gb"]
    assert not source.slices[1]
    machine.gpu(0, mig=0)
    list(source.read())
    assert not source.slices[0]


def test_without_instances_only_root_sees_the_memory(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(mig=1, memory_used=77)
    machine.gpu(1, may_see_mig_parent=1)
    one, two = source.read()
    assert (one["mig_instances"], one["mem_used"]) == (0, None)
    assert (two["mig_instances"], two["mem_used"]) == (0, 77)


def test_memory_that_one_instance_does_not_tell_is_not_undercounted(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(0, mig=1, instances=f"{GIB} -")
    row = first(source)
    assert (row["mig_instances"], row["mem_used"]) == (2, None)


def test_what_mig_mode_refused_is_asked_for_again_when_it_ends(
    machine: StandIn, source: NvmlSource
) -> None:
    machine.gpu(0, mig=1, instances=f"{GIB}")
    assert first(source)["util"] is None
    machine.gpu(0, mig=0)
    list(source.read())
    row = first(source)
    assert (row["util"], row["mig_instances"]) == (90, None)


def test_a_card_that_knows_no_mig_is_asked_once(machine: StandIn, source: NvmlSource) -> None:
    machine.gpu(mig=None)
    machine.record_calls()
    for _ in range(3):
        assert first(source)["mig_instances"] is None
    assert machine.calls("nvmlDeviceGetMigMode") == ["0"]


def test_nothing_is_ever_set_by_reading(machine: StandIn, source: NvmlSource, nvml: Any) -> None:
    machine.record_calls()
    list(source.read())
    assert not [line for line in machine.log.read_text().splitlines() if "DeviceSet" in line]
