"""A rule and the runs of its playbook, whatever happens in whatever order.

It fires and clears; breakers hold restrictions back and people approve, refuse, abort and undo; all
is down for a while; directives are done or fail. The playbooks are the built-in ones.
"""

from __future__ import annotations

from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.playbooks import builtin, machine
from policies.playbooks.machine import (
    Escalate,
    Hold,
    Move,
    NotPossible,
    Outcome,
    Progress,
    Release,
    Run,
    RunState,
    Standing,
    StepState,
)
from policies.playbooks.parse import parse
from policies.playbooks.pursuit import Way, back_off, decide
from tests.unit.policies.playbooks.scenes import START, Seen, Stage

PROGRAMS = {name: parse(text) for name, text in builtin.texts().items()}
#: Rounds of the loop are so far apart, s.
ROUND_S = 2.0


class Pursued(Stage):
    """A run that is started, moved on and followed by others, as the loop does it."""

    def __init__(self, name: str) -> None:
        super().__init__(PROGRAMS[name])
        self.seen = Seen(there=False)
        self.past: list[Run] = []
        #: by state at their end: whether the rule fired then, and whether people were told
        self.ended: list[tuple[Run, bool, bool]] = []
        self.live: Run | None = None
        self.fired_at = START
        self.breaker_is_open = False

    def rounds(self, seconds: float, *, watched: bool = True) -> None:
        """Let time pass, with a round of the loop every so often, or only at the end of it."""
        end = self.now + timedelta(seconds=seconds)
        step = timedelta(seconds=ROUND_S if seconds <= 60.0 else seconds / 30.0)
        while watched and self.now + step < end:
            self.now += step
            self.round()
        self.now = end
        self.round()

    def round(self) -> None:
        if self.seen.there:
            runs = [*([self.live] if self.live else []), *reversed(self.past)]
            decided = decide(self.fired_at, runs, self.now)
            if decided.way is Way.START:
                self.live = machine.begin(self.program, self.now, attempt=decided.attempt)
                self.seen.standings.clear()
                self.seen.outcomes.clear()
        for _ in range(500):
            move = None if self.live is None else self.machine.move(self.live)
            if move is None:
                return
            self.made(move)
        raise AssertionError("it goes on for ever")

    def made(self, move: Move) -> None:
        """Perform a move, as shells do: restrictions come in, or are held back."""
        run = move.run
        for number, effect in enumerate(move.effects):
            if isinstance(effect, Release):
                self.seen.standings.pop(effect.path, None)
            elif isinstance(effect, Hold) and not effect.renews and self.breaker_is_open:
                self.seen.standings[effect.path] = Standing(StepState.HELD, number, "held back")
                run = self.machine.held_back(run, effect.path, "held back")
            elif isinstance(effect, Hold) and not effect.renews:
                self.seen.standings[effect.path] = Standing(StepState.DONE, number)
        self.live = run
        if run.state.is_over:
            told = any(isinstance(effect, Escalate) for effect in move.effects)
            self.ended.append((run, bool(self.seen.there), told))
            self.past.append(run)
            self.live = None


class AnyOrder(RuleBasedStateMachine):
    """One rule on one place."""

    @initialize(name=st.sampled_from(sorted(PROGRAMS)))
    def begin(self, name: str) -> None:
        self.stage = Pursued(name)
        self.checked = 0

    @rule(seconds=st.sampled_from([2, 30, 120, 900, 4000]))
    def time_passes(self, seconds: float) -> None:
        self.stage.rounds(seconds)

    @rule(seconds=st.sampled_from([90, 900, 20_000]))
    def all_is_down(self, seconds: float) -> None:
        self.stage.rounds(seconds, watched=False)

    @rule()
    def it_fires(self) -> None:
        if not self.stage.seen.there:
            self.stage.now += timedelta(seconds=ROUND_S)
            self.stage.seen.there, self.stage.fired_at = True, self.stage.now
        self.stage.rounds(ROUND_S)

    @rule()
    def it_clears(self) -> None:
        self.stage.seen.there = False
        self.stage.rounds(ROUND_S)

    @rule(truth=st.sampled_from([True, False, None]), number=st.sampled_from([None, 400.0, 300.0]))
    def something_is_measured(self, truth: bool | None, number: float | None) -> None:
        for each in self.stage.program.steps:
            self.stage.seen.truths[each.id] = truth
            self.stage.seen.numbers[each.id] = number

    @rule(is_open=st.booleans())
    def the_breaker_is_thrown(self, is_open: bool) -> None:
        self.stage.breaker_is_open = is_open

    @rule(state=st.sampled_from([StepState.DONE, StepState.REFUSED, StepState.INEFFECTIVE]))
    def what_is_restricted_turns_out_so(self, state: StepState) -> None:
        for path, found in self.stage.seen.standings.items():
            self.stage.seen.standings[path] = Standing(state, found.restriction, str(state))
        self.stage.rounds(ROUND_S)

    @rule(progress=st.sampled_from(Progress))
    def directives_go_on(self, progress: Progress) -> None:
        for each in self.stage.live.steps if self.stage.live else ():
            self.stage.seen.outcomes[each.path] = Outcome(progress)
        self.stage.rounds(ROUND_S)

    @rule(what=st.sampled_from(["yes", "no", "confirm", "abort", "undo", "pause", "resume"]))
    def a_person_acts(self, what: str) -> None:
        run, at = self.stage.live, self.stage.machine
        if run is None or (what == "abort" and run.state is RunState.UNDOING):
            return
        waiting = [s for s in run.steps if s.state is StepState.WAITING]
        step = self.stage.program.step(waiting[-1].path).id if waiting else ""
        try:
            move = {
                "yes": lambda: at.answer(run, step, yes=True, by="ada", note=""),
                "no": lambda: at.answer(run, step, yes=False, by="ada", note=""),
                "confirm": lambda: at.confirm(run, step, by="ada", note=""),
                "abort": lambda: at.abort(run, why="x", by="ada"),
                "undo": lambda: at.undo(run, why="x", by="ada"),
                "pause": lambda: at.pause(run, by="ada"),
                "resume": lambda: at.resume(run),
            }[what]()
        except NotPossible:
            return
        self.stage.made(move)

    # --- What always holds -----------------------------------------------------------------------

    @invariant()
    def none_succeeded_while_its_rule_fired_and_none_gave_up_in_silence(self) -> None:
        new, self.checked = self.stage.ended[self.checked :], len(self.stage.ended)
        for run, fired, told in new:
            assert not (fired and run.state is RunState.SUCCEEDED)
            assert told is fired

    @invariant()
    def while_it_fires_a_run_is_under_way_or_people_know_that_none_is(self) -> None:
        stage = self.stage
        if not stage.seen.there or stage.live is not None:
            return
        last, fired, told = stage.ended[-1]
        assert last.ended_at is not None
        assert last.ended_at >= stage.fired_at
        assert fired
        assert told
        by_itself = stage.now < last.ended_at + back_off(last.attempt)
        assert last.ended_by or by_itself

    @invariant()
    def what_is_done_is_in_force(self) -> None:
        for step in self.stage.live.steps if self.stage.live else ():
            if step.lease_until is not None and step.state is StepState.DONE:
                assert step.path in self.stage.seen.standings

    @invariant()
    def nothing_is_in_force_without_a_run(self) -> None:
        held = (
            {s.path for s in self.stage.live.steps if s.lease_until} if self.stage.live else set()
        )
        assert set(self.stage.seen.standings) <= held

    @invariant()
    def a_further_attempt_holds_on_after_its_rule_is_clear(self) -> None:
        for run, _, _ in self.stage.ended[-1:]:
            if run.state is RunState.SUCCEEDED and run.attempt > 1:
                assert run.ended_at is not None
                assert run.clear_since is not None
                assert run.ended_at - run.clear_since >= machine.hold_down(run.attempt)

    def teardown(self) -> None:
        """When it has cleared, all is let go, though nobody does anything."""
        if not hasattr(self, "stage"):
            return
        self.stage.seen.there = False
        for _ in range(20):
            self.stage.rounds(86_400.0)
        assert self.stage.live is None
        assert self.stage.seen.standings == {}


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=250, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_exit_of_each_built_in_playbook_is_that_its_rule_is_clear(name: str) -> None:
    stage = Pursued(name)
    stage.seen.there = True
    for each in stage.program.steps:
        stage.seen.truths[each.id] = True
        stage.seen.numbers[each.id] = 400.0
        stage.seen.outcomes[each.path] = Outcome(Progress.DONE)
    stage.rounds(6 * 3600.0)
    assert stage.live is not None
    assert not stage.ended
    stage.seen.there = False
    stage.rounds(2 * 86_400.0)
    assert [run.state for run, _, _ in stage.ended] == [RunState.SUCCEEDED]
