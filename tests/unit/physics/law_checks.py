"""What holds for every law, to be checked on one set of good arguments for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from physics.errors import ImpossibleArgumentError
from physics.law import Bound, arguments_of

Law = Callable[..., Any]


def check_refusals(law: Law, good: dict[str, Any]) -> None:
    """Check that NaN, infinity and -1 are refused for each numeric argument, by its name."""
    for name, bound in _bounds(law, good).items():
        for bad in (float("nan"), float("inf"), -1.0):
            value = [bad] * len(good[name]) if bound.series else bad
            with pytest.raises(ImpossibleArgumentError) as refused:
                law(**(good | {name: value}))
            assert refused.value.argument == name


def check_arrays(law: Law, good: dict[str, Any]) -> None:
    """Check that arrays give what their elements give one by one."""
    numbers = {name: bound for name, bound in _bounds(law, good).items() if not bound.series}
    other = good | {name: _another(good[name], bound) for name, bound in numbers.items()}
    for varied in ({name} for name in numbers):
        _compare(law, good, other, varied)
    _compare(law, good, other, set(numbers))


def _compare(law: Law, good: dict[str, Any], other: dict[str, Any], varied: set[str]) -> None:
    pairs = {name: np.array([good[name], other[name]]) for name in varied}
    together = _outputs(law(**(good | pairs)))
    for index, source in enumerate((good, other)):
        alone = _outputs(law(**(good | {name: source[name] for name in varied})))
        for name, value in alone.items():
            assert isinstance(value, float | bool)
            both = np.broadcast_to(together[name], (2,))
            assert both[index] == pytest.approx(value, rel=1e-12), (name, varied)


def _another(value: float, bound: Bound) -> float:
    if bound.whole:
        return value + 1.0
    return value / 2.0 if bound.high <= 1.0 else value * 1.5


def _bounds(law: Law, good: dict[str, Any]) -> dict[str, Bound]:
    arguments = arguments_of(law)
    return {name: arguments[name].bound for name in good if arguments[name].bound}  # type: ignore[misc]


def _outputs(answer: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(answer):
        return {f.name: getattr(answer, f.name) for f in dataclasses.fields(answer)}
    return {"": answer}
