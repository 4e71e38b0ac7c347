"""The result as Markdown, for a pull request or the summary of a CI job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lab.matrix.report import words
from lab.matrix.report.failures import failures
from lab.matrix.report.numbers import columns, row_of
from lab.matrix.result import Cell, MatrixResult, Verdict

__all__ = ["escaped", "markdown", "table"]

_COLUMNS = 3
_SIGNS = {
    Verdict.PASSED: "\N{WHITE HEAVY CHECK MARK}",
    Verdict.FAILED: "\N{CROSS MARK}",
    Verdict.ERROR: "\N{HEAVY EXCLAMATION MARK SYMBOL}",
    Verdict.NOT_RUN: "\N{WHITE LARGE SQUARE}",
    Verdict.NOT_MEASURED: "\N{WHITE QUESTION MARK ORNAMENT}",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown(result: MatrixResult) -> str:
    """Return the report of one result."""
    title = words.headline(result.subject, [cell.verdict for cell in result.cells])
    lines = [
        f"## {escaped(title)}",
        "",
        f"**Grade {result.grade.letter}.** {escaped(result.grade.said)}",
        "",
        *_matrix(result),
        "",
        *_failures(result),
        *_facts(result),
    ]
    return "\n".join(lines).rstrip() + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> list[str]:
    """Return a table. Its last ``numbers`` columns are aligned as figures."""
    words_wide = len(head) - numbers
    rule = ["---"] * words_wide + ["--:"] * numbers
    return [_row(head), _row(rule), *map(_row, rows)]


def escaped(text: str) -> str:
    """Return ``text`` so that it stands in Markdown as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _matrix(result: MatrixResult) -> list[str]:
    shown = columns(result.cells, _COLUMNS)
    head = ["scenario", *(f"seed {seed}" for seed in result.seeds)]
    rows = [_scenario(result, name, shown) for name in result.scenarios]
    return table([*head, *map(words.words_of, shown)], rows, numbers=len(shown))


def _scenario(result: MatrixResult, scenario: str, shown: Sequence[str]) -> list[str]:
    cells = [cell for cell in result.cells if cell.scenario == scenario]
    by_seed = [[cell for cell in cells if cell.seed == seed] for seed in result.seeds]
    found = [row_of(name, cells) for name in shown]
    return [
        escaped(cells[0].title),
        *(" ".join(f"{_SIGNS[c.verdict]} {words.VERDICTS[c.verdict]}" for c in here)
          for here in by_seed),
        *(row.mean_said if row else words.DASH for row in found),
    ]  # fmt: skip


def _failures(result: MatrixResult) -> Iterator[str]:
    found = failures(result)
    if not found:
        return
    yield "### What did not pass"
    yield ""
    for failure in found:
        text = f"**{escaped(failure.title)}**: {escaped(failure.text)}"
        yield f"- {_SIGNS[failure.verdict]} {text}"
        yield from (_seen(cell, seen) for cell, seen in failure.seen)
    for title, cause in dict.fromkeys(
        (cell.title, cell.cause) for cell in result.cells if _is_bad(cell) and cell.cause
    ):
        yield f"- **{escaped(title)}**, why it took its time: {escaped(cause)}"
    again = [cell.again for cell in result.cells if _is_bad(cell) and cell.again]
    if again:
        yield ""
        yield "Again, one cell alone:"
        yield ""
        # Indented code needs no fence, which the command could contain.
        yield from (f"    {line}" for line in again[0].splitlines())
    yield ""


def _seen(cell: Cell, seen: str) -> str:
    return f"  - seed {cell.seed}{f': {escaped(seen)}' if seen else ''}"


def _is_bad(cell: Cell) -> bool:
    return cell.verdict in (Verdict.FAILED, Verdict.ERROR)


def _facts(result: MatrixResult) -> Iterator[str]:
    facts = {"at": result.at} | result.machine | result.versions
    yield ", ".join(f"{escaped(name)} {escaped(value)}" for name, value in facts.items())
