"""The account of a job is told by cause, adds up, and is for those who see the job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.directives.models import Directive
from admission.jobs.models import Attempt, Job
from fleet import snapshot
from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from policies.restrictions.models import Restriction
from telemetry.models import ReportedJob, ThrottleEvent
from telemetry.samples import JOB
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

URL = "/api/v1/jobs/llama/goodput"
EVERY_S = 10.0


@pytest.fixture
def began() -> float:
    return float(int(time.time()) - 2000)


@pytest.fixture
def job(db: None) -> Job:
    make_node("n1", gpus=2)
    snapshot.fresh()
    return make_job("llama", gpus=2, state="running")


def at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def attempt(job: Job, begun: float, ended: float, *, start_s: float = 20.0) -> Attempt:
    return make_attempt(
        job.phases.get(), {"n1": [0, 1]}, state="ended", outcome="failed",
        dispatched_at=at(begun), started_at=at(begun + start_s), ended_at=at(ended),
    )  # fmt: skip


def report(first: float, last: float, *, step: int = 0, name: str = "llama", **fields: Any) -> None:
    """Have the loop report each 10 s, one step in each of them."""
    known, _ = ReportedJob.objects.get_or_create(name=name)
    count = int((last - first) / EVERY_S) + 1
    times = [first + EVERY_S * each for each in range(count)]
    steps = [step + each for each in range(count)]
    write_samples(JOB, known.pk, times, step=steps, step_time_s=10.0, **fields)


def ask(params: Mapping[str, str] | None = None) -> dict[str, Any]:
    answer = api_client(Role.OPERATOR).get(URL, params or {})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def causes(found: Mapping[str, Any]) -> dict[str, float]:
    return {each["cause"]: each["gpu_s"] for each in found["causes"]}


def test_a_job_that_never_held_a_gpu_has_an_empty_account(job: Job) -> None:
    found = ask()
    assert (found["gpu_s"], found["goodput"], found["attempts"]) == (0.0, None, [])


def test_what_a_job_waited_for_is_told_by_reason_and_at_its_price(db: None, settings: Any) -> None:
    now = timezone.now()
    make_job("mistral", gpus=8, waited=timedelta(hours=1))
    job = make_job("llama", gpus=2, waited=timedelta(hours=1))
    job.phases.update(reason="GpuShortage", reason_since=now - timedelta(minutes=45))
    untold, short = sorted(ask()["waiting"], key=lambda each: str(each["reason"]))
    assert (untold["reason"], short["reason"]) == ("", "GpuShortage")
    assert untold["demand_gpu_s"] == pytest.approx(2 * 900.0, abs=60.0)
    assert short["demand_gpu_s"] == pytest.approx(2 * 2700.0, abs=60.0)
    assert (untold["money"], short["money"]) == (None, None)
    settings.ENERGY_WAITING_GPU_HOUR = 2.0
    most, _ = ask()["waiting"]
    assert most["money"] == pytest.approx(3.0, abs=0.05)


def test_of_a_job_that_began_the_wait_before_is_told(job: Job, began: float) -> None:
    Job.objects.update(submitted_at=at(began - 100.0))
    job.phases.update(queued_at=at(began - 100.0))
    attempt(job, began, began + 540.0)
    (wait,) = ask({"from": str(began), "to": str(began + 60.0)})["waiting"]
    assert wait["demand_gpu_s"] == pytest.approx(200.0)


def test_what_the_loop_tells_is_told_by_cause(job: Job, began: float) -> None:
    attempt(job, began, began + 540.0)
    report(began + 40.0, began + 540.0, data_wait_s=1.0, sync_s=1.8, lost_share=0.2)
    found = ask()
    # 500 s of two GPUs: a fifth outside of steps, a tenth and 18 % of the rest waiting.
    assert causes(found) == pytest.approx(
        {"productive": 576.0, "outside_steps": 200.0, "synchronization": 144.0,
         "data_wait": 80.0, "starting": 80.0}, abs=1e-3
    )  # fmt: skip
    assert found["gpu_s"] == pytest.approx(1080.0)
    assert found["goodput"] == pytest.approx(576.0 / 1080.0)
    assert found["cannot_tell"] == []
    assert found["causes"][1]["lever"].startswith("save beside the training")


def test_program_goodput_is_known_of_what_states_its_flops_alone(job: Job, began: float) -> None:
    attempt(job, began, began + 1000.0)
    report(began + 100.0, began + 900.0, data_wait_s=5.0)
    assert ask()["program_goodput"] is None
    # 10 s of two GPUs of 989.4 TFLOP/s, of which half is a wait for data.
    job.spec["phases"][0]["flops_per_step"] = 0.15 * 2 * 10.0 * 989.4e12
    job.save(update_fields=["spec"])
    found = ask()
    assert found["program_goodput"] == pytest.approx(0.3, rel=0.02)
    assert found["program_known"] == pytest.approx(1.0)
    assert found["attempts"][0]["program_goodput"] == found["program_goodput"]
    job.spec["phases"][0]["flops_per_step"] = 1e20
    job.save(update_fields=["spec"])
    assert "is not that of its steps" in ask()["program_verdict"]


def test_flops_that_a_loop_tells_count_where_the_specification_states_none(
    job: Job, began: float
) -> None:
    attempt(job, began, began + 1000.0)
    flop = 0.15 * 2 * 10.0 * 989.4e12
    report(began + 100.0, began + 900.0, data_wait_s=5.0, flops_per_step=flop)
    assert ask()["program_goodput"] == pytest.approx(0.3, rel=0.02)
    job.spec["phases"][0]["flops_per_step"] = 2 * flop
    job.save(update_fields=["spec"])
    assert ask()["program_goodput"] == pytest.approx(0.6, rel=0.02)


def test_steps_that_are_made_again_are_not_productive(job: Job, began: float) -> None:
    attempt(job, began, began + 220.0)
    attempt(job, began + 300.0, began + 640.0)
    # The job holds nothing for 80 s in between.
    report(began + 20.0, began + 220.0)  # steps 0 to 20
    report(began + 340.0, began + 640.0, step=11)  # 10 of them again
    # 200 s of the first; of 300 s of the second those to step 20, the first report not counted
    expected = {"productive": 820.0, "repeated": 180.0, "restarting": 80.0, "starting": 40.0}
    assert causes(ask()) == pytest.approx(expected, abs=1e-3)
    # Asked for the second alone, what the first had reached is known all the same.
    later = ask({"from": str(began + 290.0), "to": str(began + 700.0)})
    assert causes(later)["repeated"] == pytest.approx(180.0, abs=1e-3)


def test_a_pause_and_throttling_are_told_without_the_loop(job: Job, began: float) -> None:
    row = attempt(job, began, began + 420.0)
    Directive.objects.create(
        attempt=row, kind="pause", owner="response", cause="A", reason="hot", state="verdict",
        issued_at=at(began), expires_at=at(began + 900), applied_at=at(began + 320.0),
        undone_at=at(began + 370.0),
    )  # fmt: skip
    gpu = Gpu.objects.get(node__name="n1", index=1)
    ThrottleEvent.objects.create(
        gpu=gpu, cause=ThrottleCause.HW_THERMAL, opened_at=at(began + 100.0),
        updated_at=at(began + 200.0), closed_at=at(began + 200.0), usual_mhz=1000.0,
        lost_mhz_s=25_000.0,
    )  # fmt: skip
    found = ask()
    assert causes(found) == pytest.approx(
        {"unknown": 675.0, "paused": 100.0, "starting": 40.0,
         "throttled_hw_thermal_unexpected": 25.0}, abs=1e-3
    )  # fmt: skip
    assert found["goodput"] is None
    assert "productive" in found["cannot_tell"]
    assert sum(causes(found).values()) == pytest.approx(found["gpu_s"])


def test_reports_count_for_no_attempt_that_ran_beside_another(job: Job, began: float) -> None:
    row = attempt(job, began, began + 320.0)
    other = make_job("other", phases={"eval": ()}, state="running").phases.get()
    other.job, other.index = job, 1
    other.save()
    make_attempt(
        other, {"n1": [0]}, state="ended", dispatched_at=row.dispatched_at,
        started_at=row.started_at, ended_at=row.ended_at,
    )  # fmt: skip
    report(began + 20.0, began + 320.0)
    assert set(causes(ask())) == {"unknown", "starting"}


@pytest.mark.parametrize("name", ["llama", "llama/train", "llama/train/1"])
def test_a_loop_may_report_as_its_job_its_phase_or_its_attempt(
    job: Job, began: float, name: str
) -> None:
    attempt(job, began, began + 220.0)
    report(began + 20.0, began + 220.0, name=name)
    assert causes(ask()) == pytest.approx({"productive": 400.0, "starting": 40.0}, abs=1e-3)


def test_throttling_under_a_restriction_of_ours_is_capped(job: Job, began: float) -> None:
    row = attempt(job, began, began + 220.0)
    Attempt.objects.filter(pk=row.pk).update(placement=row.placement | {"power_cap_w": None})
    report(began + 20.0, began + 220.0)
    Restriction.objects.create(
        kind="power_cap_w", scope_kind="node", scope_name="n1", value=500.0, reason="feed",
        owner="user:ada", cause="x", state="in_force", issued_at=at(began),
        effect_at=at(began + 100.0), expires_at=at(began + 9000.0),
    )  # fmt: skip
    ThrottleEvent.objects.create(
        gpu=Gpu.objects.get(node__name="n1", index=1), cause=ThrottleCause.SW_POWER_CAP,
        expected=True, opened_at=at(began + 20.0), updated_at=at(began + 220.0),
        closed_at=at(began + 220.0), usual_mhz=1000.0, lost_mhz_s=50_000.0,
    )  # fmt: skip
    # A quarter of the time of one GPU: for 80 s before the cap, and for 120 s under it.
    found = causes(ask())
    assert found["throttled_sw_power_cap_expected"] == pytest.approx(20.0, abs=1e-3)
    assert found["capped"] == pytest.approx(30.0, abs=1e-3)


def test_whoever_is_of_its_project_sees_it(job: Job, began: float) -> None:
    attempt(job, began, began + 100.0)
    ada = make_user(Role.ML_USER, username="ada")
    ada.projects.add(job.project)
    answer = Client(headers=bearer(make_token(ada))).get(URL)
    assert answer.json()["gpu_s"] == pytest.approx(200.0)


def test_a_job_of_another_project_is_not_there(job: Job, began: float) -> None:
    attempt(job, began, began + 100.0)
    assert api_client(Role.ML_USER).get(URL).status_code == 404


def test_a_wrong_span_is_named(job: Job, began: float) -> None:
    attempt(job, began, began + 100.0)
    answer = api_client(Role.OPERATOR).get(URL, {"range": "soon"})
    assert answer.status_code == 400
    assert "range" in str(answer.json())
