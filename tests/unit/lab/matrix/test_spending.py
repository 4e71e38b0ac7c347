"""Where the time of a run went, by the command's own reports, and the sentences made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headroom.training import Section
from headroom.training.reports import RankReport
from lab.matrix import spending
from lab.matrix.playing import Life, Reported, Run
from lab.matrix.result import Series
from tests.builders.runs import make_run


def report(at_s: float, rank: int = 0, **sections: float) -> Reported:
    names = {name: Section[name.upper()].value for name in sections}
    spent = {names[name]: spent_s for name, spent_s in sections.items()}
    told = RankReport(rank=rank, world=2, step=1, steps=1, span_s=1.0, sections=spent)
    return Reported(at_s, told)


def told(run: Run, *, sync_s: float, wait_s: float | None = None) -> Run:
    """Return a run whose steps tell how long they exchanged and waited."""
    steps = [
        replace(each, step=replace(each.step, sync_s=sync_s, wait_s=wait_s)) for each in run.steps
    ]
    return replace(run, steps=steps)


def by_name(run: Run) -> dict[str, Series]:
    return {each.name: each for each in spending.timeline(run)}


def test_the_timeline_is_what_ranks_report_second_by_second() -> None:
    reports = [
        report(1.0, gradient_sync=0.2),
        report(1.0, rank=1, gradient_sync=0.4),
        report(2.0, data_loading=0.5, checkpoint_save=0.25),
        report(2.0, rank=1, pause=0.75),
    ]
    found = by_name(make_run([1.0] * 3, reports=reports))
    first, second = zip(*(found[f"{kind}_share"].values[:2] for kind in KINDS), strict=True)
    assert first == pytest.approx((0.7, 0.3, 0.0, 0.0))
    assert second == pytest.approx((0.25, 0.0, 0.625, 0.125))
    assert {each.plot for each in found.values()} == {"time_by_kind"}


KINDS = ("compute", "sync", "wait", "save")


def test_without_reports_it_is_what_the_steps_tell() -> None:
    found = by_name(told(make_run([1.0] * 9), sync_s=0.25, wait_s=0.5))
    assert found["sync_share"].values[0] == pytest.approx(0.25)
    assert found["wait_share"].values[0] == pytest.approx(0.5)
    assert found["compute_share"].values[0] == pytest.approx(0.25)


def test_of_a_command_that_tells_nothing_nothing_is_drawn() -> None:
    assert spending.timeline(make_run([1.0] * 9)) == []
    assert spending.parts_of(make_run([]), make_run([1.0] * 9)) == []
    assert spending.cause_of(make_run([]), make_run([1.0] * 9)) == ""


def test_while_it_is_started_again_there_is_a_gap() -> None:
    steps = [(1, 0.0, 0), (2, 1.0, 0), (3, 9.0, 1), (4, 10.0, 1)]
    lives = [Life(-1.0, 1.5), Life(2.0, 10.0)]
    values = by_name(told(make_run(steps=steps, lives=lives), sync_s=0.5))["sync_share"].values
    assert values[0] == pytest.approx(0.5)
    assert None in values
    assert values[-2] == pytest.approx(0.5)


def test_parts_add_up_to_the_time_from_the_first_step_to_the_last() -> None:
    steps = [(1, 0.0, 0), (2, 2.0, 0), (3, 4.0, 0), (3, 9.0, 1), (4, 11.0, 1), (5, 13.0, 1)]
    run = told(make_run(steps=steps, lives=[Life(-1.0, 4.5), Life(5.0, 13.0)]), sync_s=0.5)
    normal = told(make_run([1.0] * 5), sync_s=0.25)
    parts = {each.name: each for each in spending.parts_of(run, normal)}
    assert sum(each.took_s for each in parts.values()) == pytest.approx(13.0)
    assert sum(each.usual_s for each in parts.values()) == pytest.approx(4.0)
    # The last step of the first start was made again.
    assert parts["starting again"].took_s == pytest.approx(5.0)
    assert parts["exchanging gradients"].took_s == pytest.approx(2.0)
    assert parts["exchanging gradients"].usual_s == pytest.approx(1.0)


def test_the_cause_names_what_took_longer_the_most_first() -> None:
    normal = told(make_run([1.0] * 11), sync_s=0.25)
    run = told(make_run([4.0] * 11), sync_s=2.75)
    assert spending.cause_of(run, normal) == (
        "It took 40 s, 10 s without faults: 25 s more exchanging gradients, 5 s more computing."
    )
    assert spending.cause_of(normal, normal) == "It took as long as without faults."


@pytest.mark.parametrize(
    ("resumed", "said"),
    [
        (4, "Started again after step 3, it made no step twice."),
        (3, "Started again after step 3, it went on from step 2: 1 step made again."),
        (1, "Started again after step 3, it went on from step 0: 3 steps made again."),
    ],
)
def test_the_cause_of_lost_work_is_where_it_went_on(resumed: int, said: str) -> None:
    before = [(1, 0.0, 0), (2, 1.0, 0), (3, 2.0, 0)]
    after = [(number, 3.0 + number - resumed, 1) for number in range(resumed, 6)]
    run = make_run(steps=[*before, *after], lives=[Life(-1.0, 2.5), Life(2.5, after[-1][1])])
    assert spending.cause_of(run, make_run([1.0] * 5)).endswith(said)
