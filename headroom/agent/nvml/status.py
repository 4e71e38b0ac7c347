"""The meaning of NVML's status codes to the agent."""

from __future__ import annotations

from typing import Any

from headroom.agent.devices import GpuLostError

__all__ = ["DriverGoneError", "is_unsupported", "raise_if_gone"]


class DriverGoneError(Exception):
    """The driver was unloaded or loaded anew: every handle is void."""


def is_unsupported(nvml: Any, status: int) -> bool:
    """Return whether ``status`` says that it is of no use to ask again."""
    return status in (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_DEPRECATED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_INVALID_ARGUMENT,  # a field that this driver does not know
        nvml.NVML_ERROR_NO_PERMISSION,
    )


def raise_if_gone(nvml: Any, status: int, cause: str) -> None:
    """Raise where ``status`` says that nothing else can be asked either."""
    if status in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
        raise DriverGoneError(cause)
    if status in (
        nvml.NVML_ERROR_GPU_IS_LOST,
        nvml.NVML_ERROR_GPU_NOT_FOUND,
        nvml.NVML_ERROR_RESET_REQUIRED,
    ):
        raise GpuLostError(cause)
