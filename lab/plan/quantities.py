"""Text to numbers: ``400Gbit/s``, ``50%``, ``256,2048``, ``@file.csv:power``. Units end here.

Behind this edge all numbers are in the unit that the name of their argument says.
"""

from __future__ import annotations

import csv
import functools
import re
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import pint

from lab.plan.names import symbol_of
from physics.errors import UnknownKeyError
from physics.hardware import PROFILES
from physics.units import without_unit

__all__ = ["NotInUnitError", "UnreadableError", "read_list", "read_number", "read_words"]

Registry: TypeAlias = pint.UnitRegistry[Decimal]

#: Bytes, FLOP, tokens and money are dimensions of their own: watts never pass for bytes.
_DEFINITIONS = """
nano- = 1e-9 = n-
micro- = 1e-6 = µ- = μ- = u-
milli- = 1e-3 = m-
kilo- = 1e3 = k- = K-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
second = [time] = s = sec
meter = [length] = m
gram = [mass] = g
kelvin = [temperature] = K
bit = [information] = b
FLOP = [operations] = FLOP = flop
token = [tokens]
USD = [money]
degree_Celsius = kelvin; offset: 273.15 = C = degreeC = degC
byte = 8 * bit = B
bit_per_second = bit / second = bps
FLOP_per_second = FLOP / second = FLOPS
minute = 60 * second = min
hour = 60 * minute = h = hr
day = 24 * hour = d
year = 365 * day
hertz = 1 / second = Hz
joule = kilogram * meter ** 2 / second ** 2 = J
watt = joule / second = W
watt_hour = watt * hour = Wh
cubic_meter = meter ** 3 = m3
liter = 1e-3 * meter ** 3 = L = l
tonne = 1000 * kilogram = t
""".strip().splitlines()
#: What may follow a number that has no unit. B is the billion of "8B parameters".
_EXPONENTS = {"": 0, "%": -2, "k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12}
_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)")
_UNIT = re.compile(r"(?:[A-Za-zµμ°]+(?:\^?[23]|[²³])?|[\s/·()]|1)+")
_ADDRESS = re.compile(r"[A-Za-z].*\.[a-z]\w*")
_THOUSANDS = re.compile(r"0\d+$")


class UnreadableError(ValueError):
    """A text that an option does not accept."""


class NotInUnitError(UnreadableError):
    """A text that is no number, or a number in another unit than the one that is asked for."""


def read_list(text: str, symbol: str | None, *, difference: bool = False) -> list[float]:
    """Return the numbers of a list with commas, or of ``@file`` or ``@file.csv:column``.

    ``H100.tdp_w`` is a figure of the current profile, ``textbook:H100.tdp_w`` of another one.
    """
    parts = read_words(text)
    if any(_THOUSANDS.match(part) for part in parts[1:]):
        raise UnreadableError("commas separate the values of a list: write 1000 or 1_000")
    parts = [_from_catalogue(part) if _ADDRESS.fullmatch(part) else part for part in parts]
    bare = [not _split(part)[1] for part in parts]
    if symbol and any(bare) and not all(bare):
        raise UnreadableError("in a list either each value has a unit or none has")
    return [read_number(part, symbol, difference=difference) for part in parts]


def read_words(text: str) -> list[str]:
    """Return the parts of a list with commas, or of ``@file`` or ``@file.csv:column``."""
    parts = _from_file(text[1:]) if text.startswith("@") else text.split(",")
    return [part.strip() for part in parts]


def read_number(text: str, symbol: str | None, *, difference: bool = False) -> float:
    """Return ``text`` in the unit ``symbol``, in which a bare number is taken to be.

    ``difference`` says that a temperature is one: 1 K is then 1 °C, not -272.15 °C.
    """
    number, unit = _split(text)
    if symbol is None:
        if unit not in _EXPONENTS:
            raise NotInUnitError(f"{text!r} has a unit, and a plain number is wanted")
        return float(number.scaleb(_EXPONENTS[unit]))
    if not unit:
        return float(number)
    return _convert(number, unit, symbol, difference)


def _split(text: str) -> tuple[Decimal, str]:
    # Money is written "$0.08/kWh" as well as "0.08 USD/kWh".
    match = _NUMBER.fullmatch(re.sub(r"^\$\s*([\d._]+)", r"\1 USD", text.strip()))
    if not match:
        raise NotInUnitError(f"{text!r} is not a number")
    return Decimal(match[1]), match[2].replace("$", "USD").strip()


def _convert(number: Decimal, unit: str, symbol: str, difference: bool) -> float:
    registry = _registry()
    try:
        source = _parse(registry, unit)
        target = registry.parse_units(symbol)
        if difference and source.dimensionality == target.dimensionality == {"[temperature]": 1}:
            return float(number)  # a kelvin and a degree Celsius are of one size
        return float(registry.Quantity(number, source).to(target).magnitude)
    except pint.DimensionalityError as exc:
        raise NotInUnitError(f"{unit} is not a unit of this; {symbol} is") from exc
    except (pint.PintError, ValueError, TypeError) as exc:
        raise NotInUnitError(f"{unit!r} is not a known unit; {symbol} is wanted") from exc


def _parse(registry: Registry, unit: str) -> pint.Unit:
    if not _UNIT.fullmatch(unit) or unit.count("(") != unit.count(")"):
        raise ValueError(unit)
    return registry.parse_units(f"1{unit}" if unit.startswith("/") else unit.replace("·", "*"))


@functools.cache
def _registry() -> Registry:
    # In decimals, 5 µs are 5e-06 s and not 4.9999999999999996e-06 s.
    registry: Registry = pint.UnitRegistry(None, non_int_type=Decimal)
    registry.load_definitions(_DEFINITIONS)
    return registry


def _from_catalogue(address: str) -> str:
    """Return the figure at ``H100.tdp_w``, or ``H100.tdp`` where that is clear, with its unit."""
    place, _, wanted = address.rpartition(".")
    profile, colon, name = place.rpartition(":")
    if colon and profile not in PROFILES:
        raise UnreadableError(f"{profile} is not a profile: there are {', '.join(PROFILES)}")
    try:
        entry = PROFILES[profile or "current"].find(name)
    except UnknownKeyError as exc:
        hint = f"did you mean {exc.closest}?" if exc.closest else "see headroom plan hardware list"
        raise UnreadableError(f"the catalogue has no {name}; {hint}") from exc
    figures = {figure.name: figure.value for figure in entry.figures()}
    matches = [name for name in figures if wanted in (name, without_unit(name))]
    if len(matches) != 1:
        known = ", ".join(matches or figures)
        raise UnreadableError(f"{wanted!r} is not one of the figures of {entry.name}: {known}")
    return f"{figures[matches[0]]!r} {symbol_of(matches[0]) or ''}"


def _from_file(name: str) -> list[str]:
    """Return one text for each line of a file, or for each row of a column of a CSV file."""
    path, _, column = name.partition(":")
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            if column:
                return _column(csv.DictReader(file), column)
            return [line for line in (raw.strip() for raw in file) if line]
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise UnreadableError(f"cannot read {path}: {reason}") from exc


def _column(reader: csv.DictReader[str], column: str) -> list[str]:
    names = reader.fieldnames or ()
    if column not in names:
        raise UnreadableError(f"no column {column!r}: there are {', '.join(names)}")
    return [row[column] or "" for row in reader]
