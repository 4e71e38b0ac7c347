"""Types of arguments, and the checks on them that every law makes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics.errors import ImpossibleArgumentError

Array: TypeAlias = NDArray[np.float64]
#: A number, or an array of numbers that broadcasts with the others.
Values: TypeAlias = float | Array

_ABSOLUTE_ZERO_C = -273.15


def finite(argument: str, value: Values, *, at_least: float = -np.inf) -> Values:
    """Return ``value`` if all of it is finite and not under ``at_least``.

    Raises :class:`ImpossibleArgumentError` with the name of the argument.
    """
    # NaN fails every comparison, so one pair of comparisons covers NaN and both infinities.
    if not np.all((np.greater_equal(value, at_least)) & (np.abs(value) < np.inf)):
        bound = "" if at_least == -np.inf else f" and at least {at_least:g}"
        raise ImpossibleArgumentError(argument, f"finite{bound}")
    return value


def positive(argument: str, value: Values) -> Values:
    """Return ``value`` if all of it is finite and above zero."""
    if not np.all(np.greater(value, 0.0) & np.less(value, np.inf)):
        raise ImpossibleArgumentError(argument, "finite and above 0")
    return value


def share(argument: str, value: Values) -> Values:
    """Return ``value`` if all of it lies in [0, 1]."""
    if not np.all(np.greater_equal(value, 0.0) & np.less_equal(value, 1.0)):
        raise ImpossibleArgumentError(argument, "between 0 and 1")
    return value


def celsius(argument: str, value: Values) -> Values:
    """Return ``value`` if all of it is a temperature, °C."""
    return finite(argument, value, at_least=_ABSOLUTE_ZERO_C)
