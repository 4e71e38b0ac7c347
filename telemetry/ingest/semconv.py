"""OpenTelemetry's metrics of hardware (``hw.*``) as fields of the contract.

Names, units and attributes are those of the semantic conventions for hardware, as of 2026 still in
development. A GPU's temperatures and fans are components of their own there, whose ``hw.parent`` is
the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headroom.dcgm import Value

__all__ = ["METRICS", "HwField", "field_of", "gpu_id_of"]


@dataclass(frozen=True)
class HwField:
    """A metric of hardware as a field of the contract."""

    column: str
    convert: Callable[[float], Value | None]
    rank: int = 0


def _same(value: float) -> float:
    return value


def _percent(ratio: float) -> float:
    return 100 * ratio


#: Metrics that tell one thing of a GPU.
METRICS = {
    "hw.power": HwField("power_w", _same),
    "hw.energy": HwField("energy_j", _same),
    "hw.gpu.memory.usage": HwField("mem_used", round),
    "hw.gpu.utilization": HwField("util", _percent),
    "hw.errors": HwField("ecc", round),
    "hw.temperature": HwField("temp_c", _same),
    "hw.fan.speed_ratio": HwField("fan", _percent),
}
_MEMORY_TEMPERATURE = HwField("temp_mem_c", _same)
#: Parts of a name or place that say that a sensor is at the memory.
_AT_MEMORY = ("mem", "hbm", "vram")


def field_of(metric: str, labels: Mapping[str, str]) -> HwField | None:
    """Return the field of a GPU that ``metric`` tells, or None."""
    told = METRICS.get(metric)
    if told is None or not gpu_id_of(labels) or not _is_of_a_gpu(metric, labels):
        return None
    if metric == "hw.errors":
        return told if labels.get("error.type") == "uncorrected" else None
    if metric == "hw.gpu.utilization":
        return told if labels.get("hw.gpu.task", "general") == "general" else None
    if metric == "hw.temperature" and _is_at_memory(labels):
        return _MEMORY_TEMPERATURE
    return told


def gpu_id_of(labels: Mapping[str, str]) -> str:
    """Return the id of the GPU that the attributes are of, or ""."""
    own = labels.get("hw.id", "")
    return own if labels.get("hw.type", "gpu") == "gpu" else labels.get("hw.parent", "")


def _is_of_a_gpu(metric: str, labels: Mapping[str, str]) -> bool:
    if metric.startswith("hw.gpu."):
        return True
    kind = labels.get("hw.type")
    if kind == "gpu":
        return True
    # A sensor of a GPU; its parent says so by its id.
    return kind in ("temperature", "fan") and "gpu" in labels.get("hw.parent", "").lower()


def _is_at_memory(labels: Mapping[str, str]) -> bool:
    place = f"{labels.get('hw.sensor_location', '')} {labels.get('hw.name', '')}".lower()
    return any(part in place for part in _AT_MEMORY)
