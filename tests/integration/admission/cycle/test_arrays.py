"""Arrays in the cycle: they start side by side, and what keeps one is told once for all."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import User
from accounts.roles import Role
from admission.cycle import live
from admission.jobs import submission
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from admission.queue import queue_status
from headroom.jobs.reading import convert
from tests.builders.accounts import api_client, client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.html import html_of
from tests.integration.admission.cycle.scenes import cycle
from tests.integration.admission.jobs.conftest import now
from tests.unit.headroom.jobs.specs import make_phase, make_spec


@pytest.fixture
def sweep(fleet: SmallFleet) -> Job:
    """Forty elements of four GPUs on a fleet of sixteen."""
    user = make_user(Role.ML_USER, username="ada")
    Project.objects.create(name="vision").members.add(user)
    phase = make_phase(gang={"gpus": 4}, power={"expected_peak_w": 500})
    spec = convert(make_spec(phase, name="sweep", array="0-39"))
    return submission.submit(spec, user, now=now()).job


def test_its_elements_start_side_by_side(sweep: Job) -> None:
    assert cycle().admitted == 4
    assert Attempt.objects.count() == 4
    assert Phase.objects.filter(state="queued").count() == 36


def test_what_keeps_one_is_told_once_for_all(sweep: Job) -> None:
    cycle()
    cycle()
    waiting = Phase.objects.filter(state="queued")
    assert {phase.reason for phase in waiting} == {"GpuShortage"}
    assert JobEvent.objects.filter(kind="reason").count() == 1
    (first,) = queue_status.order()
    line = queue_status.pending_statuses([first])[first]
    assert (line.position, line.elements) == (1, 36)
    others = queue_status.pending_statuses([phase.key for phase in waiting])
    assert {each.position for each in others.values()} == {1}


def test_the_queue_and_an_explanation_have_one_line_of_it(sweep: Job) -> None:
    cycle()
    cycle()
    live.invalidate()
    client = api_client(Role.VIEWER)
    answer = client.get("/api/v1/queue").json()
    assert [(row["position"], row["elements"]) for row in answer["queue"]] == [(1, 36)]
    (told,) = client.get("/api/v1/jobs/sweep/explain").json()["phases"]
    assert told["elements"] == 36
    assert told["reasons"][0]["token"] == "GpuShortage"
    assert told["phase"] == queue_status.order()[0].partition("/")[2]


def test_the_pages_have_it_as_one_and_its_elements_in_numbers(sweep: Job) -> None:
    cycle()
    cycle()
    viewer = client_of(Role.VIEWER)
    page = html_of(viewer.get("/queue/"))
    assert "and 35 elements like it" in page
    assert page.count("sweep/train.") >= 1
    page = html_of(viewer.get("/jobs/sweep/"))
    assert "Elements 0-39" in page
    assert ">36</b> in the queue" in page
    page = html_of(viewer.get("/jobs/sweep/?phase=train.39"))
    assert "train.39" in page
    assert viewer.get("/jobs/sweep/?phase=train.40").status_code == 404


def test_elements_are_cancelled_on_the_page_by_those_who_may(sweep: Job) -> None:
    cycle()
    browser = Client()
    browser.force_login(User.objects.get(username="ada"))
    assert "These elements alone" in html_of(browser.get("/jobs/sweep/"))
    browser.post("/jobs/sweep/cancel", {"reason": "wrong", "elements": "20-29"})
    assert Phase.objects.filter(state="cancelled").count() == 10
    assert client_of(Role.VIEWER).post("/jobs/sweep/cancel", {}).status_code in (403, 404)
    assert Phase.objects.filter(state="cancelled").count() == 10
