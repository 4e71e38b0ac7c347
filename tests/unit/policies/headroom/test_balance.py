"""Numbers that are told beside each other close: need less supply is the shortage that is shown."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.headroom.binding import balance, of_budget, quantity

_AMOUNTS = st.floats(0.0, 1e12, allow_nan=False) | st.integers(0, 10**9).map(float)
_UNITS = st.sampled_from(["W", "bit/s", "byte/s", "s", "°C"])


def _shown(told: str) -> tuple[Decimal, int, str]:
    """Return a number as it is shown, its decimals and its unit."""
    number, _, unit = told.partition(" ")
    value = Decimal(number.replace(",", ""))
    return value, -int(value.as_tuple().exponent), unit


@given(have=_AMOUNTS, short=_AMOUNTS, unit=_UNITS)
@example(have=2864.7, short=5.29, unit="W")
@example(have=2865.0, short=0.001, unit="W")
@example(have=0.0, short=0.0, unit="°C")
def test_what_is_shown_adds_up_in_one_unit_and_precision(
    have: float, short: float, unit: str
) -> None:
    need = have + short
    told = balance(need, have, unit)
    shown = [_shown(told.told(each)) for each in (told.need, told.have, told.short)]
    assert shown[0][0] - shown[1][0] == shown[2][0]
    assert len({each[1:] for each in shown}) == 1
    if short > 1e-3 and short > 1e-9 * need:
        assert shown[2][0] > 0, "what is short is never shown as nothing"


@pytest.mark.parametrize(
    ("need", "have", "unit", "words"),
    [
        (41_200.0, 36_800.0, "W", ("41.2 kW", "36.8 kW", "4.4 kW")),
        # "needs 2.87 kW, has 2.87 kW: short 5.29 W" was said.
        (2_870.0, 2_864.71, "W", ("2,870.0 W", "2,864.7 W", "5.3 W")),
        (12_345_678.0, 12_345_670.0, "W", ("12,345,678 W", "12,345,670 W", "8 W")),
        (7_920.0, -240.0, "W", ("7.92 kW", "-0.24 kW", "8.16 kW")),
        (4e10, 1e10, "bit/s", ("40.0 Gbit/s", "10.0 Gbit/s", "30.0 Gbit/s")),
        (8.0, 5.0, "°C", ("8.0 °C", "5.0 °C", "3.0 °C")),
        (7200.0, 1800.0, "s", ("2.00 h", "0.50 h", "1.50 h")),
        (90.0, 80.0, "s", ("1.50 min", "1.33 min", "0.17 min")),
    ],
)
def test_numbers_in_words(need: float, have: float, unit: str, words: tuple[str, ...]) -> None:
    found = balance(need, have, unit)
    assert tuple(map(found.told, (found.need, found.have, found.short))) == words


def test_a_load_beside_its_budget_closes() -> None:
    assert of_budget(41_200.0, 44_000.0, "W") == "41.2 kW of 44.0 kW: 2.8 kW left"
    said = of_budget(44_000.4, 44_000.0, "W")
    assert said == "44,000.4 W of 44,000.0 W: short 0.4 W"
    load, budget, short = (Decimal(each.replace(",", "")) for each in re.findall(r"[\d.,]+", said))
    assert load - budget == short


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (41_230.0, "W", "41.2 kW"),
        (12.5e9, "bit/s", "12.5 Gbit/s"),
        (0.0, "bit/s", "0 bit/s"),
        (0.0, "°C", "0.0 °C"),
        (0.25, "W", "0.25 W"),
    ],
)
def test_quantities_have_three_digits_and_nothing_has_none(
    value: float, unit: str, words: str
) -> None:
    assert quantity(value, unit) == words
