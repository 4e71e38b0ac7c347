"""What an event says of its span: share, lost clock, energy, extremes, class, severity, job."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.contracts import ThrottleCause
from telemetry.throttle.rules import BARS, Severity
from tests.unit.telemetry.throttle.make import BRAKE, CAP, HOT, Follower, reading


def capped(limit_w: float | None, cause: ThrottleCause = CAP, **given: Any) -> dict[str, Any]:
    follower = Follower()
    for t in (0, 10, 20):
        follower.take(reading(t, mask=int(cause), power_limit_w=limit_w, **given))
    return follower.only


# --- Class ----------------------------------------------------------------------------------------


def test_a_cap_below_the_rating_is_expected() -> None:
    assert capped(500.0)["expected"]


@pytest.mark.parametrize(
    "limit_w", [700.0, 699.0, None], ids=["at it", "a rounding off", "unknown"]
)
def test_a_cap_at_the_rating_is_not(limit_w: float | None) -> None:
    assert not capped(limit_w)["expected"]


def test_heat_is_never_expected_however_low_the_cap() -> None:
    assert not capped(300.0, HOT)["expected"]
    assert not capped(300.0, BRAKE)["expected"]


def test_an_event_is_what_most_of_its_throttled_time_was() -> None:
    follower = Follower()
    for t, limit_w in ((0, 700), (10, 500), (20, 700), (30, 700), (40, 700)):
        follower.take(reading(t, mask=int(CAP), power_limit_w=limit_w))
    assert not follower.only["expected"]
    assert follower.only["capped_s"] == pytest.approx(10)
    for t in (50, 60, 70):
        follower.take(reading(t, mask=int(CAP), power_limit_w=500))
    assert follower.only["expected"]


# --- Severity -------------------------------------------------------------------------------------


def throttled(cause: ThrottleCause, share: float, minutes: float, **given: Any) -> Severity:
    follower = Follower()
    for i in range(round(6 * minutes) + 1):
        counter: dict[str, Any] = {cause.token: 10.0 * i * share}
        follower.take(reading(10.0 * i, mask=0, **counter, **given))
    severity: Severity = follower.only["severity"]
    return severity


@pytest.mark.parametrize(
    ("cause", "share", "minutes", "severity"),
    [
        (ThrottleCause.HW_POWER_BRAKE, 0.06, 0.5, Severity.INFO),
        (ThrottleCause.HW_POWER_BRAKE, 0.10, 3.0, Severity.WARNING),
        (ThrottleCause.HW_POWER_BRAKE, 0.30, 1.0, Severity.WARNING),
        (ThrottleCause.HW_POWER_BRAKE, 0.30, 5.0, Severity.CRITICAL),
        (ThrottleCause.HW_THERMAL, 0.10, 1.0, Severity.WARNING),
        (ThrottleCause.HW_THERMAL, 0.20, 4.0, Severity.CRITICAL),
        (ThrottleCause.SW_THERMAL, 0.06, 9.0, Severity.INFO),
        (ThrottleCause.SW_THERMAL, 0.30, 3.0, Severity.WARNING),
        (ThrottleCause.SW_THERMAL, 0.90, 3.0, Severity.WARNING),
        (ThrottleCause.SW_THERMAL, 0.90, 6.0, Severity.CRITICAL),
        (ThrottleCause.HW_SLOWDOWN, 0.30, 1.0, Severity.WARNING),
        (ThrottleCause.SYNC_BOOST, 1.00, 4.0, Severity.INFO),
        (ThrottleCause.SYNC_BOOST, 1.00, 6.0, Severity.WARNING),
        (ThrottleCause.SW_POWER_CAP, 1.00, 20.0, Severity.INFO),
    ],
)
def test_cause_share_and_length_make_the_severity(
    cause: ThrottleCause, share: float, minutes: float, severity: Severity
) -> None:
    assert throttled(cause, share, minutes) is severity


def test_what_was_critical_stays_so_when_the_share_falls() -> None:
    follower, total = Follower(), 0.0
    for i in range(80):
        total += 10.0 if i < 12 else 0.2
        follower.take(reading(10.0 * i, mask=0, hw_power_brake=total))
    event = follower.only
    assert event["throttled_s"] / event["observed_s"] < BARS[BRAKE][1].share
    assert event["severity"] is Severity.CRITICAL


def test_every_cause_has_its_bars() -> None:
    assert list(BARS) == list(ThrottleCause)
    for warning, critical in BARS.values():
        assert warning.share <= critical.share
        assert warning.seconds <= critical.seconds


def test_a_change_of_severity_is_written_down_at_once() -> None:
    follower = Follower()
    seen = []
    for i in range(9):
        follower.take(reading(10.0 * i, mask=0, hw_power_brake=10.0 * i))
        seen += [int(event["severity"]) for event in follower.open.values()]
    assert seen == [2] * 5 + [3] * 3


# --- Lost clock -----------------------------------------------------------------------------------


def test_lost_clock_is_what_is_below_the_usual_one_while_it_throttles() -> None:
    follower = Follower().take(reading(0, mask=0, hw_power_brake=0, util=99, sm_mhz=1800.0))
    follower.take(reading(10, mask=0, hw_power_brake=0, util=99, sm_mhz=1800.0))
    follower.take(reading(20, mask=int(BRAKE), hw_power_brake=5, util=99, sm_mhz=900.0))
    follower.take(reading(30, mask=int(BRAKE), hw_power_brake=15, util=99, sm_mhz=900.0))
    event = follower.only
    assert event["usual_mhz"] == 1800
    assert event["lost_mhz_s"] == pytest.approx(15 * 900)


def test_without_a_clock_of_its_own_a_gpu_is_held_against_its_rating() -> None:
    event = capped(500.0, util=99.0, sm_mhz=1480.0)
    assert event["usual_mhz"] == 1980
    assert event["lost_mhz_s"] == pytest.approx(20 * 500)


def test_the_clock_of_an_idle_gpu_is_not_lost() -> None:
    event = capped(500.0, util=0.0, sm_mhz=345.0)
    assert event["lost_mhz_s"] == 0


def test_readings_that_throttle_do_not_become_the_usual_clock() -> None:
    follower = Follower()
    for i in range(10):
        follower.take(reading(10 * i, mask=0, hw_power_brake=0, util=99, sm_mhz=1800.0))
    for i in range(10, 200):
        follower.take(
            reading(10 * i, mask=int(BRAKE), hw_power_brake=10 * (i - 9), util=99, sm_mhz=900.0)
        )
    assert follower.tracker.last["usual_mhz"][7] == 1800
    assert follower.only["lost_mhz_s"] == pytest.approx(1900 * 900)


def test_the_usual_clock_follows_slowly() -> None:
    follower = Follower().take(reading(0, mask=0, util=99, sm_mhz=1800.0))
    for i in range(1, 91):
        follower.take(reading(10 * i, mask=0, util=99, sm_mhz=1700.0))
    # After one time constant, 63 % of the way.
    assert follower.tracker.last["usual_mhz"][7] == pytest.approx(1736.8, abs=0.2)


# --- Energy, extremes, job ------------------------------------------------------------------------


def test_energy_goes_by_the_counter_and_by_power_where_that_fails() -> None:
    follower = Follower().take(reading(0, mask=int(HOT), energy_j=1e9, power_w=600.0))
    follower.take(reading(10, mask=int(HOT), energy_j=1e9 + 5_500, power_w=600.0))
    assert follower.only["energy_j"] == 5_500
    follower.take(reading(20, mask=int(HOT), energy_j=40.0, power_w=500.0))  # reset
    assert follower.only["energy_j"] == 5_500 + 5_500
    follower.take(reading(30, mask=int(HOT)))  # nothing is known of this one
    assert follower.only["energy_j"] == 11_000


def test_energy_that_nobody_read_is_unknown_not_zero() -> None:
    follower = Follower().take(reading(0, mask=int(HOT)), reading(10, mask=int(HOT)))
    assert follower.only["energy_j"] is None


def test_extremes_of_core_memory_power_and_clock() -> None:
    follower = Follower()
    for t, c, m, w, mhz in (
        (0, 80, 90, 500, 1500),
        (10, 88, 85, 640, 1300),
        (20, 84, 95, 600, 1400),
    ):
        follower.take(reading(t, mask=int(HOT), temp_c=c, temp_mem_c=m, power_w=w, sm_mhz=mhz))
    event = follower.only
    assert (event["peak_temp_c"], event["peak_temp_mem_c"]) == (88, 95)
    assert (event["peak_power_w"], event["min_sm_mhz"]) == (640, 1300)


def test_the_job_is_the_one_that_ran_when_it_opened() -> None:
    follower = Follower().take(reading(0, mask=int(HOT)))
    assert follower.only["job"] is None
    follower.take(reading(10, mask=int(HOT), job_id=3), reading(20, mask=int(HOT), job_id=4))
    assert follower.only["job"] == 3
