"""The readings of one GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from headroom.agent.actuation.knobs import Knob
from headroom.agent.devices import Value
from headroom.agent.nvml.caps import make_knob
from headroom.agent.nvml.energy import EnergyLog, PowerLog
from headroom.agent.nvml.numbered import NumberedFields
from headroom.agent.nvml.status import is_unsupported, raise_if_gone

__all__ = ["NvmlGpu"]

T = TypeVar("T")

#: Stands for the most that a GPU may draw where NVML does not tell, W.
_ANY_GPU_W = 3000.0
#: Rounds are not on time to the millisecond: what is due within a part of one is read in this one.
_EARLY_SHARE = 0.05


class NvmlGpu:
    """One GPU. Fields that it does not support are asked for once, and again when its MIG mode
    changes.

    ``most_s`` is how long one reading may take: what is not read by then is left out. ``energy_s``
    is how often the energy counter and the margin to the limit are read, each of which costs a
    driver milliseconds; 0: each time.
    """

    def __init__(
        self,
        nvml: Any,
        index: int,
        *,
        most_s: float,
        energy_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.index = index
        self.errors = 0
        self.last_error = ""
        #: How long the last reading took where that was more than ``most_s``, else 0.
        self.slow_s = 0.0
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.uuid: str = nvml.nvmlDeviceGetUUID(self.handle)
        self._nvml = nvml
        self._most_s = most_s
        self._energy_s = energy_s
        self._monotonic = monotonic
        self._energy = EnergyLog(most_w=self._most_w())
        self._power_log = PowerLog()
        #: Whether what is dear is read this time, when it was last, and whether it was last time.
        self._is_due = self._was_due = False
        self._due_read_at = -math.inf
        self._knobs: dict[str, Knob | None] = {}
        self._mig_mode: int | None = None
        self._instances: list[Any] | None = None
        #: its MIG slices in the order of NVML: profile, and UUID
        self.slices: tuple[tuple[str, str], ...] = ()
        self._forget_unsupported()
        self._parts = self._make_parts()

    def read(self) -> dict[str, Value]:
        """Return one row. Raises ``GpuLostError`` or ``DriverGoneError``."""
        started = self._monotonic()
        self.slow_s = 0.0
        self._was_due = self._is_due
        self._is_due = started - self._due_read_at >= (1 - _EARLY_SHARE) * self._energy_s
        if self._is_due:
            self._due_read_at = started
        row: dict[str, Value] = {"gpu": self.index}
        for part in self._parts:
            row |= part()
            taken_s = self._monotonic() - started
            if taken_s > self._most_s:
                self.slow_s = taken_s
                break
        return row

    def knob(self, kind: str) -> Knob | None:
        """Return the knob for a kind of limit, or None for an unknown kind."""
        if kind not in self._knobs:
            self._knobs[kind] = make_knob(self._nvml, self.handle, kind)
        return self._knobs[kind]

    def mean_w(self, since_s: float) -> float | None:
        """Return the mean power from a monotonic time to the last reading, W.

        By the energy counter, or where that was not read twice since then by the power readings.
        """
        counted = self._energy.mean_w(since_s)
        return self._power_log.mean_w(since_s) if counted is None else counted

    def _most_w(self) -> float:
        """Return more than this GPU can draw: a power limit bounds the mean, not each moment."""
        try:
            _, most_mw = self._nvml.nvmlDeviceGetPowerManagementLimitConstraints(self.handle)
        except self._nvml.NVMLError:
            return _ANY_GPU_W
        return float(2 * most_mw / 1e3)

    def _forget_unsupported(self) -> None:
        self._unsupported: set[str] = set()
        self._slowdown_margin_c: float | None = None
        self._limit_c: float | None = None
        self._numbered = NumberedFields(
            self._nvml, self.handle, note=self._note, monotonic=self._monotonic
        )

    def _make_parts(self) -> list[Callable[[], dict[str, Value]]]:
        nvml, handle = self._nvml, self.handle
        simple: dict[str, Callable[[], Value]] = {
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "mem_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            # NVML: "this value may exceed 100 % in certain cases".
            "fan": lambda: min(nvml.nvmlDeviceGetFanSpeed(handle), 100),
            "throttle": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            "ecc": lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
        }
        return [
            self._power,
            self._temperatures,
            self._utilization,
            *(partial(self._simple, name, reader) for name, reader in simple.items()),
            self._mig,
            self._memory,
            lambda: self._numbered.read(),
        ]

    def _simple(self, name: str, reader: Callable[[], Value]) -> dict[str, Value]:
        return {name: self._try(name, reader)}

    def _utilization(self) -> dict[str, Value]:
        """Return the shares of time in which a kernel ran, and memory was read or written."""
        rates = self._try("util", lambda: self._nvml.nvmlDeviceGetUtilizationRates(self.handle))
        return {"util": rates and rates.gpu, "mem_util": rates and rates.memory}

    def _power(self) -> dict[str, Value]:
        """Read power, and energy where that is due.

        The driver's own reading of power is a filtered average on some parts and a momentary value
        on others. Where the energy counter is read each time, it gives the mean since the last one.
        """
        watts, energy_j = self._count_energy() if self._is_due else (None, None)
        if watts is None or not self._was_due:
            told: float | None = self._try(
                "power_w", lambda: self._nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3
            )
            watts = watts if told is None else told
        if watts is not None:
            self._power_log.add(self._monotonic(), watts)
        return {"power_w": watts, "energy_j": energy_j}

    def _count_energy(self) -> tuple[float | None, float | None]:
        """Read the energy counter; return the mean power since it was read last, W, and J."""
        counted_mj: int | None = self._try(
            "energy_j",
            lambda: int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)),
        )
        if counted_mj is None:
            return None, None
        return self._energy.add(self._monotonic(), counted_mj), counted_mj / 1e3

    def _temperatures(self) -> dict[str, Value]:
        nvml, handle = self._nvml, self.handle
        temp_c: int | None = self._try(
            "temp_c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        )
        limit_c: float | None = self._try(
            "temp_limit_c",
            lambda: nvml.nvmlDeviceGetTemperatureThreshold(
                handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
        )
        if limit_c is None and temp_c is not None:
            if self._is_due:
                self._limit_c = self._limit_by_margin(temp_c)
            limit_c = self._limit_c
        return {"temp_c": temp_c, "temp_limit_c": limit_c}

    def _limit_by_margin(self, temp_c: float) -> float | None:
        """Return the slowdown temperature of cards that tell margins only (Hopper and later).

        Their margin to the limit shrinks to a small negative number, at which they slow down.
        """
        nvml, handle = self._nvml, self.handle
        margin_c: int | None = self._try(
            "margin", lambda: nvml.nvmlDeviceGetMarginTemperature(handle)
        )
        if margin_c is None:
            return None
        if self._slowdown_margin_c is None:
            found = self._numbered.one(nvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT)
            self._slowdown_margin_c = 0 if found is None else found
        return temp_c + margin_c - self._slowdown_margin_c

    def _mig(self) -> dict[str, Value]:
        nvml, handle = self._nvml, self.handle
        mode: int | None = self._try("mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
        if mode is not None and mode != self._mig_mode:
            if self._mig_mode is not None:
                self._forget_unsupported()
            self._mig_mode = mode
        is_on = mode == nvml.NVML_DEVICE_MIG_ENABLE
        self._instances = self._try("mig_instances", self._find_instances) if is_on else None
        if self._is_due or len(self.slices) != len(self._instances or ()):
            self.slices = self._try("slices", self._read_slices) or ()
        return {"mig_instances": None if self._instances is None else len(self._instances)}

    def _find_instances(self) -> list[Any]:
        nvml, found = self._nvml, []
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(self.handle)):
            try:
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, place))
            except nvml.NVMLError as exc:
                if exc.value != nvml.NVML_ERROR_NOT_FOUND:  # places may be empty between others
                    raise
        return found

    def _read_slices(self) -> tuple[tuple[str, str], ...]:
        nvml = self._nvml
        return tuple(
            # "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
            (nvml.nvmlDeviceGetName(each).rpartition(" MIG ")[2], nvml.nvmlDeviceGetUUID(each))
            for each in self._instances or ()
        )

    def _memory(self) -> dict[str, Value]:
        """Read the memory in use: in MIG mode, of all instances, since only root sees the whole."""
        name = "mem_used of instances" if self._instances else "mem_used"
        used = self._memory_used(name, self._nvml.nvmlMemory_v2)
        if name in self._unsupported:
            # Drivers before 510 have but the first version, which counts what they keep themselves.
            used = self._memory_used(f"{name} or reserved", None)
        return {"mem_used": used}

    def _memory_used(self, name: str, version: int | None) -> int | None:
        read, handles = self._nvml.nvmlDeviceGetMemoryInfo, self._instances or [self.handle]
        return self._try(name, lambda: sum(read(each, version).used for each in handles))

    def _try(self, name: str, reader: Callable[[], T]) -> T | None:
        if name in self._unsupported:
            return None
        try:
            return reader()
        except self._nvml.NVMLError as exc:
            if self._note(name, exc.value):
                self._unsupported.add(name)
            return None

    def _note(self, name: str, status: int) -> bool:
        """Act on a status that is no success; return whether it is of no use to ask again."""
        if is_unsupported(self._nvml, status):
            return True
        self.errors += 1
        self.last_error = f"gpu{self.index} {name}: {self._nvml.NVMLError(status)}"
        raise_if_gone(self._nvml, status, self.last_error)
        return False
