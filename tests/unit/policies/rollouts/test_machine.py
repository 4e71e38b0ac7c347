"""A rollout goes on only by what is seen, and only as far as its reviewers let it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.rollouts import machine
from policies.rollouts.document import Plan, read
from policies.rollouts.judging import Judgement, Verdict
from policies.rollouts.machine import Change, NotPossible, Rollout, RolloutState, Seen, TakeBack

NOW = datetime(2026, 11, 27, tzinfo=UTC)
_TEXT = """\
name: driver
change: {{kind: driver, version: "580"}}
playbook: change-by-hand
steps: [{{share: 0.25}}, {{share: 1.0}}]
guards: [{{metric: power, matters: 0.02}}]
changed_within: 1h
by_itself: [{may}]
"""


def _plan(may: str = "promote, roll_back") -> Plan:
    return read(_TEXT.format(may=may))


def _at(state: RolloutState, step: int = 0) -> Rollout:
    soaking = state in (RolloutState.SOAKING, RolloutState.HELD)
    return Rollout(state, step, NOW, soaking_since=NOW if soaking else None)


def _seen(verdict: Verdict | None = None, missing: tuple[str, ...] = ()) -> Seen:
    return Seen(missing, (), None if verdict is None else Judgement(verdict, "said", ()))


def _next(rollout: Rollout, seen: Seen, may: str = "promote, roll_back", hours: float = 0) -> str:
    found = machine.move(_plan(may), rollout, seen, NOW + timedelta(hours=hours))
    return "" if found is None else found.rollout.state


def test_it_begins_with_its_first_step() -> None:
    found = machine.move(_plan(), _at(RolloutState.PENDING), _seen(), NOW)
    assert found is not None
    assert (found.rollout.state, found.effects) == (RolloutState.CHANGING, (Change(0),))


def test_a_step_soaks_once_every_rack_reports_the_change_and_not_before() -> None:
    changing = _at(RolloutState.CHANGING)
    assert _next(changing, _seen(missing=("oslo/A01",))) == ""
    assert _next(changing, _seen()) == RolloutState.SOAKING


def test_racks_that_do_not_report_in_time_hold_it() -> None:
    changing = _at(RolloutState.CHANGING)
    found = machine.move(_plan(), changing, _seen(missing=("a",)), NOW + timedelta(hours=1.1))
    assert found is not None
    assert found.rollout.state is RolloutState.HELD
    assert "a" in found.rollout.why


def test_a_playbook_that_failed_holds_it_unless_the_racks_have_the_change_all_the_same() -> None:
    changing, failed = _at(RolloutState.CHANGING), ("run 7 on oslo/A01 failed",)
    assert _next(changing, Seen(("oslo/A01",), failed)) == RolloutState.HELD
    assert _next(changing, Seen((), failed)) == RolloutState.SOAKING


@pytest.mark.parametrize(
    ("verdict", "may", "state"),
    [
        (Verdict.WAIT, "promote, roll_back", ""),
        (Verdict.PROMOTE, "promote", RolloutState.CHANGING),
        (Verdict.PROMOTE, "roll_back", RolloutState.HELD),
        (Verdict.ROLL_BACK, "roll_back", RolloutState.ROLLING_BACK),
        (Verdict.ROLL_BACK, "promote", RolloutState.HELD),
        (Verdict.HOLD, "promote, roll_back", RolloutState.HELD),
    ],
)
def test_a_verdict_is_acted_on_only_where_reviewers_let_it(
    verdict: Verdict, may: str, state: str
) -> None:
    assert _next(_at(RolloutState.SOAKING), _seen(verdict), may) == state


def test_a_rack_that_loses_the_change_while_it_soaks_holds_it() -> None:
    seen = _seen(Verdict.PROMOTE, missing=("oslo/A01",))
    assert _next(_at(RolloutState.SOAKING), seen) == RolloutState.HELD


def test_it_is_rolled_back_when_no_rack_reports_the_change_any_more() -> None:
    back = _at(RolloutState.ROLLING_BACK)
    assert _next(back, _seen(missing=("oslo/A01",))) == ""
    assert _next(back, _seen()) == RolloutState.ROLLED_BACK


def test_with_all_racks_changed_there_is_nothing_left_to_judge() -> None:
    assert _next(_at(RolloutState.CHANGING, 1), _seen()) == RolloutState.DONE


def test_a_person_may_promote_what_is_held_but_not_past_a_step_that_is_not_there() -> None:
    held = _at(RolloutState.HELD)
    found = machine.promote(_plan(""), held, _seen(), NOW, by="anna", why="seen")
    assert found.effects == (Change(1),)
    with pytest.raises(NotPossible, match="not done"):
        machine.promote(_plan(""), held, _seen(missing=("a",)), NOW, by="anna", why="seen")


def test_what_is_held_goes_on_where_it_was() -> None:
    held = machine.hold(_at(RolloutState.SOAKING), NOW, by="anna", why="lunch").rollout
    assert _next(held, _seen(Verdict.ROLL_BACK)) == ""
    assert machine.resume(held, NOW, by="anna", why="back").rollout.state is RolloutState.SOAKING
    changing = replace(held, soaking_since=None)
    found = machine.resume(changing, NOW, by="anna", why="back")
    assert found.rollout.state is RolloutState.CHANGING


def test_a_step_that_could_not_be_begun_is_tried_again_and_not_passed_over() -> None:
    held = replace(_at(RolloutState.HELD), soaking_since=None, has_begun=False)
    with pytest.raises(NotPossible, match="has not begun"):
        machine.promote(_plan(), held, _seen(), NOW, by="anna", why="go")
    found = machine.resume(held, NOW, by="anna", why="the playbook is there now")
    assert (found.rollout.state, found.effects) == (RolloutState.CHANGING, (Change(0),))
    assert found.rollout.has_begun


def test_a_person_may_roll_back_what_is_done_but_not_what_has_not_begun() -> None:
    found = machine.roll_back(_at(RolloutState.DONE, 1), NOW, by="anna", why="late trouble")
    assert found.effects == (TakeBack("late trouble"),)
    with pytest.raises(NotPossible):
        machine.roll_back(_at(RolloutState.PENDING), NOW, by="anna", why="no")


_SEEN = st.builds(_seen, st.sampled_from([None, *Verdict]), st.sampled_from([(), ("oslo/A01",)]))


@given(st.lists(_SEEN, max_size=30), st.sampled_from(["", "promote", "roll_back"]))
def test_whatever_is_seen_it_changes_each_step_once_in_order_and_ends_for_good(
    seen: list[Seen], may: str
) -> None:
    rollout, changed = _at(RolloutState.PENDING), []
    for at, each in enumerate(seen):
        found = machine.move(_plan(may), rollout, each, NOW + timedelta(minutes=at))
        if found is None:
            continue
        assert not rollout.state.is_over
        for effect in found.effects:
            assert may == "roll_back" or not isinstance(effect, TakeBack)
            changed += [effect.step] if isinstance(effect, Change) else []
        rollout = found.rollout
    assert changed == list(range(len(changed)))
    assert len(changed) <= 1 or may == "promote"
