"""DCGM's metrics: from their names, labels and units to the fields of the contract.

Keyed by DCGM's field ids, since a field goes by several names: dcgm-exporter's of today, those of
its releases before 2 (lower case), and those that DCGM 4.6 renamed. Facts from ``dcgm_fields.h`` of
NVIDIA/DCGM and the counter lists of NVIDIA/dcgm-exporter. Shared by the agent, which scrapes, and
by the server, which is written to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

__all__ = [
    "FIELDS",
    "DcgmField",
    "GpuReading",
    "Told",
    "Value",
    "field_of",
    "gather",
    "host_of",
    "is_told",
    "job_of",
]

Value: TypeAlias = float | int

_MIB = 1024 * 1024
#: What DCGM means to be blank: not supported, no permission, not found. Of doubles, of integers
#: (which are at 2**63 once they are doubles, as all values are on their way here).
_BLANKS = ((2.0**47, 2.0**47 + 16), (2**63 - 16, math.inf))


class Told(Protocol):
    """A metric's meaning: a field of the contract, and how its value becomes that field's.

    ``rank`` orders those that tell the same: the lowest that is there counts.
    """

    @property
    def column(self) -> str: ...

    @property
    def convert(self) -> Callable[[float], Value | None]: ...

    @property
    def rank(self) -> int: ...


@dataclass(frozen=True)
class DcgmField:
    """One field of DCGM, and its meaning in the contract."""

    id: int
    names: tuple[str, ...]
    column: str
    convert: Callable[[float], Value | None]
    rank: int = 0


def _same(value: float) -> float:
    return value


def _whole(value: float) -> int:
    return round(value)


def _known_celsius(value: float) -> float | None:
    """Return a memory temperature; 0 °C is DCGM's value for an unknown one."""
    return value or None


FIELDS: tuple[DcgmField, ...] = (
    DcgmField(100, ("DCGM_FI_DEV_SM_CLOCK", "dcgm_sm_clock"), "sm_mhz", _same),
    DcgmField(101, ("DCGM_FI_DEV_MEM_CLOCK", "dcgm_memory_clock"), "mem_mhz", _same),
    DcgmField(
        112,
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
        "throttle",
        _whole,
    ),
    DcgmField(
        140,
        ("DCGM_FI_DEV_MEMORY_TEMP", "dcgm_memory_temp", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
        "temp_mem_c",
        _known_celsius,
    ),
    DcgmField(
        150,
        ("DCGM_FI_DEV_GPU_TEMP", "dcgm_gpu_temp", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        "temp_c",
        _same,
    ),
    DcgmField(
        155,
        ("DCGM_FI_DEV_POWER_USAGE", "dcgm_power_usage", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        "power_w",
        _same,
    ),
    DcgmField(
        156,
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "dcgm_total_energy_consumption"),
        "energy_j",
        lambda millijoules: millijoules / 1e3,
    ),
    DcgmField(
        157,
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"),
        "power_w",
        _same,
        rank=1,
    ),
    DcgmField(
        158,
        ("DCGM_FI_DEV_SLOWDOWN_TEMP", "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"),
        "temp_limit_c",
        _same,
    ),
    DcgmField(
        160,
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS"),
        "power_limit_w",
        _same,
        rank=1,
    ),
    DcgmField(
        164,
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"),
        "power_limit_w",
        _same,
    ),
    DcgmField(191, ("DCGM_FI_DEV_FAN_SPEED",), "fan", lambda percent: min(percent, 100.0)),
    # A percentage also under its new name, which says otherwise.
    DcgmField(
        203,
        ("DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
        "util",
        _same,
    ),
    # The share of time in which memory was read or written at all; of its bandwidth see 1005.
    DcgmField(204, ("DCGM_FI_DEV_MEM_COPY_UTIL", "dcgm_mem_copy_utilization"), "mem_util", _same),
    # The last one ever: whoever reads it has to see whether it is news.
    DcgmField(
        230, ("DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors", "DCGM_FI_DEV_XID_ERROR"), "xid", _whole
    ),
    # Nanoseconds, whatever the help texts of older releases say.
    DcgmField(
        240,
        ("DCGM_FI_DEV_POWER_VIOLATION", "dcgm_power_violation"),
        "throttle_sw_power_cap_ns",
        _whole,
        rank=1,
    ),
    DcgmField(
        241,
        ("DCGM_FI_DEV_THERMAL_VIOLATION", "dcgm_thermal_violation"),
        "throttle_sw_thermal_ns",
        _whole,
        rank=1,
    ),
    DcgmField(
        242,
        ("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "dcgm_sync_boost_violation"),
        "throttle_sync_boost_ns",
        _whole,
        rank=1,
    ),
    DcgmField(
        252,
        ("DCGM_FI_DEV_FB_USED", "dcgm_fb_used"),
        "mem_used",
        lambda mebibytes: round(mebibytes * _MIB),
    ),
    DcgmField(311, ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "dcgm_ecc_dbe_volatile_total"), "ecc", _whole),
    DcgmField(
        1001,
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "dcgm_fi_prof_gr_engine_active",
            "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        ),
        "util",
        lambda ratio: 100 * ratio,
        rank=1,
    ),
    DcgmField(
        1005,
        (
            "DCGM_FI_PROF_DRAM_ACTIVE",
            "dcgm_fi_prof_dram_active",
            "DCGM_FI_PROF_DRAM_UTIL_RATIO",
        ),
        "mem_bw_util",
        lambda ratio: 100 * ratio,
    ),
    # Rates, although some releases call them counters.
    DcgmField(1009, ("DCGM_FI_PROF_PCIE_TX_BYTES", "dcgm_fi_prof_pcie_tx_bytes"), "pcie_tx", _same),
    DcgmField(1010, ("DCGM_FI_PROF_PCIE_RX_BYTES", "dcgm_fi_prof_pcie_rx_bytes"), "pcie_rx", _same),
    DcgmField(1011, ("DCGM_FI_PROF_NVLINK_TX_BYTES",), "nvlink_tx", _same),
    DcgmField(1012, ("DCGM_FI_PROF_NVLINK_RX_BYTES",), "nvlink_rx", _same),
    *(
        DcgmField(id_, (f"DCGM_FI_DEV_CLOCKS_EVENT_REASON_{name}_NS",), column, _whole)
        for id_, name, column in (
            (1420, "SW_POWER_CAP", "throttle_sw_power_cap_ns"),
            (1421, "SYNC_BOOST", "throttle_sync_boost_ns"),
            (1422, "SW_THERM_SLOWDOWN", "throttle_sw_thermal_ns"),
            (1423, "HW_THERM_SLOWDOWN", "throttle_hw_thermal_ns"),
            (1424, "HW_POWER_BRAKE_SLOWDOWN", "throttle_hw_power_brake_ns"),
        )
    ),
)

_BY_NAME = {name: each for each in FIELDS for name in each.names}


def field_of(metric: str) -> DcgmField | None:
    """Return the field that a metric of this name tells, or None."""
    return _BY_NAME.get(metric)


def host_of(labels: Mapping[str, str]) -> str:
    """Return the host that a series is of, or "". Its name is the exporter's, often a pod's."""
    return labels.get("Hostname") or labels.get("hostname") or ""


def job_of(labels: Mapping[str, str]) -> str | None:
    """Return the holder of the GPU, as far as the exporter knows: a batch job, or a pod."""
    return labels.get("hpc_job") or labels.get("pod") or labels.get("pod_name") or None


@dataclass
class GpuReading:
    """All that one exposition says of one GPU, in the contract's fields and units."""

    host: str
    gpu: int
    uuid: str = ""
    job: str | None = None
    values: dict[str, Value] = field(default_factory=dict)
    _ranks: dict[str, int] = field(default_factory=dict)
    _instances: set[str] = field(default_factory=set)

    def add(self, told: Told, labels: Mapping[str, str], value: float) -> None:
        """Take one value. Of several of one field, the best source is kept."""
        self.uuid = self.uuid or labels.get("UUID") or labels.get("uuid") or ""
        self.job = self.job or job_of(labels)
        converted = told.convert(value) if is_told(value) else None
        if converted is None:
            return
        instance = labels.get("GPU_I_ID")
        if instance:
            self._add_instance(told, instance, converted)
        elif told.rank <= self._ranks.get(told.column, math.inf):
            self._ranks[told.column] = told.rank
            self.values[told.column] = converted

    def _add_instance(self, told: Told, instance: str, value: Value) -> None:
        """Take a value of one MIG instance: memory adds up; of the rest the GPU has but one."""
        self._instances.add(instance)
        self.values["mig_instances"] = len(self._instances)
        if told.column == "mem_used":
            self.values["mem_used"] = self.values.get("mem_used", 0) + value
        elif told.rank < self._ranks.get(told.column, math.inf) and told.column != "util":
            self._ranks[told.column] = told.rank
            self.values[told.column] = value


def gather(series: Iterable[tuple[str, Mapping[str, str], float]]) -> list[GpuReading]:
    """Return one reading for each GPU in ``series``: metric, labels and value of each.

    What is no metric of DCGM, or of no GPU, is passed over.
    """
    found: dict[tuple[str, int], GpuReading] = {}
    for metric, labels, value in series:
        told = field_of(metric)
        index = labels.get("gpu", "")
        if told is None or not index.isdecimal():
            continue
        key = (host_of(labels), int(index))
        found.setdefault(key, GpuReading(*key)).add(told, labels, value)
    return list(found.values())


def is_told(value: float) -> bool:
    """Say whether a value is valid: neither missing, nor one that stands for "blank"."""
    return math.isfinite(value) and not any(low <= value < high for low, high in _BLANKS)
