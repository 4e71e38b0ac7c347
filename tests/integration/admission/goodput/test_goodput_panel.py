"""The page of a job says where its time went, in the words of the account."""

from __future__ import annotations

from accounts.roles import Role
from admission.jobs.models import Job
from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from tests.builders.accounts import client_of
from tests.html import html_of
from tests.integration.admission.goodput.test_job_goodput import (
    at,
    attempt,
    began,
    job,
    pytestmark,
    report,
)

__all__ = ["began", "job", "pytestmark"]

URL = "/live/jobs/llama/goodput"


def panel(role: Role = Role.VIEWER) -> str:
    return " ".join(html_of(client_of(role).get(URL)).split())


def test_a_job_that_never_held_a_gpu_says_so(job: Job) -> None:
    assert "It has held no GPU yet." in panel()


def test_goodput_comes_first_and_what_was_lost_with_what_brings_it_back(
    job: Job, began: float
) -> None:
    attempt(job, began, began + 540.0)
    report(began + 40.0, began + 540.0, data_wait_s=1.0, sync_s=1.8, lost_share=0.2)
    html = panel()
    said = "53 % goodput of 0.30 GPU-hours; lost: 19 % outside steps, 13 % synchronization"
    assert said in html
    assert "read ahead with more workers, or from faster storage" in html
    assert "nothing: it is not lost" in html


def test_without_reports_it_says_what_nobody_can_tell(job: Job, began: float) -> None:
    attempt(job, began, began + 420.0)
    gpu = Gpu.objects.get(node__name="n1", index=1)
    ThrottleEvent.objects.create(
        gpu=gpu, cause=ThrottleCause.HW_THERMAL, opened_at=at(began + 100.0),
        updated_at=at(began + 200.0), closed_at=at(began + 200.0), usual_mhz=1000.0,
        lost_mhz_s=25_000.0,
    )  # fmt: skip
    html = panel()
    assert "its loop has reported no steps, so that its goodput is not known" in html
    assert "throttled: hw_thermal, unexpected" in html
    assert "In unknown, since its loop has not told: productive, repeated" in html


def test_a_job_that_only_starts_has_nothing_that_is_unknown(job: Job, began: float) -> None:
    attempt(job, began, began + 20.0)
    html = panel()
    assert "0.01 GPU-hours held" in html
    assert "In unknown" not in html


def test_the_page_of_a_job_that_ran_asks_for_it(job: Job, began: float) -> None:
    assert URL not in html_of(client_of(Role.VIEWER).get("/jobs/llama/"))
    attempt(job, began, began + 100.0)
    assert f'hx-get="{URL}"' in html_of(client_of(Role.VIEWER).get("/jobs/llama/"))


def test_a_job_of_another_project_is_not_there(job: Job, began: float) -> None:
    attempt(job, began, began + 100.0)
    assert client_of(Role.ML_USER).get(URL).status_code == 404
