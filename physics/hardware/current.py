"""Figures of vendors and other primary sources, as of 2026.

To extend: add an entry with its source. A figure without one stays out. What the seed states and
nobody has stated since is carried over with the seed as its source.
"""

from __future__ import annotations

from dataclasses import replace

from physics.hardware.entries import (
    Accelerator,
    Component,
    CoolingKind,
    Link,
    PueReference,
    RackKind,
    Source,
)
from physics.hardware.seed import SEED

__all__ = ["CURRENT"]


def _vendor(document: str, publisher: str, as_of: str, *, note: str = "") -> Source:
    return Source(document=document, publisher=publisher, as_of=as_of, note=note)


_H100 = _vendor("H100 Tensor Core GPU architecture, white paper 1.04", "NVIDIA", "2023")
_H200 = _vendor("H200 Tensor Core GPU data sheet", "NVIDIA", "2024", note="peak: half of sparse")
_HGX_B200 = _vendor(
    "HGX platform page and DGX B200 data sheet", "NVIDIA", "2025", note="an eighth of the system"
)
_A100 = _vendor("A100 80GB Tensor Core GPU data sheet", "NVIDIA", "2021-06")
_L40S = _vendor("L40S data sheet", "NVIDIA", "2023")
_V100 = _vendor("V100 Tensor Core GPU data sheet", "NVIDIA", "2020-01")
_MI300X = _vendor("Instinct MI300X accelerator data sheet", "AMD", "2023-12")
_TPU_V5P = _vendor("Cloud TPU documentation, TPU v5p", "Google", "2026")
_TPU_V6E = _vendor("Cloud TPU documentation, TPU v6e", "Google", "2026")
_PCIE = _vendor(
    "PCI Express Base Specification", "PCI-SIG", "2019", note="after 128b/130b, before packets"
)
_IBTA = _vendor("InfiniBand roadmap, 4x ports", "InfiniBand Trade Association", "2024")
_ETHERNET = _vendor("IEEE 802.3, line rate", "IEEE", "2022")


def _read(gpu: str, as_of: str, note: str) -> Source:
    return Source(
        document=f"nvidia-smi of one idle {gpu}, in the repository nvidia_gpu_exporter",
        publisher="utkuozdemir",
        as_of=as_of,
        note=note,
    )


_IDLE_H100 = _read("H100", "2026-07", "69.85 W, no process")
_IDLE_H200 = _read("H200", "2026-07", "77.67 W, no process")
_LIMIT_H200 = _read("H200", "2026-07", "temperature + margin + 2: the same idle and under load")
_A100_XML = Source(
    document="nvidia-smi of an A100-SXM4-80GB, test data of the repository telegraf",
    publisher="InfluxData",
    as_of="2023-08",
    note="a part of 500 W in a vendor's server",
)
_CONVENTION = Source(
    document="mlsysim 0.3.0, interconnect latencies",
    publisher="Machine Learning Systems (open textbook)",
    as_of="2026",
    estimated=True,
    note="a convention; no vendor states it",
)

_ACCELERATORS = [
    Accelerator(
        name="H100",
        aliases=SEED.accelerators["H100"].aliases,
        vendor="NVIDIA",
        model="H100 SXM5 80 GB",
        source=_H100,
        sources={"idle_w": _IDLE_H100},
        peak_bf16_flops=989.4e12,
        peak_fp16_flops=989.4e12,
        peak_fp8_flops=1978.9e12,
        memory_kind="HBM3",
        memory_bytes=80e9,
        memory_bytes_per_s=3.35e12,
        tdp_w=700.0,
        idle_w=69.85,
        link="NVLink 4.0",
        host_link="PCIe Gen5 x16",
    ),
    Accelerator(
        name="H200",
        aliases=("H200 SXM", "NVIDIA H200"),
        vendor="NVIDIA",
        model="H200 SXM5 141 GB",
        source=_H200,
        sources={"idle_w": _IDLE_H200, "slowdown_c": _LIMIT_H200, "shutdown_c": _LIMIT_H200},
        peak_bf16_flops=989.5e12,
        peak_fp16_flops=989.5e12,
        peak_fp8_flops=1979e12,
        memory_kind="HBM3e",
        memory_bytes=141e9,
        memory_bytes_per_s=4.8e12,
        tdp_w=700.0,
        idle_w=77.67,
        slowdown_c=89.0,
        shutdown_c=95.0,
        link="NVLink 4.0",
        host_link="PCIe Gen5 x16",
    ),
    Accelerator(
        name="B200",
        aliases=SEED.accelerators["B200"].aliases,
        vendor="NVIDIA",
        model="HGX B200 180 GB",
        source=_HGX_B200,
        sources={"memory_bytes": replace(_HGX_B200, note="1,440 GB by eight; 192 GB are fitted")},
        peak_bf16_flops=2250e12,
        peak_fp16_flops=2250e12,
        peak_fp8_flops=4500e12,
        memory_kind="HBM3e",
        memory_bytes=180e9,
        memory_bytes_per_s=8e12,
        tdp_w=1000.0,
        link="NVLink 5.0",
        host_link="PCIe Gen5 x16",
    ),
    Accelerator(
        name="A100",
        aliases=("A100 SXM", "A100 80GB", "A100-SXM4-80GB"),
        vendor="NVIDIA",
        model="A100 SXM4 80 GB",
        source=_A100,
        sources=dict.fromkeys(("slowdown_c", "slowdown_mem_c", "shutdown_c"), _A100_XML),
        peak_bf16_flops=312e12,
        peak_fp16_flops=312e12,
        memory_kind="HBM2e",
        memory_bytes=80e9,
        memory_bytes_per_s=2.039e12,
        tdp_w=400.0,
        slowdown_c=89.0,
        slowdown_mem_c=95.0,
        shutdown_c=92.0,
        link="NVLink 3.0",
        host_link="PCIe Gen4 x16",
    ),
    Accelerator(
        name="L40S",
        aliases=("NVIDIA L40S",),
        vendor="NVIDIA",
        model="L40S 48 GB",
        source=_L40S,
        peak_bf16_flops=362.05e12,
        peak_fp16_flops=362.05e12,
        peak_fp8_flops=733e12,
        memory_kind="GDDR6",
        memory_bytes=48e9,
        memory_bytes_per_s=864e9,
        tdp_w=350.0,
        link="PCIe Gen4 x16",
        host_link="PCIe Gen4 x16",
    ),
    Accelerator(
        name="V100",
        aliases=("V100 SXM2", "Tesla V100"),
        vendor="NVIDIA",
        model="V100 SXM2 32 GB",
        source=replace(_V100, note="no BF16 in its tensor cores"),
        peak_fp16_flops=125e12,
        memory_kind="HBM2",
        memory_bytes=32e9,
        memory_bytes_per_s=900e9,
        tdp_w=300.0,
        link="NVLink 2.0",
        host_link="PCIe Gen3 x16",
    ),
    Accelerator(
        name="MI300X",
        aliases=SEED.accelerators["MI300X"].aliases,
        vendor="AMD",
        model="Instinct MI300X 192 GB",
        source=_MI300X,
        peak_bf16_flops=1307.4e12,
        peak_fp16_flops=1307.4e12,
        peak_fp8_flops=2614.9e12,
        memory_kind="HBM3",
        memory_bytes=192e9,
        memory_bytes_per_s=5.3e12,
        tdp_w=750.0,
        link="Infinity Fabric",
        host_link="PCIe Gen5 x16",
    ),
    Accelerator(
        name="TPU v5p",
        vendor="Google",
        model="TPU v5p",
        source=_TPU_V5P,
        sources={"memory_bytes": replace(_TPU_V5P, note="other pages of it print 95 GiB")},
        peak_bf16_flops=459e12,
        peak_fp8_flops=459e12,
        memory_kind="HBM2e",
        memory_bytes=95e9,
        memory_bytes_per_s=2.765e12,
        link="ICI v5p",
    ),
    Accelerator(
        name="TPU v6",
        aliases=SEED.accelerators["TPU v6"].aliases,
        vendor="Google",
        model="TPU v6e (Trillium)",
        source=_TPU_V6E,
        peak_bf16_flops=918e12,
        memory_kind="HBM",
        memory_bytes=32e9,
        memory_bytes_per_s=1.638e12,
        link="ICI v6e",
        host_link="PCIe Gen5 x16",
    ),
]


def _nvlink(generation: str, aliases: tuple[str, ...], each_way: float, source: Source) -> Link:
    return Link(
        name=f"NVLink {generation}",
        aliases=aliases,
        kind="NVLink",
        source=source,
        sources={"latency_s": _CONVENTION},
        per_direction_bytes_per_s=each_way,
        latency_s=0.5e-6,
        printed="total",
    )


_LINKS = [
    _nvlink("2.0", ("NVLink 2", "NVLink V100"), 150e9, _V100),
    _nvlink("3.0", ("NVLink 3", "NVLink A100"), 300e9, _A100),
    _nvlink("4.0", SEED.links["NVLink 4.0"].aliases, 450e9, _H100),
    _nvlink("5.0", SEED.links["NVLink 5.0"].aliases, 900e9, _HGX_B200),
    Link(
        name="Infinity Fabric",
        aliases=SEED.links["Infinity Fabric"].aliases,
        kind="Infinity Fabric",
        source=replace(_MI300X, note="seven links of 128 GB/s total"),
        per_direction_bytes_per_s=448e9,
        printed="total",
    ),
    Link(
        name="ICI v5p",
        aliases=SEED.links["ICI v5p"].aliases,
        kind="ICI",
        source=_TPU_V5P,
        per_direction_bytes_per_s=600e9,
        printed="total",
    ),
    Link(
        name="ICI v6e",
        aliases=SEED.links["ICI v6e"].aliases,
        kind="ICI",
        source=_TPU_V6E,
        per_direction_bytes_per_s=400e9,
        printed="total",
    ),
    Link(
        name="PCIe Gen3 x16",
        aliases=("PCIe Gen3", "PCIe 3"),
        kind="PCIe",
        source=_PCIE,
        per_direction_bytes_per_s=16e9 * 128 / 130,
    ),
    Link(
        name="PCIe Gen4 x16",
        aliases=("PCIe Gen4", "PCIe 4"),
        kind="PCIe",
        source=_PCIE,
        per_direction_bytes_per_s=32e9 * 128 / 130,
    ),
    Link(
        name="PCIe Gen5 x16",
        aliases=SEED.links["PCIe Gen5 x16"].aliases,
        kind="PCIe",
        source=_PCIE,
        sources={"latency_s": _CONVENTION},
        per_direction_bytes_per_s=64e9 * 128 / 130,
        latency_s=1e-6,
    ),
    replace(
        SEED.links["InfiniBand HDR"],
        source=_IBTA,
    ),
    replace(SEED.links["InfiniBand NDR"], source=_IBTA),
    replace(SEED.links["InfiniBand XDR"], source=_IBTA),
    replace(
        SEED.links["InfiniBand GXDR"],
        source=replace(_IBTA, estimated=True, note="GDR on the roadmap, planned for 2028"),
    ),
    replace(SEED.links["RoCE 100 GbE"], source=_ETHERNET),
    replace(
        SEED.links["RoCE 100 GbE"],
        name="RoCE 200 GbE",
        aliases=("200GbE",),
        source=_ETHERNET,
        per_direction_bytes_per_s=25e9,
    ),
    replace(
        SEED.links["RoCE 100 GbE"],
        name="RoCE 400 GbE",
        aliases=("400GbE",),
        source=_ETHERNET,
        per_direction_bytes_per_s=50e9,
    ),
]

_RACKS = [
    RackKind(
        name="four DGX H100",
        source=_vendor("DGX H100 data sheet", "NVIDIA", "2024", note="four times 10.2 kW at most"),
        power_w=40.8e3,
    ),
    RackKind(
        name="GB200 NVL72",
        aliases=("NVL72",),
        source=Source(
            document="GB200 NVL72 rack, as system builders describe it",
            publisher="Supermicro, HPE and others",
            as_of="2025",
            estimated=True,
            note="about 120 kW; its power shelves deliver 132 kW",
        ),
        power_w=120e3,
    ),
]

_COOLING = [
    CoolingKind(
        name="rear-door",
        source=_vendor(
            "QuickSpecs, Motivair liquid-cooled door",
            "HPE",
            "2026",
            note="its largest family, 55 to 75 kW; less with warmer water",
        ),
        rack_limit_w=75e3,
    ),
    CoolingKind(
        name="direct-to-chip",
        aliases=("liquid",),
        source=Source(
            document="GB200 NVL72 power shelves",
            publisher="Supermicro",
            as_of="2025",
            estimated=True,
            note="what a shipped rack is built for, not a limit of physics",
        ),
        rack_limit_w=132e3,
    ),
]

_PUE = [
    PueReference(
        name="industry average",
        aliases=("typical",),
        source=_vendor(
            "Global Data Center Survey 2025",
            "Uptime Institute",
            "2025-07",
            note="weighted; 1.55 in the survey of 2022, 1.58 in 2023: flat for six years",
        ),
        pue=1.54,
    ),
    PueReference(
        name="Google fleet",
        aliases=("hyperscale",),
        source=_vendor("Environmental Report 2025", "Google", "2025", note="average of 2024"),
        pue=1.09,
    ),
]

_COMPONENTS = [
    Component(
        name="H100 in training",
        source=_vendor(
            "The Llama 3 Herd of Models",
            "Meta",
            "2024-07",
            note="419 unexpected interruptions of any cause in 54 days of 16,384 GPUs",
        ),
        mtbf_s=16_384 * 54 * 86_400 / 419,
    ),
]

#: Newest figures, laid over the seed's.
CURRENT = replace(
    SEED,
    name="current",
    accelerators={each.name: each for each in _ACCELERATORS},
    links={**SEED.links, **{each.name: each for each in _LINKS}},
    racks={**SEED.racks, **{each.name: each for each in _RACKS}},
    cooling_kinds={**SEED.cooling_kinds, **{each.name: each for each in _COOLING}},
    pue_references={**SEED.pue_references, **{each.name: each for each in _PUE}},
    components={**SEED.components, **{each.name: each for each in _COMPONENTS}},
)
