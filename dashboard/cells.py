"""The heatmap as elements, for the first render. static/js/fleet.js keeps them up to date.

Thousands of cells: strings are put together here, not by a template loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from dashboard import live, scale, units
from dashboard.live import Array, Column, Metric
from fleet.snapshot import FleetArrays

#: With more racks than this, cells are small squares without words.
DENSE_ABOVE = 240


@dataclass(frozen=True)
class HeatRow:
    """A row of racks. kW; ``least`` is what its tightest rack has left, in percent.

    NaN or None: not known. static/js/fleet.js works them out anew with each poll.
    """

    name: str
    cells: SafeString
    load_kw: float
    budget_kw: float
    least: int | None

    @property
    def says(self) -> str:
        """The row in a line: ``41.2 of 60.0 kW · tightest 12 % left``."""
        load, budget = units.number(self.load_kw, 1), units.number(self.budget_kw, 1)
        left = "not known" if self.least is None else f"{units.number(abs(self.least))} %"
        way = "" if self.least is None else " over" if self.least < 0 else " left"
        return f"{load} of {budget} kW · tightest {left}{way}"


@dataclass(frozen=True)
class HeatSite:
    name: str
    rows: list[HeatRow]


#: The racks of one row by place among those that are shown.
_Places = list[int]


def heat_sites(
    fleet: FleetArrays,
    columns: dict[str, Column],
    metric: Metric,
    site: int | None,
    worst_of: Array | None = None,
) -> list[HeatSite]:
    """Return the cells by site and row of racks. ``columns`` is the result of ``live.heatmap``.

    ``worst_of``: of each rack of the fleet the share that is left; sites, their rows and the racks
    of each row stand in that order then, the least first and what is not known last. None: as the
    inventory has them.
    """
    chosen = live.racks_of(fleet, site)
    names, rows = fleet.racks.names[chosen].tolist(), fleet.racks.row[chosen].tolist()
    site_rows = fleet.racks.site[chosen].tolist()
    rank = None if worst_of is None else _ranks(worst_of[chosen])
    made = []
    for site_row, in_site in groupby(range(len(names)), key=site_rows.__getitem__):
        by_row = [(name, list(racks)) for name, racks in groupby(in_site, key=rows.__getitem__)]
        made.append((int(site_row), _ordered(by_row, rank)))
    if rank is not None:
        made.sort(key=lambda each: rank[each[1][0][1][0]])
    return [
        HeatSite(
            str(fleet.sites.names[site_row]),
            [_row(name, racks, names, columns, metric) for name, racks in by_row],
        )
        for site_row, by_row in made
    ]


def _ranks(margin: Array) -> list[int]:
    """Return the place of each rack when the least margin comes first, and unknown ones last."""
    order = np.argsort(np.where(np.isnan(margin), np.inf, margin), kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    found: list[int] = ranks.tolist()
    return found


def _ordered(
    by_row: list[tuple[str, _Places]], rank: list[int] | None
) -> list[tuple[str, _Places]]:
    if rank is None:
        return by_row
    ordered = [(name, sorted(racks, key=rank.__getitem__)) for name, racks in by_row]
    return sorted(ordered, key=lambda each: rank[each[1][0]])


def _row(
    name: str, racks: _Places, names: list[str], columns: dict[str, Column], metric: Metric
) -> HeatRow:
    left = [columns["tightest"][i] for i in racks if columns["tightest"][i] is not None]
    return HeatRow(
        name,
        _cells(racks, names, columns, metric),
        _sum(columns["load_kw"], racks),
        _sum(columns["budget_kw"], racks),
        min(left, default=None),
    )


def _sum(column: Column, racks: _Places) -> float:
    """Return the sum; NaN where one of them is not known: less than all would look like all."""
    return sum(math.nan if column[i] is None else column[i] for i in racks)


def _cells(
    places: _Places, names: list[str], columns: dict[str, Column], metric: Metric
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
