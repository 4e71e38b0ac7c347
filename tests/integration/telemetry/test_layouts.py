"""Batches of fixed-width rows: agreed on once, judged by the writer, told of later."""

from __future__ import annotations

import struct
import time
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet import snapshot
from fleet.models import Gpu
from headroom import layouts
from headroom.contracts import (
    AgentStatus,
    HostColumns,
    LateRefusal,
    TelemetryAck,
    TelemetryBatch,
    encode_batch,
)
from headroom.layouts import CONTENT_TYPE, HEADER_BYTES, Encoder, Layout, layout_of
from telemetry import agreements, naming, stream
from telemetry.ingest import batches
from telemetry.ingest.batches import Post, Untaken
from telemetry.models import IngestPosition
from tests.builders.batches import make_batch
from tests.builders.jobs import make_attempt, make_job
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.integration.telemetry.test_names import place


def agree(source: Source, layout: Layout) -> Any:
    return source.client.post(
        layouts.PATH,
        data=msgspec.json.encode(layout),
        content_type="application/json",
        headers={"Authorization": f"Bearer {source.token}"},
    )


def encoder_of(source: Source, batch: TelemetryBatch) -> Encoder:
    layout = layout_of(batch)
    assert layout is not None
    answer = agree(source, layout)
    assert answer.status_code == 200, answer.content
    return Encoder(layout, answer.json()["layout"])


def rows_of(encoder: Encoder, batch: TelemetryBatch) -> bytes:
    body = encoder.encode(batch)
    assert body is not None
    return body


def push(source: Source, body: bytes) -> Any:
    return source.push(body, content_type=CONTENT_TYPE)


def ack_of(answer: Any) -> TelemetryAck:
    assert answer.status_code == 202, answer.content
    return msgspec.json.decode(answer.content, type=TelemetryAck)


def stored(columns: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM gpu_sample ORDER BY ts, gpu_id")
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def test_rows_of_fixed_width_are_stored_as_typed_ones_are(source: Source) -> None:
    ts = round(time.time(), 3)
    values: dict[str, Any] = {
        "power_w": [500.5, None] * 4,
        "energy_j": [1e9 + i / 8 for i in range(8)],
        "mem_used": [None, *range(7)],
        "throttle": 4,
        "ecc": None,
        "xid": [None] * 7 + [79],
    }
    typed = make_batch("agent-1", "n1", 1, ts=[ts], **values)
    host = HostColumns(ts=[ts], cpu_util=[12.5], mem_used=[2**40])
    typed.nodes[0].host = host
    encoder = encoder_of(source, typed)
    assert source.push(typed).status_code == 202
    drain_everything()
    columns = "gpu_id, ts, power_w, energy_j, mem_used, throttle, ecc, xid, temp_c, sm_mhz, job_id"
    expected = stored(columns)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM gpu_sample")
    again = msgspec.structs.replace(typed, seq=2)
    ack_of(push(source, rows_of(encoder, again)))
    drain_everything()
    assert stored(columns) == expected
    with connection.cursor() as cursor:
        cursor.execute("SELECT node_id, cpu_util, mem_used, psi_cpu FROM host_sample")
        assert cursor.fetchall() == [(source.node.pk, 12.5, 2**40, None)] * 2


def jobs_stored() -> list[str | None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT job.name FROM gpu_sample LEFT JOIN telemetry_reportedjob AS job"
            " ON job.id = job_id ORDER BY ts, gpu_id"
        )
        return [name for (name,) in cursor.fetchall()]


def test_rows_say_for_which_job_a_gpu_works(source: Source, stranger: Source) -> None:
    jobs = ["moe", None, "dense", "moe", *[None] * 4]
    batch = make_batch("agent-1", "n1", 1, job=jobs)
    other = make_batch("agent-2", "n2", 1, job="dense")
    for pusher, each in ((source, batch), (stranger, other)):
        ack_of(push(pusher, rows_of(encoder_of(pusher, each), each)))
    plain = make_batch("agent-1", "n1", 2)
    ack_of(push(source, rows_of(encoder_of(source, plain), plain)))
    drain_everything()
    assert jobs_stored() == [*jobs, *["dense"] * 8, *[None] * 8]


def test_a_job_that_the_layout_does_not_have_costs_its_row(
    source: Source, stranger: Source
) -> None:
    batch = make_batch("agent-1", "n1", 1, job="moe")
    encoder = encoder_of(source, batch)
    body = bytearray(rows_of(encoder, batch))
    form = struct.Struct("<" + layouts.code_of("gpus", encoder.layout.columns["gpus"]))
    at = 3 + encoder.layout.columns["gpus"].index("job") - 1
    for row, at_place in ((2, 1), (5, -1)):
        values = list(form.unpack_from(body, HEADER_BYTES + row * form.size))
        values[at] = at_place
        form.pack_into(body, HEADER_BYTES + row * form.size, *values)
    ack_of(push(source, bytes(body)))
    other = make_batch("agent-2", "n2", 1, job="dense")
    ack_of(push(stranger, rows_of(encoder_of(stranger, other), other)))
    drain_everything()
    assert jobs_stored() == ["moe"] * 6 + ["dense"] * 8
    (late,) = ack_of(push(source, rows_of(encoder, batch))).refused
    assert [error.field for error in late.errors] == ["gpus.job[2]", "gpus.job[5]"]


def test_a_layout_with_a_job_that_runs_elsewhere_is_refused(
    source: Source, stranger: Source
) -> None:
    place("gpt", "n2")
    layout = layout_of(make_batch("agent-1", "n1", 1, job="gpt"))
    assert layout is not None
    answer = agree(source, layout)
    assert answer.json()["error"]["code"] == "foreign_job"


@pytest.mark.usefixtures("nothing_turns_over")
def test_a_layout_with_a_job_that_was_placed_since_the_last_look_is_agreed_on(
    source: Source,
) -> None:
    encoder_of(source, make_batch("agent-1", "n1", 1, job="moe"))
    make_attempt(make_job("gpt").phases.get(), {"n1": range(8)})
    encoder_of(source, make_batch("agent-1", "n1", 1, job="gpt"))


def test_a_layout_ends_where_its_job_is_no_longer_the_agents_to_name(
    source: Source, stranger: Source
) -> None:
    batch = make_batch("agent-1", "n1", 1, job="gpt")
    body = rows_of(encoder_of(source, batch), batch)
    ack_of(push(source, body))
    # It was another scheduler's until now.
    place("gpt", "n2")
    post = Post(f"Bearer {source.token}", CONTENT_TYPE, "", body)
    assert batches.take_all([post]) == [Untaken.NEW_NAMES]
    answer = push(source, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unknown_layout"


@pytest.mark.usefixtures("nothing_turns_over")
def test_jobs_that_are_known_ask_no_database(source: Source) -> None:
    place("gpt", "n1")
    batch = make_batch("agent-1", "n1", 1, job="gpt")
    post = Post(
        f"Bearer {source.token}", CONTENT_TYPE, "", rows_of(encoder_of(source, batch), batch)
    )
    batches.take_all([post])
    with CaptureQueriesContext(connection) as asked:
        assert all(isinstance(answer, bytes) for answer in batches.take_all([post] * 5))
    assert len(asked) == 0


def test_a_batch_is_stored_once_in_either_form(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 1)
    body = rows_of(encoder_of(source, batch), batch)
    ack_of(push(source, body))
    ack_of(push(source, body))
    assert source.push(batch).status_code == 202
    assert drain_everything() == 3
    assert len(stored("ts")) == 8
    assert IngestPosition.objects.get().mark == 1
    assert ack_of(push(source, body)).durable_seq == 1


def test_a_bad_row_costs_itself_and_is_told_until_its_batch_is_let_go_of(source: Source) -> None:
    good = make_batch("agent-1", "n1", 1)
    encoder = encoder_of(source, good)
    bad = make_batch("agent-1", "n1", 1, power_w=[500.0, -3.0, 1e7, *[400.0] * 5])
    assert ack_of(push(source, rows_of(encoder, bad))).refused == []
    drain_everything()
    assert [row[0] for row in stored("power_w")] == [500.0, *[400.0] * 5]
    second = msgspec.structs.replace(good, seq=2)
    for body in (rows_of(encoder, second), encode_batch(msgspec.structs.replace(good, seq=3))):
        content_type = CONTENT_TYPE if body[:1] != encode_batch(good)[:1] else "application/msgpack"
        (late,) = ack_of(source.push(body, content_type=content_type)).refused
        assert (late.seq, late.rows) == (1, 2)
        assert [error.field for error in late.errors] == ["gpus.power_w[1]", "gpus.power_w[2]"]
        assert "float" in late.errors[0].message
        assert late.errors[0].code == "invalid_field"
    # What the agent has let go of it has been told of.
    third = msgspec.structs.replace(good, seq=4, oldest_seq=2)
    assert ack_of(push(source, rows_of(encoder, third))).refused == []
    source.agent.refresh_from_db()
    assert source.agent.refused_rows == 2
    assert source.agent.last_refusal.startswith("gpus.power_w[1]: ")


def test_asking_for_the_position_tells_of_refused_rows_too(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 1, temp_c=[999.0, *[50.0] * 7])
    ack_of(push(source, rows_of(encoder_of(source, batch), batch)))
    drain_everything()
    answer = source.client.get(
        "/api/v1/telemetry/position",
        {"boot_id": "boot-1"},
        headers={"Authorization": f"Bearer {source.token}"},
    )
    ack = msgspec.json.decode(answer.content, type=TelemetryAck)
    assert ack.durable_seq == 1
    assert [(late.seq, late.rows) for late in ack.refused] == [(1, 1)]


@pytest.mark.parametrize(
    ("ahead_s", "code"),
    [(3600.0, "future_time"), (-40 * 86_400.0, "too_old"), (float("nan"), "invalid_field")],
)
def test_times_are_judged_by_when_the_batch_came(source: Source, ahead_s: float, code: str) -> None:
    batch = make_batch("agent-1", "n1", 1)
    encoder = encoder_of(source, batch)
    assert batch.nodes[0].gpus is not None
    batch.nodes[0].gpus.ts[3] += ahead_s
    ack_of(push(source, rows_of(encoder, batch)))
    drain_everything()
    (late,) = ack_of(push(source, rows_of(encoder, batch))).refused
    assert [(each.code, each.field) for each in late.errors] == [(code, "gpus.ts[3]")]
    assert len(stored("ts")) == 7


def test_a_place_that_the_layout_does_not_have_costs_its_row(
    source: Source, stranger: Source
) -> None:
    batch = make_batch("agent-1", "n1", 1)
    encoder = encoder_of(source, batch)
    other = make_batch("agent-2", "n2", 1)
    body = bytearray(rows_of(encoder, batch))
    # A place beyond the layout must not reach into that of the batch beside it.
    body[HEADER_BYTES + 8] = 8
    ack_of(push(source, bytes(body)))
    ack_of(push(stranger, rows_of(encoder_of(stranger, other), other)))
    drain_everything()
    counts = {
        node: len([row for row in stored("gpu_id") if row[0] in ids])
        for node in ("n1", "n2")
        if (ids := set(Gpu.objects.filter(node__name=node).values_list("pk", flat=True)))
    }
    assert counts == {"n1": 7, "n2": 8}


def test_the_layout_of_another_agent_is_unknown(source: Source, stranger: Source) -> None:
    batch = make_batch("agent-1", "n1", 1)
    body = rows_of(encoder_of(source, batch), batch)
    answer = push(stranger, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unknown_layout"
    assert stream.backlog(0) == 0


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"agent": "agent-2"}, 403, "wrong_agent"),
        ({"boot_id": "server:inbox"}, 400, "reserved_boot_id"),
        ({"nodes": [layouts.LayoutNode(node="n2", gpus=[0])]}, 403, "foreign_node"),
        ({"nodes": [layouts.LayoutNode(node="n9", gpus=[0])]}, 400, "unknown_node"),
        ({"nodes": [layouts.LayoutNode(node="n1", gpus=[9])]}, 400, "unknown_gpu"),
        ({"links": ["none"]}, 400, "unknown_link"),
        ({"meters": ["none"]}, 400, "unknown_meter"),
        ({"columns": {"gpus": ["power"]}}, 400, "invalid_field"),
        ({"columns": {"gpus": ["temp_c", "temp_c"]}}, 400, "invalid_field"),
        ({"columns": {"storage": ["read_s"]}}, 400, "invalid_field"),
    ],
)
def test_a_layout_is_refused_by_the_name_of_what_is_wrong(
    source: Source, stranger: Source, change: dict[str, Any], status: int, code: str
) -> None:
    layout = layout_of(make_batch("agent-1", "n1"))
    assert layout is not None
    answer = agree(source, msgspec.structs.replace(layout, **change))
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


def test_a_layout_ends_where_its_node_is_another_agents_from_now_on(
    source: Source, stranger: Source
) -> None:
    batch = make_batch("agent-1", "n1", 1)
    body = rows_of(encoder_of(source, batch), batch)
    ack_of(push(source, body))
    source.agent.nodes.set([stranger.node])
    from telemetry.directory import invalidate_scopes

    invalidate_scopes()
    answer = push(source, body)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "foreign_node"


def test_a_gpu_that_is_gone_by_the_time_of_storing_costs_its_row(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 1)
    ack_of(push(source, rows_of(encoder_of(source, batch), batch)))
    Gpu.objects.get(node=source.node, index=7).delete()
    snapshot.invalidate()
    drain_everything()
    assert len(stored("ts")) == 7


def test_a_layout_that_redis_has_lost_is_agreed_on_again(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 1)
    encoder = encoder_of(source, batch)
    body = rows_of(encoder, batch)
    stream.connection().flushall()
    agreements.forget()
    answer = push(source, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_layout")
    # The same layout has the same id, so what was made under it is good again.
    encoder_of(source, batch)
    ack_of(push(source, body))


@pytest.mark.parametrize("cut", [0, 10, HEADER_BYTES, -1])
def test_a_body_of_another_length_than_it_says_is_refused_whole(source: Source, cut: int) -> None:
    batch = make_batch("agent-1", "n1", 1)
    body = rows_of(encoder_of(source, batch), batch)
    answer = push(source, body[:cut] if cut else body + b"x")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "malformed_body"
    assert stream.backlog(0) == 0


def test_rows_count_against_the_agents_share(source: Source, settings: Any) -> None:
    settings.TELEMETRY_BURST_ROWS_PER_NODE = 4
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 1
    batch = make_batch("agent-1", "n1", 1)
    body = rows_of(encoder_of(source, batch), batch)
    answers = [push(source, body).status_code for _ in range(3)]
    assert answers[-1] == 429


@pytest.mark.usefixtures("nothing_turns_over")
def test_good_rows_ask_no_database_and_those_new_to_a_process_go_another_way(
    source: Source,
) -> None:
    batch = make_batch("agent-1", "n1", 1)
    body = rows_of(encoder_of(source, batch), batch)
    post = Post(f"Bearer {source.token}", CONTENT_TYPE, "", body)
    batches.take_all([post])
    with CaptureQueriesContext(connection) as asked:
        answers = batches.take_all([post] * 5)
    assert all(isinstance(answer, bytes) for answer in answers)
    assert len(asked) == 0
    agreements.forget()
    assert batches.take_all([post]) == [Untaken.NEW_NAMES]
    assert isinstance(batches.take_new([post])[0], bytes)
    assert isinstance(batches.take_all([post])[0], bytes)


def test_layouts_that_are_new_to_a_process_cost_few_queries_together(source: Source) -> None:
    posts = []
    for number in range(7):
        batch = make_batch("agent-1", "n1", 1, boot_id=f"life-{number}", job=f"slurm-{number}")
        body = rows_of(encoder_of(source, batch), batch)
        posts.append(Post(f"Bearer {source.token}", CONTENT_TYPE, "", body))
    unknown = struct.pack("16s", b"nobody's") + posts[0].body[16:]
    posts.append(Post(f"Bearer {source.token}", CONTENT_TYPE, "", unknown))
    # As a process that has just been started.
    agreements.forget()
    naming.invalidate()
    with CaptureQueriesContext(connection) as asked:
        answers = batches.take_new(posts)
    assert [isinstance(answer, bytes) for answer in answers] == [*[True] * 7, False]
    assert len(asked) < 15
    assert all(isinstance(answer, bytes) for answer in batches.take_all(posts[:7]))


def test_the_status_goes_along_and_the_last_error_stays(source: Source) -> None:
    status = AgentStatus(version="9", errors=1, last_error="a disk is full")
    source.push(make_batch("agent-1", "n1", 1, status=status))
    batch = make_batch("agent-1", "n1", 2, status=AgentStatus(version="9", errors=2, skew_s=0.5))
    ack_of(push(source, rows_of(encoder_of(source, batch), batch)))
    drain_everything()
    source.agent.refresh_from_db()
    assert source.agent.errors == 2
    assert source.agent.skew_s == 0.5
    assert source.agent.last_error == "a disk is full"
    assert source.agent.lag_s is not None


def test_late_refusals_are_bounded(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 1)
    encoder = encoder_of(source, batch)
    for seq in range(1, 40):
        bad = make_batch("agent-1", "n1", seq, power_w=-1.0)
        ack_of(push(source, rows_of(encoder, bad)))
        drain_everything()
    refused: list[LateRefusal] = ack_of(push(source, rows_of(encoder, batch))).refused
    assert len(refused) <= 21
    assert sum(len(late.errors) for late in refused) <= 20
    assert refused[-1].seq == 39
    source.agent.refresh_from_db()
    assert source.agent.refused_rows == 39 * 8
