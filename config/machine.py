"""The GPUs of the machine that we run on, as NVML tells of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LocalGpu:
    """One GPU with the facts that the inventory needs. None: the driver does not tell."""

    index: int
    uuid: str
    model: str
    power_limit_w: float | None
    slowdown_c: float | None
    slowdown_mem_c: float | None
    shutdown_c: float | None
    sm_max_mhz: float | None
    mem_bytes: int | None


def local_gpus() -> list[LocalGpu]:
    """Return the GPUs here; none where there is no driver or nothing that speaks to it."""
    try:
        import pynvml
    except ImportError:
        return []
    return gpus_of(pynvml)


def gpus_of(nvml: Any) -> list[LocalGpu]:
    """Return the GPUs that ``nvml`` (the ``pynvml`` module, or one like it) knows."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> LocalGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: str, *arguments: Any) -> Any:
        return _told(nvml, lambda: getattr(nvml, function)(handle, *arguments))

    def threshold(name: str) -> float | None:
        value = ask("nvmlDeviceGetTemperatureThreshold", getattr(nvml, name))
        return None if value is None else float(value)

    limit_mw = ask("nvmlDeviceGetPowerManagementDefaultLimit")
    memory = ask("nvmlDeviceGetMemoryInfo")
    return LocalGpu(
        index=index,
        uuid=_text(ask("nvmlDeviceGetUUID")),
        model=_text(nvml.nvmlDeviceGetName(handle)),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        slowdown_c=threshold("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
        slowdown_mem_c=threshold("NVML_TEMPERATURE_THRESHOLD_MEM_MAX"),
        shutdown_c=threshold("NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
        sm_max_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        mem_bytes=None if memory is None else memory.total,
    )


def _told(nvml: Any, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str:
    # Older bindings give bytes.
    return value.decode() if isinstance(value, bytes) else (value or "")
