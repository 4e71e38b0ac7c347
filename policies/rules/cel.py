"""Conditions in CEL: parsed and checked by the library, evaluated as array operations.

:func:`compile` takes the fields that a condition may name and refuses what is wrong with it, with
line and column. A condition sees, besides the fields, ``name``, ``site`` and ``labels`` of its
scope.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from cel_expr_python import cel  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headroom.contracts import FieldError
from headroom.documents import fault
from policies.rules import syntax
from policies.rules.arrays import Bools, Codes, Columns, Result, Status, matched
from policies.rules.errors import CelError
from policies.rules.syntax import BOOL, DOUBLE, INT, MAP, STRING, Call, Const, Node

__all__ = ["CelError", "Condition", "Quantity", "Verdict", "compile", "compile_quantity"]

#: A condition that is longer is refused before the library sees it, characters.
MOST_CHARACTERS = 2_000
#: The same for the pattern of ``matches``.
MOST_PATTERN_CHARACTERS = 200

_TYPES = {
    DOUBLE: cel.Type.DOUBLE,
    BOOL: cel.Type.BOOL,
    STRING: cel.Type.STRING,
    MAP: cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
}
#: What every scope has.
ALWAYS = {"name": STRING, "site": STRING, "labels": MAP}

_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_MIXED = re.compile(r"'\((?:double, int|int, double)\)'")


class Typed(Protocol):
    """A field, of which only the type counts here: double, bool or string."""

    @property
    def type(self) -> str: ...


class Tabular(Protocol):
    """A table that conditions are evaluated over: :class:`policies.headroom.columns.Table`."""

    @property
    def names(self) -> NDArray[np.object_]: ...
    @property
    def columns(self) -> Mapping[str, NDArray[Any]]: ...
    @property
    def labels(self) -> Sequence[Mapping[str, str]]: ...


@dataclass(frozen=True, eq=False)
class Verdict:
    """The verdict of a condition on each scope: it holds, it does not, or it is unknown."""

    holds: Bools
    fails: Bools
    #: :class:`Status` of each; None where all are known
    status: Codes | None

    def errors(self) -> Codes | None:
        """Return the status where it is an error, 0 elsewhere; None where there is none."""
        if self.status is None or not (self.status > Status.UNKNOWN).any():
            return None
        return np.where(self.status > Status.UNKNOWN, self.status, np.uint8(0))


@dataclass(frozen=True, eq=False)
class Condition:
    """A checked condition that is true or false of a scope."""

    expression: str
    node: Node
    #: the fields that it looks at
    fields: frozenset[str]

    def verdict(self, columns: Columns) -> Verdict:
        """Evaluate over columns that other conditions share."""
        return _verdict(columns.values(self.node), columns.shape)

    def over(self, table: Tabular) -> Bools:
        """Say of each scope whether the condition is known to hold."""
        return self.verdict(columns_of(table)).holds


@dataclass(frozen=True, eq=False)
class Quantity:
    """A checked expression that gives a number."""

    expression: str
    node: Node
    fields: frozenset[str]

    def over(self, table: Tabular) -> NDArray[np.float64]:
        """Return the number for each scope; NaN where it is unknown or an error."""
        return self.values(columns_of(table))

    def values(self, columns: Columns) -> NDArray[np.float64]:
        """Evaluate over columns that others share."""
        found = columns.values(self.node)
        values = np.broadcast_to(np.asarray(found.data, np.float64), columns.shape)
        return values if found.status is None else np.where(found.status == 0, values, np.nan)


def columns_of(table: Tabular) -> Columns:
    """Return the columns of a table, to be shared by all conditions that are to see it."""
    columns = dict(table.columns)
    columns.setdefault("name", table.names)
    return Columns(columns, _LazyLabels(table), table.names.shape)


class _LazyLabels(Sequence[Mapping[str, str]]):
    """Labels cost a query, and most conditions name none."""

    def __init__(self, table: Tabular) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table.labels)

    def __getitem__(self, row: Any) -> Any:
        return self._table.labels[row]


def _verdict(found: Result, shape: tuple[int, ...]) -> Verdict:
    holds = np.broadcast_to(found.data, shape)
    if found.status is None:
        return Verdict(holds, ~holds, None)
    status = np.broadcast_to(found.status, shape)
    known = status == 0
    return Verdict(holds & known, ~holds & known, status)


def compile(expression: str, fields: Mapping[str, Typed]) -> Condition:  # noqa: A001
    """Check a condition on scopes that have ``fields``. Raises :class:`CelError`."""
    node = _tree(expression, fields)
    if node.kind != BOOL:
        raise CelError(
            [
                fault(
                    f"the condition gives a {_word(node.kind)}, not true or false",
                    1,
                    1,
                    hint="compare it with something, such as power_use > 0.9",
                )
            ]
        )
    return Condition(expression, node, syntax.names_in(node))


def compile_quantity(expression: str, fields: Mapping[str, Typed]) -> Quantity:
    """Check an expression that is to give a number. Raises :class:`CelError`."""
    node = _tree(expression, fields)
    if node.kind not in (DOUBLE, INT):
        problem = fault(f"the expression gives a {_word(node.kind)}, not a number", 1, 1)
        raise CelError([problem])
    return Quantity(expression, node, syntax.names_in(node))


def kinds_of(fields: Mapping[str, Typed]) -> dict[str, str]:
    """Return the type of everything that a condition on ``fields`` may name."""
    return {**{name: field.type for name, field in fields.items()}, **ALWAYS}


def _tree(expression: str, fields: Mapping[str, Typed]) -> Node:
    if len(expression) > MOST_CHARACTERS:
        message = f"{len(expression)} characters; at most {MOST_CHARACTERS} are taken"
        raise CelError([fault(message, 1, 1, hint="split the rule into several")])
    kinds = kinds_of(fields)
    try:
        checked = environment(tuple(sorted(kinds.items()))).compile(expression)
    except (RuntimeError, ValueError) as error:
        raise CelError(_problems(str(error), kinds)) from error
    node = syntax.tree(checked.serialize(), expression, kinds)
    _check_patterns(node, expression)
    return node


@lru_cache(maxsize=64)
def environment(kinds: tuple[tuple[str, str], ...]) -> cel.Env:
    """Return the library's environment with these names declared. Making one takes some ms."""
    return cel.NewEnv(variables={name: _TYPES[kind] for name, kind in kinds})


def _problems(text: str, kinds: Mapping[str, str]) -> list[FieldError]:
    found = _PLACE.findall(text)
    if not found:  # such as nesting that is too deep: the library names no place
        message = re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", text.strip())
        return [fault(message, 1, 1, hint="write the condition with less nesting")]
    return [
        fault(
            message.removesuffix(" [INVALID_ARGUMENT]").removesuffix(" (in container '')"),
            int(line),
            int(column),
            hint=_hint(message, kinds),
        )
        for line, column, message in found
    ]


def _hint(message: str, kinds: Mapping[str, str]) -> str:
    if _MIXED.search(message):
        return "fields are decimal numbers: write 1.0 instead of 1"
    unknown = _UNDECLARED.search(message)
    if not unknown:
        return ""
    close = difflib.get_close_matches(unknown[1], kinds, n=3)
    return f"did you mean {' or '.join(close)}?" if close else "docs/reference/headroom.md has all"


def _check_patterns(node: Node, expression: str) -> None:
    if not isinstance(node, Call):
        return
    for part in node.operands:
        _check_patterns(part, expression)
    pattern = node.operands[-1]
    if not node.operation.startswith("matches") or not isinstance(pattern, Const):
        return
    text = str(pattern.value)
    place = syntax.position(expression, pattern.offset)
    if len(text) > MOST_PATTERN_CHARACTERS:
        message = f"a pattern of {len(text)} characters; at most {MOST_PATTERN_CHARACTERS}"
        raise CelError([fault(message, *place)])
    try:
        matched([""], text)
    except ValueError as error:
        raise CelError([fault(str(error), *place, hint="RE2's syntax is meant")]) from error


def _word(kind: str) -> str:
    return {DOUBLE: "number", INT: "whole number", STRING: "text", MAP: "map"}.get(kind, kind)
