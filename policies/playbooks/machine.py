"""The next move of a run: a function of the playbook, the progress of the run, and its context.

``Machine.move`` makes one step of progress, and says what has to be done for it. Whoever calls it
does that and keeps the new state in one transaction, and calls it again until it has no more. So
the state never tells of an effect that did not happen, nor the other way around.

Time is looked at before anything else: what was to be done by a moment that has passed while nobody
looked is not done any more, but takes the way that its step names for that.

A run that a rule has started succeeds when that rule is clear. With all steps through and the rule
firing, it is *verifying*: it holds what it holds, and tightens what depends on readings. One that
ends otherwise while its rule fires has given up, and says so to people (:class:`Escalate`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from accounts.roles import Role
from policies.playbooks.document import (
    Approve,
    Branch,
    Checkpoint,
    Manual,
    Migrate,
    OnTimeout,
    PlannedStep,
    Program,
    Restrict,
    Resume,
    WaitUntil,
    Webhook,
)

#: How often conditions, and what others do for a step, are looked at.
POLL = timedelta(seconds=2)
#: A condition that nobody has looked at for so long has to hold anew for all of its time.
UNWATCHED = timedelta(seconds=60)
#: How precisely it is kept when a condition was last looked at.
_WATCH = timedelta(seconds=15)
#: With all steps through, people are told when the rule fires for so long yet.
PATIENCE = timedelta(minutes=15)
#: A second attempt within a while holds for so long after its rule is clear, each further one twice
#: as long, up to the longest: what swings is let go ever more rarely.
HOLD_DOWN, LONGEST_HOLD_DOWN = timedelta(minutes=15), timedelta(hours=2)
#: A value that depends on readings is looked at again after this, and is tightened by at least this
#: share of it: what is nearly the same is not worth a change.
_ADJUST, _LEAST_CHANGE = timedelta(seconds=30), 0.02
#: How often it is looked at whether what is in force has an effect.
_LOOK = timedelta(seconds=10)
#: Steps that are not begun, and end, when the rule is clear.
_NEEDS_CAUSE = frozenset({"restrict", "migrate", "checkpoint", "approve", "manual", "wait_until"})
#: Those that act at once, and have to be seen through once they have begun.
_ACTS = frozenset({"restrict", "migrate", "checkpoint"})


class RunState(enum.StrEnum):
    """Where a run is."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    #: all steps are through, and the rule that started it is not clear for long enough yet
    VERIFYING = "verifying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    UNDOING = "undoing"
    UNDONE = "undone"

    @property
    def is_over(self) -> bool:
        return self in OVER


#: Nothing more happens by itself.
OVER = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.ABORTED, RunState.UNDONE})


class StepState(enum.StrEnum):
    """The state of a step that has begun."""

    WAITING = "waiting"
    DONE = "done"
    #: not begun, since the cause of the run had gone
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    #: a person said no
    REFUSED = "refused"
    #: the run ended while it waited
    WITHDRAWN = "withdrawn"
    #: restrict: a breaker holds it back, and it waits for a person; the run goes on
    HELD = "held"
    #: restrict: it is in force, and measured to be without effect
    INEFFECTIVE = "ineffective"


#: A restriction was in force, whatever became of it.
_HAD_EFFECT = (StepState.DONE, StepState.INEFFECTIVE, StepState.REFUSED)


@dataclass(frozen=True)
class StepRun:
    """A step that has begun. Those that have not are not there."""

    path: str
    state: StepState
    entered_at: datetime
    #: when it takes its ``on_timeout``; None: it does not wait
    deadline: datetime | None = None
    ended_at: datetime | None = None
    #: approve: nobody of the first has answered
    escalated: bool = False
    #: wait_until: since when the condition holds, and when it was last looked at
    since: datetime | None = None
    seen_at: datetime | None = None
    #: restrict: how long its restriction is held for; None: it holds none (any more)
    lease_until: datetime | None = None
    value: float | None = None
    by: str = ""
    note: str = ""
    #: restrict: the number of its restriction
    restriction: int | None = None


@dataclass(frozen=True)
class Run:
    """How far a run is. ``steps`` stand in the order in which they began."""

    state: RunState
    started_at: datetime
    #: all of it has to be over by then; taking it back may take longer
    deadline: datetime
    #: place in the program of the step that is next, or that waits
    place: int = 0
    steps: tuple[StepRun, ...] = ()
    paused_at: datetime | None = None
    ended_at: datetime | None = None
    #: why it is where it is, for people
    why: str = ""
    #: the how manieth run it is for its rule and place within a while
    attempt: int = 1
    #: verifying: since when, and since when its rule is clear
    verifying_since: datetime | None = None
    clear_since: datetime | None = None
    #: when people were told that its rule fires on
    escalated_at: datetime | None = None
    #: the person who ended it; empty: it ended by itself
    ended_by: str = ""

    def find(self, path: str) -> StepRun | None:
        """Return the state of the step at ``path``; None: it has not begun."""
        return next((each for each in self.steps if each.path == path), None)

    def put(self, step: StepRun) -> Run:
        """Return the run with ``step`` in place of its earlier state, or at the end."""
        if self.find(step.path) is None:
            return replace(self, steps=(*self.steps, step))
        steps = tuple(step if each.path == step.path else each for each in self.steps)
        return replace(self, steps=steps)


class Progress(enum.Enum):
    """How far others are with the request of a step."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step's request to others."""

    progress: Progress
    note: str = ""


@dataclass(frozen=True)
class Standing:
    """The state of the restriction of a step."""

    #: DONE: in force; HELD, REFUSED or INEFFECTIVE
    state: StepState
    restriction: int
    note: str = ""
    by: str = ""


class RunContext(Protocol):
    """The observations of a run. Each is asked for only where it matters."""

    def cause(self) -> bool | None:
        """Say whether the rule that started the run fires on its scope; None: no rule did."""

    def closed_by(self) -> str:
        """Return who closed the incident of the run; empty: nobody."""

    def truth(self, step: PlannedStep) -> bool | None:
        """Say whether the condition of a branch or of a wait holds; None: unknown."""

    def number(self, step: PlannedStep) -> float | None:
        """Return the value of a restriction; None: unknown."""

    def standing(self, path: str) -> Standing | None:
        """Return the state of the restriction of a step; None: there is none."""

    def outcome(self, path: str) -> Outcome:
        """Return the outcome of the message or directive of a step."""


# --- What has to be done -------------------------------------------------------------------------


@dataclass(frozen=True)
class Hold:
    """Take, or renew, the restriction of a step."""

    path: str
    value: float | None
    until: datetime
    renews: bool = False
    #: for another value than it has; where that is refused, the one that it has stays
    changes: bool = False


@dataclass(frozen=True)
class Release:
    """Give the restriction of a step back."""

    path: str
    why: str


@dataclass(frozen=True)
class Send:
    """Tell people or another system."""

    path: str
    #: to those whom an approval turns to when nobody of the first has answered
    escalated: bool = False


@dataclass(frozen=True)
class Issue:
    """Write a directive."""

    path: str
    until: datetime


@dataclass(frozen=True)
class Withdraw:
    """Withdraw a step's request to others."""

    path: str
    why: str


@dataclass(frozen=True)
class Escalate:
    """Tell people that the rule fires, and that the run has not mended it."""

    why: str
    #: whether the run is over
    is_over: bool = True
    #: of no step
    path: str = ""


Effect: TypeAlias = Hold | Release | Send | Issue | Withdraw | Escalate


@dataclass(frozen=True)
class Move:
    """The next state of the run, and the effects to perform for it."""

    run: Run
    effects: tuple[Effect, ...] = ()


class NotPossible(Exception):
    """The run is not in a state in which this can be done."""


# --- Moving --------------------------------------------------------------------------------------


def begin(program: Program, now: datetime, *, attempt: int = 1) -> Run:
    """Return a run at its start, before any step."""
    deadline = now + timedelta(seconds=program.playbook.time_limit)
    return Run(RunState.RUNNING, started_at=now, deadline=deadline, attempt=attempt)


def hold_down(attempt: int) -> timedelta:
    """Return how long an attempt holds after its rule is clear."""
    if attempt < 2:
        return timedelta()
    return min(HOLD_DOWN * 2.0 ** min(attempt - 2, 20), LONGEST_HOLD_DOWN)


@dataclass(frozen=True)
class Machine:
    """A playbook at one moment. ``context``: the observations that its run can make then."""

    program: Program
    context: RunContext
    now: datetime

    def move(self, run: Run) -> Move | None:
        """Return the next move; None: there is none before :meth:`due`."""
        if run.state.is_over:
            return None
        if run.state is RunState.UNDOING:
            return self._take_back(run)
        if closed_by := self.context.closed_by():
            why = f"its incident was closed by {closed_by}"
            return self._end(run, RunState.ABORTED, why, by=closed_by)
        if self.now >= run.deadline:
            return self._end(run, RunState.FAILED, "its time limit has passed")
        followed = self._follow_restrictions(run)
        if followed is not None:
            return followed
        if run.state is not RunState.PAUSED:
            moved = self._go_on(run)
            if moved is not None:
                return moved
        return self._renew(run)

    def due(self, run: Run) -> datetime | None:
        """Return when to ask :meth:`move` again after it had nothing more; None: never."""
        if run.state.is_over:
            return None
        held = [step for step in run.steps if step.lease_until is not None]
        times = [self._renewal(step) for step in held]
        # What became of a restriction is looked at as long as it is held.
        times += [self.now + (POLL if step.state is StepState.HELD else _LOOK) for step in held]
        if run.state is not RunState.UNDOING:
            times.append(run.deadline)
        if run.state is not RunState.PAUSED:
            times.append(self._due_of(_waiting(run)))
        return min(times)

    def _due_of(self, waiting: StepRun | None) -> datetime:
        if waiting is None:
            return self.now + POLL
        action = self.program.step(waiting.path).action
        if isinstance(action, WaitUntil) and not action.condition:
            return waiting.entered_at + timedelta(seconds=action.for_)
        deadline = waiting.deadline or self.now + POLL
        by_people = isinstance(action, Approve | Manual)
        return deadline if by_people else min(deadline, self.now + POLL)

    def _go_on(self, run: Run) -> Move | None:
        if run.place >= len(self.program.steps):
            return self._reach_end(run)
        step = self.program.steps[run.place]
        current = run.find(step.path)
        return self._enter(run, step) if current is None else self._watch(run, step, current)

    def _reach_end(self, run: Run) -> Move | None:
        """End when the rule is clear; else hold on, tighten, and tell people in the end."""
        cause = self.context.cause()
        if cause is None:
            return self._end(run, RunState.SUCCEEDED, "all steps are done")
        if cause:
            return self._verify(run)
        holds_until = (run.clear_since or self.now) + hold_down(run.attempt)
        if self.now >= holds_until:
            return self._end(run, RunState.SUCCEEDED, "its rule is clear")
        if run.clear_since is not None:
            return None
        why = f"its rule is clear; attempt {run.attempt} holds until {holds_until:%H:%M} UTC"
        return Move(_verifying(replace(run, clear_since=self.now, why=why), self.now))

    def _verify(self, run: Run) -> Move | None:
        why = "all steps are through, and its rule fires: holds until it is clear"
        if run.state is not RunState.VERIFYING or run.clear_since is not None:
            fires_on = _verifying(replace(run, clear_since=None, why=why), self.now)
            return Move(replace(fires_on, verifying_since=self.now))
        since = run.verifying_since or self.now
        if run.escalated_at is None and self.now >= since + PATIENCE:
            return Move(replace(run, escalated_at=self.now), (Escalate(why, is_over=False),))
        return self._tighten(run)

    def _tighten(self, run: Run) -> Move | None:
        """Lower a value that depends on readings which ask for less by now."""
        for held in run.steps:
            step = self.program.step(held.path)
            if held.lease_until is None or held.value is None or not _is_of_readings(step):
                continue
            if self.now < (held.seen_at or held.entered_at) + _ADJUST:
                continue
            value = self.context.number(step)
            if value is None or value > held.value * (1.0 - _LEAST_CHANGE):
                continue
            until = self.now + self._lease(held)
            lower = replace(held, value=value, seen_at=self.now, lease_until=until)
            return Move(run.put(lower), (Hold(held.path, value, until, renews=True, changes=True),))
        return None

    def _until(self, step: StepRun) -> str:
        action = self.program.step(step.path).action
        return action.until if isinstance(action, Restrict) else ""

    # --- A step begins ---------------------------------------------------------------------------

    def _enter(self, run: Run, step: PlannedStep) -> Move:
        begun = self._begun(step)
        if self._is_needless(run, step):
            return self._skip(run, step, begun)
        return self._act(run, step, begun)

    def _is_needless(self, run: Run, step: PlannedStep) -> bool:
        """Say whether the rule is clear and nothing is held until the step is over."""
        if step.kind not in _NEEDS_CAUSE or _is_pause(step) or self.context.cause() is not False:
            return False
        return not any(s.lease_until is not None and self._until(s) == step.id for s in run.steps)

    def _skip(self, run: Run, step: PlannedStep, begun: StepRun) -> Move:
        skipped = self._done(begun, StepState.SKIPPED)
        return self._pass(run, step, replace(skipped, note="its rule is clear"))

    def _begun(self, step: PlannedStep) -> StepRun:
        return StepRun(step.path, StepState.DONE, entered_at=self.now, ended_at=self.now)

    def _act(self, run: Run, step: PlannedStep, begun: StepRun) -> Move:
        if isinstance(step.action, Restrict):
            return self._restrict(run, step, step.action, begun)
        if isinstance(step.action, Branch):
            return self._branch(run, step, begun)
        if step.kind == "notify":
            return self._pass(run, step, begun, Send(step.path))
        return self._wait(run, step, begun)

    def _restrict(self, run: Run, step: PlannedStep, action: Restrict, begun: StepRun) -> Move:
        value = self.context.number(step)
        if action.value is not None and value is None:
            return self.fail(run, step.path, "its value is unknown: a field has no reading")
        until = self.now + timedelta(seconds=action.lease)
        held = replace(begun, lease_until=until, value=value)
        return self._pass(run, step, held, Hold(step.path, value, until))

    def _branch(self, run: Run, step: PlannedStep, begun: StepRun) -> Move:
        truth = self.context.truth(step)
        said = {True: "holds", False: "does not hold", None: "is unknown, so it does not hold"}
        moved = self._pass(run, step, replace(begun, note=f"the condition {said[truth]}"))
        place = step.then if truth else step.otherwise
        return replace(moved, run=replace(moved.run, place=place))

    def _wait(self, run: Run, step: PlannedStep, begun: StepRun) -> Move:
        """Wait for people, for others, or for a condition."""
        deadline = None
        if step.timeout_s is not None:
            deadline = self.now + timedelta(seconds=step.timeout_s)
        waiting = replace(begun, state=StepState.WAITING, deadline=deadline, ended_at=None)
        run = _in_state(run.put(waiting), RunState.WAITING)
        if isinstance(step.action, Checkpoint | Migrate | Resume):
            return Move(run, (Issue(step.path, deadline or self.now),))
        if isinstance(step.action, Webhook | Approve | Manual):
            return Move(run, (Send(step.path),))
        return Move(run)

    # --- A step waits ----------------------------------------------------------------------------

    def _watch(self, run: Run, step: PlannedStep, current: StepRun) -> Move | None:
        """Look whether a step that waits has come to an end."""
        action = step.action
        if current.deadline is not None and self.now >= current.deadline:
            return self._time_out(run, step, current)
        if step.kind not in _ACTS and "/" not in step.path and self._is_needless(run, step):
            return self._skip(run, step, current)
        if isinstance(action, WaitUntil):
            return self._watch_condition(run, step, action, current)
        return self._watch_others(run, step, current) if _asks_others(step) else None

    def _watch_condition(
        self, run: Run, step: PlannedStep, action: WaitUntil, current: StepRun
    ) -> Move | None:
        wanted = timedelta(seconds=action.for_)
        if not action.condition:
            # Time that has passed has passed, whoever looked.
            over = self.now >= current.entered_at + wanted
            return self._pass(run, step, self._done(current)) if over else None
        if not self.context.truth(step):
            return None if current.since is None else self._saw(run, current, None)
        unwatched = current.seen_at is None or self.now - current.seen_at > UNWATCHED
        since = self.now if current.since is None or unwatched else current.since
        if self.now - since >= wanted:
            return self._pass(run, step, self._done(current))
        if since != current.since or current.seen_at is None or self._is_old(current.seen_at):
            return self._saw(run, current, since)
        return None

    def _is_old(self, seen_at: datetime) -> bool:
        return self.now - seen_at >= _WATCH

    def _saw(self, run: Run, current: StepRun, since: datetime | None) -> Move:
        return Move(run.put(replace(current, since=since, seen_at=self.now)))

    def _watch_others(self, run: Run, step: PlannedStep, current: StepRun) -> Move | None:
        outcome = self.context.outcome(step.path)
        if outcome.progress is Progress.DONE:
            return self._pass(run, step, replace(self._done(current), note=outcome.note))
        if outcome.progress is Progress.FAILED:
            return self.fail(run, step.path, outcome.note)
        return None

    # --- A step ends -----------------------------------------------------------------------------

    def _done(self, step: StepRun, state: StepState = StepState.DONE) -> StepRun:
        return replace(step, state=state, ended_at=self.now)

    def _pass(self, run: Run, step: PlannedStep, ended: StepRun, *effects: Effect) -> Move:
        """Leave ``step`` behind, and give back the restrictions held until then.

        While the rule fires, only on the word of a person; an attempt that is not the first keeps
        them for its hold-down.
        """
        run = _in_state(replace(run.put(ended), place=step.after), RunState.RUNNING)
        is_said = bool(ended.by) and ended.state is StepState.DONE
        cause = self.context.cause()
        if not is_said and (cause or (cause is False and run.attempt > 1)):
            return Move(run, effects)
        run, released = self._release(run, until=step.id, why=f"step {step.id} is over")
        return Move(run, (*effects, *released))

    def _release(self, run: Run, *, until: str | None, why: str) -> tuple[Run, tuple[Release, ...]]:
        """Give back the restrictions held until the step ``until``; None: all of them."""
        given_back = [
            step
            for step in run.steps
            if step.lease_until is not None and until in (None, self._until(step))
        ]
        for step in given_back:
            # What never had its effect is not done because it is over.
            state = StepState.WITHDRAWN if step.state is StepState.HELD else step.state
            run = run.put(replace(step, state=state, lease_until=None))
        return run, tuple(Release(step.path, why) for step in given_back)

    # --- It goes another way ---------------------------------------------------------------------

    def fail(self, run: Run, path: str, note: str) -> Move:
        """Return the move of a step that went wrong."""
        step = self.program.step(path)
        found = run.find(path) or self._begun(step)
        failed = replace(self._done(found, StepState.FAILED), note=note, lease_until=None)
        return self._deviate(run, step, failed, step.on_error, f"step {step.id}: {note}")

    def lose(self, run: Run, path: str, note: str) -> Move:
        """Go on without a restriction that could not be renewed."""
        step = run.find(path)
        if step is None:
            raise KeyError(path)
        lost = replace(step, lease_until=None, note=note)
        return Move(run.put(lost), (Release(path, f"it cannot be renewed: {note}"),))

    def keep(self, run: Run, path: str, note: str) -> Move:
        """Go on with a restriction as it is, of which another value was refused."""
        step = run.find(path)
        if step is None:
            raise KeyError(path)
        return Move(run.put(replace(step, seen_at=self.now, note=note)))

    def _time_out(self, run: Run, step: PlannedStep, current: StepRun) -> Move:
        if isinstance(step.action, Approve):
            return self._silence(run, step, step.action, current)
        timed_out = replace(self._done(current, StepState.TIMED_OUT), note="not done in time")
        why = f"step {step.id} was not done in time"
        return self._deviate(run, step, timed_out, step.on_timeout, why)

    def _silence(self, run: Run, step: PlannedStep, action: Approve, current: StepRun) -> Move:
        """Go on after nobody has answered an approval in time: ask others, pass, or end."""
        on_silence: str = action.on_silence
        if action.escalate is not None and on_silence == "escalate":
            if not current.escalated:
                deadline = self.now + timedelta(seconds=action.escalate.timeout)
                asked = replace(current, escalated=True, deadline=deadline)
                return Move(run.put(asked), (Send(step.path, escalated=True),))
            on_silence = action.escalate.on_silence
        silent = replace(self._done(current, StepState.TIMED_OUT), note="nobody answered")
        if on_silence == "continue":
            return self._pass(run, step, silent)
        return self._end(run.put(silent), RunState.ABORTED, f"nobody answered step {step.id}")

    def _deviate(
        self, run: Run, step: PlannedStep, ended: StepRun, way: OnTimeout, why: str
    ) -> Move:
        """Leave ``step``, which was not done, by its ``on_timeout`` or ``on_error``."""
        effects = (Withdraw(step.path, why),) if _asks_others(step) else ()
        if way is OnTimeout.UNDO:
            return self._turn_back(run.put(ended), why, *effects)
        if way is OnTimeout.FAIL:
            return self._end(run.put(ended), RunState.FAILED, why, *effects)
        moved = self._pass(run, step, ended, *effects)
        if way is OnTimeout.CONTINUE:
            return moved
        paused = replace(moved.run, state=RunState.PAUSED, paused_at=self.now, why=why)
        return replace(moved, run=paused)

    def _end(
        self, run: Run, state: RunState, why: str, *effects: Effect, by: str | None = None
    ) -> Move:
        """End the run: nothing of it is held or asked for any more.

        Where its rule fires, people are told: nothing acts on it now.
        """
        run, withdrawn = self._stop_waiting(run, why)
        run, released = self._release(run, until=None, why=f"the run is over: {why}")
        by = run.ended_by if by is None else by
        over = replace(run, state=state, why=why, ended_at=self.now, paused_at=None, ended_by=by)
        told = (Escalate(why),) if self.context.cause() else ()
        return Move(over, (*effects, *withdrawn, *released, *told))

    def _stop_waiting(self, run: Run, why: str) -> tuple[Run, tuple[Withdraw, ...]]:
        waiting = _waiting(run)
        if waiting is None:
            return run, ()
        run = run.put(replace(self._done(waiting, StepState.WITHDRAWN), note=why))
        asks = _asks_others(self.program.step(waiting.path))
        return run, (Withdraw(waiting.path, why),) if asks else ()

    # --- Leases ----------------------------------------------------------------------------------

    def _lease(self, step: StepRun) -> timedelta:
        action = self.program.step(step.path).action
        return timedelta(seconds=action.lease if isinstance(action, Restrict) else 0.0)

    def _renewal(self, step: StepRun) -> datetime:
        """Return when the lease of a restriction is half over."""
        return (step.lease_until or self.now) - self._lease(step) / 2

    def _follow_restrictions(self, run: Run) -> Move | None:
        """Say of a step what its restriction is, and ask people once where it is held back."""
        for step in run.steps:
            found = None if step.lease_until is None else self.context.standing(step.path)
            if found is None:
                continue
            followed = replace(step, state=found.state, restriction=found.restriction, by=found.by)
            if found.note or step.state is not found.state:
                followed = replace(followed, note=found.note)
            asks = found.state is StepState.HELD and not step.escalated
            if asks or followed != step:
                followed = replace(followed, escalated=step.escalated or asks)
                return Move(run.put(followed), (Send(step.path),) if asks else ())
        return None

    def held_back(self, run: Run, path: str, note: str) -> Run:
        """Return the run with a step of which a breaker holds the restriction back."""
        step = run.find(path)
        return run if step is None else run.put(replace(step, state=StepState.HELD, note=note))

    def _renew(self, run: Run) -> Move | None:
        """Renew one lease that is half over.

        One that has ended meanwhile is taken up again only if the cause is still there.
        """
        for step in run.steps:
            if step.lease_until is None or self.now < self._renewal(step):
                continue
            if self.now >= step.lease_until and self.context.cause() is False:
                why = "its lease had ended, and its cause is gone"
                return Move(run.put(replace(step, lease_until=None)), (Release(step.path, why),))
            until = self.now + self._lease(step)
            hold = Hold(step.path, step.value, until, renews=True)
            return Move(run.put(replace(step, lease_until=until)), (hold,))
        return None

    # --- Taking back -----------------------------------------------------------------------------

    def _turn_back(self, run: Run, why: str, *effects: Effect, by: str = "") -> Move:
        run, withdrawn = self._stop_waiting(run, why)
        back = replace(run, state=RunState.UNDOING, why=why, paused_at=None, ended_at=None)
        return Move(replace(back, ended_by=by), (*effects, *withdrawn))

    def _take_back(self, run: Run) -> Move | None:
        """Take back the last step that was done and is not taken back yet."""
        waiting = _waiting(run)
        if waiting is not None:
            step = self.program.step(waiting.path)
            return self._watch(run, step, waiting) or self._renew(run)
        for done in reversed(run.steps):
            if done.lease_until is not None:
                back = run.put(replace(done, lease_until=None))
                return Move(back, (Release(done.path, f"taken back: {run.why}"),))
            undo = self.program.step(done.path).undo
            if undo is not None and run.find(undo.path) is None and self._may_have_acted(done):
                return self._act(run, undo, self._begun(undo))
        return self._taken_back(run)

    def _may_have_acted(self, step: StepRun) -> bool:
        """Say whether there may be something to take back: of a failed step, too."""
        if step.state in (StepState.TIMED_OUT, StepState.FAILED, StepState.WITHDRAWN):
            planned = self.program.step(step.path)
            return _asks_others(planned) or planned.kind == "manual"
        if self.program.step(step.path).kind == "restrict":
            return step.state in _HAD_EFFECT
        return step.state is StepState.DONE

    def _taken_back(self, run: Run) -> Move:
        left = [
            self.program.step(step.path).id.removesuffix("/undo")
            for step in run.steps
            if step.path.endswith("/undo") and step.state is not StepState.DONE
        ]
        if left:
            return self._end(run, RunState.FAILED, f"not taken back: {', '.join(left)}")
        return self._end(run, RunState.UNDONE, f"taken back: {run.why}")

    # --- What people do --------------------------------------------------------------------------

    def asked(self, run: Run, step_id: str, kind: str) -> tuple[PlannedStep, StepRun]:
        """Return the step of ``kind`` that waits for a person. Raises :class:`NotPossible`."""
        if run.state is RunState.PAUSED:
            raise NotPossible("the run is paused: resume it first")
        waiting = _waiting(run)
        step = None if waiting is None else self.program.step(waiting.path)
        if waiting is None or step is None or step.id != step_id:
            raise NotPossible(f"step {step_id!r} does not wait for anybody now")
        if step.kind != kind:
            raise NotPossible(f"step {step_id!r} is a {step.kind} step: it asks for another answer")
        if waiting.deadline is not None and self.now >= waiting.deadline:
            raise NotPossible("it is too late: the time for this answer has passed")
        return step, waiting

    def approvers(self, run: Run, step_id: str) -> tuple[Approve, frozenset[Role]]:
        """Return the action of a waiting approval, and the roles that may answer; none: all."""
        step, waiting = self.asked(run, step_id, "approve")
        action = step.action
        if not isinstance(action, Approve):
            raise NotPossible(f"step {step_id!r} is no approval")
        roles = frozenset(action.roles)
        if roles and waiting.escalated and action.escalate is not None:
            roles |= frozenset(action.escalate.roles)
        return action, roles

    def answer(self, run: Run, step_id: str, *, yes: bool, by: str, note: str) -> Move:
        """A person has answered an approval. Raises :class:`NotPossible`."""
        step, waiting = self.asked(run, step_id, "approve")
        state = StepState.DONE if yes else StepState.REFUSED
        ended = replace(self._done(waiting, state), by=by, note=note)
        if yes:
            return self._pass(run, step, ended)
        why = f"{by} refused step {step.id}"
        if isinstance(step.action, Approve) and step.action.on_refusal == "undo":
            return self._turn_back(run.put(ended), why, by=by)
        return self._end(run.put(ended), RunState.ABORTED, why, by=by)

    def confirm(self, run: Run, step_id: str, *, by: str, note: str) -> Move:
        """A person has done the work of a manual step. Raises :class:`NotPossible`."""
        step, waiting = self.asked(run, step_id, "manual")
        return self._pass(run, step, replace(self._done(waiting), by=by, note=note))

    def pause(self, run: Run, *, by: str) -> Move:
        """Begin no further step. Restrictions in force stay, within the run's time limit."""
        if run.state not in (RunState.RUNNING, RunState.WAITING):
            raise NotPossible(f"a run that is {run.state} cannot be paused")
        why = f"paused by {by}"
        return Move(replace(run, state=RunState.PAUSED, paused_at=self.now, why=why))

    def resume(self, run: Run) -> Move:
        """Go on. The step that waits is given the time back that the pause took."""
        if run.state is not RunState.PAUSED:
            raise NotPossible(f"a run that is {run.state} is not paused")
        waiting = _waiting(run)
        if waiting is not None and waiting.deadline is not None and run.paused_at is not None:
            deadline = waiting.deadline + (self.now - run.paused_at)
            run = run.put(replace(waiting, deadline=deadline, since=None))
        state = RunState.RUNNING if waiting is None else RunState.WAITING
        return Move(replace(run, state=state, paused_at=None, why=""))

    def abort(self, run: Run, *, why: str, by: str) -> Move:
        """End the run at once. Its restrictions are given back; nothing else is taken back."""
        if run.state.is_over:
            raise NotPossible(f"the run is over: it is {run.state}")
        return self._end(run, RunState.ABORTED, why, by=by)

    def undo(self, run: Run, *, why: str, by: str) -> Move:
        """Take back the steps done, the last first, also of a run that is over."""
        if run.state in (RunState.UNDOING, RunState.UNDONE):
            raise NotPossible(f"the run is {run.state} already")
        return self._turn_back(run, why, by=by)


def _in_state(run: Run, state: RunState) -> Run:
    """Return the run in ``state``, unless it is being taken back."""
    return run if run.state is RunState.UNDOING else replace(run, state=state, why="")


def _verifying(run: Run, now: datetime) -> Run:
    since = run.verifying_since if run.state is RunState.VERIFYING else now
    return replace(run, state=RunState.VERIFYING, verifying_since=since)


def _is_pause(step: PlannedStep) -> bool:
    """Say whether a step only lets time pass."""
    return isinstance(step.action, WaitUntil) and not step.action.condition


def _is_of_readings(step: PlannedStep) -> bool:
    return isinstance(step.action, Restrict) and isinstance(step.action.value, str)


def _waiting(run: Run) -> StepRun | None:
    return next((step for step in reversed(run.steps) if step.state is StepState.WAITING), None)


def _asks_others(step: PlannedStep) -> bool:
    return isinstance(step.action, Webhook | Checkpoint | Migrate | Resume)
