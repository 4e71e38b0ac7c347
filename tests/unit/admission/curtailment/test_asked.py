from __future__ import annotations

import pytest

from admission.core.curtailment import Ask, BadAsk


def test_what_is_asked_becomes_a_target() -> None:
    assert Ask(by_w=300.0).target_w(1000.0) == 700.0
    assert Ask(by_share=0.25).target_w(1000.0) == 750.0
    assert Ask(to_w=600.0).target_w(1000.0) == 600.0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "by_w"),
        ({"by_w": 1.0, "to_w": 1.0}, "by_w"),
        ({"by_w": 0.0}, "by_w"),
        ({"to_w": float("nan")}, "to_w"),
        ({"by_share": 1.0}, "by_share"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(given: dict[str, float], field: str) -> None:
    with pytest.raises(BadAsk) as caught:
        Ask(**given)
    assert caught.value.field == field


def test_more_than_is_drawn_cannot_be_taken() -> None:
    with pytest.raises(BadAsk, match="nothing would be left"):
        Ask(by_w=1000.0).target_w(1000.0)
