"""What one user may queue moves nobody else's start: backlogs on the real tables and cycle."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from admission.jobs.models import Job, Phase
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import attempts, cycle, idle, phase_of, queued

pytestmark = pytest.mark.django_db


def flood(jobs: int, phases: int, *, project: str, user: str, held: bool = False) -> None:
    """Queue pipelines of which only the first phase may begin, an hour ago; held: not even that."""
    template = queued("template", project=project)
    phase = template.phases.get()
    at = timezone.now() - timedelta(hours=1)
    made = Job.objects.bulk_create(
        Job(
            name=f"flood-{number}", project=template.project, job_class=template.job_class,
            priority=template.priority, spec=template.spec, spec_version=template.spec_version,
            submitted_by=user, submitted_at=at,
        )
        for number in range(jobs)
    )  # fmt: skip
    Phase.objects.bulk_create(
        (
            Phase(
                job=job, name=f"p{index}", index=index, gpus=phase.gpus,
                needs=[f"p{index - 1}"] if index else [],
                state=Phase.State.WAITING if index else Phase.State.QUEUED,
                held_by=user if held else "",
                request={
                    **phase.request, "key": f"{job.name}/p{index}", "job": job.name,
                    "phase": f"p{index}", "submitted_at": at.timestamp(),
                },
            )
            for job in made
            for index in range(phases)
        ),
        batch_size=5000,
    )  # fmt: skip
    template.delete()


def test_phases_that_wait_for_others_take_nobody_out_of_the_depth(fleet: SmallFleet) -> None:
    flood(206, 50, project="vision", user="eve", held=True)
    idle(fleet)  # after what takes long: readings age
    queued("other", project="speech", waited=timedelta(0))
    cycle()
    assert attempts() == ["other/train/1"]
    assert phase_of("other").state == "starting"
