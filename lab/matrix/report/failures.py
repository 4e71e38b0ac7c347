"""The failures of a matrix: an entry for each expectation, with the cells that missed it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lab.matrix.result import Cell, MatrixResult, Verdict

__all__ = ["Failure", "failures"]


@dataclass(frozen=True)
class Failure:
    """An expectation of a scenario that was not seen to be met, and what each cell has instead."""

    scenario: str
    title: str
    verdict: Verdict
    #: what had to hold; of a cell that could not be judged, why
    text: str
    seen: list[tuple[Cell, str]]


_LAST = {Verdict.NOT_MEASURED: 1, Verdict.NOT_RUN: 2}


def failures(result: MatrixResult) -> list[Failure]:
    """Return the failures, by scenario in the order of the run.

    What could not be measured comes after them, and cells not run come last.
    """
    found: dict[tuple[str, Verdict, str], Failure] = {}
    for cell in result.cells:
        for verdict, text, seen in _misses(cell):
            key = (cell.scenario, verdict, text)
            made = Failure(cell.scenario, cell.title, verdict, text, [])
            found.setdefault(key, made).seen.append((cell, seen))
    return sorted(found.values(), key=lambda failure: _LAST.get(failure.verdict, 0))


def _misses(cell: Cell) -> list[tuple[Verdict, str, str]]:
    if cell.verdict == Verdict.PASSED:
        return []
    checks = [check for check in cell.checks if check.verdict == cell.verdict]
    if cell.verdict in (Verdict.FAILED, Verdict.NOT_MEASURED) and checks:
        return [(check.verdict, check.text, check.said) for check in checks]
    return [(cell.verdict, cell.why or "nothing was said of it", "")]
