"""Jobs under caps by the built-in curves, on published measurements: who is slowed too much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lab.__main__ import main
from lab.calibration.sources import NoData
from lab.power_curves import CARDS, Card, built_in, card_jobs, judged, told
from physics.hardware.entries import UNMEASURED, PowerCurveReference
from tests.data_sets import data_set

SEEN = [each for each in CARDS if each.fitted]
OTHERS = [each for each in CARDS if not each.fitted]


def folder_with(card: Card) -> Path:
    """Return the folder with the card's measurements, or skip the test."""
    folder = data_set("zeus-power-limits") if card.fitted else data_set("zeus-power-limits-others")
    return folder.parent


@pytest.mark.parametrize("card", CARDS, ids=lambda each: each.file)
def test_at_most_a_twentieth_of_jobs_is_slowed_more_than_agreed(
    card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(judged(card_jobs(folder_with(card), card), built_in(card.name)))
    counted = [each for each in found if each.counts]
    with capsys.disabled():
        worst = max(counted, key=lambda each: each.share)
        print(f"\n  {card.name}: at worst {worst.slowed} of {worst.jobs}, at {worst.slowdown:.0%}")
    assert len(counted) == 2 * 2 * 7
    assert [each for each in counted if not each.holds] == []


@pytest.mark.parametrize("card", SEEN, ids=lambda each: each.file)
def test_idle_power_as_static_power_would_break_the_bar(card: Card) -> None:
    """The curve that was built in before: a tenth of the rating at any speed, then r^5."""
    reference = built_in(card.name)
    before = PowerCurveReference(
        name="before",
        source=reference.source,
        static_share=0.1,
        static_error_share=0.0,
        linear_share=0.0,
        linear_error_share=0.0,
        exponent=5.0,
        exponent_error=0.0,
        measured_from_share=0.25,
        slowdowns=(0.05,),
        cap_factors=(1.0,),
    )
    found = judged(card_jobs(folder_with(card), card), before)
    assert max(each.share for each in found if each.counts) > 0.3


def test_built_in_figures_are_those_that_the_rule_fits() -> None:
    fits, factors = told(data_set("zeus-power-limits").parent)
    for name, fit in fits.items():
        curve = built_in(name)
        assert curve.static_share == pytest.approx(fit.static_share, abs=2e-3)
        assert curve.linear_share == pytest.approx(fit.linear_share, abs=2e-3)
        assert curve.exponent == pytest.approx(fit.exponent, abs=0.1)
        told_errors = (curve.static_error_share, curve.linear_error_share, curve.exponent_error)
        assert told_errors == pytest.approx(fit.errors, rel=0.05)
        least = np.array(factors[UNMEASURED if name == UNMEASURED else "own"])
        assert (np.array(curve.cap_factors) >= least).all()
        assert (np.array(curve.cap_factors) <= least + 2e-3).all()


def test_a_card_that_is_not_there_is_named() -> None:
    with pytest.raises(NoData):
        card_jobs(Path("/nowhere"), CARDS[0])
    result = CliRunner().invoke(main, ["power-curves", "--data", "/nowhere"])
    assert result.exit_code == 3
    assert "RTX 6000: not judged: /nowhere" in result.output


def test_the_command_shows_every_card_that_is_there() -> None:
    data = data_set("zeus-power-limits").parent
    result = CliRunner().invoke(main, ["power-curves", "--data", str(data)])
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert [line[0] for line in lines if line[1:2] == ["V100"]] == ["V100"] * 6
