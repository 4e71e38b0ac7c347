"""The page of energy says what it came to, what no part explains, and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from accounts.roles import Role
from admission.energy import actions, budgets
from admission.energy.models import ClosedHour, SiteHour
from admission.jobs.models import Project
from fleet.models import Rack, Site
from tests.builders.accounts import client_of, make_user
from tests.builders.ledger import Ledger, begin_ledger
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def ledger(db: None) -> Ledger:
    """Two jobs of two projects, and a rack meter that reads 50 W more than its parts."""
    now = datetime.now(UTC)
    made = begin_ledger(now.replace(minute=0, second=0, microsecond=0) - 2 * HOUR)
    made.read("n1", {0: 700.0, 1: 700.0})
    made.read("n2", {0: 500.0, 1: 50.0})
    made.meter("rack", 2000.0, rack=Rack.objects.get(name="A01"))
    made.job("llama", {"n1": [0, 1]})
    made.job("bert", {"n2": [0]}, project="text")
    return made


def opened(client: Client, path: str = "/energy/") -> str:
    response = client.get(path)
    assert response.status_code == 200
    return text_of(html_of(response))


def test_nobody_sees_it_without_logging_in(client: Client) -> None:
    assert client.get("/energy/").status_code == 302


def test_before_the_first_hour_is_closed_it_says_what_it_will_show() -> None:
    html = opened(client_of(Role.VIEWER))
    assert "No hour is closed yet" in html
    assert "What this page will show" in html


def test_an_hour_in_which_nothing_was_read_is_not_one_of_no_energy(db: None) -> None:
    now = datetime.now(UTC)
    begin_ledger(now.replace(minute=0, second=0, microsecond=0) - 2 * HOUR).close()
    html = opened(client_of(Role.VIEWER))
    assert "Nothing was read in these hours" in html
    assert "0.0" not in html


def test_energy_carbon_money_pue_and_residual_come_first(ledger: Ledger) -> None:
    given = {"price_per_kwh": 0.2, "carbon_g_per_kwh": 300.0, "pue": 1.25}
    actions.make_tariff(
        make_user(Role.OPERATOR), Site.objects.get(), ledger.hour - HOUR, given, now=ledger.hour
    )
    site = ledger.close()
    html = opened(client_of(Role.VIEWER))
    kwh = (site.jobs_mj + site.idle_mj + site.unmanaged_mj + site.residual_mj) / 3.6e9
    assert f"{kwh:.2f} kWh · {0.3 * kwh:.2f} kg CO2e · {0.2 * kwh:.2f} USD" in html
    assert "PUE 1.25, stated" in html
    assert "that no part explains" in html
    assert "Carbon is known for 100 % of the energy, the price for 100 %." in html
    assert "1 closed hour, 23 not closed" in html


def test_without_rates_there_is_no_money_and_it_is_said(ledger: Ledger) -> None:
    ledger.close()
    html = opened(client_of(Role.VIEWER))
    assert "kg CO2e ·" not in html
    assert "Carbon is known for 0 % of the energy, the price for 0 %." in html
    assert "PUE " not in html.partition("that no part explains")[0]


def test_it_says_that_no_hour_was_closed_for_long(ledger: Ledger) -> None:
    ledger.close()
    assert "No hour was closed since" not in opened(client_of(Role.VIEWER))
    ClosedHour.objects.update(hour=ledger.hour - 6 * HOUR)
    SiteHour.objects.update(hour=ledger.hour - 6 * HOUR)
    assert "No hour was closed since" in opened(client_of(Role.VIEWER))


def test_ml_users_see_their_own_projects_and_no_site(ledger: Ledger) -> None:
    ledger.close()
    user = make_user(Role.ML_USER)
    Project.objects.get(name="text").members.add(user)
    client = Client()
    client.force_login(user)
    html = opened(client)
    assert "What the jobs of your projects came to" in html
    assert "text" in html
    assert "vision" not in html
    assert "unmanaged" not in html


def test_a_range_that_is_none_is_the_usual_one(ledger: Ledger) -> None:
    ledger.close()
    client = client_of(Role.VIEWER)
    assert opened(client, "/energy/?range=galaxy") == opened(client, "/energy/?range=24h")


def test_the_page_of_a_job_says_what_it_came_to(ledger: Ledger) -> None:
    client = client_of(Role.VIEWER)
    assert "kWh" not in opened(client, "/live/jobs/llama/goodput")
    ledger.close()
    assert "1.40 kWh" in opened(client, "/live/jobs/llama/goodput")


def made_budget(ledger: Ledger, project: str, amount: float, *warn_at: float) -> int:
    given = {
        "measure": "kwh", "amount": amount, "begins_at": ledger.hour, "warn_at": [*warn_at],
        "ends_at": ledger.hour + 8 * HOUR,
    }  # fmt: skip
    row = budgets.make(
        make_user(Role.OPERATOR), Project.objects.get(name=project), given, now=ledger.hour
    )
    return row.pk


def test_budgets_show_what_is_used_to_those_who_may_know_of_the_project(ledger: Ledger) -> None:
    ledger.close()
    number = made_budget(ledger, "vision", 2.0, 0.5)
    html = opened(client_of(Role.VIEWER))
    assert f"vision {number} 2.0 kWh at least 70 %" in html
    assert "at least 70 %" not in opened(client_of(Role.ML_USER))


def test_the_page_of_a_project_has_its_budgets_and_no_others(ledger: Ledger) -> None:
    ledger.close()
    number = made_budget(ledger, "vision", 2.0, 1.0, 0.5)
    other = made_budget(ledger, "text", 9.0, 0.9)
    html = opened(client_of(Role.VIEWER), "/projects/vision/")
    assert f"{number} 2.0 kWh at least 70 % 560 % 50 %, 100 %" in html
    assert "9.0 kWh" not in html
    assert f"{other} 9.0 kWh" in opened(client_of(Role.VIEWER), "/projects/text/")


def test_demand_charges_tell_the_peak_who_drew_it_and_what_the_next_kilowatt_costs(
    ledger: Ledger,
) -> None:
    given = {"demand_per_kw": 10.0}
    actions.make_tariff(
        make_user(Role.OPERATOR), Site.objects.get(), ledger.hour - HOUR, given, now=ledger.hour
    )
    site = ledger.close()
    html = opened(client_of(Role.VIEWER))
    assert site.peak_w is not None
    assert site.peak_at is not None
    at = f"{site.peak_at:%Y-%m-%d %H:%M} UTC"
    assert f"oslo {site.peak_w / 1000:.1f} 15 {at} {site.demand:.2f} 10.00 vision 70 %" in html
    assert "oslo/A01 100 % 1 of" in html
    # Four of eight GPUs were read, all hour.
    assert "hours not closed, 50.0 % of GPU time not read" in html
    assert "Demand charges" not in opened(client_of(Role.ML_USER))


def test_without_a_demand_charge_there_is_no_table_of_them(ledger: Ledger) -> None:
    ledger.close()
    assert "Demand charges" not in opened(client_of(Role.VIEWER))
