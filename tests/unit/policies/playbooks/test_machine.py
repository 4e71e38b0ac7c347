"""How a run goes: one story for each thing that may happen to it."""

from __future__ import annotations

import pytest

from policies.playbooks.machine import (
    Hold,
    Issue,
    NotPossible,
    Outcome,
    Progress,
    Release,
    RunState,
    Send,
    StepState,
    Withdraw,
)
from tests.unit.policies.playbooks.scenes import Stage, program

DONE, WAITING = StepState.DONE, StepState.WAITING

COOL_DOWN = """\
    - id: stop
      restrict: {kind: no_new_launches, until: cool}
    - id: cap
      restrict: {kind: power_cap_w, value: 520}
    - id: cool
      wait_until: {condition: thermal_margin_c > 12.0, for: 5m}
      timeout: 1h
      on_timeout: continue
    - id: tell
      notify: {subject: Cool again}
    """


def test_it_holds_until_the_step_that_it_names_and_the_rest_until_its_end() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    assert stage.states() == {"stop": DONE, "cap": DONE, "cool": WAITING}
    assert stage.state() is RunState.WAITING
    assert stage.held() == {"0", "1"}
    stage.seen.truths["cool"] = True
    for _ in range(30):
        stage.play(10)
    assert stage.state() is RunState.WAITING
    stage.play(10)
    assert stage.state() is RunState.SUCCEEDED
    assert stage.held() == set()
    assert stage.asked(Release) == ["0", "1"]
    assert stage.asked(Send) == ["3"]


def test_a_condition_that_fails_in_between_has_to_hold_anew() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    for truth in (True, False, None, True):
        stage.seen.truths["cool"] = truth
        for _ in range(20):
            stage.play(10)
    assert stage.state() is RunState.WAITING
    for _ in range(11):
        stage.play(10)
    assert stage.state() is RunState.SUCCEEDED


def test_a_time_in_which_nobody_looked_does_not_count() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    stage.seen.truths["cool"] = True
    stage.play(10)
    stage.play(20 * 60)
    assert stage.state() is RunState.WAITING


def test_leases_are_renewed_at_half_of_their_time() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    stage.play(299)
    assert stage.asked(Hold) == ["0", "1"]
    stage.play(1)
    assert stage.asked(Hold) == ["0", "1", "0", "1"]
    assert [effect.renews for effect in stage.effects if isinstance(effect, Hold)] == [
        False, False, True, True,
    ]  # fmt: skip


def test_after_an_outage_what_is_too_late_takes_the_way_for_that() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    stage.seen.truths["cool"] = True
    stage.play(2 * 3600)
    assert stage.states()["cool"] is StepState.TIMED_OUT
    assert stage.state() is RunState.SUCCEEDED
    # The leases that had ended meanwhile were not taken up again.
    assert stage.asked(Hold) == ["0", "1"]


def test_after_an_outage_a_lease_is_taken_up_again_only_for_a_cause() -> None:
    for there, state, held in (
        (True, RunState.WAITING, {"0", "1"}),
        (False, RunState.SUCCEEDED, set()),
    ):
        stage = Stage(program(COOL_DOWN)).play()
        stage.seen.there = there
        stage.play(30 * 60)
        assert stage.state() is state
        assert stage.held() == held


def test_nothing_more_is_restricted_once_the_cause_is_gone() -> None:
    stage = Stage(
        program(
            """\
            - {id: wait, wait_until: {for: 1m}}
            - {id: cap, restrict: {kind: power_cap_w, value: 520}}
            - {id: move, migrate: {to: local-only}}
            - {id: tell, notify: {subject: Over}}
            """
        )
    ).play()
    stage.seen.there = False
    stage.play(60)
    skipped = StepState.SKIPPED
    assert stage.states() == {"wait": DONE, "cap": skipped, "move": skipped, "tell": DONE}
    assert stage.asked(Hold) == stage.asked(Issue) == []


def test_it_may_hold_until_the_cause_is_gone() -> None:
    stage = Stage(
        program("- {id: stop, restrict: {kind: no_new_launches, until: cause, lease: 1m}}")
    )
    stage.seen.there = True
    for _ in range(100):
        stage.play(10)
    assert (stage.state(), stage.held()) == (RunState.VERIFYING, {"0"})
    stage.seen.there = False
    stage.play(2)
    assert (stage.state(), stage.held()) == (RunState.SUCCEEDED, set())


@pytest.mark.parametrize(
    ("truth", "expected"), [(True, ["high"]), (False, ["low"]), (None, ["low"])]
)
def test_a_branch_takes_one_way_and_unknown_is_not_yes(
    truth: bool | None, expected: list[str]
) -> None:
    stage = Stage(
        program(
            """\
            - id: which
              branch:
                when: power_use > 0.9
                then: [{id: high, notify: {subject: High}}]
                else: [{id: low, notify: {subject: Low}}]
            - {id: after, notify: {subject: After}}
            """
        )
    )
    stage.seen.truths["which"] = truth
    stage.play()
    assert list(stage.states()) == ["which", *expected, "after"]
    assert stage.state() is RunState.SUCCEEDED


def test_a_value_that_is_unknown_restricts_nothing() -> None:
    stage = Stage(
        program("- {id: cap, restrict: {kind: power_cap_w, value: power_budget_w / gpus}}")
    ).play()
    assert stage.state() is RunState.FAILED
    assert "unknown" in stage.run.why
    assert stage.effects == []


# --- People ---------------------------------------------------------------------------------------

ASK = """\
    - {id: stop, restrict: {kind: no_new_launches}}
    - {id: ask, approve: {question: Cap, roles: [operator]}, timeout: 10m}
    - {id: cap, restrict: {kind: power_cap_w, value: 520}}
    - {id: look, manual: {instruction: Look}, timeout: 10m, on_timeout: fail}
    """


def test_an_approval_lets_it_go_on_and_a_second_one_comes_too_late() -> None:
    stage = Stage(program(ASK)).play()
    assert stage.asked(Send) == ["1"]
    stage.take(stage.machine.answer(stage.run, "ask", yes=True, by="ada", note="go"))
    stage.play()
    assert stage.held() == {"0", "2"}
    with pytest.raises(NotPossible, match="does not wait"):
        stage.machine.answer(stage.run, "ask", yes=True, by="bob", note="")


def test_a_refusal_ends_it_and_gives_back_what_it_held() -> None:
    stage = Stage(program(ASK)).play()
    stage.take(stage.machine.answer(stage.run, "ask", yes=False, by="ada", note="no"))
    assert (stage.state(), stage.held()) == (RunState.ABORTED, set())
    assert stage.run.why == "ada refused step ask"


def test_silence_ends_it() -> None:
    stage = Stage(program(ASK)).play().play(600)
    assert (stage.state(), stage.held()) == (RunState.ABORTED, set())


def test_an_answer_after_the_deadline_does_not_count_though_nobody_has_looked_yet() -> None:
    stage = Stage(program(ASK)).play()
    stage.now += (stage.run.steps[-1].deadline or stage.now) - stage.now
    with pytest.raises(NotPossible, match="too late"):
        stage.machine.answer(stage.run, "ask", yes=True, by="ada", note="")


def test_silence_may_turn_to_others_who_then_may_answer_too() -> None:
    steps = ASK.replace(
        "roles: [operator]",
        "roles: [responder], on_silence: escalate, escalate: {roles: [admin], timeout: 5m}",
    )
    stage = Stage(program(steps)).play()
    assert stage.machine.approvers(stage.run, "ask")[1] == {"responder"}
    stage.play(600)
    assert stage.machine.approvers(stage.run, "ask")[1] == {"responder", "admin"}
    assert [e.escalated for e in stage.effects if isinstance(e, Send)] == [False, True]
    stage.play(300)
    assert stage.state() is RunState.ABORTED


def test_a_manual_step_is_confirmed_or_takes_its_way_for_no_answer() -> None:
    stage = Stage(program("- {id: look, manual: {instruction: Look}, timeout: 1m}")).play()
    with pytest.raises(NotPossible, match="another answer"):
        stage.machine.answer(stage.run, "look", yes=True, by="ada", note="")
    late = Stage(stage.program).play().play(60)
    assert late.state() is RunState.FAILED
    stage.take(stage.machine.confirm(stage.run, "look", by="ada", note="seen"))
    stage.play()
    assert stage.state() is RunState.SUCCEEDED
    assert stage.run.steps[0].by == "ada"


def test_a_pause_begins_nothing_and_keeps_what_is_held() -> None:
    stage = Stage(program(ASK)).play(1)
    stage.take(stage.machine.pause(stage.run, by="ada"))
    for _ in range(10):
        stage.play(300)
    assert (stage.state(), stage.held()) == (RunState.PAUSED, {"0"})
    with pytest.raises(NotPossible, match="paused"):
        stage.machine.answer(stage.run, "ask", yes=True, by="ada", note="")
    stage.take(stage.machine.resume(stage.run))
    stage.play(599)
    assert stage.state() is RunState.WAITING
    stage.play(1)
    assert stage.state() is RunState.ABORTED


def test_no_pause_outlasts_the_time_limit() -> None:
    stage = Stage(program(ASK)).play()
    stage.take(stage.machine.pause(stage.run, by="ada"))
    stage.play(86_400)
    assert (stage.state(), stage.held()) == (RunState.FAILED, set())


def test_an_abort_gives_back_what_is_held_at_once() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    stage.take(stage.machine.abort(stage.run, why="enough", by="ada"))
    assert (stage.state(), stage.held()) == (RunState.ABORTED, set())
    with pytest.raises(NotPossible, match="over"):
        stage.machine.abort(stage.run, why="again", by="ada")
    assert stage.machine.due(stage.run) is None


# --- What others do -------------------------------------------------------------------------------

MOVE = """\
    - {id: save, checkpoint: {}, timeout: 5m, on_timeout: continue}
    - {id: call, webhook: {channel: dcim, subject: Hi}, on_error: pause}
    - {id: move, migrate: {to: local-only}, on_timeout: undo}
    """


def test_it_waits_for_what_it_has_asked_of_others() -> None:
    stage = Stage(program(MOVE)).play()
    assert stage.asked(Issue) == ["0"]
    stage.seen.outcomes["0"] = Outcome(Progress.DONE, "3 jobs saved")
    stage.play(2)
    assert stage.asked(Send) == ["1"]
    stage.seen.outcomes["1"] = Outcome(Progress.DONE)
    stage.play(2)
    stage.seen.outcomes["2"] = Outcome(Progress.DONE)
    stage.play(2)
    assert stage.state() is RunState.SUCCEEDED
    assert stage.run.steps[0].note == "3 jobs saved"


def test_what_was_not_done_in_time_is_not_asked_for_any_more() -> None:
    stage = Stage(program(MOVE)).play().play(300)
    assert stage.states()["save"] is StepState.TIMED_OUT
    assert stage.asked(Withdraw) == ["0"]


def test_an_error_may_pause_it_and_a_person_has_it_go_on() -> None:
    stage = Stage(program(MOVE)).play()
    stage.seen.outcomes["0"] = Outcome(Progress.DONE)
    stage.seen.outcomes["1"] = Outcome(Progress.FAILED, "refused with 403")
    stage.play(2)
    assert stage.state() is RunState.PAUSED
    assert stage.run.why == "step call: refused with 403"
    stage.take(stage.machine.resume(stage.run))
    stage.play()
    assert stage.states()["move"] is WAITING


def test_a_failed_effect_is_the_error_of_its_step() -> None:
    stage = Stage(program(COOL_DOWN))
    first = stage.machine.move(stage.run)
    assert first is not None
    stage.take(stage.machine.fail(stage.run, "0", "no such rack"))
    assert (stage.state(), stage.run.why) == (RunState.FAILED, "step stop: no such rack")
    assert stage.effects == []


def test_a_restriction_that_cannot_be_renewed_does_not_turn_the_run_back() -> None:
    stage = Stage(program(COOL_DOWN)).play()
    place = stage.run.place
    stage.take(stage.machine.lose(stage.run, "0", "the rack is gone"))
    assert (stage.run.place, stage.state()) == (place, RunState.WAITING)
    assert stage.run.steps[0].lease_until is None
    assert stage.held() == {"1"}


# --- Taking back ----------------------------------------------------------------------------------

UNDO = """\
    - {id: cap, restrict: {kind: power_cap_w, value: 520}}
    - id: valve
      manual: {instruction: Open}
      undo: {manual: {instruction: Close}, timeout: 5m}
    - {id: move, migrate: {to: local-only}}
    - {id: never, migrate: {to: held-for-review}}
    """


def test_what_was_done_is_taken_back_in_reverse_and_nothing_else() -> None:
    stage = Stage(program(UNDO)).play()
    stage.take(stage.machine.confirm(stage.run, "valve", by="ada", note=""))
    stage.play()
    stage.seen.outcomes["2"] = Outcome(Progress.DONE)
    stage.take(stage.machine.abort(stage.run, why="stop", by="ada"))
    stage.take(stage.machine.undo(stage.run, why="back", by="ada"))
    stage.play()
    # The move had been asked for, and may have begun.
    assert stage.asked(Issue) == ["2", "2/undo"]
    stage.seen.outcomes["2/undo"] = Outcome(Progress.DONE)
    stage.play(2)
    assert stage.states()["valve/undo"] is WAITING
    stage.take(stage.machine.confirm(stage.run, "valve/undo", by="ada", note=""))
    stage.play()
    assert stage.state() is RunState.UNDONE
    assert list(stage.states()) == ["cap", "valve", "move", "move/undo", "valve/undo"]
    assert stage.held() == set()


def test_what_could_not_be_taken_back_is_named() -> None:
    stage = Stage(program(UNDO)).play()
    stage.take(stage.machine.confirm(stage.run, "valve", by="ada", note=""))
    stage.take(stage.machine.undo(stage.run, why="back", by="ada"))
    stage.play()
    assert stage.state() is RunState.UNDOING
    assert stage.held() == {"0"}
    stage.play(300)
    assert stage.state() is RunState.FAILED
    assert stage.run.why == "not taken back: valve"
    assert stage.held() == set()


def test_a_run_that_is_taken_back_keeps_its_leases_until_their_turn() -> None:
    stage = Stage(program(UNDO)).play()
    stage.take(stage.machine.confirm(stage.run, "valve", by="ada", note=""))
    stage.take(stage.machine.undo(stage.run, why="back", by="ada"))
    for _ in range(8):
        stage.play(30)
    assert stage.state() is RunState.UNDOING
    assert stage.held() == {"0"}
