"""A command that hears directives is told to shrink, to stand still, and to go on elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.matrix import channel
from lab.matrix.leases import Journal
from lab.matrix.playing import Subject
from lab.matrix.result import MatrixResult, Verdict
from lab.matrix.running import NORMAL, Plan, exit_code, holding, run_matrix, standard
from tests.integration.lab.matrix.conftest import Play, cell, scenario, unhurried, value
from tests.integration.lab.matrix.hearing import STEP_S, STEPS

HEARING = Path(__file__).with_name("hearing.py")
TOLD = ["smaller-batch", "pause-and-resume", "move"]


def run(journal: Journal, folder: Path, *names: str, wrong: tuple[str, ...] = ()) -> MatrixResult:
    chosen = [unhurried(each) for each in standard() if each.name in names]
    subject = Subject((sys.executable, str(HEARING), *wrong))
    plan = Plan(standard=chosen, repeat=1, timeout_s=300)
    return run_matrix(subject, plan, folder=folder, journal=journal, progress=lambda _: None)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directives")


@pytest.fixture(scope="module")
def result(folder: Path) -> MatrixResult:
    """A command that does all that it is told, under the three scenarios."""
    with holding(folder / "journals") as journal:
        return run(journal, folder / "out", *TOLD)


@pytest.mark.parametrize("name", [NORMAL, *TOLD])
@pytest.mark.slow(
    beside="tests/unit/lab/matrix/test_channel.py::"
    "test_what_is_told_is_heard_and_what_was_done_is_seen"
)
def test_what_does_as_it_is_told_passes(result: MatrixResult, name: str) -> None:
    found = cell(result, name)
    assert found.verdict == Verdict.PASSED, found.why + found.log


@pytest.mark.slow(
    beside="tests/unit/lab/matrix/test_channel.py::"
    "test_another_start_finds_what_is_in_force_and_not_what_was_done_once"
)
def test_a_smaller_batch_is_in_force_from_one_step_to_another(
    result: MatrixResult, folder: Path
) -> None:
    shrink, grow = lines(folder / "out" / "runs" / "smaller-batch-1" / "ledger.jsonl")
    steps = lines(folder / "out" / "runs" / "smaller-batch-1" / "steps.jsonl")
    assert (shrink["value"], grow["value"]) == (0.5, 1.0)
    # What is told after a step holds from the next one on.
    small = [each["step"] for each in steps if each["parts"] == 2]
    assert small == list(range(shrink["step"] + 1, grow["step"] + 1))


@pytest.mark.slow(
    beside="tests/unit/lab/matrix/test_channel.py::test_a_pause_lasts_from_when_it_was_done"
)
def test_a_pause_lasts_from_when_the_command_stands_still(
    result: MatrixResult, folder: Path
) -> None:
    pause, resume = lines(folder / "out" / "runs" / "pause-and-resume-1" / "ledger.jsonl")
    normal = lines(folder / "out" / "runs" / "normal-1" / "steps.jsonl")
    assert pause["step"] == resume["step"] < normal[-1]["step"]
    assert resume["told_s"] - pause["done_s"] >= 0.1 * STEPS * STEP_S * 0.9


@pytest.mark.slow(
    beside="tests/unit/lab/matrix/test_channel.py::"
    "test_the_ledger_has_all_lines_with_times_of_the_run"
)
def test_a_command_that_leaves_goes_on_at_the_next_step_under_another_path(
    result: MatrixResult, folder: Path
) -> None:
    saved, left = lines(folder / "out" / "runs" / "move-1" / "ledger.jsonl")
    steps = lines(folder / "out" / "runs" / "move-1" / "steps.jsonl")
    last = steps[-1]["step"]
    assert saved["kind"] == "checkpoint"
    assert saved["step"] <= left["step"] < last
    assert [each["step"] for each in steps] == list(range(1, last + 1))
    places = [each["place"] for each in steps]
    assert len(set(places[: left["step"]])) == len(set(places[left["step"] :])) == 1
    assert places[0] != places[-1]
    assert value(cell(result, "move"), "resubmissions") == 1


@pytest.mark.slow
def test_what_never_does_what_it_is_told_has_failed(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_HEARS_WITHIN_S", 1.0)
    result = run(journal, tmp_path / "out", "smaller-batch", wrong=("lazy",))
    found = cell(result, "smaller-batch")
    assert found.verdict == Verdict.FAILED
    assert value(found, "directives_missed") == 2
    assert exit_code(result) == 1


@pytest.mark.slow
def test_what_leaves_without_saving_has_failed(journal: Journal, tmp_path: Path) -> None:
    found = cell(run(journal, tmp_path / "out", "move", wrong=("forgetful",)), "move")
    assert found.verdict == Verdict.FAILED
    assert "work_lost_steps" in found.why


def test_what_hears_nothing_is_told_nothing(play: Play) -> None:
    result = play(scenario("shrink", "{kind: shrink_batch, at: 10s, for: 20s, share: 0.5}"))
    found = cell(result, "shrink")
    assert found.verdict == Verdict.NOT_RUN
    assert "hears no directives" in found.why
