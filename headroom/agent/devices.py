"""The devices that an agent reads: one abstract source, and the columns that readings gather in."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from headroom.contracts import Columns

__all__ = ["Block", "ColumnBuffer", "GpuLostError", "Row", "Source", "Value", "close_all"]

#: How long all sources together may take to close, s: longer than any of them waits by itself.
_CLOSE_S = 6.0

#: The blocks that sources fill: the first four are of a node, the others of the whole batch.
Block: TypeAlias = Literal["gpus", "host", "storage", "xids", "links", "meters", "jobs"]
Value: TypeAlias = float | int | str | None
#: One reading: fields of a block of the contract. None: could not be read. ``ts`` is left out,
#: unless the reading is older than the moment at which it is handed out. ``node`` is left out,
#: unless the reading is of another node than the agent's own.
Row: TypeAlias = Mapping[str, Value]

C = TypeVar("C", bound=Columns)


class GpuLostError(Exception):
    """The GPU no longer answers."""


class Source(Protocol):
    """Something on this machine that can be read again and again."""

    @property
    def block(self) -> Block:
        """The block of the batch that the rows belong to."""
        ...

    @property
    def errors(self) -> int:
        """How many reads failed since the start. A field that is not supported is no failure."""
        ...

    @property
    def last_error(self) -> str:
        """The message of the last failure, or ""."""
        ...

    def read(self) -> Iterable[Row]:
        """Return the rows of this moment: none where nothing can be read. Never raises."""
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


def close_all(sources: Sequence[Source]) -> None:
    """Close all at once, and wait for them together: some may hang, and a stop has its time."""
    threads = [
        threading.Thread(target=source.close, name="close", daemon=True) for source in sources
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _CLOSE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


class ColumnBuffer(Generic[C]):
    """Rows gathered into the columns of one block.

    A value outside the contract's range becomes null and is counted in ``rejected``: one mad
    sensor must not get the readings beside it refused. A row without a value that every row must
    have is left out, and counted too. Texts that are too long are cut.
    """

    def __init__(self, kind: type[C]) -> None:
        self._kind = kind
        self._fields = _fields(kind)
        self._ts: list[float] = []
        self._columns: dict[str, list[Value]] = {name: [] for name in self._fields}
        self.rejected = 0

    def __len__(self) -> int:
        return len(self._ts)

    def append(self, ts: float, row: Row) -> None:
        """Add one row. Fields that it lacks are null."""
        values = {name: self._checked(spec, row.get(name)) for name, spec in self._fields.items()}
        if any(values[name] is None for name, spec in self._fields.items() if spec.is_required):
            self.rejected += 1
            return
        self._ts.append(ts)
        for name, column in self._columns.items():
            column.append(values[name])

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
        self._columns = {name: [] for name in self._fields}
        return block

    def _checked(self, spec: _Field, value: Value) -> Value:
        if value is None:
            return None if spec.is_nullable else ""
        checked = spec.check(value)
        if checked is None:
            self.rejected += 1
        return checked


@dataclass(frozen=True)
class _Field:
    """The values that the contract allows in one column."""

    is_required: bool
    is_nullable: bool

    def check(self, value: Value) -> Value:
        """Return the value as the contract takes it, or None."""
        raise NotImplementedError


@dataclass(frozen=True)
class _NumberField(_Field):
    low: float
    high: float
    is_whole: bool

    def check(self, value: Value) -> Value:
        # The comparison is False for NaN, too.
        if isinstance(value, str) or value is None or not self.low <= value <= self.high:
            return None
        return round(value) if self.is_whole else value


@dataclass(frozen=True)
class _TextField(_Field):
    shortest: int
    longest: int

    def check(self, value: Value) -> Value:
        if not isinstance(value, str):
            return None
        text = value.replace("\0", "")[: self.longest]
        return text if len(text) >= self.shortest else None


def _fields(kind: type[Columns]) -> dict[str, _Field]:
    """Return the field of the contract for each column of ``kind``, all but ``ts``."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind} is no struct")
    return {f.name: _field(f.type, f.required) for f in info.fields if f.name != "ts"}


def _field(type_: inspect.Type, is_required: bool) -> _Field:
    column = next(each for each in _members(type_) if isinstance(each, inspect.ListType))
    kinds = list(_members(column.item_type))
    # A column that may be left out but has no nulls is one of texts, where "" says nothing.
    is_nullable = is_required or any(isinstance(each, inspect.NoneType) for each in kinds)
    for kind in kinds:
        if isinstance(kind, inspect.StrType):
            return _TextField(is_required, is_nullable, kind.min_length or 0, kind.max_length or 0)
        if isinstance(kind, (inspect.IntType, inspect.FloatType)):
            low = -math.inf if kind.ge is None else kind.ge
            high = math.inf if kind.le is None else kind.le
            return _NumberField(
                is_required, is_nullable, low, high, isinstance(kind, inspect.IntType)
            )
    raise TypeError(f"no column of numbers or texts: {type_}")


def _members(type_: inspect.Type) -> Iterable[inspect.Type]:
    """Return the types that ``type_`` is a union of, or itself."""
    return type_.types if isinstance(type_, inspect.UnionType) else (type_,)
