"""Conditions as array operations: one pass over all scopes of a kind, or over scopes and times.

Each value comes with a status. Unknown (a reading that is missing or stale) and errors (a division
by zero, a label that is not there) pass through every operation, but that ``false && x`` is false
and ``true || x`` is true whatever x is. Where both meet, unknown stands.

Columns of one table need not have one shape: they only have to broadcast, so that texts of S scopes
go with numbers of T times and S scopes.
"""

from __future__ import annotations

import enum
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.rules.syntax import BOOL, DOUBLE, INT, STRING, Call, Const, Name, Node

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Codes: TypeAlias = NDArray[np.uint8]


class Status(enum.IntEnum):
    """Whether a value is known, and if not, why."""

    KNOWN = 0
    UNKNOWN = 1
    DIVIDED_BY_ZERO = 2
    NO_SUCH_LABEL = 3
    OUT_OF_RANGE = 4
    NOT_A_NUMBER = 5
    #: the rule's ``when`` and ``clear`` hold at once
    CONTRADICTION = 6

    @property
    def phrase(self) -> str:
        """The fault in words."""
        return _PHRASES[self]


_PHRASES = {
    Status.KNOWN: "known",
    Status.UNKNOWN: "a reading that it needs is missing or stale",
    Status.DIVIDED_BY_ZERO: "division by zero",
    Status.NO_SUCH_LABEL: "a label that it needs is not there",
    Status.OUT_OF_RANGE: "a whole number out of range",
    Status.NOT_A_NUMBER: "a result that is no number, such as infinity less infinity",
    Status.CONTRADICTION: "when and clear hold at once",
}


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts as codes into a list of distinct ones: each of these is looked at once."""

    different: list[str]
    places: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Result:
    """Values of one part of a condition. ``status`` is None where all are known."""

    data: Any
    status: Codes | None = None


class Columns:
    """A table's columns as conditions see them, with all results calculated from them already.

    One is made for each evaluation, and all rules of a kind of scope share it: what several of them
    calculate is calculated once.
    """

    def __init__(
        self,
        columns: Mapping[str, Array],
        labels: Sequence[Mapping[str, str]],
        shape: tuple[int, ...],
    ) -> None:
        self._columns = columns
        self._labels = labels
        self.shape = shape
        self._known: dict[str, Result] = {}

    def values(self, node: Node) -> Result:
        """Return the values of ``node``, one for each scope."""
        if isinstance(node, Const):
            return _const(node)
        found = self._known.get(node.key)
        if found is None:
            found = self._name(node) if isinstance(node, Name) else self._call(node)
            self._known[node.key] = found
        return found

    def _name(self, node: Name) -> Result:
        values = self._columns.get(node.name)
        if values is None:  # declared, and not among what this table has: nothing is known of it
            nothing = np.full(self.shape, np.nan) if node.kind == DOUBLE else _nothing(node.kind)
            return Result(nothing, np.full(self.shape, Status.UNKNOWN, np.uint8))
        if node.kind == DOUBLE:
            return Result(values, _where(np.isnan(values), Status.UNKNOWN))
        if node.kind == STRING:
            return _texts(values)
        return Result(values)

    def _call(self, node: Call) -> Result:
        if node.operation in ("in_map", "index_map"):
            return self._label(node)
        with np.errstate(all="ignore"):
            return _OPERATIONS[node.operation]([self.values(part) for part in node.operands])

    def _label(self, node: Call) -> Result:
        """One label of each scope."""
        key = next(part.value for part in node.operands if isinstance(part, Const))
        found = [labels.get(str(key)) for labels in self._labels]
        missing = np.array([value is None for value in found], dtype=bool)
        if node.operation == "in_map":
            return Result(~missing)
        texts = _factorized(["" if value is None else value for value in found])
        return Result(texts, _where(missing, Status.NO_SUCH_LABEL))


def _const(node: Const) -> Result:
    if node.kind == STRING:
        return Result(Texts([str(node.value)], np.zeros((), np.intp)))
    kinds: dict[str, Callable[[Any], Any]] = {DOUBLE: np.float64, INT: np.int64, BOOL: np.bool_}
    return Result(kinds[node.kind](node.value))


def _nothing(kind: str) -> Any:
    return Texts([""], np.zeros((), np.intp)) if kind == STRING else np.zeros((), bool)


def _where(flags: Any, status: Status) -> Codes | None:
    """Return ``status`` where ``flags``, known elsewhere; None where no flag is set."""
    return np.multiply(flags, np.uint8(status), dtype=np.uint8) if flags.any() else None


#: Texts of columns that cannot change, by the column: names stay the same for many evaluations.
_FACTORIZED: OrderedDict[int, tuple[Array, Result]] = OrderedDict()
_MOST_FACTORIZED = 64


def texts_of(values: Array) -> Texts:
    """Return a column of texts as distinct texts and codes."""
    texts: Texts = _texts(values).data
    return texts


def _texts(values: Array) -> Result:
    found = _FACTORIZED.get(id(values))
    if found is not None and found[0] is values:
        return found[1]
    listed = values.ravel().tolist()
    missing = np.array([value is None for value in listed], dtype=bool).reshape(values.shape)
    texts = _factorized(["" if value is None else value for value in listed], values.shape)
    result = Result(texts, _where(missing, Status.UNKNOWN))
    if not values.flags.writeable:
        _FACTORIZED[id(values)] = (values, result)  # and so it is kept: its id names no other
        while len(_FACTORIZED) > _MOST_FACTORIZED:
            _FACTORIZED.popitem(last=False)
    return result


def _factorized(values: list[str], shape: tuple[int, ...] | None = None) -> Texts:
    place: dict[str, int] = {}
    places = np.fromiter((place.setdefault(v, len(place)) for v in values), np.intp, len(values))
    return Texts(list(place) or [""], places if shape is None else places.reshape(shape))


# --- Operations ----------------------------------------------------------------------------------

_Operation: TypeAlias = Callable[[list[Result]], Result]


def _status(*parts: Codes | None) -> Codes | None:
    """Return the combined status of parts: unknown before errors, an error before a value."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    joined = known[0]
    for each in known[1:]:
        unknown = (joined == Status.UNKNOWN) | (each == Status.UNKNOWN)
        joined = np.where(unknown, np.uint8(Status.UNKNOWN), np.maximum(joined, each))
    return joined


def _plain(function: Callable[..., Any]) -> _Operation:
    """An operation that is defined for all values."""

    def apply(operands: list[Result]) -> Result:
        data = function(*(operand.data for operand in operands))
        return Result(data, _status(*(operand.status for operand in operands)))

    return apply


def _numeric(function: Callable[..., Any]) -> _Operation:
    """An operation on doubles that may give no number."""

    def apply(operands: list[Result]) -> Result:
        data = function(*(operand.data for operand in operands))
        status = _status(*(operand.status for operand in operands))
        return Result(data, _status(status, _fresh(np.isnan(data), Status.NOT_A_NUMBER, status)))

    return apply


def _fresh(flags: Any, error: Status, status: Codes | None) -> Codes | None:
    """Return ``error`` where ``flags``, but not where the operands are none anyway."""
    return _where(np.asarray(flags if status is None else flags & (status == 0)), error)


def _divide(operands: list[Result]) -> Result:
    a, b = operands
    status = _status(a.status, b.status)
    status = _status(status, _fresh(b.data == 0, Status.DIVIDED_BY_ZERO, status))
    data = np.divide(a.data, b.data)
    return Result(data, _status(status, _fresh(np.isnan(data), Status.NOT_A_NUMBER, status)))


def _whole_divide(function: Callable[..., Any]) -> _Operation:
    """Division of whole numbers, towards zero, as CEL has it."""

    def apply(operands: list[Result]) -> Result:
        a, b = operands
        status = _status(a.status, b.status)
        status = _status(status, _fresh(b.data == 0, Status.DIVIDED_BY_ZERO, status))
        # The one quotient that does not fit.
        over = (a.data == np.iinfo(np.int64).min) & (b.data == -1)
        status = _status(status, _fresh(over, Status.OUT_OF_RANGE, status))
        safe = np.where((b.data == 0) | over, 1, b.data)
        return Result(function(a.data, safe), status)

    return apply


def _towards_zero(a: Any, b: Any) -> Any:
    return (a - np.fmod(a, b)) // b


def _checked(function: Callable[..., Any], exact: Callable[..., Any]) -> _Operation:
    """An operation on whole numbers whose result may not fit into 64 bits."""

    def apply(operands: list[Result]) -> Result:
        values = [operand.data for operand in operands]
        status = _status(*(operand.status for operand in operands))
        data = function(*values)
        # Near the end of the range floats cannot tell: there, Python's own whole numbers do.
        rough = np.asarray(function(*(np.float64(value) for value in values)))
        over = np.abs(rough) > 2.0**62
        if over.any():
            over = over & _overflows(exact, values, rough.shape)
        return Result(data, _status(status, _fresh(over, Status.OUT_OF_RANGE, status)))

    return apply


def _overflows(exact: Callable[..., int], values: list[Any], shape: tuple[int, ...]) -> Bools:
    lists = [np.broadcast_to(value, shape).ravel().tolist() for value in values]
    fits = [-(2**63) <= exact(*row) < 2**63 for row in zip(*lists, strict=True)]
    return ~np.array(fits, dtype=bool).reshape(shape)


def _to_whole(operands: list[Result]) -> Result:
    (value,) = operands
    over = ~(np.abs(value.data) < 2.0**63)
    status = _status(value.status, _fresh(over, Status.OUT_OF_RANGE, value.status))
    return Result(np.where(over, 0.0, value.data).astype(np.int64), status)


def _and(operands: list[Result]) -> Result:
    a, b = operands
    status = _status(a.status, b.status)
    if status is None:
        return Result(a.data & b.data)
    false = _known(a, ~a.data) | _known(b, ~b.data)
    return Result(a.data & b.data & ~false, _unless(false, status))


def _or(operands: list[Result]) -> Result:
    a, b = operands
    status = _status(a.status, b.status)
    if status is None:
        return Result(a.data | b.data)
    true = _known(a, a.data) | _known(b, b.data)
    return Result(a.data | b.data | true, _unless(true, status))


def _known(value: Result, flags: Any) -> Any:
    return flags if value.status is None else flags & (value.status == 0)


def _unless(decided: Any, status: Codes) -> Codes | None:
    left: Codes = np.where(decided, np.uint8(0), status)
    return left if left.any() else None


def _conditional(operands: list[Result]) -> Result:
    test, yes, no = operands
    data = _choose(test.data, yes.data, no.data)
    if yes.status is None and no.status is None:
        return Result(data, test.status)
    zero = np.uint8(0)
    taken = np.where(
        test.data,
        zero if yes.status is None else yes.status,
        zero if no.status is None else no.status,
    )
    if test.status is not None:
        taken = np.where(test.status != 0, test.status, taken)
    return Result(data, taken)


def _choose(test: Any, yes: Any, no: Any) -> Any:
    if not isinstance(yes, Texts):
        return np.where(test, yes, no)
    places = np.where(test, yes.places, no.places + len(yes.different))
    return Texts([*yes.different, *no.different], places)


def _equals(operands: list[Result]) -> Result:
    a, b = operands
    status = _status(a.status, b.status)
    if isinstance(a.data, Texts):
        return Result(_paired(a.data, b.data, operator.eq), status)
    return Result(a.data == b.data, status)


def _not_equals(operands: list[Result]) -> Result:
    equal = _equals(operands)
    return Result(~equal.data, equal.status)


def _in_list(operands: list[Result]) -> Result:
    wanted, *among = operands
    if not among:
        return Result(np.bool_(False), wanted.status)
    each = [_equals([wanted, one]) for one in among]
    found = each[0].data
    for one in each[1:]:
        found = found | one.data
    return Result(found, _status(*(one.status for one in each)))


def _text_test(function: Callable[[str, str], bool]) -> _Operation:
    return _plain(lambda a, b: _paired(a, b, function))


def _compared(function: Callable[[Any, Any], Any]) -> _Operation:
    def compare(a: Any, b: Any) -> Any:
        return _paired(a, b, function) if isinstance(a, Texts) else function(a, b)

    return _plain(compare)


def _paired(a: Texts, b: Texts, function: Callable[[str, str], Any]) -> Any:
    """Return ``function`` of each pair of texts, called once for each distinct pair."""
    if len(b.different) == 1:
        return np.array([function(x, b.different[0]) for x in a.different])[a.places]
    if len(a.different) == 1:
        return np.array([function(a.different[0], y) for y in b.different])[b.places]
    pairs = a.places * len(b.different) + b.places
    different, places = np.unique(pairs, return_inverse=True)
    rows = zip(*(part.tolist() for part in np.divmod(different, len(b.different))), strict=True)
    found = np.array([function(a.different[x], b.different[y]) for x, y in rows])
    return found[places.reshape(pairs.shape)]


def _joined(operands: list[Result]) -> Result:
    a, b = operands
    status = _status(a.status, b.status)
    found = np.asarray(_paired(a.data, b.data, operator.add))
    return Result(_factorized(found.ravel().tolist(), found.shape), status)


def _matches(operands: list[Result]) -> Result:
    value, pattern = operands
    found = matched(value.data.different, pattern.data.different[0])
    return Result(found[value.data.places], value.status)


def matched(texts: list[str], pattern: str) -> Bools:
    """Say of each text whether ``pattern`` is found in it.

    By RE2, as the language asks: its time is linear in the text, whatever the pattern. Raises
    ``ValueError`` where the pattern is none.
    """
    # Imported here: most rules have no pattern, and the library is large.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        found = pc.match_substring_regex(pa.array(texts, pa.string()), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    flags: Bools = found.to_numpy(zero_copy_only=False).astype(bool)
    return flags


def _sizes(operands: list[Result]) -> Result:
    (value,) = operands
    sizes = np.array([len(text) for text in value.data.different], dtype=np.int64)
    return Result(sizes[value.data.places], value.status)


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "less": operator.lt,
    "less_equals": operator.le,
    "greater": operator.gt,
    "greater_equals": operator.ge,
}

_OPERATIONS: dict[str, _Operation] = {
    "add_double": _numeric(operator.add),
    "subtract_double": _numeric(operator.sub),
    "multiply_double": _numeric(operator.mul),
    "divide_double": _divide,
    "negate_double": _plain(operator.neg),
    "add_int64": _checked(operator.add, operator.add),
    "subtract_int64": _checked(operator.sub, operator.sub),
    "multiply_int64": _checked(operator.mul, operator.mul),
    "negate_int64": _checked(operator.neg, operator.neg),
    "divide_int64": _whole_divide(_towards_zero),
    "modulo_int64": _whole_divide(np.fmod),
    **{
        f"{name}_{kind}": _compared(function)
        for name, function in _ORDERS.items()
        for kind in ("double", "int64", "string", "bool")
    },
    "equals": _equals,
    "not_equals": _not_equals,
    "logical_and": _and,
    "logical_or": _or,
    "logical_not": _plain(operator.invert),
    "conditional": _conditional,
    "in_list": _in_list,
    "starts_with_string": _text_test(str.startswith),
    "ends_with_string": _text_test(str.endswith),
    "contains_string": _text_test(operator.contains),
    "matches": _matches,
    "matches_string": _matches,
    "size_string": _sizes,
    "string_size": _sizes,
    "add_string": _joined,
    "double_to_int64": _to_whole,
    "int64_to_double": _plain(np.float64),
    "int64_to_int64": _plain(lambda value: value),
    "double_to_double": _plain(lambda value: value),
}
