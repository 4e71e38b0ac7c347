"""Throttle events from readings: opening, going on, closing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headroom.contracts import ThrottleCause
from telemetry.throttle.rules import CLOSE_AFTER_S, MAX_GAP_S, Severity
from tests.unit.telemetry.throttle.make import (
    BRAKE,
    CAP,
    DISPLAY,
    GPU,
    HOT,
    SLOW,
    Follower,
    reading,
)


def brake_held(seconds: list[float], every_s: float = 10.0, **given: Any) -> Follower:
    """A GPU whose power brake held for so many seconds of each interval; its masks show none."""
    follower, total = Follower(), 0.0
    follower.take(reading(0, mask=0, hw_power_brake=0.0, **given))
    for i, held_s in enumerate(seconds):
        total += held_s
        follower.take(reading((i + 1) * every_s, mask=0, hw_power_brake=total, **given))
    return follower


# --- Opening ----------------------------------------------------------------------------------


def test_one_nanosecond_in_ten_seconds_is_no_event() -> None:
    assert brake_held([1e-9, 1e-9, 1e-9]).now == []


def test_a_flip_of_a_bit_is_no_event_where_the_counter_says_so() -> None:
    follower = Follower()
    for t, mask in ((0, 0), (10, int(BRAKE)), (20, 0)):
        follower.take(reading(t, mask=mask, hw_power_brake=t * 1e-6))
    assert follower.now == follower.closed == []


def test_a_brake_that_every_mask_misses_is_found_by_its_counter() -> None:
    event = brake_held([0.0, 4.0, 6.0, 5.0]).only
    assert event["cause"] is BRAKE
    assert (event["opened"], event["updated"], event["closed"]) == (10, 40, None)
    assert (event["throttled_s"], event["observed_s"]) == (pytest.approx(15), pytest.approx(30))


def test_one_brake_among_288_gpus_is_the_only_event() -> None:
    follower = Follower()
    for turn in range(30):
        follower.take(
            *(
                reading(10 * turn, gpu=gpu, mask=0, hw_power_brake=3.0 * turn * (gpu == 131))
                for gpu in range(1, 289)
            )
        )
    assert follower.only["gpu"] == 131
    assert follower.only["severity"] is Severity.CRITICAL


@pytest.mark.parametrize(
    ("held_s", "every_s", "opens"),
    [
        (0.4, 10.0, False),
        (0.5, 10.0, True),
        (0.04, 1.0, False),
        (0.05, 1.0, True),
        # Of an hour, five seconds are enough.
        (4.0, 3600.0, False),
        (6.0, 3600.0, True),
    ],
)
def test_the_share_of_the_time_opens_an_event(held_s: float, every_s: float, opens: bool) -> None:
    assert bool(brake_held([held_s], every_s).now) is opens


def test_without_a_counter_the_masks_decide() -> None:
    follower = Follower()
    for t, mask in ((0, 0), (10, int(HOT)), (20, int(HOT)), (30, 0)):
        follower.take(reading(t, mask=mask))
    event = follower.only
    assert (event["cause"], event["opened"], event["updated"]) == (HOT, 0, 30)
    assert (event["throttled_s"], event["observed_s"]) == (20, 30)


def test_display_has_no_counter_and_goes_by_its_bit() -> None:
    follower = Follower().take(reading(0, mask=int(DISPLAY), hw_slowdown=0.0))
    assert follower.only["cause"] is DISPLAY


def test_the_first_reading_of_a_gpu_opens_by_its_mask_alone() -> None:
    event = Follower().take(reading(5, mask=int(CAP))).only
    assert (event["opened"], event["observed_s"], event["severity"]) == (5, 0, Severity.INFO)


def test_a_bit_waits_for_its_counter_to_say_for_how_long() -> None:
    follower = Follower().take(reading(0, mask=int(BRAKE), hw_power_brake=900.0))
    assert follower.now == []
    follower.take(reading(10, mask=int(BRAKE), hw_power_brake=910.0))
    assert follower.only["throttled_s"] == pytest.approx(10)


def test_idle_and_application_clocks_are_no_throttle() -> None:
    follower = Follower().take(reading(0, mask=0x3)).take(reading(10, mask=0x3))
    assert follower.now == []


def test_two_causes_are_two_events() -> None:
    follower = Follower().take(reading(0, mask=int(BRAKE | SLOW)))
    assert {event["cause"] for event in follower.now} == {BRAKE, SLOW}


@pytest.mark.parametrize("cause", ThrottleCause, ids=lambda cause: cause.token)
def test_every_cause_is_followed(cause: ThrottleCause) -> None:
    assert Follower().take(reading(0, mask=int(cause))).only["cause"] is cause


# --- Going on and closing ----------------------------------------------------------------------


def test_a_short_pause_does_not_close_an_event() -> None:
    follower = brake_held([5.0, 0.0, 0.0, 5.0])
    event = follower.only
    assert (event["opened"], event["closed"]) == (0, None)
    # The pause is part of the event: its share falls.
    assert (event["throttled_s"], event["observed_s"]) == (pytest.approx(10), pytest.approx(40))


def test_quiet_for_long_enough_closes_it_at_the_moment_it_was_last_seen() -> None:
    follower = brake_held([5.0, 5.0, 0.0, 0.0])
    assert follower.now
    follower.take(reading(20 + CLOSE_AFTER_S, mask=0, hw_power_brake=10.0))
    event = follower.only
    assert (event["opened"], event["closed"]) == (0, 20)
    # What came after is not part of it.
    assert (event["throttled_s"], event["observed_s"]) == (pytest.approx(10), pytest.approx(20))


def test_an_open_event_goes_on_with_less_than_opens_one() -> None:
    follower = brake_held([5.0, *[0.2] * 9])
    assert follower.only["updated"] == 100
    assert brake_held([0.2] * 10).now == []


def test_an_event_may_close_and_another_open_in_one_round() -> None:
    held = [5.0, 0.0, 0.0, 0.0, 5.0]
    totals = np.cumsum([0.0, *held])
    follower = Follower().take(
        *(reading(10 * i, mask=0, hw_power_brake=total) for i, total in enumerate(totals))
    )
    assert [(e["opened"], e["closed"]) for e in follower.closed] == [(0, 10)]
    assert [(e["opened"], e["closed"]) for e in follower.now] == [(40, None)]


def test_readings_of_several_gpus_do_not_mix() -> None:
    follower = Follower()
    follower.take(reading(0, 1, mask=int(HOT)), reading(0, 2, mask=0), reading(0, 3, mask=int(CAP)))
    follower.take(*(reading(60, gpu, mask=int(CAP) if gpu == 3 else 0) for gpu in (3, 1, 2)))
    follower.take(*(reading(120, gpu, mask=int(CAP) if gpu == 3 else 0) for gpu in (2, 3, 1)))
    assert [(e["gpu"], e["cause"]) for e in follower.now] == [(3, CAP)]
    assert [(e["gpu"], e["cause"]) for e in follower.closed] == [(1, HOT)]


# --- Silence, resets, disorder -------------------------------------------------------------------


def test_silence_is_not_recovery() -> None:
    follower = Follower().take(reading(0, mask=int(HOT)), reading(10, mask=int(HOT)))
    follower.take(reading(10 + 5 * MAX_GAP_S, mask=int(HOT)))
    event = follower.only
    assert event["closed"] is None
    # Nothing is known of the silence: it is neither throttled nor observed.
    assert (event["throttled_s"], event["observed_s"]) == (10, 10)


def test_after_a_silence_quiet_counts_from_the_first_reading_on() -> None:
    follower = Follower().take(reading(0, mask=int(HOT)), reading(10, mask=int(HOT)))
    follower.take(reading(1000, mask=0))
    assert follower.now
    follower.take(reading(1000 + CLOSE_AFTER_S, mask=0))
    assert follower.only["closed"] == 10


def test_a_counter_tells_what_happened_in_a_silence() -> None:
    follower = brake_held([5.0])
    follower.take(reading(3610, mask=0, hw_power_brake=5.0 + 600.0))
    event = follower.only
    assert (event["throttled_s"], event["observed_s"]) == (pytest.approx(605), pytest.approx(3610))


def test_a_counter_that_stood_still_over_a_silence_ends_the_event_before_it() -> None:
    follower = brake_held([5.0])
    follower.take(reading(3610, mask=0, hw_power_brake=5.0))
    assert follower.only["closed"] == 10


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    follower = Follower().take(reading(0, mask=0, hw_power_brake=86_400.0))
    follower.take(reading(10, mask=0, hw_power_brake=3.0))  # the driver was loaded again
    assert follower.only["throttled_s"] == pytest.approx(3)
    follower.take(reading(20, mask=0, hw_power_brake=7.0))
    assert follower.only["throttled_s"] == pytest.approx(7)


def test_a_reset_without_throttling_is_no_event() -> None:
    follower = Follower().take(reading(0, mask=0, hw_power_brake=86_400.0))
    assert follower.take(reading(10, mask=0, hw_power_brake=0.0)).now == []


def test_no_cause_holds_for_longer_than_time_goes_by() -> None:
    # A counter that wraps, or moves in leaps, may show more than the interval.
    follower = Follower().take(reading(0, mask=0, hw_power_brake=0.0))
    follower.take(reading(10, mask=0, hw_power_brake=9e9))
    assert follower.only["throttled_s"] == pytest.approx(10)


def test_late_readings_change_nothing() -> None:
    follower = brake_held([5.0, 5.0])
    before = follower.now
    follower.take(reading(15, mask=0, hw_power_brake=7.0), reading(3, mask=int(HOT)))
    assert follower.now == before


def test_readings_that_come_again_count_once() -> None:
    again = [reading(10 * i, mask=0, hw_power_brake=4.0 * i) for i in range(4)]
    follower = Follower().take(*again, *again)
    follower.take(*again)
    assert follower.only["throttled_s"] == pytest.approx(12)
    assert follower.only["readings"] == 3


def test_readings_out_of_order_within_a_round_are_put_in_order() -> None:
    ahead = [reading(10 * i, mask=0, hw_power_brake=4.0 * i) for i in (3, 0, 2, 1)]
    event = Follower().take(*ahead).only
    assert (event["opened"], event["updated"], event["readings"]) == (0, 30, 3)


def test_a_reading_that_says_nothing_of_throttling_changes_nothing() -> None:
    follower = brake_held([5.0]).take(reading(15, power_w=500.0))
    follower.take(reading(20, mask=0, hw_power_brake=10.0))
    event = follower.only
    assert (event["throttled_s"], event["observed_s"]) == (pytest.approx(10), pytest.approx(20))


def test_where_a_counter_is_missing_once_the_masks_stand_in() -> None:
    follower = brake_held([10.0], sm_mhz=900.0)
    follower.take(reading(20, mask=int(BRAKE)), reading(30, mask=int(BRAKE), hw_power_brake=30.0))
    event = follower.only
    # (0 + 1) / 2 of the second interval, all of the third.
    assert (event["throttled_s"], event["observed_s"]) == (pytest.approx(25), pytest.approx(30))


def test_ids_may_be_far_apart() -> None:
    follower = Follower().take(reading(0, GPU, mask=int(HOT)), reading(0, 599, mask=int(HOT)))
    assert [event["gpu"] for event in follower.now] == [GPU, 599]


# --- Hardware slowdown: drivers count no time of it -------------------------------------------

HEAT = ThrottleCause.HW_THERMAL


def slowed(masks: list[int], brakes: list[float]) -> Follower:
    """A GPU read each 10 s, with counters of heat (none) and of the power brake."""
    follower = Follower()
    for i, (mask, brake) in enumerate(zip(masks, brakes, strict=True)):
        follower.take(reading(10.0 * i, mask=mask, hw_power_brake=brake, hw_thermal=0.0))
    return follower


def test_a_nanosecond_of_brake_is_no_slowdown_of_ten_seconds() -> None:
    both = int(BRAKE | SLOW)
    follower = slowed([0, both, both, 0], [0.0, 1e-9, 2e-9, 2e-9])
    assert follower.now == follower.closed == []


def test_a_slowdown_lasts_as_long_as_what_explains_it() -> None:
    both = int(BRAKE | SLOW)
    follower = slowed([0, both, both, 0], [0.0, 2.0, 5.0, 6.0])
    held = {event["cause"]: (event["throttled_s"], event["sampled_s"]) for event in follower.now}
    assert held == {BRAKE: (pytest.approx(6), 0), SLOW: (pytest.approx(6), 0)}


def test_a_slowdown_that_nothing_explains_is_sampled() -> None:
    follower = slowed([0, int(SLOW), int(SLOW), 0], [0.0] * 4)
    event = follower.only
    assert (event["cause"], event["throttled_s"], event["sampled_s"]) == (SLOW, 20, 20)


def test_a_slowdown_without_counters_to_bound_it_is_sampled() -> None:
    follower = Follower()
    for i, mask in enumerate([0, int(SLOW | HEAT), 0]):
        follower.take(reading(10.0 * i, mask=mask, hw_power_brake=0.0))
    slow = next(event for event in follower.now if event["cause"] is SLOW)
    assert (slow["throttled_s"], slow["sampled_s"]) == (10, 10)
