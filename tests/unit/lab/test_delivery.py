import hashlib
import threading
import time
from collections.abc import Callable

import msgspec
import pytest

from headroom.client import Client, Refused, Unavailable
from headroom.contracts import FieldError, GpuColumns, NodeReport, TelemetryAck
from headroom.layouts import Layout, read_header
from lab.delivery import LAYOUT_PAUSE_S, RESEND_AFTER_S, TURN_BATCHES, Delivery, Gate, Sender
from lab.outbox import Outbox
from tests.unit.lab.fake_server import FakeServer, serve


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_sender(server: FakeServer, *, name: str = "node-1", batches: int = 0) -> Sender:
    server.agents[name] = {"name": name, "token": f"hra_{name}", "number": 1}
    sender = Sender(Outbox(name, max_bytes=10_000_000), Client(server.url, f"hra_{name}"))
    for _ in range(batches):
        add(sender)
    return sender


def add(sender: Sender) -> None:
    gpus = GpuColumns(ts=[1.0], gpu=[0], power_w=[100.0])
    sender.outbox.add(nodes=[NodeReport(node=sender.outbox.agent, gpus=gpus)])


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_turn_pushes_in_order_and_ends() -> None:
    with serve() as server:
        sender = make_sender(server, batches=TURN_BATCHES + 2)
        assert sender.deliver()
        assert not sender.deliver()
        assert [batch.seq for batch in server.stored("node-1")] == list(range(1, 11))
        assert len(sender.outbox) == 0


class Forgetful:
    """A server that takes rows, and knows the layouts that were agreed on since it last forgot."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self.agreed: list[Layout] = []
        self.taken: list[int] = []
        self.refuses = False

    def agree(self, layout: Layout) -> str | None:
        if self.refuses:
            raise Refused(403, FieldError(code="foreign_job", message="no"))
        self.agreed.append(layout)
        layout_id = hashlib.blake2b(msgspec.msgpack.encode(layout), digest_size=16).digest()
        self.known.add(layout_id)
        return layout_id.hex()

    def push_rows(self, body: bytes) -> TelemetryAck:
        header = read_header(body)
        if header.layout not in self.known:
            raise Refused(400, FieldError(code="unknown_layout", message="no"))
        self.taken.append(header.seq)
        return TelemetryAck(durable_seq=0, received_at=1.0)

    def push_compressed(self, body: bytes) -> TelemetryAck:
        self.taken.append(0)
        return TelemetryAck(durable_seq=0, received_at=1.0)

    def position(self, boot_id: str) -> TelemetryAck:
        return TelemetryAck(durable_seq=0, received_at=1.0)


def working_for(sender: Sender, job: str) -> None:
    gpus = GpuColumns(ts=[1.0], gpu=[0], power_w=[100.0], job=[job])
    sender.outbox.add(nodes=[NodeReport(node=sender.outbox.agent, gpus=gpus)])


def test_batches_under_several_layouts_go_out_where_the_server_has_lost_all_of_them() -> None:
    server = Forgetful()
    sender = Sender(Outbox("node-1", max_bytes=10_000_000), server)
    for job in ("a", "b", "b"):
        # The first of each job is typed, since nobody has agreed on it yet.
        working_for(sender, job)
        sender.deliver()
    working_for(sender, "b")
    assert server.taken == [0, 0, 3]
    server.known.clear()
    sender.outbox.rewind(now_s=2e9, after_s=0.0)
    server.taken.clear()
    while sender.deliver(lambda: 2e9):
        pass
    assert server.taken == [0, 0, 0, 0]
    # No server agrees again on a layout whose job is over, so nobody asks for it.
    assert len(server.agreed) == 2


def test_what_is_under_a_layout_whose_job_is_over_goes_in_the_typed_form() -> None:
    server, clock = Forgetful(), Clock()
    sender = Sender(Outbox("node-1", max_bytes=10_000_000), server)
    for _ in range(2):
        working_for(sender, "a")
        sender.deliver(clock)
    assert server.taken == [0, 2]
    working_for(sender, "a")
    working_for(sender, "a")
    # The job ends before they are sent.
    server.known.clear()
    server.refuses = True
    while sender.deliver(clock):
        pass
    assert server.taken == [0, 2, 0, 0]
    assert sender.outbox.counts.refused_batches == 0
    server.refuses = False
    clock.now += LAYOUT_PAUSE_S
    for _ in range(2):
        working_for(sender, "b")
        sender.deliver(clock)
    assert server.taken[-1] == 6
    assert server.agreed[-1].jobs == ["b"]


def test_an_outbox_counts_what_it_holds_in_either_form() -> None:
    server = Forgetful()
    sender = Sender(Outbox("node-1", max_bytes=10_000_000), server)
    working_for(sender, "a")
    sender.deliver()
    working_for(sender, "a")
    layout = server.agreed[0]
    for _ in range(2):
        sender.outbox.forget(layout)
    sender.outbox.stored(2, now_s=0.0)
    assert (len(sender.outbox), sender.outbox.pending_bytes) == (0, 0)


def test_a_layout_that_was_refused_is_asked_for_again_after_a_while() -> None:
    server, clock = Forgetful(), Clock()
    sender = Sender(Outbox("node-1", max_bytes=10_000_000), server)
    server.refuses = True
    for _ in range(3):
        working_for(sender, "a")
        sender.deliver(clock)
    server.refuses = False
    clock.now += LAYOUT_PAUSE_S
    for _ in range(2):
        working_for(sender, "a")
        sender.deliver(clock)
    assert server.taken[-1] == 5
    assert len(server.agreed) == 1


def test_an_unavailable_server_costs_nothing() -> None:
    with serve() as server:
        sender = make_sender(server, batches=3)
        server.down = True
        with pytest.raises(Unavailable):
            sender.deliver()
        server.down = False
        sender.deliver()
        assert len(server.stored("node-1")) == 3


def test_what_the_server_took_and_lost_is_sent_again() -> None:
    clock = Clock()
    with serve() as server:
        sender = make_sender(server, batches=3)
        server.forget = True
        sender.deliver(clock)
        assert len(sender.outbox) == 3
        server.forget = False
        clock.now += RESEND_AFTER_S
        sender.deliver(clock)
        assert [batch.seq for batch in server.stored("node-1")] == [1, 2, 3]
        assert len(sender.outbox) == 0


class Later(Forgetful):
    """Has stored, when it answers, what was pushed before."""

    def push_compressed(self, body: bytes) -> TelemetryAck:
        self.taken.append(0)
        return TelemetryAck(durable_seq=len(self.taken) - 1, received_at=1.0)

    push_rows = push_compressed


def test_what_was_stored_since_the_last_push_is_not_sent_again() -> None:
    server, clock = Later(), Clock()
    sender = Sender(Outbox("node-1", max_bytes=10_000_000), server)
    for _ in range(3):
        add(sender)
        sender.deliver(clock)
        clock.now += 2 * RESEND_AFTER_S
    assert len(server.taken) == 3


def test_a_refused_batch_does_not_hold_up_the_others() -> None:
    with serve() as server:
        sender = make_sender(server, batches=3)
        server.refuse = {2}
        sender.deliver()
        assert [batch.seq for batch in server.stored("node-1")] == [1, 3]
        assert sender.outbox.counts.refused_batches == 1


def test_a_token_that_is_not_in_force_pauses_the_agent_and_keeps_its_batches() -> None:
    clock = Clock()
    with serve() as server:
        sender = make_sender(server, batches=2)
        server.agents["node-1"]["token"] = "hra_another"
        assert not sender.deliver(clock)
        assert not sender.deliver(clock)
        assert server.pushes == 1
        assert len(sender.outbox) == 2
        server.agents["node-1"]["token"] = "hra_node-1"
        clock.now += 60.0
        sender.deliver(clock)
        assert len(server.stored("node-1")) == 2


def test_asking_lets_go_of_what_is_stored() -> None:
    with serve() as server:
        sender = make_sender(server, batches=2)
        lost_answers = Outbox("node-1", max_bytes=1000, boot_id=sender.outbox.boot_id)
        sender.deliver()
        again = Sender(lost_answers, sender.client)
        add(again)
        again.ask()
        assert len(again.outbox) == 0


def test_threads_deliver_over_an_outage() -> None:
    stop = threading.Event()
    with serve() as server:
        delivery = Delivery(threads=2, stop=stop)
        senders = [make_sender(server, name=f"node-{i}", batches=2) for i in range(20)]
        server.down = True
        for sender in senders:
            delivery.submit(sender)
        eventually(lambda: delivery.pushes_failed > 0)
        for sender in senders:
            add(sender)
            delivery.submit(sender)
        server.down = False
        eventually(lambda: all(len(sender.outbox) == 0 for sender in senders))
        assert all(len(server.stored(f"node-{i}")) == 3 for i in range(20))
        stop.set()
        delivery.join(timeout_s=2.0)


def test_the_threads_end_promptly_though_the_server_is_away() -> None:
    stop = threading.Event()
    with serve() as server:
        server.down = True
        delivery = Delivery(threads=2, stop=stop)
        delivery.submit(make_sender(server, batches=1))
        eventually(lambda: delivery.pushes_failed > 0)
        begun = time.monotonic()
        stop.set()
        delivery.join(timeout_s=60.0)
        assert time.monotonic() - begun < 30.0


def test_the_gate_closes_for_longer_with_each_failure_and_opens_on_success() -> None:
    clock = Clock()
    gate = Gate(clock)
    waits = []
    for _ in range(10):
        gate.failed(None)
        waits.append(gate.wait_s())
        clock.now += gate.wait_s()
    assert waits[0] < 1.0
    assert waits[3] > waits[0]
    assert max(waits) <= 10.0
    gate.succeeded()
    gate.failed(None)
    assert gate.wait_s() < 1.0


def test_the_gate_waits_as_long_as_the_server_asks() -> None:
    clock = Clock()
    gate = Gate(clock)
    gate.failed(20.0)
    assert gate.wait_s() == pytest.approx(20.0)


def test_failures_of_one_outage_are_counted_once() -> None:
    clock = Clock()
    gate = Gate(clock)
    for _ in range(20):
        gate.failed(None)
    assert gate.wait_s() < 1.0
