"""What a rank computes at a time, under a scale of its batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.training import Batch, LrRule


def sizes(batch: Batch, scale: float) -> list[int]:
    return [part.rows.stop - part.rows.start for part in batch.under(scale).parts]


def test_a_whole_batch_is_computed_at_once() -> None:
    assert sizes(Batch(64), 1.0) == [64]


@pytest.mark.parametrize(
    ("batch", "scale", "expected"),
    [
        (Batch(64), 0.5, [32, 32]),
        (Batch(64), 0.3, [16, 16, 16, 16]),
        (Batch(64, at_once=16), 0.5, [8] * 8),
        (Batch(10), 0.35, [2, 3, 2, 3]),
        (Batch(3), 0.01, [1, 1, 1]),
    ],
)
def test_a_smaller_scale_computes_fewer_rows_at_a_time_and_as_many_in_a_step(
    batch: Batch, scale: float, expected: list[int]
) -> None:
    assert sizes(batch, scale) == expected
    assert batch.under(scale).lr_factor == 1.0


@pytest.mark.parametrize(
    ("lr", "factor"),
    [
        (LrRule.LINEAR, 0.25),
        (LrRule.SQRT, 0.5),
        (LrRule.KEEP, 1.0),
        (lambda share: share**2, 0.0625),
    ],
)
def test_a_smaller_global_batch_has_the_learning_rate_that_its_rule_says(
    lr: LrRule, factor: float
) -> None:
    plan = Batch(64, at_once=32, is_constant=False, lr=lr).under(0.25)
    assert (plan.rows, plan.at_once) == (16, 16)
    assert plan.lr_factor == pytest.approx(factor)


@given(
    rows=st.integers(1, 5000),
    share=st.floats(0.001, 1.0),
    scale=st.floats(0.001, 1.0),
    is_constant=st.booleans(),
)
def test_parts_are_all_rows_once_and_none_is_larger_than_allowed(
    rows: int, share: float, scale: float, is_constant: bool
) -> None:
    batch = Batch(rows, at_once=max(1, int(rows * share)), is_constant=is_constant)
    plan = batch.under(scale)
    covered = [row for part in plan.parts for row in range(part.rows.start, part.rows.stop)]
    assert covered == list(range(plan.rows))
    assert math.isclose(sum(part.weight for part in plan.parts), 1.0)
    assert [part.is_last for part in plan.parts] == [False] * (len(plan.parts) - 1) + [True]
    most = max(part.rows.stop - part.rows.start for part in plan.parts)
    assert most <= max(1, math.floor(batch.at_once * (scale if is_constant else 1.0) + 1e-9))
    assert plan.rows == rows or not is_constant


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.01, math.nan])
def test_a_scale_that_is_no_share_is_refused_by_name(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        Batch(8).under(scale)


@pytest.mark.parametrize(
    ("given", "name"),
    [({"rows": 0}, "rows"), ({"rows": 4, "at_once": 5}, "at_once"), ({"rows": 4, "lr": "x"}, "x")],
)
def test_a_batch_that_cannot_be_is_refused_by_its_field(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Batch(**given)
