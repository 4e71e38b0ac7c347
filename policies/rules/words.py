"""Summaries of firings: texts with ``{field}`` in them, and numbers with their units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: ``{field}``, ``{field:%}`` for a share as a percentage; ``{{`` and ``}}`` stand for themselves.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SI_UNITS = {"W", "bit/s", "byte", "byte/s", "W/s", "bit/s²"}
#: The ends of names that are units. Of two that fit the longer one comes first.
_UNITS = {
    "_bytes_per_s": "byte/s",
    "_bits_per_s": "bit/s",
    "_w_per_s": "W/s",
    "_per_s": "1/s",
    "_gpu_s": "GPU·s",
    "_bytes": "byte",
    "_mhz": "MHz",
    "_c": "°C",
    "_s": "s",
    "_w": "W",
}
#: The ends of names that are shares, 1 for all.
_SHARES = ("_share", "_use", "_confidence", "_sure")
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Measured(Protocol):
    """A field, of which the unit counts here."""

    @property
    def unit(self) -> str: ...


@dataclass(frozen=True)
class Placeholder:
    """A placeholder in a text. ``field`` is empty where a brace stands alone."""

    field: str
    spec: str
    offset: int


def placeholders(template: str) -> Iterator[Placeholder]:
    """Yield the placeholders of a text."""
    for match in _PLACEHOLDER.finditer(template):
        if match[0] in ("{{", "}}"):
            continue
        name, _, spec = (match[1] or "").partition(":")
        yield Placeholder(name.strip(), spec, match.start())


def filled(template: str, values: Mapping[str, Any], fields: Mapping[str, Measured]) -> str:
    """Return the text with its placeholders replaced by ``values`` in words."""

    def word(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name, _, spec = match[1].partition(":")
        name = name.strip()
        unit = fields[name].unit if name in fields else ""
        return spoken(values.get(name), "%" if spec == "%" else unit)

    return _PLACEHOLDER.sub(word, template)


def unfilled(template: str) -> str:
    """Return the text with its placeholders in plain words: ``[name] draws [power drawn]``.

    For a text that is shown before its values are known.
    """

    def blank(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return f"[{named(match[1].partition(':')[0].strip())[0]}]"

    return _PLACEHOLDER.sub(blank, template)


def named(field: str) -> tuple[str, str]:
    """Return a name of code in plain words, and the unit at its end, which :func:`spoken` takes.

    ``thermal_margin_c`` is ``("thermal margin", "°C")``; of shares the unit is ``%``.
    """
    for end, unit in _UNITS.items():
        if f"_{field}".endswith(end):  # "w" alone, too
            return f"_{field}".removesuffix(end).replace("_", " ").strip(), unit
    return field.replace("_", " "), "%" if field.endswith(_SHARES) else ""


def spoken(value: Any, unit: str) -> str:
    """Return a value as people say it, such as ``41.2 kW``, ``1 job`` or ``3.5 min``."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if math.isinf(value):
        return "never" if unit == "s" and value > 0 else "without bound"
    if unit == "%":
        return f"{_short(100 * value)} %"
    if unit == "s":
        return _duration(float(value))
    if unit in _SI_UNITS:
        return _with_prefix(float(value), unit)
    is_one_thing = value == 1 and unit.isalpha()
    return f"{_short(value)} {unit.removesuffix('s') if is_one_thing else unit}".rstrip()


def _duration(seconds: float) -> str:
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= size:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds * 1e6)} µs" if seconds else "0 s"


def _with_prefix(value: float, unit: str) -> str:
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{_short(value / size)} {prefix}{unit}"
    return f"{_short(value)} {unit}"


def _short(value: float) -> str:
    """Return about three digits of a number, and no zeros after the point."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
