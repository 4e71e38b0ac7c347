"""Running jobs grow on the server: told, kept for, started again with more; and told why not."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from admission.directives.actions import moved_within_the_hour
from admission.directives.models import Directive
from admission.executors.models import Gang, NodeAssignment
from admission.jobs.models import Attempt, JobEvent, Phase
from admission.policy.catalog import POLICIES
from admission.queue import queue_status
from tests.builders.accounts import api_client
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import cycle, end, phase_of, queued, start

ELASTIC = {"min_gpus": 1, "preemptible": True, "checkpoint_interval_s": 600.0, "required": 0}
DAY_S = 86_400.0


@pytest.fixture
def squeezed(fleet: SmallFleet) -> None:
    """An elastic job has run for two hours on one GPU, and three beside it have come free."""
    for n in range(len(fleet.nodes) - 1):
        queued(f"other{n}", asks={"walltime_s": DAY_S})
        cycle()
    queued("short", gpus=3)
    cycle()
    queued("sweep", asks={**ELASTIC, "walltime_s": DAY_S})
    cycle()
    start("sweep")
    end("short", Phase.State.SUCCEEDED)
    now = timezone.now()
    began = now - timedelta(hours=2)
    for each in NodeAssignment.objects.filter(gang__key="sweep/train/1"):
        each.state, each.started_at, each.store = "running", began, f"store-{each.node}"
        each.save()
    Gang.objects.filter(key="sweep/train/1").update(go_at=began)
    Attempt.objects.filter(phase__job__name="sweep").update(started_at=began, checkpoint_at=now)
    assert [len(each) for each in _attempt().placement["gpus"].values()] == [1]


def _attempt() -> Attempt:
    return Attempt.objects.open().get(phase__job__name="sweep")


def _ended() -> None:
    """Have the attempt be over, as reconciliation leaves it."""
    at = timezone.now()
    Attempt.objects.open().filter(phase__job__name="sweep").update(state="ended", ended_at=at)
    Gang.objects.filter(key__startswith="sweep/").delete()
    Phase.objects.filter(job__name="sweep").update(state=Phase.State.QUEUED, queued_at=at)


def test_a_job_grows_and_what_it_is_to_have_is_kept_for_it(squeezed: None) -> None:
    cycle()
    told = Directive.objects.get()
    assert (told.kind, told.owner, told.attempt.phase.job.name) == ("stop", "growth", "sweep")
    assert "grows from 1 to 4 of 4 GPUs" in told.reason
    assert told.evidence["won_gpu_s"] > 5 * told.evidence["cost_gpu_s"] > 0.0
    event = JobEvent.objects.get(kind="moved")
    assert event.text.startswith("train grows from 1 to 4")
    assert event.data["gpus"] == 4
    assert phase_of("sweep").state == Phase.State.STOPPING
    assert moved_within_the_hour(time.time()) == 1
    assert moved_within_the_hour(time.time() + 3700.0) == 0
    # Nobody else gets it, however urgent, and nobody is told twice.
    queued("urgent", gpus=3, asks={"priority": 900})
    assert cycle().admitted == 0
    _ended()
    assert cycle().admitted == 1
    assert [len(each) for each in _attempt().placement["gpus"].values()] == [4]
    phase = phase_of("sweep")
    assert (phase.returns_to, phase.returns_by) == (None, None)
    assert Directive.objects.count() == 1


def test_what_takes_too_long_to_come_back_waits_as_others_do(squeezed: None) -> None:
    cycle()
    _ended()
    Phase.objects.filter(job__name="sweep").update(returns_by=timezone.now())
    queued("urgent", gpus=4, asks={"priority": 900})
    assert cycle().admitted == 1
    assert phase_of("urgent").state == Phase.State.STARTING


def test_it_is_told_why_it_does_not_grow(squeezed: None) -> None:
    put_in_force(POLICIES, "name: still\nmoving: {grows: false}\n")
    cycle()
    assert not Directive.objects.exists()
    assert queue_status.stays(["sweep/train", "other0/train"]) == {
        "sweep/train": "the admission policy lets no job grow"
    }
    answer = api_client().get("/api/v1/jobs/sweep/explain").json()
    assert answer["stays"] == [
        {"phase": "train", "sentence": "the admission policy lets no job grow"}
    ]
    assert api_client().get("/api/v1/jobs/other0/explain").json()["stays"] == []
    queue_status.publish_stays({})
    assert queue_status.stays(["sweep/train"]) == {}
