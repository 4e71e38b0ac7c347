"""A result in the lines of a terminal: the verdict, a line for each scenario, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.report import words
from lab.matrix.report.compare import Comparison, changed_measures
from lab.matrix.report.failures import failures
from lab.matrix.result import Cell, MatrixResult

__all__ = ["cell_lines", "comparison_lines", "lines"]


def lines(result: MatrixResult) -> list[str]:
    """Return a result in lines."""
    width = max((len(name) for name in result.scenarios), default=0)
    marks = (f"  {name:{width}}  {' '.join(_signs(result, name))}" for name in result.scenarios)
    title = words.headline(result.subject, [cell.verdict for cell in result.cells])
    return [*marks, *_whys(result), f"{title} Grade {result.grade.letter}: {result.grade.said}"]


def _signs(result: MatrixResult, scenario: str) -> Iterator[str]:
    for cell in result.cells:
        if cell.scenario == scenario:
            yield f"{words.SYMBOLS[cell.verdict]} {words.VERDICTS[cell.verdict]:12}"


def _whys(result: MatrixResult) -> Iterator[str]:
    for failure in failures(result):
        yield f"{words.VERDICTS[failure.verdict]}: {failure.scenario}: {failure.text}"
        for cell, seen in failure.seen:
            if seen:
                yield f"    seed {cell.seed}: {seen}"


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return a comparison in lines."""
    found = [
        f"  {pair.direction}: {pair.scenario}, seed {pair.seed}: {pair.why}".rstrip(": ")
        for pair in [*comparison.worse, *comparison.better]
    ]
    shifts = [
        f"  {shift.direction}: {shift.scenario}: {words.words_of(shift.name)} "
        f"{words.quantity(shift.before, shift.unit)} \N{RIGHTWARDS ARROW} "
        f"{words.quantity(shift.after, shift.unit)} "
        f"({words.change(shift.before, shift.after, shift.unit)}; "
        f"{shift.agreeing} of {len(shift.pairs)} seeds)"
        for shift in changed_measures(comparison)
    ]
    before, after = comparison.before.grade.letter, comparison.after.grade.letter
    return [*found, *shifts, f"{comparison.headline} Grade {before} \N{RIGHTWARDS ARROW} {after}."]


def cell_lines(cell: Cell) -> list[str]:
    """Return one cell in lines: its expectations, its measures, and the verdict."""
    checks = [
        f"  {words.SYMBOLS[check.verdict]} {check.text}: {check.said}".rstrip(": ")
        for check in cell.checks
    ]
    width = max((len(words.words_of(each.name)) for each in cell.measures), default=0)
    measures = [
        f"  {words.words_of(each.name):{width}}  {words.quantity(each.value, each.unit)}"
        f"{f'  ({each.said})' if each.said else ''}"
        for each in cell.measures
    ]
    verdict = f"{cell.scenario}, seed {cell.seed}: {words.VERDICTS[cell.verdict]}"
    return [*checks, *measures, f"{verdict}: {cell.why}" if cell.why else verdict]
