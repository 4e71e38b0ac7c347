# ruff: noqa: N802 -- the names are NVML's
"""A stand-in for the ``pynvml`` module: GPUs whose every value a test can set or break."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pynvml

#: Numbered values that a GPU has unless a test says otherwise, by NVML's field id.
FIELD_VALUES = {
    pynvml.NVML_FI_DEV_MEMORY_TEMP: 60,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: 1000,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: 0,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: 20,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: 30,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: 40,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 5_000,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 6_000,
    pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: 7_000,
    pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: 8_000,
}


class FakeGpu:
    """One GPU. ``failures`` maps a function's name, or a field id, to an NVML status."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.fields = dict(FIELD_VALUES)
        self.failures: dict[str | int, int] = {}
        self.power_mw = 350_500
        self.fan = 40


class FakeNvml:
    """Has the names of ``pynvml`` that the agent uses; the constants are the real ones."""

    def __init__(self, count: int) -> None:
        self.gpus = [FakeGpu(i) for i in range(count)]
        self.calls: Counter[str] = Counter()
        self.events: list[tuple[int, int]] = []
        self.handles_fail_with: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML", "nvmlEventType")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def _call(self, name: str, gpu: FakeGpu, value: Any) -> Any:
        self.calls[name] += 1
        if name in gpu.failures:
            raise pynvml.NVMLError(gpu.failures[name])
        return value

    def nvmlInit(self) -> None:
        self.calls["nvmlInit"] += 1

    def nvmlShutdown(self) -> None:
        self.calls["nvmlShutdown"] += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self.calls["handle"] += 1
        if self.handles_fail_with is not None:
            raise pynvml.NVMLError(self.handles_fail_with)
        return self.gpus[index]

    def nvmlDeviceGetIndex(self, gpu: FakeGpu) -> int:
        return gpu.index

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return int(self._call("power", gpu, gpu.power_mw))

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:
        return int(self._call("limit", gpu, 700_000))

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        return int(self._call("energy", gpu, 123_456))

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        return int(self._call("temp", gpu, 55))

    def nvmlDeviceGetTemperatureThreshold(self, gpu: FakeGpu, which: int) -> int:
        return int(self._call("threshold", gpu, 87))

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, which: int) -> int:
        return int(self._call("clock", gpu, 1980 if which == pynvml.NVML_CLOCK_SM else 2619))

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return self._call("util", gpu, SimpleNamespace(gpu=99, memory=50))

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return self._call("memory", gpu, SimpleNamespace(used=1024, free=1, total=1025))

    def nvmlDeviceGetFanSpeed(self, gpu: FakeGpu) -> int:
        return int(self._call("fan", gpu, gpu.fan))

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        return int(self._call("reasons", gpu, 0x4))

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, counter: int) -> int:
        return int(self._call("ecc", gpu, 3))

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, ids: list[tuple[int, int]]) -> list[Any]:
        self._call("fields", gpu, None)
        return [
            SimpleNamespace(
                nvmlReturn=gpu.failures.get(field, pynvml.NVML_SUCCESS),
                valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
                value=SimpleNamespace(ullVal=gpu.fields[field]),
            )
            for field, _scope in ids
        ]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, types: int, events: object) -> None:
        self._call("register", gpu, None)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        assert timeout_ms == 0, "the agent must not wait for events"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        index, xid = self.events.pop(0)
        return SimpleNamespace(device=self.gpus[index], eventData=xid)
