"""NVML's numbered field values, many in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headroom.agent.devices import Value
from headroom.agent.rates import CounterRate

__all__ = ["NumberedFields"]

#: NVML's wildcard for "all NVLinks of the GPU together".
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024


@dataclass(frozen=True)
class _Field:
    id: int
    scope: int = 0
    #: What one count of the counter stands for; None: it is no counter, but a value.
    counts: float | None = None


def _known_fields(nvml: Any) -> dict[str, tuple[_Field, ...]]:
    """Return, for each field of the contract, the numbered values that give it, best first."""
    return {
        "temp_mem_c": (_Field(nvml.NVML_FI_DEV_MEMORY_TEMP),),
        "throttle_sw_power_cap_ns": (_Field(nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP),),
        "throttle_sync_boost_ns": (_Field(nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST),),
        "throttle_sw_thermal_ns": (_Field(nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN),),
        "throttle_hw_thermal_ns": (_Field(nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN),),
        "throttle_hw_power_brake_ns": (
            _Field(nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),
        ),
        "nvlink_tx": (
            _Field(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS, counts=_KIB),
            _Field(nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, _ALL_LINKS, counts=1),
        ),
        "nvlink_rx": (
            _Field(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, counts=_KIB),
            _Field(nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, _ALL_LINKS, counts=1),
        ),
        "pcie_tx": (_Field(nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, counts=1),),
        "pcie_rx": (_Field(nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, counts=1),),
    }


class NumberedFields:
    """The numbered values of one GPU.

    ``note`` is told each status that is no success and returns whether the value can be given up;
    then the next one that tells the same is asked, where there is one.
    """

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        *,
        note: Callable[[str, int], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._note = note
        self._monotonic = monotonic
        self._left = {name: list(fields) for name, fields in _known_fields(nvml).items()}
        self._rates: dict[str, CounterRate] = {}
        self._members = {
            nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
            nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
            nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
        }

    def read(self) -> dict[str, Value]:
        """Return the fields of the contract that can be read."""
        wanted = {name: fields[0] for name, fields in self._left.items() if fields}
        if not wanted:
            return {}
        values = self._ask(wanted.values())
        if isinstance(values, int):
            if self._note("field values", values):
                self._left = {}
            return {}
        now = self._monotonic()
        return {
            name: self._value(name, field, value, now)
            for (name, field), value in zip(wanted.items(), values, strict=True)
        }

    def one(self, field_id: int) -> float | int | None:
        """Return one value that is no field of the contract, or None."""
        values = self._ask([_Field(field_id)])
        if isinstance(values, int) or values[0].nvmlReturn != self._nvml.NVML_SUCCESS:
            return None
        return self._number(values[0])

    def _ask(self, fields: Iterable[_Field]) -> Any:
        """Return the values, or the status with which the call failed as a whole."""
        try:
            return self._nvml.nvmlDeviceGetFieldValues(
                self._handle, [(field.id, field.scope) for field in fields]
            )
        except self._nvml.NVMLError as exc:
            return int(exc.value)

    def _value(self, name: str, field: _Field, value: Any, now: float) -> Value:
        if value.nvmlReturn != self._nvml.NVML_SUCCESS:
            if self._note(name, value.nvmlReturn):
                self._left[name].pop(0)
            return None
        number = self._number(value)
        if field.counts is None:
            # Memory at 0 °C is how some drivers say that there is no such sensor.
            return None if name == "temp_mem_c" and number == 0 else number
        rate = self._rates.setdefault(name, CounterRate()).update(now, number)
        return None if rate is None else rate * field.counts

    def _number(self, value: Any) -> float | int:
        number: float | int = getattr(value.value, self._members.get(value.valueType, "ullVal"))
        return number
