"""Rows of readings by the step that a training loop had reached, in place of time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from telemetry.figures.model import Row
from telemetry.series import Column

__all__ = ["by_step"]

Floats = NDArray[np.float64]


def by_step(rows: Sequence[Row], steps: Row) -> list[Row]:
    """Return rows whose column ``t`` is the step reached, between two reports by interpolation.

    ``steps`` has the column ``step``. What was read before its first report, or after its last, is
    of no step and left out. What stands for a bucket, readings as steps, is placed at its middle.
    """
    at, step = _numbers(steps.columns["t"]), _numbers(steps.columns["step"])
    known = ~np.isnan(step)
    at = at[known] + 0.5 * (steps.step_s or 0.0)
    step = np.maximum.accumulate(step[known]) if known.any() else step[known]
    return [each for each in (_placed(row, at, step) for row in rows) if each.columns["t"]]


def _placed(row: Row, at: Floats, step: Floats) -> Row:
    middle = _numbers(row.columns["t"]) + 0.5 * (row.step_s or 0.0)
    inside = (middle >= at[0]) & (middle <= at[-1]) if at.size else np.zeros(middle.size, np.bool_)
    reached = np.round(np.interp(middle[inside], at, step), 3) if inside.any() else middle[inside]
    # Two readings of one step, as while it stood still: the later one stands for it.
    places = np.flatnonzero(inside)
    last = np.append(np.diff(reached) > 0.0, True)[: reached.size]
    columns: dict[str, Column] = {"t": reached[last].tolist()}
    for name, values in row.columns.items():
        if name != "t":
            columns[name] = [values[place] for place in places[last].tolist()]
    return replace(row, columns=columns, step_s=None)


def _numbers(column: Column) -> Floats:
    return np.array([np.nan if each is None else each for each in column], dtype=np.float64)
