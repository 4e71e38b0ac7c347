"""The parts that the twin is made of: what the inventory says of them, and how they behave.

Ratings are the vendors'. The rest is set so that the twin reads like the real captures that the
tests compare it with: an H100 at full clock draws 632 W at 59 °C in a well-cooled chassis.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """A GPU. Absent parts (NVLink on a PCIe card, a sensor that NVML does not give) are None."""

    name: str
    rated_w: float
    idle_w: float
    #: Drawn under load at any clock, and on top of it by a full load at full clock.
    static_w: float
    dynamic_w: float
    slowdown_c: float
    slowdown_mem_c: float | None
    shutdown_c: float
    sm_max_mhz: float
    sm_idle_mhz: float
    mem_mhz: float
    mem_bytes: int
    resistance_c_per_w: float
    capacitance_j_per_c: float
    nvlink_bytes_per_s: float | None
    pcie_bytes_per_s: float
    nic_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class HostModel:
    """A node less its GPUs."""

    name: str
    rated_w: float
    idle_w: float
    height_u: int
    cpu_mem_bytes: int


H100 = GpuModel(
    name="H100-SXM5-80GB",
    rated_w=700.0,
    idle_w=70.0,
    static_w=250.0,
    dynamic_w=420.0,
    slowdown_c=87.0,
    slowdown_mem_c=95.0,
    shutdown_c=92.0,
    sm_max_mhz=1980.0,
    sm_idle_mhz=345.0,
    mem_mhz=2619.0,
    mem_bytes=85_520_809_984,
    resistance_c_per_w=0.052,
    capacitance_j_per_c=480.0,
    nvlink_bytes_per_s=450e9,
    pcie_bytes_per_s=64e9,
    nic_bytes_per_s=50e9,
)

A100 = GpuModel(
    name="A100-SXM4-80GB",
    rated_w=400.0,
    idle_w=58.0,
    static_w=145.0,
    dynamic_w=245.0,
    slowdown_c=89.0,
    slowdown_mem_c=95.0,
    shutdown_c=92.0,
    sm_max_mhz=1410.0,
    sm_idle_mhz=210.0,
    mem_mhz=1593.0,
    mem_bytes=85_899_345_920,
    resistance_c_per_w=0.075,
    capacitance_j_per_c=330.0,
    nvlink_bytes_per_s=300e9,
    pcie_bytes_per_s=32e9,
    nic_bytes_per_s=25e9,
)

L40S = GpuModel(
    name="L40S-48GB",
    rated_w=350.0,
    idle_w=36.0,
    static_w=130.0,
    dynamic_w=225.0,
    slowdown_c=92.0,
    slowdown_mem_c=None,
    shutdown_c=95.0,
    sm_max_mhz=2520.0,
    sm_idle_mhz=210.0,
    mem_mhz=9001.0,
    mem_bytes=48_305_799_168,
    resistance_c_per_w=0.12,
    capacitance_j_per_c=260.0,
    nvlink_bytes_per_s=None,
    pcie_bytes_per_s=32e9,
    nic_bytes_per_s=12.5e9,
)

HGX_H100 = HostModel(
    name="HGX-H100-host", rated_w=4600.0, idle_w=1400.0, height_u=6, cpu_mem_bytes=2 << 40
)
HGX_A100 = HostModel(
    name="HGX-A100-host", rated_w=3300.0, idle_w=900.0, height_u=5, cpu_mem_bytes=1 << 40
)
L40S_HOST = HostModel(
    name="L40S-8-host", rated_w=1600.0, idle_w=450.0, height_u=4, cpu_mem_bytes=1 << 39
)

GPU_MODELS = (H100, A100, L40S)
HOST_MODELS = (HGX_H100, HGX_A100, L40S_HOST)
