"""A run succeeds when its rule is clear, and says so when it has given up."""

from __future__ import annotations

import pytest

from policies.playbooks import machine
from policies.playbooks.machine import (
    HOLD_DOWN,
    PATIENCE,
    Escalate,
    Hold,
    Release,
    RunState,
    Send,
    Standing,
    StepState,
    hold_down,
)
from tests.unit.policies.playbooks.scenes import START, Stage, program

COOL_DOWN = """\
    - {id: stop, restrict: {kind: no_new_launches, until: cool}}
    - {id: cap, restrict: {kind: power_cap_w, value: gpus * 100.0, until: cause}}
    - id: cool
      wait_until: {condition: thermal_margin_c > 12.0}
      timeout: 10m
      on_timeout: continue
    """
VERIFYING, SUCCEEDED = RunState.VERIFYING, RunState.SUCCEEDED


def on_stage(steps: str = COOL_DOWN, *, attempt: int = 1) -> Stage:
    """Return a run whose rule fires, after its first steps."""
    stage = Stage(program(steps))
    stage.run = machine.begin(stage.program, START, attempt=attempt)
    stage.seen.there = True
    stage.seen.numbers["cap"] = 500.0
    return stage.play()


def test_with_all_steps_through_it_holds_until_its_rule_is_clear() -> None:
    stage = on_stage()
    stage.seen.truths["cool"] = True
    stage.play(2)
    assert (stage.state(), stage.held()) == (VERIFYING, {"0", "1"})
    stage.play(3600)
    assert (stage.state(), stage.held()) == (VERIFYING, {"0", "1"})
    stage.seen.there = False
    stage.play(2)
    assert (stage.state(), stage.held()) == (SUCCEEDED, set())
    assert stage.run.why == "its rule is clear"


def test_a_wait_that_timed_out_gives_nothing_back_while_the_rule_fires() -> None:
    stage = on_stage().play(600)
    assert stage.states()["cool"] is StepState.TIMED_OUT
    assert (stage.state(), stage.held()) == (VERIFYING, {"0", "1"})


def test_the_word_of_a_person_gives_back_what_waits_for_it() -> None:
    stage = on_stage(
        "- {id: stop, restrict: {kind: no_new_launches, until: look}}\n"
        "- {id: look, manual: {instruction: Look}}\n"
    )
    stage.take(stage.machine.confirm(stage.run, "look", by="ada", note=""))
    stage.play()
    assert (stage.state(), stage.held()) == (VERIFYING, set())


def test_once_the_rule_is_clear_nobody_is_kept_waiting() -> None:
    stage = on_stage(
        "- {id: ask, approve: {question: Drain}}\n"
        "- {id: drain, restrict: {kind: drain}}\n"
        "- {id: look, manual: {instruction: Look}}\n"
    )
    assert stage.states() == {"ask": StepState.WAITING}
    stage.seen.there = False
    stage.play(2)
    assert stage.states() == dict.fromkeys(("ask", "drain", "look"), StepState.SKIPPED)
    assert stage.state() is SUCCEEDED


def test_one_that_ends_while_its_rule_fires_tells_people() -> None:
    stage = on_stage("- {id: call, webhook: {channel: c, subject: x}, timeout: 5m}").play(300)
    assert stage.state() is RunState.FAILED
    assert [e for e in stage.effects if isinstance(e, Escalate)] == [
        Escalate("step call was not done in time")
    ]


@pytest.mark.parametrize("what", ["abort", "undo"])
def test_so_does_one_that_a_person_ends_and_it_is_kept_who(what: str) -> None:
    stage = on_stage()
    move = getattr(stage.machine, what)(stage.run, why="x", by="ada")
    stage.take(move)
    stage.play()
    assert (stage.run.ended_by, stage.held()) == ("ada", set())
    assert len(stage.asked(Escalate)) == 1


def test_one_whose_rule_is_clear_ends_quietly() -> None:
    stage = on_stage()
    stage.seen.there = False
    stage.take(stage.machine.abort(stage.run, why="x", by="ada"))
    assert stage.asked(Escalate) == []


def test_people_are_told_once_that_all_steps_did_not_mend_it() -> None:
    stage = on_stage().play(600)
    for _ in range(3):
        stage.play(PATIENCE.total_seconds())
    (told,) = [effect for effect in stage.effects if isinstance(effect, Escalate)]
    assert not told.is_over
    assert stage.state() is VERIFYING


def test_while_it_verifies_a_value_of_readings_is_tightened_and_never_loosened() -> None:
    stage = on_stage().play(600)
    for wanted in (499.0, 600.0, None, 420.0):
        stage.seen.numbers["cap"] = wanted
        stage.play(30)
    values = [e.value for e in stage.effects if isinstance(e, Hold) and e.path == "1"]
    assert values[0] == 500.0
    assert values[-1] == 420.0
    assert set(values) == {500.0, 420.0}
    assert stage.asked(Release) == []


def test_a_further_attempt_holds_on_after_its_rule_is_clear() -> None:
    stage = on_stage(attempt=2).play(600)
    stage.seen.there = False
    stage.play(2)
    assert (stage.state(), stage.held()) == (VERIFYING, {"0", "1"})
    stage.play(HOLD_DOWN.total_seconds() - 1)
    assert stage.state() is VERIFYING
    stage.play(1)
    assert (stage.state(), stage.held()) == (SUCCEEDED, set())


def test_where_it_fires_within_that_time_the_same_run_goes_on() -> None:
    stage = on_stage(attempt=2).play(600)
    for there in (False, True, False):
        stage.seen.there = there
        for _ in range(3):
            stage.play(HOLD_DOWN.total_seconds() / 3 - 1)
        assert (stage.state(), stage.held()) == (VERIFYING, {"0", "1"})
    assert stage.asked(Escalate) == []


def test_each_further_attempt_holds_twice_as_long_up_to_two_hours() -> None:
    minutes = [hold_down(attempt).total_seconds() / 60 for attempt in (1, 2, 3, 4, 5, 6, 99)]
    assert minutes == [0, 15, 30, 60, 120, 120, 120]


def test_it_ends_when_a_person_closes_its_incident() -> None:
    stage = on_stage()
    stage.seen.closed, stage.seen.there = "ada", False
    stage.play(2)
    assert (stage.state(), stage.held(), stage.run.ended_by) == (RunState.ABORTED, set(), "ada")
    assert stage.run.why == "its incident was closed by ada"


def test_a_restriction_that_is_held_back_asks_once_and_the_run_goes_on() -> None:
    stage = on_stage()
    stage.seen.standings["1"] = Standing(StepState.HELD, 7, "waits for a person: too much")
    stage.play(2).play(2)
    assert stage.states()["cap"] is StepState.HELD
    assert stage.states()["cool"] is StepState.WAITING
    assert stage.asked(Send) == ["1"]
    stage.seen.standings["1"] = Standing(StepState.DONE, 7)
    stage.play(2)
    step = stage.run.find("1")
    assert step is not None
    assert (step.state, step.restriction, step.note) == (StepState.DONE, 7, "")


def test_what_is_lifted_or_without_effect_is_not_done_any_more() -> None:
    for state in (StepState.REFUSED, StepState.INEFFECTIVE):
        stage = on_stage()
        stage.seen.standings["1"] = Standing(state, 7, "so it is")
        stage.play(2)
        assert stage.states()["cap"] is state
