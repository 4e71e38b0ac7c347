"""Arrays in the cycle: they start side by side, and what keeps one is told once for all."""

from __future__ import annotations

import pytest

from accounts.roles import Role
from admission.cycle import live
from admission.jobs import submission
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from admission.queue import queue_status
from headroom.jobs.reading import convert
from tests.builders.accounts import api_client, make_user
from tests.builders.fleet import SmallFleet
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
