"""The least that reads the agent's fields of all GPUs once a second: ``pynvml`` and a sleep."""

from __future__ import annotations

import time
from typing import Any

import pynvml as nvml

INTERVAL_S = 1.0
_ALL_LINKS = 0xFFFFFFFF
FIELDS = [
    nvml.NVML_FI_DEV_MEMORY_TEMP,
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
    (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
]


def fan_speed(gpu: Any) -> int | None:
    """Read the fan; boards without one, as in most servers, refuse."""
    try:
        return int(nvml.nvmlDeviceGetFanSpeed(gpu))
    except nvml.NVMLError_NotSupported:
        return None


def read(gpu: Any) -> list[Any]:
    """Read the agent's fields of one GPU, and keep none of them."""
    return [
        nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),
        nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        fan_speed(gpu),
        nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        nvml.nvmlDeviceGetTotalEccErrors(
            gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        nvml.nvmlDeviceGetMigMode(gpu)[0],
        nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2).used,
        nvml.nvmlDeviceGetFieldValues(gpu, FIELDS),
    ]


def main() -> None:
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    while True:
        for gpu in gpus:
            read(gpu)
        time.sleep(INTERVAL_S)


if __name__ == "__main__":
    main()
