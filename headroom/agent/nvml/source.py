"""All GPUs of the machine, through everything that may happen to a driver."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from headroom.agent.devices import Block, GpuLostError, Row, Value
from headroom.agent.nvml.gpu import NvmlGpu
from headroom.agent.nvml.status import DriverGoneError, raise_if_gone

__all__ = ["Actuator", "NvmlSource"]

logger = logging.getLogger(__name__)

#: How long a lost GPU, a missing driver and a missing NVML are left alone before the next try, s.
_LOST_S = 30.0
_NO_DRIVER_S = 5.0
_NO_LIBRARY_S = 60.0
#: How long one GPU's reading may take before the GPU is left alone, and for how long that is, s:
#: twice as long each time, until it is quick again.
_SLOW_S = 0.5
_FIRST_REST_S = 2.0
_LONGEST_REST_S = 60.0
#: The most Xid events that one reading takes, and that wait for one GPU.
_MAX_EVENTS = 64


class Actuator(Protocol):
    """Sets limits. Called in the thread that reads, between readings."""

    def step(self, gpus: list[NvmlGpu]) -> None:
        """Bring the limits of ``gpus``, all that answer, to those of the leases."""
        ...

    def stop(self, gpus: list[NvmlGpu]) -> None:
        """Undo all limits."""
        ...


@dataclass
class _Slot:
    """The place of one GPU: filled while it answers."""

    gpu: NvmlGpu | None = None
    not_before: float = 0.0
    rest_s: float = _FIRST_REST_S
    #: Xids that are not reported yet, one reading each.
    xids: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))


class NvmlSource:
    """All GPUs that NVML shows.

    A lost GPU is skipped, counted, and tried again every half minute, and the others go on. A GPU
    that is slow to answer is left alone for a while. When the driver is gone, everything is let go
    and begun anew once it is back. All calls must come from one thread.
    """

    block: Block = "gpus"

    def __init__(
        self,
        nvml: Any,
        *,
        actuator: Actuator | None = None,
        energy_s: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Asks nothing yet: a driver may hang, or be loaded later.

        ``energy_s``: how often what is dear to the driver is read; 0: each time.
        """
        self.last_error = ""
        #: The index of each GPU that ever answered, by PCI domain, bus and device: the kernel's
        #: log names them so.
        self.gpus_by_pci: dict[tuple[int, int, int], int] = {}
        self._nvml = nvml
        self._actuator = actuator
        self._energy_s = energy_s
        self._monotonic = monotonic
        self._past_errors = 0
        self._slots: dict[int, _Slot] = {}
        self._indices: dict[int | None, int] = {}
        self._events: Any = None
        self._is_up = False
        self._start_not_before = 0.0
        self._is_told = False
        self._driver = ""
        self._vbios: dict[int, str] = {}

    def versions(self) -> dict[str, str]:
        """Return the versions of driver and firmware, as they were read last."""
        return {"driver": self._driver, "vbios": ", ".join(sorted({*self._vbios.values()}))}

    @property
    def errors(self) -> int:
        """How many reads failed since the start."""
        open_ones = [slot.gpu for slot in self._slots.values() if slot.gpu]
        return self._past_errors + sum(gpu.errors for gpu in open_ones)

    @property
    def lost(self) -> list[int]:
        """The indices of the GPUs that do not answer."""
        return [index for index, slot in self._slots.items() if slot.gpu is None]

    @property
    def slices(self) -> dict[int, tuple[tuple[str, str], ...]]:
        """Profile and UUID of the MIG slices of each GPU that answers, as they were read last."""
        return {
            index: slot.gpu.slices
            for index, slot in list(self._slots.items())
            if slot.gpu is not None
        }

    def read(self) -> Iterator[Row]:
        """Yield one row for each GPU that answers, as soon as it is read."""
        if not self._is_up and not self._start():
            return
        try:
            self._collect_xids()
            for index, slot in self._slots.items():
                row = self._read(index, slot)
                if slot.xids:
                    # A GPU that fell off the bus has no readings, but its Xid is what one must see.
                    row = {"gpu": index, **(row or {}), "xid": slot.xids.popleft()}
                if row is not None:
                    yield row
            if self._actuator is not None:
                self._actuator.step(self._answering())
        except DriverGoneError as exc:
            self._let_go(str(exc))

    def close(self) -> None:
        """Undo all limits that were set, and shut NVML down for this process."""
        if not self._is_up:
            return
        if self._actuator is not None:
            with contextlib.suppress(DriverGoneError):
                self._actuator.stop([slot.gpu for slot in self._slots.values() if slot.gpu])
        self._shut_down()

    # --- The driver -------------------------------------------------------------------------------

    def _start(self) -> bool:
        """Initialize NVML, unless that failed a moment ago; return whether it is up."""
        if self._monotonic() < self._start_not_before:
            return False
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._is_up = True
            self._driver = _as_text(nvml.nvmlSystemGetDriverVersion())
            self._slots = {index: _Slot() for index in range(nvml.nvmlDeviceGetCount())}
            self._events = self._make_event_set()
        except nvml.NVMLError as exc:
            if exc.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                self._do_without(exc)
            else:
                self._let_go(self._why_not(exc))
            return False
        logger.info("GPUs found", extra={"gpus": len(self._slots)})
        return True

    def _do_without(self, exc: Any) -> None:
        """Say once that this is no machine with GPUs, which is no error; look again seldom."""
        if not self._is_told:
            logger.info("no GPU readings", extra={"cause": exc})
        self._is_told = True
        self._start_not_before = self._monotonic() + _NO_LIBRARY_S

    def _why_not(self, exc: Any) -> str:
        if exc.value == self._nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return f"{exc}: the driver was upgraded, restart the agent"
        return str(exc)

    def _let_go(self, cause: str) -> None:
        """Drop every handle, for all are void, and begin anew a little later."""
        self._past_errors = self.errors
        if self._is_up or cause != self.last_error:
            self._past_errors += 1
            logger.warning("no driver", extra={"cause": cause, "retry_s": _NO_DRIVER_S})
        self.last_error = cause
        self._start_not_before = self._monotonic() + _NO_DRIVER_S
        self._slots = {}
        self._indices = {}
        if self._is_up:
            self._shut_down()

    def _shut_down(self) -> None:
        self._is_up = False
        with contextlib.suppress(self._nvml.NVMLError):
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
        self._events = None
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    # --- One GPU ----------------------------------------------------------------------------------

    def _answering(self) -> list[NvmlGpu]:
        """Return the GPUs that answered just now."""
        return [s.gpu for s in self._slots.values() if s.gpu is not None and s.not_before == 0]

    def _read(self, index: int, slot: _Slot) -> dict[str, Value] | None:
        if self._monotonic() < slot.not_before:
            return None
        slot.not_before = 0.0
        gpu = None
        try:
            gpu = slot.gpu or self._open(index, slot)
            row = gpu.read()
        except GpuLostError as exc:
            self._give_up(index, slot, str(exc), gpu)
            return None
        self.last_error = gpu.last_error or self.last_error
        self._rest_if_slow(index, slot, gpu)
        return row

    def _open(self, index: int, slot: _Slot) -> NvmlGpu:
        """Raises ``GpuLostError`` or ``DriverGoneError``."""
        try:
            gpu = NvmlGpu(
                self._nvml,
                index,
                most_s=_SLOW_S,
                energy_s=self._energy_s,
                monotonic=self._monotonic,
            )
        except self._nvml.NVMLError as exc:
            raise_if_gone(self._nvml, exc.value, str(exc))
            raise GpuLostError(f"gpu{index}: {exc}") from exc
        slot.gpu = gpu
        # A GPU that is lost does not tell its index any more, but its events still come.
        self._indices[_pointer(gpu.handle)] = index
        with contextlib.suppress(self._nvml.NVMLError):
            pci = self._nvml.nvmlDeviceGetPciInfo(gpu.handle)
            self.gpus_by_pci[pci.domain, pci.bus, pci.device] = index
        with contextlib.suppress(self._nvml.NVMLError):
            self._vbios[index] = _as_text(self._nvml.nvmlDeviceGetVbiosVersion(gpu.handle))
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlDeviceRegisterEvents(
                    gpu.handle, self._nvml.nvmlEventTypeXidCriticalError, self._events
                )
        return gpu

    def _give_up(self, index: int, slot: _Slot, cause: str, gpu: NvmlGpu | None) -> None:
        self._past_errors += gpu.errors if gpu else 1
        if cause != self.last_error:
            logger.warning("GPU lost", extra={"gpu": index, "cause": cause, "retry_s": _LOST_S})
        self.last_error = cause
        slot.gpu = None
        slot.not_before = self._monotonic() + _LOST_S

    def _rest_if_slow(self, index: int, slot: _Slot, gpu: NvmlGpu) -> None:
        if not gpu.slow_s:
            slot.rest_s = _FIRST_REST_S
            return
        gpu.errors += 1
        self.last_error = f"gpu{index} took {gpu.slow_s:.1f} s to answer"
        logger.warning(
            "GPU is slow and left alone",
            extra={"gpu": index, "took_s": gpu.slow_s, "retry_s": slot.rest_s},
        )
        slot.not_before = self._monotonic() + slot.rest_s
        slot.rest_s = min(2 * slot.rest_s, _LONGEST_REST_S)

    # --- Xid events -------------------------------------------------------------------------------

    def _make_event_set(self) -> Any:
        """Return a set to receive Xid events, or None where NVML has none (as on Windows)."""
        try:
            return self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError:
            return None

    def _collect_xids(self) -> None:
        """Take the events since the last reading, without waiting."""
        if self._events is None:
            return
        for _ in range(_MAX_EVENTS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError:  # a timeout: no more of them
                return
            index = self._indices.get(_pointer(event.device))
            if index in self._slots:
                self._slots[index].xids.append(int(event.eventData))


def _as_text(given: str | bytes) -> str:
    """Return a text of NVML, which older bindings give as bytes."""
    return given.decode(errors="replace") if isinstance(given, bytes) else given


def _pointer(handle: Any) -> int | None:
    """Return the address in a handle, to compare handles: ctypes makes a new object each time."""
    return ctypes.cast(handle, ctypes.c_void_p).value
