"""The page of losses says what cost most, beside its usual, and which intervention pays first."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.goodput.models import AccountedHour, HourAccount, HourWait
from admission.jobs.models import Project
from fleet import snapshot
from tests.builders.accounted import last_hour, write_account
from tests.builders.accounts import client_of, make_user
from tests.builders.baselines import write_gang_hours
from tests.builders.losses import write_hour
from tests.builders.readings import make_node
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

URL = "/goodput/losses/"
H = 3600.0


@pytest.fixture
def hot(db: None) -> None:
    """Four weeks of 1 % lost to heat, and a last day of 6 %, but for its newest hours."""
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for before in range(2, 30):
        write_hour(today - timedelta(days=before), heat=0.01)
    for before in range(23):
        write_hour(last_hour() - timedelta(hours=before), heat=0.06)


def opened(client: Client, path: str = URL) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return text_of(html_of(response))


def test_nobody_sees_it_without_logging_in(client: Client) -> None:
    assert client.get(URL).status_code == 302


def test_before_the_first_hour_has_an_account_it_says_what_it_will_show() -> None:
    html = opened(client_of(Role.VIEWER))
    assert "No hour of this time has an account" in html
    assert "What this page will show" in html


def test_what_cost_most_comes_first_and_what_pays_first_with_its_arithmetic(hot: None) -> None:
    html = opened(client_of(Role.VIEWER))
    assert "Throttling: hw_thermal cost most:" in html
    assert "6 % of what was held, usually 1 %" in html
    assert "Look at its cooling: inlet temperature, fans, coolant; have jobs avoid" in html
    # 5 points of 100 GPU-hours an hour.
    assert "840.0 GPU-hours back a week, once it is as it was in the four weeks before" in html
    assert "beyond its usual = share - median = 6 % - 1 % = 5 points" in html


def test_how_gangs_were_beside_their_normal_stands_with_what_they_lost(hot: None) -> None:
    write_gang_hours(last_hour(), *[400.0] * 8, temp_c=60.0)
    write_gang_hours(last_hour(), 300.0, causes=["throttled_hw_thermal"], temp_c=61.0)
    html = opened(client_of(Role.VIEWER))
    assert "throttling: hw_thermal power per GPU 0.75 times its normal" in html
    assert "temperature 1." not in html


def test_a_loss_as_great_as_ever_says_that_its_gain_is_not_known(hot: None) -> None:
    html = opened(client_of(Role.VIEWER))
    assert re.search(r"restarting [0-9.]+ 4 % 4 % not known; at most 672\.0 save more often", html)


def test_where_no_gain_is_known_none_is_told() -> None:
    write_account(last_hour(), "vision", productive=0.5 * H, capped=H, paused=H)
    write_account(last_hour(), "speech", productive=0.5 * H, paused=H)
    html = opened(client_of(Role.VIEWER))
    assert "No gain is known" in html
    assert "Caps and pauses of ours cost most: 3.0 GPU-hours, 75 % of what was held" in html
    assert "paused 2.0 GPU-hours capped 1.0 GPU-hours by vision 67 %, speech 33 %" in html


def test_what_waited_is_ranked_by_free_time_and_says_all_that_was_waited_for() -> None:
    hour = last_hour()
    write_account(hour, "vision", productive=H)
    write_account(hour, free=H)
    HourWait.objects.create(
        hour=hour, project="vision", job_class="batch", reason="QuotaExceeded",
        demand_us=int(9 * H * 1e6), wanted_us=int(0.5 * H * 1e6),
    )  # fmt: skip
    html = opened(client_of(Role.VIEWER))
    assert "Waiting: quotaexceeded" not in html
    assert "Waiting: QuotaExceeded cost most: 0.5 GPU-hours, 25 % of all GPU time" in html
    assert "of 9.0 GPU-hours waited for" in html
    assert "Not ranked nobody knows whether it was lost" in html


def test_another_order_and_another_range_keep_what_is_asked_for(hot: None) -> None:
    html = html_of(client_of(Role.VIEWER).get(f"{URL}?project=vision&rank=money&range=7d"))
    assert 'href="?range=24h&amp;project=vision&amp;rank=money"' in html
    assert 'href="?range=7d&amp;project=vision&amp;rank=kwh"' in html
    assert "of <b>vision</b>" in html
    assert "<script>" not in html_of(client_of(Role.VIEWER).get(f"{URL}?site=<script>"))


def test_what_is_no_order_and_no_range_is_the_usual_one(hot: None) -> None:
    client = client_of(Role.VIEWER)
    assert opened(client, f"{URL}?rank=moon&range=galaxy") == opened(client)


def test_it_says_that_no_hour_was_accounted_for_for_long(hot: None) -> None:
    assert "No hour was accounted for since" not in opened(client_of(Role.VIEWER))
    AccountedHour.objects.filter(hour__gt=last_hour() - timedelta(hours=6)).delete()
    assert "No hour was accounted for since" in opened(client_of(Role.VIEWER))


def test_an_ml_user_sees_the_losses_of_the_own_projects_alone(hot: None) -> None:
    write_account(last_hour(), "speech", "bergen", idle=9e3 * H)
    HourAccount.objects.filter(project="speech").update(attempt_id=2)
    user = make_user(Role.ML_USER)
    Project.objects.get_or_create(name="vision")[0].members.add(user)
    client = Client()
    client.force_login(user)
    for path in (URL, f"{URL}?project=speech", f"{URL}?site=bergen"):
        assert "held but idle" not in opened(client, path)
    assert "Throttling: hw_thermal cost most" in opened(client)
    assert "Held but idle cost most" in opened(client_of(Role.VIEWER))


def test_goodput_projects_and_sites_lead_to_it() -> None:
    make_node("n1")
    snapshot.fresh()
    Project.objects.get_or_create(name="vision")
    client = client_of(Role.OPERATOR)
    assert 'href="/goodput/losses/?range=24h"' in html_of(client.get("/goodput/"))
    assert 'href="/goodput/losses/?project=vision"' in html_of(client.get("/projects/vision/"))
    assert 'href="/goodput/losses/?site=oslo"' in html_of(client.get("/conditions/oslo/"))
