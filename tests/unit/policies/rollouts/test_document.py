"""Rollouts are read whole, and what is wrong with them is told with its place."""

from __future__ import annotations

import pytest

from headroom.documents import DocumentError
from policies.rollouts.document import May, What, read

_TEXT = """\
name: driver-580
change: {kind: driver, version: 580.95.05}
playbook: change-by-hand
steps:
  - {share: 0.25, soak: 30m, longest: 3h}
  - {share: 0.5}
  - {share: 1.0}
guards:
  - {metric: step_time, matters: 0.02}
  - {metric: xids}
by_itself: [promote, roll_back]
"""


def test_a_rollout_says_what_it_changes_in_which_steps() -> None:
    plan = read(_TEXT)
    assert (plan.what, plan.version, plan.field) == (What.DRIVER, "580.95.05", "driver")
    assert [step.share for step in plan.steps] == [0.25, 0.5, 1.0]
    assert (plan.judged_steps, plan.before_s) == (2, 3 * 3600.0)
    assert plan.by_itself == {May.PROMOTE, May.ROLL_BACK}
    said = "driver 580.95.05: 25 % of the GPUs, then 50 % of the GPUs, then all that is left"
    assert plan.sentence == said


def test_it_may_do_nothing_by_itself_unless_reviewers_let_it() -> None:
    assert not read(_TEXT.replace("by_itself: [promote, roll_back]\n", "")).by_itself


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("share: 0.5", "share: 0.2", "steps[1].share"),
        ("share: 0.25,", "share: 1.0,", "steps[0].share"),
        ("share: 0.5", "share: 0.5, site: oslo", "steps[1]"),
        ("longest: 3h", "longest: 20m", "steps[0].longest"),
        ("metric: xids", "metric: luck", "guards[1].metric"),
        ("metric: xids", "metric: step_time, matters: 0.1", "guards[1].metric"),
        (", matters: 0.02", "", "guards[0].matters"),
        ("soak: 30m", "soak: long", "steps[0].soak"),
        ("kind: driver", "kind: luck", "change.kind"),
        ("name: driver-580", "name: driver-580\nalpha: 0.9", "alpha"),
    ],
)
def test_a_fault_is_told_with_its_field_and_its_line(old: str, new: str, field: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(_TEXT.replace(old, new))
    assert field in [each.field for each in caught.value.problems]
    assert all(each.line > 0 for each in caught.value.problems)
