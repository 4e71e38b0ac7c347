from __future__ import annotations

from dataclasses import replace

import pytest

from lab.matrix.reading import read
from lab.matrix.result import Cell, Measure, Series, Verdict
from lab.scenarios.cells import cell_of, not_run
from lab.scenarios.played import Played
from lab.spread import Ended

SCENARIO = read(
    b"""
name: a
title: Nodes are lost
duration: 300s
faults: [{kind: node_loss, at: 100s, for: 100s, target: {count: 1}}]
expect:
  - never: {series: budget_use, above: 1}
  - at_most: {measure: throughput_loss_share, value: 0.2}
  - at_most: {measure: convergence_gap_share, value: 0}
"""
)


def series(name: str, values: list[float]) -> Series:
    return Series(name=name, unit="", t_s=[10.0 * i for i in range(30)], values=list(values))


NORMAL = Played(
    series=(series("budget_use", [0.9] * 30), series("running_gpus", [64.0] * 30)),
    measures=(Measure(name="over_budget_s", value=0.0, unit="s"),),
    losses={"job-1/train": 2.0, "job-2/train": 2.5},
    work_gpu_s=1000.0,
    digest="a" * 64,
    log="",
)


def ended(*runs: Played) -> list[Ended[int, Played]]:
    """Return runs that took a second each."""
    return [Ended(place, run, wall_s=1.0) for place, run in enumerate(runs)]


def cell_after(normal: Played, *runs: Played, seed: int = 1) -> Cell:
    return cell_of(SCENARIO, seed, ended(*runs), ended(normal)[0])


def measure(cell: Cell, name: str) -> Measure:
    return next(each for each in cell.measures if each.name == name)


def test_a_run_as_good_as_without_faults_passes() -> None:
    cell = cell_after(NORMAL, NORMAL, NORMAL, seed=7)
    assert (cell.verdict, cell.why, cell.seed, cell.digest) == ("passed", "", 7, "a" * 64)
    assert measure(cell, "throughput_loss_share").value == 0.0
    assert measure(cell, "repeat_spread_share").value == 0.0
    assert (cell.simulated_s, cell.wall_s) == (300.0, 2.0)
    assert [span.name for span in cell.spans] == ["node_loss"]


def test_a_cell_says_what_did_not_hold_in_numbers() -> None:
    over = replace(NORMAL, series=(series("budget_use", [0.9] * 20 + [1.2] * 10), NORMAL.series[1]))
    cell = cell_after(NORMAL, over, over)
    assert cell.verdict == "failed"
    assert cell.why == "budget_use is never above 1: above 1 for 1m40s from 3m20s on, 1.2 at most"


def test_losses_are_measured_against_the_run_without_faults() -> None:
    less = replace(NORMAL, work_gpu_s=700.0, losses={"job-1/train": 2.1, "job-3/train": 9.0})
    cell = cell_after(NORMAL, less, less)
    loss, gap = (measure(cell, name) for name in ("throughput_loss_share", "convergence_gap_share"))
    assert loss.value == pytest.approx(0.3)
    assert gap.value == pytest.approx(0.05)
    assert gap.said == "job-1/train: 2.1000 and 2.0000, of 1 jobs"
    assert cell.why.endswith("(and 1 more)")


def test_recovery_is_timed_from_the_end_of_the_last_fault() -> None:
    running = series("running_gpus", [64.0] * 10 + [32.0] * 13 + [64.0] * 7)
    slow = replace(NORMAL, series=(NORMAL.series[0], running))
    assert measure(cell_after(NORMAL, slow), "recovery_s").value == 30.0
    never = replace(slow, series=(NORMAL.series[0], series("running_gpus", [64.0] * 10 + [0] * 20)))
    found = measure(cell_after(NORMAL, never), "recovery_s")
    assert (found.value, found.said) == (None, "not in the run")


def test_repeats_that_end_differently_fail() -> None:
    other = replace(NORMAL, digest="b" * 64, work_gpu_s=900.0)
    cell = cell_after(NORMAL, NORMAL, other, NORMAL)
    assert cell.verdict == "failed"
    assert "2 different ends of 3 runs" in cell.why
    assert measure(cell, "repeat_spread_share").value == pytest.approx(0.1)


def test_one_run_says_nothing_of_determinism() -> None:
    once, twice = cell_after(NORMAL, NORMAL), cell_after(NORMAL, NORMAL, NORMAL)
    assert (once.verdict, len(once.checks)) == ("passed", len(twice.checks) - 1)
    cell = once
    assert measure(cell, "repeat_spread_share").value is None


@pytest.mark.parametrize("broken_is", ["repeat", "baseline"])
def test_a_run_that_breaks_makes_an_error_with_its_story(broken_is: str) -> None:
    good: Ended[int, Played] = ended(NORMAL)[0]
    broken: Ended[int, Played] = Ended(1, None, "ValueError: no", "Traceback …\nValueError: no")
    runs = [good, broken] if broken_is == "repeat" else [good]
    cell = cell_of(SCENARIO, 1, runs, good if broken_is == "repeat" else broken)
    assert (cell.verdict, cell.why) == (Verdict.ERROR, "ValueError: no")
    assert "Traceback" in cell.log


def test_what_cannot_be_played_is_not_run() -> None:
    cell = not_run(SCENARIO, 3, "the twin has no CPUs")
    assert (cell.verdict, cell.why, cell.checks) == ("not_run", "the twin has no CPUs", [])
