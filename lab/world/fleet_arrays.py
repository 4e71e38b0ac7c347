"""The inventory of a simulated fleet as the arrays that policies and admission decide on.

The server reads them from its database; here they come from the same inventory document. Tables
stand in the order of the server's, so decisions are the same; :class:`Rows` says which row of the
twin each of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleet.tables import (
    COOLING_KINDS,
    DOMAIN_KINDS,
    LINK_KINDS,
    METER_KINDS,
    METER_TARGETS,
    SIDES,
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
from lab.fleet import GPUS_PER_NODE, Fleet, inventory
from lab.twin import domain_names
from lab.twin.links import link_table

Document = Mapping[str, Any]


def arrays_of(fleet: Fleet, *, rack_inlets: bool = False) -> FleetArrays:
    """Return the inventory of ``fleet`` as arrays. Ids are rows and one.

    ``rack_inlets``: each rack has a meter of the air that it takes in, and not only zones.
    """
    document = inventory(fleet)
    if rack_inlets:
        inlets = [_inlet_meter(rack.site, rack.name) for rack in fleet.racks]
        document = {**document, "meters": [*document["meters"], *inlets]}
    return _Reading(document).arrays()


def _inlet_meter(site: str, rack: str) -> dict[str, str]:
    return {"name": f"{site}/{rack}-inlet", "kind": "temperature", "site": site, "rack": rack}


@dataclass(frozen=True, eq=False)
class Rows:
    """For each row of the inventory's tables, the twin's row of the same thing."""

    gpu: Ints
    node: Ints
    rack: Ints
    zone: Ints
    domain: Ints
    link: Ints
    site: Ints
    #: racks, power domains and zones that meters are on: the row of the twin
    meter: Ints

    @staticmethod
    def of(fleet: Fleet, arrays: FleetArrays) -> Rows:
        """Return the rows of ``fleet``, of which ``arrays`` are."""
        node = _places(fleet.nodes, arrays.nodes.names)
        gpu = node[arrays.gpus.node] * GPUS_PER_NODE + arrays.gpus.index
        rack = _places([f"{rack.site}/{rack.name}" for rack in fleet.racks], arrays.racks.paths)
        zones = [f"{site}/zone-{row.lower()}" for site, row in fleet.rows]
        domains = [f"{site}/{name}" for site, name in domain_names(fleet)]
        zone, domain = _places(zones, arrays.zones.paths), _places(domains, arrays.domains.paths)
        meter = np.full(len(arrays.meters), -1, dtype=np.int64)
        for target, rows in (("rack", rack), ("cooling_zone", zone), ("power_domain", domain)):
            on = arrays.meters.target_kind == METER_TARGETS.index(target)
            meter[on] = rows[arrays.meters.target[on]]
        return Rows(
            gpu=gpu,
            node=node,
            rack=rack,
            zone=zone,
            domain=domain,
            link=_places(link_table(fleet).names, arrays.links.names),
            site=_places(fleet.sites, arrays.sites.names),
            meter=meter,
        )


def _places(names: Sequence[str], wanted: Texts) -> Ints:
    """Return where each of ``wanted`` stands in ``names``."""
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[name] for name in wanted.tolist()], dtype=np.int64)


def with_budgets(arrays: FleetArrays, *, rack_share: Floats, domain_share: Floats) -> FleetArrays:
    """Return the same inventory with budgets lowered to shares of theirs, by its rows.

    As if an operator had written them down: what a utility may carry is what its site may.
    """
    racks = replace(arrays.racks, budget_w=arrays.racks.budget_w * rack_share)
    domains = replace(arrays.domains, capacity_w=arrays.domains.capacity_w * domain_share)
    tops = np.flatnonzero(arrays.domains.parent < 0)
    site_share = np.ones(len(arrays.sites))
    np.minimum.at(site_share, arrays.domains.site[tops], domain_share[tops])
    sites = replace(arrays.sites, budget_w=arrays.sites.budget_w * site_share)
    return replace(
        arrays, generation=arrays.generation + 1, racks=racks, domains=domains, sites=sites
    )


def _ids(count: int) -> Ints:
    return np.arange(1, count + 1)


def _texts(values: Sequence[str]) -> Texts:
    return np.array(values, dtype=np.object_)


def _floats(entries: Sequence[Document], name: str) -> Floats:
    # NumPy turns None into NaN.
    return np.array([entry.get(name) for entry in entries], dtype=np.float64)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


class _Reading:
    """Turns an inventory document into tables, in the order of the server's."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._models = sorted(document["hardware_models"], key=lambda model: str(model["name"]))
        self._sites = sorted(document["sites"], key=lambda site: str(site["name"]))
        self._model_row = {model["name"]: row for row, model in enumerate(self._models)}
        self._site_row = {site["name"]: row for row, site in enumerate(self._sites)}
        self._domains = self._of_sites("power_domains")
        self._zones = self._of_sites("cooling_zones")
        self._storage = self._of_sites("storage_endpoints")
        self._racks = self._of_sites(
            "racks", lambda rack: (rack["row"], rack["position"], rack["name"])
        )
        self._nodes = [
            (row, node)
            for row, (_, rack) in enumerate(self._racks)
            for node in sorted(rack["nodes"], key=lambda node: (node["position_u"], node["name"]))
        ]
        self._domain_row = _rows_by_path(self._sites, self._domains)
        self._zone_row = _rows_by_path(self._sites, self._zones)
        self._storage_row = _rows_by_path(self._sites, self._storage)
        self._rack_row = _rows_by_path(self._sites, self._racks)

    def _of_sites(
        self, name: str, key: Callable[[Document], Any] = lambda entry: entry["name"]
    ) -> list[tuple[int, Document]]:
        """Return the entries of all sites with the row of theirs, in order."""
        return [
            (row, entry)
            for row, site in enumerate(self._sites)
            for entry in sorted(site[name], key=key)
        ]

    def arrays(self) -> FleetArrays:
        models = self._model_table()
        return FleetArrays(
            generation=1,
            models=models,
            sites=SiteTable(
                _ids(len(self._sites)),
                _texts([site["name"] for site in self._sites]),
                _floats(self._sites, "budget_w"),
            ),
            domains=self._domain_table(),
            zones=self._zone_table(),
            storage=self._storage_table(),
            racks=self._rack_table(),
            nodes=self._node_table(models),
            gpus=self._gpu_table(models),
            links=self._link_table(),
            meters=self._meter_table(),
        )

    def _named(self, found: Sequence[tuple[int, Document]]) -> dict[str, Any]:
        """Return the columns that all tables of sites have."""
        return {
            "ids": _ids(len(found)),
            "names": _texts([entry["name"] for _, entry in found]),
            "site": _ints([site for site, _ in found]),
            "paths": _texts(list(_rows_by_path(self._sites, found))),
        }

    def _model_table(self) -> ModelTable:
        quantities = ("rated_w", "idle_w", "slowdown_c", "slowdown_mem_c", "shutdown_c")
        return ModelTable(
            _ids(len(self._models)),
            _texts([model["name"] for model in self._models]),
            *(_floats(self._models, name) for name in (*quantities, "sm_max_mhz")),
        )

    def _domain_table(self) -> DomainTable:
        entries = [entry for _, entry in self._domains]
        of_site = [self._sites[site]["name"] for site, _ in self._domains]
        parents = [
            self._domain_row[f"{site}/{entry['parent']}"] if "parent" in entry else -1
            for site, entry in zip(of_site, entries, strict=True)
        ]
        return DomainTable(
            **self._named(self._domains),
            kind=_ints([DOMAIN_KINDS.index(entry["kind"]) for entry in entries]),
            parent=_ints(parents),
            capacity_w=_floats(entries, "capacity_w"),
            derating=_floats(entries, "derating"),
            pair=_pairs([(site, entry.get("pair")) for site, entry in self._domains]),
            side=_ints([SIDES.index(e["side"]) if "side" in e else -1 for e in entries]),
        )

    def _zone_table(self) -> ZoneTable:
        entries = [entry for _, entry in self._zones]
        return ZoneTable(
            **self._named(self._zones),
            kind=_ints([COOLING_KINDS.index(entry["kind"]) for entry in entries]),
            capacity_w=_floats(entries, "capacity_w"),
            supply_c=_floats(entries, "supply_c"),
        )

    def _storage_table(self) -> StorageTable:
        entries = [entry for _, entry in self._storage]
        return StorageTable(
            **self._named(self._storage),
            capacity_bytes_per_s=_floats(entries, "capacity_bytes_per_s"),
        )

    def _rack_table(self) -> RackTable:
        entries = [rack for _, rack in self._racks]
        of_site = [self._sites[site]["name"] for site, _ in self._racks]

        def rows(name: str, table: Mapping[str, int]) -> Ints:
            pairs = zip(of_site, entries, strict=True)
            return _ints([table[f"{site}/{entry[name]}"] for site, entry in pairs])

        return RackTable(
            **self._named(self._racks),
            row=_texts([entry["row"] for entry in entries]),
            position=_ints([entry["position"] for entry in entries]),
            height_u=_ints([entry["height_u"] for entry in entries]),
            budget_w=_floats(entries, "budget_w"),
            feed_a=rows("feed_a", self._domain_row),
            feed_b=rows("feed_b", self._domain_row),
            zone=rows("cooling_zone", self._zone_row),
        )

    def _node_table(self, models: ModelTable) -> NodeTable:
        entries = [node for _, node in self._nodes]
        model = _ints([self._model_row[node["model"]] for node in entries])
        of_site = [self._sites[self._racks[rack][0]]["name"] for rack, _ in self._nodes]
        storage = [
            self._storage_row[f"{site}/{node['storage_endpoint']}"]
            for site, node in zip(of_site, entries, strict=True)
        ]
        return NodeTable(
            ids=_ids(len(entries)),
            names=_texts([node["name"] for node in entries]),
            rack=_ints([rack for rack, _ in self._nodes]),
            model=model,
            position_u=_ints([node["position_u"] for node in entries]),
            height_u=_ints([node["height_u"] for node in entries]),
            host_rated_w=models.rated_w[model],
            host_idle_w=models.idle_w[model],
            storage=_ints(storage),
            switch_domain=_texts([node["switch_domain"] for node in entries]),
        )

    def _gpu_table(self, models: ModelTable) -> GpuTable:
        counts = [node["gpus"]["count"] for _, node in self._nodes]
        names = [self._model_row[node["gpus"]["model"]] for _, node in self._nodes]
        model = np.repeat(_ints(names), counts)
        return GpuTable(
            ids=_ids(len(model)),
            node=np.repeat(np.arange(len(counts)), counts),
            index=np.concatenate([np.arange(count) for count in counts]),
            model=model,
            rated_w=models.rated_w[model],
            idle_w=models.idle_w[model],
            slowdown_c=models.slowdown_c[model],
            slowdown_mem_c=models.slowdown_mem_c[model],
            shutdown_c=models.shutdown_c[model],
            sm_max_mhz=models.sm_max_mhz[model],
        )

    def _link_table(self) -> LinkTable:
        links = sorted(self._document["links"], key=lambda link: str(link["name"]))
        racks = [
            self._rack_row[f"{link['site']}/{link['rack']}"] if "rack" in link else -1
            for link in links
        ]
        return LinkTable(
            ids=_ids(len(links)),
            names=_texts([link["name"] for link in links]),
            kind=_ints([LINK_KINDS.index(link["kind"]) for link in links]),
            site=_ints([self._site_row[link["site"]] for link in links]),
            rack=_ints(racks),
            node=np.full(len(links), -1, dtype=np.int64),
            peer_site=_ints([self._site_row.get(link.get("peer_site"), -1) for link in links]),
            capacity_bits_per_s=_floats(links, "capacity_bits_per_s"),
            latency_s=_floats(links, "latency_s"),
            control_share=_floats(links, "control_share"),
        )

    def _meter_table(self) -> MeterTable:
        meters = sorted(self._document["meters"], key=lambda meter: str(meter["name"]))
        kinds, targets = [], []
        tables = {
            "power_domain": self._domain_row,
            "cooling_zone": self._zone_row,
            "rack": self._rack_row,
        }
        for meter in meters:
            on = next(name for name in tables if name in meter)
            kinds.append(METER_TARGETS.index(on))
            targets.append(tables[on][f"{meter['site']}/{meter[on]}"])
        return MeterTable(
            ids=_ids(len(meters)),
            names=_texts([meter["name"] for meter in meters]),
            kind=_ints([METER_KINDS.index(meter["kind"]) for meter in meters]),
            target_kind=_ints(kinds),
            target=_ints(targets),
        )


def _rows_by_path(
    sites: Sequence[Document], found: Sequence[tuple[int, Document]]
) -> dict[str, int]:
    """Return the row of each entry by "site/name", in order."""
    return {
        f"{sites[site]['name']}/{entry['name']}": row for row, (site, entry) in enumerate(found)
    }


def _pairs(keys: Sequence[tuple[int, str | None]]) -> Ints:
    """Return for each power domain the row of the other half of its pair, or -1."""
    other = np.full(len(keys), -1, dtype=np.int64)
    first: dict[tuple[int, str | None], int] = {}
    for row, key in enumerate(keys):
        if key[1] is not None and (mate := first.setdefault(key, row)) != row:
            other[row], other[mate] = mate, row
    return other
