"""Elastic jobs are measured by what their loops report, and grow, shrink and are told by that."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from admission.core.throughput import SETTLED_S
from admission.directives.models import Control, Directive
from admission.executors.models import Gang, NodeAssignment
from admission.jobs.models import Attempt, JobEvent, Phase
from admission.learned import draws
from admission.learned.models import Throughput
from telemetry.models import ReportedJob
from telemetry.samples import JOB
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.builders.readings import write_samples
from tests.integration.admission.cycle.scenes import cycle, phase_of, queued, start

ELASTIC = {"min_gpus": 1, "preemptible": True, "checkpoint_interval_s": 600.0, "required": 0}
DAY_S = 86_400.0


@pytest.fixture
def sweep(fleet: SmallFleet) -> Attempt:
    """An elastic job of 1 to 4 GPUs has run on all of them for two hours, and has just saved."""
    queued("sweep", gpus=4, asks={**ELASTIC, "walltime_s": DAY_S})
    cycle()
    start("sweep")
    now = timezone.now()
    began = now - timedelta(hours=2)
    NodeAssignment.objects.filter(gang__key="sweep/train/1").update(started_at=began)
    Gang.objects.filter(key="sweep/train/1").update(go_at=began)
    Attempt.objects.filter(phase__job__name="sweep").update(started_at=began, checkpoint_at=now)
    return Attempt.objects.open().get(phase__job__name="sweep")


def _reports(*, earlier: bool = True, **fields: Any) -> None:
    """Have the loop report each second of the last ten, and once some minutes before."""
    known, _ = ReportedJob.objects.get_or_create(name="sweep/train")
    now = time.time()
    ago_s = [*([300] if earlier else []), *range(10, 0, -1)]
    write_samples(JOB, known.pk, [now - each for each in ago_s], **fields)


def _measured(phase: Phase, gpus: int, per_s: float) -> None:
    Throughput.objects.update_or_create(
        phase=phase, gpus=gpus,
        defaults={"unit": "samples", "per_s": per_s, "for_s": SETTLED_S, "seen_at": timezone.now()},
    )  # fmt: skip


def test_what_a_loop_reports_is_kept_by_size(sweep: Attempt) -> None:
    _reports(samples_per_s=100.0, step_time_s=0.5)
    now = time.time()
    draws.observe(now)
    row = Throughput.objects.get()
    assert (row.gpus, row.unit, row.per_s, row.for_s) == (4, "samples", 100.0, draws.EVERY_S)
    # The next look adds the time since, and no more.
    _reports(samples_per_s=100.0)
    draws.observe(now + 5.0)
    assert Throughput.objects.get().for_s == pytest.approx(draws.EVERY_S + 5.0)


def test_what_is_counted_otherwise_than_before_is_measured_anew(sweep: Attempt) -> None:
    _measured(sweep.phase, 1, 30.0)
    _measured(sweep.phase, 4, 100.0)
    _reports(step_time_s=0.5)
    draws.observe(time.time())
    row = Throughput.objects.get()
    assert (row.gpus, row.unit, row.per_s, row.for_s) == (4, "steps", 2.0, draws.EVERY_S)


def test_a_smaller_batch_and_a_start_measure_nothing(sweep: Attempt) -> None:
    _reports(samples_per_s=100.0)
    Control.objects.update_or_create(attempt=sweep, defaults={"batch_scale": 0.5})
    draws.observe(time.time())
    assert not Throughput.objects.exists()
    Control.objects.all().delete()
    NodeAssignment.objects.update(started_at=timezone.now())
    Attempt.objects.update(started_at=timezone.now())
    draws.observe(time.time())
    assert not Throughput.objects.exists()


def test_a_loop_that_has_just_begun_to_report_measures_nothing(sweep: Attempt) -> None:
    """Its attempt began long ago: it took so long to load."""
    _reports(earlier=False, samples_per_s=100.0)
    draws.observe(time.time())
    assert not Throughput.objects.exists()


@pytest.mark.parametrize(("per_s", "gpus"), [(None, 4), (100.0, 1)])
def test_one_that_begins_again_has_as_many_as_its_curve_says(
    fleet: SmallFleet, per_s: float | None, gpus: int
) -> None:
    """On four GPUs it did hardly more than on one: before it was given back, or was stopped."""
    queued("sweep", gpus=1, asks={**ELASTIC, "max_gpus": 4, "walltime_s": DAY_S})
    if per_s is not None:
        _measured(phase_of("sweep"), 1, 95.0)
        _measured(phase_of("sweep"), 4, per_s)
    cycle()
    attempt = Attempt.objects.open().get(phase__job__name="sweep")
    assert sum(len(each) for each in attempt.placement["gpus"].values()) == gpus


def test_what_did_not_pay_is_given_back_in_numbers(sweep: Attempt) -> None:
    _measured(sweep.phase, 1, 95.0)
    _measured(sweep.phase, 4, 100.0)
    cycle()
    told = Directive.objects.get()
    assert (told.kind, told.owner) == ("stop", "shrinking")
    assert "gives back 3 of 4 GPUs: on them all it does 1.05 times the work" in told.reason
    event = JobEvent.objects.get(kind="moved")
    assert (event.data["move"], event.data["gpus"]) == ("shrinking", 1)
    returns_to = phase_of("sweep").returns_to
    assert returns_to is not None
    assert [len(each) for each in returns_to["gpus"].values()] == [1]


def test_a_job_tells_what_it_did_at_each_size(sweep: Attempt) -> None:
    _measured(sweep.phase, 4, 100.0)
    (found,) = api_client().get("/api/v1/jobs/sweep/explain").json()["scaling"]
    assert found == {
        "phase": "train",
        "unit": "samples",
        "sizes": [{"gpus": 4, "per_s": 100.0, "for_s": SETTLED_S, "counts": True}],
        "sentence": "100 samples/s on 4 GPUs over 4 min",
    }
