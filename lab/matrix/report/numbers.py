"""Measures over the seeds of a scenario: a row for each, with mean and spread. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lab.matrix.report import words
from lab.matrix.result import Cell, Measure

__all__ = ["Row", "columns", "row_of", "rows_of"]


@dataclass(frozen=True)
class Row:
    """One measure. ``values`` are in the order of the cells; None where it was not measured."""

    name: str
    unit: str
    said: str
    values: list[float | None]

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float | None:
        return sum(self.known) / len(self.known) if self.known else None

    @property
    def mean_said(self) -> str:
        return words.quantity(self.mean, self.unit)

    @property
    def spread_said(self) -> str:
        """How far the seeds are apart; "none" where all are the same."""
        if len(self.known) < 2:
            return words.DASH
        width = max(self.known) - min(self.known)
        return words.quantity(width, self.unit) if width else "none"


def rows_of(cells: Sequence[Cell]) -> list[Row]:
    """Return the measures of cells in the order in which they are first named."""
    names = dict.fromkeys(measure.name for cell in cells for measure in cell.measures)
    return [row for name in names if (row := row_of(name, cells))]


def row_of(name: str, cells: Sequence[Cell]) -> Row | None:
    """Return one measure of cells; None: none of them has it."""
    found = [_measure(name, cell) for cell in cells]
    first = next((each for each in found if each is not None), None)
    if first is None:
        return None
    said = next((each.said for each in found if each is not None and each.said), "")
    return Row(name, first.unit, said, [None if each is None else each.value for each in found])


def columns(cells: Sequence[Cell], most: int) -> list[str]:
    """Return the first measures that at least half of the cells with measures have a value of."""
    having = [cell for cell in cells if cell.measures]
    count = Counter(
        measure.name for cell in having for measure in cell.measures if measure.value is not None
    )
    names = dict.fromkeys(measure.name for cell in having for measure in cell.measures)
    return [name for name in names if 2 * count[name] >= len(having)][:most]


def _measure(name: str, cell: Cell) -> Measure | None:
    return next((each for each in cell.measures if each.name == name), None)
