from __future__ import annotations

import pytest

from accounts.models import User
from admission.jobs import progress
from admission.jobs.models import Job, Phase
from tests.integration.admission.jobs.conftest import chain, now, states, submit
from tests.unit.headroom.jobs.specs import make_phase

pytestmark = pytest.mark.django_db
DONE, FAILED = Phase.State.SUCCEEDED, Phase.State.FAILED


def end(job: Job, name: str, state: Phase.State = DONE, why: str = "") -> None:
    progress.phase_ended(job.phases.get(name=name), state, now(), why)


def test_a_job_goes_phase_by_phase_to_its_end(ada: User) -> None:
    job = submit(ada, *chain("a", "b"))
    progress.phases_began(job.phases.filter(name="a"))
    assert states(job)[""] == "running"
    job.phases.filter(name="a").update(state="running", started_at=now())
    end(job, "a")
    assert states(job) == {"": "running", "a": "succeeded", "b": "queued"}
    assert job.phases.get(name="b").queued_at is not None
    end(job, "b")
    job.refresh_from_db()
    assert job.state == "succeeded"
    assert job.ended_at is not None
    assert [each.kind for each in job.events.all()] == [
        "submitted", "ended", "unlocked", "ended", "ended",
    ]  # fmt: skip
    assert [each.text for each in job.events.all()][-1] == "The job has succeeded"


def test_what_needs_a_phase_that_failed_never_runs_and_what_does_not_goes_on(ada: User) -> None:
    job = submit(ada, *chain("a", "b", "c"), make_phase("other"))
    end(job, "a", FAILED, "exit code 3")
    assert states(job) == {
        "": "queued", "a": "failed", "b": "cancelled", "c": "cancelled", "other": "queued",
    }  # fmt: skip
    assert job.events.filter(phase="a").get().text == "a failed: exit code 3"
    end(job, "other")
    assert states(job)[""] == "failed"


def test_a_phase_ends_once(ada: User) -> None:
    job = submit(ada)
    end(job, "train", FAILED)
    end(job, "train", DONE)
    assert states(job) == {"": "failed", "train": "failed"}
    assert job.events.filter(phase="train").count() == 1


def test_jobs_that_are_over_do_not_begin(ada: User) -> None:
    job = submit(ada)
    end(job, "train", FAILED)
    progress.phases_began(job.phases.all())
    assert states(job)[""] == "failed"
