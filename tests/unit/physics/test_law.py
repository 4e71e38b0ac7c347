"""What all laws share: checked arguments, plain answers, units in names."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import physics
from physics.errors import ImpossibleArgumentError, PhysicsError, ShapeMismatchError
from physics.law import (
    Amount,
    Bound,
    Celsius,
    Count,
    NonNegative,
    Positive,
    PositiveSeries,
    Real,
    Series,
    Share,
    Values,
    arguments_of,
    law,
    require,
)
from physics.units import SYMBOLS, unit_of, without_unit

REPOSITORY = Path(__file__).resolve().parents[3]
NAN, INFINITE = math.nan, math.inf


@dataclass(frozen=True)
class Pair:
    total: Values
    name: str


@law
def total(*, a: Real = 0.0, b: Positive | None = None, kind: str = "sum") -> Values:
    """Return a and b."""
    return np.add(a, 0.0 if b is None else b) if kind == "sum" else np.multiply(a, b or 1.0)


@law
def pair(*, a: Real, name: str) -> Pair:
    """Return a in a dataclass."""
    return Pair(np.multiply(2.0, a), name)


@law
def bounded(
    *,
    real: Real = 0.0,
    non_negative: NonNegative = 0.0,
    positive: Positive = 1.0,
    share: Share = 0.0,
    celsius: Celsius = 0.0,
    count: Count = 1.0,
    amount: Amount = 0.0,
) -> Values:
    """Return one."""
    return np.float64(1.0)


@law
def dotted(*, x: Series, y: Series, scale: Positive = 1.0) -> Values:
    """Return a product of series."""
    return np.multiply(scale, np.dot(x, y))


@law
def rooted(*, x: PositiveSeries) -> Values:
    """Return roots."""
    return np.sqrt(x)


def call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a law with what its types do not allow, or allow at run time only: lists."""
    return function(**arguments)


@pytest.mark.parametrize(
    ("argument", "good", "bad"),
    [
        ("real", [0.0, -1e300], [NAN, INFINITE, -INFINITE]),
        ("non_negative", [0.0, 1e300], [NAN, INFINITE, -1e-300]),
        ("positive", [5e-324, 1.0], [NAN, INFINITE, 0.0, -1.0]),
        ("share", [0.0, 1.0, 0.5], [NAN, -1e-9, 1.0 + 1e-9]),
        ("celsius", [-273.15, 20.0], [NAN, INFINITE, -273.16]),
        ("count", [1.0, 2.0, 1e15], [NAN, INFINITE, 0.0, 1.5, -1.0]),
        ("amount", [0.0, 1.0], [NAN, INFINITE, 0.5, -1.0]),
    ],
)
def test_a_type_bounds_its_argument(argument: str, good: list[float], bad: list[float]) -> None:
    assert all(call(bounded, **{argument: value}) == 1.0 for value in good)
    assert call(bounded, **{argument: np.array(good)}) == 1.0
    for value in bad:
        for given in (value, [good[0], value, good[0]], np.array([[value]])):
            with pytest.raises(ImpossibleArgumentError) as refused:
                call(bounded, **{argument: given})
            assert refused.value.argument == argument
            assert str(refused.value) == f"{argument} must be {refused.value.requirement}"


@pytest.mark.parametrize("value", ["watts", object(), [1.0, "x"], [[1.0], [1.0, 2.0]]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ImpossibleArgumentError, match="a must be a number"):
        call(total, a=value)


def test_none_passes_only_where_it_is_the_default() -> None:
    assert call(total, a=1.0, b=None) == 1.0
    with pytest.raises(ImpossibleArgumentError, match="a must be"):
        call(total, a=None)


def test_numbers_give_a_float_and_arrays_an_array() -> None:
    assert type(call(total, a=1, b=2)) is float
    assert type(call(total, a=np.float32(1.0))) is float
    assert call(total, a=[1, 2], b=3).tolist() == [4.0, 5.0]
    assert call(total, a=[[1], [2]], b=[10, 20]).tolist() == [[11.0, 21.0], [12.0, 22.0]]
    assert call(total, a=np.array([], dtype=float)).tolist() == []


def test_a_dataclass_has_plain_numbers_too() -> None:
    found = call(pair, a=2, name="x")
    assert (found, type(found.total)) == (Pair(4.0, "x"), float)
    assert call(pair, a=[1, 2], name="x").total.tolist() == [2.0, 4.0]


def test_arguments_that_are_no_numbers_pass() -> None:
    assert call(total, a=3.0, b=4.0, kind="product") == 12.0


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(ShapeMismatchError) as refused:
        call(total, a=[1, 2, 3], b=[1, 2])
    assert refused.value.shapes == {"a": (3,), "b": (2,)}
    assert issubclass(ShapeMismatchError, PhysicsError)


def test_series_are_of_one_length_and_one_dimension() -> None:
    assert call(dotted, x=[1, 2], y=[3, 4], scale=2) == 22.0
    # They do not broadcast with the rest: two values of a series are no two cases.
    assert call(dotted, x=[1, 2], y=[3, 4], scale=[1, 2, 3]).tolist() == [11.0, 22.0, 33.0]
    with pytest.raises(ShapeMismatchError):
        call(dotted, x=[1, 2], y=[1])
    for value in (1.0, [], [[1.0]]):
        with pytest.raises(ImpossibleArgumentError, match="x must be a series"):
            call(dotted, x=value, y=[1])
    with pytest.raises(ImpossibleArgumentError, match="x must be finite and above 0"):
        call(rooted, x=[1.0, 0.0])


def test_a_condition_between_arguments_names_the_one_that_has_to_change() -> None:
    require(np.array([True, True]), "a", "at most b")
    with pytest.raises(ImpossibleArgumentError, match="a must be at most b"):
        require(np.array([True, False]), "a", "at most b")


def test_arguments_are_told_in_order_with_their_bounds() -> None:
    arguments = arguments_of(total)
    assert list(arguments) == ["a", "b", "kind"]
    assert arguments["a"].bound == Bound("finite")
    assert arguments["b"].bound is not None
    assert arguments["b"].bound.optional
    assert (arguments["kind"].bound, arguments["kind"].required) == (None, False)
    assert arguments_of(pair)["a"].required


@pytest.mark.parametrize(
    ("name", "unit", "rest"),
    [
        ("power_w", "w", "power"),
        ("link_bytes_per_s", "bytes_per_s", "link"),
        ("message_bytes", "bytes", "message"),
        ("bytes_per_parameter", "bytes_per_parameter", "bytes_per_parameter"),
        ("intensity_g_per_kwh", "g_per_kwh", "intensity"),
        ("peak_flops", "flops", "peak"),
        ("gpus", None, "gpus"),
        ("pue", None, "pue"),
        ("erlang_c", None, "erlang_c"),
        ("s", "s", "s"),
    ],
)
def test_the_end_of_a_name_is_its_unit(name: str, unit: str | None, rest: str) -> None:
    assert (unit_of(name), without_unit(name)) == (unit, rest)


# From here on: all the laws that there are.

#: Numbers without a unit that are neither counts nor shares.
DIMENSIONLESS = {
    "arrival_scv",
    "better_pue",
    "cap_factor",
    "coherency",
    "contention",
    "exponent",
    "gpus",
    "host_share",
    "offered_load",
    "parameters",
    "pue",
    "requests",
    "service_scv",
    "slowdown",
    "speedup",
    "throughput",
    "throughput_ratio",
    "tokens",
    "weight",
}
#: Symbols that are written otherwise where there is a number before them, or carbon in them.
ALSO_WRITTEN = {"token/s": r"tokens(/s| per second)", "kg/kWh": "kg CO2e/kWh"}


def laws() -> dict[str, Callable[..., Any]]:
    modules = {name: getattr(physics, name) for name in physics.__all__}
    return {
        f"{module}.{name}": getattr(modules[module], name)
        for module in modules
        for name in modules[module].__all__
        if inspect.isfunction(getattr(modules[module], name))
    }


LAWS = laws()
each_law = pytest.mark.parametrize("name", LAWS)


@each_law
def test_a_law_takes_keywords_only(name: str) -> None:
    parameters = inspect.signature(LAWS[name]).parameters.values()
    assert [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY] == []


@each_law
def test_a_law_refuses_nan_infinity_and_words_and_names_the_argument(name: str) -> None:
    for argument in arguments_of(LAWS[name]).values():
        if argument.bound:
            for bad in (NAN, INFINITE, -INFINITE, "much"):
                value = [1.0, bad] if argument.bound.series else bad
                with pytest.raises(ImpossibleArgumentError) as refused:
                    LAWS[name](**{argument.name: value})
                assert refused.value.argument == argument.name


@each_law
def test_an_argument_ends_in_its_unit_or_has_none(name: str) -> None:
    unclear = [
        each.name
        for each in arguments_of(LAWS[name]).values()
        if each.bound
        and not unit_of(each.name)
        and not each.bound.whole
        and not (each.bound.low >= 0.0 and each.bound.high <= 1.0)
        and each.name not in DIMENSIONLESS
    ]
    assert unclear == []


@each_law
def test_the_docstring_of_a_law_tells_its_formula_and_unit(name: str) -> None:
    text = inspect.getdoc(LAWS[name]) or ""
    unit = unit_of(name.partition(".")[2])
    symbol = SYMBOLS[unit] if unit else ""
    assert re.search(r"``.+?``| / |:func:", text)
    assert re.search(ALSO_WRITTEN.get(symbol, re.escape(symbol)), text)


@each_law
def test_a_law_is_documented(name: str) -> None:
    module, _, law_name = name.partition(".")
    page = REPOSITORY / "docs" / "reference" / "physics" / f"{module}.md"
    assert f"`{law_name}`" in page.read_text() or f"`{law_name}(" in page.read_text()


def test_what_is_public_is_a_law_a_frozen_dataclass_or_a_constant() -> None:
    for module in (getattr(physics, name) for name in physics.__all__):
        for each in (getattr(module, name) for name in module.__all__):
            if inspect.isfunction(each):
                assert inspect.unwrap(each) is not each, each
            elif isinstance(each, type):
                assert is_dataclass(each), each
                assert each.__dataclass_params__.frozen, each  # type: ignore[attr-defined]


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return done.stdout


def test_a_module_is_there_once_the_package_is() -> None:
    script = "import physics; print(physics.comm.ring_traffic_factor(ranks=2), dir(physics)[-1])"
    assert run(script) == "1.0 thermal\n"


def test_no_module_waits_for_scipy() -> None:
    everything = "import sys; from physics import *; "
    assert (
        run(everything + "print('numpy' in sys.modules, 'scipy' in sys.modules)") == "True False\n"
    )
