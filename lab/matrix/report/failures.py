"""The failures of a matrix: an entry for each expectation, with the cells that missed it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lab.matrix.result import Cell, MatrixResult, Verdict

__all__ = ["Failure", "failures"]


@dataclass(frozen=True)
class Failure:
    """An expectation of a scenario that was not met, and the value in each cell instead."""

    scenario: str
    title: str
    verdict: Verdict
    #: what had to hold; of a cell that could not be judged, why
    text: str
    seen: list[tuple[Cell, str]]


def failures(result: MatrixResult) -> list[Failure]:
    """Return the failures, by scenario in the order of the run; cells not run come last."""
    found: dict[tuple[str, Verdict, str], Failure] = {}
    for cell in result.cells:
        for verdict, text, seen in _misses(cell):
            key = (cell.scenario, verdict, text)
            made = Failure(cell.scenario, cell.title, verdict, text, [])
            found.setdefault(key, made).seen.append((cell, seen))
    return sorted(found.values(), key=lambda failure: failure.verdict == Verdict.NOT_RUN)


def _misses(cell: Cell) -> list[tuple[Verdict, str, str]]:
    if cell.verdict == Verdict.PASSED:
        return []
    checks = [check for check in cell.checks if check.verdict == cell.verdict]
    if cell.verdict == Verdict.FAILED and checks:
        return [(check.verdict, check.text, check.said) for check in checks]
    return [(cell.verdict, cell.why or "nothing was said of it", "")]
