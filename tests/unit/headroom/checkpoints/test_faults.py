"""What never happens: a wrong resume, and the loss of the last good checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headroom.checkpoints import Keep, Store, collect, finish, restore, save, ship, stage
from tests.unit.headroom.checkpoints.builders import (
    RUN,
    Died,
    DyingDisk,
    SetClock,
    about,
    make_folder,
    make_store,
    read_folder,
)
from tests.unit.headroom.checkpoints.faults import faults_survived
from tests.unit.headroom.checkpoints.reader import whole

BEFORE = {"model.pt": random.Random(1).randbytes(9_000), "rng": b"1"}
AFTER = {"model.pt": BEFORE["model.pt"][:6_000] + random.Random(2).randbytes(4_000), "rng": b"2"}


def test_some_faults_in_any_order_do_no_harm() -> None:
    assert faults_survived(examples=8, steps=25) > 8


@pytest.mark.slow
def test_a_thousand_faults_in_any_order_do_no_harm() -> None:
    survived = 0
    while survived < 1000:
        survived += faults_survived(examples=40, steps=50)


class Scene:
    """A run with a checkpoint here and there, and a newer one here."""

    def __init__(self, folder: Path, chance: int) -> None:
        self.folder = folder
        self.disk = DyingDisk(random.Random(chance))
        self.near = make_store(folder / "near", self.disk)
        self.far = make_store(folder / "far", self.disk)
        self.clock = SetClock()
        self.before = make_folder(folder / "before", BEFORE)
        self.after = make_folder(folder / "after", AFTER)
        first = save(self.before, self.near, about(1), threads=1, clock=self.clock)
        ship(first, self.near, self.far, threads=1, clock=self.clock)

    def save(self) -> None:
        save(self.after, self.near, about(2), threads=1, clock=self.clock)

    def stage_and_finish(self) -> None:
        stage(self.after, self.near, about(2), clock=self.clock)
        list(finish(self.near, threads=1, clock=self.clock))

    def ship(self) -> None:
        latest = self.near.readable(RUN)[-1]
        ship(latest, self.near, self.far, threads=1, clock=self.clock)

    def collect(self) -> None:
        collect(self.near, Keep(newest=1), threads=1, clock=self.clock)


@pytest.mark.parametrize(
    ("prepare", "act", "side"),
    [
        (None, Scene.save, "near"),
        (None, Scene.stage_and_finish, "near"),
        (Scene.save, Scene.ship, "far"),
        (Scene.save, Scene.collect, "near"),
    ],
    ids=["save", "stage", "ship", "collect"],
)
def test_death_at_each_operation_leaves_the_last_good_one_and_can_be_made_good(
    tmp_path: Path,
    prepare: Callable[[Scene], None] | None,
    act: Callable[[Scene], None],
    side: str,
) -> None:
    death, is_over = 0, False
    while not is_over:
        scene = Scene(tmp_path / str(death), death)
        if prepare is not None:
            prepare(scene)
        scene.disk.die_after(death)
        try:
            act(scene)
            is_over = True
        except Died:
            pass
        scene.disk.die_after(None)
        store: Store = getattr(scene, side)
        target = tmp_path / f"restored-{death}"
        restore(store, target, RUN)
        assert read_folder(target) in (BEFORE, AFTER)
        # Whoever comes next does it again.
        act(scene)
        assert max(whole(Path(str(store)), RUN).items())[1] == AFTER
        death += 1
    assert death > 10
