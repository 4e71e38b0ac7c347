"""Carbon intensity comes from a server in the shape of Electricity Maps v3, one of our own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ValidationError
from pytest_django import Settings

from accounts.roles import Role
from admission.energy import actions, electricity_maps, following
from admission.energy.electricity_maps import Access, GridError
from admission.energy.models import GridHour, SiteHour, Tariff
from fleet.models import Site
from tests.builders.accounts import make_user
from tests.builders.ledger import Ledger
from tests.integration.admission.energy.grid import TOKEN, Grid, grid

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 10, 12, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
TEN, NOON, ONE = (datetime(2026, 3, 10, hour, tzinfo=UTC) for hour in (10, 12, 13))


@pytest.fixture
def source(settings: Settings) -> Iterator[Grid]:
    with grid() as made:
        settings.ELECTRICITYMAPS_URL = made.url
        settings.ELECTRICITYMAPS_TOKEN = TOKEN
        settings.ELECTRICITYMAPS_TIMEOUT_S = 5.0
        settings.ENERGY_CURRENCY = "EUR"
        yield made


@pytest.fixture
def site(db: None) -> Site:
    made = Site.objects.create(name="oslo")
    tariff(made, "DE")
    return made


def tariff(site: Site, zone: str, begins_at: datetime = TEN - 1000 * HOUR) -> None:
    Tariff.objects.create(site=site, begins_at=begins_at, zone=zone, made_by="ada", made_at=NOW)


def access(source: Grid, **given: object) -> Access:
    return Access(**{"url": source.url, "token": TOKEN, "timeout_s": 5.0, **given})  # type: ignore[arg-type]


def test_what_was_and_what_is_expected_is_kept_by_the_hour(source: Grid, site: Site) -> None:
    source.history = {TEN: 310.0, TEN + HOUR: None, NOON: 290.0}
    source.forecast = {NOON: 1.0, ONE: 250.0}
    assert following.follow(NOW)
    rows = GridHour.objects.values_list("hour", "carbon_g_per_kwh", "is_forecast", "source")
    assert list(rows) == [
        (TEN, 310.0, False, "electricitymaps"),
        (NOON, 290.0, False, "electricitymaps"),
        (ONE, 250.0, True, "electricitymaps"),
    ]


def test_a_forecast_becomes_what_was(source: Grid, site: Site) -> None:
    source.forecast = {ONE: 250.0}
    assert following.follow(NOW)
    source.history, source.forecast = {ONE: 240.0}, {}
    assert following.follow(NOW + 2 * HOUR)
    row = GridHour.objects.get(hour=ONE)
    assert (row.carbon_g_per_kwh, row.is_forecast) == (240.0, False)


def test_hours_that_are_closed_are_rated_by_it(source: Grid, ledger: Ledger) -> None:
    tariff(Site.objects.get(), "DE", ledger.hour - HOUR)
    assert ledger.close().carbon_g_per_kwh is None
    source.history = {ledger.hour: 123.0}
    assert following.follow(ledger.hour + 2 * HOUR)
    row = SiteHour.objects.get(hour=ledger.hour)
    assert (row.carbon_g_per_kwh, row.carbon_source) == (123.0, "electricitymaps")


def test_points_within_an_hour_are_put_together(source: Grid) -> None:
    source.history = {TEN: 100.0, TEN + HOUR / 4: 140.0}
    (told,) = electricity_maps.history(access(source), "DE")
    assert (told.hour, told.carbon_g_per_kwh) == (TEN, 120.0)


def test_without_a_zone_or_a_source_nobody_is_asked(
    source: Grid, site: Site, settings: Settings
) -> None:
    tariff(site, "", TEN)
    assert following.follow(NOW)
    settings.ELECTRICITYMAPS_URL = ""
    tariff(site, "DE", NOON)
    assert following.follow(NOW)
    assert source.asked == []


def test_a_token_that_may_ask_for_no_forecast_has_history_all_the_same(
    source: Grid, site: Site
) -> None:
    source.history, source.forecast_status = {TEN: 310.0}, 403
    assert following.follow(NOW)
    assert GridHour.objects.count() == 1


def test_one_site_in_vain_leaves_the_others(source: Grid, site: Site) -> None:
    tariff(Site.objects.create(name="bergen"), "XX")
    source.history = {TEN: 310.0}
    assert not following.follow(NOW)
    assert list(GridHour.objects.values_list("site__name", flat=True)) == ["oslo"]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b"", "was answered with 500"),
        (302, b"", "was answered with 302"),
        (200, b"<html>", "carbon-intensity/history of DE: JSON is malformed"),
        (200, b'{"zone":"DE"}', "missing required field `history`"),
        (200, b'{"zone":"FR","history":[]}', "of another zone"),
        (200, b'{"zone":"DE","history":[{"carbonIntensity":-3,"datetime":"2026-03-10T10:00:00Z"}]}',
         "carbonIntensity: -3"),
        (200, b'{"zone":"DE","history":[{"carbonIntensity":3,"datetime":"2026-03-10T10:00:00"}]}',
         "datetime: it has no offset"),
        (200, b'{"zone":"DE","history":[{"carbonIntensity":"3","datetime":"2026-03-10"}]}',
         "Expected `float"),
        (200, b" " * 5_000_000, "larger than"),
    ],
)  # fmt: skip
def test_a_bad_answer_is_named_and_nothing_is_kept(
    source: Grid, site: Site, status: int, body: bytes, why: str
) -> None:
    source.instead = (status, body)
    with pytest.raises(GridError, match=why):
        electricity_maps.history(access(source), "DE")
    assert not following.follow(NOW)
    assert not GridHour.objects.exists()


def test_a_wrong_token_is_refused_and_not_told(source: Grid) -> None:
    wrong = access(source, token="hunter2-of-the-grid")
    with pytest.raises(GridError, match="401") as caught:
        electricity_maps.history(wrong, "DE")
    assert "hunter2" not in str(caught.value) + repr(wrong)


def test_one_that_does_not_answer_is_left(source: Grid) -> None:
    source.hangs = threading.Event()
    with pytest.raises(GridError, match="ReadTimeout"):
        electricity_maps.history(access(source, timeout_s=0.2), "DE")


def test_a_token_goes_nowhere_without_tls(source: Grid) -> None:
    with pytest.raises(GridError, match="is not https"):
        electricity_maps.history(access(source, url="http://grid.example.com/v3"), "DE")


def test_prices_are_asked_for_where_the_tariff_pays_those_of_the_market(
    source: Grid, site: Site
) -> None:
    source.prices, source.price_forecast = {TEN: 80.0}, {ONE: -5.0}
    assert following.follow(NOW)
    assert not GridHour.objects.exists()
    Tariff.objects.update(is_spot=True)
    assert following.follow(NOW)
    rows = GridHour.objects.values_list("hour", "price_per_kwh", "is_forecast")
    assert list(rows) == [(TEN, 0.08, False), (ONE, -0.005, True)]


def test_prices_in_another_currency_are_not_taken(source: Grid, site: Site) -> None:
    Tariff.objects.update(is_spot=True)
    source.prices, source.unit = {TEN: 80.0}, "NOK/MWh"
    source.history = {TEN: 310.0}
    assert not following.follow(NOW)
    # What it emits is known all the same.
    assert list(GridHour.objects.values_list("price_per_kwh", "carbon_g_per_kwh")) == [
        (None, 310.0)
    ]
    with pytest.raises(GridError, match="'NOK/MWh' is not EUR/MWh"):
        electricity_maps.price_history(access(source), "DE", "EUR")


def test_a_tariff_of_a_market_names_its_zone(site: Site) -> None:
    with pytest.raises(ValidationError, match="name the grid"):
        actions.make_tariff(make_user(Role.OPERATOR), site, TEN, {"is_spot": True}, now=NOW)


def test_a_price_that_cannot_be_is_refused(source: Grid) -> None:
    source.prices = {TEN: 1e9}
    with pytest.raises(GridError, match="is no price of a MWh"):
        electricity_maps.price_history(access(source), "DE", "EUR")
