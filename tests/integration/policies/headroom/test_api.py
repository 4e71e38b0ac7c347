"""``/api/v1/headroom`` and ``/api/v1/site-conditions``."""

from __future__ import annotations

import pytest
from django.test import Client

from policies.headroom import live
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture
def fleet() -> SmallFleet:
    made = small_fleet(racks_per_row=2)
    made.report(power_w=500.0, temp_c=70.0)
    return made


def test_headroom_of_racks_with_what_binds_each(fleet: SmallFleet) -> None:
    answer = api_client().get("/api/v1/headroom?kind=rack&site=oslo").json()
    assert answer["count"] == 4
    row = answer["rows"][0]
    assert (row["name"], row["site"]) == ("oslo/A01", "oslo")
    assert row["power_headroom_w"] == pytest.approx(row["power_budget_w"] - row["power_load_w"])
    # No slope is known yet, and nothing without a value is a number.
    assert row["power_exhausted_in_s"] is None
    assert answer["columns"]["power_headroom_w"]["unit"] == "W"
    constraint = row["constraint"]
    assert constraint["token"] == row["binding"]
    assert constraint["left"] == pytest.approx(constraint["budget"] - constraint["load"])
    assert constraint["sentence"].endswith(".")


@pytest.mark.parametrize(
    ("kind", "count"),
    [("site", 2), ("zone", 2), ("power_domain", 6), ("node", 16), ("gpu", 64), ("link", 8),
     ("storage", 0)],
)  # fmt: skip
def test_every_kind_answers(fleet: SmallFleet, kind: str, count: int) -> None:
    answer = api_client().get(f"/api/v1/headroom?kind={kind}&limit=5").json()
    assert answer["count"] == count
    assert len(answer["rows"]) == min(count, 5)


def test_one_scope_and_pages(fleet: SmallFleet) -> None:
    client = api_client()
    one = client.get("/api/v1/headroom?kind=gpu&name=oslo-a01-n1/2").json()
    assert [row["name"] for row in one["rows"]] == ["oslo-a01-n1/2"]
    names = [
        row["name"]
        for offset in (0, 40)
        for row in client.get(f"/api/v1/headroom?kind=gpu&limit=40&offset={offset}").json()["rows"]
    ]
    assert len(names) == len(set(names)) == 64


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 400, "kind"),
        ("kind=job", 400, "kind"),
        ("kind=rack&limit=-1", 400, "limit"),
        ("kind=rack&limit=99999", 400, "limit"),
        ("kind=rack&offset=x", 400, "offset"),
        ("kind=rack&site=nowhere", 404, ""),
        ("kind=rack&name=oslo/Z99", 404, ""),
    ],
)
def test_bad_questions_are_refused_by_name(
    fleet: SmallFleet, query: str, status: int, field: str
) -> None:
    answer = api_client().get(f"/api/v1/headroom?{query}")
    assert answer.status_code == status
    assert field in answer.content.decode()


def test_site_conditions_begin_with_the_answer(fleet: SmallFleet) -> None:
    answer = api_client().get("/api/v1/site-conditions?site=oslo").json()
    (site,) = answer["sites"]
    assert site["site"] == "oslo"
    assert "oslo" in site["answer"]
    assert [row["row"] for row in site["rows"]] == ["A", "B"]
    assert site["hottest_c"] == 70.0
    assert {"job_w", "job_limit", "job_by_heat_w"} <= site["rows"][0].keys()
    every = api_client().get("/api/v1/site-conditions").json()
    assert [each["site"] for each in every["sites"]] == ["bergen", "oslo"]


def test_an_unknown_site_has_no_conditions(fleet: SmallFleet) -> None:
    assert api_client().get("/api/v1/site-conditions?site=nowhere").status_code == 404


@pytest.mark.parametrize("path", ["headroom?kind=rack", "site-conditions", "forecast-scores"])
def test_nobody_without_a_token_sees_it(client: Client, path: str) -> None:
    assert client.get(f"/api/v1/{path}").status_code in (401, 403)


def test_an_empty_fleet_has_no_headroom_and_no_error() -> None:
    client = api_client()
    for _ in range(2):
        assert client.get("/api/v1/headroom?kind=rack").json()["rows"] == []
        assert client.get("/api/v1/site-conditions").json() == {"sites": []}
        live.invalidate()
