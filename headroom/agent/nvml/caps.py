"""The limits of one GPU that NVML can set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from headroom.agent.actuation.knobs import Knob, KnobError
from headroom.agent.nvml.status import is_unsupported, raise_if_gone
from headroom.contracts import LimitKind

__all__ = ["make_knob"]

#: By how much the SM clock may read above the cap: one step of it.
_CLOCK_STEP_MHZ = 15


def make_knob(nvml: Any, handle: Any, kind: str) -> Knob | None:
    """Return the knob for a kind of limit, or None for an unknown kind."""
    if kind == LimitKind.POWER_CAP_W:
        return PowerCap(nvml, handle)
    if kind == LimitKind.CLOCK_CAP_MHZ:
        return ClockCap(nvml, handle)
    return None


@contextlib.contextmanager
def _translated(nvml: Any, what: str) -> Iterator[None]:
    """Translate NVML's errors into those that a knob raises."""
    try:
        yield
    except nvml.NVMLError as exc:
        message = f"{what}: {exc}"
        raise_if_gone(nvml, exc.value, message)
        if exc.value == nvml.NVML_ERROR_NO_PERMISSION:
            message += "; it takes root, or CAP_SYS_ADMIN"
        raise KnobError(message, is_refusal=is_unsupported(nvml, exc.value)) from exc


class PowerCap:
    """The power limit, W. NVML has it in whole milliwatts."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def in_force(self) -> float | None:
        with _translated(self._nvml, "power limit"):
            return float(self._nvml.nvmlDeviceGetPowerManagementLimit(self._handle)) / 1e3

    def bounded(self, asked: float) -> float:
        with _translated(self._nvml, "bounds of the power limit"):
            least_mw, most_mw = self._nvml.nvmlDeviceGetPowerManagementLimitConstraints(
                self._handle
            )
        return float(min(max(asked, least_mw / 1e3), most_mw / 1e3))

    def set(self, value: float) -> None:
        with _translated(self._nvml, "setting the power limit"):
            self._nvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(value * 1e3))

    def restore(self, original: float | None) -> None:
        if original is not None:
            self.set(original)

    def violation(self, value: float) -> str:
        return ""  # the limit in force is read at every step


class ClockCap:
    """The highest clock of the SMs, MHz: the range that NVML locks clocks to, from the least up.

    NVML does not tell which range is in force, so what is restored is the range of the driver.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._steps: list[int] = []

    def in_force(self) -> float | None:
        return None

    def bounded(self, asked: float) -> float:
        steps = self._supported()
        return float(max((step for step in steps if step <= asked), default=steps[0]))

    def set(self, value: float) -> None:
        least = self._supported()[0]
        with _translated(self._nvml, "locking clocks"):
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, least, int(value))

    def restore(self, original: float | None) -> None:
        with _translated(self._nvml, "unlocking clocks"):
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def violation(self, value: float) -> str:
        nvml = self._nvml
        with _translated(nvml, "SM clock"):
            mhz = nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)
        return f"the SM clock is {mhz} MHz" if mhz > value + _CLOCK_STEP_MHZ else ""

    def _supported(self) -> list[int]:
        """Return the clocks that can be locked to at the highest memory clock, least first."""
        if not self._steps:
            nvml = self._nvml
            with _translated(nvml, "supported clocks"):
                memory_mhz = max(nvml.nvmlDeviceGetSupportedMemoryClocks(self._handle), default=0)
                steps = nvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, memory_mhz)
            if not steps:
                raise KnobError("NVML lists no clocks", is_refusal=True)
            self._steps = sorted(steps)
        return self._steps
