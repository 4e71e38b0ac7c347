from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from config.machine import gpus_of


class FakeNvml:
    """As much of the ``pynvml`` module as is asked for."""

    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2
    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, count: int = 1, *, driver: bool = True) -> None:
        self.count = count
        self.driver = driver
        self.open = False

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        if not self.driver:
            raise self.NVMLError
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's name
        self.open = False

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H200",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 700_000,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=150_754_820_096),
            "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 1980,
            "nvmlDeviceGetTemperatureThreshold": self._threshold,
        }
        return answers[name]

    def _threshold(self, handle: int, kind: int) -> int:
        if kind == self.NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
            raise self.NVMLError
        return {0: 92, 1: 87}[kind]


def test_each_gpu_is_found_with_what_the_driver_tells() -> None:
    nvml = FakeNvml(count=2)
    first, second = gpus_of(nvml)
    assert (first.index, second.index) == (0, 1)
    assert (first.model, second.uuid) == ("NVIDIA H200", "GPU-1")
    assert (first.power_limit_w, first.slowdown_c, first.shutdown_c) == (700, 87, 92)
    assert first.slowdown_mem_c is None
    assert not nvml.open


def test_no_driver_is_no_gpus() -> None:
    assert gpus_of(FakeNvml(driver=False)) == []
