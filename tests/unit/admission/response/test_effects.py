"""What came of a directive, by the readings; and what several of them come to together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from admission.core.directives.book import Desired, desired_of
from admission.directives.effects import Effect, Trace, effect_of, outcome_of, words_of
from admission.directives.models import Directive

KIND, OUTCOME = Directive.Kind, Directive.Outcome


def make_trace(
    before_w: float, after_w: float, *, from_s: float = 0.0, drop_s: float = 40.0, **given: Any
) -> Trace:
    """Return 30 s before and 180 s after; power is there after ``drop_s``."""
    at_s = np.arange(-30.0, 180.0, 5.0)
    power = np.where(at_s < drop_s, before_w, after_w)
    fields = {
        "temp_c": np.where(at_s < drop_s, 70.0, 67.0),
        "samples_per_s": np.where(at_s < drop_s, 100.0, 76.0),
        **given,
    }
    return Trace(gpus=16, at_s=at_s, power_w=power, **fields)


def test_it_says_watts_seconds_degrees_and_speed() -> None:
    effect = effect_of(make_trace(9600.0, 3800.0), from_s=0.0, until_s=180.0)
    assert effect.change_w == pytest.approx(-5800.0)
    assert words_of(effect) == "-5.8 kW in 40 s, -3.0 °C, 76 % of its samples/s"


def test_what_was_not_read_is_not_known() -> None:
    nothing = np.full(42, np.nan)
    trace = make_trace(0.0, 0.0, temp_c=nothing, samples_per_s=nothing)
    blind = Trace(16, trace.at_s, nothing, nothing, nothing)
    effect = effect_of(blind, from_s=0.0, until_s=180.0)
    assert effect.change_w is None
    assert "not known" in words_of(effect)
    assert outcome_of(KIND.PAUSE, None, effect) == OUTCOME.UNMEASURED
    only_power = effect_of(make_trace(9600.0, 3800.0, temp_c=nothing, samples_per_s=nothing),
                           from_s=0.0, until_s=180.0)  # fmt: skip
    assert words_of(only_power) == "-5.8 kW in 40 s"


def test_of_what_lasted_for_seconds_nothing_is_told() -> None:
    effect = effect_of(make_trace(9600.0, 3800.0), from_s=0.0, until_s=10.0)
    assert effect.change_w is None


def test_no_readings_at_all_are_no_error() -> None:
    empty = np.zeros(0)
    effect = effect_of(Trace(16, empty, empty, empty, empty), from_s=0.0, until_s=180.0)
    assert effect == Effect(16, 180.0)


@pytest.mark.parametrize(
    ("kind", "value", "after_w", "expected_w", "outcome"),
    [
        (KIND.PAUSE, None, 2000.0, -7000.0, OUTCOME.HOLDS),
        (KIND.PAUSE, None, 8500.0, -7000.0, OUTCOME.NO_EFFECT),
        (KIND.SET_BATCH_SCALE, 0.5, 9400.0, None, OUTCOME.NO_EFFECT),
        (KIND.SET_BATCH_SCALE, 0.5, 9000.0, None, OUTCOME.HOLDS),
        # More than before is no effect, whatever was expected.
        (KIND.SET_BATCH_SCALE, 0.5, 9900.0, -3000.0, OUTCOME.NO_EFFECT),
        # A cap holds where GPUs keep to it, also those that were under it before.
        (KIND.SET_POWER_CAP, 650.0, 9600.0, None, OUTCOME.HOLDS),
        (KIND.SET_POWER_CAP, 400.0, 9000.0, None, OUTCOME.NO_EFFECT),
    ],
)
def test_the_verdict_is_by_what_was_seen(
    kind: str, value: float | None, after_w: float, expected_w: float | None, outcome: str
) -> None:
    effect = effect_of(make_trace(9600.0, after_w), from_s=0.0, until_s=180.0)
    assert outcome_of(kind, value, effect, expected_w=expected_w) == outcome


def test_of_several_the_strictest_counts_and_with_none_a_job_runs_in_full() -> None:
    def given(kind: str, value: float | None = None) -> Directive:
        return Directive(kind=kind, value=value)

    assert desired_of([]) == Desired(1.0, None, False)
    found = desired_of(
        [
            given(KIND.SET_BATCH_SCALE, 0.75), given(KIND.SET_BATCH_SCALE, 0.5),
            given(KIND.SET_POWER_CAP, 500.0), given(KIND.SET_POWER_CAP, 450.0),
            given(KIND.PAUSE), given(KIND.CHECKPOINT),
        ]
    )  # fmt: skip
    assert found == Desired(0.5, 450.0, True)
