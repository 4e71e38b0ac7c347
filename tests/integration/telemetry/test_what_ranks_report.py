"""What ranks of a training loop report goes the whole way: stored, rolled up, asked for."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from telemetry import housekeeping, samples
from telemetry.models import ReportedJob
from telemetry.rollups import progress
from tests.builders.accounts import api_client
from tests.builders.readings import write_samples

pytestmark = pytest.mark.django_db
T0 = 1_800_057_600
FIELDS = "sync_s,data_wait_s,lost_share,rank_spread,tokens_per_s,rank_mem_bytes,flops_per_step"


def test_minutes_have_means_and_peaks() -> None:
    with connection.cursor() as cursor:
        progress.begin(cursor.cursor, "job_sample", T0)
    job = ReportedJob.objects.create(name="llama/train")
    times = [float(T0 + s) for s in range(0, 120, 10)]
    write_samples(
        samples.JOB, job.pk, times, sync_s=[0.1, 0.3] * 6, data_wait_s=0.05, lost_share=0.5,
        rank_spread=1.5, tokens_per_s=1e6, rank_mem_bytes=2**35, slowest_rank=7, step=1,
        flops_per_step=4e18,
    )  # fmt: skip
    raw = columns(job.pk, "tier=raw&fields=slowest_rank,tokens_per_s,rank_mem_bytes")
    assert set(raw["slowest_rank"]) == {7}
    assert set(raw["tokens_per_s"]) == {1e6}
    housekeeping.roll_up(T0 + 3600)
    found = columns(job.pk, f"tier=minute&band=1&points=10&fields={FIELDS}")
    assert found["sync_s"] == pytest.approx([0.2, 0.2], rel=0.1)
    assert found["sync_s_max"] == pytest.approx([0.3, 0.3])
    assert found["rank_mem_bytes"] == [2**35, 2**35]
    assert found["lost_share"] == [0.5, 0.5]
    assert found["flops_per_step"] == pytest.approx([4e18, 4e18])


def columns(job: int, query: str) -> Any:
    """Return what the API tells of two minutes of a job."""
    answer = api_client().get(f"/api/v1/series?kind=job&id={job}&from={T0}&to={T0 + 120}&{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()["columns"]
