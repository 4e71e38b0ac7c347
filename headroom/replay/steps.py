"""Logs of training steps: what a training loop printed of itself, without any power."""

from __future__ import annotations

from pathlib import Path

from headroom.replay.description import Columns
from headroom.replay.recording import JobPoint, RecordingError
from headroom.replay.tables import as_number, as_time, is_missing, read_records

__all__ = ["read_steps"]


def read_steps(file: Path, columns: Columns) -> dict[str, list[JobPoint]]:
    """Return what each run of a step log told, in the order of the file.

    A clock that starts anew within a run, as some do after their first steps, goes on from where it
    was. Lines that tell none of the values are passed over. Raises :class:`RecordingError`.
    """
    wanted = (columns.time, columns.run, columns.step, *columns.of_steps.values())
    named = tuple(dict.fromkeys(name for name in wanted if name))
    found: dict[str, list[JobPoint]] = {}
    begun_s: dict[str, float] = {}
    last_s: dict[str, float] = {}
    for line, values in read_records(file, named, columns.pattern):
        row = dict(zip(named, values, strict=True))
        run = row.get(columns.run, "").strip() or "all"
        if is_missing(row[columns.time]):
            continue
        t_s = as_time(file, line, columns.time, row[columns.time].strip(), columns.time_unit)
        if t_s < last_s.get(run, t_s):
            begun_s[run] = begun_s.get(run, 0.0) + last_s[run] - t_s
        last_s[run] = t_s
        point = _point(file, line, columns, row, t_s + begun_s.get(run, 0.0))
        if point is not None:
            found.setdefault(run, []).append(point)
    if not found:
        raise RecordingError(f"{file} has no steps: nothing stands in its column {columns.step!r}")
    return found


def _point(
    file: Path, line: int, columns: Columns, row: dict[str, str], t_s: float
) -> JobPoint | None:
    step = _value(file, line, columns.step, row)
    told = {field: _value(file, line, name, row) for field, name in columns.of_steps.items()}
    if step is None and set(told.values()) <= {None}:
        return None
    return JobPoint(t_s=t_s, step=None if step is None else int(step), **told)


def _value(file: Path, line: int, name: str, row: dict[str, str]) -> float | None:
    return None if is_missing(row[name]) else as_number(file, line, name, row[name].strip())
