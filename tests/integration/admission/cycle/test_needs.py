"""Needs on other jobs in the cycle: they are followed, told, and let the job go."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import User
from accounts.roles import Role
from admission.executors.models import Gang
from admission.jobs import progress
from admission.jobs.models import Attempt, Job, Phase, Project
from admission.queue import queue_status
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.html import html_of
from tests.integration.admission.cycle.scenes import cycle, phase_of
from tests.integration.admission.jobs.conftest import now, submit


@pytest.fixture
def ada(fleet: SmallFleet) -> User:
    user = make_user(Role.ML_USER, username="ada")
    Project.objects.create(name="vision").members.add(user)
    return user


@pytest.fixture
def prepare(ada: User) -> Job:
    return submit(ada, name="prepare")


def test_it_waits_says_for_what_and_goes_in_the_cycle_that_sees_it_met(
    ada: User, prepare: Job
) -> None:
    submit(ada, name="train", needs=[{"job": "prepare", "when": "ended"}])
    cycle()
    train = phase_of("train")
    assert (train.state, train.reason) == ("waiting", "DependencyPending")
    found = queue_status.pending_statuses(["train/train"])["train/train"]
    assert found.reasons[0].sentence == "waits for job prepare to end"
    Attempt.objects.update(state="ended", outcome="failed", ended_at=now())
    Gang.objects.all().delete()
    progress.phase_ended(phase_of("prepare"), Phase.State.FAILED, now())
    cycle()
    assert phase_of("train").state == "starting"


def test_what_can_never_be_met_says_so_and_what_to_do(ada: User, prepare: Job) -> None:
    job = submit(ada, name="train", needs=[{"job": "prepare"}])
    progress.phase_ended(phase_of("prepare"), Phase.State.FAILED, now())
    cycle()
    assert phase_of("train").reason == "DependencyNeverMet"
    found = queue_status.pending_statuses(["train/train"])["train/train"]
    assert found.reasons[0].sentence.endswith("let it begin without: headroom waive train")
    client = Client()
    client.force_login(ada)
    page = html_of(client.get("/jobs/train/"))
    assert "can never begin" in page
    assert "never met" in page
    client.post("/jobs/train/waive", {"reason": "by hand"})
    assert job.dependencies.get().state == "waived"
