"""Rows as the bytes of a Parquet file, in as few as can be without losing any.

Sensors have a resolution: watts with two decimals, whole degrees, whole megahertz. A column of
floats whose values are all multiples of some decimal fraction is written as decimals, that is as
whole numbers, which encode far better than floats do. It is done only where every value comes back
to the last bit; other columns stay floats. Any reader of Parquet sees numbers either way.

How a column of numbers is encoded best depends on the numbers, so it is tried out on the first rows
of each file, and the smallest is taken. So is how it is compressed: Brotli, which takes thrice as
long to read, makes noise smaller than Zstandard does, and little else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.samples import Column, Table
from telemetry.store.columns import Array, Columns, is_null

#: Rows that are found together: of one GPU, an hour of readings at 1 s is a small part of it.
ROW_GROUP_ROWS = 65_536
_LEVELS = {"zstd": 3, "brotli": 5}
#: Brotli has to make a column smaller by so much, and one that is not small anyway (bytes).
_WORTH_BROTLI, _SMALL = 0.97, 8_192
_MAX_DECIMALS = 9
#: What a decimal of 32 and of 64 bits holds.
_DIGITS_32, _DIGITS_64 = 9, 18

_DELTA, _SPLIT, _DICTIONARY = "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "RLE_DICTIONARY"


@dataclass(frozen=True)
class _Form:
    """A column as it may be written."""

    values: Any
    encoding: str
    codec: str = "zstd"


def to_parquet(table: Table, columns: Columns) -> bytes:
    """Return the rows, which are in order of their thing and time, as a file."""
    forms = {c.name: _best(_forms(c, columns[c.name])) for c in table.columns}
    return _write(forms, indexed=(table.key, "ts"))


def _forms(column: Column, values: Array) -> list[_Form]:
    missing = is_null(values)
    if missing.all():
        return [_Form(pa.nulls(len(values), pa.from_numpy_dtype(values.dtype)), _DICTIONARY)]
    valid = None if not missing.any() else pa.array(~missing).buffers()[1]
    if column.pg_type == "timestamptz":
        return _as(pa.timestamp("us", "UTC"), values, valid, _DELTA, _SPLIT)
    plain = pa.from_numpy_dtype(values.dtype)
    if values.dtype.kind != "f":
        return _as(plain, values, valid, _DELTA, _SPLIT, _DICTIONARY)
    floats = _as(plain, values, valid, _SPLIT, _DICTIONARY)
    decimals = _decimals(values, missing)
    if decimals is None:
        return floats
    whole, places = decimals
    decimal = pa.decimal32(_DIGITS_32, places) if whole.itemsize == 4 else None
    kind = decimal or pa.decimal64(_DIGITS_64, places)
    return [*_as(kind, whole, valid, _DELTA, _SPLIT, _DICTIONARY), floats[0]]


def _as(kind: Any, values: Array, valid: Any, *encodings: str) -> list[_Form]:
    made = pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])
    return [_Form(made, encoding) for encoding in encodings]


def _decimals(values: Array, missing: Array) -> tuple[Array, int] | None:
    """Return ``values`` as whole numbers and how many decimals they have; None: not exactly."""
    known = np.where(missing, 0, values).astype("f8")
    if (np.signbit(known) & (known == 0)).any():
        return None  # a whole number has no negative zero
    few = slice(0, 4_096)
    for places in range(_MAX_DECIMALS + 1):
        if _is_exact(known[few], values.dtype, places) and _is_exact(known, values.dtype, places):
            whole = np.round(known * 10.0**places)
            greatest = np.abs(whole).max()
            if greatest >= 10.0**_DIGITS_64:
                return None
            return whole.astype("i4" if greatest < 10.0**_DIGITS_32 else "i8"), places
    return None


def _is_exact(known: Array, dtype: np.dtype[Any], places: int) -> bool:
    """Tell whether a reader, who divides whole numbers by a power of ten, gets the same floats."""
    scale = 10.0**places
    with np.errstate(over="ignore", invalid="ignore"):
        back = (np.round(known * scale) / scale).astype(dtype)
    return bool(np.array_equal(back, known.astype(dtype)))


def _best(forms: list[_Form]) -> _Form:
    if len(forms) == 1:
        return forms[0]
    sizes = [_size(form) for form in forms]
    least = min(sizes)
    best = forms[sizes.index(least)]
    if least < _SMALL:
        return best
    other = replace(best, codec="brotli")
    return other if _size(other) < _WORTH_BROTLI * least else best


def _size(form: _Form) -> int:
    """Return the bytes of the first rows."""
    return len(_write({"c": replace(form, values=form.values.slice(0, ROW_GROUP_ROWS))}))


def _write(forms: dict[str, _Form], indexed: Iterable[str] = ()) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(
        pa.table({name: form.values for name, form in forms.items()}),
        out,
        row_group_size=ROW_GROUP_ROWS,
        compression={name: form.codec for name, form in forms.items()},
        compression_level={name: _LEVELS[form.codec] for name, form in forms.items()},
        use_dictionary=[n for n, form in forms.items() if form.encoding == _DICTIONARY],
        column_encoding={n: f.encoding for n, f in forms.items() if f.encoding != _DICTIONARY},
        store_decimal_as_integer=True,
        # Readers look by thing and time alone.
        write_statistics=list(indexed),
        store_schema=False,
    )
    return bytes(out.getvalue().to_pybytes())
