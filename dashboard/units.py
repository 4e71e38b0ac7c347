"""Numbers as people read them. Missing values (None, NaN) are a dash. static/js/fleet.js agrees."""

from __future__ import annotations

import math

#: En dash and minus sign: as wide as a figure, and read out as what they are.
DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def _missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def number(value: float | None, digits: int = 0) -> str:
    """Return ``1,234.5`` with a true minus sign."""
    if value is None or math.isnan(value):
        return DASH
    text = f"{value:,.{digits}f}"
    if text.startswith("-"):
        return text[1:] if float(text.replace(",", "")) == 0 else MINUS + text[1:]
    return text


def kilowatts(watts: float | None) -> str:
    """Return W as kW with one decimal, without the unit; whole from 1 MW on."""
    if watts is None or math.isnan(watts):
        return DASH
    return number(watts / 1000, 0 if abs(watts) >= 999_950 else 1)


def percent(share: float | None) -> str:
    """Return a share (1 is all) as whole percent, with the sign."""
    return DASH if share is None or math.isnan(share) else f"{number(share * 100)} %"


def celsius(value: float | None) -> str:
    """Return ``83 °C``."""
    return DASH if _missing(value) else f"{number(value)} °C"


def age(seconds: float | None) -> str:
    """Return how long ago: ``1.2 s``, ``45 s``, ``3 min``, ``2 h``, ``5 d``, or ``never``."""
    if seconds is None or math.isnan(seconds):
        return "never"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    if seconds < 7170:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_200:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86_400:.0f} d"


def took(seconds: float) -> str:
    """Return how long something takes, however short: ``21.0 µs``, ``3.2 ms``, ``2 min``."""
    if 0.0 < seconds < 1e-3:
        return f"{number(seconds * 1e6, 1)} µs"
    return f"{number(seconds * 1e3, 1)} ms" if 0.0 < seconds < 1.0 else age(seconds)


def count(amount: int, one: str, many: str = "") -> str:
    """Return ``1 rack`` or ``3 racks``."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
