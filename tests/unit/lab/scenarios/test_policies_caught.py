"""Bad policies fail in the matrix for what is bad about them; the built-in one passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.matrix.reading import load
from lab.matrix.result import Cell, MatrixResult, Verdict
from lab.scenarios import standard
from lab.scenarios.matrix import run_matrix

FOLDER = Path(__file__).parent


def played(policy: str | None, *scenarios: str, repeats: int = 1) -> MatrixResult:
    return run_matrix(
        [load(FOLDER / "scenarios" / f"{name}.yaml") for name in scenarios],
        policy=None if policy is None else FOLDER / "policies" / policy,
        seeds=(1,),
        repeats=repeats,
    )


def failed(cell: Cell) -> dict[str, str]:
    """Return what did not hold and what was seen."""
    return {check.text: check.said for check in cell.checks if check.verdict == Verdict.FAILED}


def measure(cell: Cell, name: str) -> float:
    value = next(each.value for each in cell.measures if each.name == name)
    assert value is not None
    return value


@pytest.fixture(scope="module")
def built_in() -> MatrixResult:
    return played(None, "full", "less-power", repeats=2)


def test_the_built_in_policy_passes(built_in: MatrixResult) -> None:
    assert [(cell.scenario, cell.why) for cell in built_in.cells] == [
        ("full", ""),
        ("less-power", ""),
    ]
    assert built_in.grade.letter == "A"
    assert measure(built_in.cells[0], "work_gpu_h") > 0.0


def test_the_same_seed_comes_to_the_same_bytes(built_in: MatrixResult) -> None:
    for cell in built_in.cells:
        assert cell.checks[-1].verdict == Verdict.PASSED
        assert measure(cell, "repeat_spread_share") == 0.0


def test_admission_that_oversells_power_is_caught_by_time_over_budget() -> None:
    (cell,) = played("overfull", "full").cells
    assert cell.verdict == Verdict.FAILED
    assert "rack" in failed(cell)["over_budget_s is at most 0"]
    assert measure(cell, "over_budget_s") > 0.0
    assert measure(cell, "worst_over_w") > 0.0


def test_what_admission_oversells_the_controller_holds() -> None:
    (cell,) = played("overfull-held", "full").cells
    assert cell.why == ""
    assert measure(cell, "over_budget_s") == 0.0


def test_a_rule_that_fires_too_late_is_caught_where_power_is_taken_away() -> None:
    (cell,) = played("late", "less-power").cells
    assert list(failed(cell)) == ["over_budget_s is at most 30"]
    assert cell.why.startswith("over_budget_s is at most 30: ")


def test_a_rule_that_clears_itself_is_caught_by_its_relapses() -> None:
    (cell,) = played("fluttering", "full").cells
    (said,) = (said for text, said in failed(cell).items() if text.startswith("relapses"))
    assert said.endswith(f"flutter {measure(cell, 'relapses'):.0f}")


@pytest.mark.slow
def test_the_built_in_policy_passes_the_standard_matrix() -> None:
    result = run_matrix(standard(), seeds=(1,), repeats=1)
    assert {cell.scenario: cell.why for cell in result.cells if cell.why} == {}
