from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headroom.agent.spool import Spool, SpoolError
from tests.unit.headroom.builders import Clock, make_batch, mark_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "spool.sqlite"


def test_a_batch_comes_back_addressed_for_now(path: Path) -> None:
    spool = Spool(path)
    first, second = spool.put(make_batch(1)), spool.put(make_batch(2))

    assert (first, second) == (1, 2)
    batch = spool.get(2)
    assert batch is not None
    assert (batch.boot_id, batch.seq, batch.oldest_seq) == (spool.boot_id, 2, 1)
    assert mark_of(batch) == 2
    spool.close()


def test_boot_id_and_seq_outlive_the_process(path: Path) -> None:
    spool = Spool(path)
    boot_id = spool.boot_id
    spool.put(make_batch())
    spool.acknowledge(1)
    spool.close()

    again = Spool(path)
    assert again.boot_id == boot_id
    assert again.put(make_batch()) == 2
    again.close()


def test_a_new_file_is_a_new_life(path: Path, tmp_path: Path) -> None:
    spool, other = Spool(path), Spool(tmp_path / "other")
    assert spool.boot_id != other.boot_id
    spool.close()
    other.close()


def test_oldest_seq_is_the_next_one_when_nothing_is_held(path: Path) -> None:
    spool = Spool(path)
    assert spool.oldest_seq == 1
    spool.put(make_batch())
    spool.put(make_batch())
    spool.acknowledge(1)
    assert spool.oldest_seq == 2
    spool.acknowledge(2)
    assert spool.oldest_seq == 3
    spool.close()


def test_over_its_bytes_the_oldest_go_first_and_are_counted(path: Path) -> None:
    spool = Spool(path)
    spool.put(make_batch())
    one = spool._bytes
    spool.close()
    spool = Spool(path, max_bytes=int(one * 3.5))
    for _ in range(5):
        spool.put(make_batch())
    assert spool.after(0, 100) == [4, 5, 6]
    assert (spool.dropped, spool.oldest_seq) == (3, 4)
    spool.close()
    again = Spool(path)
    assert again.dropped == 3
    again.close()


def test_over_its_age_a_batch_is_dropped_and_counted(path: Path) -> None:
    clock = Clock()
    spool = Spool(path, max_age_s=100, clock=clock)
    spool.put(make_batch())
    clock.now += 60
    spool.put(make_batch())
    clock.now += 60
    spool.put(make_batch())
    assert spool.after(0, 100) == [2, 3]
    assert spool.dropped == 1
    spool.close()


def test_a_batch_larger_than_the_spool_does_not_get_stuck(path: Path) -> None:
    spool = Spool(path, max_bytes=1)
    assert spool.put(make_batch()) == 1
    assert (len(spool), spool.dropped, spool.put(make_batch())) == (0, 1, 2)
    spool.close()


def test_a_second_agent_on_the_same_spool_is_told(path: Path) -> None:
    script = (
        "import sys; from headroom.agent.spool import Spool\n"
        "spool = Spool(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(SpoolError, match="another agent has it"):
            Spool(path)
        other.kill()
    Spool(path).close()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="cannot be opened"):
        Spool(tmp_path)


def test_a_damaged_file_is_put_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, " * 1000)
    spool = Spool(path, clock=Clock(42.0))
    assert spool.put(make_batch()) == 1
    spool.close()
    assert path.with_name("spool.sqlite.damaged-42").read_bytes().startswith(b"this is no")


def test_a_file_damaged_in_the_middle_is_put_aside(path: Path) -> None:
    spool = Spool(path)
    for mark in range(200):
        spool.put(make_batch(mark))
    spool.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + os.urandom(8192) + whole[16384:])
    spool = Spool(path, clock=Clock(42.0))
    assert spool.put(make_batch()) == 1
    assert path.with_name("spool.sqlite.damaged-42").exists()
    spool.close()


def test_a_batch_that_cannot_be_read_back_is_dropped_not_sent(path: Path) -> None:
    spool = Spool(path)
    spool.put(make_batch(1))
    spool.put(make_batch(2))
    spool._db.execute("UPDATE batch SET body = x'00' WHERE seq = 1")
    assert spool.get(1) is None
    assert (spool.dropped, spool.after(0, 10)) == (1, [2])
    spool.close()


def test_a_full_disk_is_an_error_and_leaves_the_rest(path: Path) -> None:
    spool = Spool(path)
    spool.put(make_batch(1))
    pages = spool._db.execute("PRAGMA page_count").fetchone()[0]
    spool._db.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for _ in range(1000):
            spool.put(make_batch(2))

    with pytest.raises(SpoolError, match="full"):
        fill()
    held = spool.after(0, 1000)
    assert held[0] == 1
    spool.acknowledge(held[-1])
    assert spool.put(make_batch(3)) > held[-1]
    spool.close()


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    spool = Spool(path)
    spool.put(make_batch())
    assert {p.stat().st_mode & 0o077 for p in path.parent.iterdir()} == {0}
    spool.close()


def test_several_threads_may_put_and_read(path: Path) -> None:
    spool = Spool(path)

    def fill() -> None:
        for _ in range(20):
            spool.put(make_batch())
            spool.after(0, 5)

    threads = [threading.Thread(target=fill) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spool.after(0, 100) == list(range(1, 81))
    spool.close()


def test_what_was_put_survives_sigkill(path: Path) -> None:
    script = (
        "import os, signal, sys; from headroom.agent.spool import Spool\n"
        "from tests.unit.headroom.builders import make_batch\n"
        "spool = Spool(sys.argv[1])\n"
        "for i in range(1, 8): spool.put(make_batch(float(i)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=False)
    spool = Spool(path)
    assert spool.after(0, 100) == [1, 2, 3, 4, 5, 6, 7]
    assert spool.put(make_batch()) == 8
    spool.close()


class SpoolMachine(RuleBasedStateMachine):
    """A spool beside a model of it: whatever happens, nothing unacknowledged is lost silently."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "spool"
        self.clock = Clock()
        self.max_bytes = 2000
        self.spool = self._open()
        self.boot_id = self.spool.boot_id
        self.model: dict[int, float] = {}
        self.put_at: dict[int, float] = {}
        self.given = 0
        self.dropped = 0

    def _open(self) -> Spool:
        return Spool(self.path, max_bytes=self.max_bytes, max_age_s=100, clock=self.clock)

    def teardown(self) -> None:
        self.spool.close()
        self.folder.cleanup()

    @rule(mark=st.floats(min_value=0, max_value=1e9), wait_s=st.integers(0, 40))
    def put(self, mark: float, wait_s: int) -> None:
        self.clock.now += wait_s
        seq = self.spool.put(make_batch(mark))
        assert seq == self.given + 1
        self.given = seq
        self.model[seq] = mark
        self.put_at[seq] = self.clock.now
        held = set(self.spool.after(0, 10_000))
        lost = set(self.model) - held
        # Only the oldest may go, and only for age or size.
        assert not lost or max(lost) < min(held, default=seq + 1)
        for old in lost:
            too_old = self.clock.now - self.put_at[old] > 100
            assert too_old or self.spool._bytes + 400 > self.max_bytes
            del self.model[old]
        self.dropped += len(lost)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        mark = data.draw(st.integers(0, self.given))
        self.spool.acknowledge(mark)
        self.model = {seq: m for seq, m in self.model.items() if seq > mark}

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.model)))
        self.spool.drop(seq)
        del self.model[seq]
        self.dropped += 1

    @rule()
    def reopen(self) -> None:
        self.spool.close()
        self.spool = self._open()

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert self.spool.after(0, 10_000) == sorted(self.model)
        assert self.spool.boot_id == self.boot_id
        assert self.spool.last_seq == self.given
        assert self.spool.dropped == self.dropped
        assert self.spool.oldest_seq == min(self.model, default=self.given + 1)
        size = self.spool._db.execute("SELECT coalesce(sum(length(body)), 0) FROM batch")
        assert self.spool._bytes == size.fetchone()[0] <= self.max_bytes
        for seq, mark in self.model.items():
            batch = self.spool.get(seq)
            assert batch is not None
            assert mark_of(batch) == mark


TestSpoolMachine = SpoolMachine.TestCase
TestSpoolMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_reads_of_a_closed_spool_fail_loudly(path: Path) -> None:
    spool = Spool(path)
    spool.close()
    with pytest.raises(SpoolError, match="closed"):
        spool.after(0, 1)
