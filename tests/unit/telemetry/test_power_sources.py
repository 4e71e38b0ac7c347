"""Which source of one power is off."""

from __future__ import annotations

import pytest

from telemetry.trust.compare import Judged, Source, Standing, Told, of_gpu, of_node

COUNTER, READING = Told.ENERGY_COUNTER, Told.POWER_READING
METER, RACK = Told.NODE_METER, Told.RACK_METER


def standings(judged: list[Judged]) -> list[Standing]:
    return [each.standing for each in judged]


@pytest.mark.parametrize(
    ("counted_w", "told_w", "standing"),
    [
        (500, 500, Standing.AGREES),
        (500, 524, Standing.AGREES),
        (500, 540, Standing.DISPUTED),
        (60, 74, Standing.AGREES),  # few watts
        (60, 90, Standing.DISPUTED),
    ],
)
def test_of_two_that_differ_nobody_knows_who_is_off(
    counted_w: float, told_w: float, standing: Standing
) -> None:
    assert standings(of_gpu([Source(COUNTER, counted_w), Source(READING, told_w)])) == [
        standing,
        standing,
    ]


@pytest.mark.parametrize("odd", [0, 1, 2, 3])
def test_the_one_that_differs_from_those_that_agree_is_named(odd: int) -> None:
    sources = [
        Source(told_by, 9000 if place == odd else 6000 + 50 * place)
        for place, told_by in enumerate((COUNTER, READING, METER, RACK))
    ]
    judged = of_node(sources)
    assert [each.standing is Standing.ODD for each in judged] == [
        place == odd for place in range(4)
    ]
    assert [each.trust for each in judged] == [
        0 if place == odd else pytest.approx(2 / 3) for place in range(4)
    ]


def test_where_two_pairs_differ_nobody_knows_which_is_off() -> None:
    watts = {COUNTER: 5000, READING: 5000, METER: 8000, RACK: 8000}
    judged = of_node([Source(told_by, mean_w) for told_by, mean_w in watts.items()])
    assert {each.standing for each in judged} == {Standing.DISPUTED}
    assert [each.trust for each in judged] == [pytest.approx(1 / 3)] * 4


def test_a_source_alone_is_neither_trusted_nor_not() -> None:
    (judged,) = of_node([Source(METER, 5000)])
    assert (judged.standing, judged.trust) == (Standing.ALONE, None)
    assert of_node([]) == []


@pytest.mark.parametrize(
    ("parts_w", "standing"), [(3000, Standing.AGREES), (7000, Standing.DISPUTED)]
)
def test_parts_draw_no_more_than_the_whole(parts_w: float, standing: Standing) -> None:
    sources = [Source(COUNTER, parts_w, is_floor=True), Source(METER, 6000)]
    assert standings(of_node(sources)) == [standing, standing]
