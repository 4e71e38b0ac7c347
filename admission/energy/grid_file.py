"""Figures of a grid by the hour, in CSV: ``hour``, ``carbon_g_per_kwh``, ``price_per_kwh``."""

from __future__ import annotations

import csv
import io
import math
from contextlib import suppress
from datetime import UTC, datetime

from admission.energy.actions import Told
from telemetry.rollups.spec import HOUR_S

__all__ = ["BadGridFile", "parse"]

_COLUMNS = ("hour", "carbon_g_per_kwh", "price_per_kwh")
#: What is beyond is no figure of a grid: g CO2e/kWh, and money/kWh.
_BOUNDS = {"carbon_g_per_kwh": (0.0, 5000.0), "price_per_kwh": (-1000.0, 1000.0)}
#: Ten years of one site.
MOST_HOURS = 87_660


class BadGridFile(ValueError):
    """The file cannot be taken. The message begins with the line."""


def parse(text: str) -> list[Told]:
    """Return the hours of a file. Raises :class:`BadGridFile` with line and column."""
    lines = csv.DictReader(io.StringIO(text), strict=True)
    names = [name.strip() for name in lines.fieldnames or ()]
    if "hour" not in names or len(names) < 2 or not set(names) <= set(_COLUMNS):
        raise BadGridFile(f"line 1: give the columns hour and one or both of {_COLUMNS[1:]}")
    lines.fieldnames = names
    found: dict[datetime, Told] = {}
    try:
        for row in lines:
            told = _told(row, lines.line_num)
            if told.hour in found:
                raise BadGridFile(f"line {lines.line_num}: hour: it is there twice")
            found[told.hour] = told
            if len(found) > MOST_HOURS:
                raise BadGridFile(f"line {lines.line_num}: more than {MOST_HOURS} hours")
    except csv.Error as error:
        raise BadGridFile(f"line {lines.line_num}: {error}") from None
    return list(found.values())


def _told(row: dict[str, str | None], line: int) -> Told:
    if None in row or None in row.values():
        raise BadGridFile(f"line {line}: it has not as many columns as the first")
    values = {name: _number(row, name, line) for name in _BOUNDS}
    if all(value is None for value in values.values()):
        raise BadGridFile(f"line {line}: it tells nothing of its hour")
    return Told(_hour(str(row["hour"]), line), **values)


def _hour(text: str, line: int) -> datetime:
    at = None
    with suppress(ValueError):
        at = datetime.fromisoformat(text.strip())
    if at is None or at.tzinfo is None or at.timestamp() % HOUR_S:
        raise BadGridFile(
            f"line {line}: hour: {text[:40]!r} is no whole hour of UTC with its offset, such as"
            " 2026-03-01T14:00+01:00"
        )
    return at.astimezone(UTC)


def _number(row: dict[str, str | None], name: str, line: int) -> float | None:
    text = (row.get(name) or "").strip()
    if not text:
        return None
    least, most = _BOUNDS[name]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise BadGridFile(
            f"line {line}: {name}: {text[:40]!r} is no number from {least:g} to {most:g}"
        )
    return value
