"""Racks are judged by what their kind of cooling carries, as far as anybody states that."""

from __future__ import annotations

import pytest

from fleet.density import excess, limit_w
from fleet.kinds import CoolingKind


def test_limits_are_those_of_the_catalogue_and_immersion_has_none() -> None:
    assert {kind: limit_w(kind) for kind in CoolingKind.values} == {
        "air": 30_000.0, "rear-door": 75_000.0, "direct-to-chip": 132_000.0, "immersion": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cooling", "rated_w", "budget_w", "short_w"),
    [
        ("air", 41_000.0, 45_000.0, 11_000.0),
        # Its budget is held: it never gives off more.
        ("air", 41_000.0, 30_000.0, None),
        ("air", 41_000.0, 33_000.0, 3_000.0),
        ("air", 30_000.0, 45_000.0, None),
        ("rear-door", 41_000.0, 45_000.0, None),
        ("immersion", 400_000.0, 400_000.0, None),
    ],
)
def test_a_rack_is_too_dense_by_the_lesser_of_rating_and_budget(
    cooling: str, rated_w: float, budget_w: float, short_w: float | None
) -> None:
    found = excess(cooling, rated_w=rated_w, budget_w=budget_w)
    assert (None if found is None else found.heat_w - found.limit_w) == short_w


def test_it_says_how_much_is_too_much() -> None:
    found = excess("air", rated_w=41_000.0, budget_w=45_000.0)
    assert found is not None
    assert "may give off 41.0 kW, and air cooling carries 30.0 kW from a rack" in found.sentence
