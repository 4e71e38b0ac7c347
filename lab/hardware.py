"""The hardware models of the twin: the figures that the inventory gives, and their behavior.

Ratings are the vendors'. Where there are measurements of real machines, the rest is fitted to them:
``python -m lab calibrate`` prints the errors, which ``docs/explanation/calibration.md`` explains.
"""

from __future__ import annotations

from dataclasses import dataclass

from physics.power import POWER_EXPONENT


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
    #: Of power over relative clock.
    exponent: float = POWER_EXPONENT
    #: The part of the resistance that heats up and cools down with the die, and how fast that is;
    #: the rest is the heat sink's.
    fast_resistance_c_per_w: float = 0.0
    fast_time_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class HostModel:
    """A node less its GPUs. Its power is at the wall, with the supplies' loss at no load."""

    name: str
    rated_w: float
    idle_w: float
    height_u: int
    cpu_mem_bytes: int
    #: What the supplies lose of each watt that the node's parts draw.
    psu_loss_share: float = 0.009


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
    capacitance_j_per_c=370.0,
    # Shares as of the H200.
    fast_resistance_c_per_w=0.042,
    fast_time_s=0.15,
    nvlink_bytes_per_s=450e9,
    pcie_bytes_per_s=64e9,
    nic_bytes_per_s=50e9,
)

H200 = GpuModel(
    name="H200-SXM5-141GB",
    rated_w=700.0,
    idle_w=78.0,
    static_w=240.0,
    dynamic_w=450.0,
    slowdown_c=87.0,
    slowdown_mem_c=95.0,
    shutdown_c=92.0,
    sm_max_mhz=1980.0,
    sm_idle_mhz=345.0,
    mem_mhz=3201.0,
    mem_bytes=150_754_820_096,
    # A recording at 10 Hz under steps of load: four fifths of the rise are there at once.
    resistance_c_per_w=0.036,
    capacitance_j_per_c=520.0,
    fast_resistance_c_per_w=0.029,
    fast_time_s=0.15,
    nvlink_bytes_per_s=450e9,
    pcie_bytes_per_s=64e9,
    nic_bytes_per_s=50e9,
)

A100 = GpuModel(
    name="A100-SXM4-80GB",
    rated_w=400.0,
    idle_w=62.0,
    static_w=145.0,
    dynamic_w=245.0,
    slowdown_c=89.0,
    slowdown_mem_c=95.0,
    shutdown_c=92.0,
    sm_max_mhz=1410.0,
    sm_idle_mhz=210.0,
    mem_mhz=1593.0,
    mem_bytes=85_899_345_920,
    # In all, of a fleet in air; fast, of a recording every 13 ms of a step of load.
    resistance_c_per_w=0.1,
    capacitance_j_per_c=660.0,
    fast_resistance_c_per_w=0.055,
    fast_time_s=0.2,
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
#: In a tank: no fans, so that its power hardly changes with the load.
IMMERSED_H100 = HostModel(
    name="immersed-H100-host",
    rated_w=1800.0,
    idle_w=1660.0,
    height_u=6,
    cpu_mem_bytes=2 << 40,
)
HGX_H200 = HostModel(
    name="HGX-H200-host", rated_w=4600.0, idle_w=1670.0, height_u=6, cpu_mem_bytes=2 << 40
)
HGX_A100 = HostModel(
    name="HGX-A100-host", rated_w=3300.0, idle_w=900.0, height_u=5, cpu_mem_bytes=1 << 40
)
L40S_HOST = HostModel(
    name="L40S-8-host", rated_w=1600.0, idle_w=450.0, height_u=4, cpu_mem_bytes=1 << 39
)

GPU_MODELS = (H100, H200, A100, L40S)
HOST_MODELS = (HGX_H100, IMMERSED_H100, HGX_H200, HGX_A100, L40S_HOST)
