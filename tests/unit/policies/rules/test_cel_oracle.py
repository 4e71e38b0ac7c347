"""Array operations give what the CEL library's own evaluator gives, row by row.

Two things are ours, and the oracle is told of them by functions of its own: a division by 0.0 is an
error, not infinity, and so is a calculation that gives no number. An unknown reading is a variable
that the oracle is not given: it answers with an error, and passes it on by the same rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from cel_expr_python import cel as library  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.headroom.columns import Field, Table
from policies.rules import cel
from policies.rules.arrays import Columns
from tests.unit.policies.rules.tables import make_table

FIELDS = {
    "x": Field("double", "", ""),
    "y": Field("double", "", ""),
    "b": Field("bool", "", ""),
    "c": Field("bool", "", ""),
    "s": Field("string", "", ""),
    "t": Field("string", "", ""),
}


@dataclass(frozen=True)
class Pair:
    """An expression as rules write it, and as the oracle is asked."""

    ours: str
    theirs: str


def both(template: str, *parts: Pair) -> Pair:
    """Fill both sides of a pair in the same way."""
    return Pair(
        template.format(*(part.ours for part in parts)),
        template.format(*(part.theirs for part in parts)),
    )


def same(text: str) -> Pair:
    return Pair(text, text)


def _number(value: float) -> Pair:
    text = repr(value)
    return same(f"({text})" if value < 0 else text)


def _divided(a: Pair, b: Pair) -> Pair:
    return Pair(f"({a.ours} / {b.ours})", f"num({a.theirs} / nonzero({b.theirs}))")


def _calculated(sign: str, a: Pair, b: Pair) -> Pair:
    return Pair(f"({a.ours} {sign} {b.ours})", f"num({a.theirs} {sign} {b.theirs})")


def _combined(template: str, *kinds: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.tuples(*kinds).map(lambda parts: both(template, *parts))


def _grown(
    doubles: st.SearchStrategy[Pair],
    ints: st.SearchStrategy[Pair],
    texts: st.SearchStrategy[Pair],
    bools: st.SearchStrategy[Pair],
) -> tuple[
    st.SearchStrategy[Pair],
    st.SearchStrategy[Pair],
    st.SearchStrategy[Pair],
    st.SearchStrategy[Pair],
]:
    orders = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    pairs = [(doubles, doubles), (ints, ints), (texts, texts), (bools, bools)]
    compared = st.one_of(
        *(
            st.tuples(orders, a, b).map(lambda p: both(f"({{}} {p[0]} {{}})", p[1], p[2]))
            for a, b in pairs
        )
    )
    return (
        st.one_of(
            doubles,
            st.tuples(st.sampled_from("+-*"), doubles, doubles).map(lambda p: _calculated(*p)),
            st.tuples(doubles, doubles).map(lambda p: _divided(*p)),
            _combined("(-{})", doubles),
            _combined("double({})", ints),
            _combined("({} ? {} : {})", bools, doubles, doubles),
        ),
        st.one_of(
            ints,
            *(_combined(f"({{}} {sign} {{}})", ints, ints) for sign in "+-*/%"),
            _combined("(-{})", ints),
            _combined("size({})", texts),
            _combined("int({})", doubles),
            _combined("({} ? {} : {})", bools, ints, ints),
        ),
        st.one_of(
            texts,
            _combined("({} + {})", texts, texts),
            _combined("({} ? {} : {})", bools, texts, texts),
        ),
        st.one_of(
            bools,
            compared,
            _combined("({} && {})", bools, bools),
            _combined("({} || {})", bools, bools),
            _combined("(!{})", bools),
            _combined("({} ? {} : {})", bools, bools, bools),
            _combined("{}.startsWith({})", texts, texts),
            _combined("{}.endsWith({})", texts, texts),
            _combined("{}.contains({})", texts, texts),
            _combined("{}.matches('^a+|b$')", texts),
            _combined("({} in [{}, {}])", texts, texts, texts),
            _combined("({} in [{}, {}])", doubles, doubles, doubles),
        ),
    )


def _conditions() -> st.SearchStrategy[Pair]:
    doubles: st.SearchStrategy[Pair] = st.one_of(
        st.sampled_from([same("x"), same("y")]),
        st.sampled_from([0.0, 1.0, -2.5, 0.1, 1e300]).map(_number),
    )
    ints: st.SearchStrategy[Pair] = st.sampled_from(
        [same(t) for t in ("0", "1", "(-3)", "7", "9223372036854775807")]
    )
    texts: st.SearchStrategy[Pair] = st.sampled_from(
        [same(t) for t in ("s", "t", "'a'", "'ab'", "''", "labels.row", "labels['é']")]
    )
    bools: st.SearchStrategy[Pair] = st.sampled_from(
        [same(t) for t in ("b", "c", "true", "false", "has(labels.row)", "('é' in labels)")]
    )
    for _ in range(3):
        doubles, ints, texts, bools = _grown(doubles, ints, texts, bools)
    return bools


def _num(value: float) -> float:
    if math.isnan(value):
        raise ValueError("no number")
    return value


def _nonzero(value: float) -> float:
    if value == 0:
        raise ZeroDivisionError
    return value


_DOUBLE = library.Type.DOUBLE
_ENVIRONMENT = library.NewEnv(
    variables={
        **{name: getattr(library.Type, field.type.upper()) for name, field in FIELDS.items()},
        "labels": library.Type.Map(library.Type.STRING, library.Type.STRING),
    },
    functions=[
        library.FunctionDecl(
            name,
            [
                library.Overload(
                    id=name, return_type=_DOUBLE, parameters=[_DOUBLE], is_member=False, impl=impl
                )
            ],
        )
        for name, impl in (("num", _num), ("nonzero", _nonzero))
    ],
)


def asked(expression: str, row: dict[str, Any]) -> bool | None:
    """Return what the library says of one row; None: an error, or unknown."""
    value = _ENVIRONMENT.compile(expression).eval(data=row)
    return value.value() if value.type() == library.Type.BOOL else None


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "x": st.sampled_from([0.0, 1.0, -1.0, 2.5, math.inf, math.nan, 1e300]),
            "y": st.sampled_from([0.0, 0.1, -3.0, math.nan]) | st.floats(-1e3, 1e3),
            "b": st.booleans(),
            "c": st.booleans(),
            "s": st.sampled_from(["", "a", "ab", "é", "bb"]),
            "t": st.sampled_from(["", "a", "b", "aaa"]),
            "labels": st.sampled_from([{}, {"row": "a"}, {"row": "3", "é": "b"}]),
        }
    ),
    min_size=1,
    max_size=6,
)


def table_of(rows: list[dict[str, Any]]) -> Table:
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in FIELDS}
    return make_table(
        names=[f"r{i}" for i in range(len(rows))],
        labels=[row["labels"] for row in rows],
        fields=FIELDS,
        **columns,
    )


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_conditions(), _ROWS)
def test_arrays_agree_with_the_library(pair: Pair, rows: list[dict[str, Any]]) -> None:
    try:
        condition = cel.compile(pair.ours, FIELDS)
    except cel.CelError:
        return  # nested more deeply than the library takes
    table = table_of(rows)
    verdict = condition.verdict(cel.columns_of(table))
    for at, row in enumerate(rows):
        known = {
            name: value
            for name, value in row.items()
            if not (isinstance(value, float) and math.isnan(value))
        }
        expected = asked(pair.theirs, known)
        told = None
        if verdict.status is None or verdict.status[at] == 0:
            told = bool(verdict.holds[at])
            assert verdict.fails[at] == (not told)
        assert told == expected, (pair.ours, row)


@settings(max_examples=60, deadline=None)
@given(_conditions(), _ROWS, st.randoms(use_true_random=False))
def test_a_row_is_judged_by_itself(pair: Pair, rows: list[dict[str, Any]], random: Any) -> None:
    try:
        condition = cel.compile(pair.ours, FIELDS)
    except cel.CelError:
        return
    order = list(range(len(rows)))
    random.shuffle(order)

    def over(of: list[dict[str, Any]]) -> list[bool]:
        found: list[bool] = condition.over(table_of(of)).tolist()
        return found

    assert over([rows[i] for i in order]) == [over(rows)[i] for i in order]


def test_texts_of_scopes_go_with_numbers_of_times_and_scopes() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 3))
    condition = cel.compile("x > 0.0 && (s == 'a' || labels.row == '3')", FIELDS)
    texts = np.array(["a", "b", "c"], dtype=object)
    labels = [{"row": "1"}, {"row": "3"}, {"row": "2"}]
    found = condition.verdict(Columns({"x": x, "s": texts}, labels, (5, 3)))
    assert found.holds.tolist() == ((x > 0) & np.array([True, True, False])).tolist()
