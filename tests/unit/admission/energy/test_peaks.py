"""A demand charge is for the greatest mean over an interval, by the tariff that held then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.energy.amounts import Read, within
from admission.core.energy.peaks import BINS, INTERVALS_MIN, HourDraw, Peak, peak_of
from admission.core.energy.rates import Terms, month_of

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
#: One kilowatt over five minutes, mJ.
KW_5MIN = 300_000_000


def terms(after: timedelta = -HOUR, per_kw: float | None = 10.0, interval_min: int = 15) -> Terms:
    return Terms(
        begins_at=NOON + after, demand_per_kw=per_kw, demand_interval_min=interval_min
    )  # fmt: skip


def hour(*kw: float, at: datetime = NOON) -> HourDraw:
    """An hour by its five minutes, kW: the last one goes on to its end."""
    bins = [*kw, *[kw[-1]] * (BINS - len(kw))]
    bins_mj = [round(each * KW_5MIN) for each in bins]
    return HourDraw(at, sum(bins_mj), bins_mj)


def found(*draws: HourDraw, by: list[Terms] | None = None) -> Peak:
    peak = peak_of(draws, [terms()] if by is None else by)
    assert peak is not None
    return peak


def test_a_peak_is_the_greatest_mean_over_the_interval_of_the_tariff() -> None:
    # kW by five minutes: 40 40 70 | 10 80 90 | 20 … The quarters are of 50, 60 and 20.
    draw = hour(40, 40, 70, 10, 80, 90, 20)
    peak = found(draw)
    assert (peak.at, peak.length_s) == (NOON + timedelta(minutes=15), 900)
    assert peak.mean_w == pytest.approx(60_000.0)
    assert peak.charge == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("interval_min", "minute", "kw"),
    [(5, 25, 90.0), (10, 20, 85.0), (15, 15, 60.0), (20, 20, 52.5), (30, 0, 55.0), (60, 0, 37.5)],
)
def test_the_longer_the_interval_the_lower_the_peak(
    interval_min: int, minute: int, kw: float
) -> None:
    peak = found(hour(40, 40, 70, 10, 80, 90, 20), by=[terms(interval_min=interval_min)])
    assert peak.at == NOON + timedelta(minutes=minute)
    assert peak.mean_w == pytest.approx(kw * 1000.0)


def test_of_equal_intervals_the_first_is_the_peak_in_whatever_order_hours_come() -> None:
    assert found(hour(50, at=NOON + HOUR), hour(50)).at == NOON


def test_an_hour_whose_minutes_are_not_known_counts_by_its_mean() -> None:
    peak = found(HourDraw(NOON, 65 * 12 * KW_5MIN), hour(60, at=NOON + HOUR))
    assert (peak.at, peak.length_s) == (NOON, 3600)
    assert peak.mean_w == pytest.approx(65_000.0)


def test_each_hour_counts_by_the_tariff_that_held_in_it() -> None:
    # By hours at 10 a kW until 14:00, by quarters at 20 from then on.
    by = [terms(interval_min=60), terms(2 * HOUR, 20.0, 15)]
    spiky = hour(90, 90, 90, 10)
    assert found(spiky, by=by).mean_w == pytest.approx(30_000.0)
    later = found(spiky, hour(35, at=NOON + 2 * HOUR), by=by)
    assert (later.at, later.per_kw) == (NOON + 2 * HOUR, 20.0)
    assert later.charge == pytest.approx(700.0)


def test_hours_without_a_charge_do_not_count() -> None:
    by = [terms(HOUR)]
    assert found(hour(90), hour(30, at=NOON + HOUR), by=by).mean_w == pytest.approx(30_000.0)
    assert peak_of([hour(90)], by) is None
    assert peak_of([hour(90)], [terms(per_kw=None)]) is None
    assert peak_of([], [terms()]) is None


def test_a_site_that_gave_power_back_pays_nothing() -> None:
    assert found(HourDraw(NOON, -KW_5MIN)).charge == 0.0


def test_a_month_with_a_change_of_clocks_has_an_hour_more_or_less() -> None:
    oslo = ZoneInfo("Europe/Oslo")
    for month, hours in ((3, 31 * 24 - 1), (10, 31 * 24 + 1), (11, 30 * 24)):
        start, end = month_of(datetime(2026, month, 15, tzinfo=UTC), oslo)
        assert (end.astimezone(UTC) - start.astimezone(UTC)) / HOUR == hours


@given(
    kw=st.lists(st.integers(0, 5_000), min_size=BINS, max_size=BINS),
    interval_min=st.sampled_from(INTERVALS_MIN),
)
def test_a_peak_is_no_less_than_the_mean_and_no_more_than_the_greatest_five_minutes(
    kw: list[int], interval_min: int
) -> None:
    draw = hour(*kw)
    peak = found(draw, by=[terms(interval_min=interval_min)])
    assert sum(kw) / BINS * 1000 - 1e-6 <= peak.mean_w <= max(kw) * 1000 + 1e-6
    intervals = [mean_w * length_s for _, length_s, mean_w in draw.means_w(interval_min)]
    assert sum(intervals) == pytest.approx(draw.mj / 1000.0)


# --- Parts of an hour ----------------------------------------------------------------------------


def whole(mj: int, covered_s: int) -> Read:
    one = np.array([mj])
    return Read(one, one * 0, np.array([covered_s * 1000]), np.array([covered_s > 0]))


def part(of: Read, used_j: float, covered_s: float) -> tuple[int, int]:
    read = within(of, 3600.0, np.array([used_j]), np.array([covered_s]), 300.0)
    return int(read.mj[0]), int(read.bridged_mj[0])


def test_five_minutes_that_were_read_count_as_they_were_read() -> None:
    assert part(whole(1_200_000, 3600), 250.0, 300.0) == (250_000, 0)
    # 200 s of 300 were read: the rest is bridged by their mean.
    assert part(whole(1_200_000, 3600), 200.0, 200.0) == (300_000, 100_000)


def test_a_thing_that_falls_silent_for_five_minutes_has_the_mean_of_its_hour() -> None:
    assert part(whole(1_200_000, 3300), 0.0, 0.0) == (100_000, 100_000)
    assert part(whole(1_200_000, 3300), 20.0, 60.0) == (100_000, 100_000)


def test_a_thing_that_was_silent_for_most_of_the_hour_counts_only_where_it_was_read() -> None:
    assert part(whole(120_000, 600), 0.0, 0.0) == (0, 0)
    assert part(whole(120_000, 600), 60.0, 100.0) == (60_000, 0)
