from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lab.matrix.reading import read
from lab.matrix.result import Cell, Series, SubjectKind
from lab.matrix.scenario import Scenario
from lab.scenarios.matrix import NothingToRun, Part, Player, run_matrix
from lab.scenarios.played import Played
from lab.scenarios.policies import PolicyError
from lab.spread import Kept, Where, Work

BASE = "title: t\nduration: 5m\nexpect: [{never: {series: budget_use, above: 1}}]\n"
NORMAL = read(f"name: normal\n{BASE}".encode())
LOSS = read(f"name: loss\n{BASE}faults: [{{kind: node_loss, at: 1m}}]\n".encode())
CLOCKS = read(f"name: clocks\n{BASE}faults: [{{kind: clock_limit, at: 1m, share: 0.5}}]\n".encode())
QUOTA = read(f"name: quota\n{BASE}faults: [{{kind: cpu_quota, at: 1m, share: 0.5}}]\n".encode())
OURS = read(f"name: ours\nruns_on: [command]\n{BASE}".encode())


def played(part: Part) -> Played:
    """Play a run that never takes time: clocks that are slowed exceed a budget with seed 2."""
    scenario, seed = part.scenario, part.seed
    use = 1.1 if scenario.name == "clocks" and seed == 2 else 0.9
    if scenario.name == "loss" and seed == 3:
        raise RuntimeError("the twin broke")
    times = [10.0 * i for i in range(30)]
    return Played(
        series=tuple(
            Series(name=name, unit="", t_s=times, values=[use] * 30)
            for name in ("budget_use", "running_gpus")
        ),
        measures=(),
        losses={},
        work_gpu_s=100.0 if scenario.faults else 200.0,
        digest=f"{scenario.name}{seed}",
        log="",
    )


PLAYER: Player = Work(f"{__name__}:PLAYER", played, Part, Played)
HERE = Where(workers=1)


def counting() -> tuple[Player, list[tuple[str, int]]]:
    """Return a player, and the list of what it was asked for."""
    asked: list[tuple[str, int]] = []

    def ask(part: Part) -> Played:
        asked.append((part.scenario.name, part.seed))
        return played(part)

    return Work("here:alone", ask, Part, Played), asked


def test_each_scenario_is_played_with_each_seed_as_often_as_asked() -> None:
    player, asked = counting()
    result = run_matrix([NORMAL, LOSS, CLOCKS], seeds=(1, 2), repeats=2, player=player, where=HERE)
    assert [(cell.scenario, cell.seed, str(cell.verdict)) for cell in result.cells] == [
        ("normal", 1, "passed"),
        ("normal", 2, "passed"),
        ("loss", 1, "passed"),
        ("loss", 2, "passed"),
        ("clocks", 1, "passed"),
        ("clocks", 2, "failed"),
    ]
    assert (result.subject, result.kind) == ("headroom", SubjectKind.POLICY)
    assert (result.grade.letter, result.grade.passed, result.grade.failed) == ("C", 5, 1)
    # The run without faults is played once for all that share its fleet and load.
    assert len(asked) == len(result.cells) * 2


def test_losses_are_against_the_same_seed_without_faults() -> None:
    (cell,) = run_matrix([LOSS], seeds=(1,), repeats=1, player=PLAYER, where=HERE).cells
    loss = next(each for each in cell.measures if each.name == "throughput_loss_share")
    assert (loss.value, loss.said) == (0.5, "0.0 of 0.1 GPU h")


def test_a_run_that_breaks_does_not_stop_the_others() -> None:
    result = run_matrix([LOSS, CLOCKS], seeds=(3,), repeats=1, player=PLAYER, where=HERE)
    broken, other = result.cells
    assert (broken.verdict, broken.why) == ("error", "RuntimeError: the twin broke")
    assert "in played" in broken.log
    assert other.verdict == "passed"


def test_what_the_twin_cannot_do_is_not_run_and_not_played() -> None:
    player, asked = counting()
    result = run_matrix([QUOTA, OURS], seeds=(1,), player=player, where=HERE)
    assert [(str(cell.verdict), cell.why) for cell in result.cells] == [
        ("not_run", "cpu_quota: the twin has no CPUs: run this on a real command"),
        ("not_run", "it runs on: command"),
    ]
    assert asked == []
    assert result.grade.letter == "none"


@pytest.mark.slow
def test_processes_come_to_the_same_as_one() -> None:
    alone = run_matrix([NORMAL, CLOCKS], seeds=(1, 2), repeats=1, player=PLAYER, where=HERE)
    several = run_matrix([NORMAL, CLOCKS], seeds=(1, 2), repeats=1, player=PLAYER, where=Where(2))
    assert [_without_time(cell) for cell in several.cells] == [
        _without_time(cell) for cell in alone.cells
    ]


def _without_time(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, wall_s=0.0)


def test_a_matrix_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    player, asked = counting()
    first = run_matrix([LOSS], seeds=(1,), player=player, where=HERE, kept=Kept(tmp_path))
    assert len(asked) == 3
    again = run_matrix([LOSS], seeds=(1, 2), player=player, where=HERE, kept=Kept(tmp_path))
    assert len(asked) == 6, "only what was not run before"
    assert again.cells[0] == first.cells[0]


def test_progress_is_told_after_each_run() -> None:
    told: list[tuple[int, int, str]] = []
    run_matrix(
        [LOSS],
        seeds=(1,),
        player=PLAYER,
        where=HERE,
        progress=lambda done, every, said: told.append((done, every, said)),
    )
    assert told == [
        (1, 3, "normal, seed 1"),
        (2, 3, "loss, seed 1"),
        (3, 3, "loss, seed 1, repeat 2"),
    ]


def test_a_cell_says_how_to_run_it_again(tmp_path: Path) -> None:
    folder = tmp_path / "my policy"
    folder.mkdir()
    (folder / "policy.yaml").write_text("name: mine\n")
    (cell,) = run_matrix(
        [LOSS], policy=folder, seeds=(5,), repeats=1, player=PLAYER, where=HERE
    ).cells
    assert cell.again == (f"python -m lab matrix run --scenario loss --seed 5 --policy '{folder}'")


@pytest.mark.parametrize(
    ("scenarios", "seeds", "repeats"), [([], (1,), 1), ([LOSS], (), 1), ([LOSS], (1,), 0)]
)
def test_a_matrix_needs_something_to_run(
    scenarios: list[Scenario], seeds: tuple[int, ...], repeats: int
) -> None:
    with pytest.raises(NothingToRun):
        run_matrix(scenarios, seeds=seeds, repeats=repeats, player=PLAYER, where=HERE)


def test_a_policy_that_cannot_be_read_stops_the_matrix(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"a policy is a folder with policy\.yaml"):
        run_matrix([LOSS], policy=tmp_path, player=PLAYER, where=HERE)
