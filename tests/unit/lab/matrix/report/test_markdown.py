"""The result as Markdown."""

from __future__ import annotations

from lab.matrix.report import markdown
from lab.matrix.report.markdown import escaped
from lab.matrix.result import Check, SubjectKind, Verdict, make_result
from tests.builders.matrix import make_cell, make_matrix


def test_it_begins_with_the_verdict_and_the_grade() -> None:
    lines = markdown(make_matrix()).splitlines()
    assert lines[0] == "## builtin fails 2 of 16 cells."
    assert lines[2].startswith("**Grade C.** 14 of 16 cells passed, 2 failed, 2 could not be run")


def test_every_scenario_has_a_line_with_its_cells_and_numbers() -> None:
    lines = markdown(make_matrix()).splitlines()
    (row,) = (line for line in lines if line.startswith("| Severe"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert [cell.split()[-1] for cell in cells[1:4]] == ["failed", "passed", "failed"]
    assert cells[4:] == ["89.8 %", "24 s", "0.08 GPU h"]
    head = next(line for line in lines if line.startswith("| scenario"))
    assert head.count("|") == row.count("|")


def test_it_says_what_failed_in_numbers() -> None:
    text = markdown(make_matrix())
    assert "**Severe thermal restriction**: site\\_w is never over its budget" in text
    assert "  - seed 3: 5.2 kW over at 15:20, for 36 s in all" in text
    assert "    python -m lab matrix run --scenario severe-thermal --seed 1" in text


def test_where_all_passed_nothing_is_said_to_have_failed() -> None:
    text = markdown(make_matrix(over=0.0))
    assert "passes all 18 cells" in text
    assert "did not pass" not in text


def test_what_a_job_says_cannot_break_the_table_or_the_page() -> None:
    check = Check(text="a | b\n# <script>", verdict=Verdict.FAILED, said="`x` | *y*")
    cell = make_cell(title="one | two", checks=[check], verdict=None, why="")
    result = make_result(
        subject="<b>", kind=SubjectKind.COMMAND, at="now", cells=[
            make_cell(title="one | two"),
            cell.__class__(scenario="s", title="t", seed=1, verdict=Verdict.FAILED, checks=[check]),
        ],
    )  # fmt: skip
    text = markdown(result)
    assert "one \\| two" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "a \\| b \\# \\<script\\>" in text
    assert escaped("a\n\nb") == "a b"
