"""A table of a page as data: what its HTML shows, as columns and rows.

The page is the one place that knows what its reader may see, which filters hold and in which order
rows stand. So a table is not made a second time for a file: its own HTML is read. Numbers and
moments stand in it with their raw values while a file is made (``dashboard/exports.py``).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from html.parser import HTMLParser
from typing import Final

from accounts.edge.csv_text import utc_iso

__all__ = ["Column", "Table", "Value", "as_cards", "mark", "read", "slug", "titles"]

Value = str | int | float | None

#: Around a raw value, its unit, and its words: control characters, none of them white space.
_BEGIN, _NEXT, _END = "\x02", "\x04", "\x03"
_MARKED = re.compile(f"{_BEGIN}([^{_NEXT}]*){_NEXT}([^{_NEXT}]*){_NEXT}([^{_END}]*){_END}")
_PLAIN = re.compile(r"[-\N{MINUS SIGN}]?[0-9][0-9,]*(\.[0-9]+)?")
_DASHES: Final = frozenset({"", "\N{EN DASH}", "-"})
#: Words beside a number that its column says already.
_BESIDE: Final = frozenset({"", "ago"})

#: Units as names of columns have them.
_UNIT_NAMES: Final = {"%": "percent", "°C": "c", "K": "k", "±": "plus_minus"}

_VOID: Final = frozenset(
    {"br", "img", "input", "hr", "wbr", "col", "rect", "line", "circle", "path"}
)
_BREAKS: Final = frozenset({"br", "p", "li", "div", "dd", "dt", "ul", "details", "summary", "span"})
#: What one may do, in a cell or as one: no part of what is shown.
_ACTS: Final = "row-acts"
#: A word whose meaning a page can tell.
_TERM: Final = "term"
#: What no file can hold: controls and pictures.
_CONTROLS: Final = frozenset({"button", "form", "select", "svg", "script", "template", "input"})


@dataclass(frozen=True, slots=True)
class Column:
    """``name`` as files have it, with its unit; ``title`` as the page has it."""

    name: str
    title: str
    unit: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table: in each row a value for each column; None where the page shows a dash."""

    columns: tuple[Column, ...]
    rows: list[list[Value]]


def mark(value: float, unit: str, text: str) -> str:
    """Return ``text`` with the raw ``value``, in ``unit``, as :func:`read` finds it."""
    return f"{_BEGIN}{value!r}{_NEXT}{unit}{_NEXT}{text}{_END}"


@dataclass(slots=True)
class _Cell:
    """``unit``: what a head says of its column's. ``moments``: of each <time>, it and its words."""

    is_number: bool
    span: int
    unit: str
    pieces: list[str] = field(default_factory=list)
    moments: list[tuple[str, list[str]]] = field(default_factory=list)
    has_control: bool = False

    @property
    def text(self) -> str:
        """What a person reads."""
        return _words(_MARKED.sub(lambda found: found[3], "".join(self.pieces)))


class _Reader(HTMLParser):
    """Collects the cells of one table."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.head: list[_Cell] = []
        self.rows: list[list[_Cell]] = []
        self._in_head = False
        self._cell: _Cell | None = None
        self._skipped: list[str] = []
        self._in_time = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped:
            if tag == self._skipped[-1] and tag not in _VOID:
                self._skipped.append(tag)
            return
        given = dict(attrs)
        if tag == "thead":
            self._in_head = True
        elif tag == "tr":
            if not self._in_head:
                self.rows.append([])
        elif tag in ("td", "th"):
            self._begin(tag, given)
        elif self._cell is not None:
            self._within(self._cell, tag, given)

    def _begin(self, tag: str, given: dict[str, str | None]) -> None:
        classes = (given.get("class") or "").split()
        span = given.get("colspan") or "1"
        self._cell = _Cell(
            is_number="num" in classes,
            span=int(span) if span.isdecimal() else 1,
            unit=given.get("data-unit") or "",
            has_control=_ACTS in classes,
        )
        if _ACTS in classes:
            self._skipped.append(tag)
        if self._in_head:
            self.head.append(self._cell)
        elif self.rows:
            self.rows[-1].append(self._cell)

    def _within(self, cell: _Cell, tag: str, given: dict[str, str | None]) -> None:
        classes = (given.get("class") or "").split()
        if _TERM in classes:
            return
        is_control = tag in _CONTROLS or _ACTS in classes
        is_away = given.get("aria-hidden") == "true" or "hidden" in given or "popover" in given
        if is_control or is_away:
            cell.has_control = cell.has_control or is_control
            if tag not in _VOID:
                self._skipped.append(tag)
        elif tag in _BREAKS:
            cell.pieces.append(" ")
        elif tag == "time":
            cell.moments.append((given.get("datetime") or "", []))
            self._in_time = True

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
        elif tag == "thead":
            self._in_head = False
        elif tag in ("td", "th"):
            self._cell = None
        elif tag == "time":
            self._in_time = False
        elif tag in _BREAKS and self._cell is not None:
            self._cell.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if self._cell is None or self._skipped:
            return
        self._cell.pieces.append(data)
        if self._in_time:
            self._cell.moments[-1][1].append(data)


def titles(html: str) -> list[str]:
    """Return the titles of the columns of a table, as its page has them."""
    return list(_titles(html[: html.find("</thead>") + len("</thead>")]))


@functools.lru_cache(maxsize=256)
def _titles(head: str) -> tuple[str, ...]:
    """Heads hardly ever change, and panels are polled every few seconds."""
    reader = _Reader()
    reader.feed(head)
    return tuple(cell.text for cell in reader.head)


#: What each part of a table is to a screen reader; browsers forget it of parts that are laid out
#: anew.
_ROLES: Final = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row"}
_PART = re.compile(r"<(table|thead|tbody|tr|th|td)(?=[\s>])([^>]*)((?=>\s*\N{EN DASH}?\s*</td>))?")


def as_cards(html: str, titles: Sequence[str]) -> str:
    """Return a table whose rows a narrow window can show as blocks of a title and a value.

    Each cell below the head has the title of its column as ``data-label``, and each part its role;
    the table has the class ``cards``. Cells over several columns have no title, and those that hold
    nothing, or a dash, the attribute ``data-blank``: a block leaves them out.
    """
    at, in_head = 0, False

    def told(found: re.Match[str]) -> str:
        nonlocal at, in_head
        tag, given, blank = found.groups()
        if tag in _ROLES:
            at = 0
            in_head = tag == "thead" or (in_head and tag == "tr")
            more = f' role="{_ROLES[tag]}"'
        else:
            label = "" if in_head or "colspan" in given or at >= len(titles) else titles[at]
            at += 1
            more = f' role="{_cell_role(tag, in_head=in_head)}"'
            more += f' data-label="{escape(label)}"' if label else ""
            more += "" if blank is None else " data-blank"
        return f"{found[0]}{more}"

    return _PART.sub(told, html).replace('class="', 'class="cards ', 1)


def _cell_role(tag: str, *, in_head: bool) -> str:
    if tag == "td":
        return "cell"
    return "columnheader" if in_head else "rowheader"


def read(html: str, hidden: Iterable[int] = ()) -> Table:
    """Return a table as data; without the columns of which ``hidden`` has the places, from 0.

    Columns that only hold buttons are left out, as are rows that are one sentence.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    width = len(reader.head)
    rows = [spread for row in reader.rows if (spread := _spread(row, width)) is not None]
    away = set(hidden)
    kept = [at for at in range(width) if at not in away and not _holds_controls(at, rows)]
    units = [_unit([row[at] for row in rows]) for at in kept]
    told = [unit or reader.head[at].unit for at, unit in zip(kept, units, strict=True)]
    names = _names([reader.head[at].text for at in kept], told)
    return Table(
        columns=tuple(
            Column(name, reader.head[at].text, unit)
            for at, name, unit in zip(kept, names, told, strict=True)
        ),
        rows=[
            [_value(row[at], unit) for at, unit in zip(kept, units, strict=True)] for row in rows
        ],
    )


def _spread(row: Sequence[_Cell], width: int) -> list[_Cell | None] | None:
    """Return a cell for each column; None for a row that is a sentence over all of them."""
    if not row or (len(row) == 1 and width > 1):
        return None
    cells = [part for cell in row for part in (cell, *[None] * (cell.span - 1))]
    return [*cells, *[None] * (width - len(cells))][:width]


def _holds_controls(at: int, rows: Sequence[Sequence[_Cell | None]]) -> bool:
    cells = [cell for row in rows if (cell := row[at]) is not None]
    return any(cell.has_control for cell in cells) and not any(cell.text for cell in cells)


def _unit(cells: Sequence[_Cell | None]) -> str:
    """Return the unit of a column's raw values; empty where they have none, or several."""
    units = {found[2] for cell in cells if cell is not None and (found := _lone(cell))}
    return units.pop() if len(units) == 1 else ""


def _lone(cell: _Cell) -> re.Match[str] | None:
    """Return the raw value that a cell is, if it is one and no more."""
    whole = _words("".join(cell.pieces))
    found = _MARKED.search(whole)
    if found is None:
        return None
    beside = (whole[: found.start()] + whole[found.end() :]).strip()
    return found if beside in _BESIDE else None


def _value(cell: _Cell | None, unit: str) -> Value:
    text = cell.text if cell is not None else ""
    if cell is None or text in _DASHES:
        return None
    if (found := _lone(cell)) is not None and found[2] == unit:
        return _number(found[1])
    if len(cell.moments) == 1 and _words("".join(cell.moments[0][1])) == text:
        return _moment(cell.moments[0][0]) or text
    if cell.is_number and _PLAIN.fullmatch(text):
        return _number(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
    return text


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _moment(text: str) -> str:
    """Return a moment as ISO 8601 in UTC; empty: it is none."""
    try:
        return utc_iso(datetime.fromisoformat(text))
    except ValueError:
        return ""


def _words(text: str) -> str:
    return " ".join(text.split())


def _names(titles: Sequence[str], units: Sequence[str]) -> list[str]:
    """Return a name of its own for each column: its title, and its unit where that is not in it."""
    made = []
    for at, (title, unit) in enumerate(zip(titles, units, strict=True)):
        name, end = slug(title) or f"column_{at + 1}", slug(unit)
        made.append(name if not end or f"_{end}_" in f"_{name}_" else f"{name}_{end}")
    seen: Counter[str] = Counter()
    unique = []
    for name in made:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def slug(text: str) -> str:
    """Return words as the name of a column: ``cap, W/GPU`` is ``cap_w_per_gpu``."""
    for unit, name in _UNIT_NAMES.items():
        text = text.replace(unit, f" {name} ") if len(unit) > 1 or not unit.isalnum() else text
    text = text.replace("/", " per ").lower()
    return re.sub(r"[^0-9a-z]+", "_", text).strip("_")
