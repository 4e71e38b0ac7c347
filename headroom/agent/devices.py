"""What an agent reads from: one abstract source, and the columns that readings gather in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from headroom.contracts import Columns

__all__ = ["ColumnBuffer", "Row", "Source", "Value"]

Value: TypeAlias = float | int | None
#: One reading: fields of a block of the contract, ``ts`` left out. None: could not be read.
Row: TypeAlias = Mapping[str, Value]

C = TypeVar("C", bound=Columns)


class Source(Protocol):
    """Something on this machine that can be read again and again."""

    @property
    def block(self) -> Literal["gpus", "host"]:
        """The block of the node report that the rows belong to."""
        ...

    @property
    def errors(self) -> int:
        """How many reads failed since the start. What is merely not supported is no failure."""
        ...

    @property
    def last_error(self) -> str:
        """What the last failure was, or ""."""
        ...

    def read(self) -> Iterable[Row]:
        """Return the rows of this moment: none where nothing can be read. Never raises."""
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


class ColumnBuffer(Generic[C]):
    """Rows gathered into the columns of one block.

    A value outside the contract's range becomes null and is counted in ``rejected``: one mad
    sensor must not get the readings beside it refused.
    """

    def __init__(self, kind: type[C]) -> None:
        self._kind = kind
        self._ranges = _ranges(kind)
        self._ts: list[float] = []
        self._columns: dict[str, list[Value]] = {name: [] for name in self._ranges}
        self.rejected = 0

    def __len__(self) -> int:
        return len(self._ts)

    def append(self, ts: float, row: Row) -> None:
        """Add one row. Fields that it lacks are null."""
        self._ts.append(ts)
        for name, column in self._columns.items():
            column.append(self._checked(name, row.get(name)))

    def take(self) -> C | None:
        """Return all rows and forget them; None when there are none.

        Fields that no row has are left out.
        """
        if not self._ts:
            return None
        full = {
            name: column
            for name, column in self._columns.items()
            if any(value is not None for value in column)
        }
        block = msgspec.convert({"ts": self._ts, **full}, self._kind)
        self._ts = []
        self._columns = {name: [] for name in self._ranges}
        return block

    def _checked(self, name: str, value: Value) -> Value:
        if value is None:
            return None
        low, high = self._ranges[name]
        if low <= value <= high:  # False for NaN, too
            return value
        self.rejected += 1
        return None


def _ranges(kind: type[Columns]) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest value of each numeric column of ``kind``, as it states them."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind} is no struct")
    found = {}
    for field in info.fields:
        for number in _numbers(field.type):
            low = -math.inf if number.ge is None else float(number.ge)
            high = math.inf if number.le is None else float(number.le)
            found[field.name] = (low, high)
    found.pop("ts", None)
    return found


def _numbers(type_: inspect.Type) -> Iterable[inspect.IntType | inspect.FloatType]:
    """Yield the number types inside a column's type: a list, nullable or not, of numbers."""
    if isinstance(type_, inspect.UnionType):
        for member in type_.types:
            yield from _numbers(member)
    elif isinstance(type_, inspect.ListType):
        yield from _numbers(type_.item_type)
    elif isinstance(type_, (inspect.IntType, inspect.FloatType)):
        yield type_
