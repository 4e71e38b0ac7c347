"""Which runs a matrix makes before it blames a command for being slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.matrix import running
from lab.matrix.injecting import Normal
from lab.matrix.playing import FaultSeen, Run, Subject
from lab.matrix.reading import read
from lab.matrix.result import Cell, MatrixResult, Verdict
from lab.matrix.running import NORMAL, Plan, holding, run_matrix
from lab.matrix.scenario import Scenario
from tests.builders.runs import make_run

SAVES = Normal(saves=True, is_known=True)
QUICK, SLOW = [1.0] * 100, [3.0] * 100


def scenario(
    fault: str = "{kind: cpu_quota, at: 0s, share: 0.5}", *, measure: str = "throughput_shortfall"
) -> Scenario:
    return read(
        f"name: slow\ntitle: slow\nruns_on: [command]\nduration: 100s\nfaults: [{fault}]\n"
        f"expect: [at_most: {{measure: {measure}, value: 0.2}}]".encode()
    )


class Played:
    """Stands for all that is done to a command: what it was played under, and how it went."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.normals: Iterator[Run] = iter(())
        self.others: Iterator[Run] = iter(())

    def play(self, _subject: object, faults: Any, *_: object, **__: object) -> Run:
        self.names.append("faulted" if faults else NORMAL)
        run = next(self.others if faults else self.normals)
        seen = [FaultSeen(each, 0.0, 500.0) for each in faults]
        return replace(run, faults=seen, normal=SAVES if not faults else run.normal)


class Nothing:
    """Stands for the surroundings of a run."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(running, "play", made.play)
    monkeypatch.setattr(running, "Surroundings", Nothing)
    monkeypatch.setattr(running, "ways", lambda _: {})
    return made


@pytest.fixture
def run(played: Played, tmp_path: Path) -> Callable[..., MatrixResult]:
    """Return how to run a scenario on a command whose runs took as long as is given."""

    def run(
        chosen: Scenario,
        *,
        normals: list[list[float]],
        others: list[list[float]],
        progress: Callable[[str], None] = lambda _: None,
        **plan: Any,
    ) -> MatrixResult:
        played.normals, played.others = iter(map(make_run, normals)), iter(map(make_run, others))
        with holding(tmp_path / "journals") as journal:
            return run_matrix(
                Subject(("train",)),
                Plan(standard=[chosen], **{"repeat": 1} | plan),
                folder=tmp_path / "out",
                journal=journal,
                progress=progress,
            )

    return run


def slow_cell(result: MatrixResult) -> Cell:
    return next(each for each in result.cells if each.scenario == "slow")


def test_with_a_bar_for_throughput_it_runs_twice_without_faults(
    run: Callable[..., MatrixResult], played: Played
) -> None:
    result = run(scenario(), normals=[QUICK] * 2, others=[QUICK])
    assert slow_cell(result).verdict == Verdict.PASSED
    assert played.names == [NORMAL, NORMAL, "faulted"]
    assert result.machine["noise"] == "steps vary by 0 % without faults"


def test_it_says_how_many_cells_of_all_are_judged(
    run: Callable[..., MatrixResult], played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    run(scenario(measure="failed_exits"), normals=[QUICK], others=[QUICK], progress=print)
    lines = capsys.readouterr().out.splitlines()
    judged = [line for line in lines if line.endswith("of 2)")]
    assert [line.split(":")[0] for line in judged] == [NORMAL, "slow"]
    assert [line[-8:] for line in judged] == ["(1 of 2)", "(2 of 2)"]


def test_without_one_it_runs_as_often_as_it_was_told(
    run: Callable[..., MatrixResult], played: Played
) -> None:
    result = run(scenario(measure="failed_exits"), normals=[QUICK], others=[QUICK])
    assert played.names == [NORMAL, "faulted"]
    assert "noise" not in result.machine


def test_what_is_too_slow_is_played_again_beside_a_run_without_faults_and_fails(
    run: Callable[..., MatrixResult], played: Played
) -> None:
    result = run(scenario(), normals=[QUICK] * 3, others=[SLOW] * 2)
    assert slow_cell(result).verdict == Verdict.FAILED
    assert played.names == [NORMAL, NORMAL, "faulted", "faulted", NORMAL]


def test_what_was_slow_only_once_passes(run: Callable[..., MatrixResult]) -> None:
    result = run(scenario(), normals=[QUICK] * 3, others=[SLOW, QUICK])
    assert slow_cell(result).verdict == Verdict.PASSED


def test_where_the_machine_became_slower_meanwhile_nothing_is_blamed(
    run: Callable[..., MatrixResult],
) -> None:
    result = run(scenario(), normals=[QUICK, QUICK, SLOW], others=[SLOW] * 2)
    found = slow_cell(result)
    assert found.verdict == Verdict.NOT_MEASURED
    assert "too noisy to judge: steps vary by 100 %, bar 20 %" in found.why


@pytest.mark.parametrize(("margin", "verdict"), [(0.6, Verdict.PASSED), (0.1, Verdict.FAILED)])
def test_the_margin_can_be_another(
    run: Callable[..., MatrixResult], margin: float, verdict: Verdict
) -> None:
    # Half of the CPU time leaves 198 s, and it took 297: a third is missing.
    result = run(scenario(), normals=[QUICK] * 3, others=[SLOW] * 2, margin=margin)
    assert slow_cell(result).verdict == verdict


def test_a_command_without_checkpoints_is_not_killed(
    run: Callable[..., MatrixResult], played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SAVES", Normal(is_known=True))
    result = run(scenario("{kind: kill, at: 50s}"), normals=[QUICK] * 2, others=[])
    assert slow_cell(result).verdict == Verdict.NOT_MEASURED
    assert played.names == [NORMAL, NORMAL]
