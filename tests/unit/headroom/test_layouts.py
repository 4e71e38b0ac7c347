"""Rows of fixed width: what fits a layout, what an agent makes of it, and when it goes typed."""

from __future__ import annotations

import math
import struct
from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom import layouts
from headroom.agent.delivery import Delivery
from headroom.agent.layout import Agreements
from headroom.agent.spool import Spool
from headroom.contracts import (
    AgentStatus,
    BatchError,
    FieldError,
    GpuColumns,
    HostColumns,
    LateRefusal,
    LinkColumns,
    MeterColumns,
    NodeReport,
    StorageColumns,
    TelemetryAck,
    TelemetryBatch,
)
from headroom.errors import Refused, Unavailable
from headroom.layouts import HEADER_BYTES, Encoder, Layout, as_typed, joined, layout_of
from telemetry import samples
from telemetry.judging import KIND
from telemetry.rows import TABLES
from tests.unit.headroom.builders import Clock, make_batch

ID = "0f" * 16


def full_batch(**given: Any) -> TelemetryBatch:
    gpus = GpuColumns(ts=[1.5, 2.5], gpu=[0, 3], power_w=[500.0, None], mem_used=[None, 7])
    host = HostColumns(ts=[1.0], cpu_util=[12.5])
    values: dict[str, Any] = {
        "nodes": [NodeReport(node="n1", gpus=gpus), NodeReport(node="n2", host=host)],
        "links": LinkColumns(ts=[3.0], link=["l1"], latency_s=[0.25]),
        "meters": MeterColumns(ts=[4.0], meter=["m1"], power_w=[-1.0]),
        **given,
    }
    return TelemetryBatch(agent="a", boot_id="b", seq=9, oldest_seq=3, sent_at=5.0, **values)


def encoder_of(batch: TelemetryBatch) -> Encoder:
    layout = layout_of(batch)
    assert layout is not None
    return Encoder(layout, ID)


def decoded(body: bytes, layout: Layout) -> dict[str, list[tuple[float, ...]]]:
    """The rows of a body by block, as ``struct`` reads them."""
    header, at, found = layouts.read_header(body), HEADER_BYTES, {}
    for block, rows in zip(layouts.BLOCKS, header.rows, strict=True):
        form = "<" + layouts.code_of(block, layout.columns.get(block, ()))
        size = struct.calcsize(form) * rows
        found[block] = list(struct.iter_unpack(form, body[at : at + size]))
        at += size
    assert at == len(body)
    return found


def test_a_batch_becomes_a_header_and_rows_by_place() -> None:
    status = AgentStatus(spooled_batches=4, errors=2, skew_s=None)
    batch = full_batch(status=status)
    encoder = encoder_of(batch)
    body = encoder.encode(batch)
    assert body is not None
    header = layouts.read_header(body)
    assert (header.layout.hex(), header.seq, header.oldest_seq, header.sent_at) == (ID, 9, 3, 5.0)
    assert (header.spooled_batches, header.errors) == (4, 2)
    assert math.isnan(header.skew_s)
    rows = decoded(body, encoder.layout)
    assert encoder.layout.columns["gpus"] == ["power_w", "mem_used"]
    assert rows["gpus"][0] == (1.5, 0, 500.0, layouts.NULL_INT)
    assert rows["gpus"][1][:2] == (2.5, 1)
    assert math.isnan(rows["gpus"][1][2])
    assert rows["gpus"][1][3] == 7
    assert rows["host"] == [(1.0, 1, 12.5)]
    assert rows["links"] == [(3.0, 0, 0.25)]
    assert rows["meters"] == [(4.0, 0, -1.0)]


@pytest.mark.parametrize("block", layouts.BLOCKS)
def test_fields_are_as_wide_as_their_tables_columns(block: str) -> None:
    """What the contract says in code and what is stored have to agree, or digits would be lost."""
    codes = {"f": "float4", "d": "float8"}
    types = {column.name: column for column in TABLES[KIND[block]].fields}
    for name, code in layouts.fields_of(block).items():
        if name == layouts.JOB:  # a place in the layout, which becomes an id
            assert code == "q"
            continue
        column = types[name]
        assert (column.dtype.kind == "i") == (code == "q")
        assert code == "q" or codes[code] == column.pg_type, name
    left_out = types.keys() - layouts.fields_of(block).keys()
    assert left_out <= {"job_id"}
    assert samples.NULL_INT == layouts.NULL_INT


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": [NodeReport(node="n1", storage=StorageColumns(ts=[1.0], mount=["/"]))]},
        {"nodes": [], "links": None, "meters": None},
    ],
)
def test_what_has_no_fixed_width_has_no_layout(change: dict[str, Any]) -> None:
    assert layout_of(full_batch(**change)) is None


@pytest.mark.parametrize(
    "gpus",
    [
        GpuColumns(ts=[1.0], gpu=[7], power_w=[1.0]),
        GpuColumns(ts=[1.0], gpu=[0], temp_c=[1.0]),
        GpuColumns(ts=[1.0], gpu=[0], power_w=[1e300]),
        GpuColumns(ts=[1.0], gpu=[0], mem_used=[2**70]),
        GpuColumns(ts=[1.0, 2.0], gpu=[0, 0], power_w=[1.0]),
    ],
)
def test_what_does_not_fit_the_layout_is_left_to_the_typed_form(gpus: GpuColumns) -> None:
    encoder = encoder_of(full_batch())
    assert encoder.encode(full_batch(nodes=[NodeReport(node="n1", gpus=gpus)])) is None


def test_what_is_missing_fits_and_two_layouts_join() -> None:
    wide = encoder_of(full_batch())
    assert wide.encode(full_batch(links=None)) is not None
    more = GpuColumns(ts=[1.0], gpu=[5], temp_c=[50.0])
    other = full_batch(nodes=[NodeReport(node="n3", gpus=more)])
    wanted = layout_of(other)
    assert wanted is not None
    both = Encoder(joined(wide.layout, wanted), ID)
    assert both.encode(full_batch()) is not None
    assert both.encode(other) is not None


def working_for(*jobs: str | None) -> TelemetryBatch:
    rows = len(jobs)
    gpus = GpuColumns(ts=[1.0] * rows, gpu=list(range(rows)), power_w=[500.0] * rows, job=[*jobs])
    return full_batch(nodes=[NodeReport(node="n1", gpus=gpus)])


def test_a_gpu_has_its_job_as_a_place_and_new_jobs_need_a_new_layout() -> None:
    batch = working_for("moe", None, "dense", "moe")
    encoder = encoder_of(batch)
    assert encoder.layout.jobs == ["dense", "moe"]
    body = encoder.encode(batch)
    assert body is not None
    assert [row[3] for row in decoded(body, encoder.layout)["gpus"]] == [1, layouts.NULL_INT, 0, 1]
    assert encoder.encode(working_for("moe", None)) is not None
    other = working_for("next", "moe")
    assert encoder.encode(other) is None
    wanted = layout_of(other)
    assert wanted is not None
    # Who has gone does not stay.
    assert joined(encoder.layout, wanted).jobs == ["moe", "next"]


@given(st.binary(max_size=200))
def test_a_header_is_read_or_refused(body: bytes) -> None:
    try:
        header = layouts.read_header(body)
    except BatchError:
        return
    assert 1 <= header.oldest_seq <= header.seq


def test_an_error_says_which_nodes_row_it_is_about() -> None:
    host = HostColumns(ts=[1.0], cpu_util=[200.0])
    gpus = GpuColumns(ts=[1.0] * 3, gpu=[0, 1, 2])
    nodes = [NodeReport(node=name, gpus=gpus, host=host) for name in ("n1", "n2")]
    batch = full_batch(nodes=nodes)

    def path(field: str) -> str:
        return as_typed(batch, FieldError(code="invalid_field", message="", field=field)).field

    assert path("gpus.power_w[4]") == "nodes[1].gpus.power_w[1]"
    assert path("host.cpu_util[1]") == "nodes[1].host.cpu_util[0]"
    assert path("meters.power_w[0]") == "meters.power_w[0]"
    assert path("gpus.power_w[6]") == "gpus.power_w[6]"


# --- The agent's part ----------------------------------------------------------------------------


class Server:
    """Takes what it is given, and answers as a test says."""

    def __init__(self) -> None:
        self.offers = True
        self.refusal: Refused | None = None
        self.agreed: list[Layout] = []
        self.typed: list[TelemetryBatch] = []
        self.rows: list[bytes] = []
        self.answers: deque[TelemetryAck | Exception] = deque()

    def agree(self, layout: Layout, *, timeout_s: float | None = None) -> str | None:
        self.agreed.append(layout)
        if self.refusal is not None:
            raise self.refusal
        return ID if self.offers else None

    def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck:
        self.typed.append(batch)
        return self._ack()

    def push_rows(self, body: bytes, *, timeout_s: float | None = None) -> TelemetryAck:
        self.rows.append(body)
        return self._ack()

    def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck:
        return self._ack()

    def _ack(self) -> TelemetryAck:
        answer = self.answers.popleft() if self.answers else ack()
        if isinstance(answer, Exception):
            raise answer
        return answer


def refusal(code: str) -> Refused:
    return Refused(400, FieldError(code=code, message="no"))


def ack(durable_seq: int = 0, **given: Any) -> TelemetryAck:
    return TelemetryAck(durable_seq=durable_seq, received_at=1.0, **given)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def delivery(server: Server, spool: Spool, clock: Clock) -> Delivery:
    return Delivery(server, spool, monotonic=clock, clock=clock, draw=lambda: 1.0)


def fill(spool: Spool, *marks: float) -> None:
    for mark in marks:
        spool.put(make_batch(mark))


def test_an_agent_agrees_once_and_sends_rows(
    server: Server, spool: Spool, delivery: Delivery
) -> None:
    fill(spool, 1, 2, 3)
    server.answers.extend([ack(), ack(), ack(3)])
    delivery.round()
    assert (len(server.agreed), len(server.rows), len(server.typed)) == (1, 3, 0)
    assert [layouts.read_header(body).seq for body in server.rows] == [1, 2, 3]
    assert len(spool) == 0


def test_a_server_that_takes_no_rows_gets_typed_batches_and_is_asked_again_seldom(
    server: Server, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.offers = False
    server.answers.extend(ack(n) for n in range(1, 5))
    fill(spool, 1, 2, 3)
    delivery.round()
    assert (len(server.agreed), len(server.rows), len(server.typed)) == (1, 0, 3)
    clock.now += 2 * 3600
    server.offers = True
    fill(spool, 4)
    delivery.round()
    assert (len(server.agreed), len(server.rows)) == (2, 1)


def test_a_refused_layout_is_told_of_by_the_typed_form(
    server: Server, spool: Spool, delivery: Delivery
) -> None:
    server.refusal = refusal("unknown_gpu")
    fill(spool, 1)
    server.answers.append(ack(1))
    delivery.round()
    assert (len(server.rows), len(server.typed), len(spool)) == (0, 1, 0)


def test_a_layout_that_the_server_lost_is_agreed_on_again_and_nothing_is_dropped(
    server: Server, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    fill(spool, 1)
    server.answers.append(ack(1))
    delivery.round()
    clock.now += 60
    server.answers.extend([refusal("unknown_layout"), ack(2)])
    fill(spool, 2)
    delivery.round()
    assert (len(server.agreed), len(server.rows), len(server.typed)) == (2, 3, 0)
    assert (len(spool), spool.dropped) == (0, 0)


def test_a_server_that_forgets_at_once_gets_typed_batches(
    server: Server, spool: Spool, delivery: Delivery
) -> None:
    server.answers.extend([refusal("unknown_layout"), ack(1)])
    fill(spool, 1)
    delivery.round()
    assert (len(server.agreed), len(server.rows), len(server.typed), len(spool)) == (1, 1, 1, 0)


def test_a_server_that_is_away_keeps_all_in_the_spool(
    server: Server, spool: Spool, delivery: Delivery
) -> None:
    server.answers.append(Unavailable("away"))
    fill(spool, 1)
    assert delivery.round() is False
    assert len(spool) == 1
    assert delivery.obstacle is not None


def test_a_new_error_is_told_in_the_typed_form_once(server: Server, clock: Clock) -> None:
    made = Agreements(server, clock)
    fine = make_batch(1)
    status = AgentStatus(errors=1, last_error="a disk is full")
    failing = msgspec.structs.replace(fine, status=status)
    assert made.encode(fine) is not None
    assert made.encode(failing) is None
    assert made.encode(failing) is None  # the first may never have arrived
    made.note_told(failing)
    assert made.encode(failing) is not None


def test_late_refusals_are_counted_once_by_the_batch_on_disk(
    server: Server, spool: Spool, delivery: Delivery
) -> None:
    error = FieldError(code="invalid_field", message="too much", field="host.cpu_util[0]")
    late = LateRefusal(seq=1, rows=1, errors=[error])
    fill(spool, 1, 2, 3)
    server.answers.extend([ack(), ack(refused=[late]), ack(3, refused=[late])])
    delivery.round()
    assert delivery.refused_rows == 1
    assert "nodes[0].host.cpu_util[0]" in delivery.last_error
    assert len(spool) == 0


def test_readings_ahead_of_the_servers_clock_are_put_back(
    server: Server, spool: Spool, delivery: Delivery
) -> None:
    error = FieldError(code="future_time", message="ahead", field="host.ts[0]")
    late = LateRefusal(seq=1, rows=1, errors=[error])
    fill(spool, 1)
    server.answers.extend([ack(1, refused=[late]), ack(1)])
    delivery.round()
    assert spool.after(1, 5) == [2]
    assert delivery.refused_rows == 0


def test_layouts_are_json_with_nothing_unknown() -> None:
    layout = layout_of(full_batch())
    assert layouts.decode_layout(msgspec.json.encode(layout)) == layout
    for body in (b"{", b"[]", b'{"agent": "a", "boot_id": "b", "x": 1}'):
        with pytest.raises(BatchError):
            layouts.decode_layout(body)
