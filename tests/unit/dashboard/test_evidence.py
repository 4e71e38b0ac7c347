"""Evidence in words."""

from __future__ import annotations

import pytest

from dashboard.evidence import facts


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("thermal_margin_c", 16.4061558, ("thermal margin", "16.4 °C")),
        ("power_use", 1.04, ("power use", "104 %")),
        ("power_slope_w_per_s", 1200.0, ("power slope", "1.2 kW/s")),
        ("age_s", None, ("age", "unknown")),
        ("kept_at", 1_795_340_000.0, ("kept at", "2026-11-22 09:33:20 UTC")),
        ("since", "2026-11-27T13:59:08.8+01:00", ("since", "2026-11-27 12:59:08 UTC")),
        ("per_user", True, ("per user", "yes")),
        ("restrictions", [3, 4], ("restrictions", "3, 4")),
        ("scope", {"kind": "rack", "name": "oslo/A01"}, ("scope", "rack oslo/A01")),
        (
            "needs",
            [{"kind": "rack", "name": "oslo/A01", "w": 1500.0}],
            ("needs", "rack oslo/A01 1.5 kW"),
        ),
    ],
)
def test_a_value_is_told_in_the_unit_at_the_end_of_its_name(
    name: str, value: object, told: tuple[str, str]
) -> None:
    assert facts({name: value}) == [told]


def test_what_is_nested_comes_one_by_one() -> None:
    evidence = {"rule": "gpu-heat", "values": {"hottest_c": 71.0, "stale": False}}
    assert facts(evidence) == [("rule", "gpu-heat"), ("hottest", "71 °C"), ("stale", "no")]
