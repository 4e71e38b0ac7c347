"""What came of what a command was told, as measures."""

from __future__ import annotations

import pytest

from lab.matrix.channel import Line
from lab.matrix.checkpoints import Checkpoints
from lab.matrix.injecting import Normal
from lab.matrix.judging import cell_of
from lab.matrix.playing import Run, StepSeen
from lab.matrix.result import Measure
from lab.matrix.scenario import Scenario
from lab.matrix.steps import Step


def make_run(*ledger: Line, last: int = 10) -> Run:
    """Return a run that made a step each second."""
    return Run(
        steps=[StepSeen(Step(number, 1.0), float(number), 0) for number in range(1, last + 1)],
        faults=[],
        exits=[0],
        starts=1,
        timed_out=False,
        length_s=float(last),
        wall_s=float(last),
        checkpoints=Checkpoints({}, 0, ()),
        normal=Normal(),
        log="",
        ledger=list(ledger),
    )


def measured(*runs: Run) -> dict[str, Measure]:
    cell = cell_of(Scenario(name="a", title="a", duration="10s"), runs, make_run(), again="")
    return {each.name: each for each in cell.measures}


def pause(step: int, told_s: float, done_s: float | None) -> Line:
    return Line("pause", None, told_s, seq=1, done_s=done_s, step=step)


def resume(told_s: float) -> Line:
    return Line("resume", None, told_s, seq=2, done_s=told_s, step=None)


@pytest.mark.parametrize(
    ("ended_at_s", "steps"),
    [
        # Lines are read a little after they were written.
        (4.0, 0),
        (5.5, 1),
        (8.5, 4),
    ],
)
def test_steps_after_that_of_a_pause_are_counted_until_its_end(
    ended_at_s: float, steps: int
) -> None:
    told = measured(make_run(pause(4, 2.0, 3.0), resume(ended_at_s)))
    assert told["steps_in_pause"].value == steps


def test_a_pause_that_was_never_made_is_missed_and_has_no_steps() -> None:
    told = measured(make_run(pause(0, 2.0, None), resume(9.0)))
    assert told["directives_missed"].value == 1
    assert told["steps_in_pause"].value == 0


def test_what_came_too_late_is_not_missed() -> None:
    late = Line("resume", None, 9.9, seq=2, was_late=True)
    assert measured(make_run(pause(4, 2.0, 3.0), late))["directives_missed"].value == 0


def test_the_worst_of_the_runs_counts() -> None:
    good, bad = make_run(pause(4, 2.0, 3.0)), make_run(pause(4, 2.0, None))
    assert measured(good, bad)["directives_missed"].value == 1


def test_of_what_was_told_nothing_nothing_is_said() -> None:
    found = measured(make_run())["directives_missed"]
    assert (found.value, found.said) == (None, "the command was told nothing")
