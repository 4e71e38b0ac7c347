"""Playing a matrix: each scenario with each seed, several times over, side by side.

Every run is a part of its own (:mod:`lab.spread`). A cell is put together from its repeats and from
the same run without faults (the *baseline*), which scenarios of the same fleet, load and length
share.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from headroom.errors import HeadroomError
from lab.matrix.result import Cell, MatrixResult, SubjectKind, make_result
from lab.matrix.scenario import Runner, Scenario
from lab.scenarios.cells import cell_of, not_run
from lab.scenarios.faults import cannot_do
from lab.scenarios.play import play
from lab.scenarios.played import Played
from lab.scenarios.policies import load_policy
from lab.spread import Ended, Kept, Where, Work, run_all

__all__ = ["PLAY", "NothingToRun", "Part", "Player", "Progress", "run_matrix"]

#: Told after each run: how many are done, how many there are, and what was just done.
Progress = Callable[[int, int, str], None]


class NothingToRun(HeadroomError, ValueError):
    """A matrix needs at least one scenario, one seed and one repeat."""


@dataclass(frozen=True)
class Part:
    """One run: ``place`` numbers repeats from 0. ``policy`` is a folder; None: the built-in one."""

    scenario: Scenario
    policy: Path | None
    seed: int
    place: int

    @property
    def said(self) -> str:
        again = f", repeat {self.place + 1}" if self.place else ""
        return f"{self.scenario.name}, seed {self.seed}{again}"


#: Plays a part.
Player = Work[Part, Played]


def _play(part: Part) -> Played:
    return play(part.scenario, part.policy, part.seed)


PLAY: Player = Work(f"{__name__}:PLAY", _play, Part, Played)


def run_matrix(
    scenarios: Sequence[Scenario],
    *,
    policy: Path | None = None,
    seeds: Sequence[int] = (1, 2),
    repeats: int = 2,
    where: Where | None = None,
    kept: Kept | None = None,
    progress: Progress | None = None,
    player: Player = PLAY,
) -> MatrixResult:
    """Play ``scenarios`` under a policy and return the result.

    A run that breaks makes its cell an error, and the others go on. Raises :class:`NothingToRun`,
    and what loading the policy raises.
    """
    if not scenarios or not seeds or repeats < 1:
        raise NothingToRun
    subject = load_policy(policy).name
    parts = list(dict.fromkeys(_parts(scenarios, policy, seeds, repeats)))
    outcomes: dict[Part, Ended[Part, Played]] = {}
    for ended in run_all(player, parts, where=where, kept=kept):
        outcomes[ended.argument] = ended
        if progress is not None:
            progress(len(outcomes), len(parts), ended.argument.said)
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


def _parts(
    scenarios: Sequence[Scenario], policy: Path | None, seeds: Sequence[int], repeats: int
) -> Iterator[Part]:
    for scenario in scenarios:
        if _why_not(scenario):
            continue
        for seed in seeds:
            yield Part(_baseline(scenario), policy, seed, 0)
            for place in range(repeats):
                yield _part(scenario, policy, seed, place)


def _part(scenario: Scenario, policy: Path | None, seed: int, place: int) -> Part:
    """Return a run of a scenario: one without faults is its own baseline."""
    return Part(_baseline(scenario) if not scenario.faults else scenario, policy, seed, place)


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


def _cell(
    scenario: Scenario,
    seed: int,
    repeats: int,
    outcomes: Mapping[Part, Ended[Part, Played]],
    policy: Path | None,
) -> Cell:
    why = _why_not(scenario)
    if why:
        return not_run(scenario, seed, why)
    runs = [outcomes[_part(scenario, policy, seed, place)] for place in range(repeats)]
    normal = outcomes[Part(_baseline(scenario), policy, seed, 0)]
    cell = cell_of(scenario, seed, runs, normal)
    return msgspec.structs.replace(cell, again=_again(scenario, seed, policy))


def _again(scenario: Scenario, seed: int, policy: Path | None) -> str:
    """Return the command line that runs a cell alone."""
    words = ["python", "-m", "lab", "matrix", "run", "--scenario", scenario.name]
    words += ["--seed", str(seed), *(["--policy", str(policy)] if policy else [])]
    return shlex.join(words)
