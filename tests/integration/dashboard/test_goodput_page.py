"""The page of goodput says where GPU time went, what brings it back, and what is not known."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from admission.goodput.models import AccountedHour, HourSteps, HourWait
from admission.jobs.models import Project
from dashboard import units
from fleet import snapshot
from tests.builders.accounted import last_hour, write_account
from tests.builders.accounts import client_of, make_user
from tests.builders.readings import make_node
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

H = 3600.0


@pytest.fixture
def hour(db: None) -> datetime:
    """An hour of which 8 GPU-hours were held by two projects at two sites, and 2 by nobody."""
    hour = last_hour()
    write_account(hour, "vision", productive=3 * H, data_wait=H)
    write_account(hour, "speech", "bergen", productive=1.5 * H, busy=2 * H, restarting=0.5 * H)
    write_account(hour, free=1.5 * H, silent=0.5 * H)
    for project, reason in (("vision", "GpuShortage"), ("speech", "RackPowerHeadroom")):
        HourWait.objects.create(
            hour=hour, project=project, job_class="batch", reason=reason,
            demand_us=int(4 * H * 1e6), wanted_us=int(0.5 * H * 1e6),
        )  # fmt: skip
        HourSteps.objects.create(
            hour=hour, project=project, job_class="batch", moved=900.0, repeated=60.0, missed=40.0,
        )  # fmt: skip
    flops = {"model_flop": 4e17, "peak_flop": 1e18, "stated_gpu_s": 3.0 * H}
    HourSteps.objects.filter(project="vision").update(**flops)
    return hour


def opened(client: Client, path: str = "/goodput/") -> str:
    response = client.get(path)
    assert response.status_code == 200
    return text_of(html_of(response))


def an_ml_user(project: str) -> Client:
    user = make_user(Role.ML_USER)
    Project.objects.get_or_create(name=project)[0].members.add(user)
    client = Client()
    client.force_login(user)
    return client


def test_what_waited_has_its_cost_where_that_is_stated(hour: datetime, settings: Any) -> None:
    Project.objects.create(name="vision")
    make_node("n1")
    snapshot.fresh()
    assert f"GpuShortage 4.0 0.5 {units.DASH}" in opened(client_of(Role.VIEWER))
    said = "Waited for 4.00 GPU-hours: 100 % GpuShortage."
    unknown = "What that costs is not known: ENERGY_WAITING_GPU_HOUR is not stated"
    assert f"{said} {unknown}" in opened(client_of(Role.VIEWER), "/projects/vision/")
    settings.ENERGY_WAITING_GPU_HOUR = 1.5
    assert "GpuShortage 4.0 0.5 6.00" in opened(client_of(Role.VIEWER))
    page = opened(client_of(Role.VIEWER), "/projects/vision/")
    assert f"{said} That comes to 6.00 USD in the last 7 days" in page
    assert "RackPowerHeadroom" not in page


def test_nobody_sees_it_without_logging_in(client: Client) -> None:
    assert client.get("/goodput/").status_code == 302


def test_before_the_first_hour_has_an_account_it_says_what_it_will_show() -> None:
    html = opened(client_of(Role.VIEWER))
    assert "No hour of this time has an account" in html
    assert "What this page will show" in html


def test_goodput_comes_first_with_what_was_held_of_all(hour: datetime) -> None:
    html = opened(client_of(Role.VIEWER))
    said = "Goodput at least 56 % of 8.0 GPU-hours held · 80 % of all GPU time was held"
    assert said in html
    assert "Goodput was 81 % at most" in html


def test_where_loops_told_of_all_goodput_has_no_bounds(db: None) -> None:
    write_account(last_hour(), "vision", productive=3 * H, data_wait=H)
    html = opened(client_of(Role.VIEWER))
    assert "Goodput 75 % of 4.0 GPU-hours held · 100 % of all GPU time was held" in html
    assert "if all was productive of which no loop tells." not in html


def test_causes_say_what_brings_them_back_and_groups_what_they_lost(hour: datetime) -> None:
    html = opened(client_of(Role.VIEWER))
    assert "data wait 1.0 10 % read ahead with more workers, or from faster storage" in html
    assert "nothing: it is not lost" in html
    # The site has the free and silent time; of the project only what it held counts.
    assert "oslo 4.0 67 % 75 % 75 % data wait 25 %" in html
    assert "vision 4.0 75 % 75 % 40 % data wait 25 %" in html
    # Time of which no loop tells is no known loss, though it is more.
    assert re.search(r"speech 4\.0 38 % 88 % \S restarting 12 %", html)


def test_program_goodput_is_told_where_it_is_known(hour: datetime) -> None:
    html = opened(client_of(Role.VIEWER))
    assert "Program goodput 40 % MFU of productive time, known for 67 % of it: within" in html


def test_what_waited_stands_beside_free_time_and_iterations_by_week(hour: datetime) -> None:
    html = opened(client_of(Role.VIEWER))
    assert "1.5 GPU-hours were free, and 1.0 of them wanted" in html
    assert "GpuShortage 4.0 0.5" in html
    monday = (hour - timedelta(days=hour.weekday())).date()
    assert f"vision {monday.isoformat()} 90 % 900 60 40" in html


def test_hours_without_an_account_are_said(hour: datetime) -> None:
    # Of 24, one is not over yet.
    assert "1 hour with an account, 22 without, the first at" in opened(client_of(Role.VIEWER))


def test_it_says_that_no_hour_was_accounted_for_for_long(hour: datetime) -> None:
    assert "No hour was accounted for since" not in opened(client_of(Role.VIEWER))
    AccountedHour.objects.update(hour=hour - timedelta(hours=6))
    assert "No hour was accounted for since" in opened(client_of(Role.VIEWER))


def test_ml_users_see_their_own_projects_and_no_site(hour: datetime) -> None:
    html = opened(an_ml_user("vision"))
    # Of 4 GPU-hours held and 4 that were waited for.
    said = "Goodput 75 % of 4.0 GPU-hours held · 50 % of what was asked for was held"
    assert said in html
    for foreign in ("speech", "RackPowerHeadroom", "oslo", "bergen", "silent", "were free, and"):
        assert foreign not in html


def test_an_ml_user_without_jobs_hears_of_nothing(hour: datetime) -> None:
    html = opened(an_ml_user("poetry"))
    assert "No job of your projects held a GPU" in html
    assert "vision" not in html


def test_a_range_that_is_none_is_the_usual_one(hour: datetime) -> None:
    client = client_of(Role.VIEWER)
    assert opened(client, "/goodput/?range=galaxy") == opened(client, "/goodput/?range=24h")


def test_tables_that_it_leads_to_are_there(hour: datetime) -> None:
    client = client_of(Role.VIEWER)
    for chosen, has_racks in (("24h", True), ("7d", True), ("30d", False)):
        html = html_of(client.get(f"/goodput/?range={chosen}"))
        assert ("by=rack" in html) is has_racks
        for by in ("cause", "site", "project", *(("rack", "attempt") if has_racks else ())):
            table = client.get(f"/api/v1/goodput?format=csv&by={by}&range={chosen}")
            assert table.status_code == 200


def test_the_fleet_leads_to_it() -> None:
    make_node("n1")
    snapshot.fresh()
    assert 'href="/goodput/"' in html_of(client_of(Role.VIEWER).get("/"))
