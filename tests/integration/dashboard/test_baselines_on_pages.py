"""The pages of jobs and projects say what is usual, and where a job is outside of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.roles import Role
from admission.core.baselines import Metric
from admission.jobs.models import Job
from dashboard import baselines
from fleet import snapshot
from tests.builders.accounted import last_hour
from tests.builders.accounts import client_of
from tests.builders.baselines import write_gang_hours
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(db: None) -> Job:
    """A job of vision that runs, after ten normal hours of its like at 400 to 490 W."""
    make_node("n1")
    snapshot.fresh()
    job = make_job("llama", state="running")
    make_attempt(job.phases.get(), {"n1": [0]}, dispatched_at=timezone.now() - timedelta(hours=9))
    write_gang_hours(last_hour() - timedelta(hours=1), *range(400, 500, 10))
    return job


def test_a_job_outside_of_its_normal_says_how_far_and_what_held_it_back(runs: Job) -> None:
    attempt = runs.phases.get().attempts.get()
    write_gang_hours(last_hour(), 267.0, attempt_id=attempt.pk, causes=["throttled_sw_thermal"])
    html = text_of(html_of(client_of(Role.VIEWER).get("/live/jobs/llama/goodput")))
    said = "power per GPU 267 W, 0.60 times its usual 445 W (normal: 409 W to 481 W over 10 hours)"
    assert f"{said}; throttled: sw_thermal" in html


def test_a_job_within_its_normal_says_nothing_of_it(runs: Job) -> None:
    attempt = runs.phases.get().attempts.get()
    write_gang_hours(last_hour(), 450.0, attempt_id=attempt.pk)
    html = html_of(client_of(Role.VIEWER).get("/live/jobs/llama/goodput"))
    assert "beyond-normal" not in html


def test_a_project_shows_normal_hours_and_those_held_back(runs: Job) -> None:
    write_gang_hours(last_hour(), 356.0, causes=["capped"])
    html = text_of(html_of(client_of(Role.VIEWER).get("/projects/vision/")))
    assert "train oslo power per GPU normal 10 409 W 445 W 481 W" in html
    assert "train oslo power per GPU capped 1 356 W 356 W 356 W 0.80" in html


def test_a_project_without_hours_says_so(db: None) -> None:
    make_job("llama")
    html = text_of(html_of(client_of(Role.VIEWER).get("/projects/vision/")))
    assert "No hour of its jobs has been accounted for in this time." in html


@pytest.mark.parametrize(
    ("metric", "amount", "shown"),
    [
        (Metric.POWER_W, 1234.4, "1,234 W"),
        (Metric.TEMP_C, 61.26, "61.3 °C"),
        (Metric.C_PER_W, 0.0524, "0.052 °C/W"),
        (Metric.LINK_LATENCY_S, 21.3e-6, "21.3 µs"),
        (Metric.SYNC_S, 0.42, "420.0 ms"),
        (Metric.SYNC_S, 0.0, "0.0 s"),
        (Metric.SAVE_S, 58.3, "58 s"),
        (Metric.SAVE_BYTES_PER_S, 2e8, "200.0 MB/s"),
    ],
)
def test_values_have_their_units(metric: Metric, amount: float, shown: str) -> None:
    assert baselines.value(metric, amount) == shown
