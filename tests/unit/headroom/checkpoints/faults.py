"""Checkpoints on a machine that dies, with files that are damaged: what must hold, whatever comes.

- What is restored is, byte for byte, what was saved at its step.
- It is the newest checkpoint that a reader of its own finds whole.
- Nothing that the library does, or begins and does not end, takes the newest whole one away.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from headroom.checkpoints import (
    Check,
    Keep,
    NoCheckpoint,
    NotWhole,
    arrive,
    collect,
    finish,
    next_to_ship,
    restore,
    save,
    ship,
    stage,
)
from headroom.checkpoints.store import chunk_path
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
from tests.unit.headroom.checkpoints.reader import Files, whole

#: After how many operations the machine dies; None: not at all.
_DEATHS = st.none() | st.integers(0, 60)
_SIDES = st.sampled_from(["near", "far"])
_SEEDS = st.integers(0, 2**32 - 1)


def faults_survived(examples: int, steps: int) -> int:
    """Play so many lives of so many steps; return how many faults they had, if none did harm."""
    Machine.faults = 0
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Machine.faults


class Machine(RuleBasedStateMachine):
    """Two stores, a run that trains, and everything that may happen to them."""

    faults = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="headroom-faults-"))
        self.disk = DyingDisk(random.Random(1))
        self.stores = {name: make_store(self.folder / name, self.disk) for name in ("near", "far")}
        self.clock = SetClock()
        self.saved: dict[int, Files] = {}
        self.now: Files = {"model.pt": random.Random(2).randbytes(12_000), "small/rng": b"7"}
        self.step = 0
        for seed in (1, 2):
            self.saves(seed, None)
            self.ships(None, Check.SENT, False)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(seed=_SEEDS, death=_DEATHS)
    def saves(self, seed: int, death: int | None) -> None:
        folder = self._trained(seed)
        with self._dying(death):
            save(folder, self.stores["near"], about(self.step), threads=1, clock=self.clock)

    @rule(seed=_SEEDS, death=_DEATHS, is_moved=st.booleans())
    def stages(self, seed: int, death: int | None, is_moved: bool) -> None:
        folder = self._trained(seed)
        with self._dying(death):
            near = self.stores["near"]
            stage(folder, near, about(self.step), move=is_moved, clock=self.clock)

    @rule(death=_DEATHS)
    def finishes(self, death: int | None) -> None:
        with self._dying(death):
            list(finish(self.stores["near"], threads=1, clock=self.clock))

    @rule(death=_DEATHS, check=st.sampled_from(Check), is_back=st.booleans())
    def ships(self, death: int | None, check: Check, is_back: bool) -> None:
        source, target = self.stores["near"], self.stores["far"]
        if is_back:
            source, target = target, source
        found = next_to_ship(source.readable(), target.names())
        if found is None:
            return
        with self._dying(death), suppress(NotWhole):
            ship(found, source, target, check=check, threads=1, clock=self.clock)

    @rule(death=_DEATHS, side=_SIDES)
    def arrives(self, death: int | None, side: str) -> None:
        with self._dying(death):
            arrive(self.stores[side], threads=1)

    @rule(death=_DEATHS, side=_SIDES, newest=st.integers(1, 3))
    def collects(self, death: int | None, side: str, newest: int) -> None:
        with self._dying(death):
            collect(self.stores[side], Keep(newest=newest), threads=1, clock=self.clock)

    @rule(seed=_SEEDS, side=_SIDES, kind=st.sampled_from(["flip", "truncate", "lose"]))
    def damages(self, seed: int, side: str, kind: str) -> None:
        chance = random.Random(seed)
        # What is staged is as the loop wrote it: nothing says yet what it was.
        files = [
            path
            for path in sorted((self.folder / side).rglob("*"))
            if path.is_file() and not (kind == "flip" and "files" in path.parts)
        ]
        if not files:
            return
        # Half of all are in what the newest checkpoint needs.
        needed = {chunk_path(each) for each in self._newest_chunks(side)}
        chosen = [
            path for path in files if path.relative_to(self.folder / side).as_posix() in needed
        ]
        _DAMAGES[kind](chance.choice(chance.choice([chosen, files]) or files), chance)
        Machine.faults += 1

    @rule(side=_SIDES)
    def restores(self, side: str) -> None:
        good = whole(self.folder / side, RUN)
        target = self.folder / "restored"
        shutil.rmtree(target, ignore_errors=True)
        try:
            found = restore(self.stores[side], target, RUN, threads=2)
        except NoCheckpoint:
            assert not good
            return
        name = found.checkpoint.name
        assert str(name).partition("/")[2] == max(good)
        assert read_folder(target) == self.saved[name.step]
        newer = [each for each in self.stores[side].names(RUN) if each > name]
        assert sorted(each.name for each in found.passed_over) == newer

    def _newest_chunks(self, side: str) -> set[str]:
        found = self.stores[side].readable(RUN)
        return set(found[-1].manifest.chunks()) if found else set()

    def _trained(self, seed: int) -> Path:
        """Go on by a step, in which a part of the state changes; return a folder with it."""
        chance = random.Random(seed)
        data = bytearray(self.now["model.pt"])
        start = chance.randrange(len(data))
        sizes = [3000, 6000] if len(data) < 9000 else [0, 100, 3000, 3001]
        data[start : start + 3000] = chance.randbytes(chance.choice(sizes))
        self.step += 1
        self.now = {"model.pt": bytes(data), "small/rng": str(self.step).encode()}
        self.saved[self.step] = self.now
        folder = self.folder / "training"
        shutil.rmtree(folder, ignore_errors=True)
        return make_folder(folder, self.now)

    @contextmanager
    def _dying(self, death: int | None) -> Iterator[None]:
        """Run what may die, and judge what is there afterwards."""
        before = {side: whole(self.folder / side, RUN) for side in self.stores}
        self.disk.die_after(death)
        try:
            yield
        except Died:
            Machine.faults += 1
        self.disk.die_after(None)
        for side in self.stores:
            self._judge(before[side], whole(self.folder / side, RUN))

    def _judge(self, before: dict[str, Files], after: dict[str, Files]) -> None:
        for name, files in after.items():
            assert files == self.saved[int(name.split("-")[1])]
        if before:
            assert after
            assert max(after) >= max(before)


def _flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def _truncate(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) + 1)])


def _lose(path: Path, _chance: random.Random) -> None:
    path.unlink()


_DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flip": _flip,
    "truncate": _truncate,
    "lose": _lose,
}
