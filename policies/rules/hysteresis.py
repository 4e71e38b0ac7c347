"""Whether a rule can tell its two ends apart: where it fires, and where it is over.

Between the two something has to lie, a band of values or a length of time. Else a rule would switch
with every flicker of a reading, and its own effect could end it at once.

What conditions compare fields with divides the values of each field into pieces. Within a piece no
comparison changes. So it is enough to look at one value of each piece, and at the borders; with
several fields at each combination, as far as there are not too many.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.rules.arrays import Bools, Columns
from policies.rules.cel import Condition
from policies.rules.syntax import BOOL, DOUBLE, STRING, Call, Const, Name, Node

#: More combinations than this are not looked at; the engine still sees to it at run time.
MOST_POINTS = 50_000


@dataclass(frozen=True)
class Fault:
    message: str
    hint: str


def fault(when: Condition, clear: Condition | None, clear_for_s: float) -> Fault | None:
    """Return the fault in the way in which a rule clears, if there is one."""
    if clear is None:
        return None if clear_for_s > 0 else _NO_BAND
    fields = _fields(when.node) | _fields(clear.node)
    grid = _grid(fields, when.node, clear.node)
    if grid is None:
        return None if clear_for_s > 0 else _TOO_MANY
    columns, values, sizes = grid
    fires, clears = when.verdict(columns), clear.verdict(columns)
    both = np.flatnonzero(fires.holds & clears.holds)
    if len(both):
        example = ", ".join(f"{n} = {_said(v[both[0]])}" for n, v in sorted(values.items()))
        return Fault(f"when and clear both hold at {example}", "add to clear what excludes when")
    if clear_for_s == 0 and not (_is_plain(when.node) and _is_plain(clear.node)):
        return _TOO_MANY
    if clear_for_s == 0 and _touch(fires.holds.reshape(sizes), clears.holds.reshape(sizes)):
        return _NO_BAND
    return None


_NO_BAND = Fault(
    "nothing lies between firing and clearing",
    "give clear_for, such as 60s, or a clear that is stricter than the opposite of when",
)
_TOO_MANY = Fault(
    "it cannot be seen whether something lies between firing and clearing: the conditions name too"
    " many fields, or calculate with them",
    "give clear_for, such as 60s",
)


def _touch(fires: Bools, clears: Bools) -> bool:
    """Say whether one step in one field leads from firing to clearing, or back."""
    for axis in range(fires.ndim):
        a, b = np.moveaxis(fires, axis, 0), np.moveaxis(clears, axis, 0)
        if (a[1:] & b[:-1]).any() or (b[1:] & a[:-1]).any():
            return True
    return False


def _is_plain(node: Node) -> bool:
    """Say whether a tree compares fields with constants alone: then one step is one step."""
    if not isinstance(node, Call):
        return True
    if node.operation in ("logical_and", "logical_or", "logical_not"):
        return all(_is_plain(part) for part in node.operands)
    are_leaves = all(isinstance(part, Name | Const) for part in node.operands)
    return are_leaves and sum(isinstance(part, Name) for part in node.operands) <= 1


def _said(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _fields(node: Node) -> frozenset[tuple[str, str]]:
    """Return the fields of a tree with their types."""
    if isinstance(node, Name):
        return frozenset([(node.name, node.kind)])
    if isinstance(node, Call):
        return frozenset().union(*(_fields(part) for part in node.operands))
    return frozenset()


def _constants(node: Node, kind: str) -> set[Any]:
    if isinstance(node, Const):
        return {node.value} if node.kind == kind else set()
    if isinstance(node, Call):
        return set().union(*(_constants(part, kind) for part in node.operands))
    return set()


def _grid(
    fields: frozenset[tuple[str, str]], *trees: Node
) -> tuple[Columns, dict[str, list[Any]], list[int]] | None:
    """Return all combinations of telling values, and how many each field has of them.

    None where there are too many to look at.
    """
    if any(kind not in (DOUBLE, BOOL, STRING) for _, kind in fields):
        return None  # labels may be anything
    samples: dict[str, list[Any]] = {
        DOUBLE: _numbers(trees),
        BOOL: [False, True],
        STRING: _texts(trees),
    }
    names = sorted(fields)
    sizes = [len(samples[kind]) for _, kind in names]
    if math.prod(sizes) > MOST_POINTS:
        return None
    points = list(itertools.product(*(samples[kind] for _, kind in names)))
    by_field = zip(*points, strict=True) if names else []
    values = {name: list(column) for (name, _), column in zip(names, by_field, strict=True)}
    dtypes: dict[str, Any] = {DOUBLE: np.float64, BOOL: bool, STRING: object}
    arrays = {name: np.array(values[name], dtype=dtypes[kind]) for name, kind in names}
    return Columns(arrays, (), (len(points),)), values, sizes


def _numbers(trees: tuple[Node, ...]) -> list[float]:
    """Return each number that is compared with, and one between any two and beyond each end."""
    found: set[float] = set().union(*(_constants(tree, DOUBLE) for tree in trees)) | {0.0}
    borders = sorted(found)
    between = [(low + high) / 2 for low, high in itertools.pairwise(borders)]
    return sorted({borders[0] - 1.0, *borders, *between, borders[-1] + 1.0})


def _texts(trees: tuple[Node, ...]) -> list[str]:
    found: set[str] = set().union(*(_constants(tree, STRING) for tree in trees))
    return [*sorted(found), "\N{REPLACEMENT CHARACTER}"]
