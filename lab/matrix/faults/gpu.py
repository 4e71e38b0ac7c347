"""Power limits and top clocks of this machine's GPUs, by NVML. Only whole machines: all GPUs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headroom.agent.actuation.knobs import Knob, KnobError
from headroom.contracts import LimitKind
from lab.matrix.scenario import Fault, FaultKind

__all__ = ["Gpu", "GpuError", "Gpus", "restore"]

_KINDS = {
    FaultKind.POWER_LIMIT: LimitKind.POWER_CAP_W,
    FaultKind.CLOCK_LIMIT: LimitKind.CLOCK_CAP_MHZ,
}


class GpuError(OSError):
    """NVML refuses, or is not there, for the reason given."""


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KnobError as error:
        raise GpuError(str(error)) from error


@dataclass(frozen=True)
class Gpu:
    """One GPU and one of its limits. ``normal`` is the value that shares are taken of."""

    uuid: str
    kind: str
    knob: Knob
    normal: float

    def asked(self, fault: Fault) -> float:
        """Return the limit that a fault means, as near as the GPU can be set to it."""
        limit = fault.limit_w if fault.kind == FaultKind.POWER_LIMIT else fault.limit_mhz
        if limit is None:
            limit = self.normal * (1.0 if fault.share is None else fault.share)
        with _translated():
            return self.knob.bounded(limit)

    def in_force(self) -> float | None:
        """Return the limit in force; None where the driver does not tell."""
        with _translated():
            return self.knob.in_force()

    def set(self, value: float) -> None:
        """Hold the GPU to a limit."""
        with _translated():
            self.knob.set(value)


class Gpus:
    """NVML, for as long as it is open. Raises :class:`GpuError` where NVML is missing."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ModuleNotFoundError as error:
            message = "limits of GPUs need: pip install 'headroom[agent]'"
            raise GpuError(message) from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise GpuError(f"no GPU that NVML can limit: {error}") from error

    def close(self) -> None:
        """Shut NVML down."""
        self._nvml.nvmlShutdown()

    def of_kind(self, fault: FaultKind) -> list[Gpu]:
        """Return this machine's GPUs, with the limit that a fault is about."""
        return self._of_kind(_KINDS[fault])

    def _of_kind(self, kind: str) -> list[Gpu]:
        nvml = self._nvml
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            return [self._gpu(handle, kind) for handle in handles]
        except nvml.NVMLError as error:
            raise GpuError(f"NVML: {error}") from error

    def _gpu(self, handle: Any, kind: str) -> Gpu:
        # The agent turns the same knobs; it is imported where there is NVML.
        from headroom.agent.nvml.caps import make_knob

        knob = make_knob(self._nvml, handle, kind)
        if knob is None:
            raise GpuError(f"no such limit: {kind}")
        uuid = self._nvml.nvmlDeviceGetUUID(handle)
        return Gpu(str(uuid), kind, knob, self._normal(handle, kind, knob))

    def _normal(self, handle: Any, kind: str, knob: Knob) -> float:
        if kind == LimitKind.POWER_CAP_W:
            return float(self._nvml.nvmlDeviceGetPowerManagementLimit(handle)) / 1e3
        with _translated():
            return knob.bounded(math.inf)

    def find(self, uuid: str, kind: str) -> Gpu:
        """Return a GPU by its UUID. Raises :class:`GpuError` where it is gone."""
        for gpu in self._of_kind(kind):
            if gpu.uuid == uuid:
                return gpu
        raise GpuError(f"GPU {uuid} is gone")


def restore(uuid: str, kind: str, original: float | None) -> None:
    """Give a GPU its previous limit back. Raises :class:`GpuError`."""
    gpus = Gpus()
    try:
        with _translated():
            gpus.find(uuid, kind).knob.restore(original)
    finally:
        gpus.close()
