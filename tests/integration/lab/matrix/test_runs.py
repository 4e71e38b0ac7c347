"""A command under real faults: what they do to it, and what is said where they cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.matrix import groups
from lab.matrix.machine import Machine
from lab.matrix.result import MatrixResult, Verdict
from lab.matrix.running import exit_code, holding
from tests.integration.lab.matrix.conftest import Play, cell, run_toy, scenario, value

FAULTS = {
    "slow": "{kind: cpu_quota, at: 0s, share: 0.3}",
    "far": "{kind: link_latency, at: 0s, latency_s: 0.06}",
    "cut": "{kind: site_isolated, at: 10s, for: 30s, target: {names: ['*']}}",
    "storage": "{kind: storage_slow, at: 0s, bytes_per_s: 40000}",
    "kill": "{kind: kill, at: 60s}",
}
RESUMES = ("measure: resume_difference, value: 0", "measure: began_anew, value: 0")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> MatrixResult:
    """The toy, with nothing wrong, under all of these."""
    folder = tmp_path_factory.mktemp("matrix")
    with holding(folder / "journals") as journal:
        scenarios = [scenario(name, fault, *RESUMES) for name, fault in FAULTS.items()]
        return run_toy(journal, folder / "out", *scenarios)


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_right_passes_what_can_be_done_here(
    result: MatrixResult, machine: Machine, name: str
) -> None:
    found = cell(result, name)
    if name == "far" and machine.why_no_room:
        assert found.verdict == Verdict.NOT_RUN
    else:
        assert found.verdict == Verdict.PASSED, found.why + found.log


def test_a_quota_holds_the_command_back(result: MatrixResult, group: None) -> None:
    assert value(cell(result, "slow"), "throughput_loss") > 0.3


def test_a_slow_path_between_its_processes_delays_their_exchange(
    result: MatrixResult, room: None
) -> None:
    # There and back, less what a busy machine may have delayed the run without faults.
    assert value(cell(result, "far"), "sync_delay_s") >= 0.08


def test_what_comes_over_a_broken_path_is_tried_again(result: MatrixResult) -> None:
    assert value(cell(result, "cut"), "retries") >= 1


def test_a_killed_command_loses_what_came_after_its_last_checkpoint(result: MatrixResult) -> None:
    found = cell(result, "kill")
    assert value(found, "resubmissions") == 1
    assert 0 <= value(found, "work_lost_steps") < 20


def test_a_kill_waits_for_the_first_checkpoint(play: Play, tmp_path: Path) -> None:
    early = scenario("kill", "{kind: kill, at: 10s}", *RESUMES)
    found = cell(play(early, wrong=("late",)), "kill")
    assert found.verdict == Verdict.PASSED, found.why + found.log
    assert value(found, "resubmissions") == 1
    # It was to be killed after two of 40 steps, and would have begun anew.
    lines = (tmp_path / "out" / "runs" / "kill-1" / "steps.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps.count(1) == steps.count(20) == 1


def test_what_never_saves_is_not_killed_and_not_measured(play: Play, tmp_path: Path) -> None:
    result = play(scenario("kill", FAULTS["kill"], *RESUMES), wrong=("careless",))
    found = cell(result, "kill")
    assert found.verdict == Verdict.NOT_MEASURED
    assert found.why.startswith("the command writes no checkpoint")
    assert not (tmp_path / "out" / "runs" / "kill-1").exists()
    assert exit_code(result) == 3


@pytest.mark.parametrize(
    ("wrong", "measure"),
    [
        ("inexact", "resume_difference"),
        pytest.param("forgetful", "began_anew", marks=pytest.mark.slow),
    ],
)
def test_a_killed_command_has_to_resume_exactly(play: Play, wrong: str, measure: str) -> None:
    result = play(scenario("kill", FAULTS["kill"], *RESUMES), wrong=(wrong,))
    found = cell(result, "kill")
    assert found.verdict == Verdict.FAILED
    assert value(found, measure) > 0
    assert exit_code(result) == 1


@pytest.mark.slow
def test_without_control_groups_it_is_stopped_part_of_the_time(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise groups.GroupError("not here")

    monkeypatch.setattr(groups, "make", refuse)
    result = play(scenario("slow", "{kind: cpu_quota, at: 0s, share: 0.3}"))
    found = cell(result, "slow")
    assert found.verdict == Verdict.PASSED, found.why
    assert value(found, "throughput_loss") > 0.3
    assert result.machine["CPU quota by control group"] == "not here"


def test_what_the_clock_decides_is_caught_where_it_is_slow(play: Play) -> None:
    slow = scenario("slow", "{kind: cpu_quota, at: 0s, share: 0.1}")
    found = cell(play(slow, wrong=("hasty",)), "slow")
    assert found.verdict == Verdict.FAILED
    assert "loss_difference" in found.why


def test_checkpoints_that_are_not_what_they_were_to_be_are_caught(play: Play) -> None:
    found = cell(play(wrong=("corrupt",)), "normal")
    assert found.verdict == Verdict.FAILED
    assert found.why == "checkpoints_corrupt is at most 0: 1: state"


def test_what_fails_without_faults_is_not_tried_with_any(play: Play) -> None:
    result = play(scenario("kill", "{kind: kill, at: 60s}"), wrong=("failing",))
    assert cell(result, "normal").verdict == Verdict.FAILED
    assert cell(result, "kill").verdict == Verdict.NOT_RUN
    assert exit_code(result) == 1


def test_two_runs_have_to_be_the_same(play: Play) -> None:
    found = cell(play(repeat=2), "normal")
    assert found.verdict == Verdict.PASSED, found.why
    assert value(found, "repeat_difference") == 0
    assert value(found, "checkpoints_differing") == 0


@pytest.mark.parametrize("repeat", [1, 2])
def test_a_command_that_tells_nothing_is_not_graded(play: Play, repeat: int) -> None:
    kill = scenario("kill", "{kind: kill, at: 60s}", *RESUMES)
    slow = scenario("slow", FAULTS["slow"], *RESUMES)
    result = play(kill, slow, wrong=("silent",), repeat=repeat)
    assert {each.verdict for each in result.cells} <= {Verdict.NOT_MEASURED, Verdict.NOT_RUN}
    assert cell(result, "normal").verdict == Verdict.NOT_MEASURED
    said = "it could not be seen whether missing_steps is at most 0: the command tells no steps"
    assert cell(result, "normal").why.startswith(said)
    assert result.grade.letter == "none"
    assert exit_code(result) == 3


IMPOSSIBLE = {
    "{kind: power_limit, at: 0s, share: 0.5}": "no GPU that NVML can limit",
    "{kind: lying_sensor, at: 0s, factor: 0.5}": "cannot be done to a command",
    "{kind: link_latency, at: 0s, latency_s: 1, target: {names: [wan]}}": "no link wan",
    "{kind: cpu_quota, at: 150s, share: 0.5}": "over before it began",
}


def test_what_cannot_be_done_is_not_run_and_never_passed(play: Play) -> None:
    result = play(*(scenario(f"odd-{i}", fault) for i, fault in enumerate(IMPOSSIBLE)))
    for number, why in enumerate(IMPOSSIBLE.values()):
        found = cell(result, f"odd-{number}")
        assert (found.verdict, found.checks) == (Verdict.NOT_RUN, [])
        assert why in found.why
    assert exit_code(result) == 3
    assert result.grade.letter not in "AB"


def test_a_fault_that_meets_nothing_is_not_run(play: Play) -> None:
    fault = "{kind: link_loss, at: 0s, loss_share: 0.1, target: {level: storage}}"
    result = play(scenario("storage", fault), wrong=("alone",))
    assert cell(result, "storage").verdict == Verdict.NOT_RUN
    assert "sends nothing over storage" in cell(result, "storage").why
