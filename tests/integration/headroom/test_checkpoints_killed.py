"""The process is killed while it saves, ships and collects, and begun anew: kill -9, really."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headroom.checkpoints import Keep, Keeper, Store, latest_whole, restore, stage
from headroom.places import Directory
from tests.unit.headroom.checkpoints.builders import RUN, SMALL, about, make_folder, read_folder

KEEPER = """
import sys
from pathlib import Path
from headroom.checkpoints import Keep, Keeper, Store
from headroom.checkpoints.chunks import Sizes
from headroom.places import Directory
near, far = (Store(Directory(Path(each)), Sizes(512, 2048, 8192)) for each in sys.argv[1:3])
print("ready", flush=True)
Keeper(near, far, rule=Keep(newest=2)).run(every_s=0.01)
"""
KILLS = 12


@pytest.mark.slow(
    beside="tests/unit/headroom/checkpoints/test_faults.py::"
    "test_death_at_each_operation_leaves_the_last_good_one_and_can_be_made_good"
)
def test_a_keeper_that_is_killed_anywhere_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    near, far = (Store(Directory(tmp_path / name), SMALL) for name in ("near", "far"))
    saved = {}
    best = {"near": 0, "far": 0}
    for step in range(1, KILLS + 1):
        saved[step] = {
            "model.pt": random.Random(1).randbytes(100_000) + chance.randbytes(60_000),
            "rng": str(step).encode(),
        }
        stage(make_folder(tmp_path / "training", saved[step]), near, about(step))
        _run_and_kill(near, far, after_s=chance.uniform(0, 0.3))
        for name, store in (("near", near), ("far", far)):
            if not store.names(RUN):
                assert not best[name]
                continue
            found, passed_over = latest_whole(store, RUN)
            assert passed_over == []
            assert found.name.step >= best[name]
            best[name] = found.name.step
    # The time to run out that a dead collector's promise has is not waited for here.
    for store in (near, far):
        for left in list(store.place.files("collecting")):
            store.place.delete(left.path)
    keeper = Keeper(near, far, rule=Keep(newest=2))
    while keeper.step():
        pass
    for name, store in (("near", near), ("far", far)):
        found = restore(store, tmp_path / f"back-{name}", RUN).checkpoint
        assert found.name.step == KILLS
        assert read_folder(tmp_path / f"back-{name}") == saved[KILLS]


def _run_and_kill(near: Store, far: Store, after_s: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(near), str(far)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    try:
        child.wait(after_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
