"""A loop that obeys what its job is told, on one rank and on several."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headroom import training
from headroom.training import Alone, Batch, Leave, Section, Session
from headroom.training.reports import RankReport
from headroom.work.folder import Directives
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.training.ranks import Exchange, Machine, RankGroup, run_all


@pytest.fixture(autouse=True)
def ends_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end this process, as that of a loop: a worker of the suite catches it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def alone(machine: Machine, **given: Any) -> Session:
    # So slow that ranks look at every step.
    given.setdefault("clock", _slow())
    return Session(mailbox=machine.mailbox(), group=Alone(), **given)


def _slow() -> Any:
    seconds = iter(range(10**9))
    return lambda: float(next(seconds))


def make_steps(run: Session, count: int) -> None:
    for _ in range(count):
        run.step(loss=1.0, samples=4)


def until_it_leaves(run: Session) -> Leave:
    """Have a loop be asked to leave, and return how it did."""
    with pytest.raises(Leave) as left, run:
        leave(run)
    return left.value


def leave(run: Session) -> None:
    make_steps(run, 3)
    os.kill(os.getpid(), signal.SIGTERM)
    make_steps(run, 10)


# --- Without anybody ------------------------------------------------------------------------------


def test_without_an_agent_a_loop_runs_as_if_it_were_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with training.session(environment={}, save=lambda step: pytest.fail("saved")) as run:
        assert signal.getsignal(signal.SIGTERM) is before
        make_steps(run, 100)
        assert (run.step_number, run.batch_scale, run.power_cap_w) == (100, 1.0, None)


def test_a_report_that_nobody_takes_and_a_status_that_cannot_be_written_stop_no_loop(
    tmp_path: Path,
) -> None:
    gone = {
        "HEADROOM_DIRECTIVES": str(tmp_path / "gone/directives"),
        "HEADROOM_STATUS": str(tmp_path / "gone/status"),
        "HEADROOM_REPORTS": str(tmp_path / "gone/reports"),
    }
    with training.session(environment=gone, save=lambda step: None) as run:
        make_steps(run, 10)
        run.save()
    assert run.step_number == 10


def test_it_needs_nothing_but_headroom() -> None:
    """Neither PyTorch nor what the agent needs is imported."""
    script = (
        "import sys; from headroom import training\n"
        "with training.session() as run: run.step(loss=1.0)\n"
        "print([n for n in ('torch', 'numpy', 'psutil', 'urllib3') if n in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.stdout.strip() == "[]", told.stderr


def test_with_other_ranks_and_no_group_it_hears_nothing_rather_than_act_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    machine.tell(Directives(seq=1, checkpoint=1))
    with training.session(
        environment=machine.environment, save=lambda _: pytest.fail("saved")
    ) as run:
        make_steps(run, 10)
    assert "init_process_group" in caplog.text


# --- One rank -------------------------------------------------------------------------------------


def test_it_says_at_once_that_it_hears(machine: Machine) -> None:
    with alone(machine):
        assert machine.said().hears
        assert machine.said().done == 0


def test_a_checkpoint_is_saved_once_and_said_with_its_step(machine: Machine) -> None:
    saved: list[int] = []
    with alone(machine, save=saved.append, step=40) as run:
        make_steps(run, 2)
        machine.tell(Directives(seq=3, checkpoint=3))
        make_steps(run, 5)
    assert saved == [44]
    said = machine.said()
    assert (said.done, said.step) == (3, 44)
    assert said.checkpoint_at is not None


def test_a_loop_that_saves_by_itself_is_asked_and_nothing_is_said_before_it_has(
    machine: Machine,
) -> None:
    with alone(machine) as run:
        machine.tell(Directives(seq=1, checkpoint=1))
        make_steps(run, 3)
        assert run.checkpoint_due
        assert machine.said().done == 0
        run.saved()
        assert not run.checkpoint_due
        assert machine.said().done == 1


def test_a_scale_of_the_batch_holds_from_the_step_on_and_is_taken_back(machine: Machine) -> None:
    seen = []
    changed: list[float] = []
    batch = Batch(8)
    with alone(machine, batch=batch, on_change=lambda run: changed.append(run.batch_scale)) as run:
        for number in range(9):
            if number == 2:
                machine.tell(Directives(seq=1, batch_scale=0.5))
            if number == 5:
                machine.tell(Directives(seq=2, batch_scale=1.0))
            seen.append(len(run.parts))
            run.step()
    assert seen == [1, 1, 1, 1, 2, 2, 2, 1, 1]
    assert changed == [0.5, 1.0]
    assert machine.said().done == 2


def test_a_power_cap_is_told_to_the_loop(machine: Machine) -> None:
    told: list[float | None] = []
    with alone(machine, on_change=lambda run: told.append(run.power_cap_w)) as run:
        machine.tell(Directives(seq=1, power_cap_w=450.0))
        make_steps(run, 3)
        machine.tell(Directives(seq=2))
        make_steps(run, 3)
    assert told == [450.0, None]


def test_a_pause_frees_says_so_waits_and_restores(machine: Machine) -> None:
    order: list[str] = []

    def wait(_seconds: float) -> None:
        order.append(f"done {machine.said().done}")
        machine.tell(Directives(seq=5))

    run = alone(
        machine, wait=wait, free=lambda: order.append("free"), restore=lambda: order.append("back")
    )
    with run:
        machine.tell(Directives(seq=4, paused=4))
        make_steps(run, 4)
        assert order == ["free", "done 4", "back"]
        assert machine.said().done == 5
        assert run.counts.sections[Section.PAUSE] > 0
        assert run.step_number == 4


def test_a_pause_after_a_pause_is_another_one(machine: Machine) -> None:
    """It may be told so soon that the loop never saw that the first was over."""
    waits: list[int] = []

    def wait(_seconds: float) -> None:
        waits.append(machine.said().done)
        machine.tell(Directives(seq=3, paused=3) if len(waits) == 1 else Directives(seq=4))

    with alone(machine, wait=wait) as run:
        machine.tell(Directives(seq=1, paused=1))
        make_steps(run, 3)
    assert waits == [1, 3]
    assert machine.said().done == 4


def test_sigterm_has_it_save_and_leave_with_the_status_of_what_was_ended(
    machine: Machine,
) -> None:
    saved: list[int] = []
    run = alone(machine, save=saved.append)
    assert until_it_leaves(run).code == 143
    assert saved == [run.step_number]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_was_just_saved_is_not_saved_again_to_leave(machine: Machine) -> None:
    saved: list[int] = []

    def save(step: int) -> None:
        saved.append(step)
        # Another is asked for as soon as one was written.
        if step < 4:
            machine.tell(Directives(seq=step, checkpoint=step))

    run = alone(machine, save=save)
    machine.tell(Directives(seq=1, checkpoint=1))
    until_it_leaves(run)
    assert len(saved) == len(set(saved))
    assert saved[-1] == run.step_number


def test_a_loop_that_ends_by_itself_is_told_to_and_hears_nothing_more(machine: Machine) -> None:
    left: list[int] = []
    saved: list[int] = []
    run = alone(machine, save=saved.append, on_leave=lambda: left.append(saved[-1]))
    with run:
        os.kill(os.getpid(), signal.SIGTERM)
        make_steps(run, 10)
    assert run.is_leaving
    assert (left, saved) == ([2], [2])


def test_a_handler_of_the_loop_itself_is_left_in_place(machine: Machine) -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        with alone(machine):
            assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_quick_steps_look_seldom_and_slow_ones_each_time(machine: Machine) -> None:
    class Counting(Alone):
        taken = 0

        def take(self) -> Any:
            self.taken += 1
            return super().take()

    for step_s, steps, expected in ((0.01, 10_000, 100), (2.0, 100, 100)):
        clock, group = Clock(), Counting()
        with Session(mailbox=machine.mailbox(), group=group, clock=clock) as run:
            for _ in range(steps):
                clock.now += step_s
                run.step()
        assert group.taken == pytest.approx(expected, rel=0.05)


def test_data_that_is_waited_for_is_counted(machine: Machine) -> None:
    clock = Clock()

    def slow() -> Any:
        for number in range(3):
            clock.now += 0.25
            yield number

    with Session(mailbox=None, group=None, clock=clock) as run:
        assert list(run.batches(slow())) == [0, 1, 2]
    assert run.counts.sections[Section.DATA_LOADING] == pytest.approx(0.75)


def test_calls_of_a_wrapped_function_are_a_section(machine: Machine) -> None:
    clock = Clock()

    def forward(rows: int) -> int:
        clock.now += 2.0
        return rows + 1

    with Session(mailbox=None, group=None, clock=clock) as run:
        assert run.wrap(forward, "forward")(rows=3) == 4
    assert run.counts.sections == {"forward": 2.0}


# --- Several ranks --------------------------------------------------------------------------------


class Job:
    """Ranks of a job on two machines, and what each of them did, by step."""

    def __init__(self, folder: Path, world: int = 4) -> None:
        self.machines = [Machine(folder / "a"), Machine(folder / "b")]
        self.world = world
        self.did: list[list[tuple[int, str]]] = [[] for _ in range(world)]
        self.exchange = Exchange(world)
        self.tell_at: dict[tuple[int, int], Directives] = {}
        #: of the directive with which the loops end
        self.until = 0

    def tell(self, machine: int, step: int, directives: Directives) -> None:
        """Have a machine be told when its first rank is at ``step``."""
        self.tell_at[machine, step] = directives

    def loop(self, rank: int, steps: int, wait: Any = None) -> None:
        machine = rank * 2 // self.world
        is_first = rank * 2 % self.world == 0
        did = self.did[rank]
        run = Session(
            mailbox=self.machines[machine].mailbox(),
            group=RankGroup(rank, self.exchange, is_first_here=is_first),
            save=lambda step: did.append((step, "save")),
            batch=Batch(8),
            on_change=lambda run: did.append((run.step_number, f"scale {run.batch_scale:g}")),
            free=lambda: did.append((run.step_number, "pause")),
            restore=lambda: did.append((run.step_number, "resume")),
            clock=_slow(),
            wait=wait or time.sleep,
        )
        with run:
            for _ in range(steps):
                if self.until and run._told.seq == self.until:
                    break
                told = self.tell_at.get((machine, run.step_number))
                if told is not None and is_first:
                    self.machines[machine].tell(told)
                run.step()

    def run(self, steps: int, wait: Any = None) -> list[BaseException | None]:
        return run_all([partial(self.loop, rank, steps, wait) for rank in range(self.world)])


def test_all_ranks_act_at_the_same_step_though_machines_hear_at_different_ones(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    job.tell(0, 3, Directives(seq=2, batch_scale=0.5, checkpoint=2))
    job.tell(1, 9, Directives(seq=2, batch_scale=0.5, checkpoint=2))
    assert job.run(20) == [None] * 4
    assert job.did[0]
    assert all(did == job.did[0] for did in job.did)
    steps = {machine.said().step for machine in job.machines}
    assert len(steps) == 1
    assert [machine.said().done for machine in job.machines] == [2, 2]


def test_all_ranks_pause_and_go_on_though_one_machine_is_told_later(tmp_path: Path) -> None:
    job = Job(tmp_path)
    paused = Directives(seq=1, paused=1)
    job.tell(0, 2, paused)
    job.tell(1, 2, paused)
    waits = threading.Semaphore(0)

    def wait(_seconds: float) -> None:
        waits.release()
        threading.Event().wait(0.01)

    def resume() -> None:
        for _ in range(20):
            waits.acquire()
        job.machines[1].tell(Directives(seq=2))
        for _ in range(20):
            waits.acquire()
        job.machines[0].tell(Directives(seq=2))

    resuming = threading.Thread(target=resume)
    resuming.start()
    assert job.run(10, wait) == [None] * 4
    resuming.join()
    assert [what for _, what in job.did[0]] == ["pause", "resume"]
    assert all(did == job.did[0] for did in job.did)


def test_a_rank_that_is_asked_to_leave_has_all_of_them_save_and_leave_at_one_step(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    runs: list[Session] = []

    def loop(rank: int) -> None:
        group = RankGroup(rank, job.exchange, is_first_here=rank == 0)
        saved = job.did[rank]
        run = Session(
            mailbox=job.machines[0].mailbox(),
            group=group,
            save=lambda step: saved.append((step, "save")),
            clock=_slow(),
        )
        runs.append(run)
        with run:
            while True:
                if rank == 3 and run.step_number == 5:
                    run._asked_to_leave = True
                run.step()

    ends = run_all([partial(loop, rank) for rank in range(4)])
    assert [type(end) for end in ends] == [Leave] * 4
    assert all(did == job.did[0] and len(did) == 1 for did in job.did)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_told_when_no_rank_goes_alone(tmp_path: Path, seed: int) -> None:
    """Each machine's agent tells the same in the same order, at moments of its own."""
    draw = random.Random(seed)
    job = Job(tmp_path)
    told = list(_drawn(draw, 12))
    job.until = told[-1].seq
    delays = [[draw.choice([0.0, 0.001, 0.01]) for _ in told] for _ in job.machines]

    def deliver(machine: Machine, waits: list[float]) -> None:
        for directives, wait_s in zip(told, waits, strict=True):
            machine.tell(directives)
            threading.Event().wait(wait_s)

    agents = [
        threading.Thread(target=deliver, args=each)
        for each in zip(job.machines, delays, strict=True)
    ]
    for each in agents:
        each.start()
    assert job.run(10**6, lambda _: threading.Event().wait(0.001)) == [None] * 4
    for each in agents:
        each.join()
    assert all(did == job.did[0] for did in job.did)
    assert [machine.said().done for machine in job.machines] == [told[-1].seq] * 2


def _drawn(draw: random.Random, count: int) -> Iterator[Directives]:
    """Yield what holds after each of ``count`` directives; in the end nothing is paused."""
    held = Directives()
    for seq in range(1, count + 1):
        kind = draw.choice(["scale", "save", "pause", "resume"])
        held = msgspec.structs.replace(held, seq=seq)
        if kind == "scale":
            held.batch_scale = draw.choice([0.25, 0.5, 1.0])
        elif kind == "save":
            held.checkpoint = seq
        else:
            held.paused = seq if kind == "pause" else 0
        yield held
    yield msgspec.structs.replace(held, seq=count + 1, paused=0)


# --- What it reports ------------------------------------------------------------------------------


class Kept:
    """An outlet that keeps what it is given."""

    def __init__(self) -> None:
        self.dropped = 0
        self.reports: list[RankReport] = []

    def send(self, report: RankReport) -> bool:
        self.reports.append(report)
        return True

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("told", "reported"),
    [(0.0, 0.0), (4e18, 4e18), (-1.0, 0.0), (float("nan"), 0.0), (float("inf"), 0.0)],
)
def test_flops_of_a_step_are_reported_where_they_can_be(told: float, reported: float) -> None:
    outlet = Kept()
    with Session(mailbox=None, group=None, sender=outlet, flops_per_step=told) as run:
        run.step()
    assert [each.flops_per_step for each in outlet.reports] == [reported, reported]


def test_a_loop_may_change_the_flops_of_its_steps() -> None:
    outlet = Kept()
    with Session(mailbox=None, group=None, sender=outlet, flops_per_step=1e15) as run:
        run.flops_per_step = 2e15
        run.step()
    assert outlet.reports[-1].flops_per_step == 2e15
