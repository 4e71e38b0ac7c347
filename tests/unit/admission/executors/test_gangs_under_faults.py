"""Machines, the node queue and the network between them in any order, anything lost or killed.

The machines run the real runner over real folders; only their shims are stand-ins, so that a
test decides when one comes up, ends, or is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admission.executors.models import Gang, NodeAssignment
from headroom.work.contract import Task
from headroom.work.folder import Folder
from headroom.work.launch import Launcher
from headroom.work.runner import Runner, RunnerSettings
from tests.unit.admission.executors.pure_node_queue import GATHER_S, Line, PureNodeQueue

NODES = ("n1", "n2", "n3")
#: Quicker than a disk, where there is one.
_SHM = Path("/dev/shm")


class Shims(Launcher):
    """Stand-ins for the shims of one machine. They survive its runner."""

    def __init__(self) -> None:
        super().__init__(cgroups=None, log_bytes=1000)
        self.coming: list[tuple[str, Folder]] = []
        #: by folder, the lock and the FIFO of each
        self.running: dict[Path, tuple[int, int]] = {}
        #: how often each attempt's command was started
        self.spawned: dict[str, int] = {}
        #: those of this runner's life: a new one does not know them
        self.mine: set[Path] = set()

    def launch(self, attempt: str, task: Task, folder: Folder, until: float | None = None) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        self.coming.append((attempt, folder))
        self.mine.add(folder.path)

    def is_starting(self, folder: Folder) -> bool:
        return folder.path in self.mine and any(f.path == folder.path for _, f in self.coming)

    def dismiss(self, folder: Folder) -> None:
        pass

    def kill_leftovers(self, folder: Folder) -> int:
        return 0

    def come_up(self) -> None:
        """Do what a shim does when it gets to run: lock, mark, start."""
        attempt, folder = self.coming.pop(0)
        lock = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder.path / "started").touch(exist_ok=False)
        except (BlockingIOError, FileExistsError):
            os.close(lock)
            return
        os.mkfifo(folder.path / "control")
        control = os.open(folder.path / "control", os.O_RDWR | os.O_NONBLOCK)
        self.running[folder.path] = lock, control
        self.spawned[attempt] = self.spawned.get(attempt, 0) + 1

    def end(self, exit_code: int, *, stopped: bool = False) -> None:
        self._end(next(iter(self.running)), exit_code, stopped=stopped)

    def _end(self, path: Path, exit_code: int, *, stopped: bool) -> None:
        end: dict[str, Any] = {
            "exit_code": exit_code, "stopped": stopped, "timed_out": False, "ended_at": 1e6,
        }  # fmt: skip
        (path / "exit.json").write_text(json.dumps(end))
        self._let_go(path)

    def obey(self) -> None:
        """Do what those that run were told through their FIFOs."""
        for path, (_, control) in list(self.running.items()):
            with suppress(BlockingIOError):
                if b"stop" in os.read(control, 4096):
                    self._end(path, 143, stopped=True)

    def kill_one(self) -> None:
        self._let_go(next(iter(self.running)))

    def close(self) -> None:
        for path in list(self.running):
            self._let_go(path)

    def _let_go(self, path: Path) -> None:
        for fd in self.running.pop(path):
            os.close(fd)


class Machine:
    """One node: its disk, its line to the server, and its runner while it has one."""

    def __init__(self, folder: Path, node_queue: PureNodeQueue, node: str) -> None:
        self.line = Line(node_queue, node)
        self.shims = Shims()
        self._folder = folder
        self.runner = self._start()

    def _start(self) -> Runner:
        self.shims.mine.clear()
        node = self.line.node
        settings_ = RunnerSettings(node=node, folder=self._folder / node, limits=False)
        return Runner(settings_, self.line, launcher=self.shims, draw=lambda: 0.5)

    def restart(self) -> None:
        """Kill the runner, whatever it was about to do, and start another."""
        self.runner.close()
        self.runner = self._start()

    def settle(self) -> None:
        self.line.mood = "ok"
        self.runner.round()
        while self.shims.coming:
            self.shims.come_up()
        self.shims.obey()

    def close(self) -> None:
        self.runner.close()
        self.shims.close()


class Faults(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        parent = str(_SHM) if _SHM.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="gangs-", dir=parent))
        self.node_queue = PureNodeQueue()
        self.machines = {n: Machine(self.folder, self.node_queue, n) for n in NODES}
        self.count = 0

    @rule(size=st.integers(1, len(NODES)))
    def release(self, size: int) -> None:
        self.count += 1
        self.node_queue.release(f"job{self.count}/train/1", NODES[:size])

    @rule(
        node=st.sampled_from(NODES),
        mood=st.sampled_from(["ok", "ok", "ok", "request lost", "answer lost", "stale"]),
    )
    def go_round(self, node: str, mood: str) -> None:
        self.machines[node].line.mood = mood
        self.machines[node].runner.round()

    @rule()
    def all_go_well_for_a_while(self) -> None:
        for _ in range(3):
            for machine in self.machines.values():
                machine.settle()

    @rule(node=st.sampled_from(NODES))
    def kill_the_runner(self, node: str) -> None:
        self.machines[node].restart()

    @rule(node=st.sampled_from(NODES))
    def a_shim_comes_up(self, node: str) -> None:
        if self.machines[node].shims.coming:
            self.machines[node].shims.come_up()

    @rule(node=st.sampled_from(NODES), code=st.sampled_from([0, 0, 1]))
    def a_command_ends(self, node: str, code: int) -> None:
        if self.machines[node].shims.running:
            self.machines[node].shims.end(code)

    @rule(node=st.sampled_from(NODES))
    def a_shim_is_killed(self, node: str) -> None:
        if self.machines[node].shims.running:
            self.machines[node].shims.kill_one()

    @rule(after_s=st.sampled_from([1.0, GATHER_S + 1.0]))
    def time_passes(self, after_s: float) -> None:
        self.node_queue.now += after_s
        for key in self.node_queue.gangs:
            self.node_queue.settle(key)

    @precondition(lambda self: self.count)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.node_queue.stop(data.draw(st.sampled_from(sorted(self.node_queue.gangs))))

    @precondition(lambda self: self.count)
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def a_lease_ends(self, data: st.DataObject, node: str) -> None:
        self.node_queue.give_up(data.draw(st.sampled_from(sorted(self.node_queue.gangs))), node)

    @invariant()
    def nothing_is_started_twice(self) -> None:
        if hasattr(self, "machines"):
            for machine in self.machines.values():
                assert all(count == 1 for count in machine.shims.spawned.values())

    @invariant()
    def nothing_is_started_before_all_have_claimed_it(self) -> None:
        if hasattr(self, "machines"):
            for machine in self.machines.values():
                for attempt in machine.shims.spawned:
                    assert self.node_queue.gangs[attempt].go_at is not None

    def teardown(self) -> None:
        if not hasattr(self, "machines"):
            return
        try:
            self._calm_down()
            self._check_whole()
            for key in self.node_queue.gangs:
                self.node_queue.stop(key)
            self._calm_down()
            self._check_nothing_is_left()
        finally:
            for machine in self.machines.values():
                machine.close()
            with suppress(OSError):
                shutil.rmtree(self.folder)

    def _calm_down(self) -> None:
        """Let everything that is still to come, come: no more faults."""
        for _ in range(8):
            for machine in self.machines.values():
                machine.settle()

    def _check_whole(self) -> None:
        """Each gang that went was started whole, or is being ended; and none hangs."""
        for key, gang in self.node_queue.gangs.items():
            orders = self.node_queue.assignments[key]
            started = [key in self.machines[o.node].shims.spawned for o in orders]
            assert gang.state != Gang.State.OFFERED, key
            if gang.go_at is None:
                assert not any(started), key
            elif gang.state == Gang.State.GO:
                assert all(started), key
                assert all(o.state != NodeAssignment.State.CLAIMED for o in orders), key
                running = sum(o.state == NodeAssignment.State.RUNNING for o in orders)
                assert running, key
        of_orders = sum(
            o.state == "running" for all_ in self.node_queue.assignments.values() for o in all_
        )
        assert of_orders <= sum(len(m.shims.running) for m in self.machines.values())

    def _check_nothing_is_left(self) -> None:
        """All is over, on both sides, and nothing runs on that nobody asks for."""
        assert {gang.state for gang in self.node_queue.gangs.values()} <= {Gang.State.ENDED}
        for machine in self.machines.values():
            assert not machine.shims.running
            assert machine.runner.held() == []


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
