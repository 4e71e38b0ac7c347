"""Files of rows, read line by line: CSV, or text of which a pattern takes the columns.

Whatever cannot be read is named by file, line and column.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from headroom.replay.recording import RecordingError

__all__ = ["as_number", "as_time", "is_missing", "read_lines", "read_records"]

#: Words that stand for a value which is not there.
_MISSING = frozenset(("", "N/A", "NA", "NAN", "NONE", "NULL", "NOT SUPPORTED"))
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}


def read_lines(file: Path, pattern: str = "") -> Iterator[list[str]]:
    """Yield the lines of a file, the header first, unpacked where it is gzip.

    Of text, ``pattern`` takes the columns: they have the names of its groups, and lines in which it
    does not occur are passed over. Without one the file is CSV.
    """
    form = f"by the pattern {pattern!r}" if pattern else "as CSV"
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            plain = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(plain, encoding="utf-8", newline="") as text:
                yield from _matches(text, pattern) if pattern else csv.reader(text)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, re.error) as exc:
        raise RecordingError(f"{file} cannot be read {form}: {exc}") from exc


def _matches(text: Iterable[str], pattern: str) -> Iterator[list[str]]:
    expression = re.compile(pattern)
    yield list(expression.groupindex)
    for line in text:
        if found := expression.search(line):
            yield [value or "" for value in found.groupdict().values()]


def read_records(
    file: Path, columns: Sequence[str], pattern: str = ""
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (line number, values of ``columns``) for each line after the header."""
    lines = read_lines(file, pattern)
    header = [name.strip() for name in next(lines, [])]
    if missing := [name for name in columns if name not in header]:
        raise RecordingError(
            f"{file} lacks the columns {', '.join(missing)}; expected are {', '.join(columns)}"
            f", and it has {', '.join(header) or '(none)'}"
        )
    places = [header.index(name) for name in columns]
    for number, line in enumerate(lines, start=2):
        try:
            yield number, tuple(line[place] for place in places)
        except IndexError:
            raise RecordingError(
                f"{file}, line {number}: {len(line)} values beside {len(header)} columns"
            ) from None


def is_missing(text: str) -> bool:
    """Tell whether a value stands for one that is not there."""
    return text.strip("[] \t").upper() in _MISSING


def as_number(file: Path, line: int, column: str, text: str) -> float:
    """Return a number. Raises :class:`RecordingError` where it is none, or not finite."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RecordingError(f"{file}, line {line}: {column} {text!r} is no number")
    return number


def as_time(file: Path, line: int, column: str, text: str, unit: str = "iso") -> float:
    """Return a time in seconds. An ISO one without a zone is UTC: only differences matter."""
    if unit != "iso":
        return as_number(file, line, column, text) / _PER_SECOND[unit]
    try:
        moment = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        raise RecordingError(f"{file}, line {line}: {column} {text!r} is no time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
