"""Readings of NVIDIA GPUs through NVML (the ``pynvml`` module)."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from headroom.agent.devices import Row, Value
from headroom.agent.host import CounterRate

__all__ = ["NvmlSource"]

logger = logging.getLogger(__name__)

#: How long a lost GPU or a missing driver is left alone before it is tried again.
_RETRY_S = 30.0
#: NVML's wildcard for "all NVLinks of the GPU together".
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024
#: The most Xid events that one read takes, so that a storm of them cannot hold it up.
_MAX_EVENTS = 64


class _LostError(Exception):
    """The GPU no longer answers."""


class NvmlGpu:
    """One GPU. What it does not support is asked for once and not again."""

    def __init__(self, nvml: Any, index: int, monotonic: Callable[[], float]) -> None:
        self.index = index
        self.errors = 0
        self.last_error = ""
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._nvml = nvml
        self._monotonic = monotonic
        self._unsupported: set[str] = set()
        self._rates = {
            name: CounterRate() for name in ("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")
        }
        self._readers = self._make_readers()
        self._field_ids = self._make_field_ids()

    def read(self) -> dict[str, Value]:
        """Return one row. Raises :class:`_LostError` when the GPU is gone."""
        row: dict[str, Value] = {"gpu": self.index}
        for name, reader in self._readers.items():
            row[name] = self._try(name, reader)
        row |= self._read_field_values()
        return row

    def _make_readers(self) -> dict[str, Callable[[], Value]]:
        """Return one call for each field that NVML gives by a function of its own."""
        nvml, handle = self._nvml, self.handle
        return {
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            "energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
            "temp_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "temp_limit_c": lambda: nvml.nvmlDeviceGetTemperatureThreshold(
                handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "mem_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "util": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "mem_used": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            # NVML: "this value may exceed 100 % in certain cases".
            "fan": lambda: min(nvml.nvmlDeviceGetFanSpeed(handle), 100),
            "throttle": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            "ecc": lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
        }

    def _make_field_ids(self) -> dict[str, tuple[int, int]]:
        """Return (field, scope) for each field that NVML gives as a numbered value."""
        nvml = self._nvml
        return {
            "temp_mem_c": (nvml.NVML_FI_DEV_MEMORY_TEMP, 0),
            "throttle_sw_power_cap_ns": (nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0),
            "throttle_sync_boost_ns": (nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, 0),
            "throttle_sw_thermal_ns": (nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0),
            "throttle_hw_thermal_ns": (nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0),
            "throttle_hw_power_brake_ns": (
                nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
                0,
            ),
            "nvlink_tx": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
            "nvlink_rx": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
            "pcie_tx": (nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
            "pcie_rx": (nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
        }

    def _try(self, name: str, reader: Callable[[], Value]) -> Value:
        if name in self._unsupported:
            return None
        try:
            return reader()
        except self._nvml.NVMLError as exc:
            self._note(name, exc.value, exc)
            return None

    def _read_field_values(self) -> dict[str, Value]:
        wanted = [name for name in self._field_ids if name not in self._unsupported]
        if not wanted:
            return {}
        try:
            values = self._nvml.nvmlDeviceGetFieldValues(
                self.handle, [self._field_ids[name] for name in wanted]
            )
        except self._nvml.NVMLError as exc:
            for name in wanted:
                self._note(name, exc.value, exc)
            return {}
        now = self._monotonic()
        return {
            name: self._field_value(name, value, now)
            for name, value in zip(wanted, values, strict=True)
        }

    def _field_value(self, name: str, value: Any, now: float) -> Value:
        nvml = self._nvml
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            self._note(name, value.nvmlReturn, f"NVML status {value.nvmlReturn}")
            return None
        members = {
            nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
            nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        }
        number: float | int = getattr(value.value, members.get(value.valueType, "ullVal"))
        if name not in self._rates:
            return number
        rate = self._rates[name].update(now, number)
        return rate * _KIB if rate is not None and name.startswith("nvlink") else rate

    def _note(self, name: str, status: int, cause: object) -> None:
        """Act on an NVML status: forget the field, count the failure, or give the GPU up."""
        nvml = self._nvml
        if status in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,  # a field that this driver does not know
            nvml.NVML_ERROR_NO_PERMISSION,
        ):
            self._unsupported.add(name)
            return
        self.errors += 1
        self.last_error = f"gpu{self.index} {name}: {cause}"
        if status in (
            nvml.NVML_ERROR_GPU_IS_LOST,
            nvml.NVML_ERROR_RESET_REQUIRED,
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        ):
            raise _LostError(self.last_error)


class NvmlSource:
    """All GPUs of the machine that NVML shows.

    A lost GPU is skipped, counted, and tried again every half minute; the others go on.
    """

    block: Literal["gpus", "host"] = "gpus"

    def __init__(self, nvml: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises ``nvml.NVMLError`` when there is no driver."""
        self.last_error = ""
        self._nvml = nvml
        self._monotonic = monotonic
        self._past_errors = 0
        nvml.nvmlInit()
        self._gpus: dict[int, NvmlGpu | None] = {}
        self._retry_at: dict[int, float] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            self._gpus[index] = None
            self._retry_at[index] = 0.0
        self._events = self._make_event_set()

    @property
    def errors(self) -> int:
        """How many reads failed since the start."""
        return self._past_errors + sum(gpu.errors for gpu in self._gpus.values() if gpu)

    @property
    def lost(self) -> list[int]:
        """The indices of the GPUs that do not answer."""
        return [index for index, gpu in self._gpus.items() if gpu is None]

    def read(self) -> Iterable[Row]:
        """Return one row for each GPU that answers."""
        rows = {i: row for i in self._gpus if (row := self._read_gpu(i)) is not None}
        for index, xid in self._new_xids():
            # A GPU that fell off the bus has no readings, but its Xid is what one must see.
            rows.setdefault(index, {"gpu": index})["xid"] = xid
        return list(rows.values())

    def close(self) -> None:
        """Shut NVML down for this process."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _read_gpu(self, index: int) -> dict[str, Value] | None:
        gpu = self._gpus[index] or self._open(index)
        if gpu is None:
            return None
        try:
            return gpu.read()
        except _LostError as exc:
            self._give_up(index, str(exc), gpu.errors)
            return None
        finally:
            self.last_error = gpu.last_error or self.last_error

    def _open(self, index: int) -> NvmlGpu | None:
        if self._monotonic() < self._retry_at[index]:
            return None
        try:
            gpu = NvmlGpu(self._nvml, index, self._monotonic)
        except self._nvml.NVMLError as exc:
            self._give_up(index, f"gpu{index}: {exc}", 1)
            self._start_over(exc)
            return None
        self._gpus[index] = gpu
        self._watch(gpu)
        return gpu

    def _give_up(self, index: int, cause: str, errors: int) -> None:
        self._past_errors += errors
        self.last_error = cause
        self._gpus[index] = None
        self._retry_at[index] = self._monotonic() + _RETRY_S
        logger.warning("GPU lost", extra={"gpu": index, "cause": cause, "retry_s": _RETRY_S})

    def _start_over(self, cause: Any) -> None:
        """Take NVML up again after a reload of the driver, which leaves every handle void."""
        if cause.value not in (
            self._nvml.NVML_ERROR_UNINITIALIZED,
            self._nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        ):
            return
        self.close()
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlInit()
            self._events = self._make_event_set()

    def _make_event_set(self) -> Any:
        """Return a set to receive Xid events, or None where NVML has none (as on Windows)."""
        try:
            return self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError:
            return None

    def _watch(self, gpu: NvmlGpu) -> None:
        if self._events is None:
            return
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlDeviceRegisterEvents(
                gpu.handle, self._nvml.nvmlEventTypeXidCriticalError, self._events
            )

    def _new_xids(self) -> Iterator[tuple[int, int]]:
        """Yield (GPU index, Xid) for the events since the last read, without waiting."""
        if self._events is None:
            return
        for _ in range(_MAX_EVENTS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                yield self._nvml.nvmlDeviceGetIndex(event.device), int(event.eventData)
            except self._nvml.NVMLError:  # a timeout: no more of them
                return
