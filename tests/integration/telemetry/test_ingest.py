"""From a pushed batch to rows, the live frame, positions and events."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction

from fleet import snapshot
from fleet.models import Gpu
from headroom.contracts import AgentStatus, JobColumns, StorageColumns, XidColumns
from telemetry import frame, stream
from telemetry.directory import invalidate_scopes
from telemetry.models import Agent, IngestPosition, Mount, ReportedJob, ThrottleEvent, XidEvent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


def stored(columns: str = "ts, gpu_id, power_w", table: str = "gpu_sample") -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
        return list(cursor.fetchall())


def test_an_accepted_batch_becomes_one_row_for_each_reading(source: Source) -> None:
    now = time.time()
    answer = source.push(make_batch("agent-1", "n1", ts=[now - 1, now], power_w=512.5))
    assert answer.status_code == 202
    assert answer.json()["durable_seq"] == 0
    assert drain_everything() == 1
    rows = stored()
    assert len(rows) == 16
    assert {row[2] for row in rows} == {512.5}
    assert abs(rows[-1][0].timestamp() - now) < 1e-5


def test_missing_readings_are_stored_as_null_and_zero_as_zero(source: Source) -> None:
    power: list[float | None] = [None, 0.0, *[300.0] * 6]
    assert source.push(make_batch("agent-1", "n1", power_w=power, util=None)).status_code == 202
    drain_everything()
    assert stored("gpu_id, power_w, util") == [
        (gpu.pk, value, None)
        for gpu, value in zip(Gpu.objects.order_by("index"), power, strict=True)
    ]


def test_a_batch_sent_twice_is_stored_once(source: Source) -> None:
    batch = make_batch("agent-1", "n1")
    source.push(batch)
    source.push(batch)
    drain_everything()
    source.push(batch)
    drain_everything()
    assert len(stored()) == 8


def test_the_answer_says_how_far_batches_are_durable(source: Source) -> None:
    for seq in (1, 2):
        source.push(make_batch("agent-1", "n1", seq))
    assert source.push(make_batch("agent-1", "n1", 3)).json()["durable_seq"] == 0
    drain_everything()
    assert source.push(make_batch("agent-1", "n1", 4)).json()["durable_seq"] == 3


def test_a_batch_lost_with_redis_holds_the_durable_seq_back(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 1))
    drain_everything()
    source.push(make_batch("agent-1", "n1", 2))
    stream.connection().flushall()
    source.push(make_batch("agent-1", "n1", 3))
    drain_everything()
    assert source.push(make_batch("agent-1", "n1", 4)).json()["durable_seq"] == 1
    source.push(make_batch("agent-1", "n1", 2))
    drain_everything()
    assert source.push(make_batch("agent-1", "n1", 5)).json()["durable_seq"] == 4
    assert len(stored()) == 8 * 4


def test_the_durable_seq_survives_the_loss_of_redis(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 1))
    drain_everything()
    stream.connection().flushall()
    answer = source.client.get(
        "/api/v1/telemetry/position?boot_id=boot-1",
        headers={"Authorization": f"Bearer {source.token}"},
    )
    assert answer.json()["durable_seq"] == 1


def test_a_batch_that_the_agent_gave_up_is_not_waited_for(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 7, oldest_seq=7))
    drain_everything()
    assert IngestPosition.objects.get().mark == 7


def test_a_new_boot_counts_from_one_again(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 1, boot_id="first"))
    source.push(make_batch("agent-1", "n1", 1, boot_id="second"))
    drain_everything()
    assert len(stored()) == 16


def test_the_live_frame_holds_the_latest_reading_of_each_gpu(source: Source) -> None:
    now = time.time()
    source.push(make_batch("agent-1", "n1", 1, ts=[now], power_w=600.0))
    source.push(make_batch("agent-1", "n1", 2, ts=[now - 5], power_w=100.0))
    drain_everything()
    ids = np.array(list(Gpu.objects.values_list("pk", flat=True)))
    live = frame.read().rows("gpu", ids)
    assert live["power_w"].tolist() == [600.0] * 8
    assert live["ts"].tolist() == [now] * 8
    assert np.isnan(live["util"]).all()


def test_a_late_reading_does_not_set_the_live_frame_back(source: Source) -> None:
    now = time.time()
    for seq, age_s, power_w in ((1, 0.0, 600.0), (2, 5.0, 100.0)):
        source.push(make_batch("agent-1", "n1", seq, ts=[now - age_s], power_w=power_w))
        drain_everything()
    ids = np.array(list(Gpu.objects.values_list("pk", flat=True)))
    assert frame.read().rows("gpu", ids)["power_w"].tolist() == [600.0] * 8
    assert len(stored()) == 16


def test_the_version_of_the_frame_changes_with_a_reading(source: Source) -> None:
    before = frame.version()
    source.push(make_batch("agent-1", "n1"))
    drain_everything()
    assert frame.version() != before


def test_the_live_frame_comes_back_after_redis_was_wiped(source: Source) -> None:
    now = time.time()
    source.push(make_batch("agent-1", "n1", 1, ts=[now], power_w=600.0))
    drain_everything()
    version = frame.version()
    stream.connection().flushall()
    drain_everything()
    ids = np.array(list(Gpu.objects.values_list("pk", flat=True)))
    assert frame.version() != version
    assert frame.read().rows("gpu", ids)["power_w"].tolist() == [600.0] * 8


def test_a_wipe_under_a_running_drain_loses_no_reading_of_the_frame(
    source: Source, stranger: Source
) -> None:
    from telemetry.writer import Writer

    work = Writer(0)
    source.push(make_batch("agent-1", "n1", power_w=600.0))
    work.step()
    stream.connection().flushall()
    stranger.push(make_batch("agent-2", "n2", power_w=300.0))
    work.step()
    ids = np.array(list(Gpu.objects.order_by("node__name").values_list("pk", flat=True)))
    assert frame.read().rows("gpu", ids)["power_w"].tolist() == [600.0] * 8 + [300.0] * 8


def test_agents_say_how_they_are(source: Source) -> None:
    status = AgentStatus(version="0.1.0", spooled_batches=3, errors=1, last_error="nvml: lost")
    now = time.time()
    source.push(make_batch("agent-1", "n1", ts=[now - 9, now - 4], sent_at=now + 2, status=status))
    drain_everything()
    agent = Agent.objects.get()
    assert agent.last_seen_at is not None
    assert (agent.version, agent.spooled_batches, agent.last_error) == ("0.1.0", 3, "nvml: lost")
    assert agent.lag_s == pytest.approx(4, abs=0.5)
    assert agent.skew_s == pytest.approx(2, abs=0.5)


def test_what_an_agent_measured_of_its_clock_and_thinned_is_kept(source: Source) -> None:
    status = AgentStatus(version="0.1.0", thinned_rows=40, skew_s=-0.25)
    source.push(make_batch("agent-1", "n1", sent_at=time.time() + 2, status=status))
    drain_everything()
    agent = Agent.objects.get()
    assert (agent.thinned_rows, agent.skew_s) == (40, -0.25)


def test_job_metrics_are_stored_under_the_jobs_name(source: Source) -> None:
    now = time.time()
    Agent.objects.update(any_job=True)
    invalidate_scopes()
    jobs = JobColumns(ts=[now, now], job=["llama", "gpt"], step=[5, None], loss=[2.5, 3.0])
    source.push(make_batch("agent-1", "n1", jobs=jobs, job=["llama", *[None] * 7]))
    drain_everything()
    ids = dict(ReportedJob.objects.values_list("name", "pk"))
    assert sorted(stored("job_id, step, loss", "job_sample")) == sorted(
        [(ids["llama"], 5, 2.5), (ids["gpt"], None, 3.0)], key=lambda row: row[0]
    )
    assert [row[1] for row in stored("gpu_id, job_id")] == [ids["llama"], *[None] * 7]


def test_storage_probes_are_stored_by_mount(source: Source) -> None:
    now = time.time()
    batch = make_batch("agent-1", "n1")
    batch.nodes[0].storage = StorageColumns(
        ts=[now, now], mount=["/scratch", "/home"], fsync_s=[0.25, None], read_s=[0.5, 4.0]
    )
    for seq in (1, 2):
        batch.seq = seq
        assert source.push(batch).status_code == 202
        drain_everything()
    mounts = {mount.name: mount.pk for mount in Mount.objects.filter(node=source.node)}
    assert sorted(mounts) == ["/home", "/scratch"]
    found = stored("mount_id, node_id, fsync_s, read_s", "storage_sample")
    assert sorted(found, key=repr) == sorted(
        [(mounts["/scratch"], source.node.pk, 0.25, 0.5)] * 2
        + [(mounts["/home"], source.node.pk, None, 4.0)] * 2,
        key=repr,
    )


def test_an_xid_that_is_told_twice_is_one_event(source: Source) -> None:
    now = time.time()
    batch = make_batch("agent-1", "n1")
    batch.nodes[0].xids = XidColumns(
        ts=[now, now - 1, now - 1], xid=[79, 48, 48], gpu=[3, None, 2],
        pci=["0000:1a:00", None, None], text=["GPU has fallen off the bus.", "", ""],
    )  # fmt: skip
    for seq in (1, 2):
        batch.seq = seq
        assert source.push(batch).status_code == 202
        drain_everything()
    lost, *others = XidEvent.objects.all()
    assert (lost.node, lost.gpu, lost.xid) == (source.node, Gpu.objects.get(index=3), 79)
    assert (lost.pci, lost.text) == ("0000:1a:00", "GPU has fallen off the bus.")
    assert lost.ts.timestamp() == pytest.approx(now, abs=1e-5)
    assert {event.gpu for event in others} == {None, Gpu.objects.get(index=2)}
    assert len(others) == 2


def test_lines_of_one_moment_that_differ_are_rows_of_their_own(source: Source) -> None:
    batch = make_batch("agent-1", "n1")
    batch.nodes[0].xids = XidColumns(
        ts=[time.time()] * 4, xid=[94] * 4, gpu=[None] * 4,
        pci=["0000:1a:00", "0000:1b:00", "0000:1b:00", "0000:1b:00"], text=["a", "a", "b", "b"],
    )  # fmt: skip
    source.push(batch)
    drain_everything()
    assert sorted(XidEvent.objects.values_list("pci", "text")) == [
        ("0000:1a:00", "a"),
        ("0000:1b:00", "a"),
        ("0000:1b:00", "b"),
    ]


def test_an_xid_of_a_gpu_that_the_node_does_not_have_is_refused(source: Source) -> None:
    batch = make_batch("agent-1", "n1")
    batch.nodes[0].xids = XidColumns(ts=[time.time()], xid=[79], gpu=[8])
    answer = source.push(batch)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "nodes[0].xids.gpu[0]"


def test_the_number_of_mig_instances_is_stored(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", mig_instances=[7, *[None] * 7]))
    drain_everything()
    assert [row[1] for row in stored("gpu_id, mig_instances")] == [7, *[None] * 7]


def test_a_throttle_event_opens_goes_on_and_closes(source: Source) -> None:
    now = time.time()
    hot = [0x20, *[0] * 7]
    source.push(make_batch("agent-1", "n1", 1, ts=[now - 200], throttle=hot, temp_c=88.0))
    drain_everything()
    event = ThrottleEvent.objects.get()
    assert event.closed_at is None
    assert event.cause_token == "sw_thermal"
    source.push(make_batch("agent-1", "n1", 2, ts=[now - 130], throttle=hot, temp_c=91.0))
    drain_everything()
    event.refresh_from_db()
    assert (event.closed_at, event.readings, event.peak_temp_c) == (None, 2, 91.0)
    source.push(make_batch("agent-1", "n1", 3, ts=[now - 120, now - 100, now - 90], temp_c=70.0))
    drain_everything()
    event.refresh_from_db()
    assert event.closed_at is not None
    assert event.closed_at.timestamp() == pytest.approx(now - 120, abs=1e-3)
    assert event.share == pytest.approx(75 / 80)


def test_a_gpu_removed_after_its_batch_was_accepted_costs_only_its_own_rows(
    source: Source, stranger: Source
) -> None:
    source.push(make_batch("agent-1", "n1", throttle=4))
    stranger.push(make_batch("agent-2", "n2", throttle=4))
    source.node.delete()
    snapshot.invalidate()
    drain_everything()
    assert len(stored()) == 8
    assert ThrottleEvent.objects.count() == 8


def test_an_agent_removed_after_its_batch_was_accepted_holds_up_nobody(
    source: Source, stranger: Source
) -> None:
    source.push(make_batch("agent-1", "n1"))
    stranger.push(make_batch("agent-2", "n2"))
    source.agent.delete()
    drain_everything()
    with transaction.atomic():
        # What Postgres would else say no earlier than at the commit.
        connection.cursor().execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert len(stored()) == 8
    assert {position.agent_id for position in IngestPosition.objects.all()} == {stranger.agent.pk}


def test_rows_of_all_ages_find_their_partition(source: Source) -> None:
    now = time.time()
    ages = [0.0, 3_600.0, 7_200.0, 40 * 3_600.0]
    source.push(make_batch("agent-1", "n1", ts=[now - age for age in ages]))
    drain_everything()
    assert len(stored()) == 32
