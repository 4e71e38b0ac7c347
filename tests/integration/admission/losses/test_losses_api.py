"""The report of losses ranks what cost most, to each of what they may know, and invents no gain."""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.core.energy.rates import MJ_PER_KWH
from admission.core.losses import WEEK_H
from admission.energy import actions
from admission.energy.models import ProjectHour, SiteHour
from admission.goodput.models import HourAccount, HourWait
from admission.jobs.models import Project
from fleet.models import Site
from tests.builders.accounted import last_hour, write_account
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.baselines import write_gang_hours
from tests.builders.jobs import make_attempt, make_job
from tests.builders.losses import DAY_H, HELD_GPU_H, bad_day, day_after, make_month
from tests.builders.readings import make_node
from tests.integration.admission.failures.scenes import two_nodes, xid

pytestmark = pytest.mark.django_db

URL = "/api/v1/losses"
H = 3600.0
HEAT = "throttled_hw_thermal"


def ask(client: Any = None, **params: str) -> dict[str, Any]:
    answer = (client or api_client(Role.OPERATOR)).get(URL, params)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def day(start: datetime) -> dict[str, str]:
    end = start + timedelta(hours=DAY_H)
    return {"from": str(start.timestamp()), "to": str(end.timestamp())}


def of(found: dict[str, Any], loss: str, reason: str = "") -> dict[str, Any]:
    (line,) = (e for e in found["losses"] if (e["loss"], e["reason"]) == (loss, reason))
    known: dict[str, Any] = line
    return known


def an_ml_user(*projects: str) -> Client:
    user = make_user(Role.ML_USER)
    for name in projects:
        Project.objects.get_or_create(name=name)[0].members.add(user)
    return Client(headers=bearer(make_token(user)))


# --- What cost most ------------------------------------------------------------------------------


@pytest.fixture
def hour(db: None) -> datetime:
    """An hour in which two projects at two sites held 20 GPU-hours, and nobody 6."""
    at = last_hour()
    write_account(at, "vision", productive=5 * H, synchronization=2 * H, capped=H, paused=2 * H)
    write_account(
        at, "speech", "bergen", productive=4 * H, busy=H, repeated=H, restarting=1.5 * H,
        throttled_sw_thermal_expected=0.5 * H, throttled_sw_thermal_unexpected=H, idle=H,
    )  # fmt: skip
    HourAccount.objects.filter(project="speech").update(attempt_id=2)
    write_account(at, free=3 * H, silent=2 * H, drained=H)
    for project, reason, wanted in (
        ("vision", "TopologyUnsatisfiable", 1.75), ("speech", "GpuShortage", 0.0)
    ):  # fmt: skip
        HourWait.objects.create(
            hour=at, project=project, job_class="batch", reason=reason,
            demand_us=int(40 * H * 1e6), wanted_us=int(wanted * H * 1e6),
        )  # fmt: skip
    return at


def test_what_cost_most_stands_first_with_every_cause_in_its_place(hour: datetime) -> None:
    found = ask(range="24h")
    assert [(each["loss"], each["reason"], each["gpu_h"]) for each in found["losses"]] == [
        ("caps", "", 3.0), ("failures", "", 2.5), ("network", "", 2.0), ("silent", "", 2.0),
        ("waiting", "TopologyUnsatisfiable", 1.75), ("throttled_sw_thermal", "", 1.5),
        ("drained", "", 1.0), ("idle", "", 1.0), ("waiting", "GpuShortage", 0.0),
    ]  # fmt: skip
    assert (found["gpu_h"], found["held_gpu_h"]) == (26.0, 20.0)
    caps = of(found, "caps")
    assert caps["causes"] == [{"cause": "paused", "gpu_h": 2.0}, {"cause": "capped", "gpu_h": 1.0}]
    assert caps["lever"].startswith("find the limit that pauses the job")
    assert caps["share"] == pytest.approx(3.0 / 20.0)
    assert of(found, "silent")["share"] == pytest.approx(2.0 / 26.0)
    assert caps["most_gpu_h_week"] == pytest.approx(3.0 * WEEK_H)


def test_a_loss_says_where_and_whose_most_of_it_was(hour: datetime) -> None:
    write_account(hour, "speech", "bergen", paused=5 * H)
    caps = of(ask(range="24h"), "caps")
    assert caps["sites"] == [{"name": "bergen", "gpu_h": 5.0}, {"name": "oslo", "gpu_h": 3.0}]
    assert caps["projects"] == [{"name": "speech", "gpu_h": 5.0}, {"name": "vision", "gpu_h": 3.0}]
    silent = of(ask(range="24h"), "silent")
    assert (silent["sites"], silent["projects"]) == ([{"name": "oslo", "gpu_h": 2.0}], [])
    mine = of(ask(an_ml_user("vision"), range="24h"), "caps")
    assert mine["projects"] == [{"name": "vision", "gpu_h": 3.0}]


def test_what_gangs_were_like_under_a_loss_stands_beside_their_normal(hour: datetime) -> None:
    write_gang_hours(hour, *[400.0] * 8, temp_c=60.0)
    write_gang_hours(hour, 300.0, 320.0, causes=["throttled_sw_thermal"], temp_c=75.0)
    write_gang_hours(hour, 200.0, causes=["capped"])
    # Of another phase nothing normal is known, and it is not held against this one's.
    write_gang_hours(hour, 90.0, phase="eval", causes=["throttled_sw_thermal"])
    found = ask(range="24h")
    assert of(found, "throttled_sw_thermal")["degraded"] == [
        {"metric": "power_w", "ratio": pytest.approx(0.775), "hours": 2},
        {"metric": "temp_c", "ratio": pytest.approx(1.25), "hours": 2},
    ]
    assert of(found, "caps")["degraded"][0]["ratio"] == pytest.approx(0.5)
    assert of(found, "failures")["degraded"] == []
    assert of(ask(an_ml_user("speech"), range="24h"), "throttled_sw_thermal")["degraded"] == []


def test_losses_and_what_is_not_ranked_are_all_that_was_not_productive(hour: datetime) -> None:
    found = ask(range="24h")
    lost = sum(each["gpu_h"] for each in found["losses"])
    rest = {each["cause"]: each["gpu_h"] for each in found["not_ranked"]}
    # Of what was free, what somebody waited for is ranked.
    assert rest == {"free": 1.25, "busy": 1.0}
    assert lost + sum(rest.values()) + 9.0 == pytest.approx(found["gpu_h"])


def test_no_gain_is_told_where_none_is_known(hour: datetime) -> None:
    found = ask(range="24h")
    assert found["first"] is None
    assert {each["gain"] for each in found["losses"]} == {None}
    assert {each["usual"] for each in found["losses"]} == {None}


def test_one_project_or_one_site_may_be_asked_for_alone(hour: datetime) -> None:
    vision = ask(range="24h", project="vision")
    assert {each["loss"] for each in vision["losses"]} == {"caps", "network", "waiting"}
    bergen = ask(range="24h", site="bergen")
    assert "waiting" not in {each["loss"] for each in bergen["losses"]}
    assert any("without a place" in each for each in bergen["cannot_tell"])


def test_waits_of_gangs_at_several_sites_are_told_apart(hour: datetime) -> None:
    assert of(ask(range="24h"), "network")["across_sites_gpu_h"] == 0.0
    write_account(hour, "vision", "bergen", synchronization=H)
    found = of(ask(range="24h"), "network")
    assert (found["gpu_h"], found["across_sites_gpu_h"]) == (3.0, 3.0)
    alone = of(ask(range="24h", site="bergen"), "network")
    assert (alone["gpu_h"], alone["across_sites_gpu_h"]) == (1.0, 1.0)


def test_of_a_month_gangs_at_several_sites_are_not_known_and_it_says_so(hour: datetime) -> None:
    found = ask(range="30d")
    assert of(found, "network")["across_sites_gpu_h"] is None
    assert any("several sites" in each for each in found["cannot_tell"])


# --- What it comes to ----------------------------------------------------------------------------


def test_it_comes_to_energy_by_time_and_to_the_price_of_gpu_hours_and_energy(
    hour: datetime, settings: Any
) -> None:
    make_node("n1")
    user, site = make_user(Role.OPERATOR), Site.objects.get(name="oslo")
    before = hour - timedelta(hours=1)
    actions.make_tariff(user, site, before, {"gpu_hour": 2.0}, now=timezone.now())
    settings.ENERGY_WAITING_GPU_HOUR = 0.5
    SiteHour.objects.create(
        hour=hour, site="oslo", jobs_mj=9 * MJ_PER_KWH, idle_mj=0, unmanaged_mj=0, residual_mj=0,
        bridged_mj=0, gpu_ms=0, covered_ms=0, it_mj=0, overhead_mj=0, by_difference_mj=0,
        basis=SiteHour.OverheadBasis.NONE, it_metered=True, facility_metered=False,
        price_per_kwh=0.1,
    )  # fmt: skip
    ProjectHour.objects.create(
        hour=hour, site="oslo", project="vision", gpu_mj=8 * MJ_PER_KWH, host_mj=MJ_PER_KWH,
        shared_mj=0, overhead_mj=0, gpu_ms=10 * 3_600_000,
    )  # fmt: skip
    found = ask(range="24h")
    # 0.9 kWh for each of the 10 GPU-hours that jobs held at oslo.
    caps = of(found, "caps")
    assert caps["kwh"] == pytest.approx(2.7)
    assert caps["money"] == pytest.approx(3.0 * 2.0 + 2.7 * 0.1)
    # At bergen neither is known.
    assert (of(found, "idle")["kwh"], of(found, "idle")["money"]) == (None, None)
    assert found["energy_known"] == pytest.approx(0.5)
    assert found["price_known"] == pytest.approx(16.0 / 26.0)
    # Nobody held what was silent; what waited has the price that is stated for that.
    assert (of(found, "silent")["kwh"], of(found, "silent")["money"]) == (None, 4.0)
    assert of(found, "waiting", "GpuShortage")["money"] == 20.0
    assert ask(range="24h", rank="money")["losses"][0]["loss"] == "waiting"
    assert ask(range="24h", rank="kwh")["losses"][0]["loss"] == "caps"


def test_without_prices_and_energy_neither_is_told(hour: datetime) -> None:
    found = ask(range="24h")
    assert {(each["kwh"], each["money"]) for each in found["losses"]} == {(None, None)}
    assert (found["energy_known"], found["price_known"]) == (0.0, 0.0)


# --- What is usual, and what pays first ----------------------------------------------------------


def test_the_first_intervention_brings_back_what_the_account_shows_once_it_is_done(
    db: None,
) -> None:
    make_month()
    bad, after = ask(**day(bad_day())), ask(**day(day_after()))
    first = bad["first"]
    assert first["loss"] == HEAT
    assert first["usual"] == pytest.approx({"days": 28, "p10": 0.01, "p50": 0.01, "p90": 0.01})
    assert first["gain"]["basis"] == "usual"
    assert first["gain"]["lever"].startswith("look at its cooling")
    # The day after, heat takes what it always took: the account shows the gain.
    shown = of(bad, HEAT)["gpu_h"] - of(after, HEAT)["gpu_h"]
    assert shown == pytest.approx(0.05 * HELD_GPU_H * DAY_H)
    assert first["gain"]["gpu_h_week"] == pytest.approx(7.0 * shown)
    assert first["gain"]["steps"][-1].startswith("GPU-hours back a week")
    assert after["first"] is None


def test_a_loss_as_great_as_ever_has_no_gain_however_great_it_is(db: None) -> None:
    make_month()
    found = of(ask(**day(bad_day())), "failures")
    assert (found["gpu_h"], found["usual"]["p50"]) == pytest.approx((96.0, 0.04))
    assert found["gain"] is None


def test_what_is_usual_of_a_wait_is_kept_by_its_reason(db: None) -> None:
    make_month()
    for at in (bad_day() - timedelta(days=each) for each in range(29)):
        HourWait.objects.create(
            hour=at, project="vision", job_class="batch", reason="QuotaExceeded",
            demand_us=10**10, wanted_us=int(0.02 * HELD_GPU_H * H * 1e6),
        )  # fmt: skip
    usual = of(ask(**day(bad_day())), "waiting", "QuotaExceeded")["usual"]
    assert usual == pytest.approx({"days": 28, "p10": 0.02, "p50": 0.02, "p90": 0.02})


@pytest.fixture
def saving(db: None) -> None:
    """A gang of vision that saves every four hours, 60 s each, on a fleet that often fails."""
    two_nodes()
    for hours_ago in range(2, 200, 6):
        xid("n1", 79, hours_ago)
    job = make_job("llama", gpus=4, state="running", asks={"checkpoint_interval_s": 4 * H})
    attempt = make_attempt(
        job.phases.get(), {"n1": [0, 1], "n2": [0, 1]},
        started_at=timezone.now() - timedelta(days=1),
    )  # fmt: skip
    write_gang_hours(last_hour(), 400.0, 400.0, attempt_id=attempt.pk, save_s=60.0)
    write_account(last_hour(), "vision", productive=3 * H, repeated=H)


def test_gangs_that_save_too_seldom_are_told_with_the_gain_of_the_law(saving: None) -> None:
    found = ask(range="24h")
    gain = of(found, "failures")["gain"]
    assert gain["basis"] == "law"
    assert gain["lever"] == "have llama/train save more often: checkpoint.interval_s"
    assert gain["steps"][0].startswith("llama/train: every ")
    assert 0.0 < gain["gpu_h_week"] < 4 * WEEK_H
    assert found["first"]["loss"] == "failures"
    assert ask(range="24h", project="vision")["first"]["loss"] == "failures"
    assert ask(range="24h", site="bergen")["first"] is None


# --- Who may know, and what is not there ---------------------------------------------------------


def test_others_hear_neither_of_time_nor_of_gangs_that_are_not_theirs(saving: None) -> None:
    stranger = an_ml_user("speech")
    for params in ({}, {"project": "vision"}, {"site": "oslo"}):
        answer = stranger.get(URL, {"range": "24h", **params})
        assert answer.status_code == 200
        assert (answer.json()["gpu_h"], answer.json()["losses"]) == (0.0, [])
        assert "llama" not in answer.content.decode()
    assert ask(an_ml_user("vision"), range="24h")["first"]["loss"] == "failures"


def test_an_ml_user_hears_of_the_own_losses_alone(hour: datetime) -> None:
    found = ask(an_ml_user("vision"), range="24h")
    assert [each["loss"] for each in found["losses"]] == ["caps", "network", "waiting"]
    assert (found["gpu_h"], found["held_gpu_h"], found["not_ranked"]) == (10.0, 10.0, [])


def test_who_is_not_known_hears_nothing(hour: datetime) -> None:
    assert Client().get(URL).status_code in (401, 403)


def test_before_the_first_hour_there_is_nothing_and_it_says_so(db: None) -> None:
    found = ask()
    assert (found["hours"], found["newest"], found["losses"], found["first"]) == (0, None, [], None)
    assert found["missing_hours"] in (167, 168)


def test_hours_without_an_account_are_said_and_count_for_nothing(hour: datetime) -> None:
    found = ask(range="24h")
    assert (found["hours"], found["missing_hours"] in (22, 23)) == (1, True)
    assert found["newest"] == hour.timestamp()


@pytest.mark.parametrize(
    ("params", "field"),
    [({"rank": "moon"}, "rank"), ({"from": "yesterday"}, "from"), ({"rack": "A01"}, "rack")],
)
def test_what_is_wrong_is_named(db: None, params: dict[str, str], field: str) -> None:
    for more in ({}, {"format": "csv"}):
        answer = api_client(Role.OPERATOR).get(URL, {**params, **more})
        assert answer.status_code == 400
        assert field in answer.content.decode()


def test_a_table_has_a_row_for_each_loss(saving: None) -> None:
    answer = api_client(Role.OPERATOR).get(URL, {"range": "24h", "format": "csv"})
    assert answer["Content-Disposition"] == 'attachment; filename="losses.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.content.decode()))
    assert (row["loss"], row["gpu_h"], row["kwh"]) == ("failures", "1.0", "")
    assert (row["gain_basis"], row["usual_days"]) == ("law", "")
    assert row["gain_lever"].startswith("have llama/train save more often")


def test_a_month_takes_as_many_queries_as_a_day(
    hour: datetime, django_assert_max_num_queries: Any
) -> None:
    client = api_client(Role.OPERATOR)
    client.get(URL)
    for span in ("24h", "30d"):
        with django_assert_max_num_queries(28):
            client.get(URL, {"range": span})
