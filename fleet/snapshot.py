"""The inventory in the database, as the arrays of ``fleet.tables``.

Sites of recordings that are over are not in it: nothing is there that could draw or be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from django.db import models

from fleet.cache import Cache
from fleet.kinds import HardwareKind
from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    InventoryGeneration,
    Link,
    Meter,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)
from fleet.reading import one_view_of_the_database
from fleet.recordings import recordings_over
from fleet.tables import (
    COOLING_KINDS,
    DOMAIN_KINDS,
    LINK_KINDS,
    METER_KINDS,
    METER_TARGETS,
    SIDES,
    AnyTable,
    DomainTable,
    FleetArrays,
    Floats,
    GpuTable,
    Ints,
    LinkTable,
    MeterTable,
    ModelTable,
    NodeTable,
    RackTable,
    SiteTable,
    StorageTable,
    Texts,
    ZoneTable,
)

__all__ = [
    "COOLING_KINDS",
    "DOMAIN_KINDS",
    "LINK_KINDS",
    "METER_KINDS",
    "METER_TARGETS",
    "DomainTable",
    "FleetArrays",
    "GpuTable",
    "LinkTable",
    "MeterTable",
    "ModelTable",
    "NodeTable",
    "RackTable",
    "SiteTable",
    "StorageTable",
    "ZoneTable",
    "current",
    "fresh",
    "invalidate",
    "load",
]


def load() -> FleetArrays:
    """Read the whole inventory: thirteen queries in one snapshot of the database."""
    with one_view_of_the_database():
        generation = InventoryGeneration.current()
        hardware = _models()
        sites = _sites()
        domains = _domains(sites)
        zones = _zones(sites)
        storage = _storage(sites)
        racks = _racks(sites, domains, zones)
        nodes = _nodes(racks, hardware, storage)
        gpus = _gpus(nodes, hardware)
        return FleetArrays(
            generation=generation,
            models=hardware,
            sites=sites,
            domains=domains,
            zones=zones,
            storage=storage,
            racks=racks,
            nodes=nodes,
            gpus=gpus,
            links=_links(sites, racks, nodes),
            meters=_meters(domains, zones, racks, nodes),
            read_labels=_labels,
            slices=_slices(gpus),
            cores=_cores(nodes, gpus, hardware),
        )


def _labels() -> Mapping[int, dict[str, str]]:
    return dict(Node.objects.exclude(labels={}).values_list("pk", "labels"))


#: How rows lead to their site, and to others that they need.
_TO_SITES: Mapping[type[models.Model], Sequence[str]] = {
    Site: ["pk"],
    PowerDomain: ["site"],
    CoolingZone: ["site"],
    StorageEndpoint: ["site"],
    Rack: ["site"],
    Node: ["rack__site"],
    Gpu: ["node__rack__site"],
    Link: ["site", "peer_site"],
    Meter: ["power_domain__site", "cooling_zone__site", "rack__site", "node__rack__site"],
}


def _columns(model: type[models.Model], *names: str, order_by: Sequence[str] = ()) -> list[Any]:
    """Return one sequence for each of the columns ``names``. One query."""
    there = model._default_manager.order_by(*order_by)
    for path in _TO_SITES.get(model, ()):
        there = there.exclude(**{f"{path}__in": recordings_over()})
    return list(zip(*there.values_list(*names), strict=True)) or [() for _ in names]


def _ints(values: Iterable[int | None]) -> Ints:
    return np.array([-1 if value is None else value for value in values], dtype=np.int64)


def _floats(values: Sequence[float | None]) -> Floats:
    # NumPy turns None into NaN.
    return np.array(values, dtype=np.float64)


def _texts(values: Sequence[str]) -> Texts:
    return np.array(values, dtype=np.object_)


def _codes(values: Iterable[str], known: list[str]) -> Ints:
    """Return the place of each value in ``known``, or -1."""
    code = {value: place for place, value in enumerate(known)}
    return np.array([code.get(value, -1) for value in values], dtype=np.int64)


def _rows(keys: Iterable[int | None], table: AnyTable) -> Ints:
    """Return the row in ``table`` of each database id, or -1."""
    row = table.index_by_id
    return np.array([-1 if key is None else row[key] for key in keys], dtype=np.int64)


def _at(values: Floats, rows: Ints) -> Floats:
    """Return ``values[rows]``, NaN where the row is -1."""
    return np.append(values, np.nan)[rows]


def _paths(site: Ints, sites: SiteTable, names: Sequence[str]) -> Texts:
    at = sites.names[site].tolist()
    return _texts([f"{where}/{name}" for where, name in zip(at, names, strict=True)])


def _models() -> ModelTable:
    ids, names, *ratings = _columns(
        HardwareModel,
        "id",
        "name",
        "rated_w",
        "idle_w",
        "slowdown_c",
        "slowdown_mem_c",
        "shutdown_c",
        "sm_max_mhz",
        order_by=["name"],
    )
    return ModelTable(_ints(ids), _texts(names), *map(_floats, ratings))


def _sites() -> SiteTable:
    ids, names, budget_w = _columns(Site, "id", "name", "budget_w", order_by=["name"])
    return SiteTable(_ints(ids), _texts(names), _floats(budget_w))


def _domains(sites: SiteTable) -> DomainTable:
    ids, names, site_ids, kind, parent, capacity_w, derating, pair, side = _columns(
        PowerDomain,
        "id",
        "name",
        "site_id",
        "kind",
        "parent_id",
        "capacity_w",
        "derating",
        "pair",
        "side",
        order_by=["site__name", "name"],
    )
    row = {key: place for place, key in enumerate(ids)}
    site = _rows(site_ids, sites)
    return DomainTable(
        ids=_ints(ids),
        names=_texts(names),
        site=site,
        paths=_paths(site, sites, names),
        kind=_codes(kind, DOMAIN_KINDS),
        parent=_ints(row.get(key) for key in parent),
        capacity_w=_floats(capacity_w),
        derating=_floats(derating),
        pair=_other_halves(site_ids, pair),
        side=_codes(side, SIDES),
    )


def _other_halves(site_ids: Sequence[int], pairs: Sequence[str]) -> Ints:
    """Return for each power domain the row of the other one in its pair, or -1."""
    other = np.full(len(pairs), -1, dtype=np.int64)
    first: dict[tuple[int, str], int] = {}
    for row, key in enumerate(zip(site_ids, pairs, strict=True)):
        if key[1] and (mate := first.setdefault(key, row)) != row:
            other[row], other[mate] = mate, row
    return other


def _zones(sites: SiteTable) -> ZoneTable:
    ids, names, site_ids, kind, capacity_w, supply_c = _columns(
        CoolingZone,
        "id",
        "name",
        "site_id",
        "kind",
        "capacity_w",
        "supply_c",
        order_by=["site__name", "name"],
    )
    site = _rows(site_ids, sites)
    return ZoneTable(
        ids=_ints(ids),
        names=_texts(names),
        site=site,
        paths=_paths(site, sites, names),
        kind=_codes(kind, COOLING_KINDS),
        capacity_w=_floats(capacity_w),
        supply_c=_floats(supply_c),
    )


def _storage(sites: SiteTable) -> StorageTable:
    ids, names, site_ids, capacity = _columns(
        StorageEndpoint,
        "id",
        "name",
        "site_id",
        "capacity_bytes_per_s",
        order_by=["site__name", "name"],
    )
    site = _rows(site_ids, sites)
    return StorageTable(
        ids=_ints(ids),
        names=_texts(names),
        site=site,
        paths=_paths(site, sites, names),
        capacity_bytes_per_s=_floats(capacity),
    )


def _racks(sites: SiteTable, domains: DomainTable, zones: ZoneTable) -> RackTable:
    ids, names, site_ids, row, position, height_u, budget_w, feed_a, feed_b, zone = _columns(
        Rack,
        "id",
        "name",
        "site_id",
        "row",
        "position",
        "height_u",
        "budget_w",
        "feed_a_id",
        "feed_b_id",
        "cooling_zone_id",
        order_by=["site__name", "row", "position", "name"],
    )
    site = _rows(site_ids, sites)
    return RackTable(
        ids=_ints(ids),
        names=_texts(names),
        site=site,
        paths=_paths(site, sites, names),
        row=_texts(row),
        position=_ints(position),
        height_u=_ints(height_u),
        budget_w=_floats(budget_w),
        feed_a=_rows(feed_a, domains),
        feed_b=_rows(feed_b, domains),
        zone=_rows(zone, zones),
    )


def _nodes(racks: RackTable, hardware: ModelTable, endpoints: StorageTable) -> NodeTable:
    ids, names, rack_ids, model_ids, position_u, height_u, storage, switch_domain = _columns(
        Node,
        "id",
        "name",
        "rack_id",
        "model_id",
        "position_u",
        "height_u",
        "storage_endpoint_id",
        "switch_domain",
        order_by=["position_u", "name"],
    )
    rack, model = _rows(rack_ids, racks), _rows(model_ids, hardware)
    # Stable: within a rack the order of the query stays.
    order = np.argsort(rack, kind="stable")
    model = model[order]
    return NodeTable(
        ids=_ints(ids)[order],
        names=_texts(names)[order],
        rack=rack[order],
        model=model,
        position_u=_ints(position_u)[order],
        height_u=_ints(height_u)[order],
        host_rated_w=_at(hardware.rated_w, model),
        host_idle_w=_at(hardware.idle_w, model),
        storage=_rows(storage, endpoints)[order],
        switch_domain=_texts(switch_domain)[order],
    )


def _gpus(nodes: NodeTable, hardware: ModelTable) -> GpuTable:
    ids, node_ids, index, model_ids = _columns(Gpu, "id", "node_id", "index", "model_id")
    node = _rows(node_ids, nodes)
    order = np.lexsort((_ints(index), node))
    model = _rows(model_ids, hardware)[order]
    return GpuTable(
        ids=_ints(ids)[order],
        node=node[order],
        index=_ints(index)[order],
        model=model,
        rated_w=_at(hardware.rated_w, model),
        idle_w=_at(hardware.idle_w, model),
        slowdown_c=_at(hardware.slowdown_c, model),
        slowdown_mem_c=_at(hardware.slowdown_mem_c, model),
        shutdown_c=_at(hardware.shutdown_c, model),
        sm_max_mhz=_at(hardware.sm_max_mhz, model),
    )


def _slices(gpus: GpuTable) -> dict[int, tuple[str, ...]]:
    """Return the slices of partitioned GPUs by row. One query: hardly any are."""
    found = Gpu.objects.exclude(slices=[]).values_list("pk", "slices")
    rows = gpus.index_by_id if found else {}
    return {rows[pk]: tuple(slices) for pk, slices in found if pk in rows}


def _links(sites: SiteTable, racks: RackTable, nodes: NodeTable) -> LinkTable:
    ids, names, kind, site, rack_ids, node_ids, peer, capacity, latency, share = _columns(
        Link,
        "id",
        "name",
        "kind",
        "site_id",
        "rack_id",
        "node_id",
        "peer_site_id",
        "capacity_bits_per_s",
        "latency_s",
        "control_share",
        order_by=["name"],
    )
    node = _rows(node_ids, nodes)
    return LinkTable(
        ids=_ints(ids),
        names=_texts(names),
        kind=_codes(kind, LINK_KINDS),
        site=_rows(site, sites),
        rack=np.where(node >= 0, np.append(nodes.rack, -1)[node], _rows(rack_ids, racks)),
        node=node,
        peer_site=_rows(peer, sites),
        capacity_bits_per_s=_floats(capacity),
        latency_s=_floats(latency),
        control_share=_floats(share),
    )


def _meters(
    domains: DomainTable, zones: ZoneTable, racks: RackTable, nodes: NodeTable
) -> MeterTable:
    ids, names, kind, *target_ids = _columns(
        Meter,
        "id",
        "name",
        "kind",
        "power_domain_id",
        "cooling_zone_id",
        "rack_id",
        "node_id",
        order_by=["name"],
    )
    # One row for each kind of target, in the order of METER_TARGETS; one of each column is set.
    tables: list[AnyTable] = [domains, zones, racks, nodes]
    targets = np.vstack([_rows(keys, of) for keys, of in zip(target_ids, tables, strict=True)])
    return MeterTable(
        ids=_ints(ids),
        names=_texts(names),
        kind=_codes(kind, METER_KINDS),
        target_kind=targets.argmax(axis=0),
        target=targets.max(axis=0),
    )


_arrays: Cache[FleetArrays] = Cache(serves_stale=True)


def current(max_age_s: float = 2.0) -> FleetArrays:
    """Return the inventory as it was at most ``max_age_s`` (and a reload) ago.

    One query when that time has passed, :func:`load` when the inventory has changed.
    """
    return _arrays.get(load, version=InventoryGeneration.current, max_age_s=max_age_s)


def fresh() -> FleetArrays:
    """Return the inventory as it is now: one query, and a wait while another thread reloads it."""
    return _arrays.get(load, version=InventoryGeneration.current, max_age_s=0.0)


def invalidate() -> None:
    """Have the next :func:`current` of this process look whether the inventory has changed."""
    _arrays.recheck()


def _cores(nodes: NodeTable, gpus: GpuTable, hardware: ModelTable) -> dict[int, int]:
    """Return the cores that jobs without GPUs may have, by node: of nodes without GPUs. A query."""
    of_model = np.zeros(len(hardware) + 1, dtype=np.int64)
    stated = HardwareModel.objects.filter(kind=HardwareKind.NODE, cores__gt=0)
    for pk, count in stated.values_list("pk", "cores"):
        of_model[hardware.index_by_id.get(pk, -1)] = count or 0
    # Of nodes without a model, and of models that came since.
    of_model[-1] = 0
    found: Ints = of_model[nodes.model]
    found[gpus.node] = 0
    rows = np.flatnonzero(found)
    return dict(zip(rows.tolist(), found[rows].tolist(), strict=True))
