"""An objective's document: what is taken, and what is refused with its place."""

from __future__ import annotations

import pytest

from admission.slos import document
from admission.slos.document import Measure
from headroom.contracts import FieldError
from headroom.documents import DocumentError

GOOD = """\
name: dense-begins
description: Where there is power, dense training does not wait for long.
measure: start
select:
  classes: [high-density-training]
  projects: [vision]
target: 0.95
within: 12m
when: |
  power_headroom > 0.2
  && stale_share < 0.1
window: 28d
"""


def problems(text: str) -> list[FieldError]:
    with pytest.raises(DocumentError) as refused:
        document.read(text)
    return refused.value.problems


def test_an_objective_is_read() -> None:
    found = document.read(GOOD)
    assert (found.name, found.measure, found.target) == ("dense-begins", Measure.START, 0.95)
    assert (found.within_s, found.window_s) == (720.0, 28 * 86_400.0)
    assert found.classes == {"high-density-training"}
    assert found.projects == {"vision"}
    assert found.when is not None
    assert found.when.fields == {"power_headroom", "stale_share"}


def test_it_says_in_a_sentence_what_it_promises() -> None:
    assert document.read(GOOD).sentence == (
        "95 % of jobs of class high-density-training of project vision begin within 12 min "
        "while power_headroom > 0.2 && stale_share < 0.1."
    )


def test_resumes_may_be_timed_by_checkpoints() -> None:
    text = "name: r\nmeasure: cross_site_resume\ntarget: 0.9\nwithin: checkpoint_interval\n"
    found = document.read(text)
    assert found.within_s is None
    assert found.sentence == "90 % of jobs resume at another site within one checkpoint interval."


LOSS = """\
name: elsewhere
measure: cross_site_loss
target: 0.9
within: checkpoint_interval
when: uplink_use <= 0.5
"""


def test_a_loss_is_promised_for_a_share_of_the_time() -> None:
    assert document.read(LOSS).sentence == (
        "90 % of the time while uplink_use <= 0.5, jobs would lose at most one checkpoint interval "
        "by a resume at another site."
    )
    always = LOSS.replace("checkpoint_interval", "30m").replace("when: uplink_use <= 0.5\n", "")
    assert document.read(always).sentence == (
        "90 % of the time, jobs would lose at most 30 min by a resume at another site."
    )


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("cross_site_loss", "cross_site_lost", "measure"),
        ("checkpoint_interval", "checkpoint_intervals", "within"),
        ("checkpoint_interval", "0s", "within"),
        ("uplink_use", "uplink_used", "when"),
        ("target: 0.9", "target: 1", "target"),
    ],
)
def test_a_fault_in_the_promise_of_a_loss_names_its_field(old: str, new: str, field: str) -> None:
    (problem,) = problems(LOSS.replace(old, new))
    assert problem.field == field
    assert problem.line


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("target: 0.95", "target: 1.5", (7, 9), "Expected `float` < 1.0"),
        ("measure: start", "measure: finish", (3, 10), "Invalid enum value 'finish'"),
        ("within: 12m", "within: soon", (8, 9), "'soon' is no length of time"),
        ("within: 12m", "within: 30d", (8, 9), "30d is not from 1 s to 7 d"),
        ("within: 12m", "within: checkpoint_interval", (8, 9), "no checkpoint to go by"),
        ("window: 28d", "window: 2h", (12, 9), "2h is not from 1 d to 30 d"),
        ("stale_share <", "stale_shares <", (11, 6), "undeclared reference to 'stale_shares'"),
        ("< 0.1", "< 1", (11, 18), "no matching overload"),
        ("target: 0.95", "target: 0.95\ntarget: 0.9", (8, 1), "'target' is given twice"),
        ("target: 0.95", "targets: 0.95", (7, 1), "unknown field `targets`"),
    ],
)
def test_faults_are_told_with_their_place(
    old: str, new: str, place: tuple[int, int], message: str
) -> None:
    (problem,) = problems(GOOD.replace(old, new))
    assert (problem.line, problem.column) == place
    assert message in problem.message


def test_all_faults_are_told_at_once() -> None:
    text = GOOD.replace("12m", "soon").replace("28d", "later").replace("> 0.2", "> nothing")
    assert [problem.field for problem in problems(text)] == ["within", "when", "window"]


def test_an_unknown_fact_is_told_with_one_that_is_near() -> None:
    (problem,) = problems(GOOD.replace("power_headroom", "power_headrom"))
    assert "power_headroom" in problem.hint
