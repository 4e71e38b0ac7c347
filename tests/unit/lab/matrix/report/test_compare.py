"""Two results side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.matrix.report.compare import (
    Direction,
    compare,
    compared_html,
    compared_markdown,
    write_comparison,
)
from lab.matrix.report.text import comparison_lines
from lab.matrix.result import (
    Better,
    Cell,
    MatrixResult,
    Measure,
    SubjectKind,
    Verdict,
    make_result,
)
from tests.builders.matrix import make_matrix


def make(*cells: Cell, subject: str = "v1") -> MatrixResult:
    return make_result(subject=subject, kind=SubjectKind.POLICY, at="now", cells=cells)


def cell(
    verdict: Verdict = Verdict.PASSED,
    *,
    seed: int = 1,
    value: float | None = None,
    better: Better = Better.LOWER,
) -> Cell:
    measures = [Measure(name="wait_s", value=value, unit="s", better=better)]
    return Cell(scenario="a", title="A", seed=seed, verdict=verdict, measures=measures)


PASSED, FAILED, ERROR, NOT_RUN = Verdict.PASSED, Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        (PASSED, PASSED, Direction.SAME),
        (PASSED, FAILED, Direction.WORSE),
        (PASSED, ERROR, Direction.WORSE),
        (FAILED, PASSED, Direction.BETTER),
        (ERROR, PASSED, Direction.BETTER),
        (FAILED, ERROR, Direction.SAME),
        # What was not run says nothing of better or worse.
        (NOT_RUN, PASSED, Direction.OTHER),
        (FAILED, NOT_RUN, Direction.OTHER),
        (PASSED, NOT_RUN, Direction.OTHER),
    ],
)
def test_verdicts(before: Verdict, after: Verdict, direction: Direction) -> None:
    (pair,) = compare(make(cell(before)), make(cell(after))).cells
    assert pair.direction is direction


@pytest.mark.parametrize(
    ("before", "after", "better", "direction"),
    [
        (100.0, 80.0, Better.LOWER, Direction.BETTER),
        (100.0, 120.0, Better.LOWER, Direction.WORSE),
        (100.0, 120.0, Better.HIGHER, Direction.BETTER),
        (100.0, 120.0, Better.NEITHER, Direction.OTHER),
        (100.0, 100.9, Better.LOWER, Direction.SAME),
        (0.0, 0.0, Better.LOWER, Direction.SAME),
        (0.0, 1.0, Better.LOWER, Direction.WORSE),
    ],
)
def test_measures(before: float, after: float, better: Better, direction: Direction) -> None:
    comparison = compare(
        make(cell(value=before, better=better)), make(cell(value=after, better=better))
    )
    (shift,) = comparison.shifts
    assert shift.direction is direction


def test_seeds_are_paired_and_those_that_agree_are_counted() -> None:
    before = make(*(cell(seed=seed, value=100.0) for seed in (1, 2, 3)))
    after = make(cell(seed=2, value=90.0), cell(seed=1, value=40.0), cell(seed=3, value=104.0))
    (shift,) = compare(before, after).shifts
    assert (shift.before, shift.after) == (100.0, 78.0)
    assert (shift.agreeing, len(shift.pairs)) == (2, 3)


def test_what_only_one_has_is_told_apart() -> None:
    comparison = compare(make(cell(seed=1, value=1.0)), make(cell(seed=2, value=9.0)))
    assert [pair.seed for pair in comparison.alone] == [1, 2]
    assert comparison.shifts == []
    assert "In one result only: 2 cells" in compared_markdown(comparison)
    assert "not there" in compared_html(comparison)


def test_a_value_that_is_missing_is_not_compared() -> None:
    assert compare(make(cell(value=None)), make(cell(value=3.0))).shifts == []


def test_reports_say_what_is_better_with_numbers() -> None:
    comparison = compare(make_matrix(subject="v13"), make_matrix(over=0.0, subject="v14"))
    said = "v14 against v13: 2 cells better."
    assert comparison.headline == said
    text = compared_markdown(comparison)
    assert text.startswith(f"## {said}\n\nGrade C of v13, **A** of v14.")
    assert "| Severe thermal restriction | throughput | better | 89.8 % | 93.8 % | +4 points |" in (
        text
    )
    lines = comparison_lines(comparison)
    assert lines[-1] == f"{said} Grade C \N{RIGHTWARDS ARROW} A."
    assert any("time over budget 24 s" in line for line in lines)
    assert f"<h1>{said}</h1>" in compared_html(comparison)


def test_a_result_is_no_better_and_no_worse_than_itself() -> None:
    result = make_matrix()
    comparison = compare(result, result)
    assert not comparison.better
    assert not comparison.worse
    assert all(shift.direction is Direction.SAME for shift in comparison.shifts)
    assert "no verdict is another" in comparison.headline


def test_worse_comes_before_better() -> None:
    before = make(cell(FAILED, seed=1), cell(PASSED, seed=2))
    after = make(cell(PASSED, seed=1), cell(FAILED, seed=2))
    comparison = compare(before, after)
    assert comparison.headline == "v1 against v1: 1 cell better, 1 cell worse."
    assert comparison_lines(comparison)[0].startswith("  worse: a, seed 2")


def test_it_is_written_as_html_and_markdown(tmp_path: Path) -> None:
    files = write_comparison(compare(make_matrix(), make_matrix(over=0.0)), tmp_path / "new")
    assert [file.name for file in files] == ["comparison.html", "comparison.md"]
    assert all(file.stat().st_size > 500 for file in files)
