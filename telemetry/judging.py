"""Judging rows of fixed width: those of all batches of a round together.

The web process has looked at their number and at whom they speak for. What their values may be is
the contract's to say (``headroom.contracts``): a row that breaks it costs itself alone, as in a
batch of the typed form, and what was wrong is told with a later acknowledgement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from headroom import layouts
from headroom.contracts import BatchError
from headroom.layouts import JOB
from telemetry.ingest.columns import element_types
from telemetry.ingest.refusals import MAX_TOLD, Refusals, TimeLimits
from telemetry.rows import TABLES, Packed, Part, Unjudged
from telemetry.samples import NULL_INT, Array

__all__ = ["KIND", "Judged", "judge"]

#: The kind of thing that the rows of each block are about.
KIND = {"gpus": "gpu", "host": "host", "links": "link", "meters": "meter"}


@dataclass
class Judged:
    """Good rows by kind, and what was refused, by the place of its batch."""

    parts: dict[str, Part] = field(default_factory=dict)
    refused: dict[int, Refusals] = field(default_factory=dict)


class _Column(NamedTuple):
    """A column of a form, with the least and the greatest value that the contract takes."""

    name: str
    least: float
    most: float


@dataclass(frozen=True)
class _Form:
    """Rows of one block with one set of columns."""

    block: str
    dtype: np.dtype[Any]
    #: those with values
    columns: tuple[_Column, ...]
    has_jobs: bool
    #: of the contract, by column
    types: Mapping[str, Any]


@cache
def _form_of(block: str, columns: str) -> _Form:
    names = columns.split()
    codes = layouts.fields_of(block)
    named = [("ts", "<f8"), ("place", "<u4"), *((n, f"<{_NUMPY[codes[n]]}") for n in names)]
    types = element_types(layouts.BLOCKS[block])
    columns_of = tuple(_Column(name, *_range(types[name])) for name in names if name != JOB)
    return _Form(block, np.dtype(named), columns_of, JOB in names, types)


#: What times are below, Unix s.
_TS_END = 1e11
_NUMPY = {"f": "f4", "d": "f8", "q": "i8"}


def _range(annotation: Any) -> tuple[float, float]:
    """Return the least and the greatest value that the contract takes."""
    info = msgspec.inspect.type_info(annotation)
    known = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    number: Any = next(each for each in known if not isinstance(each, msgspec.inspect.NoneType))
    return number.ge, number.le


def judge(
    found: Sequence[tuple[Packed, float]],
    limits: TimeLimits,
    job_ids: Mapping[str, int] = MappingProxyType({}),
) -> Judged:
    """Return the rows of fixed width of batches, each given with the time of its receipt.

    ``job_ids``: of all jobs that they name (:func:`telemetry.rows.job_names`). Of each batch that
    has such rows the span of its times is set.
    """
    by_form: dict[tuple[str, str], list[tuple[int, Unjudged]]] = {}
    for batch, (packed, _) in enumerate(found):
        for each in packed.unjudged:
            by_form.setdefault((each.block, each.columns), []).append((batch, each))
    judged = Judged()
    received_at = np.array([at for _, at in found])
    parts: dict[str, list[Part]] = {}
    for key, of_form in by_form.items():
        rows = _Rows(_form_of(*key), of_form, received_at, job_ids)
        good = rows.good(limits, judged)
        rows.widen([packed for packed, _ in found], good)
        parts.setdefault(KIND[key[0]], []).append(rows.part(good))
    for kind, of_kind in parts.items():
        judged.parts[kind] = Part.joined(of_kind)
    return judged


class _Rows:
    """The rows of one form of all batches of a round."""

    def __init__(
        self,
        form: _Form,
        found: Sequence[tuple[int, Unjudged]],
        received_at: Array,
        job_ids: Mapping[str, int],
    ) -> None:
        self._form = form
        self._rows = np.frombuffer(b"".join(each.data for _, each in found), form.dtype)
        sizes = [len(each.data) // form.dtype.itemsize for _, each in found]
        self._firsts = np.cumsum([0, *sizes[:-1]])
        self._batches = np.array([batch for batch, _ in found])
        #: of each row, the place of its batch among those of this form
        self._of = np.repeat(np.arange(len(found)), sizes)
        self._received_at = received_at[self._batches][self._of]
        self._ids = np.frombuffer(b"".join(each.ids for _, each in found), "<i4")
        self._things = np.array([len(each.ids) // 4 for _, each in found])
        self._first_ids = np.cumsum([0, *self._things[:-1]])
        self._jobs = np.array([len(each.jobs) for _, each in found])
        self._first_jobs = np.cumsum([0, *self._jobs[:-1]])
        self._job_ids = np.array([job_ids[name] for _, each in found for name in each.jobs], int)

    def good(self, limits: TimeLimits, judged: Judged) -> Array:
        """Return which rows keep to the contract, and note why the others do not."""
        good = np.ones(len(self._rows), bool)
        for name, bad in self._faults(limits):
            if bad.any():
                self._refuse(name, np.flatnonzero(bad & good), limits, judged)
                good &= ~bad
        return good

    def _faults(self, limits: TimeLimits) -> Iterator[tuple[str, Array]]:
        """Yield columns with the rows that are wrong in them, those of one fault at a time."""
        ts = self._rows["ts"]
        yield "ts", ~((ts >= 0) & (ts < _TS_END))
        yield "ts", ts > self._received_at + limits.max_future_s
        yield "ts", ts < self._received_at - limits.max_age_s
        yield "place", self._rows["place"] >= self._things[self._of]
        if self._form.has_jobs:
            jobs = self._rows[JOB]
            yield JOB, (jobs != NULL_INT) & ((jobs < 0) | (jobs >= self._jobs[self._of]))
        for column in self._form.columns:
            values = self._rows[column.name]
            bad = (values < column.least) | (values > column.most)
            if values.dtype.kind == "i":
                bad &= values != NULL_INT
            yield column.name, bad

    def _refuse(self, name: str, rows: Array, limits: TimeLimits, judged: Judged) -> None:
        """Note the first of ``rows`` of each batch with its cause, and count the others."""
        if not len(rows):
            return  # each has another fault, which is told already
        of, starts = np.unique(self._of[rows], return_index=True)
        for place, some in zip(of.tolist(), np.split(rows, starts[1:]), strict=True):
            refusals = judged.refused.setdefault(int(self._batches[place]), Refusals())
            told = some[: max(1, MAX_TOLD - len(refusals.told))].tolist()
            for row in told:
                refusals.add(self._error(name, row, limits))
            refusals.rows[refusals.last_code] += len(some) - len(told)

    def _error(self, name: str, row: int, limits: TimeLimits) -> BatchError:
        of, value = int(self._of[row]), self._rows[name][row].item()
        path = f"{self._form.block}.{name}[{row - int(self._firsts[of])}]"
        if name in ("place", JOB):
            places = int((self._jobs if name == JOB else self._things)[of])
            return BatchError("invalid_field", f"the layout has {places} places", field=path)
        kind = self._form.types[name]
        at = TimeLimits(float(self._received_at[row]), limits.max_future_s, limits.max_age_s)
        late = at.refusal(path, value) if name == "ts" else None
        return (
            _objection(kind, value, path)
            or late
            or BatchError("invalid_field", f"{value} is out of range", field=path)
        )

    def widen(self, packed: Sequence[Packed], good: Array) -> None:
        """Set the spans of the batches to the times of their good rows."""
        ts, of = self._rows["ts"][good], self._of[good]
        if not len(ts):
            return
        starts = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
        spans = zip(
            self._batches[of[starts]].tolist(),
            np.minimum.reduceat(ts, starts).tolist(),
            np.maximum.reduceat(ts, starts).tolist(),
            strict=True,
        )
        for batch, oldest, newest in spans:
            before = packed[batch].span or (math.inf, -math.inf)
            packed[batch].span = (min(before[0], oldest), max(before[1], newest))

    def part(self, good: Array) -> Part:
        """Return the good rows as their table has them, with ids in place of places."""
        table = TABLES[KIND[self._form.block]]
        chosen = slice(None) if good.all() else good
        rows, of = self._rows[chosen], self._of[chosen]
        records = np.empty(len(rows), table.record)
        given = {column.name for column in self._form.columns}
        for group in table.groups:
            for name in group.columns:
                records[name] = rows[name] if name in given else group.missing
        records["ts"] = rows["ts"]
        records[table.key] = self._ids[self._first_ids[of] + rows["place"]]
        if self._form.has_jobs:
            works = rows[JOB] != NULL_INT
            records["job_id"][works] = self._job_ids[self._first_jobs[of[works]] + rows[JOB][works]]
        return Part(records, self._received_at[chosen])


def _objection(kind: Any, value: float, path: str) -> BatchError | None:
    """Return what the contract has against a value, in the words of the typed form."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        return BatchError("invalid_field", str(exc), field=path)
    return None
