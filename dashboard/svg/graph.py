"""The phases of a job as a graph of their dependencies, from left to right. Pure.

A phase stands right of all that it waits for. A line that passes a column in between has a place of
its own there, so that no line runs behind a box.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

#: px; the drawing has its natural size, and scrolls where there is too little room.
BOX_WIDTH, BOX_HEIGHT = 172, 62
#: Of the place of a line that passes a column.
_PASS_HEIGHT = 10
_GAP_X, _GAP_Y, _PAD = 44, 14, 4
_LINE_CHARS = 24
_CURRENT = format_html(' aria-current="{}"', "true")

#: Column from the left and place from the top.
Place: TypeAlias = tuple[int, int]
#: A phase, or where the line between two phases passes a column.
_Item: TypeAlias = str | tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Box:
    """The drawing of a phase. ``mark`` and ``look`` (a CSS class ``phase-LOOK``) tell its state."""

    name: str
    needs: tuple[str, ...]
    href: str
    mark: str
    look: str
    #: what is written below its name, at most two lines
    lines: tuple[str, ...]
    #: all of it in words
    title: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of phases, and those that the lines between them pass."""

    places: dict[str, Place]
    routes: list[list[Place]]
    #: the places of each column from the top: whether a phase stands there
    columns: list[list[bool]]


@dataclass(slots=True)
class _Columns:
    """Phases by column, with the places that lines take up."""

    items: list[list[_Item]] = field(default_factory=list)
    before: dict[_Item, list[_Item]] = field(default_factory=dict)

    def add(self, column: int, item: _Item, before: list[_Item]) -> None:
        while len(self.items) <= column:
            self.items.append([])
        self.items[column].append(item)
        self.before[item] = before

    def ordered(self) -> dict[_Item, Place]:
        """Return the place of each item: beside those before it, lines below phases."""
        places: dict[_Item, Place] = {}
        for column, items in enumerate(self.items):
            rank = {item: _mean(places, self.before[item]) for item in items}
            ranked = sorted(items, key=lambda item: (rank[item], isinstance(item, tuple)))
            places |= {item: (column, place) for place, item in enumerate(ranked)}
        return places


def _mean(places: Mapping[_Item, Place], items: Sequence[_Item]) -> float:
    return sum(places[item][1] for item in items) / len(items) if items else 0.0


def layout(needs: Mapping[str, Sequence[str]]) -> Layout:
    """Return where each phase stands. ``needs``: those before each, in the order of the phases.

    What is needed and is not there is left out. Raises ValueError where phases wait in a circle.
    """
    known = {
        name: [each for each in dict.fromkeys(before) if each in needs]
        for name, before in needs.items()
    }
    depth = _depths(known)
    columns = _Columns()
    ends: dict[tuple[str, str], _Item] = {}
    for name in sorted(known, key=lambda each: depth[each]):
        columns.add(depth[name], name, [ends[each, name] for each in known[name]])
        for after in (each for each in known if name in known[each]):
            ends[name, after] = _pass(columns, name, after, depth)
    places = columns.ordered()
    routes = [
        _route(columns, places, ends[before, name], name)
        for name in known
        for before in known[name]
    ]
    taken = {places[name] for name in known}
    drawn = [
        [(column, place) in taken for place in range(len(items))]
        for column, items in enumerate(columns.items)
    ]
    return Layout({name: places[name] for name in known}, routes, drawn)


def _pass(columns: _Columns, name: str, after: str, depth: Mapping[str, int]) -> _Item:
    """Give the line from ``name`` to ``after`` a place in each column between; return its last."""
    last: _Item = name
    for column in range(depth[name] + 1, depth[after]):
        item = (name, after, column)
        columns.add(column, item, [last])
        last = item
    return last


def _route(columns: _Columns, places: Mapping[_Item, Place], last: _Item, name: str) -> list[Place]:
    route, item = [places[name]], last
    while isinstance(item, tuple):
        route.append(places[item])
        (item,) = columns.before[item]
    return [*reversed([*route, places[item]])]


def _depths(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the length of the longest chain of phases before each."""
    depth: dict[str, int] = {}
    while len(depth) < len(needs):
        ready = [
            name
            for name, before in needs.items()
            if name not in depth and all(each in depth for each in before)
        ]
        if not ready:
            raise ValueError("phases wait for each other in a circle")
        depth |= {name: max((depth[b] + 1 for b in needs[name]), default=0) for name in ready}
    return depth


def graph(boxes: Sequence[Box], label: str) -> SafeString:
    """Return an SVG of its natural size; each box is a link."""
    found = layout({box.name: box.needs for box in boxes})
    height = max(map(_height, found.columns), default=0) + 2 * _PAD
    width = len(found.columns) * (BOX_WIDTH + _GAP_X) - _GAP_X + 2 * _PAD
    middle = {
        (column, place): (_PAD + column * (BOX_WIDTH + _GAP_X), y)
        for column, places in enumerate(found.columns)
        for place, y in enumerate(_middles(places, (height - _height(places)) / 2))
    }
    return format_html(
        '<svg class="phases" width="{}" height="{}" viewBox="0 0 {} {}" role="group"'
        ' aria-label="{}">{}{}</svg>',
        width,
        f"{height:.0f}",
        width,
        f"{height:.0f}",
        label,
        _join(_line(middle, route) for route in found.routes),
        _join(_box(box, *middle[found.places[box.name]]) for box in boxes),
    )


def _height(column: Sequence[bool]) -> float:
    return sum(map(_height_of, column)) + _GAP_Y * (len(column) - 1)


def _height_of(is_box: bool) -> float:
    return BOX_HEIGHT if is_box else _PASS_HEIGHT


def _middles(column: Sequence[bool], top: float) -> Iterator[float]:
    """Return how far down the middle of each place of a column is that begins at ``top``."""
    for is_box in column:
        yield top + _height_of(is_box) / 2
        top += _height_of(is_box) + _GAP_Y


def _line(middle: Mapping[Place, tuple[float, float]], route: Sequence[Place]) -> SafeString:
    """Return a line from the right of the first place, through those between, to the last.

    ``middle``: the left end of each place, half-way down.
    """
    first_x, y = middle[route[0]]
    x = first_x + BOX_WIDTH
    parts = [f"M{x:.0f} {y:.0f}"]
    for place in route[1:]:
        next_x, next_y = middle[place]
        bend = (x + next_x) / 2
        parts.append(f"C{bend:.0f} {y:.0f} {bend:.0f} {next_y:.0f} {next_x:.0f} {next_y:.0f}")
        x, y = next_x, next_y
        if place != route[-1]:
            x += BOX_WIDTH
            parts.append(f"H{x:.0f}")
    return format_html(
        '<path class="phase-line" d="{}"/><path class="phase-tip" d="M{} {}l-7 -4v8z"/>',
        " ".join(parts),
        f"{x:.0f}",
        f"{y:.0f}",
    )


def _box(box: Box, x: float, middle: float) -> SafeString:
    y = middle - BOX_HEIGHT / 2
    texts = (
        (f"{x + 10:.0f}", f"{y + 36 + 16 * row:.0f}", clipped(text))
        for row, text in enumerate(box.lines)
    )
    return format_html(
        '<a id="phase-{}" class="phase phase-{}" href="{}" aria-label="{}"{}><title>{}</title>'
        '<rect class="phase-box" x="{}" y="{}" width="{}" height="{}" rx="5"/>'
        '<text class="phase-name" x="{}" y="{}">{}</text>{}</a>',
        box.name,
        box.look,
        box.href,
        box.title,
        _CURRENT if box.chosen else "",
        box.title,
        f"{x:.0f}",
        f"{y:.0f}",
        BOX_WIDTH,
        BOX_HEIGHT,
        f"{x + 10:.0f}",
        f"{y + 19:.0f}",
        f"{box.mark} {clipped(box.name, _LINE_CHARS - 4)}",
        format_html_join("", '<text class="phase-text" x="{}" y="{}">{}</text>', texts),
    )


def clipped(text: str, most: int = _LINE_CHARS) -> str:
    """Return ``text``, its end replaced by an ellipsis where it has more than ``most`` letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _join(parts: Iterable[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))
