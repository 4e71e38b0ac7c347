"""The matrix of a command: it runs without faults first, then under each scenario, twice each.

Nothing of it outlives the run: what is changed on the machine has a lease, and a guardian undoes
all of it if this process dies (:mod:`lab.matrix.leases`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from headroom import __version__
from headroom.errors import HeadroomError
from lab.matrix import judging, leases
from lab.matrix.guardian import Guardian
from lab.matrix.injecting import Normal, needs_checkpoint, needs_room, why_not
from lab.matrix.leases import Journal
from lab.matrix.machine import Machine
from lab.matrix.pace import noise_of
from lab.matrix.playing import BySteps, Run, Subject, play
from lab.matrix.reading import load
from lab.matrix.result import Cell, MatrixResult, SubjectKind, Verdict, make_result
from lab.matrix.scenario import Expectation, Fault, Runner, Scenario
from lab.matrix.surroundings import CHECKPOINTS, Surroundings

__all__ = [
    "NORMAL",
    "Plan",
    "check_own",
    "exit_code",
    "holding",
    "run_matrix",
    "standard",
    "ways",
]

#: The scenario without faults, which all others are compared with.
NORMAL = "normal"
_STANDARD = Path(__file__).with_name("standard")
_UNDO_S = 60.0
#: Under a fault a command may take so many times as long as without, and so long at least.
_PATIENCE = 10.0
_LEAST_PATIENCE_S = 60.0
_PASSED, _FAILED, _UNKNOWN = 0, 1, 3
_NO_CHECKPOINT = "the command writes no checkpoint, so there is nothing that it could resume from"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The plan of a matrix: its scenarios, and how runs are judged."""

    #: of the standard matrix: times are in hundredths of the run without faults
    standard: Sequence[Scenario] = ()
    #: others, with their times as they are
    own: Mapping[Path, Scenario] = field(default_factory=dict)
    repeat: int = 2
    #: how far losses may be apart that are to be equal
    tolerance: float = 0.0
    timeout_s: float = 3_600.0
    #: how much of the throughput that faults leave may be missing; None: as scenarios say
    margin: float | None = None
    #: keep checkpoints and storage of each run
    keeps: bool = False


def standard() -> list[Scenario]:
    """Return the standard matrix of a command, ``normal`` first."""
    found = [load(path) for path in sorted(_STANDARD.glob("*.yaml"))]
    return sorted(found, key=lambda scenario: scenario.name != NORMAL)


@contextlib.contextmanager
def holding(parent: Path | None = None) -> Iterator[Journal]:
    """Undo the leases of dead runs; then hold a journal, watched by a guardian, for one run."""
    leases.undo_all(leases.abandoned(parent))
    journal = Journal.create(parent)
    guardian = Guardian(journal)
    try:
        yield journal
    finally:
        try:
            for _ in journal.undo_all():
                pass
        finally:
            guardian.dismiss()
            journal.close()


def run_matrix(
    subject: Subject, plan: Plan, *, folder: Path, journal: Journal, progress: Progress
) -> MatrixResult:
    """Run the command under the scenarios of ``plan``. Files of the runs go to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    matrix = _Matrix(subject, plan, folder, journal, progress)
    cells = matrix.cells()
    return make_result(
        subject=shlex.join(subject.command),
        kind=SubjectKind.COMMAND,
        at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        cells=cells,
        machine=_facts() | ({"noise": matrix.noise} if matrix.noise else {}) | ways(matrix.machine),
        versions={"headroom": __version__, "python": platform.python_version()},
    )


class _Matrix:
    """A matrix in progress."""

    def __init__(
        self, subject: Subject, plan: Plan, folder: Path, journal: Journal, progress: Progress
    ) -> None:
        self._subject = subject
        self._plan = plan
        self._folder = folder
        self._journal = journal
        self._progress = progress
        self.machine = Machine(journal, folder)
        self._names = ["sync", "storage", *subject.reaches]
        faults = [fault for each in self._scenarios for fault in each.faults]
        # All runs have the same network, or their throughput could not be compared.
        self._has_room = needs_room(faults, self._names) and not self.machine.why_no_room
        self._own = {scenario.name: path for path, scenario in plan.own.items()}
        self._runs = 0
        #: cells that are judged, and those that there will be
        self._cells = 0
        self._whole = 1 + sum(each.name != NORMAL for each in self._scenarios)
        self._normal = next(each for each in standard() if each.name == NORMAL)
        #: runs without faults, the latest last
        self._unfaulted: list[Run] = []

    def cells(self) -> list[Cell]:
        runs = [self._play_normal(number) for number in self._numbers()]
        first = runs[0]
        if self._judges_pace() and len(runs) == 1 and not _fails(first):
            # One alone does not tell how much the machine varies.
            self._play_normal(2)
        again = self._again(self._normal)
        cell = self._judge(self._normal, runs, first, again)
        cells = [self._said(cell)]
        self._say_noise()
        stretch = first.length_s / self._normal.duration_s
        scenarios = [_stretched(each, stretch) for each in self._plan.standard]
        for scenario in (*scenarios, *self._plan.own.values()):
            if scenario.name != NORMAL:
                cells.append(self._said(self._cell(scenario, first, cell)))
        return cells

    @property
    def noise(self) -> str:
        """How much the machine varies, in words; "" where it was not looked for."""
        noise = noise_of(self._recent())
        return "" if noise is None else f"steps vary by {100 * noise:.3g} % without faults"

    def _say_noise(self) -> None:
        if self._judges_pace() and self.noise:
            self._progress(f"{NORMAL}: {self.noise}")

    def _judges_pace(self) -> bool:
        return any(judging.is_of_pace(what) for each in self._scenarios for what in each.expect)

    @property
    def _scenarios(self) -> tuple[Scenario, ...]:
        return (*self._plan.standard, *self._plan.own.values())

    def _numbers(self) -> range:
        return range(1, self._plan.repeat + 1)

    def _play_normal(self, number: int) -> Run:
        self._progress(f"{NORMAL}: run {number}")
        run = self._play(self._normal, Normal(), self._plan.timeout_s, number, None)
        self._unfaulted.append(run)
        return run

    def _recent(self) -> list[Run]:
        """Return the latest runs without faults, of which it takes two to tell how they vary."""
        return self._unfaulted[-max(2, self._plan.repeat) :]

    def _cell(self, scenario: Scenario, normal: Run, beside: Cell) -> Cell:
        why = self._why_not(scenario, normal, beside)
        again = self._again(scenario)
        if why:
            return judging.unjudged(scenario, why, Verdict.NOT_RUN, again=again)
        if any(map(needs_checkpoint, scenario.faults)) and not normal.normal.saves:
            return judging.unjudged(scenario, _NO_CHECKPOINT, Verdict.NOT_MEASURED, again=again)
        runs = [self._play_beside(scenario, normal, number) for number in self._numbers()]
        cell = self._judge(scenario, runs, normal, again)
        if not judging.falls_short(self._expecting(scenario), cell):
            return cell
        # Before the command is blamed for it: the machine may have become slower meanwhile.
        self._progress(f"{scenario.name}: too slow: once more, and without faults")
        runs.append(self._play_beside(scenario, normal, len(runs) + 1))
        self._play_normal(len(self._unfaulted) + 1)
        return self._judge(scenario, runs, normal, again)

    def _play_beside(self, scenario: Scenario, normal: Run, number: int) -> Run:
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE * normal.wall_s)
        timeout_s = min(self._plan.timeout_s, patience_s)
        self._progress(f"{scenario.name}: run {number}")
        return self._play(scenario, normal.normal, timeout_s, number, normal)

    def _judge(self, scenario: Scenario, runs: Sequence[Run], normal: Run, again: str) -> Cell:
        return judging.cell_of(
            self._expecting(scenario), runs, normal, again=again, unfaulted=self._recent()
        )

    def _why_not(self, scenario: Scenario, normal: Run, beside: Cell) -> str:
        if _fails(normal):
            return f"the command fails without faults already: {beside.why}"
        for fault in scenario.faults:
            why = why_not(fault, self.machine, self._names, normal.normal)
            if why:
                return f"{fault.kind}: {why}"
        return ""

    def _play(
        self,
        scenario: Scenario,
        normal: Normal,
        timeout_s: float,
        number: int,
        beside: Run | None,
    ) -> Run:
        self._runs += 1
        folder = self._folder / "runs" / f"{scenario.name}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        around = Surroundings(
            folder.absolute(),
            self._journal,
            mark=f"{self._journal.name}-{self._runs}",
            has_room=self._has_room,
            lasts_s=timeout_s + _UNDO_S,
            storage=self._subject.storage,
            reaches=self._subject.reaches,
        )
        try:
            return play(
                self._subject,
                scenario.faults,
                around,
                normal,
                timeout_s=timeout_s,
                clock=self._clock(scenario, beside),
                has_steps=beside is None or bool(beside.steps),
            )
        finally:
            around.close()
            if not self._plan.keeps:
                for name in (*CHECKPOINTS, "storage"):
                    shutil.rmtree(folder / name, ignore_errors=True)

    def _clock(self, scenario: Scenario, beside: Run | None) -> BySteps | None:
        """Return the clock of a run: of the standard matrix by steps, where any are told."""
        if beside is None or not beside.steps or scenario.name in self._own:
            return None
        numbers = [each.step.step for each in beside.steps]
        return BySteps(numbers[0], max(numbers), beside.length_s)

    def _expecting(self, scenario: Scenario) -> Scenario:
        """Return the scenario as it is judged here: differences are allowed up to the tolerance.

        Of runs of which there is one each, nobody expects that they are the same.
        """
        expect = tuple(
            _with_margin(_tolerant(each, self._plan.tolerance), self._plan.margin)
            for each in scenario.expect
            if self._plan.repeat > 1 or not _is_of_repeats(each)
        )
        return replace(scenario, expect=expect)

    def _again(self, scenario: Scenario) -> str:
        option = ["--only", scenario.name]
        if scenario.name in self._own:
            option = ["--scenario", str(self._own[scenario.name])]
        return shlex.join(["headroom", "matrix", "run", *option, "--", *self._subject.command])

    def _said(self, cell: Cell) -> Cell:
        why = f": {cell.why}" if cell.why else ""
        self._cells += 1
        at = f"{self._cells} of {self._whole}"
        self._progress(f"{cell.scenario}: {cell.verdict}{why} ({at})")
        return cell


def _fails(run: Run) -> bool:
    return any(run.exits) or run.timed_out


def _with_margin(expectation: Expectation, margin: float | None) -> Expectation:
    what = expectation.at_most
    if what is None or margin is None or not judging.is_of_pace(expectation):
        return expectation
    return replace(expectation, at_most=replace(what, value=margin))


def _is_of_repeats(expectation: Expectation) -> bool:
    return expectation.at_most is not None and expectation.at_most.measure in judging.OF_REPEATS


def _tolerant(expectation: Expectation, tolerance: float) -> Expectation:
    what = expectation.at_most
    if what is None or not what.measure.endswith("_difference"):
        return expectation
    return replace(expectation, at_most=replace(what, value=max(what.value, tolerance)))


def _stretched(scenario: Scenario, factor: float) -> Scenario:
    """Return a scenario of the standard matrix with its times as a command is long."""

    def time(text_s: float) -> str:
        return f"{text_s * factor:.3f}s"

    def stretched(fault: Fault) -> Fault:
        lasts = None if fault.lasts is None else time(fault.until_s - fault.at_s)
        return replace(fault, at=time(fault.at_s), lasts=lasts)

    return replace(
        scenario,
        warm_up=time(scenario.warm_up_s),
        duration=time(scenario.duration_s),
        faults=tuple(map(stretched, scenario.faults)),
    )


def exit_code(result: MatrixResult) -> int:
    """Return 0 if all that was run passed, 1 if something failed, 3 if it cannot be told.

    It cannot be told where no scenario with a fault was run, or not all of one could be measured.
    """
    if result.verdict in (Verdict.FAILED, Verdict.ERROR):
        return _FAILED
    if result.verdict == Verdict.NOT_MEASURED:
        return _UNKNOWN
    others = [cell for cell in result.cells if cell.scenario != NORMAL]
    ran = [cell for cell in others if cell.verdict != Verdict.NOT_RUN]
    if result.verdict == Verdict.NOT_RUN or (others and not ran):
        return _UNKNOWN
    return _PASSED


def ways(machine: Machine) -> dict[str, str]:
    """Return whether each way to act on a command works on this machine: "yes", or why not."""
    reasons = {
        "links between the command's processes": machine.why_no_room,
        "CPU quota by control group": machine.why_no_group,
        "slow disk": machine.why_no_disk,
        "power limit of GPUs": machine.why_no_power,
        "clock limit of GPUs": machine.why_no_clocks,
    }
    return {name: why or "yes" for name, why in reasons.items()}


def _facts() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
    }


def check_own(scenarios: Mapping[Path, Scenario]) -> None:
    """Raise HeadroomError where a scenario is not for commands, or has the name of another one."""
    names = {each.name for each in standard()}
    for path, scenario in scenarios.items():
        if Runner.COMMAND not in scenario.runs_on:
            raise HeadroomError(
                f"{path}: it runs on {', '.join(scenario.runs_on)}: add command to its runs_on if "
                "its faults can be done to a command"
            )
        if scenario.name in names:
            raise HeadroomError(f"{path}: the name {scenario.name} is taken: give it another one")
        names.add(scenario.name)
