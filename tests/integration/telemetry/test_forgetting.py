"""What outlives the readings is kept for a while, and of each thing only so much."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from fleet.models import Gpu
from telemetry import forgetting, tasks
from telemetry.faults.models import EccEvent
from telemetry.limits.models import LimitReport
from telemetry.models import IngestPosition, Mount, ReportedJob, ThrottleEvent, XidEvent
from telemetry.rollups.models import JobCarrier
from tests.builders.batches import make_batch
from tests.builders.jobs import make_job
from tests.integration.telemetry.conftest import Source, drain_everything

OLD = timedelta(days=500)


@pytest.fixture
def gpu(source: Source) -> Gpu:
    return source.node.gpus.get(index=0)


def make_event(gpu: Gpu, ago: timedelta, *, is_open: bool = False, cause: int = 4) -> ThrottleEvent:
    at = timezone.now() - ago
    return ThrottleEvent.objects.create(
        gpu=gpu, cause=cause, opened_at=at, updated_at=at, closed_at=None if is_open else at
    )


def test_throttle_events_past_their_retention_go_and_open_ones_stay(
    gpu: Gpu, settings: Settings
) -> None:
    settings.TELEMETRY_EVENT_DAYS = 400
    make_event(gpu, OLD)
    kept = {make_event(gpu, timedelta(days=399)).pk, make_event(gpu, OLD, is_open=True).pk}
    tasks.forget_events()
    assert set(ThrottleEvent.objects.values_list("pk", flat=True)) == kept


def test_of_one_gpu_the_newest_are_kept(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "MOST_EVENTS", 3)
    monkeypatch.setattr(forgetting, "_BATCH", 2)
    made = [make_event(gpu, timedelta(minutes=ago)).pk for ago in range(8)]
    oldest = make_event(gpu, timedelta(hours=1), is_open=True).pk
    assert forgetting.prune(timezone.now(), 5.0)["telemetry_throttleevent"] == 5
    assert set(ThrottleEvent.objects.values_list("pk", flat=True)) == {*made[:3], oldest}


def test_all_that_tells_of_errors_and_limits_goes_with_them(gpu: Gpu, source: Source) -> None:
    for at in (timezone.now() - OLD, timezone.now()):
        XidEvent.objects.create(node=source.node, gpu=gpu, ts=at, xid=79)
        EccEvent.objects.create(gpu=gpu, since=at, at=at, count=1, total=1)
        LimitReport.objects.create(
            agent=source.agent, node=source.node, gpu_index=0, limit=f"made-up-{at}", asked=1,
            kind="power_cap_w", state="applied", at=at, received_at=at, boot_id="b", seq=1,
        )  # fmt: skip
        JobCarrier.objects.create(job_id=1, hour=at - 4 * OLD * (at < timezone.now() - OLD / 2),
                                  gpu_ids=[1])  # fmt: skip
    tasks.forget_events()
    for model in (XidEvent, EccEvent, LimitReport, JobCarrier):
        assert model.objects.count() == 1, model


def test_names_that_nobody_used_for_long_go_and_those_of_our_jobs_stay(
    gpu: Gpu, source: Source
) -> None:
    make_job("llama")
    long_ago = timezone.now() - timedelta(days=100)
    for name in ("made-up", "llama", "in-an-event"):
        ReportedJob.objects.create(name=name, seen_at=long_ago, agent=source.agent)
    event = make_event(gpu, timedelta(days=100))
    event.job = ReportedJob.objects.get(name="in-an-event")
    event.save()
    ReportedJob.objects.create(name="new")
    Mount.objects.create(node=source.node, name="/gone", seen_at=long_ago)
    Mount.objects.create(node=source.node, name="/there")
    tasks.forget_events()
    kept = set(ReportedJob.objects.values_list("name", flat=True))
    assert kept == {"llama", "in-an-event", "new"}
    assert list(Mount.objects.values_list("name", flat=True)) == ["/there"]


def test_a_name_that_is_used_is_seen_once_a_day(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 1, job="slurm-1"))
    drain_everything()
    ReportedJob.objects.update(seen_at=timezone.now() - timedelta(days=2))
    source.push(make_batch("agent-1", "n1", 2, job="slurm-1"))
    drain_everything()
    assert timezone.now() - ReportedJob.objects.get().seen_at < timedelta(hours=1)


def test_a_position_is_forgotten_once_nothing_below_it_would_be_taken_again(
    source: Source, settings: Settings
) -> None:
    for boot_id, days in (("old", 15), ("new", 13), ("server:inbox", 15)):
        IngestPosition.objects.create(agent=source.agent, boot_id=boot_id)
        at = timezone.now() - timedelta(days=days)
        IngestPosition.objects.filter(boot_id=boot_id).update(updated_at=at)
    tasks.forget_events()
    kept = set(IngestPosition.objects.values_list("boot_id", flat=True))
    assert kept == {"new", "server:inbox"}
