"""A condition as a tree, read from the expression that the CEL library has parsed and checked.

The library hands its checked expression over as the message ``cel.expr.CheckedExpr``. Of that, the
descriptors below name what is read here; field numbers are those of the language's specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage

from headroom.documents import fault
from policies.rules.errors import CelError

#: A condition with more parts than this is refused: what it costs grows with them.
MOST_PARTS = 300

DOUBLE, INT, BOOL, STRING, MAP = "double", "int", "bool", "string", "map"

#: Each operation that conditions may use, by the library's name of it, with what it gives.
GIVES = {
    **dict.fromkeys(
        (f"{verb}_double" for verb in ("add", "subtract", "multiply", "divide", "negate")), DOUBLE
    ),
    **dict.fromkeys(
        (f"{verb}_int64" for verb in ("add", "subtract", "multiply", "divide", "modulo", "negate")),
        INT,
    ),
    **dict.fromkeys(
        (
            f"{verb}_{kind}"
            for verb in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("double", "int64", "string", "bool")
        ),
        BOOL,
    ),
    **dict.fromkeys(("equals", "not_equals", "logical_and", "logical_or", "logical_not"), BOOL),
    **dict.fromkeys(("in_list", "in_map"), BOOL),
    **dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "contains_string",
            "matches",
            "matches_string",
        ),
        BOOL,
    ),
    **dict.fromkeys(("size_string", "string_size", "double_to_int64", "int64_to_int64"), INT),
    **dict.fromkeys(("int64_to_double", "double_to_double"), DOUBLE),
    **dict.fromkeys(("add_string", "index_map"), STRING),
    "conditional": "",  # what its branches give
}


@dataclass(frozen=True)
class Const:
    """A number, text or truth value as written."""

    value: bool | int | float | str
    kind: str
    offset: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        # By kind too: 1, 1.0 and True are equal in Python.
        return f"{self.kind}:{self.value!r}"


@dataclass(frozen=True)
class Name:
    """A field of the scope."""

    name: str
    kind: str
    offset: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """An operation, by the library's name of it, on its operands."""

    operation: str
    operands: tuple[Node, ...]
    kind: str
    offset: int = field(default=0, compare=False)
    #: the same for the same calculation, wherever it stands: what results are shared by
    key: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        key = f"{self.operation}({','.join(part.key for part in self.operands)})"
        object.__setattr__(self, "key", key)


Node: TypeAlias = Const | Name | Call


def names_in(node: Node) -> frozenset[str]:
    """Return the fields that a tree looks at."""
    if isinstance(node, Name):
        return frozenset([node.name])
    if isinstance(node, Call):
        return frozenset().union(*(names_in(part) for part in node.operands))
    return frozenset()


def tree(serialized: bytes, expression: str, kinds: Mapping[str, str]) -> Node:
    """Return the tree of a checked expression whose fields are of ``kinds``.

    Raises :class:`CelError` where it uses what conditions may not.
    """
    wrapped = AnyMessage.FromString(serialized)
    checked = _CHECKED.FromString(wrapped.value)
    reader = _Reader(checked, expression, kinds)
    return reader.node(checked.expr)


class _Reader:
    def __init__(self, checked: Any, expression: str, kinds: Mapping[str, str]) -> None:
        self._operations = {entry.key: entry.value.overload_id for entry in checked.reference_map}
        self._offsets = {entry.key: entry.value for entry in checked.source_info.positions}
        self._expression = expression
        self._kinds = kinds
        self._parts = 0

    def node(self, found: Any) -> Node:
        self._parts += 1
        offset = self._offsets.get(found.id, 0)
        if self._parts > MOST_PARTS:
            raise self._refused(
                offset,
                f"the condition has more than {MOST_PARTS} parts",
                "split it into several rules",
            )
        which = found.WhichOneof("kind")
        if which == "const":
            return self._const(found.const, offset)
        if which == "ident":
            return Name(found.ident.name, self._kinds[found.ident.name], offset)
        if which == "select":
            return self._select(found.select, offset)
        if which == "call":
            return self._call(found, offset)
        raise self._refused(
            offset,
            "lists and maps of your own, and all(), exists(), map() or filter(), cannot be used",
            "compare fields with && and ||, or with `field in [a, b]`",
        )

    def _const(self, const: Any, offset: int) -> Const:
        which = const.WhichOneof("kind")
        known = {"bool": BOOL, "int64": INT, "double": DOUBLE, "string": STRING}
        if which not in known:
            raise self._refused(
                offset,
                f"a constant of type {which} cannot be used",
                "use numbers, text, true or false",
            )
        return Const(getattr(const, which), known[which], offset)

    def _select(self, select: Any, offset: int) -> Call:
        """``labels.row`` is ``labels["row"]``; ``has(labels.row)`` is ``"row" in labels``."""
        operand = self.node(select.operand)
        key = Const(select.field, STRING, offset)
        if select.test_only:
            return Call("in_map", (key, operand), BOOL, offset)
        return Call("index_map", (operand, key), STRING, offset)

    def _call(self, found: Any, offset: int) -> Call:
        operation = self._operations.get(found.id, [found.call.function])[0]
        if operation not in GIVES:
            raise self._refused(
                offset,
                f"{found.call.function} cannot be used here ({operation})",
                "docs/reference/rules.md lists what conditions may use",
            )
        parts = [found.call.target] if found.call.HasField("target") else []
        operands = self._operands(operation, [*parts, *found.call.args], offset)
        kind = GIVES[operation] or operands[1].kind
        call = Call(operation, operands, kind, offset)
        self._check(call)
        return call

    def _operands(self, operation: str, parts: list[Any], offset: int) -> tuple[Node, ...]:
        if operation != "in_list":
            return tuple(self.node(part) for part in parts)
        wanted, among = parts
        if among.WhichOneof("kind") != "list":
            raise self._refused(
                offset, "`in` needs a list, or labels, at its right", "such as site in ['a', 'b']"
            )
        return tuple(self.node(part) for part in [wanted, *among.list.elements])

    def _check(self, call: Call) -> None:
        """Refuse calls that the library's checker takes and arrays cannot follow."""
        kinds = {part.kind for part in call.operands}
        if call.operation in ("equals", "not_equals", "in_list") and (
            len(kinds) > 1 or kinds == {MAP}
        ):
            raise self._refused(
                call.offset, f"values of {' and '.join(sorted(kinds))} cannot be compared", ""
            )
        if call.operation in ("in_map", "index_map") and not any(
            isinstance(part, Const) for part in call.operands
        ):
            raise self._refused(
                call.offset,
                "the name of a label has to be a text as it stands",
                'write it in quotes, such as labels["row"]',
            )
        if call.operation.startswith("matches") and not isinstance(call.operands[1], Const):
            raise self._refused(
                call.offset,
                "the pattern of matches() has to be a text as it stands",
                'write it in quotes, such as name.matches("^r[0-9]+$")',
            )

    def _refused(self, offset: int, message: str, hint: str) -> CelError:
        line, column = position(self._expression, offset)
        return CelError([fault(message, line, column, hint=hint)])


def position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of the character at ``offset``."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


# --- The message, as far as it is read -----------------------------------------------------------

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int64": _FIELD.TYPE_INT64,
    "int32": _FIELD.TYPE_INT32,
    "uint64": _FIELD.TYPE_UINT64,
    "double": _FIELD.TYPE_DOUBLE,
    "bool": _FIELD.TYPE_BOOL,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}
#: Number, name and type of the fields of each message; "*": repeated; "|": one of a choice.
_MESSAGES: dict[str, list[tuple[int, str, str]]] = {
    "Nothing": [],
    "Const": [
        (1, "null", "|int64"),
        (2, "bool", "|bool"),
        (3, "int64", "|int64"),
        (4, "uint64", "|uint64"),
        (5, "double", "|double"),
        (6, "string", "|string"),
        (7, "bytes", "|bytes"),
    ],
    "Ident": [(1, "name", "string")],
    "Select": [(1, "operand", "Expr"), (2, "field", "string"), (3, "test_only", "bool")],
    "CallExpr": [(1, "target", "Expr"), (2, "function", "string"), (3, "args", "*Expr")],
    "List": [(1, "elements", "*Expr")],
    "Expr": [
        (2, "id", "int64"),
        (3, "const", "|Const"),
        (4, "ident", "|Ident"),
        (5, "select", "|Select"),
        (6, "call", "|CallExpr"),
        (7, "list", "|List"),
        (8, "struct", "|Nothing"),
        (9, "comprehension", "|Nothing"),
    ],
    "Reference": [(1, "name", "string"), (3, "overload_id", "*string")],
    "ReferenceEntry": [(1, "key", "int64"), (2, "value", "Reference")],
    "PositionEntry": [(1, "key", "int64"), (2, "value", "int32")],
    "SourceInfo": [(4, "positions", "*PositionEntry")],
    "Checked": [
        (2, "reference_map", "*ReferenceEntry"),
        (4, "expr", "Expr"),
        (5, "source_info", "SourceInfo"),
    ],
}


def _described() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="policies/checked.proto", package="policies", syntax="proto3"
    )
    for message, members in _MESSAGES.items():
        described = file.message_type.add(name=message)
        if any(kind.startswith("|") for _, _, kind in members):
            described.oneof_decl.add(name="kind")
        for number, name, kind in members:
            _describe(described.field.add(name=name, number=number), kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("policies.Checked"))


def _describe(described: Any, kind: str) -> None:
    plain = kind.lstrip("*|")
    described.label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
    if kind.startswith("|"):
        described.oneof_index = 0
    if plain in _SCALARS:
        described.type = _SCALARS[plain]
    else:
        described.type = _FIELD.TYPE_MESSAGE
        described.type_name = f".policies.{plain}"


_CHECKED = _described()
