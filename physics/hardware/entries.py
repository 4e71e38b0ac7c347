"""What an entry of the catalogue is. No figures here, and no formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from physics import power
from physics.errors import ImpossibleArgumentError
from physics.goodput import LossShares
from physics.law import Values
from physics.scaling import EfficiencyTable

__all__ = [
    "UNMEASURED",
    "Accelerator",
    "BudgetReference",
    "Cluster",
    "Component",
    "CoolingKind",
    "EfficiencyReference",
    "Entry",
    "Figure",
    "Link",
    "MigProfile",
    "PowerCurveReference",
    "PueReference",
    "RackKind",
    "References",
    "Source",
    "Workload",
]


#: The power curve for GPUs that nobody has measured under caps.
UNMEASURED = "unmeasured"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a figure stands. ``as_of`` is the date of the document: year, or year and month."""

    document: str
    publisher: str
    as_of: str
    #: True for what nobody publishes: a convention, a plan, a guess of the document itself.
    estimated: bool = False
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """One number of the catalogue with its source. The name ends in its unit."""

    name: str
    value: float
    source: Source


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A thing of the catalogue. A figure that has no source is None."""

    name: str
    #: Of all figures, but of those that ``sources`` names.
    source: Source
    sources: Mapping[str, Source] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    def source_of(self, figure: str) -> Source:
        """Return the source of one figure by its name."""
        return self.sources.get(figure, self.source)

    def figures(self) -> tuple[Figure, ...]:
        """Return the figures that the entry holds, in the order of its fields."""
        held = ((each.name, getattr(self, each.name)) for each in fields(self))
        return tuple(
            Figure(name, value, self.source_of(name))
            for name, value in held
            if isinstance(value, int | float)
        )


@dataclass(frozen=True, kw_only=True)
class Accelerator(Entry):
    """One GPU or TPU chip. Peak rates are dense, without sparsity."""

    vendor: str
    model: str
    peak_bf16_flops: float | None = None
    peak_fp16_flops: float | None = None
    peak_fp8_flops: float | None = None
    memory_kind: str | None = None
    memory_bytes: float | None = None
    memory_bytes_per_s: float | None = None
    tdp_w: float | None = None
    idle_w: float | None = None
    slowdown_c: float | None = None
    slowdown_mem_c: float | None = None
    shutdown_c: float | None = None
    #: Names of links in the same profile: to the others of its node, and to the host.
    link: str | None = None
    host_link: str | None = None

    @property
    def peak_flops(self) -> float | None:
        """The rate that plans start from, FLOP/s: BF16, or FP16 where there is no BF16."""
        return self.peak_fp16_flops if self.peak_bf16_flops is None else self.peak_bf16_flops


@dataclass(frozen=True, kw_only=True)
class Link(Entry):
    """One port, or all the links of one accelerator together.

    Every link here sends as fast as it receives, so the total is twice a direction. Laws take a
    direction; data sheets of NVLink, Infinity Fabric and ICI print the total.
    """

    kind: str
    per_direction_bytes_per_s: float | None = None
    #: One way, from memory to memory through software: what collectives take.
    latency_s: float | None = None
    #: Which of the two bandwidths the source prints.
    printed: Literal["per direction", "total"] = "per direction"

    @property
    def total_bytes_per_s(self) -> float | None:
        """Send and receive added, B/s."""
        each_way = self.per_direction_bytes_per_s
        return None if each_way is None else 2.0 * each_way

    def figures(self) -> tuple[Figure, ...]:
        total = self.total_bytes_per_s
        if total is None:
            return super().figures()
        source = self.source_of("per_direction_bytes_per_s")
        each_way, *rest = super().figures()
        return each_way, Figure("total_bytes_per_s", total, source), *rest


@dataclass(frozen=True, kw_only=True)
class PowerCurveReference(Entry):
    """The power curve of a kind of GPU, of which every share is one of its rated power.

    ``P = static + (peak - static) · (linear · r + (1 - linear) · r^exponent)``, as the laws of
    :mod:`physics.power` take it; the errors are standard errors. ``measured_from_share`` is the
    lowest cap that somebody measured. ``cap_factors`` is the margin of the curve: at each of
    ``slowdowns``, how many times the cap by the curve keeps all but 5 % of jobs within it.
    """

    static_share: float
    static_error_share: float
    linear_share: float
    linear_error_share: float
    exponent: float
    exponent_error: float
    measured_from_share: float
    slowdowns: tuple[float, ...]
    cap_factors: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.slowdowns) != len(self.cap_factors):
            raise ImpossibleArgumentError("cap_factors", "as many as slowdowns")
        if list(self.slowdowns) != sorted(set(self.slowdowns)):
            raise ImpossibleArgumentError("slowdowns", "rising")

    @property
    def measured(self) -> bool:
        """Whether it was measured on this kind of GPU, not taken over from others."""
        return self.name != UNMEASURED

    def cap_within_w(self, *, max_slowdown: Values, peak_w: Values, rated_w: Values) -> Values:
        """Return the lowest caps that keep 95 % of jobs within a slowdown of 0 to 1, W."""
        found: Values = power.cap_within_w(
            max_slowdown=max_slowdown,
            peak_w=peak_w,
            rated_w=rated_w,
            static_w=self.static_share * rated_w,
            exponent=self.exponent,
            linear_share=self.linear_share,
            cap_factor=np.interp(max_slowdown, self.slowdowns, self.cap_factors),
            lowest_w=self.measured_from_share * rated_w,
        )
        return found


@dataclass(frozen=True, kw_only=True)
class MigProfile(Entry):
    """A GPU instance that a kind of GPU can be split into by MIG, such as ``1g.10gb``.

    Slices are of ``gpu_compute_slices`` and ``gpu_memory_slices`` that the GPU has. It begins at a
    multiple of its memory slices, and at most ``most`` of its kind stand on a GPU at once.
    """

    gpu: str
    profile: str
    compute_slices: int
    memory_slices: int
    gpu_compute_slices: int
    gpu_memory_slices: int
    most: int

    @property
    def share(self) -> float:
        """The share of the GPU that it is: of its compute or of its memory, whichever is more."""
        return max(
            self.compute_slices / self.gpu_compute_slices,
            self.memory_slices / self.gpu_memory_slices,
        )

    @property
    def starts(self) -> range:
        """The memory slices at which it may begin."""
        return range(0, self.most * self.memory_slices, self.memory_slices)


@dataclass(frozen=True, kw_only=True)
class RackKind(Entry):
    """What a rack of this kind draws."""

    power_w: float


@dataclass(frozen=True, kw_only=True)
class CoolingKind(Entry):
    """A way of heat out of a rack. ``rack_limit_w`` None: the source names no limit."""

    rack_limit_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class PueReference(Entry):
    """Facility energy over IT energy, of a kind of data center."""

    pue: float

    def __post_init__(self) -> None:
        if self.pue < 1.0:
            raise ImpossibleArgumentError("pue", "at least 1")


@dataclass(frozen=True, kw_only=True)
class Component(Entry):
    """How often one of its kind fails, at a constant rate."""

    mtbf_s: float


@dataclass(frozen=True, kw_only=True)
class Cluster(Entry):
    """A fleet that somebody has built or announced."""

    gpus: int
    nodes: int | None = None
    gpus_per_node: int | None = None


@dataclass(frozen=True, kw_only=True)
class Workload(Entry):
    """A step of training whose communication and computation somebody has compared."""

    ranks: int
    message_bytes: float
    compute_s: float
    parameters: float | None = None


@dataclass(frozen=True, kw_only=True)
class References(Entry):
    """What a well-run training job reaches of its peak, as shares."""

    mfu_low: float
    mfu_high: float
    mfu: float

    def __post_init__(self) -> None:
        for name in ("mfu_low", "mfu_high", "mfu"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ImpossibleArgumentError(name, "above 0 and at most 1")


@dataclass(frozen=True, kw_only=True)
class EfficiencyReference(Entry):
    """Scaling efficiency that somebody reached, by size: data for the laws that take a table."""

    sizes: tuple[int, ...]
    efficiencies: tuple[float, ...]

    def __post_init__(self) -> None:
        self.table()

    def table(self) -> EfficiencyTable:
        """Return it as the laws of :mod:`physics.scaling` take it."""
        return EfficiencyTable(self.sizes, self.efficiencies, self.source.document)

    def figures(self) -> tuple[Figure, ...]:
        pairs = zip(self.sizes, self.efficiencies, strict=True)
        return tuple(
            Figure(f"efficiency_{size}", share, self.source_of("efficiencies"))
            for size, share in pairs
        )


@dataclass(frozen=True, kw_only=True)
class BudgetReference(Entry):
    """How much of the wall time each kind of overhead may take."""

    pipeline_bubble_share: float = 0.0
    checkpoint_share: float = 0.0
    recovery_share: float = 0.0
    maintenance_share: float = 0.0
    pause_share: float = 0.0
    queue_wait_share: float = 0.0
    unattributed_share: float = 0.0

    def __post_init__(self) -> None:
        self.budget()

    def budget(self) -> LossShares:
        """Return it as the laws of :mod:`physics.goodput` take it."""
        return LossShares(**{each.name: getattr(self, each.name) for each in fields(LossShares)})
