"""From one store to another."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest

from headroom.checkpoints import (
    Check,
    Checkpoint,
    Fenced,
    Keep,
    NotWhole,
    Pace,
    Store,
    arrive,
    collect,
    latest_whole,
    save,
    ship,
)
from headroom.checkpoints.store import chunk_path
from tests.unit.headroom.checkpoints.builders import RUN, SetClock, about, make_folder, make_store

FILES = {"model.pt": random.Random(1).randbytes(60_000), "rng": b"1"}


@pytest.fixture
def saved(near: Store, tmp_path: Path) -> Checkpoint:
    return save(make_folder(tmp_path / "folder", FILES), near, about(1))


def next_step(near: Store, tmp_path: Path) -> Checkpoint:
    """Save the same folder again, with another random state."""
    return save(make_folder(tmp_path / "folder", {"rng": b"2"}), near, about(2))


def damage(store: Store, digest: str) -> None:
    path = Path(str(store)) / chunk_path(digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_what_was_shipped_counts_at_the_other_store(
    near: Store, far: Store, saved: Checkpoint
) -> None:
    done = ship(saved, near, far)
    assert latest_whole(far, RUN) == (saved, [])
    assert done.sent == done.chunks
    assert done.read_bytes == done.sent_bytes
    assert not list(far.place.files("arriving"))


def test_only_what_the_other_lacks_is_sent(
    near: Store, far: Store, saved: Checkpoint, tmp_path: Path
) -> None:
    ship(saved, near, far)
    done = ship(next_step(near, tmp_path), near, far)
    assert done.sent == 1
    assert done.sent_bytes + done.read_bytes < 100


def test_a_chunk_that_arrived_before_a_death_is_read_and_not_sent_again(
    near: Store, far: Store, saved: Checkpoint
) -> None:
    good, bad, *_ = saved.manifest.chunks()
    for digest in (good, bad):
        far.place.put(chunk_path(digest), near.place.get(chunk_path(digest)))
    damage(far, bad)
    done = ship(saved, near, far)
    assert done.sent == done.chunks - 1
    assert latest_whole(far, RUN)[0] == saved


def test_a_chunk_that_is_damaged_here_is_not_sent(
    near: Store, far: Store, saved: Checkpoint
) -> None:
    digest = next(iter(saved.manifest.chunks()))
    damage(near, digest)
    with pytest.raises(NotWhole) as raised:
        ship(saved, near, far)
    assert list(raised.value.missing) == [digest]
    assert far.names(RUN) == []


def test_what_arrives_damaged_is_sent_again_and_given_up_in_the_end(
    near: Store, far: Store, saved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, sent = far.place.put, []

    def loses_a_bit(path: str, data: bytes) -> None:
        sent.append(path)
        is_bad = path.startswith("chunks/") and sent.count(path) <= times
        put(path, data[:-1] + bytes([data[-1] ^ 1]) if is_bad else data)

    monkeypatch.setattr(far.place, "put", loses_a_bit)
    times = 9
    with pytest.raises(NotWhole, match="do not arrive"):
        ship(saved, near, far)
    assert far.names(RUN) == []
    sent.clear()
    times = 1
    ship(saved, near, far)
    assert latest_whole(far, RUN)[0] == saved


def test_what_is_verified_there_counts_when_somebody_there_has_read_it(
    near: Store, far: Store, saved: Checkpoint
) -> None:
    done = ship(saved, near, far, check=Check.THERE)
    assert done.read_bytes == 0
    assert far.names(RUN) == []
    damage(far, next(iter(saved.manifest.chunks())))
    (error,) = arrive(far)
    assert isinstance(error, NotWhole)
    far.place.delete(chunk_path(next(iter(saved.manifest.chunks()))))
    ship(saved, near, far, check=Check.THERE)
    assert arrive(far) == [saved]
    assert arrive(far) == []
    assert latest_whole(far, RUN)[0] == saved


def test_check_all_finds_what_rotted_since_it_arrived(
    near: Store, far: Store, saved: Checkpoint, tmp_path: Path
) -> None:
    ship(saved, near, far)
    damage(far, next(iter(saved.manifest.chunks())))
    ship(next_step(near, tmp_path), near, far, check=Check.ALL)
    assert latest_whole(far, RUN)[0].name.step == 2


def test_an_earlier_start_is_fenced_off_at_the_other_site(
    near: Store, far: Store, saved: Checkpoint, tmp_path: Path
) -> None:
    moved = make_store(tmp_path / "moved")
    ship(save(tmp_path / "folder", moved, about(0, epoch=1)), moved, far)
    with pytest.raises(Fenced):
        ship(saved, near, far)
    assert latest_whole(far, RUN)[0].name.epoch == 1


def test_all_bytes_that_go_wait_for_the_pace(near: Store, far: Store, saved: Checkpoint) -> None:
    waited: list[float] = []
    pace = Pace(lambda: 1000.0, clock=lambda: 0.0, sleep=waited.append)
    done = ship(saved, near, far, pace=pace)
    assert max(waited) == pytest.approx(done.sent_bytes / 1000 - 1, abs=0.01)


class TestCollectedMeanwhile:
    def test_chunks_on_their_way_stay(self, near: Store, far: Store, saved: Checkpoint) -> None:
        ship(saved, near, far, check=Check.THERE)
        assert collect(far, Keep()).chunks == 0
        assert arrive(far) == [saved]

    def test_they_go_when_nobody_has_renewed_the_promise(
        self, near: Store, far: Store, saved: Checkpoint
    ) -> None:
        ship(saved, near, far, check=Check.THERE)
        clock = SetClock()
        clock.sleep(timedelta(days=2).total_seconds())
        assert collect(far, Keep(), clock=clock).chunks == len(saved.manifest.chunks())

    def test_while_one_is_saved_none_goes(self, near: Store, saved: Checkpoint) -> None:
        near.forget(saved.name)
        near.place.put("saving/other/0-1-now", b"{}")
        done = collect(near, Keep())
        assert (done.chunks, done.waits_for) == (0, "a checkpoint that is being saved here")

    def test_who_ships_waits_until_nobody_collects(
        self, near: Store, far: Store, saved: Checkpoint
    ) -> None:
        far.place.put("collecting/somebody.json", b"{}")
        clock = SetClock()
        before = clock.now()
        ship(saved, near, far, clock=clock)
        assert timedelta(minutes=4) < clock.now() - before < timedelta(minutes=6)
        assert collect(far, Keep(), clock=clock).waits_for == ""
