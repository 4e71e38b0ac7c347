"""The hardware models of the twin: the figures that the inventory gives, and their behavior.

Their figures are data: ``hardware.toml``, which says where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Annotated, TypeAlias

import msgspec

from physics.hardware import CURRENT, PowerCurveReference

_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_Whole: TypeAlias = Annotated[int, msgspec.Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """A GPU. Absent parts (NVLink on a PCIe card, a sensor that NVML does not give) are None."""

    name: str
    rated_w: _Positive
    idle_w: _Positive
    #: Drawn at full clock by one that is awake, and on top of it by a full load.
    awake_w: _Positive
    dynamic_w: _Positive
    slowdown_c: _Positive
    slowdown_mem_c: _Positive | None = None
    shutdown_c: _Positive
    sm_max_mhz: _Positive
    sm_idle_mhz: _Positive
    mem_mhz: _Positive
    mem_bytes: _Whole
    resistance_c_per_w: _Positive
    capacitance_j_per_c: _Positive
    nvlink_bytes_per_s: _Positive | None = None
    pcie_bytes_per_s: _Positive
    nic_bytes_per_s: _Positive
    #: The part of the resistance that heats up and cools down with the die, and how fast that is;
    #: the rest is the heat sink's.
    fast_resistance_c_per_w: _NotNegative = 0.0
    fast_time_s: _Positive = 1.0
    #: Another curve of power over clock than the catalogue has for a GPU of this name.
    own_curve: PowerCurveReference | None = None

    @property
    def power_curve(self) -> PowerCurveReference:
        """The curve of power over clock: that which the server takes for a GPU of this name."""
        return self.own_curve or CURRENT.power_curve(self.name)


@dataclass(frozen=True, kw_only=True)
class HostModel:
    """A node less its GPUs. Its power is at the wall, with the supplies' loss at no load."""

    name: str
    rated_w: _Positive
    idle_w: _Positive
    height_u: _Whole
    cpu_mem_bytes: _Whole
    #: What the supplies lose of each watt that the node's parts draw.
    psu_loss_share: _NotNegative = 0.009


@dataclass(frozen=True, kw_only=True)
class _Models:
    """The models of ``hardware.toml`` by key."""

    gpus: dict[str, GpuModel]
    hosts: dict[str, HostModel]


def models_of(text: str) -> _Models:
    """Return the models that a TOML text describes. Raises :class:`msgspec.ValidationError`."""
    document = msgspec.toml.decode(text)
    for section, kind in (("gpus", GpuModel), ("hosts", HostModel)):
        known = {each.name for each in fields(kind)}
        for key, figures in document[section].items():
            for name in sorted(figures.keys() - known):
                raise msgspec.ValidationError(f"{section}.{key} has no {name}")
    return msgspec.convert(document, _Models)


_MODELS = models_of(files("lab").joinpath("hardware.toml").read_text(encoding="utf-8"))

H100, H200, A100, L40S = (_MODELS.gpus[key] for key in ("H100", "H200", "A100", "L40S"))
HGX_H100, IMMERSED_H100 = _MODELS.hosts["HGX_H100"], _MODELS.hosts["IMMERSED_H100"]
HGX_H200, HGX_A100 = _MODELS.hosts["HGX_H200"], _MODELS.hosts["HGX_A100"]
L40S_HOST = _MODELS.hosts["L40S_HOST"]

GPU_MODELS = (H100, H200, A100, L40S)
HOST_MODELS = (HGX_H100, IMMERSED_H100, HGX_H200, HGX_A100, L40S_HOST)
