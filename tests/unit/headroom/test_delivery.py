from __future__ import annotations

import struct
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.agent.delivery import Backoff, Delivery, DeliverySettings
from headroom.agent.spool import Spool
from headroom.client import Client
from headroom.contracts import (
    AgentStatus,
    FieldError,
    GpuColumns,
    LinkColumns,
    NodeReport,
    TelemetryAck,
    TelemetryBatch,
)
from headroom.errors import (
    HeadroomError,
    PartlyRefused,
    Refused,
    Unauthorized,
    Unavailable,
)
from headroom.layouts import HEADER_BYTES, Layout, read_header
from tests.unit.headroom.builders import Clock, make_batch, mark_of
from tests.unit.headroom.fake_server import LOST, Answer, FakeServer, refusal


@pytest.fixture
def delivery(client: Client, spool: Spool, clock: Clock) -> Delivery:
    return Delivery(client, spool, monotonic=clock, clock=clock, draw=lambda: 1.0)


def fill(spool: Spool, *marks: float) -> None:
    for mark in marks:
        spool.put(make_batch(mark))


def pushed(server: FakeServer) -> list[float]:
    return [mark_of(batch) for batch in server.pushes]


def test_batches_go_oldest_first_and_what_is_durable_is_deleted(
    server: FakeServer, spool: Spool, delivery: Delivery
) -> None:
    fill(spool, 1, 2, 3)

    assert delivery.round() is False

    assert pushed(server) == [1, 2, 3]
    assert (len(spool), delivery.durable_seq, delivery.accepted) == (0, 3, 3)


def test_a_backlog_goes_in_rounds(server: FakeServer, spool: Spool, delivery: Delivery) -> None:
    fill(spool, *range(40))

    rounds = [delivery.round(), delivery.round(), delivery.round()]

    assert rounds == [True, True, False]
    assert pushed(server) == list(range(40))


def test_each_batch_says_what_is_held_when_it_is_sent(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.stores = False
    fill(spool, 1, 2)
    delivery.round()
    clock.now += 5
    spool.acknowledge(1)
    fill(spool, 3)
    delivery.round()

    assert [batch.oldest_seq for batch in server.pushes] == [1, 1, 2]
    assert server.pushes[2].sent_at == clock.now


def test_the_status_of_the_agent_goes_along(
    server: FakeServer, client: Client, spool: Spool
) -> None:
    fill(spool, 1)
    Delivery(client, spool, status=lambda: AgentStatus(version="9")).round()

    assert server.pushes[0].status == AgentStatus(version="9")


def test_a_lost_acknowledgement_makes_a_duplicate_not_a_loss(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.script_after_taking.append(LOST)
    fill(spool, 1, 2)

    assert delivery.round() is False
    assert len(spool) == 2
    clock.now += delivery.wait_s
    delivery.round()

    assert pushed(server) == [1, 1, 2]
    assert [mark_of(batch) for batch in server.all_stored()] == [1, 2]
    assert len(spool) == 0


def test_the_server_is_left_alone_for_as_long_as_it_asks(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    busy = refusal(429)
    server.script.append(type(busy)(429, busy.body, {"Retry-After": "30"}))
    fill(spool, 1)

    delivery.round()
    assert delivery.wait_s >= 30
    clock.now += 29
    delivery.round()
    assert not server.pushes
    clock.now += 2
    delivery.round()
    assert pushed(server) == [1]
    assert delivery.obstacle is None


def test_a_batch_refused_for_good_is_counted_and_does_not_block_the_rest(
    server: FakeServer, spool: Spool, delivery: Delivery
) -> None:
    server.refuses = lambda batch: mark_of(batch) == 2
    fill(spool, 1, 2, 3)

    delivery.round()

    assert [mark_of(batch) for batch in server.all_stored()] == [1, 3]
    assert (spool.dropped, delivery.errors) == (1, 1)
    assert "invalid_field" in delivery.last_error


def test_the_hole_of_a_refused_batch_does_not_hold_up_the_durable_mark(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.refuses = lambda batch: mark_of(batch) == 1
    fill(spool, 1, 2)
    delivery.round()
    # Seq 2 carried oldest_seq 2, since 1 was given up before it was sent.
    assert (delivery.durable_seq, len(spool)) == (2, 0)


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_does_not_do_loses_nothing(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock, status: int
) -> None:
    server.script.append(refusal(status))
    fill(spool, 1, 2)

    delivery.round()

    assert isinstance(delivery.obstacle, Unauthorized)
    assert (len(spool), spool.dropped) == (2, 0)
    clock.now += delivery.wait_s
    delivery.round()
    assert len(spool) == 0


def test_what_the_server_took_and_lost_is_sent_again(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.stores = False
    fill(spool, 1, 2)
    delivery.round()
    clock.now += 9
    delivery.round()
    assert pushed(server) == [1, 2]

    server.stores = True
    clock.now += 2
    delivery.round()

    assert pushed(server) == [1, 2, 1, 2]
    assert len(spool) == 0


def test_a_server_that_stays_slow_is_not_buried_in_duplicates(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.stores = False
    fill(spool, 1)
    for _ in range(300):
        delivery.round()
        clock.now += 1

    assert len(server.pushes) == 5  # at 0, 10, 30, 70 and 150 s


def test_a_busy_agent_still_notices_that_the_mark_stands_still(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    server.stores = False
    for mark in range(4):
        fill(spool, mark)
        delivery.round()
        clock.now += 5

    assert pushed(server) == [0, 1, 0, 1, 2, 3]


def test_the_position_is_learned_without_sending(
    server: FakeServer, spool: Spool, delivery: Delivery
) -> None:
    server.script_after_taking.append(LOST)
    fill(spool, 1)
    delivery.round()
    delivery.hurry()
    delivery.ask_position()

    assert pushed(server) == [1]
    assert (delivery.durable_seq, len(spool)) == (1, 0)


def test_a_mark_beyond_all_that_was_spooled_is_not_believed(spool: Spool) -> None:
    class Boastful(TypedAlone):
        def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck:
            return TelemetryAck(durable_seq=99, received_at=0)

        def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck:
            return TelemetryAck(durable_seq=99, received_at=0)

    delivery = Delivery(Boastful(), spool)
    fill(spool, 1)
    delivery.round()
    fill(spool, 2)

    assert delivery.durable_seq == 1
    assert spool.after(0, 10) == [2]


def test_the_range_of_waits_doubles_to_its_limit_and_starts_anew_after_a_success() -> None:
    backoff = Backoff(first_s=1, longest_s=5, draw=lambda: 1.0)
    assert [backoff.fail() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.succeed()
    assert backoff.fail() == 1


@given(draw=st.floats(0, 1, exclude_max=True), failures=st.integers(0, 2000))
def test_backoff_stays_within_its_bounds(draw: float, failures: int) -> None:
    backoff = Backoff(first_s=0.5, longest_s=60, draw=lambda: draw)
    for _ in range(failures):
        backoff.fail()
    assert 0 <= backoff.fail() <= 60
    assert 10 <= backoff.fail(10) <= 70


def partly(*codes: str, field: str = "", durable_seq: int = 1, received_at: float = 0.0) -> Answer:
    """What the server says when it refused a row for each code, and took the rest."""
    refused = [
        {"code": code, "message": "no", "field": field or f"links.link[{i}]"}
        for i, code in enumerate(codes)
    ]
    ack = {"durable_seq": durable_seq, "received_at": received_at}
    body = {"error": refused[0], "refused": refused, "refused_rows": len(codes), "ack": ack}
    return Answer(400, msgspec.json.encode(body))


def make_linked(mark: float, *links: str) -> TelemetryBatch:
    """A batch with a reading of each link, beside that of the host."""
    batch = make_batch(mark)
    batch.links = LinkColumns(ts=[mark] * len(links), link=list(links))
    return batch


def test_rows_that_are_refused_are_counted_and_the_batch_is_not_sent_again(
    server: FakeServer, spool: Spool, delivery: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    server.script_after_taking.extend(partly("too_old", "too_old") for _ in range(3))
    fill(spool, 1, 2, 3)
    delivery.round()

    assert pushed(server) == [1, 2, 3]
    assert (delivery.refused_rows, delivery.accepted, spool.dropped) == (6, 3, 0)
    assert "too_old" in delivery.last_error
    # The same trouble is told once a minute, not with each batch.
    assert [r.msg for r in caplog.records].count("rows refused for good") == 1


@pytest.mark.parametrize("taken", [True, False])
def test_a_link_that_the_inventory_lacks_is_left_out_for_a_while(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock, taken: bool
) -> None:
    if taken:
        server.script_after_taking.append(partly("unknown_link"))
    else:
        server.script.append(refusal(400, "unknown_link", field="links.link[0]"))
    spool.put(make_linked(1, "gone", "known"))
    spool.put(make_linked(2, "known", "gone"))
    delivery.round()

    sent = [batch.links.link if batch.links else [] for batch in server.pushes]
    assert sent == ([["gone", "known"], ["known"]] if taken else [["known"], ["known"]])
    assert (spool.dropped, len(spool)) == (0, 0)

    clock.now += 301
    spool.put(make_linked(3, "known", "gone"))
    delivery.round()
    assert server.pushes[-1].links is not None
    assert server.pushes[-1].links.link == ["known", "gone"]


def test_batches_of_a_fast_clock_are_kept_until_their_time_has_come(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    clock.now = time.time() + 600.0  # by the server's clock, ten minutes fast
    ahead = refusal(400, "future_time", field="nodes[0].host.ts[0]")
    server.script.extend(ahead for _ in range(5))
    fill(spool, clock.now, clock.now + 5)
    for _ in range(5):
        delivery.round()
        clock.now += delivery.wait_s
    assert (len(spool), spool.dropped, server.pushes) == (2, 0, [])
    assert isinstance(delivery.obstacle, Refused)
    assert delivery.clock_skew.skew_s == pytest.approx(600, abs=200)

    clock.now = time.time()  # mended: what is minutes ahead waits on
    server.script.append(ahead)
    delivery.hurry()
    delivery.round()
    assert (len(spool), spool.dropped) == (2, 0)
    delivery.hurry()
    delivery.round()
    assert len(server.pushes) == 2


def test_a_batch_of_a_time_long_to_come_does_not_block_a_clock_that_was_mended(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock
) -> None:
    clock.now = time.time()
    server.script.append(refusal(400, "future_time", field="nodes[0].host.ts[0]"))
    fill(spool, clock.now + 86_400, clock.now)
    delivery.round()
    assert pushed(server) == [clock.now]
    assert spool.dropped == 1


def test_rows_that_are_ahead_are_kept_of_a_batch_that_is_taken(
    server: FakeServer, spool: Spool, delivery: Delivery
) -> None:
    server.script_after_taking.append(partly("future_time", field="links.ts[1]"))
    batch = make_linked(1.0, "a", "a", "a")
    assert batch.links is not None
    batch.links.ts[:] = [1.0, 40.0, 50.0]
    spool.put(batch)
    delivery.round()
    first, *later = server.pushes
    assert [each.links.ts for each in later if each.links] == [[40.0, 50.0]]
    assert (delivery.refused_rows, spool.dropped) == (0, 0)
    assert first.links is not None


def test_a_gpu_that_no_inventory_has_is_told_once_and_left_out(
    server: FakeServer,
    spool: Spool,
    delivery: Delivery,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.script_after_taking.append(partly("unknown_gpu", field="nodes[1].gpus.gpu[1]"))
    for mark in range(60):
        batch = make_batch(float(mark))
        gpus = GpuColumns(ts=[1.0] * 3, gpu=[0, 8, 8], power_w=[500.0] * 3)
        batch.nodes.append(NodeReport(node="n2", gpus=gpus))
        spool.put(batch)
    while delivery.round():
        clock.now += 1
    sent = [batch.nodes[1].gpus.gpu for batch in server.pushes if batch.nodes[1].gpus]
    assert sent == [[0, 8, 8]] + [[0]] * 59
    assert (delivery.refused_rows, delivery.errors) == (1, 1)
    told = [each for each in caplog.records if each.msg == "not in the inventory and left out"]
    assert [(each.node, each.thing) for each in told] == [("n2", 8)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["unknown_node", "unknown_gpu", "unknown_meter"])
def test_what_the_inventory_may_still_get_is_kept_until_it_has(
    server: FakeServer, spool: Spool, delivery: Delivery, clock: Clock, code: str
) -> None:
    server.script.extend(refusal(400, code, field="nodes[0].node") for _ in range(20))
    fill(spool, 1, 2)
    for _ in range(20):
        delivery.round()
        clock.now += delivery.wait_s

    assert (len(spool), spool.dropped, server.pushes) == (2, 0, [])
    assert isinstance(delivery.obstacle, Refused)
    delivery.round()
    assert pushed(server) == [1, 2]
    assert delivery.obstacle is None


def test_a_batch_that_is_too_large_goes_in_halves(
    server: FakeServer, spool: Spool, delivery: Delivery
) -> None:
    server.script.append(Answer(413, b"<html>too large</html>"))
    batch = make_batch(1)
    batch.links = LinkColumns(ts=[1.0, 2.0, 3.0], link=["a", "b", "c"])
    spool.put(batch)
    fill(spool, 2)
    delivery.round()

    assert [each.seq for each in server.pushes] == [1, 2, 3]
    rows = [
        (sum(1 for r in each.nodes if r.host), each.links and each.links.link)
        for each in server.pushes
    ]
    assert rows == [(1, ["a"]), (1, None), (0, ["b", "c"])]
    assert (len(spool), spool.dropped) == (0, 0)


@pytest.mark.parametrize("status", [400, 413])
def test_one_row_that_is_too_large_is_given_up(
    server: FakeServer, spool: Spool, delivery: Delivery, status: int
) -> None:
    server.script.append(refusal(status, "too_large"))
    fill(spool, 1, 2)
    delivery.round()
    assert (pushed(server), spool.dropped) == ([2], 1)


def test_readings_from_the_future_are_kept_and_the_reason_is_told(
    server: FakeServer, spool: Spool, delivery: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    server.script.append(refusal(400, "future_time", hint="set the node's clock"))
    fill(spool, 1, 2)
    delivery.round()
    assert (pushed(server), spool.dropped, len(spool)) == ([], 0, 2)
    assert "set the node's clock" in delivery.last_error
    assert any("look at the clock" in record.msg for record in caplog.records)
    delivery.hurry()
    delivery.round()
    assert pushed(server) == [1, 2]


def test_the_clock_is_compared_with_the_servers(client: Client, spool: Spool) -> None:
    fill(spool, 1)
    delivery = Delivery(client, spool, clock=lambda: time.time() + 40)
    delivery.round()
    skew_s = delivery.clock_skew.skew_s
    assert skew_s is not None
    assert skew_s == pytest.approx(40, abs=1)


class TypedAlone:
    """A server from before there were layouts."""

    def agree(self, layout: Layout, *, timeout_s: float | None = None) -> str | None:
        return None

    def push_rows(self, body: bytes, *, timeout_s: float | None = None) -> TelemetryAck:
        raise AssertionError("nothing was agreed on")


class FlakyServer:
    """Takes, loses, forgets, lags and fails as hypothesis says, batches of either form."""

    def __init__(self, draw: st.DataObject) -> None:
        self._draw = draw
        self.calm = False
        self.stored: dict[int, float] = {}
        self.refused: set[float] = set()
        self.mark = 0
        self.lag = 0

    def agree(self, layout: Layout, *, timeout_s: float | None = None) -> str | None:
        fate = "agree" if self.calm else self._draw.draw(st.sampled_from(AGREEING))
        if fate == "unavailable":
            raise Unavailable("busy")
        if fate == "refuse":
            raise Refused(400, FieldError(code="unknown_node", message="y"))
        return "ab" * 16 if fate == "agree" else None

    def push_rows(self, body: bytes, *, timeout_s: float | None = None) -> TelemetryAck:
        if not self.calm and self._draw.draw(st.integers(0, 9)) == 0:
            raise Refused(400, FieldError(code="unknown_layout", message="y"))
        header = read_header(body)
        (mark,) = struct.unpack_from("<d", body, HEADER_BYTES)
        return self._take(header.seq, header.oldest_seq, mark)

    def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck:
        return self._take(batch.seq, batch.oldest_seq, mark_of(batch))

    def _take(self, seq: int, oldest_seq: int, mark: float) -> TelemetryAck:
        fate = "store" if self.calm else self._draw.draw(st.sampled_from(FATES))
        if fate == "unavailable":
            raise Unavailable("busy", retry_after_s=1)
        if fate == "unauthorized":
            raise Unauthorized(401, FieldError(code="x", message="y"))
        if fate == "not yet":
            raise Refused(400, FieldError(code="unknown_node", message="y"))
        if fate == "refuse" and seq not in self.stored:
            self.refused.add(mark)
            raise Refused(400, FieldError(code="x", message="y"))
        if fate != "forget":
            # As the server does: once each, and nothing below oldest_seq is waited for.
            self.mark = max(self.mark, oldest_seq - 1)
            if seq not in self.stored and seq > self.mark:
                self.stored[seq] = mark
            while self.mark + 1 in self.stored:
                self.mark += 1
        if fate == "lose ack":
            raise Unavailable("connection reset")
        if fate == "partly":
            error = FieldError(code="too_old", message="y")
            raise PartlyRefused(400, error, ack=self.position(""), refused=[error], refused_rows=1)
        return self.position("")

    def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck:
        return TelemetryAck(durable_seq=self.mark, received_at=0)


AGREEING = ["agree", "agree", "not offered", "refuse", "unavailable"]
FATES = [
    *("store", "store", "forget", "lose ack", "unavailable", "unauthorized"),
    *("refuse", "not yet", "partly"),
]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 12))
def test_every_batch_is_stored_once_or_refused_whatever_the_server_does(
    data: st.DataObject, count: int
) -> None:
    clock, server, spool = Clock(), FlakyServer(data), Spool(":memory:")
    delivery = Delivery(
        server,
        spool,
        settings=DeliverySettings(batches_per_round=4),
        monotonic=clock,
        clock=clock,
        draw=lambda: 0.5,
    )
    for mark in range(1, count + 1):
        spool.put(make_batch(mark))
        delivery.round()
        clock.now += data.draw(st.integers(0, 15))
    server.calm = True
    for _ in range(100):
        delivery.round()
        clock.now += 30

    assert len(spool) == 0
    assert set(server.stored.values()) | server.refused == set(range(1, count + 1))
    assert not set(server.stored.values()) & server.refused
    spool.close()


def test_what_the_client_did_not_foresee_is_not_swallowed(spool: Spool) -> None:
    class Broken(TypedAlone):
        def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck:
            raise HeadroomError("odd")

        def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck:
            raise HeadroomError("odd")

    delivery = Delivery(Broken(), spool)
    fill(spool, 1)
    delivery.round()
    assert (len(spool), delivery.last_error) == (1, "odd")
    delivery.hurry()
    delivery.ask_position()
    assert delivery.errors == 2
