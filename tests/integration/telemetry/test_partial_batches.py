"""A batch with bad rows: the rest is stored, and the answer says what was not."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from pytest_django import Settings

from accounts.models import AuditEntry
from headroom.contracts import ErrorBody, TelemetryBatch
from telemetry import metrics, stream
from telemetry.models import Agent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.integration.telemetry.test_ingest import stored


def partly_refused(answer: Any) -> ErrorBody:
    """Check that the rest was taken, and return what the answer says."""
    assert answer.status_code == 400, answer.content
    body = msgspec.json.decode(answer.content, type=ErrorBody)
    assert body.ack is not None
    assert body.error == body.refused[0]
    return body


def with_changes(batch: TelemetryBatch, column: str, values: dict[int, Any]) -> dict[str, Any]:
    """Return the document of ``batch`` with other values in a column of its GPUs."""
    document: dict[str, Any] = msgspec.to_builtins(batch)
    for row, value in values.items():
        document["nodes"][0]["gpus"][column][row] = value
    return document


@pytest.mark.parametrize("content_type", ["application/json", "application/msgpack"])
def test_bad_rows_are_refused_and_the_rest_is_stored(source: Source, content_type: str) -> None:
    power = [100.0 + index for index in range(8)]
    document = with_changes(
        make_batch("agent-1", "n1", power_w=power), "power_w", {2: "hot", 5: -1.0, 6: float("nan")}
    )
    is_json = content_type == "application/json"
    body = json.dumps(document).encode() if is_json else msgspec.msgpack.encode(document)
    told = partly_refused(source.push(body, content_type=content_type))
    assert told.refused_rows == 3
    assert [each.field for each in told.refused] == [
        f"nodes[0].gpus.power_w[{i}]" for i in (2, 5, 6)
    ]
    drain_everything()
    assert [row[2] for row in stored("ts, gpu_id, power_w")] == [100, 101, 103, 104, 107]


def test_a_batch_that_was_taken_in_part_is_stored_once_and_acknowledged(source: Source) -> None:
    body = msgspec.msgpack.encode(with_changes(make_batch("agent-1", "n1"), "power_w", {0: -1}))
    assert partly_refused(source.push(body)).ack is not None
    source.push(body)
    drain_everything()
    ack = partly_refused(source.push(body)).ack
    assert ack is not None
    assert ack.durable_seq == 1
    drain_everything()
    assert len(stored()) == 7


def test_rows_of_wrong_times_and_unknown_gpus_cost_nothing_else(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_RETENTION_H = 48.0
    now = time.time()
    batch = make_batch("agent-1", "n1", ts=[now - 49 * 3600, now, now + 99], gpus=9)
    told = partly_refused(source.push(batch))
    assert told.refused_rows == 9 + 1 + 9
    assert {each.code for each in told.refused} == {"too_old", "unknown_gpu", "future_time"}
    drain_everything()
    assert len(stored()) == 8


def test_what_was_refused_is_counted_by_cause(source: Source) -> None:
    def counted() -> tuple[float, float]:
        rows = metrics.REFUSED_ROWS.labels("future_time")._value.get()
        return rows, metrics.BATCHES.labels("partial")._value.get()

    before = counted()
    now = time.time()
    source.push(make_batch("agent-1", "n1", ts=[now, now + 99]))
    assert counted() == (before[0] + 8, before[1] + 1)
    agent = Agent.objects.get(name="agent-1")
    assert (agent.refused_batches, agent.refused_rows) == (0, 8)
    assert "ahead of the server's clock" in agent.last_refusal


def test_where_no_row_is_left_nothing_is_taken(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n1", ts=[time.time() + 99]))
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert stream.backlog(0) == 0
    assert Agent.objects.get(name="agent-1").refused_batches == 1


def test_another_agents_node_costs_the_whole_batch(source: Source, stranger: Source) -> None:
    document = with_changes(make_batch("agent-1", "n1"), "power_w", {0: "hot"})
    document["nodes"].append({**document["nodes"][0], "node": "n2"})
    answer = source.push(msgspec.msgpack.encode(document))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "foreign_node"
    assert stream.backlog(0) == 0
    assert AuditEntry.objects.get(action="telemetry.refused").actor == "agent-1"


def test_a_name_of_text_that_cannot_be_stored_fails_no_request(source: Source) -> None:
    document = msgspec.to_builtins(make_batch("agent-1", "n1"))
    document["nodes"].append({"node": "n1", "a\x00\u1234": {"ts": [1]}})
    assert partly_refused(source.push(msgspec.msgpack.encode(document))).refused_rows == 1
    assert Agent.objects.get(name="agent-1").refused_rows == 1


def test_an_agent_may_not_use_the_servers_own_boot_ids(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n1", boot_id="server:inbox"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "reserved_boot_id")


def test_too_many_rows_are_too_large(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headroom.contracts.MAX_ROWS", 7)
    answer = source.push(make_batch("agent-1", "n1"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_rows")


def test_who_sends_too_fast_is_told_when_to_come_back(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 10
    settings.TELEMETRY_BURST_ROWS_PER_AGENT = 20
    for seq in (1, 2):
        assert source.push(make_batch("agent-1", "n1", seq)).status_code == 202
    answer = source.push(make_batch("agent-1", "n1", 3))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_fast")
    assert int(answer.headers["Retry-After"]) == 1
    assert stream.backlog(0) == 2


def test_a_burst_after_an_outage_gets_through(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 1
    settings.TELEMETRY_BURST_ROWS_PER_AGENT = 8 * 50
    answers = [source.push(make_batch("agent-1", "n1", seq)) for seq in range(1, 52)]
    assert [answer.status_code for answer in answers] == [202] * 50 + [429]


def test_one_agents_share_is_not_anothers(
    source: Source, stranger: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 1
    settings.TELEMETRY_BURST_ROWS_PER_AGENT = 8
    assert source.push(make_batch("agent-1", "n1", 1)).status_code == 202
    assert source.push(make_batch("agent-1", "n1", 2)).status_code == 429
    assert stranger.push(make_batch("agent-2", "n2", 1)).status_code == 202


def test_a_batch_above_a_whole_share_passes_when_that_is_untouched(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 1
    settings.TELEMETRY_BURST_ROWS_PER_AGENT = 4
    assert source.push(make_batch("agent-1", "n1", 1)).status_code == 202
    answer = source.push(make_batch("agent-1", "n1", 2))
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) == 12
