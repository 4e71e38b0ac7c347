from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.edge.numbers import NumberField
from headroom.numbers import number_of, plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (0.5, 0.5),
        (True, True),
        ({"a": [math.inf, (math.nan,)]}, {"a": ["Infinity", [None]]}),
        (datetime(2026, 11, 1, tzinfo=UTC), "2026-11-01T00:00:00+00:00"),
    ],
)
def test_what_is_not_finite_has_one_encoding(value: object, expected: object) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


@given(st.floats(allow_nan=False))
def test_a_number_comes_back(value: float) -> None:
    assert number_of(json.loads(json.dumps(plain(value), allow_nan=False))) == value


def test_what_is_no_number_is_left_alone() -> None:
    assert [number_of(each) for each in (None, "oslo", 3, True)] == [None, "oslo", 3, True]


def test_a_field_writes_it_so() -> None:
    assert NumberField().to_representation(math.inf) == "Infinity"
    assert NumberField().to_representation(math.nan) is None
