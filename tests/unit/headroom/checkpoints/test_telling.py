"""What a keeper tells of its stores."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from headroom.checkpoints import Check, Keep, Keeper, Store, Teller, arrive, collect, stage
from headroom.contracts import StoreState
from headroom.places import Unreachable
from tests.unit.headroom.checkpoints.builders import RUN, about, make_folder


class Told(list[StoreState]):
    """What was told, by site."""

    def of(self, site: str) -> StoreState:
        """Return what was told last of a site."""
        return [each for each in self if each.site == site][-1]


@pytest.fixture
def told() -> Told:
    return Told()


def keeper(near: Store, far: Store, told: Told, **given: object) -> Keeper:
    teller = Teller(told.append, site="bergen", target_site="oslo")
    return Keeper(near, far, teller=teller, **given)  # type: ignore[arg-type]


def staged(near: Store, folder: Path, step: int, **said: object) -> None:
    data = {"state": random.Random(step).randbytes(9000)}
    stage(make_folder(folder, data), near, about(step, **said))


def step_of(state: StoreState) -> int | None:
    return None if state.checkpoint is None else state.checkpoint.step


def test_what_is_whole_here_is_told_before_it_is_sent_and_then_that_it_is_there(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    before = time.time()
    staged(near, tmp_path / "folder", 7, epoch=2)
    keeper(near, far, told).step()
    assert [(each.site, step_of(each)) for each in told] == [
        ("bergen", 7), ("oslo", None), ("bergen", 7), ("oslo", 7),
    ]  # fmt: skip
    here, there = told.of("bergen").checkpoint, told.of("oslo").checkpoint
    assert here is not None
    assert there is not None
    (name,) = far.names()
    assert (here.digest, there.digest) == (name.digest, name.digest)
    assert (there.epoch, told.of("oslo").lease_epoch, told.of("oslo").run) == (2, 2, RUN)
    # Files have times of the kernel's tick.
    assert before - 1.0 <= here.saved_at <= here.verified_at + 1.0 <= time.time() + 2.0
    assert there.bytes == 9000


def test_how_far_the_other_store_is_behind_and_how_fast_it_was_reached(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    is_open = True
    work = keeper(near, far, told, may_ship=lambda: is_open)
    staged(near, tmp_path / "folder", 10)
    work.step()
    lag = told.of("oslo").lag
    assert lag is not None
    assert (lag.checkpoints, lag.steps, lag.seconds, lag.bytes) == (0, 0, 0.0, 0)
    is_open = False
    for step in (20, 30):
        staged(near, tmp_path / "folder", step)
        work.step()
    behind = told.of("oslo")
    assert behind.lag is not None
    assert (behind.lag.checkpoints, behind.lag.steps) == (2, 20)
    assert behind.lag.bytes == 9000
    assert behind.lag.seconds is not None
    assert behind.lag.seconds > 0
    assert behind.sent_bytes_per_s is not None
    assert behind.sent_bytes_per_s > 0
    assert told.of("bergen").lag is None


def test_a_checkpoint_that_arrived_and_was_not_verified_does_not_count(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    work = keeper(near, far, told, check=Check.THERE)
    staged(near, tmp_path / "folder", 1)
    work.step()
    state = told.of("oslo")
    assert state.checkpoint is None
    assert state.lag is not None
    assert (state.lag.steps, state.lag.seconds) == (None, None)
    arrive(far)
    again = Teller(told.append, target_site="oslo")
    again.tell(near, far)
    assert step_of(told.of("oslo")) == 1


def test_where_the_other_store_is_cut_off_it_is_told_how_it_was_seen_last(
    near: Store, far: Store, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = keeper(near, far, told)
    staged(near, tmp_path / "folder", 1)
    work.step()

    def cut(*_: object) -> None:
        raise Unreachable("the link is cut")

    monkeypatch.setattr(far.place, "files", cut)
    staged(near, tmp_path / "folder", 2)
    with pytest.raises(Unreachable):
        work.step()
    assert step_of(told.of("bergen")) == 2
    assert step_of(told.of("oslo")) == 1
    assert told.of("oslo").lag is not None
    assert told.of("oslo").lag.steps == 1  # type: ignore[union-attr]


def test_of_a_store_that_was_never_reached_nothing_is_told(
    near: Store, far: Store, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise Unreachable("the link is cut")

    monkeypatch.setattr(far.place, "files", cut)
    staged(near, tmp_path / "folder", 1)
    with pytest.raises(Unreachable):
        keeper(near, far, told).step()
    assert [each.site for each in told] == ["bergen"]


def test_what_the_other_site_has_removed_is_told_no_more(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    work = keeper(near, far, told, rule=Keep(newest=1))
    for step in (1, 2):
        staged(near, tmp_path / "folder", step)
        work.step()
    collect(far, Keep(newest=1))
    far.forget(far.names()[-1])
    Teller(told.append, target_site="oslo").tell(near, far)
    assert step_of(told.of("oslo")) is None


def test_a_manifest_that_is_damaged_and_of_which_nothing_else_is_known_does_not_count(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    staged(far, tmp_path / "folder", 5)
    Keeper(far).step()
    far.place.put(f"manifests/{far.names()[-1]}", b"{}")
    staged(near, tmp_path / "folder", 4)
    Keeper(near).step()
    Teller(told.append, target_site="oslo").tell(near, far)
    assert step_of(told.of("oslo")) is None


def test_an_older_start_speaks_for_itself_whatever_lies_at_the_other_site(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    staged(far, tmp_path / "folder", 5, epoch=9)
    Keeper(far).step()
    staged(near, tmp_path / "folder", 50, epoch=8)
    work = keeper(near, None, told)  # type: ignore[arg-type]
    work.step()
    Teller(told.append, target_site="oslo").tell(near, far)
    assert told.of("oslo").lease_epoch == 8


def test_without_a_checkpoint_or_a_site_nothing_is_told(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    teller = Teller(told.append)
    teller.tell(near, far)
    assert told == []
    staged(near, tmp_path / "folder", 1)
    Keeper(near, far).step()
    teller.tell(near, far)
    assert [each.site for each in told] == [""]


def test_what_has_not_changed_is_told_again_after_a_while(
    near: Store, far: Store, told: Told, tmp_path: Path
) -> None:
    now = 0.0
    teller = Teller(told.append, target_site="oslo", monotonic=lambda: now)
    work = Keeper(near, far, teller=teller)
    staged(near, tmp_path / "folder", 1)
    while work.step():
        pass
    count = len(told)
    work.step()
    assert len(told) == count
    now = 31.0
    work.step()
    assert len(told) == count + 2
