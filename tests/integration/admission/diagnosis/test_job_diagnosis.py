"""From a waiting, failed or slow job to what binds it, with the arithmetic and its evidence."""

from __future__ import annotations

import time
from typing import Any

import pytest

from accounts.roles import Role
from admission.jobs.models import Attempt
from telemetry.models import ReportedJob
from telemetry.samples import JOB
from tests.builders.accounts import api_client, client_of
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import write_samples
from tests.html import html_of
from tests.integration.admission.failures.scenes import at, end_job, two_nodes, xid

pytestmark = pytest.mark.django_db

URL = "/api/v1/jobs/llama/diagnosis"


@pytest.fixture(autouse=True)
def nodes(db: None) -> None:
    two_nodes()


def ask(role: Role = Role.OPERATOR) -> dict[str, Any]:
    answer = api_client(role).get(URL)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def constraints(found: dict[str, Any]) -> list[str]:
    return [each["constraint"] for each in found["found"]]


def runs(*, saves_every_s: float | None = 600.0, reports: bool = True, **told: float) -> Attempt:
    """Have a job of two GPUs run for an hour, and report each 10 s."""
    asks = {"checkpoint_interval_s": saves_every_s, "walltime_s": 240 * 3600.0}
    job = make_job("llama", gpus=2, state="running", asks=asks)
    row = make_attempt(
        job.phases.get(), {"n1": [0, 1]}, dispatched_at=at(1.0), started_at=at(1.0)
    )  # fmt: skip
    if reports:
        known = ReportedJob.objects.create(name="llama")
        times = [time.time() - 3590.0 + 10.0 * each for each in range(359)]
        steps = list(range(len(times)))
        write_samples(JOB, known.pk, times, step=steps, step_time_s=10.0, **told)
    return row


def test_a_job_that_held_nothing_says_what_it_cannot_tell() -> None:
    make_job("llama", gpus=2)
    found = ask()
    assert found["found"] == []
    said = " · ".join(found["cannot_tell"])
    assert "where its time goes: it has held no GPU yet" in said
    assert "why train waits: no cycle has looked at it" in said
    assert "train: what a save takes: it has not begun" in said


def test_a_planned_job_is_told_how_many_failures_it_meets() -> None:
    # 960 GPU-hours with two failures; two GPUs for 480 h are as many.
    xid("n1", 79, 30.0)
    xid("n2", 79, 60.0)
    make_job("llama", gpus=2, asks={"walltime_s": 480 * 3600.0})
    (outlook,) = ask()["outlook"]
    assert outlook["forecast"]["expected"] == pytest.approx(2.0, rel=1e-3)
    assert outlook["forecast"]["expected_upper"] == pytest.approx(7.22, abs=0.01)
    assert (outlook["basis"], outlook["failures_seen"]) == ("all GPUs", 2)
    assert outlook["checkpoint"] is None


def test_a_job_that_a_gpu_ended_is_told_which_and_on_what_that_rests() -> None:
    xid("n1", 48, 5.0, gpu=1)
    end_job("llama", 5.0, "failed", why="n1: exit code 1")
    found = ask()
    assert constraints(found)[0] == "failure_hardware"
    assert found["found"][0]["verdict"] == ("attempt 1 of train failed: hardware, gpu memory")
    assert found["evidence"][0] == "Xid 48: Uncorrectable memory error"


def test_a_job_that_failed_by_itself_is_sent_to_its_output() -> None:
    end_job("llama", 5.0, "failed", why="n1: exit code 1")
    found = ask()
    assert constraints(found)[0] == "failure_software"
    assert "headroom logs" in found["found"][0]["lever"]


def test_a_slow_job_is_told_its_largest_loss_with_the_arithmetic() -> None:
    runs(sync_s=3.0, data_wait_s=0.5, lost_share=0.1)
    first = ask()["found"][0]
    assert first["constraint"] == "synchronization"
    assert first["verdict"].startswith("synchronization takes 2")
    assert first["lever"] == "look at the slowest rank, and at the links between the nodes"
    assert any(each.startswith("speed without synchronization = 1 / (1 - lost)")
               for each in first["steps"])  # fmt: skip


def test_a_job_whose_loop_tells_nothing_is_told_that() -> None:
    runs(reports=False)
    found = ask()
    assert constraints(found) == ["unknown"]
    assert any("its loop has not told" in each for each in found["cannot_tell"])
    assert any("tells of no time outside of steps" in each for each in found["cannot_tell"])


def test_saves_that_are_too_frequent_are_told_with_what_less_of_them_brings() -> None:
    xid("n1", 79, 30.0)
    xid("n2", 79, 60.0)
    runs(saves_every_s=600.0, lost_share=0.2, sync_s=0.0)
    (outlook,) = ask()["outlook"]
    advice = outlook["checkpoint"]
    # A fifth of 600 s; a failure in 240 h of its two GPUs.
    assert advice["save_s"] == pytest.approx(120.0, rel=0.01)
    assert advice["mtbf_s"] == pytest.approx(240 * 3600.0, rel=1e-3)
    assert advice["best_s"] == pytest.approx((2 * 120.0 * 240 * 3600.0) ** 0.5, rel=0.02)
    assert advice["change"] == "longer"
    assert 0.15 < advice["gain"] < 0.2
    assert "save less often, for" in outlook["sentences"][1]
    assert "failures_rework" in constraints(ask()) or "failures_checkpoint" in constraints(ask())


def test_without_a_failure_advice_is_only_what_is_sure() -> None:
    runs(saves_every_s=60.0, lost_share=0.5, sync_s=0.0)
    (outlook,) = ask()["outlook"]
    assert (outlook["checkpoint"]["best_s"], outlook["checkpoint"]["change"]) == (None, "longer")
    assert "since no failure was seen" in outlook["sentences"][1]


def test_without_a_declared_interval_there_is_no_advice_and_it_says_why() -> None:
    runs(saves_every_s=None, lost_share=0.2)
    (outlook,) = ask()["outlook"]
    assert outlook["checkpoint"] is None
    assert outlook["missing"] == [
        "how often it saves: its specification has no checkpoint.interval_s"
    ]


def test_the_page_leads_to_it_by_one_click_and_tells_the_same() -> None:
    runs(sync_s=3.0, lost_share=0.1)
    viewer = client_of(Role.VIEWER)
    panel = "/live/jobs/llama/diagnosis"
    assert f'hx-get="{panel}"' in html_of(viewer.get("/jobs/llama/"))
    html = " ".join(html_of(viewer.get(panel)).split())
    assert "Synchronization takes 2" in html
    assert "Look at the slowest rank" in html
    assert "What cannot be told" in html


def test_the_job_of_another_project_is_not_there() -> None:
    make_job("llama", gpus=2, project="sphinx")
    assert api_client(Role.ML_USER).get(URL).status_code == 404
    assert client_of(Role.ML_USER).get("/live/jobs/llama/diagnosis").status_code == 404
