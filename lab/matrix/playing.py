"""One run of a command under the faults of a scenario, and its record.

The clock of a run begins with its first step, so that faults meet training and not its imports.
Of a scenario of the standard matrix it goes by the steps: whatever else the machine has to do, the
same part of the work is under the fault.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headroom.training.reports import RankReport
from headroom.work.contract import SignalKind
from lab.matrix import checkpoints, processes, steps
from lab.matrix.channel import TOO_LATE, Line
from lab.matrix.checkpoints import Checkpoints, FirstOne
from lab.matrix.faults.acts import Act, DirectiveAct
from lab.matrix.faults.links import STORAGE
from lab.matrix.injecting import ENDS, Normal, make_act, needs_checkpoint
from lab.matrix.scenario import Fault, FaultKind
from lab.matrix.steps import Lines, Step
from lab.matrix.surroundings import Address, Started, Surroundings

__all__ = [
    "BySteps",
    "FaultSeen",
    "Life",
    "Reported",
    "Run",
    "StepSeen",
    "Subject",
    "play",
]

_LOOK_S = 0.01
#: How often CPU time and bytes of the disk are looked up.
_METER_S = 0.25
_GRACE_S = 2.0
#: What the command has started may end so long after it, s.
_OUTLIVES_S = 1.0
#: Before what failed is started again.
_PAUSE_S = 0.5
_LOG_BYTES = 8_000
#: So long a command that has to leave may take to save, and then to end, as jobs may.
_SAVE_S = 120.0
_LEAVE_S = 30.0
_NO_CHECKPOINT = "the command was over before it had written a checkpoint that it could resume from"
#: A clock by steps is at most so many times slower than one by time.
_SLOWEST = 5.0


@dataclass(frozen=True)
class Subject:
    """The command under test, and the addresses that it connects to."""

    command: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    storage: Address | None = None
    reaches: Mapping[str, Address] = field(default_factory=dict)
    #: how often it is started again after it failed by itself
    restarts: int = 0


@dataclass(frozen=True)
class BySteps:
    """A clock that goes by the steps made, as in a run of ``length_s`` from ``first`` to ``last``.

    Where steps do not come any more it goes on by time, slowly, or no fault would ever end.
    """

    first: int
    last: int
    length_s: float

    def now_s(self, step: int, passed_s: float) -> float:
        """Return the time of the clock, after ``passed_s`` seconds and at a step."""
        made = (step - self.first) / max(1, self.last - self.first)
        return max(made * self.length_s, passed_s / _SLOWEST)


@dataclass(frozen=True)
class StepSeen:
    """A step, when it was seen in seconds of the run, and at which start of the command."""

    step: Step
    at_s: float
    start: int


@dataclass(frozen=True)
class FaultSeen:
    """A fault, when it acted, and why it touched nothing; "" where it did.

    ``is_unseen``: that is due to the command, of which so nothing could be seen.
    """

    fault: Fault
    from_s: float
    to_s: float
    why_not: str = ""
    is_unseen: bool = False


@dataclass(frozen=True)
class Life:
    """One start of the command: when it began and ended, in seconds of the run."""

    from_s: float
    to_s: float


@dataclass(frozen=True)
class Reported:
    """What a rank reported of the time up to a moment, in seconds of the run."""

    at_s: float
    report: RankReport


@dataclass(frozen=True)
class Run:
    """The record of one run."""

    steps: list[StepSeen]
    faults: list[FaultSeen]
    #: exit codes of the starts that no fault ended
    exits: list[int]
    starts: int
    timed_out: bool
    #: from the first step to the end, and from the first start to the end
    length_s: float
    wall_s: float
    checkpoints: Checkpoints
    normal: Normal
    log: str
    #: what the command was told, and what came of it
    ledger: list[Line] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    #: where the time of its ranks went, as they say
    reports: list[Reported] = field(default_factory=list)
    #: what still ran when the command had ended by itself
    left_behind: list[str] = field(default_factory=list)


class _Meter:
    """A meter of the command's use of this machine while it makes steps."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._next_s = 0.0
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._disk: list[int] = []

    def look(self, now_s: float) -> None:
        if now_s < self._next_s:
            return
        self._next_s = now_s + _METER_S
        used_s = 0.0
        for pid in processes.members(self._around.mark):
            with contextlib.suppress(OSError):
                used_s += processes.cpu_s(pid)
        # Of what has ended the time is gone.
        if used_s >= self._last[1]:
            self._last = (now_s, used_s)
            self._first = self._first or self._last
        group = self._around.group
        if group is not None and group.disk is not None:
            self._disk.append(group.disk_bytes())

    def normal(self) -> Normal:
        links = self._around.links.values()
        used = {link.name: rate for link in links if (rate := link.busy_bits_per_s()) is not None}
        return Normal(
            cores=self._cores(),
            bits_per_s=used,
            bytes_moved={link.name: link.bytes for link in links},
            disk_bytes_per_s=self._disk_rate(),
            disk_bytes_moved=self._disk[-1] - self._disk[0] if self._disk else 0,
            hears=self._around.channel.is_heard,
            is_known=True,
        )

    def _cores(self) -> float | None:
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0]) or None

    def _disk_rate(self) -> float | None:
        moved = [b - a for a, b in zip(self._disk, self._disk[1:], strict=False) if b > a]
        return sum(moved) / (len(moved) * _METER_S) if moved else None


class _Faults:
    """The faults of a run: which act, which are over."""

    def __init__(self, faults: tuple[Fault, ...], around: Surroundings, normal: Normal) -> None:
        self._waiting = sorted(enumerate(faults), key=lambda each: each[1].at_s)
        #: those that were due and wait for a checkpoint
        self._held: set[int] = set()
        self._first_one = FirstOne(is_signed=normal.signs)
        self._around = around
        self._normal = normal
        self._acting: list[tuple[Fault, Act, float]] = []
        self.seen: list[FaultSeen] = []

    def follow(self, clock_s: float, now_s: float) -> Fault | None:
        """Begin and end the faults that are due by the clock; ``now_s`` is the time in the run.

        Return a fault that is to end the command now, or None.
        """
        for each in list(self._acting):
            if _is_over(*each[:2], clock_s):
                self._end(each, now_s)
        for number, fault in [each for each in self._waiting if each[1].at_s <= clock_s]:
            if needs_checkpoint(fault) and not self._has_saved():
                self._held.add(number)
                continue
            self._waiting.remove((number, fault))
            if fault.kind in ENDS:
                self.seen.append(FaultSeen(fault, now_s, now_s))
                return fault
            self._begin(number, fault, now_s)
        return None

    def _has_saved(self) -> bool:
        folders = [self._around.checkpoints, self._around.folder / STORAGE]
        return self._first_one.is_there(folders, time.monotonic())

    def _begin(self, number: int, fault: Fault, now_s: float) -> None:
        left_s = min(_SLOWEST * (fault.until_s - fault.at_s), self._around.lasts_s)
        act = None
        try:
            act = make_act(fault, number, self._around, self._normal, for_s=left_s)
            act.begin()
        except OSError as error:
            if act is not None:
                act.end()
            self.seen.append(FaultSeen(fault, now_s, now_s, f"the machine refuses: {error}"))
            return
        self._acting.append((fault, act, now_s))

    def _end(self, acting: tuple[Fault, Act, float], now_s: float) -> None:
        fault, act, from_s = acting
        self._acting.remove(acting)
        self.seen.append(FaultSeen(fault, from_s, now_s, act.end()))

    def take_back(self, fault: Fault) -> None:
        """Record of a fault that was to end the command that this had ended before it heard."""
        seen = next(each for each in self.seen if each.fault is fault)
        self.seen[self.seen.index(seen)] = replace(seen, why_not=TOO_LATE)

    def finish(self, now_s: float) -> None:
        """End the faults that act, and record of the rest that they never did."""
        for each in list(self._acting):
            self._end(each, now_s)
        for number, fault in self._waiting:
            is_held = number in self._held
            why = _NO_CHECKPOINT if is_held else "the command was over before it began"
            self.seen.append(FaultSeen(fault, fault.at_s, fault.at_s, why, is_unseen=is_held))
        self._waiting = []


def _is_over(fault: Fault, act: Act, clock_s: float) -> bool:
    if fault.kind == FaultKind.PAUSE and isinstance(act, DirectiveAct):
        # No steps are made in it, so a clock that goes by them says nothing of its end.
        return act.has_lasted(fault.until_s - fault.at_s)
    # What the command has not heard of yet is not taken back.
    has_begun = not isinstance(act, DirectiveAct) or act.has_lasted(0.0)
    return fault.until_s <= clock_s and has_begun


class _Playing:
    """A run in progress."""

    def __init__(
        self,
        subject: Subject,
        around: Surroundings,
        faults: _Faults,
        clock: BySteps | None,
        *,
        has_steps: bool,
    ) -> None:
        self._subject = subject
        self._around = around
        self._faults = faults
        self._clock = clock
        self._meter = _Meter(around)
        self._lines = [Lines(around.step_log), Lines(around.output)]
        self._began_s = time.monotonic()
        self._zero_s: float | None = None if has_steps else self._began_s
        self._steps: list[StepSeen] = []
        self._exits: list[int] = []
        self._starts = 0
        #: when each start began and ended, monotonic s
        self._lives: list[tuple[float, float]] = []
        self._reports: list[tuple[float, RankReport]] = []
        self._left_behind: list[str] = []
        self._timed_out = False

    def run(self, timeout_s: float) -> Run:
        deadline_s = self._began_s + timeout_s
        again = True
        while again:
            again = self._start_once(deadline_s)
        return self._seen()

    def _start_once(self, deadline_s: float) -> bool:
        """Run the command once. Return whether it is to be restarted."""
        started = self._around.start(self._subject.command)
        self._starts += 1
        began_s = time.monotonic()
        try:
            fault = self._follow(started, deadline_s)
            if fault is not None and fault.kind == FaultKind.MOVE and not self._left(started):
                self._faults.take_back(fault)
                fault = None
        finally:
            self._end(started)
            self._lives.append((began_s, time.monotonic()))
        self._take_steps()
        if fault is not None:
            return fault.resumes and self._wait_out(fault, deadline_s)
        if self._timed_out:
            return False
        code = started.process.returncode
        self._exits.append(code)
        failed = sum(each != 0 for each in self._exits)
        if code == 0 or failed > self._subject.restarts:
            return False
        time.sleep(_PAUSE_S)
        return True

    def _follow(self, started: Started, deadline_s: float) -> Fault | None:
        """Watch the command to its end. Return the fault that ended it, if one did."""
        while started.process.poll() is None:
            now_s = time.monotonic()
            self._take_steps()
            self._around.channel.look()
            if self._zero_s is not None:
                self._meter.look(now_s)
                passed_s = now_s - self._zero_s
                fault = self._faults.follow(self._clock_s(passed_s), passed_s)
                if fault is not None:
                    return fault
            if now_s > deadline_s:
                self._timed_out = True
                return None
            time.sleep(_LOOK_S)
        return None

    def _left(self, started: Started) -> bool:
        """Have the command save and leave, as a job is told to that goes on elsewhere.

        Return whether it still ran when it was told to leave.
        """
        channel = self._around.channel
        saved = channel.tell(SignalKind.CHECKPOINT)
        self._wait(started, lambda: saved.done_s is not None, _SAVE_S)
        if started.process.poll() is not None:
            return False
        left = channel.ask_to_end()
        processes.signal_all(self._around.mark, signal.SIGTERM)
        if self._wait(started, lambda: started.process.poll() is not None, _LEAVE_S):
            self._take_steps()
            left.is_done_at(self._steps[-1].step.step if self._steps else None)
        return True

    def _wait(self, started: Started, is_so: Callable[[], bool], limit_s: float) -> bool:
        """Watch the command until something is so; return whether it is, in time."""
        end_s = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > end_s or started.process.poll() is not None:
                return is_so()
            self._take_steps()
            self._around.channel.look()
            time.sleep(_LOOK_S)
        return True

    def _clock_s(self, passed_s: float) -> float:
        if self._clock is None:
            return passed_s
        made = max((each.step.step for each in self._steps), default=self._clock.first)
        return self._clock.now_s(made, passed_s)

    def _end(self, started: Started) -> None:
        """End all processes of this start."""
        if started.process.poll() is None:
            while processes.signal_all(self._around.mark, signal.SIGKILL):
                time.sleep(_LOOK_S)
            started.process.wait()
        else:
            self._left_behind += self._outliving()
            processes.end(self._around.mark, grace_s=_GRACE_S)
        started.close()

    def _outliving(self) -> list[str]:
        """Return the processes that do not end with the command, a moment after it."""
        end_s = time.monotonic() + _OUTLIVES_S
        while (left := processes.members(self._around.mark)) and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
        return [processes.said(pid) for pid in left]

    def _wait_out(self, fault: Fault, deadline_s: float) -> bool:
        """Wait until there is a place to go on. Return whether that is in time."""
        if fault.kind == FaultKind.MOVE:
            self._around.move()
        if fault.kind != FaultKind.NODE_LOSS:
            return True
        back_s = time.monotonic() + fault.until_s - fault.at_s
        time.sleep(max(0.0, min(back_s, deadline_s) - time.monotonic()))
        return back_s <= deadline_s

    def _take_steps(self) -> None:
        now_s = time.monotonic()
        for lines in self._lines:
            for line in lines.take():
                step = steps.read(line, self._subject.pattern)
                if step is not None:
                    if self._zero_s is None:
                        self._zero_s = now_s
                    self._steps.append(StepSeen(step, now_s - self._zero_s, self._starts - 1))
        self._reports += [(now_s, report) for report in self._around.ear.take()]

    def _seen(self) -> Run:
        now_s = time.monotonic()
        zero_s = now_s if self._zero_s is None else self._zero_s
        self._around.channel.close(zero_s)
        self._faults.finish(now_s - zero_s)
        found = self._checkpoints()
        return Run(
            steps=self._steps,
            faults=sorted(self._faults.seen, key=lambda each: each.from_s),
            exits=self._exits,
            starts=self._starts,
            timed_out=self._timed_out,
            length_s=now_s - zero_s,
            wall_s=now_s - self._began_s,
            checkpoints=found,
            normal=replace(self._meter.normal(), saves=bool(found.digests), signs=bool(found.told)),
            log=_tail(self._around.output),
            ledger=self._around.channel.lines,
            lives=[Life(begin_s - zero_s, end_s - zero_s) for begin_s, end_s in self._lives],
            reports=[Reported(at_s - zero_s, report) for at_s, report in self._reports],
            left_behind=self._left_behind,
        )

    def _checkpoints(self) -> Checkpoints:
        found = checkpoints.look(self._around.checkpoints)
        stored = self._around.folder / STORAGE
        # What is in storage of ours counts as well: it came over a link that had trouble.
        return found.and_(checkpoints.look(stored), STORAGE) if stored.is_dir() else found


def play(
    subject: Subject,
    faults: tuple[Fault, ...],
    around: Surroundings,
    normal: Normal,
    *,
    timeout_s: float,
    clock: BySteps | None = None,
    has_steps: bool = True,
) -> Run:
    """Run the command once under ``faults``, at their times by ``clock``, or in seconds.

    Of a command that tells no steps (``has_steps``) time counts from its start.
    """
    acting = _Faults(faults, around, normal)
    playing = _Playing(subject, around, acting, clock, has_steps=has_steps)
    try:
        return playing.run(timeout_s)
    finally:
        acting.finish(0.0)


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
