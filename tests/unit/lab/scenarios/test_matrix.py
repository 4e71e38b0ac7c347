from __future__ import annotations

from pathlib import Path

import pytest

from lab.matrix.reading import read
from lab.matrix.result import Series, SubjectKind
from lab.matrix.scenario import Scenario
from lab.scenarios.matrix import NothingToRun, run_matrix
from lab.scenarios.played import Played
from lab.scenarios.policies import PolicyError

BASE = "title: t\nduration: 5m\nexpect: [{never: {series: budget_use, above: 1}}]\n"
NORMAL = read(f"name: normal\n{BASE}".encode())
LOSS = read(f"name: loss\n{BASE}faults: [{{kind: node_loss, at: 1m}}]\n".encode())
CLOCKS = read(f"name: clocks\n{BASE}faults: [{{kind: clock_limit, at: 1m, share: 0.5}}]\n".encode())
QUOTA = read(f"name: quota\n{BASE}faults: [{{kind: cpu_quota, at: 1m, share: 0.5}}]\n".encode())
OURS = read(f"name: ours\nruns_on: [command]\n{BASE}".encode())


def played(scenario: Scenario, policy: Path | None, seed: int) -> Played:
    """Play a run that never takes time: clocks that are slowed exceed a budget with seed 2."""
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
        wall_s=0.1,
    )


class Counting:
    """A player that keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def __call__(self, scenario: Scenario, policy: Path | None, seed: int) -> Played:
        self.asked.append((scenario.name, seed))
        return played(scenario, policy, seed)


def test_each_scenario_is_played_with_each_seed_as_often_as_asked() -> None:
    player = Counting()
    result = run_matrix([NORMAL, LOSS, CLOCKS], seeds=(1, 2), repeats=2, player=player)
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
    assert len(player.asked) == len(result.cells) * 2


def test_losses_are_against_the_same_seed_without_faults() -> None:
    (cell,) = run_matrix([LOSS], seeds=(1,), repeats=1, player=played).cells
    loss = next(each for each in cell.measures if each.name == "throughput_loss_share")
    assert (loss.value, loss.said) == (0.5, "0.0 of 0.1 GPU h")


def test_a_run_that_breaks_does_not_stop_the_others() -> None:
    result = run_matrix([LOSS, CLOCKS], seeds=(3,), repeats=1, player=played)
    broken, other = result.cells
    assert (broken.verdict, broken.why) == ("error", "RuntimeError: the twin broke")
    assert "in played" in broken.log
    assert other.verdict == "passed"


def test_what_the_twin_cannot_do_is_not_run_and_not_played() -> None:
    player = Counting()
    result = run_matrix([QUOTA, OURS], seeds=(1,), player=player)
    assert [(str(cell.verdict), cell.why) for cell in result.cells] == [
        ("not_run", "cpu_quota: the twin has no CPUs: run this on a real command"),
        ("not_run", "it runs on: command"),
    ]
    assert player.asked == []
    assert result.grade.letter == "none"


@pytest.mark.slow
def test_processes_come_to_the_same_as_one() -> None:
    alone = run_matrix([NORMAL, CLOCKS], seeds=(1, 2), repeats=1, player=played)
    several = run_matrix([NORMAL, CLOCKS], seeds=(1, 2), repeats=1, workers=2, player=played)
    assert several.cells == alone.cells


def test_progress_is_told_after_each_run() -> None:
    told: list[tuple[int, int, str]] = []
    run_matrix(
        [LOSS],
        seeds=(1,),
        player=played,
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
    (cell,) = run_matrix([LOSS], policy=folder, seeds=(5,), repeats=1, player=played).cells
    assert cell.again == (f"python -m lab matrix run --scenario loss --seed 5 --policy '{folder}'")


@pytest.mark.parametrize(
    ("scenarios", "seeds", "repeats"), [([], (1,), 1), ([LOSS], (), 1), ([LOSS], (1,), 0)]
)
def test_a_matrix_needs_something_to_run(
    scenarios: list[Scenario], seeds: tuple[int, ...], repeats: int
) -> None:
    with pytest.raises(NothingToRun):
        run_matrix(scenarios, seeds=seeds, repeats=repeats, player=played)


def test_a_policy_that_cannot_be_read_stops_the_matrix(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"a policy is a folder with policy\.yaml"):
        run_matrix([LOSS], policy=tmp_path, player=played)
