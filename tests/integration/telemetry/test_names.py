"""Names that a batch may bring: jobs that run on its nodes, and few enough of all others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from accounts.models import AuditEntry
from admission.jobs.models import Attempt, Job
from headroom.contracts import JobColumns, StorageColumns, TelemetryBatch
from telemetry import naming, placed, stream
from telemetry.directory import invalidate_scopes
from telemetry.models import Agent, IngestPosition, Mount, ReportedJob
from tests.builders.batches import make_batch
from tests.builders.jobs import make_attempt, make_job
from tests.builders.otlp import as_protobuf, gauge, make_request, point
from tests.integration.telemetry.conftest import Source, drain_everything, forward_everything
from tests.integration.telemetry.test_ingest import stored
from tests.integration.telemetry.test_partial_batches import partly_refused

ENDED = Attempt.State.ENDED


def reports(*jobs: str, seq: int = 1, **given: Any) -> TelemetryBatch:
    """A batch with a row of progress for each of ``jobs``."""
    now = time.time()
    block = JobColumns(ts=[now] * len(jobs), job=list(jobs), loss=[2.5] * len(jobs))
    return make_batch("agent-1", "n1", seq, jobs=block, **given)


def place(job: str, node: str, **given: Any) -> Attempt:
    attempt = make_attempt(make_job(job).phases.get(), {node: range(8)}, **given)
    placed.invalidate()
    return attempt


def rows_of_jobs() -> list[float]:
    drain_everything()
    return [loss for loss, _ in stored("loss, step", "job_sample")]


@pytest.mark.parametrize("name", ["llama", "llama/train", "llama/train/1"])
def test_an_agent_reports_on_a_job_that_runs_on_its_node(source: Source, name: str) -> None:
    place("llama", "n1")
    assert source.push(reports(name)).status_code == 202
    assert rows_of_jobs() == [2.5]


def test_a_job_that_runs_elsewhere_is_refused_row_by_row_and_audited(
    source: Source, stranger: Source
) -> None:
    place("llama", "n1")
    place("gpt", "n2")
    told = partly_refused(source.push(reports("gpt", "llama")))
    assert (told.refused_rows, told.error.code, told.error.field) == (
        1, "foreign_job", "jobs.job[0]",
    )  # fmt: skip
    assert "any_job" in told.error.hint
    assert rows_of_jobs() == [2.5]
    assert not ReportedJob.objects.filter(name="gpt").exists()
    entry = AuditEntry.objects.get(action="telemetry.refused")
    assert (entry.actor, "gpt" in str(entry.detail)) == ("agent-1", True)


def test_a_job_that_waits_or_that_nobody_knows_is_refused(source: Source) -> None:
    make_job("waits")
    assert partly_refused(source.push(reports("waits", "unknown"))).refused_rows == 2
    assert rows_of_jobs() == []


def test_where_only_such_rows_are_left_nothing_is_taken(source: Source) -> None:
    batch = reports("gpt")
    batch.nodes = []
    answer = source.push(batch)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "foreign_job")
    assert "ack" not in answer.json()
    assert AuditEntry.objects.filter(action="telemetry.refused").count() == 1


def test_what_a_job_said_last_comes_through_within_the_grace(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_JOB_GRACE_S = 60
    attempt = place("llama", "n1", state=ENDED, ended_at=timezone.now() - timedelta(seconds=50))
    assert source.push(reports("llama")).status_code == 202
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=timezone.now() - timedelta(seconds=70))
    placed.invalidate()
    assert partly_refused(source.push(reports("llama", seq=2))).refused_rows == 1


def test_what_a_spool_kept_through_an_outage_comes_through_after_the_job_has_ended(
    source: Source,
) -> None:
    ended = timezone.now() - timedelta(hours=2)
    place("llama", "n1", state=ENDED, ended_at=ended)
    late = reports("llama", ts=[(ended - timedelta(hours=1)).timestamp()], job="llama")
    assert late.jobs is not None
    late.jobs.ts = [(ended - timedelta(hours=1)).timestamp()]
    assert source.push(late).status_code == 202
    assert rows_of_jobs() == [2.5]
    # What bears a time after its end is made up.
    assert partly_refused(source.push(reports("llama", seq=2))).refused_rows == 1


def test_a_job_that_a_spool_kept_but_that_ran_elsewhere_is_refused(source: Source) -> None:
    ended = timezone.now() - timedelta(hours=2)
    place("gpt", "n2", state=ENDED, ended_at=ended)
    late = reports("gpt", ts=[(ended - timedelta(hours=1)).timestamp()])
    assert late.jobs is not None
    late.jobs.ts = [(ended - timedelta(hours=1)).timestamp()]
    assert partly_refused(source.push(late)).refused_rows == 1


@pytest.mark.usefixtures("nothing_turns_over")
def test_a_job_that_was_placed_since_the_last_look_is_known(source: Source) -> None:
    assert partly_refused(source.push(reports("llama"))).refused_rows == 1
    make_attempt(make_job("llama").phases.get(), {"n1": range(8)})
    assert source.push(reports("llama", seq=2)).status_code == 202


def test_placements_are_not_asked_for_with_each_batch(
    source: Source, django_assert_num_queries: Any
) -> None:
    place("llama", "n1")
    batch = [reports("llama", seq=seq, job="llama") for seq in range(1, 12)]
    source.push(batch[0])
    with django_assert_num_queries(0):
        for each in batch[1:]:
            assert source.push(each).status_code == 202


def test_an_agent_that_may_name_any_job_reports_on_jobs_of_others(source: Source) -> None:
    Agent.objects.update(any_job=True)
    invalidate_scopes()
    assert source.push(reports("recorded-elsewhere")).status_code == 202
    assert rows_of_jobs() == [2.5]


# --- What GPUs are labeled with -------------------------------------------------------------------


def test_a_gpu_may_be_labeled_with_another_schedulers_job(source: Source) -> None:
    assert source.push(make_batch("agent-1", "n1", job="slurm-1234")).status_code == 202
    drain_everything()
    assert ReportedJob.objects.get().agent == source.agent


def test_a_gpu_that_is_labeled_with_somebody_elses_job_loses_the_label_alone(
    source: Source, stranger: Source
) -> None:
    place("gpt", "n2")
    told = partly_refused(source.push(make_batch("agent-1", "n1", job="gpt")))
    assert (told.error.code, told.error.field) == ("foreign_job", "nodes[0].gpus.job[0]")
    drain_everything()
    assert stored("power_w, job_id") == [(500.0, None)] * 8


def test_a_name_that_was_another_schedulers_is_refused_once_a_job_of_ours_has_it(
    source: Source, stranger: Source
) -> None:
    assert source.push(make_batch("agent-1", "n1", 1, job="gpt")).status_code == 202
    place("gpt", "n2")
    assert partly_refused(source.push(make_batch("agent-1", "n1", 2, job="gpt"))).refused_rows == 8


def test_a_label_of_remote_write_and_otlp_is_checked_likewise(
    source: Source, stranger: Source
) -> None:
    place("gpt", "n2")
    labels = {"gpu": "0", "hpc_job": "gpt"}
    reading = gauge("DCGM_FI_DEV_POWER_USAGE", point(500.0, time.time(), **labels))
    body = as_protobuf(make_request("n1", reading))
    answer = source.client.post(
        "/api/v1/otlp/v1/metrics",
        data=body,
        content_type="application/x-protobuf",
        headers={"Authorization": f"Bearer {source.token}"},
    )
    assert answer.status_code == 200
    assert b"gpt" in answer.content
    forward_everything()
    assert stored("power_w, job_id") == [(500.0, None)]


# --- How many -------------------------------------------------------------------------------------


def test_an_agent_brings_only_so_many_names(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_JOB_NAMES_PER_AGENT = 3
    names = [f"made-up-{i}" for i in range(8)]
    told = partly_refused(source.push(make_batch("agent-1", "n1", 1, job=names)))
    assert (told.refused_rows, told.error.code) == (5, "too_many_names")
    assert "TELEMETRY_MAX_JOB_NAMES_PER_AGENT" in told.error.hint
    # Those it has go on, and the reading of each GPU is there.
    assert source.push(make_batch("agent-1", "n1", 2, job=names[0])).status_code == 202
    drain_everything()
    assert len(stored()) == 16
    assert ReportedJob.objects.count() == 3


def test_names_of_one_agent_are_not_counted_against_another(
    source: Source, stranger: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_JOB_NAMES_PER_AGENT = 1
    assert source.push(make_batch("agent-1", "n1", job="a")).status_code == 202
    assert stranger.push(make_batch("agent-2", "n2", job="b")).status_code == 202


def test_two_hundred_thousand_made_up_names_are_refused_at_once(source: Source) -> None:
    Agent.objects.update(any_job=True)
    invalidate_scopes()
    answer = source.push(reports(*(f"made-up-{i}" for i in range(50_000))))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_names")
    assert stream.backlog(0) == 0
    assert not ReportedJob.objects.exists()


def test_a_node_has_only_so_many_mounts(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_MOUNTS_PER_NODE = 2
    batch = make_batch("agent-1", "n1")
    batch.nodes[0].storage = StorageColumns(
        ts=[time.time()] * 3, mount=["/a", "/b", "/c"], read_s=[0.5] * 3
    )
    told = partly_refused(source.push(batch))
    assert (told.refused_rows, told.error.field) == (1, "nodes[0].storage.mount[2]")
    drain_everything()
    assert set(Mount.objects.values_list("name", flat=True)) == {"/a", "/b"}


def test_an_agent_begins_only_so_many_lives(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "MAX_BOOT_IDS", 2)
    for boot_id in ("one", "two", "one"):
        assert source.push(make_batch("agent-1", "n1", boot_id=boot_id)).status_code == 202
    answer = source.push(make_batch("agent-1", "n1", boot_id="three"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_boot_ids")
    drain_everything()
    assert set(IngestPosition.objects.values_list("boot_id", flat=True)) == {"one", "two"}


def test_refusals_are_audited_only_so_often(source: Source) -> None:
    batch = reports("gpt")
    batch.nodes = []
    for number in range(70):
        assert batch.jobs is not None
        batch.jobs.job = [f"made-up-{number}"]
        source.push(batch)
    assert AuditEntry.objects.filter(action="telemetry.refused").count() == 60


@pytest.fixture
def committed(transactional_db: None) -> Iterator[Agent]:
    """An agent that other connections see."""
    agent = Agent.objects.create(name="agent-1", digest=b"1" * 32, hint="1")
    naming.invalidate()
    yield agent
    naming.invalidate()


def test_batches_at_once_do_not_pass_the_limit_together(
    committed: Agent, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_JOB_NAMES_PER_AGENT = 10
    begin = threading.Barrier(8)

    def bring(sender: int) -> None:
        begin.wait()
        naming._Jobs().admit(committed.pk, [f"made-up-{sender}-{i}" for i in range(5)])
        connection.close()

    threads = [threading.Thread(target=bring, args=(sender,)) for sender in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ReportedJob.objects.count() == 10
    assert Job.objects.count() == 0
