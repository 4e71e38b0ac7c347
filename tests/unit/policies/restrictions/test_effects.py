from __future__ import annotations

import numpy as np
import pytest

from policies.restrictions.effects import (
    Applied,
    Effect,
    Means,
    Outcome,
    Readings,
    effect_of,
    outcome,
    sentence,
)
from policies.restrictions.kinds import RestrictionKind
from tests.unit.policies.restrictions.builders import CAP

DRAIN = RestrictionKind.DRAIN
ALL = Applied(expected=32, applied=32, seconds=4.2)
SEEN = Effect(32, 32, 300.0, 20_000.0, 13_900.0, -3.2, -210.0)


def means(power_w: list[float], temp_c: float = 60.0, sm_mhz: float = 1900.0) -> Means:
    count = len(power_w)
    return Means(np.array(power_w), np.full(count, temp_c), np.full(count, sm_mhz))


def test_the_whole_story_is_one_sentence() -> None:
    told = Applied(expected=32, applied=31, refused=1, seconds=4.2)
    assert sentence(CAP, 500.0, told, SEEN) == (
        "asked 500 W, applied in 4 s on 31 of 32 GPUs, power fell 6.1 kW, 3 °C cooler in 5 min"
    )


@pytest.mark.parametrize(
    ("applied", "effect", "words"),
    [
        (ALL, None, "asked 500 W, applied in 4 s on 32 of 32 GPUs"),
        (
            Applied(expected=2, refused=2, error="not permitted"),
            None,
            "asked 500 W, applied on none of 2 GPUs: not permitted",
        ),
        (ALL, Effect(32, 0, 300.0), "asked 500 W, applied in 4 s on 32 of 32 GPUs, "
         "nothing was measured"),
        (ALL, Effect(32, 32, 60.0, 9e3, 9e3, 0.1), "asked 500 W, applied in 4 s on 32 of 32 GPUs, "
         "power did not change in 60 s"),
        (ALL, Effect(32, 32, 300.0, 9e3, 9.5e3, 2.0, over=3), "asked 500 W, applied in 4 s on 32 of"
         " 32 GPUs, power rose 0.5 kW, 2 °C hotter, 3 of 32 GPUs are over it in 5 min"),
    ],
)  # fmt: skip
def test_the_parts_of_the_story(applied: Applied, effect: Effect | None, words: str) -> None:
    assert sentence(CAP, 500.0, applied, effect) == words


def test_a_kind_that_no_agent_sets_has_only_been_measured() -> None:
    assert sentence(DRAIN, None, None, SEEN).startswith("asked drain, power fell 6.1 kW")


@pytest.mark.parametrize(
    ("applied", "effect", "expected"),
    [
        (ALL, SEEN, Outcome.HOLDS),
        (Applied(expected=32, applied=31, refused=1), SEEN, Outcome.PARTLY),
        (Applied(expected=32), SEEN, Outcome.NOT_APPLIED),
        (ALL, Effect(32, 32, 300.0, 1.0, 1.0, over=2), Outcome.EXCEEDED),
        (ALL, Effect(32, 32, 300.0, 1.0, 1.0, over=1), Outcome.HOLDS),
        (ALL, Effect(32, 0, 300.0), Outcome.UNMEASURED),
        (None, SEEN, Outcome.MEASURED),
        (None, Effect(32, 0, 300.0), Outcome.UNMEASURED),
    ],
)
def test_outcomes(applied: Applied | None, effect: Effect, expected: Outcome) -> None:
    assert outcome(applied, effect) is expected


def test_gpus_that_say_nothing_are_silent() -> None:
    told = Applied(expected=4, applied=1, refused=1, failed=1)
    assert (told.silent, told.is_complete) == (1, False)
    assert Applied(expected=1, applied=1).is_complete


def test_only_gpus_that_were_read_both_times_are_compared() -> None:
    nan = float("nan")
    readings = Readings(means([600.0, 600.0, nan], 64.0), means([500.0, nan, 500.0], 61.0))
    effect = effect_of(readings, CAP, 500.0, gpus=3, after_s=60.0)
    assert (effect.gpus, effect.measured, effect.fell_w) == (3, 1, 100.0)
    assert effect.temp_change_c == -3.0


def test_of_a_sample_of_gpus_power_stands_for_all() -> None:
    readings = Readings(means([600.0, 600.0]), means([500.0, 500.0]), weight=3.0)
    assert effect_of(readings, CAP, 500.0, gpus=6, after_s=60.0).fell_w == 600.0


def test_without_readings_nothing_is_known() -> None:
    effect = effect_of(Readings(means([]), means([])), CAP, 500.0, gpus=8, after_s=60.0)
    assert (effect.measured, effect.fell_w) == (0, None)


def test_gpus_over_the_cap_are_counted() -> None:
    readings = Readings(means([600.0] * 3), means([500.0, 511.0, 560.0], sm_mhz=1500.0))
    assert effect_of(readings, CAP, 500.0, gpus=3, after_s=60.0).over == 1
    clock = RestrictionKind.CLOCK_CAP_MHZ
    assert effect_of(readings, clock, 1400.0, gpus=3, after_s=60.0).over == 3
    assert effect_of(readings, DRAIN, None, gpus=3, after_s=60.0).over == 0
