"""What stays, and what goes."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest

from headroom.checkpoints import Checkpoint, Keep, Name, Store, collect, latest_whole, save
from headroom.checkpoints.collecting import kept
from headroom.checkpoints.store import chunk_path
from tests.unit.headroom.checkpoints.builders import RUN, SetClock, about, make_folder, make_store


def names(*steps: int) -> list[Name]:
    return [Name(RUN, 0, step, "20261101T000000000000Z", "ab" * 32) for step in steps]


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        (Keep(newest=1), [500]),
        (Keep(newest=0), [500]),
        (Keep(newest=2), [400, 500]),
        (Keep(newest=1, every_steps=200), [100, 200, 400, 500]),
        (Keep(newest=9), [100, 200, 300, 400, 500]),
    ],
)
def test_the_rule_keeps(rule: Keep, steps: list[int]) -> None:
    found = kept(names(100, 200, 300, 400, 500), rule)
    assert sorted(name.step for name in found) == steps


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "store")


def save_steps(store: Store, folder: Path, *steps: int, **said: object) -> list[Checkpoint]:
    """Save a checkpoint at each step, of which half is new each time."""
    found = []
    for step in steps:
        make_folder(folder, {"base": b"b" * 9000, "state": random.Random(step).randbytes(9000)})
        found.append(save(folder, store, about(step, **said)))
    return found


def steps_of(store: Store) -> list[int]:
    return [name.step for name in store.names(RUN)]


def test_old_ones_go_with_the_chunks_that_nobody_else_needs(store: Store, tmp_path: Path) -> None:
    old, new = save_steps(store, tmp_path / "folder", 1, 2)
    done = collect(store, Keep(newest=1))
    assert done.checkpoints == [old.name]
    assert done.chunks == len(set(old.manifest.chunks()) - set(new.manifest.chunks()))
    assert {digest for digest, _ in store.chunks()} == set(new.manifest.chunks())
    assert latest_whole(store, RUN) == (new, [])


def test_what_is_to_be_kept_stays(store: Store, tmp_path: Path) -> None:
    save_steps(store, tmp_path / "folder", 1, keep=True)
    save_steps(store, tmp_path / "folder", 2, 3)
    collect(store, Keep(newest=1))
    assert steps_of(store) == [1, 3]


def test_the_newest_whole_one_stays_where_newer_ones_are_damaged(
    store: Store, tmp_path: Path
) -> None:
    _, good, bad = save_steps(store, tmp_path / "folder", 1, 2, 3)
    (Path(str(store)) / chunk_path(list(bad.manifest.chunks())[-1])).unlink()
    done = collect(store, Keep(newest=1))
    assert steps_of(store) == [2, 3]
    assert [each.name for each in done.passed_over] == [bad.name]
    assert latest_whole(store, RUN)[0] == good


def test_a_collection_that_takes_too_long_counts_what_it_removed(
    store: Store, tmp_path: Path
) -> None:
    class Slow(SetClock):
        """Each look at it takes a minute."""

        def now(self) -> datetime:
            self.sleep(60.0)
            return super().now()

    save_steps(store, tmp_path / "folder", 1, 2)
    before = {digest: found.size for digest, found in store.chunks()}
    done = collect(store, Keep(newest=1), threads=1, clock=Slow())
    gone = before.keys() - {digest for digest, _ in store.chunks()}
    assert 0 < done.chunks == len(gone)
    assert done.bytes == sum(before[digest] for digest in gone)
    again = collect(store, Keep(newest=1))
    assert again.chunks > 0


def test_where_none_is_whole_nothing_goes(store: Store, tmp_path: Path) -> None:
    found = save_steps(store, tmp_path / "folder", 1, 2)
    shared = set(found[0].manifest.chunks()) & set(found[1].manifest.chunks())
    (Path(str(store)) / chunk_path(shared.pop())).unlink()
    assert collect(store, Keep(newest=1)).unsafe == [RUN]
    assert steps_of(store) == [1, 2]


def test_two_do_not_collect_at_once(store: Store, tmp_path: Path) -> None:
    save_steps(store, tmp_path / "folder", 1, 2)
    store.place.put("collecting/somebody.json", b"{}")
    assert collect(store, Keep(newest=1)).waits_for == "another collection"
    assert steps_of(store) == [1, 2]
