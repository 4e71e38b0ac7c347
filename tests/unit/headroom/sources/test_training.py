"""Reports of ranks, over a real socket, folded into the progress of their job."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.sources.training import Fold, TrainingSource
from headroom.contracts import CheckpointReport, JobColumns, StoreState
from headroom.training import Session
from headroom.training.reports import RankReport, Sender, StoreReport
from tests.unit.headroom.builders import Clock

KEY = "llama/train/3"


def report(rank: int = 0, **given: Any) -> RankReport:
    fields: dict[str, Any] = {"rank": rank, "world": 2, "step": 10, "steps": 5, "span_s": 2.0}
    return RankReport(**{**fields, **given})


@pytest.fixture
def source() -> Iterator[TrainingSource]:
    made = TrainingSource()
    yield made
    made.close()


def rows_of(source: TrainingSource, is_enough: Callable[[list[Row]], object] = bool) -> list[Row]:
    found: list[Row] = []
    end = time.monotonic() + 60.0
    while not is_enough(found):
        assert time.monotonic() < end, found
        found += source.read()
        time.sleep(0.01)
    return found


def listen(source: TrainingSource, path: Path) -> Path:
    source.listen(KEY, path, os.getuid(), os.getgid())
    return path


# --- Folding --------------------------------------------------------------------------------------


def test_a_step_takes_as_long_as_on_the_slowest_rank_and_samples_add_up() -> None:
    fold = Fold()
    fold.add(report(0, samples=40, loss=1.0))
    fold.add(report(1, samples=20, loss=3.0, span_s=4.0, step=9))
    row = fold.row("llama/train")
    assert row is not None
    assert (row["job"], row["step"], row["loss"]) == ("llama/train", 10, 2.0)
    assert (row["step_time_s"], row["samples_per_s"]) == (0.8, 25.0)
    assert fold.row("llama/train") is None


def test_the_rank_that_waits_least_for_others_is_the_slow_one() -> None:
    """They end each step together, so that all take as long."""
    fold = Fold()
    for rank, waited_s in enumerate((0.8, 0.1, 0.8, 0.9)):
        spent = {"gradient_sync": waited_s, "data_loading_sync": 0.1 * rank}
        fold.add(report(rank, world=4, sections=spent, tokens=50, memory_bytes=1000 + rank))
    row = fold.row("a")
    assert row is not None
    assert row["slowest_rank"] == 1
    assert row["rank_spread"] == pytest.approx(1.9 / 1.2)
    assert row["sync_s"] == pytest.approx(0.13)
    assert row["data_wait_s"] == pytest.approx(0.06)
    assert row["tokens_per_s"] == pytest.approx(100.0)
    assert row["rank_mem_bytes"] == 1003


def test_of_ranks_that_are_alike_none_is_slow_and_one_alone_has_no_other() -> None:
    fold = Fold()
    fold.add(report(0, sections={"gradient_sync": 0.10}))
    fold.add(report(1, sections={"gradient_sync": 0.15}))
    row = fold.row("a")
    assert row is not None
    assert row["slowest_rank"] is None
    fold.add(report(0))
    row = fold.row("a")
    assert row is not None
    assert row.get("rank_spread") is None


def test_what_is_done_between_steps_is_no_part_of_them_and_waiting_for_data_is() -> None:
    fold = Fold()
    spent = {"unproductive_checkpoint_save_time": 0.6, "evaluation": 0.4, "data_loading_sync": 0.5}
    fold.add(report(world=1, sections=spent))
    row = fold.row("a")
    assert row is not None
    assert row["step_time_s"] == pytest.approx(0.2)
    assert row["lost_share"] == pytest.approx(0.5)


def test_flops_of_a_step_are_those_that_ranks_told_last_and_none_where_none_did() -> None:
    fold = Fold()
    fold.add(report(0, flops_per_step=1e15))
    fold.add(report(0, flops_per_step=2e15))
    fold.add(report(1))
    row = fold.row("a")
    assert row is not None
    assert row["flops_per_step"] == 2e15
    fold.add(report(0))
    fold.add(report(1))
    row = fold.row("a")
    assert row is not None
    assert row["flops_per_step"] is None


def test_ranks_of_other_machines_count_as_those_here() -> None:
    fold = Fold()
    fold.add(report(0, world=8, samples=10))
    fold.add(report(1, world=8, samples=10))
    row = fold.row("a")
    assert row is not None
    assert row["samples_per_s"] == pytest.approx(40.0)


def test_a_rank_that_made_no_step_has_no_time_of_one() -> None:
    fold = Fold()
    fold.add(report(steps=0, loss=None))
    row = fold.row("a")
    assert row is not None
    assert (row["step"], row["loss"], row["samples_per_s"]) == (10, None, None)
    assert row.get("step_time_s") is None


def test_a_row_waits_for_ranks_that_have_reported_before() -> None:
    """They report at moments of their own: a row of one would tell of its waiting alone."""
    fold = Fold()
    fold.add(report(0), 0.0)
    fold.add(report(1), 0.0)
    assert fold.row("a", 0.5) is not None
    fold.add(report(0, sections={"gradient_sync": 1.0}), 1.0)
    assert fold.row("a", 1.5) is None
    fold.add(report(1), 1.9)
    row = fold.row("a", 2.0)
    assert row is not None
    assert row["sync_s"] == pytest.approx(0.1)
    assert fold.row("a", 9.0) is None


def test_a_rank_that_reports_no_more_holds_back_one_row_for_three_seconds() -> None:
    fold = Fold()
    fold.add(report(0), 0.0)
    fold.add(report(1), 0.0)
    fold.row("a", 0.5)
    fold.add(report(0), 1.0)
    assert fold.row("a", 3.9) is None
    row = fold.row("a", 4.0)
    assert row is not None
    assert row["ts"] == 1.0
    fold.add(report(0), 5.0)
    assert fold.row("a", 5.1) is not None


# --- The socket -----------------------------------------------------------------------------------


def test_what_a_session_reports_arrives_as_a_row_of_the_contract(
    source: TrainingSource, tmp_path: Path
) -> None:
    path = listen(source, tmp_path / "reports")
    clock = Clock()
    with Session(mailbox=None, group=None, sender=Sender(path), clock=clock) as run:
        for _ in range(10):
            clock.now += 0.2
            run.step(loss=0.25, samples=8)
    rows = rows_of(source, lambda rows: rows and rows[-1]["step"] == 10)
    buffer = ColumnBuffer(JobColumns)
    for row in rows:
        buffer.append(1.0, row)
    assert buffer.rejected == 0
    columns = buffer.take()
    assert columns is not None
    assert columns.job[0] == "llama/train"
    assert columns.step_time_s is not None
    assert columns.step_time_s[-1] == pytest.approx(0.2)
    assert columns.samples_per_s is not None
    assert columns.samples_per_s[-1] == pytest.approx(40.0)


def test_a_session_says_that_it_begins_before_it_has_made_a_step(
    source: TrainingSource, tmp_path: Path
) -> None:
    path = listen(source, tmp_path / "reports")
    clock = Clock()
    with Session(mailbox=None, group=None, sender=Sender(path), step=40, clock=clock):
        (row,) = rows_of(source)
        assert (row["step"], row.get("step_time_s"), row["lost_share"]) == (40, None, None)


def test_a_path_longer_than_addresses_of_sockets_are_is_reached(
    source: TrainingSource, tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    sender = Sender(listen(source, folder / "reports"))
    assert sender.send(report())
    sender.close()
    assert rows_of(source)


def test_a_full_socket_delays_nobody_and_the_next_report_has_what_was_dropped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reports"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(path))
        clock, sender = Clock(), Sender(path)
        with Session(mailbox=None, group=None, sender=sender, clock=clock) as run:
            while not sender.dropped:
                clock.now += 2.0
                run.step(samples=1)
            while True:
                ear.setblocking(False)
                try:
                    ear.recv(65536)
                except BlockingIOError:
                    break
            clock.now += 2.0
            run.step(samples=1)
            last = msgspec.msgpack.decode(ear.recv(65536), type=RankReport)
    assert (last.steps, last.samples, last.dropped) == (2, 2, 1)
    assert last.span_s == pytest.approx(4.0)


def test_what_is_no_report_is_counted_and_keeps_no_other_back(
    source: TrainingSource, tmp_path: Path
) -> None:
    path = listen(source, tmp_path / "reports")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hostile:
        for said in (b"", b"\xc1", b"\x91" * 5000, b"x" * 20_000, b'{"rank": -1}'):
            hostile.sendto(said, str(path))
            time.sleep(0.05)
    sender = Sender(path)
    assert sender.send(report())
    sender.close()
    assert len(rows_of(source)) == 1
    assert source.errors >= 4
    assert "llama/train" in source.last_error


def test_what_was_reported_before_the_end_is_still_read(
    source: TrainingSource, tmp_path: Path
) -> None:
    sender = Sender(listen(source, tmp_path / "reports"))
    sender.send(report())
    source.forget(KEY)
    assert len(rows_of(source)) == 1
    assert not sender.send(report())
    assert sender.dropped == 1
    sender.close()


def test_a_new_life_of_the_agent_is_reached_by_ranks_that_run(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    first = TrainingSource()
    sender = Sender(listen(first, path))
    assert sender.send(report())
    first.close()
    assert not sender.send(report())
    second = TrainingSource()
    listen(second, path)
    assert sender.send(report())
    assert rows_of(second)
    second.close()
    sender.close()


# --- Checkpoints ----------------------------------------------------------------------------------


def tell(path: Path, *sites: str, run: str = "r") -> None:
    sender = Sender(path)
    end = time.monotonic() + 60.0
    for site in sites:
        state = StoreState(run=run, lease_epoch=1, site=site)
        while not sender.send(StoreReport(store=state)):  # the kernel's queue is short
            assert time.monotonic() < end
            time.sleep(0.01)
    sender.close()


def stores_of(source: TrainingSource, count: int = 1) -> list[CheckpointReport]:
    found: list[CheckpointReport] = []
    end = time.monotonic() + 60.0
    while len(found) < count:
        assert time.monotonic() < end, found
        found += source.take_stores("n1")
        time.sleep(0.01)
    return found


def test_what_a_keeper_tells_is_taken_once_as_of_the_job_and_disturbs_no_rank(
    source: TrainingSource, tmp_path: Path
) -> None:
    path = listen(source, tmp_path / "reports")
    sender = Sender(path)
    assert sender.send(report())
    sender.close()
    tell(path, "", "oslo")
    found = stores_of(source, 2)
    assert {each.store.site for each in found} == {"", "oslo"}
    assert {(each.job, each.node) for each in found} == {("llama/train", "n1")}
    assert rows_of(source)[0]["step"] == 10
    assert source.take_stores("n1") == []
    assert source.errors == 0


def test_of_one_store_the_last_word_counts(tmp_path: Path) -> None:
    source = TrainingSource(clock=lambda: 5.0)
    path = listen(source, tmp_path / "reports")
    with source._lock:  # so that all of it waits in the socket
        tell(path, "oslo", run="a")
        tell(path, "oslo", run="b")
    source.forget(KEY)
    (found,) = stores_of(source)
    assert (found.store.run, found.at) == ("b", 5.0)
    source.close()


def test_what_was_told_last_is_kept_until_it_is_taken(
    source: TrainingSource, tmp_path: Path
) -> None:
    path = listen(source, tmp_path / "reports")
    tell(path, "oslo")
    source.forget(KEY)
    assert list(source.read()) == []
    assert len(stores_of(source)) == 1


def test_a_job_may_have_only_so_many_stores(source: TrainingSource, tmp_path: Path) -> None:
    path = listen(source, tmp_path / "reports")
    for number in range(20):
        tell(path, f"s{number}")
        tell(path, "s0")  # is known, and does not count again
    source.forget(KEY)
    assert len(source.take_stores("n1")) == 16


@pytest.mark.parametrize("store", [None, 3, {}, {"run": "../..", "lease_epoch": 0}, {"run": "r"}])
def test_what_is_no_report_of_a_store_is_left_out_and_counted(
    source: TrainingSource, tmp_path: Path, store: object
) -> None:
    path = listen(source, tmp_path / "reports")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(msgspec.msgpack.encode({"store": store}), str(path))
    source.forget(KEY)
    assert source.errors == 1
    assert source.take_stores("n1") == []
