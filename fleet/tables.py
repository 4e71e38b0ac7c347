"""The inventory as arrays, for code that works on the whole fleet at once.

Row *i* of a table is the *i*-th element of each of its arrays. Tables point at each other by row,
never by database id; -1 is "none", NaN is "unknown".

Order: sites, domains, zones, storage endpoints, links and meters by name (within their site, where
they have one); racks by site, row, position, name; nodes by rack, position, name; GPUs by node,
index. So the racks of a site, the nodes of a rack and the GPUs of a node are each one run of rows,
which the bounds of ``FleetArrays`` give: the nodes of rack ``r`` are the rows from
``node_bounds[r]`` up to, but not with, ``node_bounds[r + 1]``.

Arrays are read-only and shared by all threads of the process. ``fleet.snapshot`` reads them from
the database; nothing here needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fleet.kinds import CoolingKind, LinkKind, MeterKind, PowerDomainKind, Side
from fleet.power_curves import PowerCurves, power_curves_of

T = TypeVar("T", bound=np.generic)

#: int64: database ids, rows of another table (-1: none), codes and small counts.
Ints: TypeAlias = npt.NDArray[np.int64]
#: float64: quantities (NaN: unknown).
Floats: TypeAlias = npt.NDArray[np.float64]
#: object: Python strings.
Texts: TypeAlias = npt.NDArray[np.object_]

#: What the ``kind`` codes stand for: a code is the place in the list.
DOMAIN_KINDS: list[str] = list(PowerDomainKind.values)
COOLING_KINDS: list[str] = list(CoolingKind.values)
LINK_KINDS: list[str] = list(LinkKind.values)
METER_KINDS: list[str] = list(MeterKind.values)
#: What ``MeterTable.target_kind`` stands for.
METER_TARGETS: list[str] = ["power_domain", "cooling_zone", "rack", "node"]
#: What ``DomainTable.side`` stands for.
SIDES: list[str] = list(Side.values)


@dataclass(frozen=True, eq=False)
class AnyTable:
    ids: Ints

    def __post_init__(self) -> None:
        for each in fields(self):
            getattr(self, each.name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def index_by_id(self) -> dict[int, int]:
        """Row by database id."""
        return {key: row for row, key in enumerate(self.ids.tolist())}


@dataclass(frozen=True, eq=False)
class _NamedTable(AnyTable):
    names: Texts

    @cached_property
    def index_by_name(self) -> dict[str, int]:
        """Row by ``names``."""
        return {name: row for row, name in enumerate(self.names.tolist())}


@dataclass(frozen=True, eq=False)
class _SiteTable(_NamedTable):
    """A table whose names are unique within a site only: look up in ``index_by_path``."""

    site: Ints
    #: "site/name"
    paths: Texts

    @cached_property
    def index_by_path(self) -> dict[str, int]:
        """Row by "site/name"."""
        return {path: row for row, path in enumerate(self.paths.tolist())}


@dataclass(frozen=True, eq=False)
class ModelTable(_NamedTable):
    """Hardware models, of GPUs and of nodes."""

    rated_w: Floats
    idle_w: Floats
    slowdown_c: Floats
    slowdown_mem_c: Floats
    shutdown_c: Floats
    sm_max_mhz: Floats

    @cached_property
    def power_curves(self) -> PowerCurves:
        """Speed and power under caps, for the models of GPUs."""
        return power_curves_of(self.names.tolist(), self.rated_w)


@dataclass(frozen=True, eq=False)
class SiteTable(_NamedTable):
    #: NaN where the site's power domains are its only limit
    budget_w: Floats


@dataclass(frozen=True, eq=False)
class DomainTable(_SiteTable):
    """Power domains."""

    #: code in DOMAIN_KINDS
    kind: Ints
    #: row in this table, or -1
    parent: Ints
    #: rated, before ``derating`` (0 to 1)
    capacity_w: Floats
    derating: Floats
    #: row of the other half of an A/B pair, or -1
    pair: Ints
    #: 0 for A, 1 for B, -1 for neither
    side: Ints


@dataclass(frozen=True, eq=False)
class ZoneTable(_SiteTable):
    """Cooling zones."""

    #: code in COOLING_KINDS
    kind: Ints
    capacity_w: Floats
    supply_c: Floats


@dataclass(frozen=True, eq=False)
class StorageTable(_SiteTable):
    """Storage endpoints."""

    #: NaN where it is not stated
    capacity_bytes_per_s: Floats


@dataclass(frozen=True, eq=False)
class RackTable(_SiteTable):
    row: Texts
    position: Ints
    height_u: Ints
    budget_w: Floats
    #: rows of power domains, or -1
    feed_a: Ints
    feed_b: Ints
    #: row of a cooling zone, or -1
    zone: Ints


@dataclass(frozen=True, eq=False)
class NodeTable(_NamedTable):
    rack: Ints
    #: row of a hardware model, or -1
    model: Ints
    #: lowest rack unit, from 1; -1 where unknown
    position_u: Ints
    height_u: Ints
    #: all but the GPUs; NaN where the node has no model
    host_rated_w: Floats
    host_idle_w: Floats
    #: row of a storage endpoint, or -1
    storage: Ints
    #: name, the same for all nodes of a site behind one leaf switch; empty where it is not stated
    switch_domain: Texts


@dataclass(frozen=True, eq=False)
class GpuTable(AnyTable):
    node: Ints
    #: index on the node
    index: Ints
    #: row of a hardware model
    model: Ints
    rated_w: Floats
    idle_w: Floats
    slowdown_c: Floats
    slowdown_mem_c: Floats
    shutdown_c: Floats
    sm_max_mhz: Floats


@dataclass(frozen=True, eq=False)
class LinkTable(_NamedTable):
    #: code in LINK_KINDS
    kind: Ints
    site: Ints
    #: the rack where it starts, also by way of ``node``; or -1
    rack: Ints
    #: the node where it starts, or -1
    node: Ints
    #: WAN: row of the site at the other end, or -1
    peer_site: Ints
    #: for each direction
    capacity_bits_per_s: Floats
    latency_s: Floats
    control_share: Floats


@dataclass(frozen=True, eq=False)
class MeterTable(_NamedTable):
    #: code in METER_KINDS
    kind: Ints
    #: code in METER_TARGETS, which says what table ``target`` is a row of
    target_kind: Ints
    target: Ints


@dataclass(frozen=True, eq=False)
class PartTable:
    """What each row of the GPUs of a fleet is where it is by what can be held.

    It is a GPU, or one slice of it; or a CPU core of a node without GPUs. ``gpu`` is the row of its
    GPU in the table of ``whole``, -1 of a core, and ``share`` how much of that it is, 0 to 1; of a
    core, how much of its node. ``place`` is its place among the slices of its GPU, -1 where it is
    none: a whole GPU, a core, or what belongs to no slice of a partitioned one.
    """

    whole: FleetArrays
    gpu: Ints
    share: Floats
    place: Ints

    @cached_property
    def is_core(self) -> npt.NDArray[np.bool_]:
        """Whether it is a core."""
        return self.gpu < 0

    @cached_property
    def is_split(self) -> npt.NDArray[np.bool_]:
        """Whether its GPU is partitioned."""
        found = np.zeros(len(self.whole.gpus), dtype=bool)
        found[list(self.whole.slices)] = True
        return self.of_gpus(found, False)

    @cached_property
    def is_rest(self) -> npt.NDArray[np.bool_]:
        """Whether it belongs to no slice of a partitioned GPU: nobody can have it."""
        return np.asarray(self.is_split & (self.place < 0))

    def of_gpus(self, values: npt.NDArray[T], of_cores: Any) -> npt.NDArray[T]:
        """Return values of the GPUs of ``whole`` by part; ``of_cores`` for cores."""
        return np.append(values, np.array([of_cores], dtype=values.dtype))[self.gpu]


@dataclass(frozen=True, eq=False)
class FleetArrays:
    """The whole inventory as it was at one ``generation``."""

    generation: int
    models: ModelTable
    sites: SiteTable
    domains: DomainTable
    zones: ZoneTable
    storage: StorageTable
    racks: RackTable
    nodes: NodeTable
    gpus: GpuTable
    links: LinkTable
    meters: MeterTable
    #: labels of nodes that have some, by database id
    read_labels: Callable[[], Mapping[int, dict[str, str]]] = dict
    #: the MIG profiles that GPUs are split into, by their row; those that are whole are not in it
    slices: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    #: the CPU cores that can be held, by the row of their node: of nodes without GPUs
    cores: Mapping[int, int] = field(default_factory=dict)
    #: what the rows of ``gpus`` are where they are by what can be held; None: each is a GPU
    parts: PartTable | None = None

    @cached_property
    def rack_bounds(self) -> Ints:
        """First row of ``racks`` for each site, and the number of racks."""
        return bounds(self.racks.site, len(self.sites))

    @cached_property
    def node_bounds(self) -> Ints:
        """First row of ``nodes`` for each rack, and the number of nodes."""
        return bounds(self.nodes.rack, len(self.racks))

    @cached_property
    def gpu_bounds(self) -> Ints:
        """First row of ``gpus`` for each node, and the number of GPUs."""
        return bounds(self.gpus.node, len(self.nodes))

    @cached_property
    def node_gpus(self) -> Ints:
        """How many GPUs each node has, partitioned ones counted once."""
        whole = self if self.parts is None else self.parts.whole
        return np.diff(whole.gpu_bounds)

    @cached_property
    def gpu_rows_by_place(self) -> dict[tuple[str, int, int], int]:
        """Row of a part by node name, index of its GPU, and its place among the slices of that."""
        place = np.full(len(self.gpus), -1) if self.parts is None else self.parts.place
        names = self.nodes.names[self.gpus.node].tolist()
        keys = zip(names, self.gpus.index.tolist(), place.tolist(), strict=True)
        return {key: row for row, key in enumerate(keys)}

    @cached_property
    def hands_out_cores(self) -> npt.NDArray[np.bool_]:
        """Whether cores of each node are rows of ``gpus``."""
        found = np.zeros(len(self.nodes), dtype=bool)
        if self.parts is not None:
            found[self.gpus.node[self.parts.is_core]] = True
        return found

    @cached_property
    def core_rows(self) -> dict[tuple[str, int], int]:
        """Row of a core that can be held by node name and number on the node."""
        rows = np.flatnonzero(self.parts.is_core) if self.parts is not None else range(0)
        names, numbers = self.nodes.names[self.gpus.node], self.gpus.index
        return {(str(names[row]), int(numbers[row])): int(row) for row in rows}

    @cached_property
    def gpu_index_by_node(self) -> dict[tuple[str, int], int]:
        """Row of a GPU by node name and index on the node."""
        names = self.nodes.names[self.gpus.node].tolist()
        keys = zip(names, self.gpus.index.tolist(), strict=True)
        return {key: row for row, key in enumerate(keys)}

    @cached_property
    def gpu_names(self) -> Texts:
        """The name of each GPU: "node/index"."""
        names = self.nodes.names[self.gpus.node].tolist()
        keys = zip(names, self.gpus.index.tolist(), strict=True)
        return np.array([f"{node}/{index}" for node, index in keys], dtype=np.object_)

    @cached_property
    def node_labels(self) -> list[dict[str, str]]:
        """The labels of each node, read when they are first asked for.

        Few ask, and they are as large as all the rest. A label that changes makes a new generation,
        so these are of this one or of one that is about to be read.
        """
        found = self.read_labels()
        return [found.get(key, {}) for key in self.nodes.ids.tolist()]


def bounds(parents: Ints, count: int) -> Ints:
    """Return the first row of each of ``count`` parents, and the number of rows."""
    return np.searchsorted(parents, np.arange(count + 1)).astype(np.int64)
