"""What every law shares: arguments checked by their types; floats or arrays in, the same out.

A law is a function of keyword arguments only. The type of an argument says what it may be
(:data:`Positive`, :data:`Share`, …) and the end of its name says in which unit (``_w``, ``_s``;
see :mod:`physics.units`). :func:`law` reads both, so that a law's body is its formula.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import NDArray

from physics.errors import ImpossibleArgumentError, ShapeMismatchError

__all__ = [
    "Amount",
    "Array",
    "Celsius",
    "Count",
    "Flags",
    "NonNegative",
    "Positive",
    "PositiveSeries",
    "Real",
    "Series",
    "Share",
    "Values",
    "arguments_of",
    "law",
    "require",
]

P = ParamSpec("P")

Array: TypeAlias = NDArray[np.float64]
#: A number, or an array of numbers that broadcasts with the others.
Values: TypeAlias = float | Array
Flags: TypeAlias = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Bound:
    """What every number of an argument must be. A series is one-dimensional, never broadcast."""

    requirement: str
    low: float = -np.inf
    above_low: bool = False
    high: float = np.inf
    whole: bool = False
    series: bool = False
    optional: bool = False

    def check(self, argument: str, value: object) -> Array:
        """Return ``value`` as an array of floats, or raise :class:`ImpossibleArgumentError`."""
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as exc:
            raise ImpossibleArgumentError(argument, "a number or an array of numbers") from exc
        if self.series and (array.ndim != 1 or not array.size):
            raise ImpossibleArgumentError(argument, "a series: one dimension, at least one value")
        if not self._admits(array):
            raise ImpossibleArgumentError(argument, self.requirement)
        return array

    def _admits(self, array: Array) -> bool:
        if not array.size:
            return True
        # NaN is both least and greatest of an array that holds it, and fails every comparison.
        low, high = _extremes(array)
        above = low > self.low if self.above_low else low >= self.low
        if not (above and high <= self.high and -math.inf < low and high < math.inf):
            return False
        return not (self.whole and bool((np.rint(array) != array).any()))


Real: TypeAlias = Annotated[Values, Bound("finite")]
NonNegative: TypeAlias = Annotated[Values, Bound("finite and at least 0", low=0.0)]
Positive: TypeAlias = Annotated[Values, Bound("finite and above 0", low=0.0, above_low=True)]
Share: TypeAlias = Annotated[Values, Bound("between 0 and 1", low=0.0, high=1.0)]
Celsius: TypeAlias = Annotated[Values, Bound("finite and at least -273.15", low=-273.15)]
#: How many there are of what must be there: GPUs, ranks, servers.
Count: TypeAlias = Annotated[Values, Bound("a whole number, at least 1", low=1.0, whole=True)]
#: How many there were of what may be absent: failures, events.
Amount: TypeAlias = Annotated[Values, Bound("a whole number, at least 0", low=0.0, whole=True)]
#: Measurements in a row. All the series of a law have one length.
Series: TypeAlias = Annotated[Array, Bound("finite", series=True)]
PositiveSeries: TypeAlias = Annotated[
    Array, Bound("finite and above 0", low=0.0, above_low=True, series=True)
]


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a law. Without a bound it is not a number: a kind, a table."""

    name: str
    bound: Bound | None
    default: Any

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def law(function: Callable[P, Any]) -> Callable[P, Any]:
    """Check the arguments of ``function`` by their types and make its answer plain.

    Every numeric argument reaches the function as an array of floats. An answer without dimensions
    becomes a ``float`` (or ``bool``), also inside a dataclass. ``None`` passes only where the
    function has it as default. Raises :class:`ImpossibleArgumentError` with the name of the
    argument, and :class:`ShapeMismatchError`.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Any:
        bounds = _bounds(function)
        numbers = {
            name: bounds[name].check(name, value)
            for name, value in kwargs.items()
            if name in bounds and not (value is None and bounds[name].optional)
        }
        _check_shapes(bounds, numbers)
        return _plain(function(*args, **(kwargs | numbers)))  # type: ignore[arg-type]

    return checked


def arguments_of(function: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a law by name, in order."""
    return _arguments(inspect.unwrap(function))


def require(holds: Any, argument: str, requirement: str) -> None:
    """Raise :class:`ImpossibleArgumentError` unless ``holds``, a condition, is true everywhere."""
    if not np.all(holds):
        raise ImpossibleArgumentError(argument, requirement)


def _arguments(function: Callable[..., Any]) -> dict[str, Argument]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: Argument(name, _bound(hints[name], parameter.default is None), parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    }


@functools.cache
def _bounds(function: Callable[..., Any]) -> dict[str, Bound]:
    # At the first call, not at import: reading type hints takes longer than the formulas do.
    return {name: each.bound for name, each in _arguments(function).items() if each.bound}


def _bound(hint: Any, optional: bool) -> Bound | None:
    """Return the bound of ``Positive``, and of ``Positive | None`` too."""
    for each in (hint, *getattr(hint, "__args__", ())):
        for extra in getattr(each, "__metadata__", ()):
            if isinstance(extra, Bound):
                return dataclasses.replace(extra, optional=optional)
    return None


def _extremes(array: Array) -> tuple[float, float]:
    """Return the least and the greatest number of an array that is not empty."""
    if not array.ndim:
        return float(array), float(array)
    return float(np.minimum.reduce(array, axis=None)), float(np.maximum.reduce(array, axis=None))


def _check_shapes(bounds: dict[str, Bound], numbers: dict[str, Array]) -> None:
    shapes = {name: array.shape for name, array in numbers.items()}
    if len({*shapes.values()} - {()}) < 2:
        return  # all numbers, or all of one shape: nearly always
    series = {name: shape for name, shape in shapes.items() if bounds[name].series}
    if len(set(series.values())) > 1:
        raise ShapeMismatchError(series)
    broadcast = {name: shape for name, shape in shapes.items() if name not in series}
    try:
        np.broadcast_shapes(*broadcast.values())
    except ValueError as exc:
        raise ShapeMismatchError(broadcast) from exc


def _plain(answer: Any) -> Any:
    """Return ``answer`` with plain numbers for arrays of no dimension."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        fields = {f.name: _plain(getattr(answer, f.name)) for f in dataclasses.fields(answer)}
        return dataclasses.replace(answer, **fields)
    if isinstance(answer, np.generic) or (isinstance(answer, np.ndarray) and not answer.ndim):
        return answer.item()
    return answer
