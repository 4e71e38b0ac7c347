"""The form that every trace of jobs is read into: when jobs came, how long and on how many GPUs."""

from __future__ import annotations

import csv
import gzip
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

__all__ = ["BadRow", "Builder", "Job", "JobTrace", "TraceError", "lines_of", "rows_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: The first bad rows are kept with what is wrong with them; the rest are counted.
_BAD_ROWS_KEPT = 20
#: Multiples of it fall evenly between 0 and 1, beside whatever pattern lines have.
_GOLDEN = 0.6180339887498949


class TraceError(ValueError):
    """A file is no trace of this format. The message names file, error and a way out."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: its line in the file, from 1, its field and its error."""

    line: int
    field: str
    said: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.said}"


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTrace:
    """Jobs in order of submission; each array has one value for each. NaN: the trace is silent."""

    name: str
    #: line in the file, from 1
    line: Ints
    #: s after the start of the trace
    submit_s: Floats
    #: how long it really ran, s
    runs_s: Floats
    gpus: Ints
    #: what it had of each of its GPUs; 1: all
    gpu_share: Floats
    #: what it asked for, s
    walltime_s: Floats
    #: how long it waited when it was recorded, s
    wait_s: Floats
    #: whom it ran for: virtual cluster, service class or user
    project: tuple[str, ...]
    #: the first bad rows, and how many there are
    bad: tuple[BadRow, ...] = ()
    bad_count: int = 0
    #: rows that are well but no job for GPUs that ran, by what they are
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.submit_s)

    def __str__(self) -> str:
        parts = [f"{self.name}: {len(self):,} jobs, {self.gpu_s.sum() / 3600.0:,.0f} GPU hours"]
        parts += [f"{count:,} {what} left out" for what, count in sorted(self.left_out.items())]
        if self.bad_count:
            parts.append(f"{self.bad_count:,} bad rows, the first: {self.bad[0]}")
        return "; ".join(parts)

    @property
    def gpu_s(self) -> Floats:
        """GPU seconds that each job took."""
        return self.runs_s * self.gpus * self.gpu_share

    def between(self, from_s: float, to_s: float) -> JobTrace:
        """Return the jobs submitted from ``from_s`` up to ``to_s``, which counts from there."""
        first, last = np.searchsorted(self.submit_s, [from_s, to_s])
        part = self.take(np.arange(first, last))
        return replace(part, submit_s=part.submit_s - from_s)

    def over(self, from_s: float, to_s: float) -> JobTrace:
        """Return the jobs between two moments, those with it that ran at the first.

        These come at its beginning, with what was left of them then.
        """
        ends_s = self.submit_s + self.runs_s
        part = self.take(np.flatnonzero((ends_s > from_s) & (self.submit_s < to_s)))
        submit_s = np.maximum(part.submit_s - from_s, 0.0)
        ends_s = part.submit_s + part.runs_s - from_s
        return replace(part, submit_s=submit_s, runs_s=ends_s - submit_s)

    def faster(self, times: float) -> JobTrace:
        """Return the same jobs, so many times as fast one after another, and as short."""
        spans = ("submit_s", "runs_s", "walltime_s", "wait_s")
        return replace(self, **{name: getattr(self, name) / times for name in spans})

    def thinned(self, kept: float) -> JobTrace:
        """Return a share of the jobs, spread evenly over the lines of the file."""
        if kept >= 1.0:
            return self
        return self.take(np.flatnonzero(self.line * _GOLDEN % 1.0 < kept))

    def demand_gpus(self, from_s: float, to_s: float, of: Bools | None = None) -> float:
        """Return the GPUs that jobs would hold without waits, on average; ``of``: these alone."""
        starts_s = np.clip(self.submit_s, from_s, to_s)
        lasts_s = np.clip(self.submit_s + self.runs_s, from_s, to_s) - starts_s
        if of is not None:
            lasts_s = np.where(of, lasts_s, 0.0)
        return float(lasts_s @ self.gpus) / (to_s - from_s)

    def take(self, rows: Ints) -> JobTrace:
        """Return some of the jobs, by their indexes here."""
        return replace(
            self,
            line=self.line[rows],
            submit_s=self.submit_s[rows],
            runs_s=self.runs_s[rows],
            gpus=self.gpus[rows],
            gpu_share=self.gpu_share[rows],
            walltime_s=self.walltime_s[rows],
            wait_s=self.wait_s[rows],
            project=tuple(self.project[row] for row in rows),
        )


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of a trace. Times are seconds; NaN: unknown."""

    submit_s: float
    runs_s: float
    gpus: int
    project: str
    gpu_share: float = 1.0
    walltime_s: float = math.nan
    wait_s: float = math.nan


class Builder:
    """Takes rows as they are read, good and bad."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[int] = []
        self._jobs: list[Job] = []
        self._bad: list[BadRow] = []
        self._bad_count = 0
        self._left_out: Counter[str] = Counter()

    def add(self, line: int, job: Job) -> None:
        """Add a job, unless one of its values is invalid."""
        for name, value, is_well in (
            ("submit_s", job.submit_s, math.isfinite(job.submit_s)),
            ("runs_s", job.runs_s, math.isfinite(job.runs_s) and job.runs_s >= 0.0),
            ("gpus", job.gpus, job.gpus > 0),
            ("gpu_share", job.gpu_share, 0.0 < job.gpu_share <= 1.0),
        ):
            if not is_well:
                self.refuse(line, name, f"{value} cannot be")
                return
        self._lines.append(line)
        self._jobs.append(job)

    def refuse(self, line: int, field: str, said: str) -> None:
        """Count a row that cannot be read."""
        self._bad_count += 1
        if len(self._bad) < _BAD_ROWS_KEPT:
            self._bad.append(BadRow(line, field, said))

    def leave_out(self, what: str) -> None:
        """Count a row that is well-formed, but is ``what`` and no job for GPUs."""
        self._left_out[what] += 1

    def trace(self) -> JobTrace:
        """Return the trace of the rows taken. Raises :class:`TraceError` where there are none."""
        if not self._jobs:
            first = f"; the first bad row is {self._bad[0]}" if self._bad else ""
            raise TraceError(f"{self._path}: no job in it{first}; is it a trace of this format?")

        def each(name: str) -> Floats:
            return np.array([getattr(job, name) for job in self._jobs], dtype=np.float64)

        trace = JobTrace(
            name=self._path.name,
            line=np.array(self._lines, dtype=np.int64),
            submit_s=each("submit_s"),
            runs_s=each("runs_s"),
            gpus=np.array([job.gpus for job in self._jobs], dtype=np.int64),
            gpu_share=each("gpu_share"),
            walltime_s=each("walltime_s"),
            wait_s=each("wait_s"),
            project=tuple(job.project for job in self._jobs),
            bad=tuple(self._bad),
            bad_count=self._bad_count,
            left_out=dict(self._left_out),
        )
        in_order = trace.take(np.argsort(trace.submit_s, kind="stable"))
        return replace(in_order, submit_s=in_order.submit_s - in_order.submit_s[0])


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, gzipped or not, without line ends."""
    try:
        with _open(path) as lines:
            for line in lines:
                yield line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error


def rows_of(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and cells of each row of a CSV file that has ``columns``, by name.

    Raises :class:`TraceError` where a column is missing. A cell that is missing is empty.
    """
    reader = csv.DictReader(lines_of(path), restval="", strict=True)
    missing = [each for each in columns if each not in (reader.fieldnames or ())]
    if missing:
        raise TraceError(
            f"{path}: no column {', '.join(missing)} in its first line;"
            f" this format has {', '.join(columns)}"
        )
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise TraceError(f"{path}: line {reader.line_num}: {error}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
