from __future__ import annotations

import numpy as np
import pytest

from policies.restrictions.effects import (
    Applied,
    Beside,
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


def test_what_readings_did_beside_a_kind_that_leaves_them_alone_is_not_told_as_its_effect() -> None:
    text = sentence(RestrictionKind.NO_NEW_LAUNCHES, None, None, SEEN)
    assert text.startswith("asked no_new_launches, meanwhile power fell 6.1 kW")


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


CLOCK = RestrictionKind.CLOCK_CAP_MHZ
CAPPED = Readings(means([700.0, 700.0, 700.0]), means([500.0, 500.0, 700.0]))


def shared(value: float, number: int, *beside: Beside) -> Effect:
    return effect_of(CAPPED, CAP, value, gpus=3, after_s=60.0, number=number, beside=beside)


def on(*gpus: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(gpus)


def test_several_caps_on_one_scope_share_a_change_once_and_the_strictest_has_it() -> None:
    strict = shared(500.0, 2, Beside(1, CAP, 550.0, on(True, True, True)))
    loose = shared(550.0, 1, Beside(2, CAP, 500.0, on(True, True, False)))
    assert strict.fell_w == 400.0
    assert (loose.fell_w, loose.others, loose.stricter) == (0.0, 2, (2,))
    assert "2 GPUs count at restriction 2" in sentence(CAP, 550.0, None, loose)


def test_of_equal_caps_the_first_has_it_and_the_other_nothing_of_its_own() -> None:
    everywhere = on(True, True, True)
    first = shared(500.0, 1, Beside(2, CAP, 500.0, everywhere))
    second = shared(500.0, 2, Beside(1, CAP, 500.0, everywhere))
    assert (first.fell_w, second.fell_w) == (400.0, None)
    assert sentence(CAP, 500.0, None, second) == (
        "asked 500 W, nothing of its own: it counts at restriction 1"
    )


def test_what_cannot_be_told_apart_says_so() -> None:
    both = shared(500.0, 2, Beside(1, CLOCK, 1500.0, on(True, False, False)))
    assert both.together == (1,)
    assert sentence(CAP, 500.0, None, both).endswith(
        "together with restriction 1: whose it is cannot be told"
    )


def test_whoever_is_over_a_cap_is_over_it_whosever_the_change_is() -> None:
    assert shared(550.0, 1, Beside(2, CAP, 500.0, on(True, True, True))).over == 1
