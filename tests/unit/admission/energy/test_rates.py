"""A tariff holds from its date on; what the grid tells goes before it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from admission.core.energy.rates import Terms, in_force, month_of, rates_at

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLD = Terms(begins_at=NOON - 48 * HOUR, price_per_kwh=0.10, carbon_g_per_kwh=400.0, gpu_hour=2.0)
NEW = Terms(begins_at=NOON, price_per_kwh=0.20, demand_per_kw=9.0)


def test_a_tariff_holds_from_its_first_hour_until_the_next_one_begins() -> None:
    assert in_force([OLD, NEW], NOON - HOUR) is OLD
    assert in_force([OLD, NEW], NOON) is NEW
    assert in_force([OLD, NEW], NOON - 49 * HOUR) is None
    assert in_force([], NOON) is None


def test_what_the_grid_tells_goes_before_constants() -> None:
    found = rates_at([OLD], NOON, (250.0, "file"), 0.31)
    assert (found.carbon_g_per_kwh, found.carbon_source, found.price_per_kwh) == (250, "file", 0.31)
    assert found.gpu_hour == 2.0
    # A price may be below 0, and a carbon intensity may be 0.
    assert rates_at([OLD], NOON, (0.0, "file"), -0.02).price_per_kwh == -0.02


def test_a_constant_is_told_as_that_of_the_tariff() -> None:
    found = rates_at([OLD], NOON, None, None)
    assert (found.carbon_g_per_kwh, found.carbon_source) == (400.0, "tariff")
    assert found.price_per_kwh == 0.10


def test_what_nobody_states_is_not_known() -> None:
    found = rates_at([], NOON, None, None)
    assert (found.carbon_g_per_kwh, found.carbon_source, found.price_per_kwh) == (None, "", None)
    # A new tariff does not take over what it leaves out.
    assert rates_at([OLD, NEW], NOON, None, None).gpu_hour is None


def test_a_month_begins_at_midnight_where_the_site_is() -> None:
    start, end = month_of(datetime(2026, 3, 31, 22, 30, tzinfo=UTC), ZoneInfo("Europe/Oslo"))
    assert start.astimezone(UTC) == datetime(2026, 3, 31, 22, tzinfo=UTC)
    assert end.astimezone(UTC) == datetime(2026, 4, 30, 22, tzinfo=UTC)
    assert month_of(datetime(2026, 12, 5, tzinfo=UTC), ZoneInfo("UTC"))[1].year == 2027
