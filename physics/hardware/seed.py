"""The seed's figures (the appendix Fleet Foundations), as it states them, newer ones or not."""

from __future__ import annotations

from dataclasses import replace

from physics.goodput import SEED_BUDGET
from physics.hardware.entries import (
    Accelerator,
    BudgetReference,
    Cluster,
    Component,
    CoolingKind,
    EfficiencyReference,
    Link,
    PueReference,
    RackKind,
    References,
    Source,
    Workload,
)
from physics.hardware.profile import Profile
from physics.scaling import SEED_TABLE_5

__all__ = ["SEED"]


def _stated(where: str, *, estimated: bool = False, note: str = "") -> Source:
    return Source(
        document=f"Fleet Foundations, {where}",
        publisher="Machine Learning Systems (open textbook)",
        as_of="2026",
        estimated=estimated,
        note=note,
    )


_HARDWARE = _stated("Table 10")
_BANDWIDTH = _stated("Table 3")
_LATENCY = _stated("Table 4", estimated=True, note="a convention; no vendor states it")
_POWER = _stated("Table 9")

_ACCELERATORS = [
    Accelerator(
        name="H100",
        aliases=("H100 SXM", "H100 SXM5", "NVIDIA H100 80GB HBM3"),
        vendor="NVIDIA",
        model="H100 SXM5",
        source=_stated("the single-accelerator roofline"),
        sources={"tdp_w": _POWER},
        peak_bf16_flops=989e12,
        memory_bytes_per_s=3.35e12,
        tdp_w=700.0,
        link="NVLink 4.0",
    ),
    Accelerator(
        name="B200",
        aliases=("HGX B200", "NVIDIA B200"),
        vendor="NVIDIA",
        model="B200",
        source=_HARDWARE,
        peak_bf16_flops=2250e12,
        memory_bytes=192e9,
        memory_bytes_per_s=8e12,
        tdp_w=1000.0,
        link="NVLink 5.0",
    ),
    Accelerator(
        name="MI300X",
        aliases=("AMD Instinct MI300X",),
        vendor="AMD",
        model="Instinct MI300X",
        source=_HARDWARE,
        peak_bf16_flops=1307e12,
        memory_bytes=192e9,
        memory_bytes_per_s=5.3e12,
        tdp_w=750.0,
        link="Infinity Fabric",
    ),
    Accelerator(
        name="TPU v5p",
        vendor="Google",
        model="TPU v5p",
        source=_BANDWIDTH,
        link="ICI v5p",
    ),
    Accelerator(
        name="TPU v6",
        aliases=("TPU v6e", "Trillium"),
        vendor="Google",
        model="TPU v6e",
        source=_HARDWARE,
        sources={
            "tdp_w": _stated(
                "Table 10",
                estimated=True,
                note="Google states none; mlsysim 0.3.0 carries 300 W, half of it",
            )
        },
        peak_bf16_flops=918e12,
        memory_bytes=32e9,
        memory_bytes_per_s=1.6e12,
        tdp_w=600.0,
        link="ICI v6e",
    ),
]

_LINKS = [
    Link(
        name="NVLink 4.0",
        aliases=("NVLink 4", "NVLink H100"),
        kind="NVLink",
        source=_BANDWIDTH,
        per_direction_bytes_per_s=450e9,
        printed="total",
    ),
    Link(
        name="NVLink 5.0",
        aliases=("NVLink 5", "NVLink B200"),
        kind="NVLink",
        source=_HARDWARE,
        per_direction_bytes_per_s=900e9,
        printed="total",
    ),
    Link(
        name="Infinity Fabric",
        aliases=("Infinity Fabric MI300X",),
        kind="Infinity Fabric",
        source=_stated("Table 10", estimated=True, note="printed as about 890 GB/s"),
        per_direction_bytes_per_s=445e9,
        printed="total",
    ),
    Link(
        name="ICI v5p",
        aliases=("TPU v5p ICI",),
        kind="ICI",
        source=_BANDWIDTH,
        per_direction_bytes_per_s=600e9,
        printed="total",
    ),
    Link(
        name="ICI v6e",
        aliases=("TPU v6e ICI", "TPU v6 ICI"),
        kind="ICI",
        source=_stated("Table 10", estimated=True, note="2.5 times what Google states"),
        per_direction_bytes_per_s=1000e9,
        printed="total",
    ),
    Link(
        name="PCIe Gen5 x16",
        aliases=("PCIe Gen5", "PCIe 5"),
        kind="PCIe",
        source=_stated("Table 3", note="the raw rate: 63.02 GB/s are left after 128b/130b"),
        per_direction_bytes_per_s=64e9,
    ),
    Link(
        name="InfiniBand HDR",
        aliases=("IB HDR", "HDR"),
        kind="InfiniBand",
        source=_BANDWIDTH,
        sources={"latency_s": _LATENCY},
        per_direction_bytes_per_s=25e9,
        latency_s=7e-6,
    ),
    Link(
        name="InfiniBand NDR",
        aliases=("IB NDR", "NDR"),
        kind="InfiniBand",
        source=_BANDWIDTH,
        sources={"latency_s": _LATENCY},
        per_direction_bytes_per_s=50e9,
        latency_s=5e-6,
    ),
    Link(
        name="InfiniBand XDR",
        aliases=("IB XDR", "XDR"),
        kind="InfiniBand",
        source=_BANDWIDTH,
        per_direction_bytes_per_s=100e9,
    ),
    Link(
        name="InfiniBand GXDR",
        aliases=("IB GXDR", "GXDR", "IB GDR", "GDR"),
        kind="InfiniBand",
        source=_stated("Table 3", note="on the roadmap; the trade association calls it GDR"),
        per_direction_bytes_per_s=200e9,
    ),
    Link(
        name="RoCE 100 GbE",
        aliases=("RoCE", "RoCE v2", "100GbE"),
        kind="Ethernet",
        source=_BANDWIDTH,
        sources={"latency_s": _LATENCY},
        per_direction_bytes_per_s=12.5e9,
        latency_s=10e-6,
    ),
    Link(
        name="TCP/IP",
        aliases=("TCP", "Ethernet"),
        kind="Ethernet",
        source=_LATENCY,
        latency_s=50e-6,
    ),
    Link(
        name="WAN",
        aliases=("cross-data-center", "cross-DC"),
        kind="WAN",
        source=_stated(
            "Table 4",
            note="one way over 8,000 km of fiber; take the fiber law for another distance",
        ),
        latency_s=40e-3,
    ),
]

_RACKS = [
    RackKind(name="traditional", source=_POWER, power_w=12e3),
    RackKind(name="AI", aliases=("AI cluster",), source=_POWER, power_w=70e3),
    RackKind(name="AI high density", source=_POWER, power_w=100e3),
]

_NO_LIMIT = _stated("Table 12", note="named as the way out above the air limit, without a limit")
_COOLING = [
    CoolingKind(name="air", source=_POWER, rack_limit_w=30e3),
    CoolingKind(name="rear-door", source=_NO_LIMIT),
    CoolingKind(name="direct-to-chip", aliases=("liquid",), source=_NO_LIMIT),
    CoolingKind(name="immersion", source=_NO_LIMIT),
]

_PUE = [
    PueReference(name="liquid-cooled AI", aliases=("liquid",), source=_POWER, pue=1.06),
    PueReference(name="best air-cooled", aliases=("air",), source=_POWER, pue=1.12),
    PueReference(name="industry average", aliases=("typical",), source=_POWER, pue=1.40),
    PueReference(
        name="legacy enterprise", aliases=("legacy",), source=_stated("Table 13"), pue=1.58
    ),
]

_COMPONENTS = [
    Component(
        name="GPU",
        source=_stated("Table 6", note="50,000 h, GPU alone: no host, network, software"),
        mtbf_s=50_000 * 3600.0,
    ),
]

_CLUSTERS = [
    Cluster(
        name="DGX H100 SuperPOD",
        source=_stated("current hardware reference"),
        gpus=256,
        nodes=32,
        gpus_per_node=8,
    ),
    Cluster(
        name="Meta 24k H100",
        aliases=("Grand Teton",),
        source=_stated("current hardware reference", note="one of two; nodes from mlsysim 0.3.0"),
        gpus=24_576,
        nodes=3072,
        gpus_per_node=8,
    ),
    Cluster(
        name="TPU v5p pod",
        source=_stated("current hardware reference", note="a torus of 16 x 20 x 28"),
        gpus=8960,
    ),
    Cluster(
        name="largest announced",
        source=_stated("current hardware reference", note="as of 2025; more than this"),
        gpus=100_000,
    ),
]

_RATIOS = _stated("Table 11")
_WORKLOADS = [
    Workload(
        name="7B data parallel",
        aliases=("7B",),
        source=_RATIOS,
        ranks=256,
        parameters=7e9,
        message_bytes=14e9,
        compute_s=5.0,
    ),
    Workload(
        name="350M data parallel",
        aliases=("350M", "BERT-Large"),
        source=replace(
            _RATIOS, note="the time printed needs 680 MB: 340 million parameters of BERT-Large"
        ),
        ranks=256,
        parameters=3.4e8,
        message_bytes=680e6,
        compute_s=10e-3,
    ),
    Workload(
        name="tensor parallel layer",
        source=replace(_RATIOS, note="16 MB stand in the source of the book, not in its text"),
        ranks=8,
        message_bytes=16e6,
        compute_s=1e-3,
    ),
]

_REFERENCES = [
    References(
        name="training",
        source=_stated("compute numbers"),
        sources={"mfu": _stated("Systems Perspective 1.4")},
        mfu_low=0.30,
        mfu_high=0.50,
        mfu=0.50,
    ),
]

_EFFICIENCY_TABLES = [
    EfficiencyReference(
        name="training",
        source=_stated("Table 5", note="empirical; no curve of Amdahl or Gunther fits it"),
        sizes=SEED_TABLE_5.sizes,
        efficiencies=SEED_TABLE_5.efficiencies,
    ),
]

_BUDGETS = [
    BudgetReference(
        name="training",
        source=_stated("Table 8", note="shares of the wall time: they add up"),
        **vars(SEED_BUDGET),
    ),
]

#: What the seed states. Where this differs from ``CURRENT``, the newer figure is the better one.
SEED = Profile(
    name="seed",
    accelerators={each.name: each for each in _ACCELERATORS},
    links={each.name: each for each in _LINKS},
    racks={each.name: each for each in _RACKS},
    cooling_kinds={each.name: each for each in _COOLING},
    pue_references={each.name: each for each in _PUE},
    components={each.name: each for each in _COMPONENTS},
    clusters={each.name: each for each in _CLUSTERS},
    workloads={each.name: each for each in _WORKLOADS},
    references={each.name: each for each in _REFERENCES},
    efficiency_tables={each.name: each for each in _EFFICIENCY_TABLES},
    overhead_budgets={each.name: each for each in _BUDGETS},
)
