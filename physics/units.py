"""The unit at the end of a name: ``power_w`` is in watts, ``link_bytes_per_s`` in bytes a second.

Names without one of these ends are counts, shares and other numbers of dimension one.
"""

from __future__ import annotations

__all__ = ["SYMBOLS", "unit_of", "without_unit"]

#: End of a name (without its underscore) → symbol. SI, with bytes and FLOP.
SYMBOLS: dict[str, str] = {
    "flops": "FLOP/s",
    "flop": "FLOP",
    "flop_per_byte": "FLOP/B",
    "bytes": "B",
    "bytes_per_s": "B/s",
    "bytes_per_parameter": "B",
    "bits_per_s": "bit/s",
    "w": "W",
    "kw": "kW",
    "w_per_s": "W/s",
    "j": "J",
    "kwh": "kWh",
    "s": "s",
    "h": "h",
    "years": "year",
    "per_s": "1/s",
    "per_h": "1/h",
    "tokens_per_s": "token/s",
    "c": "°C",
    "c_per_w": "°C/W",
    "c_per_s": "°C/s",
    "j_per_c": "J/°C",
    "j_per_kg_c": "J/(kg °C)",
    "kg": "kg",
    "kg_per_s": "kg/s",
    "kg_per_m3": "kg/m³",
    "kg_per_kwh": "kg/kWh",
    "g": "g",
    "g_per_kwh": "g/kWh",
    "l": "L",
    "l_per_kwh": "L/kWh",
    "l_per_s": "L/s",
    "m": "m",
    "m_per_s": "m/s",
    "m3_per_s": "m³/s",
    "usd": "USD",
    "usd_per_kwh": "USD/kWh",
    "mhz": "MHz",
}
#: Names that only look as if they ended in a unit.
_WITHOUT_UNIT = {"erlang_c"}
_LONGEST_FIRST = sorted(SYMBOLS, key=len, reverse=True)


def unit_of(name: str) -> str | None:
    """Return the end of ``name`` that is a unit, or None where it has none."""
    if name in _WITHOUT_UNIT:
        return None
    return next((unit for unit in _LONGEST_FIRST if f"_{name}".endswith(f"_{unit}")), None)


def without_unit(name: str) -> str:
    """Return ``name`` without its unit; a name that is nothing but a unit stays as it is."""
    unit = unit_of(name)
    return name.removesuffix(f"_{unit}") if unit else name
