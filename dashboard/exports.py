"""CSV and JSON of every table of every page, by one way.

Each table stands in its template within ``{% table "name" %}``, which adds links to its files.
Such a link is the page's own address with ``table`` and ``format`` added: the view runs as ever,
with the same reader, filters and order, and what the tag renders is read as data
(``dashboard/tables.py``). Lists in pages come as one, up to :data:`MOST_ROWS`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone

from accounts.cost import dear_unless_quick
from accounts.edge.csv_text import csv_response, utc_iso
from dashboard import tables

__all__ = [
    "FORMATS",
    "HIDE",
    "MOST_ROWS",
    "TablesMiddleware",
    "address",
    "capture",
    "current_address",
    "hides",
    "is_going_on",
    "measured",
    "most",
    "page_of",
    "told",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., str])

FORMATS = ("csv", "json")
#: A file has no more rows; one that is cut says so in its name.
MOST_ROWS = 5_000
#: Hides a column of a table.
HIDE = "hide"
MOST_HIDDEN = 40
#: Parameters of an address that are no state of the page.
_PASSING = frozenset({"v", "page", "table", "format"})


@dataclass(slots=True)
class _Asked:
    """What is asked for. ``found`` is the table, once it is rendered. Empty ``table``: a page."""

    address: str
    table: str = ""
    form: str = ""
    found: str | None = None
    hidden: list[int] = field(default_factory=list)


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)


class TablesMiddleware:
    """Answers with a file where a page is asked for one of its tables."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(("/api/", "/admin/")) or request.method not in ("GET", "HEAD"):
            return self._get_response(request)
        table = request.GET.get("table", "")
        asked = _Asked(request.get_full_path(), table, request.GET.get("format", ""))
        if table and asked.form not in FORMATS:
            return _refused(f"format: give one of {', '.join(FORMATS)}", 400)
        before = _asked.set(asked)
        try:
            return self._file(request, asked) if table else self._get_response(request)
        finally:
            _asked.reset(before)

    def _file(self, request: HttpRequest, asked: _Asked) -> HttpResponseBase:
        answer = dear_unless_quick("the filters of the page")(self._get_response)(request)
        return answer if answer.status_code != 200 else _file(asked)


def _refused(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")


def _file(asked: _Asked) -> HttpResponse:
    if asked.found is None:
        return _refused("table: this page shows no table of that name now", 404)
    table, at = tables.read(asked.found, asked.hidden), timezone.now()
    is_cut = len(table.rows) >= MOST_ROWS
    parts = [asked.table, f"first-{MOST_ROWS}"] if is_cut else [asked.table]
    name = "-".join([*parts, f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"])
    if asked.form == "csv":
        return csv_response([[each.name for each in table.columns], *table.rows], name)
    return JsonResponse(
        _as_json(asked, table, at, is_cut=is_cut),
        headers={"Content-Disposition": f'attachment; filename="{name}.json"'},
    )


def _as_json(
    asked: _Asked, table: tables.Table, at: datetime, *, is_cut: bool
) -> dict[str, object]:
    names = [each.name for each in table.columns]
    return {
        "table": asked.table,
        "page": address(asked.address),
        "at": utc_iso(at.replace(microsecond=0)),
        "most_rows": MOST_ROWS,
        "is_cut": is_cut,
        "columns": [
            {"name": each.name, "title": each.title, "unit": each.unit} for each in table.columns
        ],
        "rows": [dict(zip(names, row, strict=True)) for row in table.rows],
    }


def address(url: str, more: Sequence[tuple[str, str]] = ()) -> str:
    """Return an address of a page or panel as a path and its lasting parameters, and ``more``."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([*((name, each) for name, each in given if name not in _PASSING), *more])
    return f"{parts.path}?{query}" if query else parts.path


# --- While pages are made ------------------------------------------------------------------------


def is_going_on() -> bool:
    """Say whether a file is being made, and no page: nothing rendered may be kept then."""
    asked = _asked.get()
    return asked is not None and bool(asked.table)


def current_address() -> str:
    """Return the address that is asked for; empty outside of a request."""
    asked = _asked.get()
    return asked.address if asked is not None else ""


def capture(name: str, html: str, hidden: Sequence[int]) -> None:
    """Keep a rendered table, if it is the one that is asked for."""
    asked = _asked.get()
    if asked is not None and asked.table == name:
        asked.found, asked.hidden = html, list(hidden)


def most(few: int) -> int:
    """Return how many of a list are shown: ``few`` on a page, all that may be in a file."""
    return MOST_ROWS if is_going_on() else few


def page_of(items: Sequence[T] | QuerySet[Any], size: int, number: str | int | None) -> Page[Any]:
    """Return the page of a list that is asked for, the nearest where there is none such."""
    if is_going_on():
        return Paginator(items, MOST_ROWS).get_page(1)
    return Paginator(items, size).get_page(number)


def told(text: str, value: float | None, unit: str = "") -> str:
    """Return a number as people read it; while a file is made, with its raw value in ``unit``."""
    if value is None or not is_going_on() or not math.isfinite(value):
        return text
    raw = int(value) if float(value).is_integer() else float(value)
    return tables.mark(raw, unit, text)


def measured(unit: str, per: float = 1.0) -> Callable[[F], F]:
    """Have a filter for numbers tell the raw value, divided by ``per``, in files."""

    def decorate(words: F) -> F:
        @functools.wraps(words)
        def filtered(value: Any, *args: Any) -> str:
            return told(words(value, *args), None if value is None else value / per, unit)

        return cast(F, filtered)

    return decorate


def hides() -> list[tuple[str, str]]:
    """Return what the address hides: parameters ``hide=TABLE.COLUMN``, for links and polls."""
    query = parse_qsl(urlsplit(current_address()).query)
    return [(name, each) for name, each in query if name == HIDE][:MOST_HIDDEN]
