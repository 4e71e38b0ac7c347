import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.twin.protection import (
    BRAKE_CAP_S,
    BRAKE_CAP_SHARE,
    BREAKER_CLOSED_AFTER_S,
    MOST_CAP_STEPS,
    Brakes,
    Breakers,
)


class Clock:
    """Steps brakes of one place, s by s."""

    def __init__(self) -> None:
        self.brakes = Brakes(1)
        self.now_s = 0.0

    def hold(self, share: float, seconds: float) -> bool:
        """Hold a load for some time; return whether the brake was ever pulled in it."""
        pulled = False
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.brakes.step(np.array([share]), now_s=self.now_s, dt_s=1.0)
            pulled |= bool(self.brakes.braked[0])
        return pulled


def test_a_short_peak_pulls_nothing() -> None:
    clock = Clock()
    for _ in range(5):
        assert not clock.hold(1.2, 7)
        assert not clock.hold(1.0, 1)


def test_a_lasting_one_does_and_lets_go_when_it_is_far_below() -> None:
    clock = Clock()
    assert clock.hold(1.04, 8)
    assert clock.hold(0.95, 60)
    assert clock.brakes.braked[0]
    clock.hold(0.85, 1)
    assert not clock.brakes.braked[0]


def test_a_brake_holds_for_a_while_even_if_the_load_falls_at_once() -> None:
    clock = Clock()
    clock.hold(1.2, 8)
    clock.hold(0.5, 8)
    assert clock.brakes.braked[0]


def test_caps_stay_lowered_and_come_back_step_by_step() -> None:
    clock = Clock()
    for steps in (1, 2):
        clock.hold(1.2, 10)
        clock.hold(0.5, 15)
        assert clock.brakes.cap_share[0] == pytest.approx(BRAKE_CAP_SHARE**steps)
    clock.hold(0.8, BRAKE_CAP_S)
    assert clock.brakes.cap_share[0] == pytest.approx(BRAKE_CAP_SHARE)
    clock.hold(0.8, BRAKE_CAP_S)
    assert clock.brakes.cap_share[0] == 1.0


def test_caps_are_lowered_only_so_far() -> None:
    clock = Clock()
    for _ in range(MOST_CAP_STEPS + 3):
        clock.hold(1.2, 10)
        clock.hold(0.5, 15)
    assert clock.brakes.cap_share[0] == pytest.approx(BRAKE_CAP_SHARE**MOST_CAP_STEPS)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 2.0), max_size=30))
def test_brakes_end_by_themselves(shares: list[float]) -> None:
    clock = Clock()
    for share in shares:
        clock.hold(share, 4)
    clock.hold(0.5, 12)
    assert not clock.brakes.braked[0]
    for _ in range(MOST_CAP_STEPS):
        clock.now_s += BRAKE_CAP_S
        clock.hold(0.5, 1)
    assert clock.brakes.cap_share[0] == 1.0


def trips_after_s(share: float, hours: float = 3.0) -> float:
    breakers = Breakers(1)
    for second in range(int(hours * 3600)):
        breakers.step(np.array([share]), now_s=float(second), dt_s=1.0)
        if breakers.trips[0]:
            return float(second)
    return np.inf


def test_a_breaker_carries_and_trips_as_its_standard_asks() -> None:
    assert trips_after_s(1.05) == np.inf
    assert trips_after_s(1.30) < 2 * 3600
    assert trips_after_s(2.0) < 600.0
    # A rack's brake has seconds to act, and needs no more.
    assert trips_after_s(1.5) > 60.0


def test_an_open_breaker_is_closed_again() -> None:
    breakers = Breakers(2)
    for second in range(2000):
        breakers.step(np.array([2.0, 0.5]), now_s=float(second), dt_s=1.0)
        if breakers.trips.any():
            break
    assert breakers.is_open(second + 1.0).tolist() == [True, False]
    assert not breakers.is_open(second + BREAKER_CLOSED_AFTER_S + 1.0).any()
