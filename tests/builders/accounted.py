"""An hour of a small fleet that was recorded, and its account."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from admission.core.fleet_account import CAUSES
from admission.goodput import hours
from admission.goodput.models import AccountedHour, HourAccount
from admission.jobs.models import Attempt, Job
from fleet import snapshot
from fleet.models import Gpu
from telemetry import housekeeping
from telemetry.models import ReportedJob
from telemetry.samples import GPU, JOB
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node, write_samples

#: The hour that is accounted for, Unix s, and when that is.
HOUR = 1_795_096_800.0
NOW = HOUR + 3600.0 + 900.0
EVERY_S = 20.0


def at(since_s: float) -> datetime:
    """Return a moment of the hour, s since it began."""
    return datetime.fromtimestamp(HOUR + since_s, UTC)


def job_since(since_s: float, name: str, **given: Any) -> Job:
    """Make a job that was submitted so long after the hour began, s, and waits since then."""
    return make_job(name, waited=timezone.now() - at(since_s), **given)


def read(
    node: str,
    index: int,
    start: float,
    end: float,
    *,
    util: float = 0.0,
    power_w: float | None = None,
) -> None:
    """Have a GPU be read each 20 s from ``start`` to ``end``, s since the hour began.

    ``power_w`` None: as it works or not.
    """
    gpu = Gpu.objects.get(node__name=node, index=index)
    times = _times(start, end)
    if power_w is None:
        power_w = 70.0 if util < 5.0 else 600.0
    write_samples(GPU, gpu.pk, times, util=util, power_w=power_w)


def report(job: str, start: float, end: float, *, step: int = 0, **fields: Any) -> None:
    """Have a loop report each 20 s, one step in each of them."""
    known, _ = ReportedJob.objects.get_or_create(name=job)
    times = _times(start, end)
    steps = [step + each for each in range(len(times))]
    write_samples(JOB, known.pk, times, step=steps, step_time_s=EVERY_S, **fields)


def _times(start: float, end: float) -> list[float]:
    return [HOUR + start + EVERY_S * each for each in range(int((end - start) / EVERY_S))]


def hold(
    job: Job, gpus: dict[str, Sequence[int]], start: float, end: float | None = None, **given: Any
) -> Attempt:
    """Have a job hold GPUs from ``start`` on, its command begun 10 s later."""
    state = {"state": "ended", "outcome": "failed", "ended_at": at(end)} if end else {}
    placement = {"power_cap_w": None}
    return make_attempt(
        job.phases.get(), gpus, dispatched_at=at(start), started_at=at(start + 10.0),
        placement=placement, **{**state, **given},
    )  # fmt: skip


def make_hour() -> tuple[Job, Job]:
    """Make and account for an hour of four GPUs in two racks of a site.

    ``llama`` of vision holds two that its loop tells of, ``bert`` of speech one that it lets idle
    after half of it; one is free, and silent for the last ten minutes.
    """
    make_node("n1", gpus=2, rack="A01")
    make_node("n2", gpus=2, rack="A02")
    snapshot.fresh()
    llama = job_since(-600.0, "llama", gpus=2, state="running")
    bert = job_since(-600.0, "bert", project="speech", gpus=1, state="running")
    hold(llama, {"n1": [0, 1]}, -300.0)
    hold(bert, {"n2": [0]}, 0.0)
    for index in (0, 1):
        read("n1", index, -300.0, 3900.0, util=95.0)
    read("n2", 0, 0.0, 1800.0, util=90.0)
    read("n2", 0, 1800.0, 3900.0)
    read("n2", 1, 0.0, 3000.0)
    report("llama", -240.0, 3900.0, data_wait_s=2.0)
    again()
    return llama, bert


def last_hour() -> datetime:
    """Return when the last hour that is over began."""
    return timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)


def write_account(hour: datetime, project: str = "", site: str = "oslo", **gpu_s: float) -> None:
    """Add to the account of an hour what went to causes, GPU-seconds, as if it was computed."""
    AccountedHour.objects.get_or_create(hour=hour, defaults={"computed_at": hour, "gpus": 4})
    HourAccount.objects.create(
        hour=hour, site=site, rack="A01", project=project, attempt_id=1 if project else None,
        us=[int(1e6 * gpu_s.get(cause, 0.0)) for cause in CAUSES],
    )  # fmt: skip
    hours.add_up(hour)


def seconds(**which: object) -> dict[str, float]:
    """Return the GPU-seconds of the hour by cause, without what is 0."""
    total: dict[str, float] = defaultdict(float)
    for row in HourAccount.objects.filter(**which):
        for cause, us in zip(CAUSES, row.us, strict=True):
            total[cause] += us / 1e6
    return {cause: value for cause, value in total.items() if value}


def again() -> None:
    """Account for the hour anew, by all that is recorded by now."""
    while not housekeeping.roll_up(NOW):
        pass  # it stops where other tests have both cores
    hours.compute(HOUR, NOW)
