"""Prometheus remote write: from a request to rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from accounts.models import AuditEntry
from fleet import snapshot
from fleet.models import Gpu
from telemetry import metrics
from telemetry.models import Agent, PushedRequest
from tests.builders.remote_write import STALE, TimeSeries, request_1, request_2, snappy
from tests.integration.telemetry.conftest import Source, forward_everything

V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
SAMPLES_WRITTEN = "X-Prometheus-Remote-Write-Samples-Written"


def dcgm(
    metric: str, value: float, *, node: str = "n1", gpu: int = 0, ts: float | None = None
) -> TimeSeries:
    """One sample of one GPU, read now unless ``ts`` says otherwise."""
    labels = {
        "__name__": f"DCGM_FI_DEV_{metric}",
        "gpu": str(gpu),
        "Hostname": node,
        "instance": f"{node}:9400",
        "job": "dcgm",
        "modelName": "NVIDIA H100 80GB HBM3",
    }
    return labels, [(value, round(1000 * (time.time() if ts is None else ts)))]


def write(source: Source, body: bytes, **headers: str) -> Any:
    return source.client.post(
        "/api/v1/prometheus/write",
        data=snappy(body),
        content_type=headers.pop("content_type", "application/x-protobuf"),
        headers={
            "Authorization": f"Bearer {source.token}",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            **headers,
        },
    )


def write_series(source: Source, *series: TimeSeries) -> Any:
    return write(source, request_1(series))


def stored(columns: str, table: str = "gpu_sample") -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT gpu.index, {columns} FROM {table} JOIN fleet_gpu AS gpu ON gpu.id = gpu_id"
            " ORDER BY gpu.node_id, 1, ts"
        )
        return list(cursor.fetchall())


def test_samples_of_one_gpu_at_one_time_are_stored_as_one_row(source: Source) -> None:
    now = time.time()
    answer = write_series(
        source,
        dcgm("POWER_USAGE", 412.5, ts=now),
        dcgm("GPU_TEMP", 61, ts=now),
        dcgm("FB_USED", 10, ts=now),
        dcgm("MEMORY_TEMP", 0, ts=now),
        dcgm("POWER_USAGE", 99, gpu=5, ts=now),
    )
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers[SAMPLES_WRITTEN] == "5"
    forward_everything()
    assert stored("power_w, temp_c, mem_used, temp_mem_c, util") == [
        (0, 412.5, 61.0, 10 * 2**20, None, None),
        (5, 99.0, None, None, None, None),
    ]
    (ts,) = {row[1] for row in stored("ts")}
    assert ts.timestamp() == pytest.approx(now, abs=1e-3)


def test_version_2_says_the_same(source: Source) -> None:
    body = request_2([dcgm("POWER_USAGE", 412.5), dcgm("GPU_TEMP", 61, gpu=1)])
    version = {"X-Prometheus-Remote-Write-Version": "2.0.0"}
    answer = write(source, body, content_type=V2, **version)
    assert answer.status_code == 204
    assert answer.headers[SAMPLES_WRITTEN] == "2"
    for kind in ("Histograms", "Exemplars"):
        assert answer.headers[f"X-Prometheus-Remote-Write-{kind}-Written"] == "0"
    forward_everything()
    assert stored("power_w, temp_c") == [(0, 412.5, None), (1, None, 61.0)]


def test_rows_that_came_in_two_requests_are_one(source: Source) -> None:
    now = time.time()
    write_series(source, dcgm("POWER_USAGE", 412.5, ts=now))
    write_series(source, dcgm("GPU_TEMP", 61, ts=now))
    assert forward_everything() == 1
    assert stored("power_w, temp_c") == [(0, 412.5, 61.0)]


def test_a_request_sent_again_is_stored_once(source: Source) -> None:
    body = request_1([dcgm("POWER_USAGE", 412.5)])
    for _ in range(2):
        assert write(source, body).status_code == 204
    forward_everything()
    duplicates = metrics.DUPLICATES._value.get()
    assert write(source, body).status_code == 204
    assert metrics.DUPLICATES._value.get() == duplicates + 1
    forward_everything()
    assert stored("power_w") == [(0, 412.5)]


def test_a_late_sample_is_stored_and_does_not_set_the_live_frame_back(source: Source) -> None:
    from telemetry import frame

    now = time.time()
    write_series(source, dcgm("POWER_USAGE", 600, ts=now))
    forward_everything()
    write_series(source, dcgm("POWER_USAGE", 100, ts=now - 60))
    forward_everything()
    assert stored("power_w") == [(0, 100.0), (0, 600.0)]
    import numpy as np

    ids = np.array([Gpu.objects.get(index=0).pk])
    assert frame.read().rows("gpu", ids)["power_w"].tolist() == [600.0]


def test_a_half_of_a_row_that_comes_late_does_not_wipe_the_other_in_the_live_frame(
    source: Source,
) -> None:
    import numpy as np

    from telemetry import frame

    now = time.time()
    write_series(source, dcgm("POWER_USAGE", 600, ts=now))
    forward_everything()
    write_series(source, dcgm("GPU_TEMP", 61, ts=now))
    forward_everything()
    ids = np.array([Gpu.objects.get(index=0).pk])
    live = frame.read().rows("gpu", ids)
    assert (live["power_w"].tolist(), live["temp_c"].tolist()) == ([600.0], [61.0])


def test_what_maps_to_nothing_is_no_error(source: Source) -> None:
    before = metrics.SAMPLES.labels("remote_write", "ignored_unmapped")._value.get()
    other: TimeSeries = ({"__name__": "go_goroutines", "instance": "x:1"}, [(7.0, 1)])
    answer = write_series(source, other, dcgm("POWER_USAGE", 412.5))
    assert answer.status_code == 204
    assert answer.headers[SAMPLES_WRITTEN] == "2"
    assert metrics.SAMPLES.labels("remote_write", "ignored_unmapped")._value.get() == before + 1
    forward_everything()
    assert stored("power_w") == [(0, 412.5)]


def test_a_request_with_nothing_of_ours_keeps_nothing(source: Source) -> None:
    other: TimeSeries = ({"__name__": "go_goroutines"}, [(7.0, 1)])
    assert write_series(source, other, dcgm("POWER_USAGE", STALE)).status_code == 204
    assert not PushedRequest.objects.exists()


def test_bad_samples_are_refused_and_the_rest_is_stored(source: Source) -> None:
    answer = write_series(
        source,
        dcgm("POWER_USAGE", -1),
        dcgm("GPU_TEMP", 61),
        dcgm("POWER_USAGE", 50, ts=time.time() + 120, gpu=1),
        dcgm("POWER_USAGE", 50, node="n9"),
        dcgm("POWER_USAGE", 50, gpu=9),
        dcgm("POWER_USAGE", 70, gpu=2),
    )
    assert answer.status_code == 400
    body = answer.json()
    assert (body["refused_rows"], answer.headers[SAMPLES_WRITTEN]) == (4, "2")
    assert [each["code"] for each in body["refused"]] == [
        "invalid_field", "future_time", "unknown_node", "unknown_gpu",
    ]  # fmt: skip
    forward_everything()
    assert stored("power_w, temp_c") == [(0, None, 61.0), (2, 70.0, None)]
    agent = Agent.objects.get(name="agent-1")
    assert (agent.refused_batches, agent.refused_rows) == (0, 4)


def test_another_agents_node_is_refused_and_audited_once(source: Source, stranger: Source) -> None:
    for power in (50, 51):
        answer = write_series(
            source, dcgm("POWER_USAGE", power, node="n2"), dcgm("POWER_USAGE", power)
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "foreign_node"
    forward_everything()
    assert stored("power_w") == [(0, 50.0), (0, 51.0)]
    entry = AuditEntry.objects.get(action="telemetry.refused")
    assert "n2" in entry.detail["reason"]


def test_a_request_of_nothing_but_another_agents_is_forbidden(
    source: Source, stranger: Source
) -> None:
    assert write_series(source, dcgm("POWER_USAGE", 50, node="n2")).status_code == 403


def test_a_gpu_is_known_by_its_uuid(source: Source) -> None:
    Gpu.objects.filter(node=source.node, index=3).update(uuid="GPU-abc")
    snapshot.invalidate()
    labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "UUID": "GPU-abc", "instance": "10.0.0.1:94"}
    series: TimeSeries = (labels, [(412.5, round(1000 * time.time()))])
    assert write_series(source, series).status_code == 204
    forward_everything()
    assert stored("power_w") == [(3, 412.5)]


def test_the_labels_that_name_a_node_can_be_chosen(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_NODE_LABELS = ["machine"]
    labels, samples = dcgm("POWER_USAGE", 412.5, node="elsewhere")
    assert write_series(source, ({**labels, "machine": "n1"}, samples)).status_code == 204


def test_a_removed_gpu_costs_only_its_own_rows(source: Source, stranger: Source) -> None:
    source.agent.nodes.add(stranger.node)
    write_series(source, dcgm("POWER_USAGE", 1), dcgm("POWER_USAGE", 2, node="n2"))
    stranger.node.delete()
    snapshot.invalidate()
    forward_everything()
    assert stored("power_w") == [(0, 1.0)]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": "Bearer hra_no"}, 401, "unauthorized"),
        ({"Content-Encoding": "gzip"}, 415, "unsupported_content_encoding"),
        ({"content_type": "text/plain"}, 415, "unsupported_content_type"),
        ({"content_type": "application/x-protobuf;proto=x.Y"}, 415, "unsupported_content_type"),
    ],
)
def test_another_kind_of_request_is_refused(
    source: Source, headers: dict[str, str], status: int, code: str
) -> None:
    answer = write(source, request_1([dcgm("POWER_USAGE", 1)]), **headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_what_is_no_protobuf_is_refused(source: Source) -> None:
    answer = write(source, b"\xff\xff")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed_body")


def test_a_body_over_the_limit_is_refused(source: Source) -> None:
    answer = write(source, bytes(16 * 1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_who_writes_too_fast_is_told_when_to_come_back(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = settings.TELEMETRY_BURST_ROWS_PER_AGENT = 1
    assert write_series(source, dcgm("POWER_USAGE", 1)).status_code == 204
    answer = write_series(source, dcgm("POWER_USAGE", 2))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert PushedRequest.objects.count() == 1


def test_a_full_inbox_asks_to_come_back(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_BACKLOG = 1
    assert write_series(source, dcgm("POWER_USAGE", 1)).status_code == 204
    answer = write_series(source, dcgm("POWER_USAGE", 2))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "backlog_full")
    assert answer.headers["Retry-After"]


def test_redis_away_asks_to_come_back(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def away(*args: Any) -> Any:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr("telemetry.stream.take_rows", away)
    answer = write_series(source, dcgm("POWER_USAGE", 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


def test_it_meets_no_session(source: Source) -> None:
    answer = write_series(source, dcgm("POWER_USAGE", 1))
    assert not answer.wsgi_request.__dict__.keys() & {"session", "user"}


def _many(count: int) -> Iterable[TimeSeries]:
    now = time.time()
    return [dcgm("POWER_USAGE", i, gpu=i % 8, ts=now - i // 8) for i in range(count)]


def test_a_large_request_is_stored_whole(source: Source) -> None:
    assert write_series(source, *_many(4_000)).status_code == 204
    forward_everything()
    assert len(stored("power_w")) == 4_000
