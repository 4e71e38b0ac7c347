"""Playing a matrix: each scenario with each seed, several times over, in processes.

Every run is one task of a pool. A cell is put together from its repeats and from the same run
without faults (the *baseline*), which scenarios of the same fleet, load and length share.
"""

from __future__ import annotations

import os
import platform
import shlex
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import msgspec

from headroom.errors import HeadroomError
from lab.matrix.result import Cell, MatrixResult, SubjectKind, make_result
from lab.matrix.scenario import Runner, Scenario
from lab.scenarios.cells import Broken, Outcome, cell_of, not_run
from lab.scenarios.faults import cannot_do
from lab.scenarios.play import play
from lab.scenarios.played import Played
from lab.scenarios.policies import load_policy

__all__ = ["NothingToRun", "Player", "Progress", "run_matrix"]

#: Told after each run: how many are done, how many there are, and what was just done.
Progress = Callable[[int, int, str], None]
#: Plays a scenario under the policy in a folder (None: the built-in one) with a seed.
Player = Callable[[Scenario, Path | None, int], Played]


class NothingToRun(HeadroomError, ValueError):
    """A matrix needs at least one scenario, one seed and one repeat."""


@dataclass(frozen=True)
class _Task:
    """One run. ``place`` numbers repeats from 0."""

    scenario: Scenario
    seed: int
    place: int

    @property
    def said(self) -> str:
        again = f", repeat {self.place + 1}" if self.place else ""
        return f"{self.scenario.name}, seed {self.seed}{again}"


def run_matrix(
    scenarios: Sequence[Scenario],
    *,
    policy: Path | None = None,
    seeds: Sequence[int] = (1, 2),
    repeats: int = 2,
    workers: int = 1,
    progress: Progress | None = None,
    player: Player = play,
) -> MatrixResult:
    """Play ``scenarios`` under a policy and return the result.

    With one worker all runs in this process. A run that breaks makes its cell an error, and the
    others go on. Raises :class:`NothingToRun`, and what loading the policy raises.
    """
    if not scenarios or not seeds or repeats < 1:
        raise NothingToRun
    subject = load_policy(policy).name
    tasks = list(dict.fromkeys(_tasks(scenarios, seeds, repeats)))
    outcomes = _played(tasks, partial(_run, player, policy), workers, progress)
    cells = [
        _cell(scenario, seed, repeats, outcomes, policy) for scenario in scenarios for seed in seeds
    ]
    return make_result(
        subject=subject,
        kind=SubjectKind.POLICY,
        at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        cells=cells,
        machine={
            "system": platform.platform(),
            "processors": f"{os.cpu_count()} of {platform.machine()}",
        },
        versions={"python": platform.python_version(), "numpy": version("numpy")},
    )


def _tasks(scenarios: Sequence[Scenario], seeds: Sequence[int], repeats: int) -> Iterator[_Task]:
    for scenario in scenarios:
        if _why_not(scenario):
            continue
        for seed in seeds:
            yield _Task(_baseline(scenario), seed, 0)
            for place in range(repeats):
                yield _task(scenario, seed, place)


def _task(scenario: Scenario, seed: int, place: int) -> _Task:
    """Return a run of a scenario: one without faults is its own baseline."""
    return _Task(_baseline(scenario) if not scenario.faults else scenario, seed, place)


def _baseline(scenario: Scenario) -> Scenario:
    """Return the scenario without faults, under a name that all scenarios of its fleet share."""
    return Scenario(
        name="normal",
        title="Without faults",
        fleet=scenario.fleet,
        load=scenario.load,
        warm_up=scenario.warm_up,
        duration=scenario.duration,
    )


def _why_not(scenario: Scenario) -> str:
    if Runner.TWIN not in scenario.runs_on:
        return f"it runs on: {', '.join(scenario.runs_on)}"
    return cannot_do(scenario)


def _run(player: Player, policy: Path | None, task: _Task) -> Outcome:
    begun = time.perf_counter()
    try:
        return player(task.scenario, policy, task.seed)
    except Exception as error:  # whatever it is, it is this run's alone
        told = "".join(traceback.format_exception(error)[-8:])
        return Broken(f"{type(error).__name__}: {error}", told, time.perf_counter() - begun)


def _played(
    tasks: list[_Task], run: Callable[[_Task], Outcome], workers: int, progress: Progress | None
) -> dict[_Task, Outcome]:
    found: dict[_Task, Outcome] = {}

    def take(task: _Task, outcome: Outcome) -> None:
        found[task] = outcome
        if progress is not None:
            progress(len(found), len(tasks), task.said)

    if workers == 1:
        for task in tasks:
            take(task, run(task))
        return found
    # Not forked: a process that has threads must not be.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future, task in _in_order_of_end(pool, tasks, run):
            take(task, future.result())
    return found


def _in_order_of_end(
    pool: Executor, tasks: list[_Task], run: Callable[[_Task], Outcome]
) -> Iterator[tuple[Future[Outcome], _Task]]:
    futures = {pool.submit(run, task): task for task in tasks}
    for future in as_completed(futures):
        yield future, futures[future]


def _cell(
    scenario: Scenario,
    seed: int,
    repeats: int,
    outcomes: dict[_Task, Outcome],
    policy: Path | None,
) -> Cell:
    why = _why_not(scenario)
    if why:
        return not_run(scenario, seed, why)
    runs = [outcomes[_task(scenario, seed, place)] for place in range(repeats)]
    cell = cell_of(scenario, seed, runs, outcomes[_Task(_baseline(scenario), seed, 0)])
    return msgspec.structs.replace(cell, again=_again(scenario, seed, policy))


def _again(scenario: Scenario, seed: int, policy: Path | None) -> str:
    """Return the command line that runs a cell alone."""
    words = ["python", "-m", "lab", "matrix", "run", "--scenario", scenario.name]
    words += ["--seed", str(seed), *(["--policy", str(policy)] if policy else [])]
    return shlex.join(words)
