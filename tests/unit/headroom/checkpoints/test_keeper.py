"""What goes on beside a loop."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from headroom.checkpoints import Check, Keep, Keeper, Pace, Store, arrive, lag, stage
from headroom.places import Unreachable
from tests.unit.headroom.checkpoints.builders import RUN, about, make_folder


def staged(near: Store, folder: Path, step: int) -> None:
    stage(make_folder(folder, {"state": random.Random(step).randbytes(9000)}), near, about(step))


def steps_of(store: Store) -> list[int]:
    return [name.step for name in store.names(RUN)]


def test_what_is_staged_is_saved_sent_and_the_old_removed(
    near: Store, far: Store, tmp_path: Path
) -> None:
    keeper = Keeper(near, far, rule=Keep(newest=2))
    for step in (1, 2, 3):
        staged(near, tmp_path / "folder", step)
        assert keeper.step()
    assert steps_of(near) == [2, 3]
    assert steps_of(far) == [1, 2, 3]
    assert not keeper.step()


def test_local_only_saves_and_does_not_send_and_then_sends_the_latest_alone(
    near: Store, far: Store, tmp_path: Path
) -> None:
    is_open = False
    keeper = Keeper(near, far, may_ship=lambda: is_open)
    for step in (1, 2, 3):
        staged(near, tmp_path / "folder", step)
        keeper.step()
    assert steps_of(far) == []
    assert lag(near, far, RUN).checkpoints == 3
    is_open = True
    while keeper.step():
        pass
    assert steps_of(far) == [3]
    assert lag(near, far, RUN).steps == 0


def test_a_link_that_is_away_for_a_while_is_tried_again(
    near: Store, far: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(near, far)
    staged(near, tmp_path / "folder", 1)
    put, cuts = far.place.put, 3

    def cut_thrice(path: str, data: bytes) -> None:
        nonlocal cuts
        if cuts:
            cuts -= 1
            raise Unreachable("the link is cut")
        put(path, data)

    monkeypatch.setattr(far.place, "put", cut_thrice)

    def stop_when_it_is_there(_: float) -> None:
        if steps_of(far):
            keeper.stop.set()

    monkeypatch.setattr(keeper.stop, "wait", stop_when_it_is_there)
    keeper.run()
    assert steps_of(near) == steps_of(far) == [1]


def test_at_the_end_the_latest_of_what_was_staged_is_sent(
    near: Store, far: Store, tmp_path: Path
) -> None:
    keeper = Keeper(near, far)
    for step in (1, 2):
        staged(near, tmp_path / "folder", step)
    keeper.stop.set()
    keeper.run()
    keeper.close()
    assert steps_of(near) == [1, 2]
    assert steps_of(far) == [2]


def test_at_the_end_nobody_waits_for_a_store_that_is_away(
    near: Store, far: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise Unreachable("the link is cut")

    monkeypatch.setattr(far.place, "put", refuse)
    staged(near, tmp_path / "folder", 1)
    Keeper(near, far).close()
    assert steps_of(near) == [1]


def test_what_waits_to_be_verified_there_is_not_sent_again(
    near: Store, far: Store, tmp_path: Path
) -> None:
    keeper = Keeper(near, far, check=Check.THERE)
    staged(near, tmp_path / "folder", 1)
    assert keeper.step()
    assert not keeper.step()
    arrive(far)
    assert not keeper.step()
    assert steps_of(far) == [1]


def test_the_other_store_is_not_asked_while_nothing_is_new(
    near: Store, far: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(near, far)
    staged(near, tmp_path / "folder", 1)
    while keeper.step():
        pass

    def asked(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(far.place, "files", asked)
    assert not keeper.step()


def test_a_keeper_that_is_held_back_amid_a_checkpoint_goes_on_from_there(
    near: Store, far: Store, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "folder", {"state": random.Random(1).randbytes(4_000_000)})
    stage(folder, near, about(1))
    is_open, asked = threading.Event(), threading.Event()

    def rate() -> float | None:
        if not asked.is_set() and next(iter(far.chunks()), None) is None:
            return None
        asked.set()
        return None if is_open.is_set() else 0.0

    keeper = Keeper(near, far, pace=Pace(rate), threads=1)
    thread = threading.Thread(target=keeper.step)
    thread.start()
    assert asked.wait(60)
    arrived = set(far.chunks())
    assert steps_of(far) == []
    is_open.set()
    thread.join(60)
    assert steps_of(far) == [1]
    assert arrived < set(far.chunks())
