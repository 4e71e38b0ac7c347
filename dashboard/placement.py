"""The placement of a phase: its racks on the map of their site, and its GPUs on each node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dashboard import scale, units
from dashboard.state import View
from fleet.snapshot import FleetArrays

#: Of a site with more racks than this, only the rows of racks are drawn that the phase stands in.
_MOST_RACKS = 240
#: Nodes that are listed.
NODES_SHOWN = 64
_GPU = 9
_GPU_GAP = 2


@dataclass(frozen=True, slots=True)
class HeldNode:
    """A node with the GPUs of the phase."""

    name: str
    #: page of the node; empty where the inventory has it no more
    href: str
    held: int
    total: int
    peak_w: float
    svg: SafeString


@dataclass(slots=True)
class HeldRack:
    """A rack with the nodes of the phase."""

    name: str
    site: str
    href: str
    gpus: int = 0
    peak_w: float = 0.0
    #: what the rack has left now, W and as a level of the scale
    left_w: float = math.nan
    level: int = scale.UNKNOWN
    nodes: list[HeldNode] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MapRow:
    name: str
    cells: SafeString


@dataclass(frozen=True, slots=True)
class MapSite:
    """A site's racks, row by row. ``left_out``: rows without a GPU of the phase, not drawn."""

    name: str
    rows: list[MapRow]
    left_out: int


@dataclass(frozen=True, slots=True)
class PlacementMap:
    """All that is drawn of a placement."""

    sites: list[MapSite]
    racks: list[HeldRack]
    #: nodes of it that the inventory has no more
    gone: list[str]
    gpus: int
    nodes: int
    #: reserved at the start, hosts included
    peak_w: float
    #: nodes that are not listed
    more: int


def drawn(
    view: View, gpus: Mapping[str, Sequence[int]], peak_w: Mapping[str, float]
) -> PlacementMap:
    """Return the map of a placement. ``gpus`` and ``peak_w``: by node, indexes and W."""
    fleet = view.fleet
    rows = {fleet.nodes.index_by_name.get(name, -1): name for name in gpus}
    gone = sorted(name for name in gpus if name not in fleet.nodes.index_by_name)
    held = _held(view, {row: name for row, name in rows.items() if row >= 0}, gpus, peak_w)
    listed = sum(len(rack.nodes) for rack in held.values())
    return PlacementMap(
        sites=[*_sites(view, held)],
        racks=list(held.values()),
        gone=gone,
        gpus=sum(len(indexes) for indexes in gpus.values()),
        nodes=len(gpus),
        peak_w=sum(peak_w.values()),
        more=len(gpus) - listed - len(gone),
    )


def _held(
    view: View,
    names: Mapping[int, str],
    gpus: Mapping[str, Sequence[int]],
    peak_w: Mapping[str, float],
) -> dict[int, HeldRack]:
    """Return the racks by row, in the inventory's order."""
    found: dict[int, HeldRack] = {}
    for place, row in enumerate(sorted(names)):
        rack = int(view.fleet.nodes.rack[row])
        if rack not in found:
            found[rack] = _rack(view, rack)
        each, name = found[rack], names[row]
        each.gpus += len(gpus[name])
        each.peak_w += peak_w.get(name, math.nan)
        if place < NODES_SHOWN:
            each.nodes.append(_node(view.fleet, row, gpus[name], peak_w.get(name, math.nan)))
    return found


def _rack(view: View, row: int) -> HeldRack:
    racks, now = view.fleet.racks, view.summary.racks
    seen = bool(now.seen[row])
    return HeldRack(
        name=str(racks.names[row]),
        site=str(view.fleet.sites.names[racks.site[row]]),
        href=reverse("rack", args=[int(racks.ids[row])]),
        left_w=float(now.budget_w[row] - now.load_w[row]),
        level=int(scale.levels(now.tightest[row : row + 1], seen=seen)[0]),
    )


def _node(fleet: FleetArrays, row: int, held: Sequence[int], peak_w: float) -> HeldNode:
    first, last = fleet.gpu_bounds[row : row + 2].tolist()
    name = str(fleet.nodes.names[row])
    return HeldNode(
        name=name,
        href=reverse("node", args=[int(fleet.nodes.ids[row])]),
        held=len(held),
        total=last - first,
        peak_w=peak_w,
        svg=_strip(name, fleet.gpus.index[first:last].tolist(), set(held)),
    )


def _strip(node: str, indexes: Sequence[int], held: set[int]) -> SafeString:
    """Return the GPUs of a node as squares, those of the phase filled."""
    squares = (
        (place * (_GPU + _GPU_GAP) + 0.5, "held" if index in held else "free", _GPU, _GPU)
        for place, index in enumerate(indexes)
    )
    width = max(len(indexes), 1) * (_GPU + _GPU_GAP)
    return format_html(
        '<svg class="gpu-strip" width="{}" height="{}" viewBox="0 0 {} {}" role="img"'
        ' aria-label="GPUs {} of {}">{}</svg>',
        width,
        _GPU + 1,
        width,
        _GPU + 1,
        ", ".join(str(index) for index in sorted(held)),
        node,
        format_html_join(
            "", '<rect x="{}" y="0.5" class="strip-{}" width="{}" height="{}" rx="1"/>', squares
        ),
    )


# --- The map -------------------------------------------------------------------------------------


def _sites(view: View, held: Mapping[int, HeldRack]) -> Iterator[MapSite]:
    fleet = view.fleet
    for site in sorted({int(fleet.racks.site[row]) for row in held}):
        first, last = fleet.rack_bounds[site : site + 2].tolist()
        by_row = [
            (name, list(racks))
            for name, racks in groupby(range(first, last), key=lambda row: fleet.racks.row[row])
        ]
        shown = by_row
        if last - first > _MOST_RACKS:
            shown = [each for each in by_row if not held.keys().isdisjoint(each[1])]
        rows = [MapRow(str(name), _cells(fleet, racks, held)) for name, racks in shown]
        yield MapSite(str(fleet.sites.names[site]), rows, len(by_row) - len(shown))


def _cells(fleet: FleetArrays, racks: Sequence[int], held: Mapping[int, HeldRack]) -> SafeString:
    return format_html_join("", "{}", ((_cell(fleet, row, held.get(row)),) for row in racks))


def _cell(fleet: FleetArrays, row: int, held: HeldRack | None) -> SafeString:
    name = str(fleet.racks.names[row])
    if held is None:
        return format_html('<span class="cell away" title="{}"></span>', f"rack {name}")
    left = f"{units.kilowatts(held.left_w)} kW left"
    words = f"rack {name}: {units.count(held.gpus, 'GPU')} of this phase, {left}"
    return format_html(
        '<a class="cell here {}" id="held-{}" href="{}" title="{}" aria-label="{}"><b>{}</b>'
        "<span>{}</span></a>",
        scale.css(held.level),
        int(fleet.racks.ids[row]),
        held.href,
        words,
        words,
        name,
        units.count(held.gpus, "GPU"),
    )
