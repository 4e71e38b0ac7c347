"""A bad batch is refused with its field; nothing of it is stored, all beside it is."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
import zstandard
from django.db import connection
from pytest_django import Settings

from accounts.models import AuditEntry
from fleet.models import HardwareModel, Rack
from headroom.contracts import (
    AgentStatus,
    LinkColumns,
    MeterColumns,
    TelemetryBatch,
    encode_batch,
)
from telemetry import aside, stream
from telemetry.directory import invalidate_scopes
from telemetry.models import Agent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything, make_node


def stored_rows() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM gpu_sample")
        return int(cursor.fetchone()[0])


def refused(answer: Any, status: int, code: str, field: str) -> None:
    """Check a refusal: its status, its code, its field, and that it says something."""
    assert answer.status_code == status, answer.content
    error = answer.json()["error"]
    assert (error["code"], error.get("field", "")) == (code, field)
    assert error["message"]


def as_json(batch: TelemetryBatch, **changes: Any) -> bytes:
    import msgspec

    document = msgspec.to_builtins(batch)
    document.update(changes)
    return json.dumps(document).encode()


NOW = time.time()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seq": "one"}, "seq"),
        ({"seq": 0}, "seq"),
        ({"sent_at": None}, "sent_at"),
        ({"nodes": {}}, "nodes"),
        ({"agent": ""}, "agent"),
        ({"agent": "a\x00"}, "agent"),
        ({"nodes": [{"node": "n1", "gpus": {"ts": [NOW], "gpu": [0], "power_w": ["hot"]}}]},
         "nodes[0].gpus.power_w[0]"),
        ({"nodes": [{"node": "n1", "gpus": {"ts": [NOW], "gpu": [0], "power_w": [-3]}}]},
         "nodes[0].gpus.power_w[0]"),
        ({"nodes": [{"node": "n1", "gpus": {"ts": [NOW], "gpu": [0], "temp_c": [1e9]}}]},
         "nodes[0].gpus.temp_c[0]"),
        ({"nodes": [{"node": "n1", "gpus": {"ts": [NOW], "gpu": [0], "watts": [1]}}]},
         "nodes[0].gpus"),
    ],
)  # fmt: skip
def test_a_wrong_type_or_value_is_told_with_its_path(
    source: Source, changes: dict[str, Any], field: str
) -> None:
    body = as_json(make_batch("agent-1", "n1"), **changes)
    refused(source.push(body, content_type="application/json"), 400, "invalid_field", field)
    assert stream.backlog(0) == 0


def test_nan_is_no_reading(source: Source) -> None:
    power: list[float | None] = [1.0, 2.0, float("nan"), *[3.0] * 5]
    answer = source.push(make_batch("agent-1", "n1", power_w=power))
    refused(answer, 400, "invalid_field", "nodes[0].gpus.power_w[2]")


def test_columns_of_unlike_length_are_refused(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n1", power_w=[1.0, 2.0]))
    refused(answer, 400, "length_mismatch", "nodes[0].gpus.power_w")


def test_oldest_seq_above_seq_is_refused(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n1", 3, oldest_seq=4))
    refused(answer, 400, "oldest_seq_above_seq", "oldest_seq")


def test_a_name_that_is_kept_for_later_is_no_field_yet(source: Source) -> None:
    document = json.loads(as_json(make_batch("agent-1", "n1")))
    storage = {"ts": [time.time()], "mount": ["/ckpt"], "replication_lag_s": [1.5]}
    document["nodes"][0]["storage"] = storage
    answer = source.push(json.dumps(document).encode(), content_type="application/json")
    assert answer.status_code == 400
    assert "replication_lag_s" in answer.content.decode()


def test_an_unknown_node_is_refused(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n9"))
    refused(answer, 400, "unknown_node", "nodes[0].node")


def test_an_unknown_gpu_is_refused(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n1", gpus=9))
    refused(answer, 400, "unknown_gpu", "nodes[0].gpus.gpu[8]")


def test_an_unknown_link_and_meter_are_refused(source: Source) -> None:
    links = LinkColumns(ts=[NOW], link=["nowhere"])
    refused(
        source.push(make_batch("agent-1", "n1", links=links)), 400, "unknown_link", "links.link[0]"
    )
    meters = MeterColumns(ts=[NOW], meter=["nothing"])
    refused(
        source.push(make_batch("agent-1", "n1", meters=meters)),
        400,
        "unknown_meter",
        "meters.meter[0]",
    )


def test_a_reading_from_the_future_is_refused(source: Source) -> None:
    ahead = time.time() + 120
    answer = source.push(make_batch("agent-1", "n1", ts=[ahead - 120, ahead]))
    refused(answer, 400, "future_time", "nodes[0].gpus.ts[8]")


def test_a_reading_older_than_what_is_kept_is_refused(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_RETENTION_H = 48.0
    answer = source.push(make_batch("agent-1", "n1", ts=[time.time() - 49 * 3600]))
    refused(answer, 400, "too_old", "nodes[0].gpus.ts[0]")


def test_another_agents_node_is_refused_and_audited(source: Source, stranger: Source) -> None:
    answer = source.push(make_batch("agent-1", "n2"))
    refused(answer, 403, "foreign_node", "nodes[0].node")
    entry = AuditEntry.objects.get(action="telemetry.refused")
    assert entry.actor == "agent-1"
    assert "n2" in entry.detail["reason"]


def test_another_agents_name_is_refused(source: Source, stranger: Source) -> None:
    refused(source.push(make_batch("agent-2", "n2")), 403, "wrong_agent", "agent")


def test_truncated_messagepack_is_refused(source: Source) -> None:
    body = encode_batch(make_batch("agent-1", "n1"))
    refused(source.push(body[:-20]), 400, "malformed_body", "")


def test_truncated_compression_is_refused(source: Source) -> None:
    body = gzip.compress(encode_batch(make_batch("agent-1", "n1")))
    refused(source.push(body[:-20], **{"Content-Encoding": "gzip"}), 400, "malformed_body", "")
    body = zstandard.compress(encode_batch(make_batch("agent-1", "n1")))
    refused(source.push(body[:-20], **{"Content-Encoding": "zstd"}), 400, "malformed_body", "")
    refused(source.push(b"\x00", **{"Content-Encoding": "zstd"}), 400, "malformed_body", "")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_of_100_mb_is_refused_without_unpacking_it(source: Source, encoding: str) -> None:
    zeros = bytes(100_000_000)
    bomb = gzip.compress(zeros) if encoding == "gzip" else zstandard.compress(zeros)
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        refused(source.push(bomb, **{"Content-Encoding": encoding}), 413, "too_large", "")
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


def test_a_body_over_the_limit_is_refused_unread(source: Source) -> None:
    refused(source.push(bytes(16 * 1024 * 1024 + 1)), 413, "too_large", "")


def test_an_unknown_encoding_or_type_is_refused(source: Source) -> None:
    refused(
        source.push(b"x", **{"Content-Encoding": "br"}),
        415,
        "unsupported_content_encoding",
        "Content-Encoding",
    )
    refused(
        source.push(b"x", content_type="text/plain"),
        415,
        "unsupported_content_type",
        "Content-Type",
    )


def test_no_token_a_wrong_one_and_a_revoked_one_are_refused(source: Source) -> None:
    good, source.token = source.token, ""
    refused(source.push(make_batch("agent-1", "n1")), 401, "unauthorized", "Authorization")
    source.token = good[:-1] + ("a" if good[-1] != "a" else "b")
    refused(source.push(make_batch("agent-1", "n1")), 401, "unauthorized", "Authorization")
    source.token = good
    Agent.objects.update(revoked_at="2026-01-01T00:00Z")
    invalidate_scopes()
    refused(source.push(make_batch("agent-1", "n1")), 401, "unauthorized", "Authorization")


def test_a_full_backlog_asks_to_come_back(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_BACKLOG = 1
    assert source.push(make_batch("agent-1", "n1", 1)).status_code == 202
    answer = source.push(make_batch("agent-1", "n1", 2))
    refused(answer, 503, "backlog_full", "")
    assert int(answer.headers["Retry-After"]) > 0
    assert stream.backlog(0) == 1


def test_redis_away_asks_to_come_back(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def away(*args: Any, **kwargs: Any) -> Any:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr(stream, "append", away)
    answer = source.push(make_batch("agent-1", "n1"))
    refused(answer, 503, "unavailable", "")
    assert answer.headers["Retry-After"]


def test_bad_batches_cost_the_good_ones_beside_them_nothing(
    source: Source, stranger: Source
) -> None:
    source.push(make_batch("agent-1", "n1", 1))
    source.push(b"\xc1 not MessagePack")
    source.push(make_batch("agent-1", "n2", 2))
    source.push(make_batch("agent-1", "n1", 2, ts=[time.time() + 999]))
    stranger.push(make_batch("agent-2", "n2", 1))
    source.push(make_batch("agent-1", "n1", 3, oldest_seq=3))
    drain_everything()
    assert stored_rows() == 24
    agent = Agent.objects.get(name="agent-1")
    assert agent.refused_batches == 3
    assert "ahead of the server's clock" in agent.last_refusal


def test_a_batch_that_no_check_foresaw_is_set_aside(
    source: Source, stranger: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    from telemetry import rows, tasks

    real = rows.gather
    of_n1 = source.node.gpus.values_list("pk", flat=True)

    def fails_for_n1(pairs: Any, *args: Any) -> Any:
        gathered = real(pairs, *args)
        if np.isin(list(of_n1), gathered.rows["gpu"].columns["gpu_id"]).any():
            raise ValueError("unforeseen")
        return gathered

    monkeypatch.setattr(rows, "gather", fails_for_n1)
    stranger.push(make_batch("agent-2", "n2", 1))
    source.push(make_batch("agent-1", "n1", 1))
    stranger.push(make_batch("agent-2", "n2", 2))
    tasks.write(0)
    drain_everything()
    assert stored_rows() == 16
    (kept,) = aside.found()
    assert (kept.agent_id, kept.seq, kept.error) == (source.agent.pk, 1, "ValueError: unforeseen")


def test_a_node_that_was_added_a_moment_ago_is_known(
    source: Source, rack: Rack, h100: HardwareModel
) -> None:
    source.push(make_batch("agent-1", "n1", 1))  # fills this process's copy of the inventory
    source.agent.nodes.add(make_node("n3", rack, h100))
    invalidate_scopes()
    assert source.push(make_batch("agent-1", "n3", 2)).status_code == 202


def test_a_batch_that_is_ahead_shows_on_the_agent_with_the_skew_that_was_measured(
    source: Source,
) -> None:
    now = time.time()
    batch = make_batch("agent-1", "n1", ts=[now + 300], sent_at=now + 300)
    for skew_s, expected in ((None, 300), (287.5, 287.5)):
        batch.status = AgentStatus(skew_s=skew_s)
        assert source.push(batch).status_code == 400
        agent = Agent.objects.get()
        assert agent.skew_s == pytest.approx(expected, abs=2)
    assert agent.refused_batches == 2
    assert "ahead of the server's clock" in agent.last_refusal
