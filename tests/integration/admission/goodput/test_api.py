"""The account of the fleet is told by what is asked for, to each only what they may know of."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.test import Client
from prometheus_client import REGISTRY, generate_latest

from accounts.roles import Role
from admission.core.fleet_account import CAUSES
from admission.energy import actions
from admission.executors.schedulers.models import Scheduler, SchedulerJob
from admission.goodput import hours, summing
from admission.goodput.models import AccountedHour
from admission.jobs.models import Attempt, Job
from fleet.models import Site
from tests.builders.accounted import HOUR, NOW, again, at, job_since, make_hour
from tests.builders.accounts import api_client, bearer, make_token, make_user

pytestmark = pytest.mark.django_db

URL = "/api/v1/goodput"
SPAN = {"from": str(HOUR), "to": str(HOUR + 3600.0)}


@pytest.fixture(scope="module")
def jobs(module_db: None) -> tuple[Job, Job]:
    return make_hour()


@pytest.fixture
def ada(jobs: tuple[Job, Job]) -> Client:
    """A member of vision, who sees no other project."""
    user = make_user(Role.ML_USER, username="ada")
    user.projects.add(jobs[0].project)
    return Client(headers=bearer(make_token(user)))


def ask(client: Any = None, **params: str) -> dict[str, Any]:
    answer = (client or api_client(Role.OPERATOR)).get(URL, {**SPAN, **params})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def lines(client: Any = None, **params: str) -> list[dict[str, str]]:
    given = {**SPAN, "format": "csv", **params}
    answer = (client or api_client(Role.OPERATOR)).get(URL, given)
    assert answer["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def by_key(found: dict[str, Any], name: str) -> dict[Any, float]:
    return {each["key"][name]: each["gpu_s"] for each in found["groups"]}


def test_the_fleet_has_scheduling_times_runtime_goodput(jobs: tuple[Job, Job]) -> None:
    found = ask()
    assert (found["gpu_s"], found["held_gpu_s"]) == (14_400.0, 10_800.0)
    assert found["scheduling_goodput"] == 0.75
    assert found["runtime_goodput"] == pytest.approx(6480.0 / 10_800.0)
    assert found["fleet_goodput"] == pytest.approx(6480.0 / 14_400.0)
    assert found["goodput_at_most"] == pytest.approx((6480.0 + 1790.0) / 10_800.0)
    assert sum(each["gpu_s"] for each in found["causes"]) == pytest.approx(14_400.0)
    assert (found["hours"], found["missing_hours"]) == (1, 0)


def test_causes_say_what_brings_them_back_and_their_name_elsewhere(jobs: tuple[Job, Job]) -> None:
    causes = {each["cause"]: each for each in ask()["causes"]}
    assert causes["data_wait"]["badput"] == "data_loading_sync"
    assert causes["free"]["lever"].startswith("see what the queue waits for")
    assert causes["productive"]["lever"] == ""


@pytest.mark.parametrize(
    ("by", "name", "expected"),
    [
        ("project", "project", {"vision": 7200.0, "speech": 3600.0, "": 3600.0}),
        ("rack", "rack", {"A01": 7200.0, "A02": 7200.0}),
        ("site", "site", {"oslo": 14_400.0}),
        ("class", "class", {"high-density-training": 10_800.0, "": 3600.0}),
        ("phase", "phase", {"train": 10_800.0, "": 3600.0}),
        ("hour", "hour", {HOUR: 14_400.0}),
    ],
)
def test_sums_are_kept_apart_by_what_is_asked_for(
    jobs: tuple[Job, Job], by: str, name: str, expected: dict[Any, float]
) -> None:
    assert by_key(ask(by=by), name) == expected


def test_one_project_site_or_rack_may_be_asked_for_alone(jobs: tuple[Job, Job]) -> None:
    assert ask(project="speech")["gpu_s"] == 3600.0
    assert ask(site="oslo", rack="A01")["gpu_s"] == 7200.0
    assert ask(site="bergen")["gpu_s"] == 0.0
    # Of a project scheduling is of what it held or waited for.
    assert ask(project="speech")["scheduling_goodput"] == 1.0


def test_whole_days_are_told_as_the_hours_in_them_are(jobs: tuple[Job, Job]) -> None:
    day = {"from": str(HOUR // 86_400 * 86_400), "to": str((HOUR // 86_400 + 1) * 86_400)}
    by_day, by_hour = ask(by="project", **day), ask(by="project")
    assert by_key(by_day, "project") == by_key(by_hour, "project")
    assert by_day["missing_hours"] == 23
    assert by_day["first_missing"] == float(day["from"])


def test_an_hour_without_an_account_is_said(jobs: tuple[Job, Job]) -> None:
    AccountedHour.objects.all().delete()
    found = ask()
    assert (found["hours"], found["missing_hours"], found["first_missing"]) == (0, 1, HOUR)


def test_an_ml_user_hears_of_the_own_projects_alone(ada: Client) -> None:
    for by in ("project", "class", "phase", "site", "rack", "hour", "attempt", "cause"):
        found = ask(ada, by=by)
        assert found["gpu_s"] == found["held_gpu_s"] == 7200.0
        assert "speech" not in str(found)
    assert ask(ada, project="speech")["gpu_s"] == ask(ada, project="nobody")["gpu_s"] == 0.0
    assert [each["job"] for each in lines(ada, by="attempt")] == ["llama"]


def test_what_waits_is_told_of_the_own_projects_alone(ada: Client) -> None:
    job_since(600.0, "gpt", project="speech", gpus=2).phases.update(
        queued_at=at(600.0), reason_since=at(600.0)
    )
    job_since(1800.0, "clip", gpus=1).phases.update(queued_at=at(1800.0), reason_since=at(1800.0))
    again()
    assert ask()["waiting"][0]["demand_gpu_s"] == pytest.approx(2 * 3000.0 + 1800.0, abs=0.01)
    (mine,) = ask(ada)["waiting"]
    assert mine["demand_gpu_s"] == pytest.approx(1800.0, abs=0.01)
    assert 0.0 < mine["wanted_gpu_s"] <= 1800.0


def test_iterations_are_told_by_project_and_week(jobs: tuple[Job, Job], ada: Client) -> None:
    (found,) = ask(ada, by="project")["iterations"]
    assert (found["project"], found["week"]) == ("vision", "2026-11-16")
    assert found["moved"] == pytest.approx(180.0, abs=3.0)
    assert found["index"] == 1.0


def test_a_table_of_attempts_joins_to_sacct(jobs: tuple[Job, Job]) -> None:
    scheduler = Scheduler.objects.create(
        name="slurm-a", kind="slurm", agent_id=1, when_away="hold", seen_at=at(0)
    )
    SchedulerJob.objects.create(
        scheduler=scheduler, ref="4711", name="llama", state="running", restarts=0, told={},
        told_at=at(0),
    )  # fmt: skip
    Attempt.objects.filter(phase__job__name="llama").update(executor="slurm-a")
    rows = {row["job"]: row for row in lines(by="attempt")}
    assert set(rows) == {"llama", "bert"}
    llama = rows["llama"]
    assert (llama["scheduler"], llama["scheduler_job_id"]) == ("slurm-a", "4711")
    assert (llama["phase"], llama["attempt"], llama["project"]) == ("train", "1", "vision")
    assert float(llama["productive"]) == 6480.0
    assert sum(float(llama[cause]) for cause in CAUSES) == float(llama["gpu_s"]) == 7200.0
    assert rows["bert"]["scheduler_job_id"] == ""


def test_a_table_by_hour_has_its_time(jobs: tuple[Job, Job]) -> None:
    (row,) = lines(by="hour")
    assert row["hour"] == "2026-11-19T14:00:00Z"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"by": "moon"}, "by"),
        ({"projects": "vision"}, "projects"),
        ({"from": "yesterday"}, "from"),
        ({"from": str(HOUR - 40 * 86_400.0), "by": "rack"}, "from"),
        ({"from": str(HOUR - 40 * 86_400.0), "by": "rack", "project": "vision"}, "from"),
    ],
)
def test_what_is_wrong_is_named(jobs: tuple[Job, Job], params: dict[str, str], field: str) -> None:
    answer = api_client(Role.OPERATOR).get(URL, {**SPAN, **params})
    assert answer.status_code == 400
    assert field in str(answer.json())
    table = api_client(Role.OPERATOR).get(URL, {**SPAN, **params, "format": "csv"})
    assert table.status_code == 400
    assert field in table.content.decode()


def test_who_is_not_known_hears_nothing(jobs: tuple[Job, Job]) -> None:
    assert Client().get(URL, SPAN).status_code in (401, 403)


def test_a_month_takes_as_many_queries_as_an_hour(
    jobs: tuple[Job, Job], django_assert_max_num_queries: Any
) -> None:
    asked = summing.Asked(int(HOUR) - 31 * 86_400 + 7200, int(HOUR) + 3600, summing.By.PROJECT)
    with django_assert_max_num_queries(7):
        found = summing.add_up(asked, NOW)
    assert int(found.us.sum()) == 4 * 3600 * 1_000_000


@pytest.fixture
def shown(jobs: tuple[Job, Job]) -> str:
    hours.compute(HOUR, NOW)
    return generate_latest(REGISTRY).decode()


def test_the_last_hour_is_a_metric_with_a_series_for_each_cause(shown: str) -> None:
    assert 'headroom_gpu_time_ratio{cause="free"} 0.20833' in shown
    assert 'headroom_goodput_ratio{kind="scheduling"} 0.75' in shown
    assert shown.count("headroom_gpu_time_ratio{") == len(CAUSES)


def test_lost_time_comes_to_the_price_of_gpu_hours_that_held_then(
    jobs: tuple[Job, Job], settings: Any
) -> None:
    assert ask()["money"] is None
    assert ask()["price_known"] == 0.0
    settings.ENERGY_WAITING_GPU_HOUR = 0.5
    user, site = make_user(Role.OPERATOR), Site.objects.get(name="oslo")
    for since_s, price in ((-7200.0, 2.0), (3600.0, 9.0)):
        actions.make_tariff(user, site, at(since_s), {"gpu_hour": price}, now=at(0.0))
    found = ask()
    assert (found["money"], found["price_known"]) == (pytest.approx(8.0), 1.0)
    for each in found["causes"]:
        assert each["money"] == pytest.approx(each["gpu_s"] / 3600.0 * 2.0)
    by_project = {each["key"]["project"]: each["money"] for each in ask(by="project")["groups"]}
    assert by_project == pytest.approx({"vision": 4.0, "speech": 2.0, "": 2.0})
    # Of the day the price changes within: by the day it is not known.
    day = {"from": str(HOUR // 86_400 * 86_400), "to": str((HOUR // 86_400 + 1) * 86_400)}
    assert ask(**day)["gpu_s"] == 14_400.0
    assert ask(**day)["price_known"] == 0.0
    assert ask(by="hour", **day)["money"] == pytest.approx(8.0)
