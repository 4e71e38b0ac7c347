"""Checks across a document that its types cannot do: unique names, references, sizes.

These are the invariants of the models' ``clean()``, over a whole document at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fleet.inventory.document import (
    Document,
    GpuEntry,
    GpuGroup,
    HardwareEntry,
    LinkEntry,
    MeterEntry,
    NodeEntry,
    PowerDomainEntry,
    RackEntry,
    SiteEntry,
)
from fleet.inventory.exceptions import Path, Problem
from fleet.inventory.kinds import Rows
from fleet.models.validators import time_zones
from fleet.partitions import problem_of

#: So many of the known names are listed beside one that is not.
_LISTED = 8
_HERE = " in this inventory"
_METER_TARGETS = ("power_domain", "cooling_zone", "rack", "node")


class _Named(Protocol):
    name: str


@dataclass(frozen=True)
class _SiteNames:
    """The names that a link or a meter can refer to at one site."""

    power_domain: Collection[str]
    cooling_zone: Collection[str]
    rack: Collection[str]


@dataclass(frozen=True)
class _World:
    """The names that can be referred to from anywhere in the document."""

    gpu_models: Collection[str]
    node_models: Collection[str]
    #: sites of the document
    sites: dict[str, _SiteNames]
    #: sites of the document, and those that stay beside it
    all_sites: Collection[str]
    #: the site of each node of the document
    nodes: dict[str, str]


def problems_of(
    document: Document, current: Rows, *, prune_sites: bool = False
) -> Iterator[Problem]:
    """Yield all that is wrong with ``document`` beside the rows that there are."""
    world = _world(document, current, prune_sites)
    yield from _named_twice(document)
    yield from _hardware(document.hardware_models, current)
    for place, site in enumerate(document.sites):
        yield from _site(("sites", place), site, world)
    for place, link in enumerate(document.links):
        yield from _link(("links", place), link, world)
    for place, meter in enumerate(document.meters):
        yield from _meter(("meters", place), meter, world)


def _world(document: Document, current: Rows, prune_sites: bool) -> _World:
    kinds = {name: row["kind"] for name, row in current["hardware_models"].items()}
    kinds |= {entry.name: entry.kind for entry in document.hardware_models}
    sites = {
        site.name: _SiteNames(
            {domain.name for domain in site.power_domains},
            {zone.name for zone in site.cooling_zones},
            {rack.name for rack in site.racks},
        )
        for site in document.sites
    }
    return _World(
        gpu_models=[name for name, kind in kinds.items() if kind == "gpu"],
        node_models=[name for name, kind in kinds.items() if kind == "node"],
        sites=sites,
        all_sites=sites.keys() if prune_sites else sites.keys() | current["sites"].keys(),
        nodes={node.name: site.name for site, _, node in _nodes(document)},
    )


def _nodes(document: Document) -> Iterator[tuple[SiteEntry, Path, NodeEntry]]:
    for s, site in enumerate(document.sites):
        for r, rack in enumerate(site.racks):
            for n, node in enumerate(rack.nodes):
                yield site, ("sites", s, "racks", r, "nodes", n), node


def _named_twice(document: Document) -> Iterator[Problem]:
    yield from _twice(_paths(("hardware_models",), document.hardware_models))
    yield from _twice(_paths(("sites",), document.sites))
    for place, site in enumerate(document.sites):
        path: Path = ("sites", place)
        yield from _twice(_paths((*path, "power_domains"), site.power_domains))
        yield from _twice(_paths((*path, "cooling_zones"), site.cooling_zones))
        yield from _twice(_paths((*path, "storage_endpoints"), site.storage_endpoints))
        yield from _twice(_paths((*path, "racks"), site.racks))
    yield from _twice((path, node.name) for _, path, node in _nodes(document))
    yield from _twice(_paths(("links",), document.links))
    yield from _twice(_paths(("meters",), document.meters))


def _paths(path: Path, entries: Sequence[_Named]) -> Iterator[tuple[Path, str]]:
    return (((*path, place), entry.name) for place, entry in enumerate(entries))


def _twice(names: Iterable[tuple[Path, str]]) -> Iterator[Problem]:
    first: dict[str, Path] = {}
    for path, name in names:
        known = first.setdefault(name, path)
        if known is not path:
            yield Problem((*path, "name"), f"{name!r} is taken by {Problem(known, '').field}")


def _refer(
    path: Path, what: str, name: str | None, known: Collection[str], where: str = ""
) -> Iterator[Problem]:
    """Find a reference to nothing that is ``known``."""
    if name is None or name in known:
        return
    names = sorted(known)
    listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    yield Problem(path, f"no {what} {name!r}{where}; known: {listed or 'none'}")


def _hardware(entries: list[HardwareEntry], current: Rows) -> Iterator[Problem]:
    for place, entry in enumerate(entries):
        path: Path = ("hardware_models", place)
        if entry.idle_w > entry.rated_w:
            yield Problem((*path, "idle_w"), "it draws more when idle than it is rated for")
        if entry.cores is not None and entry.kind == "gpu":
            yield Problem((*path, "cores"), "a GPU has no CPU cores: they are stated of a node")
        known = current["hardware_models"].get(entry.name)
        if known is not None and known["kind"] != entry.kind:
            yield Problem((*path, "kind"), f"{entry.name} is known as a {known['kind']}")


def _site(path: Path, site: SiteEntry, world: _World) -> Iterator[Problem]:
    if site.time_zone not in time_zones():
        yield Problem(
            (*path, "time_zone"), f"{site.time_zone!r} is not a time zone, such as Europe/Oslo"
        )
    yield from _power(path, site)
    storage = {endpoint.name for endpoint in site.storage_endpoints}
    domains = {domain.name: domain for domain in site.power_domains}
    for place, rack in enumerate(site.racks):
        at = (*path, "racks", place)
        yield from _feeds(at, rack, site.name, domains)
        names = world.sites[site.name].cooling_zone
        yield from _refer(
            (*at, "cooling_zone"), "cooling zone", rack.cooling_zone, names, f" at site {site.name}"
        )
        yield from _units(at, rack)
        for number, node in enumerate(rack.nodes):
            yield from _node((*at, "nodes", number), node, site.name, storage, world)


def _power(path: Path, site: SiteEntry) -> Iterator[Problem]:
    by_name = {domain.name: domain for domain in site.power_domains}
    halves = Counter[tuple[str, str]]((domain.pair, domain.side) for domain in site.power_domains)
    for place, domain in enumerate(site.power_domains):
        at = (*path, "power_domains", place)
        where = f" at site {site.name}"
        yield from _refer((*at, "parent"), "power domain", domain.parent, by_name, where)
        if _is_own_ancestor(domain, by_name):
            yield Problem((*at, "parent"), "a power domain cannot be its own ancestor")
        yield from _pair(at, domain, halves)


def _is_own_ancestor(domain: PowerDomainEntry, by_name: dict[str, PowerDomainEntry]) -> bool:
    seen: set[str] = set()
    parent = domain.parent
    # What is above may hang in a loop of its own, which is not this one's fault.
    while parent is not None and parent in by_name and parent not in seen:
        if parent == domain.name:
            return True
        seen.add(parent)
        parent = by_name[parent].parent
    return False


def _pair(
    path: Path, domain: PowerDomainEntry, halves: Counter[tuple[str, str]]
) -> Iterator[Problem]:
    if bool(domain.pair) != bool(domain.side):
        missing = "side" if domain.pair else "pair"
        yield Problem(path, f"pair and side go together: {missing} is missing")
    elif domain.pair:
        other = "B" if domain.side == "A" else "A"
        if halves[domain.pair, domain.side] > 1:
            yield Problem((*path, "side"), f"pair {domain.pair!r} has another side {domain.side}")
        if not halves[domain.pair, other]:
            yield Problem((*path, "pair"), f"pair {domain.pair!r} has no side {other}")


def _feeds(
    path: Path, rack: RackEntry, site: str, domains: dict[str, PowerDomainEntry]
) -> Iterator[Problem]:
    for field, name, wrong in (("feed_a", rack.feed_a, "B"), ("feed_b", rack.feed_b, "A")):
        yield from _refer((*path, field), "power domain", name, domains, f" at site {site}")
        if name in domains and domains[name].side == wrong:
            yield Problem((*path, field), f"{name} is the {wrong} side of {domains[name].pair}")
    if rack.feed_a is not None and rack.feed_a == rack.feed_b:
        yield Problem((*path, "feed_b"), f"{rack.feed_b} cannot feed both sides")


def _units(path: Path, rack: RackEntry) -> Iterator[Problem]:
    """Find nodes that reach out of their rack or overlap."""
    placed = sorted(
        (node.position_u, place, node)
        for place, node in enumerate(rack.nodes)
        if node.position_u is not None
    )
    free_u, below = 1, ""
    for position_u, place, node in placed:
        at = (*path, "nodes", place, "position_u")
        top_u = position_u + node.height_u - 1
        if top_u > rack.height_u:
            yield Problem(at, f"it would end at U{top_u} of a rack of {rack.height_u} U")
        if position_u < free_u:
            yield Problem(at, f"{below} fills the rack up to U{free_u - 1}")
        if top_u >= free_u:
            free_u, below = top_u + 1, node.name


def _node(
    path: Path, node: NodeEntry, site: str, storage: Collection[str], world: _World
) -> Iterator[Problem]:
    yield from _refer((*path, "model"), "node model", node.model, world.node_models)
    yield from _refer(
        (*path, "storage_endpoint"),
        "storage endpoint",
        node.storage_endpoint,
        storage,
        f" at site {site}",
    )
    group = node.gpus
    if isinstance(group, GpuGroup):
        yield from _refer((*path, "gpus", "model"), "GPU model", group.model, world.gpu_models)
        yield from _slices((*path, "gpus"), group)
        return
    indexes: set[int] = set()
    for place, gpu in enumerate(group):
        at = (*path, "gpus", place)
        yield from _refer((*at, "model"), "GPU model", gpu.model, world.gpu_models)
        yield from _slices(at, gpu)
        if gpu.index in indexes:
            yield Problem((*at, "index"), f"the node has two GPUs {gpu.index}")
        indexes.add(gpu.index)


def _slices(path: Path, gpus: GpuGroup | GpuEntry) -> Iterator[Problem]:
    if problem := problem_of(gpus.model, gpus.slices):
        yield Problem((*path, "slices"), problem)


def _link(path: Path, link: LinkEntry, world: _World) -> Iterator[Problem]:
    yield from _refer((*path, "site"), "site", link.site, world.sites, _HERE)
    if link.site not in world.sites:
        return
    racks = world.sites[link.site].rack
    yield from _refer((*path, "rack"), "rack", link.rack, racks, f" at site {link.site}")
    if link.node is not None and world.nodes.get(link.node) != link.site:
        yield Problem((*path, "node"), f"no node {link.node!r} at site {link.site}")
    if link.rack is not None and link.node is not None:
        yield Problem((*path, "node"), "a link starts at a rack or at a node, not at both")
    yield from _refer((*path, "peer_site"), "site", link.peer_site, world.all_sites)
    if link.peer_site == link.site:
        yield Problem((*path, "peer_site"), "the other end is at another site")


def _meter(path: Path, meter: MeterEntry, world: _World) -> Iterator[Problem]:
    targets = [name for name in _METER_TARGETS if getattr(meter, name) is not None]
    if len(targets) != 1:
        yield Problem(path, f"a meter measures one of: {', '.join(_METER_TARGETS)}")
        return
    target = targets[0]
    value: Any = getattr(meter, target)
    if target == "node":
        site = world.nodes.get(value)
        if site is None or meter.site not in (None, site):
            where = _HERE if meter.site is None else f" at site {meter.site}"
            yield Problem((*path, "node"), f"no node {value!r}{where}")
    elif meter.site is None:
        yield Problem(path, f"site is missing: a {target}'s name holds at one site only")
    elif meter.site not in world.sites:
        yield from _refer((*path, "site"), "site", meter.site, world.sites, _HERE)
    else:
        known = getattr(world.sites[meter.site], target)
        what = target.replace("_", " ")
        yield from _refer((*path, target), what, value, known, f" at site {meter.site}")
