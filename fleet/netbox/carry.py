"""Keeping the values that NetBox has no field for: else an import would remove them."""

from __future__ import annotations

from fleet.inventory.document import (
    Document,
    GpuEntry,
    GpuGroup,
    LinkEntry,
    MeterEntry,
    NodeEntry,
    SiteEntry,
)


def carry_over(document: Document, known: Document) -> None:
    """Add to ``document`` the values of ``known``, the present fleet, that NetBox has no field for.

    That is: utilities, cooling zones and storage endpoints, and what hangs on them; switch domains,
    labels, UUIDs of GPUs; a site's budget; links and meters, where what they hang on stays.
    """
    sites = {site.name: site for site in known.sites}
    nodes = {
        node.name: (site.name, node)
        for site in known.sites
        for rack in site.racks
        for node in rack.nodes
    }
    for site in document.sites:
        if site.name in sites:
            _keep_plant(site, sites[site.name])
        for rack in site.racks:
            for node in rack.nodes:
                if node.name in nodes:
                    _keep_node(node, nodes[node.name][1], nodes[node.name][0] == site.name)
    names = _Names(document)
    document.links = [link for link in known.links if _link_stays(link, names)]
    document.meters = [meter for meter in known.meters if _meter_stays(meter, names)]


def _keep_plant(site: SiteEntry, old: SiteEntry) -> None:
    site.cooling_zones = old.cooling_zones
    site.storage_endpoints = old.storage_endpoints
    if site.budget_w is None:
        site.budget_w = old.budget_w
    utilities = [domain for domain in old.power_domains if domain.kind == "utility"]
    above = {domain.name: domain.parent for domain in old.power_domains}
    for domain in site.power_domains:
        if domain.parent is None and above.get(domain.name) in {each.name for each in utilities}:
            domain.parent = above[domain.name]
    site.power_domains = utilities + site.power_domains
    zones = {rack.name: rack.cooling_zone for rack in old.racks}
    for rack in site.racks:
        rack.cooling_zone = zones.get(rack.name)


def _keep_node(node: NodeEntry, old: NodeEntry, same_site: bool) -> None:
    node.labels = {**old.labels, **node.labels}
    if same_site:
        node.switch_domain = old.switch_domain
        node.storage_endpoint = old.storage_endpoint
    if not isinstance(node.gpus, GpuGroup):
        return
    model, count = node.gpus.model, node.gpus.count
    if isinstance(old.gpus, list):
        known = {gpu.index: gpu for gpu in old.gpus if gpu.model == model}
        node.gpus = [
            known.get(index) or GpuEntry(index=index, model=model) for index in range(count)
        ]
    elif old.gpus.model == model:
        node.gpus.slices = old.gpus.slices


class _Names:
    """The names that links and meters of an inventory can refer to, as "site/name"."""

    def __init__(self, document: Document) -> None:
        self.sites = {site.name for site in document.sites}
        self.racks: set[str] = set()
        self.others: set[str] = set()
        self.nodes: dict[str, str] = {}
        for site in document.sites:
            self.racks |= {f"{site.name}/{rack.name}" for rack in site.racks}
            self.others |= {f"{site.name}/{domain.name}" for domain in site.power_domains}
            self.others |= {f"{site.name}/{zone.name}" for zone in site.cooling_zones}
            self.nodes |= {node.name: site.name for rack in site.racks for node in rack.nodes}


def _link_stays(link: LinkEntry, names: _Names) -> bool:
    if link.rack is not None and f"{link.site}/{link.rack}" not in names.racks:
        return False
    if link.node is not None and names.nodes.get(link.node) != link.site:
        return False
    return link.site in names.sites


def _meter_stays(meter: MeterEntry, names: _Names) -> bool:
    if meter.node is not None:
        return meter.node in names.nodes
    if meter.rack is not None:
        return f"{meter.site}/{meter.rack}" in names.racks
    return f"{meter.site}/{meter.power_domain or meter.cooling_zone}" in names.others
