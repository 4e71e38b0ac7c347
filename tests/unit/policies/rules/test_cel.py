"""Conditions: what is refused and where, and what unknown and errors do."""

from __future__ import annotations

import time

import numpy as np
import pytest

from headroom.contracts import FieldError
from policies.rules import cel
from policies.rules.arrays import Status
from policies.rules.errors import CelError
from tests.unit.policies.rules.tables import SAMPLE_FIELDS, make_table

NAN = float("nan")
TABLE = make_table(
    fields=SAMPLE_FIELDS,
    labels=[{"row": "3"}, {"row": "4", "tier": "prod"}, {}],
    x=[1.0, NAN, 3.0],
    y=[0.0, 2.0, 0.5],
    b=[True, False, True],
    s=["ab", "b", "abc"],
)


def told(expression: str) -> str:
    """Return for each scope T, F, U (unknown) or E (error)."""
    verdict = cel.compile(expression, SAMPLE_FIELDS).verdict(cel.columns_of(TABLE))
    status = np.zeros(3, int) if verdict.status is None else verdict.status
    letters = []
    for row in range(3):
        if status[row]:
            letters.append("U" if status[row] == Status.UNKNOWN else "E")
        else:
            letters.append("T" if verdict.holds[row] else "F")
    return "".join(letters)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x > 2.0", "FUT"),
        ("!(x > 2.0)", "TUF"),
        ("x == x", "TUT"),
        ("x > 2.0 || true", "TTT"),
        ("x > 2.0 && false", "FFF"),
        ("true || x > 2.0", "TTT"),
        ("x > 2.0 && b", "FFT"),
        ("x > 2.0 || b", "TUT"),
        ("b ? y > 1.0 : x > 2.0", "FUF"),
        ("x > 2.0 ? b : !b", "FUT"),
        ("x / y > 1.0", "EUT"),
        ("x / y > 1.0 || b", "TUT"),
        ("x / 0.0 > 1.0", "EUE"),
        ("x * 0.0 / 0.0 > 1.0", "EUE"),
        ("1 / 0 == 1", "EEE"),
        ("1 % 0 == 1 || b", "TET"),
        ("size(s) > 1", "TFT"),
        ("s.size() == 2", "TFF"),
        ("s in ['ab', 'abc']", "TFT"),
        ("x in [1.0, 3.0]", "TUT"),
        ("s in []", "FFF"),
        ("s.startsWith('a') && s.endsWith('c')", "FFT"),
        ("s.contains('b')", "TTT"),
        ("s.matches('^a.?$')", "TFF"),
        ("matches(s, 'b$')", "TTF"),
        ("s + '!' == 'b!'", "FTF"),
        ("s < 'b'", "TFT"),
        ("name.endsWith('r2') || site == 'paris'", "FTF"),
        ("labels.row == '3'", "TFE"),
        ("labels['row'] == '3'", "TFE"),
        ("has(labels.tier) && labels.tier == 'prod'", "FTF"),
        ("'tier' in labels", "FTF"),
        ("int(y * 10.0) % 5 == 0", "TTT"),
        ("-7 / 2 == -3 && -7 % 2 == -1", "TTT"),
        ("double(size(s)) > x", "TUF"),
        ("9223372036854775807 + size(s) > 0", "EEE"),
        ("9223372036854775800 + size(s) > 0", "TTT"),
        ("(-9223372036854775807 - 1) / -1 > 0", "EEE"),
        ("int(x * 1e30) > 0", "EUE"),
        ("(b ? s : 'z') == 'z'", "FTF"),
    ],
)
def test_values_unknown_and_errors(expression: str, expected: str) -> None:
    assert told(expression) == expected


def test_over_says_where_a_condition_is_known_to_hold() -> None:
    assert cel.compile("x >= 1.0", SAMPLE_FIELDS).over(TABLE).tolist() == [True, False, True]


def test_a_condition_knows_its_fields() -> None:
    assert cel.compile("x > y && labels.a == s", SAMPLE_FIELDS).fields == {"x", "y", "labels", "s"}


def test_a_quantity_is_nan_where_it_cannot_be_told() -> None:
    values = cel.compile_quantity("x / y", SAMPLE_FIELDS).over(TABLE)
    assert np.isnan(values[:2]).all()
    assert values[2] == 6.0


def test_a_quantity_may_be_a_plain_number() -> None:
    assert cel.compile_quantity("size('abc')", SAMPLE_FIELDS).over(TABLE).tolist() == [3, 3, 3]


def test_a_field_that_the_table_does_not_have_is_unknown() -> None:
    fields = {**SAMPLE_FIELDS, "later": SAMPLE_FIELDS["x"], "text": SAMPLE_FIELDS["s"]}
    columns = cel.columns_of(TABLE)
    verdict = cel.compile("later > 1.0 || text == 'a'", fields).verdict(columns)
    assert not verdict.holds.any()
    assert not verdict.fails.any()
    assert verdict.errors() is None


def problem(expression: str) -> FieldError:
    with pytest.raises(CelError) as refused:
        cel.compile(expression, SAMPLE_FIELDS)
    return refused.value.problems[0]


@pytest.mark.parametrize(
    ("expression", "place", "message", "hint"),
    [
        ("x >", (1, 4), "Syntax error", ""),
        ("x > 1", (1, 3), "found no matching overload", "1.0"),
        ("b &&\n  zz > 1.0", (2, 3), "undeclared reference to 'zz'", ""),
        ("x + s > 1.0", (1, 3), "found no matching overload", ""),
        ("x", (1, 1), "gives a number", "compare"),
        ("s.matches('(')", (1, 11), "regular expression", "RE2"),
        ("s.matches(s)", (1, 10), "pattern", "quotes"),
        ("[1].exists(i, i > 0)", (1, 11), "exists()", "compare"),
        ("s in ['a', 'b'].map(i, i)", (1, 3), "needs a list", "such as"),
        ("duration('5m') > duration('1m')", (1, 16), "greater_duration", "lists"),
        ("dyn(x) == 1", (1, 4), "dyn", "lists"),
        ("x in [1.0, 'a']", (1, 3), "double and string", ""),
        ("labels == labels", (1, 8), "map", ""),
        ("size(labels) > 0", (1, 5), "size", "lists"),
        ("b'ab' == b'ab'", (1, 1), "bytes", "numbers"),
        ("labels[s] == 'a'", (1, 7), "label", "quotes"),
    ],
)
def test_what_is_refused_is_told_with_its_place(
    expression: str, place: tuple[int, int], message: str, hint: str
) -> None:
    found = problem(expression)
    assert (found.line, found.column) == place
    assert message in found.message
    assert hint in found.hint


def test_a_misspelled_field_is_answered_with_close_ones() -> None:
    fields = {"power_use": SAMPLE_FIELDS["x"], "power_load_w": SAMPLE_FIELDS["x"]}
    with pytest.raises(CelError) as refused:
        cel.compile("pwer_use > 0.9", fields)
    assert refused.value.problems[0].hint.startswith("did you mean power_use")


def test_repeated_negations_cost_nothing() -> None:
    assert told("!" * 1500 + "b") == "TFT"


@pytest.mark.parametrize(
    "expression",
    [
        "x > 1.0 && " * 400 + "b",
        "(" * 500 + "b" + ")" * 500,
        "b" + " && b" * 390,
        "s in [" + ",".join(["'a'"] * 390) + "]",
        f"s.matches('{'a' * 300}')",
    ],
)
def test_what_would_cost_too_much_is_refused_at_once(expression: str) -> None:
    began = time.perf_counter()
    problem(expression)
    assert time.perf_counter() - began < 30.0


def test_a_pattern_that_blows_up_other_engines_takes_no_time() -> None:
    table = make_table(fields=SAMPLE_FIELDS, s=["a" * 5000 + "!"] * 3)
    condition = cel.compile("s.matches('^(a+)+$')", SAMPLE_FIELDS)
    began = time.perf_counter()
    assert not condition.over(table).any()
    assert time.perf_counter() - began < 30.0
