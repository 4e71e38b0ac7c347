from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.plan.quantities import read_number
from lab.plan.readable import number, quantity


@pytest.mark.parametrize(
    ("value", "symbol", "text"),
    [
        (0.56036, "s", "560.4 ms"),
        (5e-6, "s", "5 µs"),
        (0.99999, "s", "1 s"),
        (119.0, "s", "119 s"),
        (21972.65625, "s", "6.104 h"),
        (1800.0, "s", "30 min"),
        (703_125.0, "s", "8.138 d"),
        (1.8e8, "s", "5.708 years"),
        (0.0, "s", "0 s"),
        (-0.5, "s", "-500 ms"),
        (24.0, "h", "24 h"),
        (2.45e12, "B", "2.45 TB"),
        (0.5, "B", "0.5 B"),
        (999_990_000.0, "B/s", "1 GB/s"),
        (1.94951e17, "FLOP/s", "195 PFLOP/s"),
        (9.8e6, "W", "9.8 MW"),
        (0.05, "W", "50 mW"),
        (-5000.0, "W", "-5 kW"),
        (12_750.0, "kW", "12.75 MW"),
        (12_345.6, "kWh", "12.35 MWh"),
        (25.04, "°C", "25.04 °C"),
        (1980.0, "MHz", "1,980 MHz"),
        (208.6, "token/s", "208.6 tokens/s"),
        (120.0, "1/s", "120/s"),
        (0.08, "USD/kWh", "0.08 USD/kWh"),
        (24_576.0, None, "24,576"),
        (8.03e9, None, "8,030,000,000"),
        (0.3125, None, "0.3125"),
        (12_345.6, None, "12,346"),
        (1.2346e-7, None, "1.235e-07"),
        (math.inf, "s", "infinite"),
        (-math.inf, None, "-infinite"),
        (math.nan, "W", "undefined"),
    ],
)
def test_a_quantity_is_shown_as_people_say_it(value: float, symbol: str | None, text: str) -> None:
    assert quantity(value, symbol) == text


@given(
    st.floats(1e-9, 1e18),
    st.sampled_from(["s", "h", "B", "B/s", "W", "kWh", "FLOP/s", "kg", "1/s"]),
)
def test_what_is_shown_reads_back_as_the_same_to_four_digits(value: float, symbol: str) -> None:
    shown = quantity(value, symbol)
    assert read_number(shown.replace(",", ""), symbol) == pytest.approx(value, rel=6e-4)


@given(st.integers(-(10**14), 10**14))
def test_a_count_is_shown_in_full(count: int) -> None:
    assert number(float(count)).replace(",", "") == str(count)
