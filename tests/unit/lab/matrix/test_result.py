"""Verdicts, grades, and the result as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.matrix.result import (
    Check,
    Measure,
    ResultError,
    SubjectKind,
    Verdict,
    dumps,
    grade_of,
    loads,
    make_result,
    verdict_of,
    verdict_of_checks,
    why_of_checks,
)
from tests.builders.matrix import make_cell, make_matrix

PASSED, FAILED, ERROR, NOT_RUN = Verdict.PASSED, Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN
NOT_MEASURED = Verdict.NOT_MEASURED
VERDICTS = st.lists(st.sampled_from(list(Verdict)), max_size=60)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], NOT_RUN),
        ([NOT_RUN], NOT_RUN),
        ([NOT_RUN, PASSED], PASSED),
        ([NOT_MEASURED, PASSED], NOT_MEASURED),
        ([NOT_MEASURED, FAILED], FAILED),
        ([PASSED, FAILED, NOT_RUN], FAILED),
        ([FAILED, ERROR, PASSED], ERROR),
    ],
)
def test_the_worst_of_what_was_run_counts(verdicts: list[Verdict], expected: Verdict) -> None:
    assert verdict_of(verdicts) == expected


@pytest.mark.parametrize(
    ("passed", "failed", "errors", "not_run", "letter"),
    [
        (10, 0, 0, 0, "A"),
        (99, 1, 0, 0, "B"),
        (9, 1, 0, 0, "B"),
        (9, 0, 1, 0, "B"),
        (8, 2, 0, 0, "C"),
        (3, 1, 0, 0, "C"),
        (1, 1, 0, 0, "D"),
        (1, 2, 0, 0, "F"),
        (0, 5, 0, 0, "F"),
        # What was not run counts for nothing, and for no best grade.
        (10, 0, 0, 1, "B"),
        (4, 0, 0, 5, "C"),
        (1, 2, 0, 9, "F"),
        (0, 0, 0, 3, "none"),
        (0, 0, 0, 0, "none"),
    ],
)
def test_grades(passed: int, failed: int, errors: int, not_run: int, letter: str) -> None:
    verdicts = [PASSED] * passed + [FAILED] * failed + [ERROR] * errors + [NOT_RUN] * not_run
    grade = grade_of(verdicts)
    assert grade.letter == letter
    counts = (grade.passed, grade.failed, grade.errors, grade.not_run)
    assert counts == (passed, failed, errors, not_run)


@pytest.mark.parametrize(
    ("verdicts", "letter"),
    [
        ([PASSED] * 10 + [NOT_MEASURED], "B"),
        ([PASSED] * 4 + [NOT_MEASURED] * 3 + [NOT_RUN] * 2, "C"),
        ([FAILED] + [NOT_MEASURED] * 16, "F"),
        ([NOT_MEASURED] * 17, "none"),
    ],
)
def test_what_could_not_be_measured_is_not_passed(verdicts: list[Verdict], letter: str) -> None:
    grade = grade_of(verdicts)
    assert (grade.letter, grade.not_measured) == (letter, verdicts.count(NOT_MEASURED))
    assert f"{grade.not_measured} could not be measured and count for nothing" in grade.said


@given(VERDICTS)
def test_nothing_but_all_passed_is_an_a(verdicts: list[Verdict]) -> None:
    is_perfect = bool(verdicts) and set(verdicts) == {PASSED}
    assert (grade_of(verdicts).letter == "A") == is_perfect


@given(VERDICTS, st.sampled_from([FAILED, ERROR, NOT_RUN, NOT_MEASURED]))
def test_another_cell_that_did_not_pass_makes_no_grade_better(
    verdicts: list[Verdict], worse: Verdict
) -> None:
    order = ["A", "B", "C", "D", "F", "none"]
    before, after = grade_of(verdicts).letter, grade_of([*verdicts, worse]).letter
    # With nothing run before, a first letter is no better one.
    assert before == "none" or order.index(after) >= order.index(before)


def test_a_grade_says_what_it_counts() -> None:
    said = grade_of([PASSED] * 3 + [FAILED, ERROR, NOT_RUN]).said
    assert said == (
        "3 of 5 cells passed, 1 failed, 1 broke, 1 could not be run and count for nothing."
    )


def test_why_is_the_first_check_that_failed_with_what_was_seen() -> None:
    checks = [
        Check(text="work goes on", verdict=PASSED, said="always"),
        Check(text="site_w is never above 86000", verdict=FAILED, said="91200 at most"),
        Check(text="it recovers", verdict=FAILED),
        Check(text="clocks agree", verdict=NOT_MEASURED, said="not told"),
    ]
    assert verdict_of_checks(checks) == FAILED
    assert why_of_checks(checks) == "site_w is never above 86000: 91200 at most (and 1 more)"
    assert why_of_checks(checks[:1]) == ""
    assert why_of_checks([]) == ""
    assert why_of_checks(checks[3:]) == "it could not be seen whether clocks agree: not told"


def test_a_result_comes_back_from_json_as_it_was() -> None:
    result = make_matrix()
    assert loads(dumps(result)) == result
    assert dumps(loads(dumps(result))) == dumps(result)


def test_numbers_of_other_libraries_are_written_as_numbers() -> None:
    measure = Measure(name="x", value=np.float64(2.5))
    cell = make_cell(measures=[measure], series=[])
    result = make_result(subject="x", kind=SubjectKind.POLICY, at="now", cells=[cell])
    assert loads(dumps(result)).cells[0].measures[0].value == 2.5
    odd = make_cell(measures=[Measure(name="x", value=object())], series=[])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="object is no part of a result"):
        dumps(make_result(subject="x", kind=SubjectKind.POLICY, at="now", cells=[odd]))


def test_the_order_of_scenarios_is_that_of_the_run() -> None:
    result = make_matrix()
    assert result.scenarios[:3] == ["normal", "mild-power", "severe-thermal"]
    assert result.seeds == [1, 2, 3]
    assert result.verdict == FAILED


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.pop("cells"), "cells"),
        (lambda document: document.update(format=99), "of format 99"),
        (lambda document: document["cells"][0].update(verdict="good"), "good"),
        (
            lambda document: document["cells"][0]["series"][0]["t_s"].pop(),
            "cells[0] (normal): series site_w has 180 times and 181 values",
        ),
    ],
)
def test_what_is_no_result_is_refused_with_what_is_wrong(
    change: Callable[[Any], object], said: str
) -> None:
    document = json.loads(dumps(make_matrix()))
    change(document)
    with pytest.raises(ResultError, match=re.escape(said)):
        loads(json.dumps(document))


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[]"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ResultError, match="not the result of a matrix"):
        loads(text)
