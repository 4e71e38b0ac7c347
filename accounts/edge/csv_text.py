"""CSV as all of Headroom writes it: one writer, safe to open in a spreadsheet.

Names of jobs, nodes and reasons are other people's text. A cell that begins like a formula is run
as one by spreadsheets, so such text gets an apostrophe in front. Numbers are written as they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from django.http import HttpResponse

__all__ = ["cell", "csv_response", "csv_text", "lines", "utc_iso"]

#: What a formula begins with, also in full width; tabs and line breaks are skipped before it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Echo:
    """A file for csv.writer that hands each line back."""

    def write(self, line: str) -> str:
        return line


def cell(value: object) -> object:
    """Return a value as it is written: text that would be a formula quoted, moments in UTC."""
    if isinstance(value, datetime):
        return utc_iso(value)
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return f"'{value}"
    return value


def utc_iso(moment: datetime) -> str:
    """Return ``2026-03-01T12:00:00Z``, with the milliseconds of a moment that has any."""
    at = moment.astimezone(UTC)
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")[:-6] + "Z"


def lines(rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a line for each row. None is an empty cell."""
    writer = csv.writer(_Echo())
    for row in rows:
        yield writer.writerow([cell(each) for each in row])


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return the whole file."""
    text = io.StringIO()
    text.writelines(lines(rows))
    return text.getvalue()


def csv_response(rows: Iterable[Iterable[object]], name: str = "") -> HttpResponse:
    """Answer with a file; with ``name``, one to keep, as ``NAME.csv``."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'} if name else {}
    return HttpResponse(csv_text(rows), content_type="text/csv; charset=utf-8", headers=headers)
