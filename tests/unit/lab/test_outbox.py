import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import (
    GpuColumns,
    MeterColumns,
    NodeReport,
    TelemetryBatch,
    decode_batch,
    row_count,
)
from lab.outbox import Outbox, Pending


def make_outbox(*, batches: int = 0, max_bytes: int = 1_000_000) -> Outbox:
    outbox = Outbox("node-1", max_bytes=max_bytes)
    for _ in range(batches):
        add(outbox)
    return outbox


def add(outbox: Outbox) -> None:
    gpus = GpuColumns(ts=[1.0, 1.0], gpu=[0, 1], power_w=[100.0, 200.0])
    outbox.add(nodes=[NodeReport(node="node-1", gpus=gpus)])


def decoded(batch: Pending | None) -> TelemetryBatch:
    assert batch is not None
    return decode_batch(zstandard.decompress(batch.body), json=False)


def push_all(outbox: Outbox, *, durable_seq: int = 0, now_s: float = 0.0) -> list[int]:
    """Take every unsent batch, with one answer to all of them."""
    seqs = []
    while (batch := outbox.unsent()) is not None:
        seqs.append(batch.seq)
        outbox.sent(batch.seq, durable_seq=durable_seq, now_s=now_s)
    return seqs


def test_seqs_count_up_from_one_in_one_life_of_the_outbox() -> None:
    outbox = make_outbox(batches=3)
    first = decoded(outbox.unsent())
    assert (first.agent, first.seq, first.oldest_seq) == ("node-1", 1, 1)
    assert first.boot_id == outbox.boot_id
    assert push_all(outbox) == [1, 2, 3]
    assert make_outbox().boot_id != outbox.boot_id


def test_oldest_seq_is_the_lowest_that_is_still_held() -> None:
    outbox = make_outbox(batches=3)
    push_all(outbox, durable_seq=2)
    add(outbox)
    assert decoded(outbox.unsent()).oldest_seq == 3


def test_what_is_taken_but_not_stored_is_kept() -> None:
    outbox = make_outbox(batches=3)
    push_all(outbox, durable_seq=1)
    assert len(outbox) == 2
    assert outbox.unsent() is None


def test_what_is_not_stored_in_time_is_sent_again_from_the_oldest() -> None:
    outbox = make_outbox(batches=3)
    push_all(outbox, durable_seq=1, now_s=100.0)
    assert not outbox.rewind(now_s=114.0, after_s=15.0)
    assert outbox.rewind(now_s=115.0, after_s=15.0)
    assert push_all(outbox, durable_seq=1, now_s=115.0) == [2, 3]
    outbox.stored(3, now_s=116.0)
    assert len(outbox) == 0
    assert not outbox.rewind(now_s=1000.0, after_s=15.0)


def test_it_knows_how_many_wait_for_a_push() -> None:
    outbox = make_outbox(batches=3)
    assert outbox.unsent_batches == 3
    push_all(outbox, durable_seq=1)
    assert outbox.unsent_batches == 0
    add(outbox)
    outbox.rewind(now_s=100.0, after_s=15.0)
    assert outbox.unsent_batches == 3


def test_progress_puts_off_sending_again() -> None:
    outbox = make_outbox(batches=3)
    push_all(outbox, durable_seq=0, now_s=100.0)
    outbox.stored(1, now_s=114.0)
    assert not outbox.rewind(now_s=120.0, after_s=15.0)


def test_a_long_silence_is_not_taken_for_a_loss() -> None:
    outbox = make_outbox(batches=1)
    push_all(outbox, durable_seq=1, now_s=0.0)
    add(outbox)
    assert outbox.unsent() is not None
    assert not outbox.rewind(now_s=900.0, after_s=15.0)


def test_a_refused_batch_is_given_up_and_does_not_block_the_rest() -> None:
    outbox = make_outbox(batches=3)
    outbox.refused(2, "400 unknown_node")
    assert push_all(outbox) == [1, 3]
    add(outbox)
    status = decoded(outbox.unsent()).status
    assert status is not None
    assert (status.errors, status.last_error) == (1, "400 unknown_node")
    assert outbox.counts.refused_batches == 1


def test_when_full_the_oldest_are_dropped_and_counted() -> None:
    outbox = make_outbox(batches=100, max_bytes=2000)
    last_size = outbox.pending_bytes / len(outbox)
    assert outbox.pending_bytes <= 2000 + 2 * last_size
    assert outbox.counts.dropped_batches == 100 - len(outbox) > 0
    seqs = push_all(outbox)
    assert seqs == list(range(seqs[0], 101))
    add(outbox)
    last = decoded(outbox.unsent())
    assert last.oldest_seq == 101 - len(outbox) + 1
    assert last.status is not None
    assert last.status.dropped_batches == outbox.counts.dropped_batches


def test_the_newest_batch_is_always_kept() -> None:
    assert len(make_outbox(batches=5, max_bytes=1)) == 1


def test_meters_are_carried_too() -> None:
    outbox = make_outbox()
    outbox.add(meters=MeterColumns(ts=[1.0], meter=["oslo/A01"], power_w=[61_000.0]))
    assert row_count(decoded(outbox.unsent())) == 1


@given(st.lists(st.sampled_from(["add", "push", "store", "lose", "refuse"]), max_size=80))
def test_every_batch_is_stored_refused_or_still_held(events: list[str]) -> None:
    outbox, stored, taken, now_s = make_outbox(), set[int](), set[int](), 0.0
    refused = 0
    for event in events:
        now_s += 20.0
        batch = outbox.unsent()
        if event == "add":
            add(outbox)
        elif event == "refuse" and batch is not None:
            outbox.refused(batch.seq, "no")
            refused += 1
        elif event == "push" and batch is not None:
            taken.add(batch.seq)
            outbox.sent(batch.seq, durable_seq=0, now_s=now_s)
        elif event == "store" and taken:
            # The server stores in order what it took.
            stored |= taken
            outbox.stored(max(taken), now_s=now_s)
            taken.clear()
        elif event == "lose":
            taken.clear()
            outbox.rewind(now_s=now_s, after_s=15.0)
    assert outbox.counts.batches == outbox.last_seq
    assert outbox.counts.stored_batches + refused + len(outbox) == outbox.last_seq
    assert outbox.counts.dropped_batches == 0
