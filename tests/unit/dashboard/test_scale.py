"""From margin to level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dashboard import scale


@pytest.mark.parametrize(
    ("margin", "css"),
    [
        (1.0, "m10"),
        (1.4, "m10"),
        (0.999, "m9"),
        (0.30, "m3"),
        (0.1, "m1"),
        (0.099, "m0"),
        (0.0, "m0"),
        (-0.001, "over"),
        (-3.0, "over"),
        (math.nan, "unknown"),
        (None, "unknown"),
    ],
)
def test_a_margin_has_the_level_of_its_tenth(margin: float | None, css: str) -> None:
    assert scale.css(scale.level(margin)) == css


def test_stale_hides_the_level_but_never_that_something_is_over() -> None:
    margins = np.array([0.5, -0.1, np.nan])
    assert [scale.css(c) for c in scale.levels(margins, stale=True)] == ["stale", "over", "stale"]


def test_what_was_never_seen_is_unknown_whatever_else_is_said() -> None:
    margins = np.array([0.5, -0.1, np.nan])
    levels = scale.levels(margins, stale=True, seen=np.zeros(3, dtype=bool))
    assert [scale.css(c) for c in levels] == ["unknown"] * 3
