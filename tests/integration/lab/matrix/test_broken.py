"""A dozen broken commands are each caught by the cell that is there for it; the good one passes."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.matrix import channel, playing
from lab.matrix.judging import SHORTFALL
from lab.matrix.leases import Journal
from lab.matrix.playing import Subject
from lab.matrix.result import Cell, MatrixResult, Verdict
from lab.matrix.running import NORMAL, Plan, exit_code, run_matrix, standard
from tests.integration.lab.matrix.conftest import cell, unhurried

logger = logging.getLogger(__name__)

BROKEN = Path(__file__).with_name("broken.py")
#: What is wrong, the cell that has to catch it, and the measure by which it does.
FAULTS = {
    "loses-checkpoint": ("kill-and-resume", "began_anew"),
    "forgets-position": ("kill-and-resume", "resume_difference"),
    "half-checkpoints": ("kill-and-resume", "failed_exits"),
    "slow-after-resume": ("kill-and-resume", SHORTFALL),
    "repeats-steps": ("move", "work_lost_steps"),
    "ignores-sigterm": ("move", "directives_missed"),
    "grows-batch": ("smaller-batch", "loss_difference"),
    "deadlocks": ("smaller-batch", "failed_exits"),
    "logs-in-pause": ("pause-and-resume", "steps_in_pause"),
    "hides-failure": ("storage-unreachable", "missing_steps"),
    "overreacts": ("severe-cpu-restriction", SHORTFALL),
    "leaks": (NORMAL, "processes_left"),
}
#: Those that take little time stand for all of them wherever tests are run.
QUICK = {"forgets-position", "half-checkpoints", "leaks"}


def run(
    journal: Journal,
    folder: Path,
    *names: str,
    wrong: str = "",
    timeout_s: float = 120,
    has_bars: bool = True,
) -> MatrixResult:
    """Run the command under scenarios of the standard matrix, with their bars for throughput."""
    chosen = [each for each in standard() if each.name in names]
    chosen = chosen if has_bars else list(map(unhurried, chosen))
    subject = Subject((sys.executable, str(BROKEN), *filter(None, [wrong])))
    plan = Plan(standard=chosen, repeat=1, timeout_s=timeout_s)
    return run_matrix(subject, plan, folder=folder, journal=journal, progress=lambda _: None)


def failed(found: Cell) -> list[str]:
    """Return the measures by which a cell failed."""
    return [each.text.split()[0] for each in found.checks if each.verdict == Verdict.FAILED]


@pytest.mark.parametrize(
    "wrong",
    [pytest.param(each, marks=[] if each in QUICK else [pytest.mark.slow]) for each in FAULTS],
)
def test_what_is_broken_is_caught_by_the_cell_that_is_there_for_it(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    # A loop that obeys does so within two seconds. One that does not is not done before.
    monkeypatch.setattr(playing, "_LEAVE_S", 4.0)
    monkeypatch.setattr(channel, "_HEARS_WITHIN_S", 3.0)
    if wrong == "ignores-sigterm":
        monkeypatch.setenv("BROKEN_STEPS", "300")
    name, measure = FAULTS[wrong]
    timeout_s = 25.0 if wrong == "deadlocks" else 120.0
    result = run(
        journal,
        tmp_path / "out",
        name,
        wrong=wrong,
        timeout_s=timeout_s,
        has_bars=measure == SHORTFALL,
    )
    found = cell(result, name)
    noisy = [each.said for each in found.checks if "too noisy" in each.said]
    if noisy:
        pytest.skip(noisy[0])
    assert measure in failed(found), found.why + found.log
    assert found.verdict == Verdict.FAILED
    assert result.grade.letter != "A"
    assert exit_code(result) == 1
    if name != NORMAL:
        assert cell(result, NORMAL).verdict == Verdict.PASSED, cell(result, NORMAL).why


@pytest.fixture
def busy() -> Iterator[None]:
    """Take a core of this machine from whatever else runs on it."""
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    burner.kill()
    burner.wait()


@pytest.mark.slow
def test_twenty_runs_of_the_good_command_on_a_busy_machine_fail_nothing(
    journal: Journal, tmp_path: Path, busy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough for a loop to hear twice that it is to move, with something left to do.
    monkeypatch.setenv("BROKEN_STEPS", "240")
    names = {name for name, _ in FAULTS.values()}
    verdicts: Counter[Verdict] = Counter()
    failures = []
    for number in range(20):
        result = run(journal, tmp_path / f"out-{number}", *names)
        found = {each.scenario: each.verdict for each in result.cells}
        verdicts.update(found.values())
        failures += [
            f"{number}: {each.scenario}: {each.why}"
            for each in result.cells
            if each.verdict in (Verdict.FAILED, Verdict.ERROR)
        ]
        logger.info(
            "%d: %s, %s", number, result.machine.get("noise"), dict(Counter(found.values()))
        )
    assert failures == []
    # It is no proof where nothing was judged.
    assert verdicts[Verdict.PASSED] > 0
