"""What a diagnosis is, and how its arithmetic is written down."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ParamSpec, TypeAlias

import numpy as np

from physics.errors import ImpossibleArgumentError
from physics.law import Bound, law

__all__ = [
    "Diagnosis",
    "OneAtLeastOne",
    "OneCount",
    "OneNonNegative",
    "OnePositive",
    "OnePositiveShare",
    "OneShare",
    "Steps",
    "quantity",
    "question",
    "require_kind",
]

P = ParamSpec("P")

# A diagnosis is of one case, so its arguments are single numbers.
OnePositive: TypeAlias = Annotated[
    float, Bound("one number, finite and above 0", low=0.0, above_low=True)
]
OneNonNegative: TypeAlias = Annotated[float, Bound("one number, finite and at least 0", low=0.0)]
OneShare: TypeAlias = Annotated[float, Bound("one number between 0 and 1", low=0.0, high=1.0)]
OnePositiveShare: TypeAlias = Annotated[
    float, Bound("one number above 0 and at most 1", low=0.0, above_low=True, high=1.0)
]
OneCount: TypeAlias = Annotated[float, Bound("one whole number, at least 1", low=1.0, whole=True)]
OneAtLeastOne: TypeAlias = Annotated[float, Bound("one number, finite and at least 1", low=1.0)]

_DIGITS = 4
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_SMALL = ("", "m", "µ", "n")
#: Longest time, s, that is written in a unit → seconds of that unit.
_TIMES = ((120.0, "s", 1.0), (7200.0, "min", 60.0), (172_800.0, "h", 3600.0))
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Diagnosis:
    """What binds, what that means, what to move, and the arithmetic behind it.

    ``constraint`` is a stable name, ``verdict`` and ``lever`` are sentences, ``figures`` are the
    numbers by name (with their unit at the end), and ``steps`` show how they came about: formula,
    numbers put in, result.
    """

    constraint: str
    verdict: str
    lever: str
    figures: Mapping[str, float]
    steps: tuple[str, ...]

    def as_text(self) -> str:
        """Return the diagnosis as lines for a person."""
        lines = [f"constraint: {self.constraint}", f"verdict:    {self.verdict}"]
        return "\n".join([*lines, f"lever:      {self.lever}", "", *self.steps])


@dataclass
class Steps:
    """Lines of arithmetic, in the order in which they were made."""

    lines: list[str] = field(default_factory=list)

    def add(self, what: str, formula: str, numbers: str, value: float, unit: str = "") -> None:
        """Add ``what = formula = numbers = value``."""
        self.lines.append(f"{what} = {formula} = {numbers} = {quantity(value, unit)}")

    def say(self, line: str) -> None:
        """Add a line that needs no arithmetic."""
        self.lines.append(line)


def question(function: Callable[P, Diagnosis]) -> Callable[P, Diagnosis]:
    """Make a law of ``function`` that takes single numbers, and gets them as floats."""

    @law
    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> Diagnosis:
        return function(*args, **{name: _one(name, each) for name, each in kwargs.items()})  # type: ignore[arg-type]

    return asked


def require_kind(argument: str, value: object, kind: type) -> None:
    """Raise :class:`ImpossibleArgumentError` unless an argument that is no number is of a kind."""
    if not isinstance(value, kind):
        raise ImpossibleArgumentError(argument, f"of type {kind.__name__}")


def quantity(value: float, unit: str = "") -> str:
    """Return a number for a person, with four digits: 0.56036 s is ``560.4 ms``.

    ``unit`` is a symbol; "%" takes a share, "points" a difference of shares, "" a plain number.
    """
    if not math.isfinite(value):
        return "infinite" if value > 0.0 else "minus infinite"
    if unit in ("%", "points"):
        return f"{_plain(100.0 * value)} {unit}"
    if unit == "s":
        return _time(value)
    if unit in ("", "x"):
        return _plain(value) + unit
    if unit[0].isupper() or unit.startswith("token"):
        return _prefixed(value, unit)
    return f"{_plain(value)} {unit}"


def _one(name: str, value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim:
        raise ImpossibleArgumentError(name, "one number: a diagnosis is of one case")
    return value.item()


def _plain(value: float) -> str:
    if value == 0.0:
        return "0"
    size = abs(value)
    if float(value).is_integer() and size < 1e9:
        return f"{value:,.0f}"
    if not 1e-4 <= size < 1e9:
        mantissa, _, exponent = f"{value:.{_DIGITS - 1}e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    decimals = max(_DIGITS - 1 - math.floor(math.log10(size)), 0)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _prefixed(value: float, unit: str) -> str:
    step = math.floor(math.log10(abs(value)) / 3.0) if value else 0
    step = min(max(step, 0), len(_PREFIXES) - 1)
    return f"{_plain(value / 1000.0**step)} {_PREFIXES[step]}{unit}"


def _time(value: float) -> str:
    size = abs(value)
    if 0.0 < size < 1.0:
        step = min(math.ceil(-math.log10(size) / 3.0), len(_SMALL) - 1)
        return f"{_plain(value * 1000.0**step)} {_SMALL[step]}s"
    for longest, unit, seconds in _TIMES:
        if size < longest:
            return f"{_plain(value / seconds)} {unit}"
    return f"{_plain(value / _DAY_S)} d"
