"""Numbers to text for people: 560.4 ms, 2.45 TB, 9.8 MW, four digits each; counts in full."""

from __future__ import annotations

import math

__all__ = ["number", "quantity"]

_DIGITS = 4
#: Symbols that take a decimal prefix, with the power of ten that they carry already.
_PREFIXED = {
    "B": ("B", 0),
    "B/s": ("B/s", 0),
    "bit/s": ("bit/s", 0),
    "FLOP": ("FLOP", 0),
    "FLOP/s": ("FLOP/s", 0),
    "W": ("W", 0),
    "kW": ("W", 3),
    "J": ("J", 0),
    "kWh": ("Wh", 3),
}
#: Symbols that go with a number in another form.
_AFTER_A_NUMBER = {"token/s": " tokens/s", "year": " years", "1/s": "/s", "1/h": "/h"}
_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_LEAST_PREFIX = {"W": -9, "J": -9, "Wh": -3}
#: (below so many seconds, unit, its length in seconds)
_TIMES = (
    (1e-6, "ns", 1e-9),
    (1e-3, "µs", 1e-6),
    (1.0, "ms", 1e-3),
    (120.0, "s", 1.0),
    (7200.0, "min", 60.0),
    (48 * 3600.0, "h", 3600.0),
    (2 * 365 * 86400.0, "d", 86400.0),
    (math.inf, "years", 365 * 86400.0),
)
_SECONDS = {"s": 1.0, "h": 3600.0}


def quantity(value: float, symbol: str | None) -> str:
    """Return ``value``, which is in ``symbol``, with the unit that makes it easy to read."""
    if not math.isfinite(value) or symbol is None:
        return number(value)
    if symbol in _SECONDS:
        return _time(value * _SECONDS[symbol])
    if symbol in _PREFIXED:
        return _prefixed(value, *_PREFIXED[symbol])
    return number(value) + _AFTER_A_NUMBER.get(symbol, f" {symbol}")


def number(value: float) -> str:
    """Return a whole number in full, any other with four digits."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    exponent = math.floor(math.log10(abs(value)))
    if not -_DIGITS <= exponent < 15:
        return f"{value:.{_DIGITS - 1}e}"
    decimals = max(0, _DIGITS - 1 - exponent)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    # Rounded first, so that a hair under 1 s is not 1,000 ms.
    size = _rounded(abs(seconds))
    unit, length = next((unit, length) for below, unit, length in _TIMES if size < below)
    return f"{number(_rounded(seconds / length))} {unit}"


def _prefixed(value: float, symbol: str, exponent: int) -> str:
    value = _rounded(value * 10.0**exponent)
    if value == 0:
        return f"0 {symbol}"
    step = 3 * math.floor(math.log10(abs(value)) / 3)
    step = min(18, max(_LEAST_PREFIX.get(symbol, 0), step))
    return f"{number(_rounded(value / 10.0**step))} {_PREFIXES[step]}{symbol}"


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")
