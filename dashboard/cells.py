"""The heatmap as elements, for the first render. static/js/fleet.js keeps them up to date.

Thousands of cells: strings are put together here, not by a template loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from dashboard import live, scale, units
from dashboard.live import Column, Metric
from fleet.snapshot import FleetArrays

#: With more racks than this, cells are small squares without words.
DENSE_ABOVE = 240


@dataclass(frozen=True)
class HeatRow:
    name: str
    cells: SafeString


@dataclass(frozen=True)
class HeatSite:
    name: str
    rows: list[HeatRow]


def heat_sites(
    fleet: FleetArrays, columns: dict[str, Column], metric: Metric, site: int | None
) -> list[HeatSite]:
    """Return the cells by site and row of racks. ``columns`` is the result of ``live.heatmap``."""
    chosen = live.racks_of(fleet, site)
    names, rows = fleet.racks.names[chosen].tolist(), fleet.racks.row[chosen].tolist()
    site_rows = fleet.racks.site[chosen].tolist()
    made = []
    places = range(len(names))
    for site_row, in_site in groupby(places, key=site_rows.__getitem__):
        heat_rows = [
            HeatRow(name, _cells(in_row, names, columns, metric))
            for name, in_row in groupby(in_site, key=rows.__getitem__)
        ]
        made.append(HeatSite(str(fleet.sites.names[site_row]), heat_rows))
    return made


def _cells(
    places: Iterator[int], names: list[str], columns: dict[str, Column], metric: Metric
) -> SafeString:
    ids, levels = columns["id"], columns["level"]
    values, stale_nodes = columns["value"], columns["stale_nodes"]
    html = [cell(ids[i], names[i], metric, levels[i], values[i], stale_nodes[i]) for i in places]
    return mark_safe("\n".join(html))  # noqa: S308 - each cell escapes its name


def cell(
    key: int, name: str, metric: Metric, level: int, value: float | None, stale_nodes: int
) -> str:
    """Return one rack as a link. Its name is escaped."""
    title = conditional_escape(name)
    shown = live.figure(metric.kind, value) if level != scale.UNKNOWN else units.DASH
    words = live.says(metric, level, stale_nodes)
    css = cell_class(level, stale_nodes)
    return (
        f'<a class="cell {css}" href="/racks/{key}/" id="rack-{key}" data-rack="{key}"'
        f' aria-label="{title} {shown} {words}"><b>{title}</b><span>{shown}</span></a>'
    )


def cell_class(level: int, stale_nodes: int) -> str:
    """Return the classes of a cell: its level, and a corner where some of its nodes are stale."""
    partly = stale_nodes and level not in (scale.STALE, scale.UNKNOWN)
    return f"{scale.css(level)} part-stale" if partly else scale.css(level)
