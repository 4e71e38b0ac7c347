"""``/api/v1/energy`` adds up by any cut, and ML users see their own projects alone."""

from __future__ import annotations

import csv
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from admission.core.energy.rates import MJ_PER_KWH
from admission.energy import actions
from admission.energy.models import SiteHour
from admission.jobs.models import Project
from fleet.models import Site
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.ledger import Ledger

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
CUTS = ("project", "job", "site", "rack", "node", "hour")


@pytest.fixture
def hour(ledger: Ledger) -> Ledger:
    """Two projects on n1 and n2, a site's power meter, and a tariff with everything."""
    ledger.read("n1", {0: 700.0, 1: 700.0})
    ledger.read("n2", {0: 500.0, 1: 100.0})
    ledger.host("n1", 300.0)
    ledger.job("llama", {"n1": [0, 1]})
    ledger.job("bert", {"n2": [0]}, project="text")
    given = {
        "price_per_kwh": 0.2, "carbon_g_per_kwh": 300.0, "gpu_hour": 1.5, "demand_per_kw": 10.0,
        "pue": 1.25,
    }  # fmt: skip
    actions.make_tariff(
        make_user(Role.OPERATOR), Site.objects.get(), ledger.hour - HOUR, given, now=ledger.hour
    )
    ledger.close()
    return ledger


def ask(made: Ledger, client: Client, by: str, path: str = "energy") -> Any:
    span = f"from={made.hour.timestamp():.0f}&to={(made.hour + HOUR).timestamp():.0f}"
    return client.get(f"/api/v1/{path}?by={by}&{span}")


def total(made: Ledger, by: str) -> dict[str, Any]:
    answer = ask(made, api_client(), by)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_rows_add_up_to_the_total_by_any_cut(hour: Ledger) -> None:
    found = {by: total(hour, by) for by in CUTS}
    for by, report in found.items():
        rows = report["rows"]
        assert report["total"]["energy_mj"] == sum(row["energy_mj"] for row in rows), by
        for row in rows:
            assert sum(row["parts_mj"].values()) == row["energy_mj"]
            assert sum(row["money_parts"].values()) == pytest.approx(row["money"])
    of_sites = found["site"]["total"]["parts_mj"]
    for by in ("project", "job"):
        assert found[by]["total"]["energy_mj"] == of_sites["jobs"]
    assert found["hour"]["total"]["parts_mj"] == of_sites
    # Racks and nodes are IT alone.
    for by in ("rack", "node"):
        assert found[by]["total"]["kwh"] * 1.25 == pytest.approx(found["site"]["total"]["kwh"])


def test_carbon_and_money_are_those_of_the_tariff(hour: Ledger) -> None:
    report = total(hour, "project")
    site_kwh = total(hour, "site")["total"]["kwh"]
    for row in report["rows"]:
        assert row["carbon_kg"] == pytest.approx(0.3 * row["kwh"])
        assert row["money_parts"]["energy"] == pytest.approx(0.2 * row["kwh"])
        # Whoever ran at the peak pays it by energy: here all of the month is one hour.
        assert row["money_parts"]["demand"] == pytest.approx(10.0 * row["kwh"])
        assert row["money_parts"]["gpu_hours"] == pytest.approx(1.5 * row["gpu_h"])
        assert (row["carbon_known"], row["price_known"]) == (1.0, 1.0)
    assert [row["name"] for row in report["rows"]] == ["vision", "text"]
    assert total(hour, "site")["total"]["money_parts"]["demand"] == pytest.approx(10.0 * site_kwh)


def test_a_site_says_its_pue_what_it_goes_by_and_what_was_read(hour: Ledger) -> None:
    (row,) = total(hour, "site")["rows"]
    assert (row["pue"], row["pue_basis"]) == (pytest.approx(1.25), "stated")
    assert row["covered"] == pytest.approx(0.5, abs=0.01)
    assert row["metered"] == 0.0
    report = total(hour, "site")
    assert (report["hours"], report["currency"], report["own_projects"]) == (1, "USD", False)


def test_a_pue_goes_by_the_hours_and_sites_in_which_it_is_known(hour: Ledger) -> None:
    row = SiteHour.objects.get()
    row.pk, row.site, row.basis, row.overhead_mj = None, "bergen", SiteHour.OverheadBasis.NONE, 0
    row.save()
    report = total(hour, "site")
    assert [each["pue_basis"] for each in report["rows"]] == ["not known", "stated"]
    assert (report["total"]["pue"], report["total"]["pue_basis"]) == (pytest.approx(1.25), "stated")
    (both,) = total(hour, "hour")["rows"]
    assert both["pue_basis"] == "stated"


def test_rates_that_are_not_known_say_so(ledger: Ledger) -> None:
    ledger.read("n1", {0: 700.0})
    ledger.close()
    (row,) = total(ledger, "site")["rows"]
    assert (row["carbon_kg"], row["carbon_known"]) == (0.0, 0.0)
    assert (row["money"], row["price_known"], row["pue"]) == (0.0, 0.0, None)


def test_a_span_in_which_nothing_was_closed_is_empty(ledger: Ledger) -> None:
    report = total(ledger, "project")
    assert (report["rows"], report["hours"], report["newest"]) == ([], 0, None)
    assert report["total"]["energy_mj"] == 0


# --- Rights -------------------------------------------------------------------------------------


def of_project(name: str) -> Client:
    """Return a client of an ML user who is a member of one project."""
    user = make_user(Role.ML_USER)
    Project.objects.get(name=name).members.add(user)
    return Client(headers=bearer(make_token(user)))


def test_ml_users_see_their_own_projects_alone(hour: Ledger) -> None:
    mine = of_project("text")
    assert [row["name"] for row in ask(hour, mine, "project").json()["rows"]] == ["text"]
    assert [row["name"] for row in ask(hour, mine, "job").json()["rows"]] == ["bert"]
    own = ask(hour, mine, "project").json()["total"]["energy_mj"]
    for by in ("site", "hour"):
        report = ask(hour, mine, by).json()
        assert (report["total"]["energy_mj"], report["own_projects"]) == (own, True)
    assert "vision" not in ask(hour, mine, "job", "energy.csv").content.decode()


@pytest.mark.parametrize("by", ["rack", "node"])
def test_racks_are_shared_so_ml_users_do_not_see_them(hour: Ledger, by: str) -> None:
    answer = ask(hour, of_project("text"), by)
    assert answer.status_code == 403
    assert "shared with other projects" in answer.content.decode()


def test_who_is_in_no_project_sees_none(hour: Ledger) -> None:
    assert ask(hour, api_client(Role.ML_USER), "project").json()["rows"] == []


def test_nobody_without_a_login_sees_any(hour: Ledger) -> None:
    assert ask(hour, Client(), "project").status_code == 401


def test_bad_input_is_named_by_its_field(hour: Ledger) -> None:
    answer = ask(hour, api_client(), "galaxy")
    assert answer.status_code == 400
    assert b"give one of project, job, site, rack, node, hour" in answer.content
    assert api_client().get("/api/v1/energy?from=yesterday").status_code == 400


def test_csv_has_a_line_for_each_row(hour: Ledger) -> None:
    lines = list(
        csv.DictReader(ask(hour, api_client(), "node", "energy.csv").content.decode().split())
    )
    assert {line["name"] for line in lines} == {"n1", "n2", "n3", "n4"}
    first = lines[0]
    assert float(first["kwh"]) == pytest.approx(int(first["energy_mj"]) / MJ_PER_KWH)
    parts = ("jobs", "idle", "unmanaged", "shared", "residual")
    assert int(first["energy_mj"]) == sum(int(first[f"{part}_mj"]) for part in parts)


# --- Tariffs ------------------------------------------------------------------------------------


def test_an_operator_makes_a_tariff_and_others_read_it(ledger: Ledger) -> None:
    body = {"site": "oslo", "begins_at": ledger.hour.isoformat(), "price_per_kwh": 0.11}
    made = api_client(Role.OPERATOR).post("/api/v1/tariffs", body, "application/json")
    assert made.status_code == 201, made.content
    (found,) = api_client().get("/api/v1/tariffs").json()["results"]
    assert (found["site"], found["price_per_kwh"], found["pue"]) == ("oslo", 0.11, None)
    again = api_client(Role.OPERATOR).post("/api/v1/tariffs", body, "application/json")
    assert again.status_code == 400


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_others_make_none(ledger: Ledger, role: Role) -> None:
    body = {"site": "oslo", "begins_at": ledger.hour.isoformat()}
    assert api_client(role).post("/api/v1/tariffs", body, "application/json").status_code == 403


def test_a_tariff_that_cannot_be_is_refused_by_its_field(ledger: Ledger) -> None:
    body = {"site": "paris", "begins_at": "soon", "pue": 0.5}
    answer = api_client(Role.OPERATOR).post("/api/v1/tariffs", body, "application/json")
    assert answer.status_code == 400
    for field in (b"site", b"begins_at", b"pue"):
        assert field in answer.content
