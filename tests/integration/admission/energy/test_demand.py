"""Demand charges are paid by who drew the peak, told to those who see all, and by their month."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from accounts.roles import Role
from admission.core.energy import rates
from admission.energy import actions, demand, metrics, rating, reports
from admission.energy.models import ClosedHour, JobHour, PlaceHour, SiteHour, Tariff
from admission.energy.reports import By
from fleet.models import Rack, Site
from telemetry.spans import Span
from tests.builders.accounts import api_client, make_user
from tests.builders.ledger import Ledger

pytestmark = pytest.mark.django_db

URL = "/api/v1/demand-charges"
HOUR = timedelta(hours=1)
QUARTER = timedelta(minutes=15)


def tariff(made: Ledger, after: timedelta = -HOUR, **given: object) -> None:
    given = {"demand_per_kw": 10.0, **given}
    actions.make_tariff(
        make_user(Role.OPERATOR), Site.objects.get(), made.hour + after, given, now=made.hour
    )


@pytest.fixture
def burst(ledger: Ledger) -> Ledger:
    """Vision draws 1 kW all hour, text 1.4 kW in its second quarter and nothing else."""
    ledger.read("n1", {0: 500.0, 1: 500.0})
    for index in (0, 1):
        ledger.read("n3", {index: 0.0}, to_s=900.0)
        ledger.read("n3", {index: 700.0}, from_s=900.0, to_s=1800.0)
        ledger.read("n3", {index: 0.0}, from_s=1800.0)
    ledger.job("llama", {"n1": [0, 1]})
    ledger.job("bert", {"n3": [0, 1]}, project="text")
    return ledger


def asked(client: Client, query: str = "") -> dict[str, Any]:
    answer = client.get(f"{URL}{query}")
    assert answer.status_code == 200, answer.content
    (found,) = answer.json()["sites"]
    told: dict[str, Any] = found
    return told


def money_of(made: Ledger, by: By) -> dict[str, float]:
    span = Span(made.start, made.start + 3600.0)
    found = reports.report(by, span, make_user(Role.VIEWER))
    return {row.name: row.money["demand"] for row in found.rows}


def test_the_peak_is_the_quarter_in_which_most_was_drawn_and_its_users_pay_it(
    burst: Ledger,
) -> None:
    tariff(burst)
    row = burst.close()
    assert (row.peak_at, row.peak_s) == (burst.hour + QUARTER, 900)
    assert row.peak_w == pytest.approx(2400.0, rel=0.02)
    assert row.demand == pytest.approx(24.0, rel=0.02)
    assert sum(row.five_minutes_mj) == row.whole_mj
    by_project = money_of(burst, By.PROJECT)
    assert by_project["text"] == pytest.approx(14.0, rel=0.03)
    assert by_project["vision"] == pytest.approx(10.0, rel=0.03)
    # By the energy of the hour text would have paid a quarter of it.
    assert sum(by_project.values()) == pytest.approx(row.demand)
    assert money_of(burst, By.JOB) == {
        "bert": pytest.approx(by_project["text"]), "llama": pytest.approx(by_project["vision"]),
    }  # fmt: skip
    assert money_of(burst, By.SITE) == {"oslo": pytest.approx(row.demand)}


def test_what_no_job_drew_is_the_rest_of_the_charge(burst: Ledger) -> None:
    tariff(burst)
    burst.read("n4", {0: 60.0, 1: 60.0})
    burst.close()
    peak = asked(api_client())["peak"]
    assert [each["name"] for each in peak["projects"]] == ["text", "vision"]
    assert peak["rest"]["mean_w"] == pytest.approx(120.0, rel=0.03)
    shares = [each["share"] for each in [*peak["projects"], peak["rest"]]]
    assert sum(shares) == pytest.approx(1.0)
    money = [each["money"] for each in [*peak["projects"], peak["rest"]]]
    assert sum(money) == pytest.approx(peak["charge"])
    racks = {each["name"]: each["mean_w"] for each in peak["racks"]}
    assert racks["oslo/A02"] == pytest.approx(1520.0, rel=0.03)
    assert racks["oslo/A01"] == pytest.approx(1000.0, rel=0.03)
    assert peak["is_shared_by_hour"] is False


def test_a_meter_of_a_rack_tells_what_it_drew_at_the_peak(burst: Ledger) -> None:
    tariff(burst)
    burst.meter("rack", 3000.0, rack=Rack.objects.get(name="A02"))
    row = burst.close()
    # The meter is flat: no quarter is above another, and the first is the peak.
    assert PlaceHour.objects.get(kind="rack", place="oslo/A02").peak_mj == pytest.approx(
        3000.0 * 900.0 * 1000.0, rel=0.02
    )
    assert row.peak_w == pytest.approx(4000.0, rel=0.02)


def test_by_hours_the_peak_is_the_mean_of_the_hour(burst: Ledger) -> None:
    tariff(burst, demand_interval_min=60)
    row = burst.close()
    assert (row.peak_at, row.peak_s) == (burst.hour, 3600)
    assert row.peak_w == pytest.approx(row.whole_mj / 3.6e6)
    found = asked(api_client())
    assert (found["next_kw"], found["interval_min"]) == (10.0, 60)


def test_a_tariff_that_comes_later_finds_the_peak_and_then_who_drew_it(burst: Ledger) -> None:
    assert burst.close().peak_at is None
    tariff(burst)
    found = asked(api_client())["peak"]
    assert found["mean_w"] == pytest.approx(2400.0, rel=0.02)
    assert found["is_shared_by_hour"] is True
    burst.close()
    found = asked(api_client())["peak"]
    assert found["is_shared_by_hour"] is False
    assert found["projects"][0]["name"] == "text"


def test_a_higher_hour_takes_the_peak_over_and_the_first_has_none(burst: Ledger) -> None:
    tariff(burst)
    first = burst.close()
    later = SiteHour.objects.get()
    later.pk, later.hour, later.idle_mj = None, burst.hour + HOUR, 4 * first.jobs_mj
    later.five_minutes_mj, later.peak_at, later.demand = [], None, 0.0
    if later.hour.month != first.hour.month:
        pytest.skip("the two hours are of two months")
    later.save()
    tariff(burst, after=timedelta(0))
    first.refresh_from_db()
    assert (first.peak_at, first.demand) == (None, 0.0)
    later.refresh_from_db()
    assert later.peak is not None
    assert later.peak[:2] == (later.hour, 3600)


def test_an_hour_that_is_closed_again_keeps_its_peak(burst: Ledger) -> None:
    tariff(burst)
    before = burst.close()
    ClosedHour.objects.update(again_at=burst.hour)
    after = burst.close()
    assert after.pk != before.pk
    assert after.peak_at == before.peak_at
    assert after.demand == pytest.approx(before.demand)
    assert JobHour.objects.get(job="bert").peak_mj == pytest.approx(1.26e9, rel=0.03)


def test_nobody_who_sees_the_own_projects_alone_is_told(burst: Ledger) -> None:
    tariff(burst)
    burst.close()
    for url in (URL, f"{URL}.csv"):
        assert api_client(Role.ML_USER).get(url).status_code == 403
        assert Client().get(url).status_code in (401, 403)


@pytest.mark.parametrize("month", ["2026-13", "2026", "now", "9999-12", "2026-1", "-", "2026-11 "])
def test_a_month_that_is_none_is_named(db: None, month: str) -> None:
    for url in (URL, f"{URL}.csv"):
        answer = api_client().get(url, {"month": month})
        assert answer.status_code == 400
        assert answer.json()["error"]["field"] == "month"


def test_a_month_without_a_charge_or_without_hours_says_so(burst: Ledger) -> None:
    burst.close()
    assert api_client().get(URL).json()["sites"] == []
    tariff(burst)
    found = asked(api_client(), "?month=2999-12")
    assert (found["peak"], found["next_kw"], found["closed_hours"]) == (None, None, 0)
    assert api_client().get(f"{URL}?month=2001-02").json()["sites"] == []


def test_what_was_not_read_of_a_month_is_told(burst: Ledger) -> None:
    tariff(burst)
    burst.close()
    found = asked(api_client())
    # Of eight GPUs two are read all hour, and two in a quarter of it: 0 W is no reading.
    assert found["covered"] == pytest.approx(5 / 16, abs=0.01)
    assert (found["closed_hours"], found["hours_by_mean"]) == (1, 0)
    assert found["closed_hours"] <= found["past_hours"] <= found["hours"]
    SiteHour.objects.update(five_minutes_mj=[])
    assert asked(api_client())["hours_by_mean"] == 1


def test_a_month_in_which_clocks_change_has_an_hour_less(burst: Ledger) -> None:
    Site.objects.update(time_zone="Europe/Oslo")
    tariff(burst, after=timedelta(days=-2000))
    start, end = rates.month_of(datetime(2026, 3, 15, tzinfo=UTC), ZoneInfo("Europe/Oslo"))
    (found,) = demand.months(end, start + timedelta(days=9))
    assert (found.hours, found.past_hours) == (743, 743)


def test_an_hour_is_of_the_month_in_which_it_begins_at_its_site(burst: Ledger) -> None:
    tariff(burst)
    midnight = datetime(2020, 11, 1, tzinfo=ZoneInfo("Europe/Oslo"))
    Site.objects.update(time_zone="Europe/Oslo")
    row = burst.close()
    for after, drawn in ((-1, 9), (0, 3), (1, 5)):
        row.pk, row.hour = None, midnight.astimezone(UTC) + after * HOUR
        row.five_minutes_mj, row.idle_mj = [], drawn * row.jobs_mj
        row.save()
    Tariff.objects.update(begins_at=midnight - timedelta(days=40))
    rating.rate(midnight - HOUR, midnight + 2 * HOUR)
    charged = SiteHour.objects.filter(demand__gt=0, hour__lt=midnight + 2 * HOUR)
    assert list(charged.values_list("hour", flat=True)) == [midnight - HOUR, midnight + HOUR]


def test_the_file_has_a_line_for_each_that_drew_the_peak(burst: Ledger) -> None:
    tariff(burst)
    burst.close()
    head, *lines = api_client().get(f"{URL}.csv").content.decode().splitlines()
    assert head.startswith("site,start,end,hours,past_hours,closed_hours,hours_by_mean,covered")
    kinds = [row["kind"] for row in csv.DictReader([head, *lines])]
    assert kinds == ["project", "project", "rest", "rack", "rack"]


def test_prometheus_has_the_peak_and_what_the_next_kilowatt_costs(burst: Ledger) -> None:
    tariff(burst)
    row = burst.close()
    assert metrics.PEAK.labels("oslo")._value.get() == pytest.approx(row.peak_w)
    assert metrics.CHARGE.labels("oslo")._value.get() == pytest.approx(row.demand)
    assert metrics.NEXT_KW.labels("oslo")._value.get() == 10.0
