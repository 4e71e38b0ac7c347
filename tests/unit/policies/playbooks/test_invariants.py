"""What holds of every run, whatever happens to it and in whatever order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.playbooks.document import Program
from policies.playbooks.machine import (
    Effect,
    Hold,
    Issue,
    NotPossible,
    Outcome,
    Progress,
    RunState,
    Send,
    StepState,
    Withdraw,
)
from tests.unit.policies.playbooks.scenes import Stage, program

#: whether the rule of a run fires; None: it has none
THERE = st.sampled_from([True, False, None])
_WAYS = ["continue", "fail", "undo", "pause"]
_UNDO = ["", ", undo: nothing", ", undo: {manual: {instruction: Back}, timeout: 5m}",
         ", undo: {webhook: {channel: c, subject: Back}, timeout: 5m}"]  # fmt: skip

_HELD = """\
- {id: held, restrict: {kind: prefer_away, lease: 1m}}
- {id: ask, manual: {instruction: x}}
"""


@st.composite
def step(draw: st.DrawFn, number: int, last: int) -> str:
    """Return one step in YAML, called s<number>; those after it are called up to s<last>."""
    way, undo = draw(st.sampled_from(_WAYS)), draw(st.sampled_from(_UNDO))
    later = [f"s{n}" for n in range(number + 1, last + 1)]
    until = draw(st.sampled_from(["run", "cause", *later]))
    lease = draw(st.sampled_from(["1m", "10m"]))
    ways = f"timeout: 10m, on_timeout: {way}, on_error: {way}"
    silence = draw(
        st.sampled_from(["abort", "continue", "escalate, escalate: {roles: [admin], timeout: 5m}"])
    )
    return draw(
        st.sampled_from(
            [
                f"restrict: {{kind: no_new_launches, until: {until}, lease: {lease}}}{undo}",
                f"restrict: {{kind: power_cap_w, value: gpus * 100.0, until: {until}}}"
                f", on_error: {way}{undo}",
                f"notify: {{subject: x}}{undo}",
                f"approve: {{question: x, on_silence: {silence}}}, timeout: 10m",
                f"wait_until: {{condition: stale, for: 2m}}, {ways}",
                "wait_until: {for: 3m}",
                f"webhook: {{channel: c, subject: x}}, {ways}{undo}",
                f"migrate: {{to: local-only}}, {ways}{undo}",
                f"manual: {{instruction: x}}, {ways}{undo}",
            ]
        )
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return a playbook of one to six steps, some of which may be within a branch."""
    # Many runs end early: see to it that there is something to hold for long.
    first = _HELD if draw(st.booleans()) else ""
    count = draw(st.integers(1, 6))
    lines = [f"{{id: s{n}, {draw(step(n, count - 1))}}}" for n in range(count)]
    cut = draw(st.integers(0, count))
    steps = "".join(f"- {line}\n" for line in lines[:cut])
    if cut < count and draw(st.booleans()):
        inner = ", ".join(lines[cut:])
        steps += f"- {{id: which, branch: {{when: stale, then: [{inner}]}}}}\n"
    else:
        steps += "".join(f"- {line}\n" for line in lines[cut:])
    return program(first + steps)


class AnyRun(RuleBasedStateMachine):
    """One run, to which anything may happen."""

    @initialize(program=programs())
    def begin(self, program: Program) -> None:
        self.stage = Stage(program)
        self.checked = 0
        self.cause_gone_at: int | None = None
        self.leases: dict[str, Any] = {}

    @rule(seconds=st.sampled_from([0, 2, 10, 30, 60, 200, 600]))
    def time_passes(self, seconds: float) -> None:
        self.stage.play(seconds)

    @rule(seconds=st.sampled_from([65, 150, 3600, 90_000]), there=THERE)
    def all_is_down_and_the_cause_comes_or_goes(self, seconds: int, there: bool | None) -> None:
        self.stage.seen.there = there
        self.stage.play(seconds)

    @rule(there=THERE)
    def the_cause_comes_or_goes(self, there: bool | None) -> None:
        self.stage.seen.there = there

    @rule(truth=st.sampled_from([True, False, None]), number=st.sampled_from([None, 800.0]))
    def something_is_measured(self, truth: bool | None, number: float | None) -> None:
        for each in self.stage.program.steps:
            self.stage.seen.truths[each.id] = truth
            self.stage.seen.numbers[each.id] = number

    @rule(progress=st.sampled_from(Progress))
    def others_are_asked_how_it_goes(self, progress: Progress) -> None:
        for each in self.stage.run.steps:
            self.stage.seen.outcomes[each.path] = Outcome(progress)

    @rule(yes=st.booleans())
    def a_person_answers(self, yes: bool) -> None:
        waiting = [s for s in self.stage.run.steps if s.state is StepState.WAITING]
        for each in waiting:
            known = self.stage.program.step(each.path)
            machine, run = self.stage.machine, self.stage.run
            try:
                if known.kind == "approve":
                    move = machine.answer(run, known.id, yes=yes, by="ada", note="")
                else:
                    move = machine.confirm(run, known.id, by="ada", note="")
            except NotPossible:
                continue
            self.stage.take(move)

    @rule(what=st.sampled_from(["pause", "resume", "abort", "undo"]))
    def a_person_acts(self, what: str) -> None:
        machine, run = self.stage.machine, self.stage.run
        if what == "abort" and run.state is RunState.UNDOING:
            return  # then what is left to take back is left
        try:
            move = {
                "pause": lambda: machine.pause(run, by="ada"),
                "resume": lambda: machine.resume(run),
                "abort": lambda: machine.abort(run, why="x", by="ada"),
                "undo": lambda: machine.undo(run, why="x", by="ada"),
            }[what]()
        except NotPossible:
            return
        self.stage.take(move)

    @precondition(lambda self: self.stage.run.steps)
    @rule(data=st.data())
    def a_renewal_is_refused(self, data: st.DataObject) -> None:
        held = [s.path for s in self.stage.run.steps if s.lease_until is not None]
        if held:
            path = data.draw(st.sampled_from(held))
            self.stage.take(self.stage.machine.lose(self.stage.run, path, "gone"))

    # --- What always holds -----------------------------------------------------------------------

    @invariant()
    def every_effect_is_asked_for_once(self) -> None:
        counts: Counter[Any] = Counter(map(_identity, self.stage.effects))
        counts.pop(None, None)
        assert set(counts.values()) <= {1}, counts

    @invariant()
    def every_step_begins_once(self) -> None:
        paths = [each.path for each in self.stage.run.steps]
        assert len(paths) == len(set(paths))

    @invariant()
    def at_most_one_step_waits(self) -> None:
        waiting = [s for s in self.stage.run.steps if s.state is StepState.WAITING]
        assert len(waiting) <= 1
        assert not (waiting and self.stage.run.state.is_over)

    @invariant()
    def what_is_in_force_is_what_the_run_says(self) -> None:
        says = {s.path for s in self.stage.run.steps if s.lease_until is not None}
        assert self.stage.held() <= says

    @invariant()
    def a_run_that_is_over_holds_and_awaits_nothing(self) -> None:
        run, effects = self.stage.run, self.stage.effects
        if not run.state.is_over:
            assert self.stage.machine.due(run) is not None
            return
        assert self.stage.held() == set()
        assert not any(step.lease_until for step in run.steps)
        asked = {e.path for e in effects if isinstance(e, Issue)}
        given_up = {e.path for e in effects if isinstance(e, Withdraw)}
        done = {s.path for s in run.steps if s.state is StepState.DONE}
        assert asked <= given_up | done

    @invariant()
    def nothing_is_restricted_without_a_cause(self) -> None:
        new, self.checked = self.stage.effects[self.checked :], len(self.stage.effects)
        for effect in new:
            if not isinstance(effect, Hold):
                self.leases.pop(effect.path, None)
                continue
            had_ended = effect.path not in self.leases or self.leases[effect.path] <= self.stage.now
            if had_ended:
                assert self.stage.seen.there is not False
            self.leases[effect.path] = effect.until

    @invariant()
    def only_what_has_begun_is_taken_back(self) -> None:
        begun = {each.path for each in self.stage.run.steps}
        assert all(p.removesuffix("/undo") in begun for p in begun)
        if any(path.endswith("/undo") for path in begun):
            undoing = RunState.UNDOING, RunState.UNDONE, RunState.FAILED
            assert self.stage.run.state in undoing

    @invariant()
    def taken_back_is_all_of_it(self) -> None:
        if self.stage.run.state is not RunState.UNDONE:
            return
        states = {each.path: each.state for each in self.stage.run.steps}
        for path, state in states.items():
            undo = self.stage.program.step(path).undo
            if state is StepState.DONE and undo is not None:
                assert states[undo.path] is StepState.DONE

    def teardown(self) -> None:
        """It ends, if time passes and nobody does anything."""
        if not hasattr(self, "stage"):
            return
        for _ in range(20):
            self.stage.play(86_400)
        assert self.stage.run.state.is_over
        assert self.stage.held() == set()


def _identity(effect: Effect) -> object:
    """Return what must not happen twice; None for what may."""
    if isinstance(effect, Hold):
        return None if effect.renews else effect.path
    if isinstance(effect, Send):
        return effect.path, effect.escalated
    return effect.path if isinstance(effect, Issue) else None


TestAnyRun = AnyRun.TestCase
TestAnyRun.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)
