"""Numbers and summaries as people say them."""

from __future__ import annotations

import pytest

from policies.rules.words import spoken, unfilled


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [(1.0, "jobs", "1 job"), (2.0, "jobs", "2 jobs"), (1.0, "1/s", "1 1/s"), (1.0, "s", "1 s")],
)
def test_one_thing_is_no_plural(value: float, unit: str, told: str) -> None:
    assert spoken(value, unit) == told


def test_a_text_without_values_says_what_will_stand_there() -> None:
    text = "{name} draws {power_drawn_w} ({power_use:%}); {{as it is}}"
    assert unfilled(text) == "[name] draws [power drawn] ([power use]); {as it is}"
