"""A document as rows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fleet.inventory.document import Document, GpuGroup, MeterEntry, NodeEntry, RackEntry, SiteEntry
from fleet.inventory.kinds import KINDS, Row, Rows

_PARTS = ("power_domains", "cooling_zones", "storage_endpoints", "racks")


def rows_of(document: Document) -> Rows:
    """Return the rows of ``document``, which has passed the checks."""
    lists: dict[str, list[Row]] = {name: [] for name in KINDS}
    lists["hardware_models"] = [_row(entry) for entry in document.hardware_models]
    for site in document.sites:
        _add_site(lists, site)
    for link in document.links:
        lists["links"].append({**_row(link), "rack": _key(link.site, link.rack)})
    lists["meters"] = [_meter_row(meter) for meter in document.meters]
    return {name: {kind.key_of(row): row for row in lists[name]} for name, kind in KINDS.items()}


def _row(entry: msgspec.Struct, *without: str) -> Row:
    row = msgspec.structs.asdict(entry)
    for name in without:
        del row[name]
    return row


def _key(site: str | None, name: str | None) -> str | None:
    return None if name is None else f"{site}/{name}"


def _add_site(lists: dict[str, list[Row]], site: SiteEntry) -> None:
    here = {"site": site.name}
    lists["sites"].append(_row(site, *_PARTS))
    for domain in site.power_domains:
        parent = _key(site.name, domain.parent)
        lists["power_domains"].append({**_row(domain), **here, "parent": parent})
    lists["cooling_zones"] += [{**_row(zone), **here} for zone in site.cooling_zones]
    lists["storage_endpoints"] += [{**_row(each), **here} for each in site.storage_endpoints]
    for rack in site.racks:
        lists["racks"].append(_rack_row(site.name, rack))
        for node in rack.nodes:
            lists["nodes"].append(_node_row(site.name, rack.name, node))
            lists["gpus"] += _gpu_rows(node)


def _rack_row(site: str, rack: RackEntry) -> Row:
    return {
        **_row(rack, "nodes"),
        "site": site,
        "feed_a": _key(site, rack.feed_a),
        "feed_b": _key(site, rack.feed_b),
        "cooling_zone": _key(site, rack.cooling_zone),
    }


def _node_row(site: str, rack: str, node: NodeEntry) -> Row:
    storage_endpoint = _key(site, node.storage_endpoint)
    return {
        **_row(node, "gpus"),
        "rack": f"{site}/{rack}",
        "storage_endpoint": storage_endpoint,
    }


def _gpu_rows(node: NodeEntry) -> Iterator[Row]:
    group = node.gpus
    if isinstance(group, GpuGroup):
        for index in range(group.count):
            yield {"node": node.name, "index": index, **_row(group, "count"), "uuid": ""}
        return
    for gpu in sorted(group, key=lambda gpu: gpu.index):
        yield {"node": node.name, **_row(gpu)}


def _meter_row(meter: MeterEntry) -> Row:
    return {
        **_row(meter, "site"),
        "power_domain": _key(meter.site, meter.power_domain),
        "cooling_zone": _key(meter.site, meter.cooling_zone),
        "rack": _key(meter.site, meter.rack),
    }
