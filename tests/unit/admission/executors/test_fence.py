"""A machine stops by itself before the server may run its work elsewhere, in any order of events.

The server's count of silence and the machine's fence are the real ones, and so is the lease, which
the admission policy sets and a machine confirms. Between them are a network
that loses and delays, clocks that are set and drift, and processes that stand still, die and come
back. Time is what passes for all of them; what each of them reads of it is not. That these events
would find a fence that comes too late is a test of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from admission.executors import runners
from admission.executors.runners import Ears

LEASE_S = 60.0
#: How wrong a clock may run; quartz is a hundred times better.
DRIFT = 0.01
#: How long a shim that runs may take from the end of its time until all stands still, s.
REACTION_S = 2.0
#: What a policy may set it to, s.
_LEASES_S = [20.0, 60.0, 300.0]
#: From a look of the worker to the next, s. After more than ``gap_s`` it has not been looking.
_LOOKS_S = [0.5, 2.0, 5.5, 5.9, 20.0]
#: From a report to the next, s. Not all are written down.
_REPORTS_S = [0.5, 2.0, 4.0, 5.0, 5.5, 5.9]
_DOUBLED = "it runs here, and the server may have it run elsewhere"


@dataclass
class Server:
    """What the database holds, and a worker that looks at it while it is up."""

    ears: Ears = field(default_factory=Ears)
    looked_s: float = 0.0
    boot: int = 0
    row_boot: int = 0
    #: as the policy in force states it
    lease_s: float = LEASE_S
    #: the machine's, as written down; somebody else is always heard
    heard_s: float | None = None
    row_lease_s: float = LEASE_S
    is_up: bool = True
    gave_up: bool = False

    def hear(self, runs_for_s: float) -> float:
        """Take a request of the machine, as ``runners.seen`` does; return the fence it is told."""
        lease_s = max(self.lease_s, runs_for_s / runners.FENCE_SHARE)
        is_due = self.heard_s is None or (
            self.heard_s < self.ears.listened_s - runners._WRITE_AT * lease_s
        )
        if is_due or self.row_lease_s < lease_s:
            self.heard_s, self.row_lease_s = self.ears.listened_s, lease_s
        return runners.fence_s(self.lease_s)

    def look(self, uptime_s: float) -> None:
        passed_s = uptime_s - self.looked_s if self.boot == self.row_boot else None
        least_s = min(self.lease_s, self.row_lease_s)
        self.ears = runners.listen(self.ears, passed_s, self.ears.listened_s, least_s)
        self.looked_s, self.row_boot = uptime_s, self.boot
        if runners.is_silent(self.ears, self.heard_s, self.row_lease_s):
            self.gave_up = True


class Fence(RuleBasedStateMachine):
    """Attempts, one after the other: each on the machine until the server gives that up."""

    @initialize(ours=st.floats(-DRIFT, DRIFT), theirs=st.floats(-DRIFT, DRIFT))
    def begin(self, ours: float, theirs: float) -> None:
        self.now = self.looked_at = 0.0
        self.rates = (1.0 + ours, 1.0 + theirs)
        self.server = Server()
        self.until = 0.0
        self.runner_is_up = True
        self.runs = False
        #: answers on their way: until when it may run, and whether it is to
        self.in_flight: list[tuple[float, bool]] = []
        self.ask(is_answered=True)

    @property
    def uptime_s(self) -> float:
        """The machine's CLOCK_BOOTTIME."""
        return self.now * self.rates[0]

    def heard(self) -> float:
        """The server takes a request; return until when it lets the work run.

        A runner that asks again has given the answer before up.
        """
        self.in_flight.clear()
        runs_for_s = max(0.0, self.until - self.uptime_s)
        return self.uptime_s + self.server.hear(runs_for_s)

    def confirm(self, until: float, *, is_wanted: bool) -> None:
        """An answer has come: what it says to the shim."""
        if not is_wanted:
            self.runs = False
            return
        self.until = max(self.until, until)
        self.runs = self.uptime_s < self.until

    @rule(is_answered=st.booleans())
    def ask(self, is_answered: bool) -> None:
        """The runner asks, and the answer comes at once, or is lost."""
        if self.runner_is_up and self.server.is_up:
            until = self.heard()
            if is_answered:
                self.confirm(until, is_wanted=not self.server.gave_up)

    @rule()
    def ask_and_have_the_answer_late(self) -> None:
        if self.runner_is_up and self.server.is_up:
            self.in_flight.append((self.heard(), not self.server.gave_up))

    @rule()
    def a_late_answer_comes(self) -> None:
        """A runner that stood still meanwhile reads it now."""
        if self.in_flight and self.runner_is_up:
            until, is_wanted = self.in_flight.pop(0)
            self.confirm(until, is_wanted=is_wanted)

    @rule()
    def the_runner_stands_still_or_goes_on(self) -> None:
        self.runner_is_up = not self.runner_is_up

    @rule()
    def the_runner_is_killed_and_comes_back(self) -> None:
        self.in_flight.clear()
        self.runner_is_up = True

    @rule()
    def the_server_goes_away_or_comes_back(self) -> None:
        self.server.is_up = not self.server.is_up

    @rule(lease_s=st.sampled_from(_LEASES_S))
    def another_policy_is_in_force(self, lease_s: float) -> None:
        self.server.lease_s = lease_s

    @rule()
    def the_worker_moves_to_another_machine(self) -> None:
        self.server.boot += 1

    @rule(
        look_s=st.sampled_from(_LOOKS_S), ask_s=st.sampled_from(_REPORTS_S), times=st.integers(1, 6)
    )
    def all_goes_well(self, look_s: float, ask_s: float, times: int) -> None:
        for _ in range(times):
            self.pass_time(ask_s, look_s)
            self.ask(is_answered=True)

    @rule(look_s=st.sampled_from(_LOOKS_S), last_s=st.sampled_from(_REPORTS_S))
    def the_network_is_cut_for_more_than_a_lease(self, look_s: float, last_s: float) -> None:
        """All are up, and two last reports come through: the second may not be written down."""
        self.server.is_up = self.runner_is_up = True
        self.ask(is_answered=True)
        self.pass_time(last_s, look_s)
        self.ask(is_answered=True)
        self.pass_time(1.3 * LEASE_S, look_s)

    @rule(look_s=st.sampled_from(_LOOKS_S), for_s=st.sampled_from([0.5, 5.0, 20.0, 100.0]))
    def time_passes(self, look_s: float, for_s: float) -> None:
        self.pass_time(for_s, look_s)

    def pass_time(self, for_s: float, look_s: float) -> None:
        """The worker looks each ``look_s``, if it is up."""
        end = self.now + for_s
        while (look_at := max(self.looked_at + look_s, self.now)) <= end:
            self.go_on(look_at)
            self.look()
        self.go_on(end)

    def go_on(self, until: float) -> None:
        """The shim acts when its time is up, or soon."""
        self.now = until
        if self.runs and self.uptime_s > self.until + REACTION_S:
            self.runs = False

    def look(self) -> None:
        self.looked_at = self.now
        if self.server.is_up:
            self.server.look(self.now * self.rates[1])
        self.check()

    @precondition(lambda self: self.server.gave_up)
    @rule()
    def another_attempt_is_placed_here(self) -> None:
        """The machine, which is heard again, has refused the one before for good."""
        self.in_flight.clear()
        self.runner_is_up = self.server.is_up = True
        self.server.gave_up = False
        self.ask(is_answered=True)

    @rule()
    def the_machine_is_suspended_for_an_hour(self) -> None:
        self.now += 3600.0
        # It wakes up: the shim, which looks at CLOCK_BOOTTIME, has a moment.
        self.runs = self.runs and self.uptime_s <= self.until

    @invariant()
    def check(self) -> None:
        if hasattr(self, "server") and self.server.gave_up:
            assert not self.runs, _DOUBLED


TestFence = Fence.TestCase
TestFence.settings = settings(max_examples=300, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("share", [0.85, 0.9, 1.0])
def test_a_fence_that_comes_too_late_is_found(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """The same events, and always the same ones for the modules that a run has imported.

    Hypothesis takes constants out of these, so there are more than one set of modules needs.
    """
    monkeypatch.setattr(runners, "FENCE_SHARE", share)
    always = settings(
        TestFence.settings,
        derandomize=True,
        max_examples=1200,
        database=None,
        phases=[Phase.generate],
        print_blob=False,
    )
    with pytest.raises(AssertionError, match=_DOUBLED):
        run_state_machine_as_test(Fence, settings=always)


@pytest.mark.parametrize("lease_s", [20.0, 60.0])
def test_a_machine_that_was_let_run_for_longer_keeps_its_longer_lease(lease_s: float) -> None:
    """A policy that shortens the lease holds for a machine once that has confirmed it."""
    world = Fence()
    world.begin(-DRIFT, DRIFT)
    world.server.lease_s = 300.0
    world.ask(is_answered=True)
    world.server.lease_s = lease_s
    world.pass_time(2.0, 2.0)
    world.ask(is_answered=True)
    world.server.is_up, world.runner_is_up = True, False
    while not world.server.gave_up:
        world.pass_time(2.0, 2.0)
    assert world.now > 150.0


def test_a_policy_that_lengthens_the_lease_does_not_make_looks_far_apart_count() -> None:
    """What was heard just before such a look would be as old as the look before."""
    world = Fence()
    world.begin(0.0, 0.0)
    world.server.lease_s = 20.0
    for _ in range(20):
        world.pass_time(2.0, 2.0)
        world.ask(is_answered=True)
    world.server.lease_s = 300.0
    world.pass_time(1.0, 1.0)
    # Its last report is written down; the answer, and with it the longer lease, is lost.
    world.pass_time(29.0, 29.9)
    world.server.heard_s = world.server.ears.listened_s
    world.until, world.runs = world.uptime_s + 10.0, True
    world.pass_time(1.0, 29.9)
    assert not world.server.gave_up


@pytest.mark.parametrize("look_s", [0.5, 2.0, 5.9])
@pytest.mark.parametrize("later_s", [1.0, 5.5, 5.9, 11.0])
def test_the_worst_moments_to_be_cut_off_are_covered(look_s: float, later_s: float) -> None:
    """The last report was not written down, came just after a look, and the clocks disagree."""
    world = Fence()
    world.begin(-DRIFT, DRIFT)
    world.now += later_s / 2
    world.look()
    world.now += later_s / 2
    world.ask(is_answered=True)
    while not world.server.gave_up:
        world.pass_time(look_s, look_s)
    assert world.now < 2 * LEASE_S


@pytest.mark.parametrize("lease_s", [20.0, 60.0, 300.0, 3600.0])
def test_the_deadlines_of_both_sides_are_in_one_order(lease_s: float) -> None:
    """Fence, then all that makes the server count too much, then the lease."""
    latest_stop = runners.fence_s(lease_s) * (1 + DRIFT) + REACTION_S
    earliest_end = (lease_s - runners._WRITE_AT * lease_s - runners.gap_s(lease_s)) * (1 - DRIFT)
    assert latest_stop < earliest_end


def test_a_machine_that_is_not_heard_is_given_up_in_the_end() -> None:
    ears = Ears()
    for _ in range(70):
        ears = runners.listen(ears, 1.0, ears.listened_s, LEASE_S)
    assert runners.is_silent(ears, 0.0, LEASE_S)
    assert not runners.is_silent(ears, 20.0, LEASE_S)


@pytest.mark.parametrize("passed_s", [-10_800.0, None, 10_800.0])
def test_time_in_which_nobody_looked_counts_for_nobody(passed_s: float | None) -> None:
    ears = runners.listen(Ears(100.0, 0.0), passed_s, 100.0, LEASE_S)
    assert ears == Ears(100.0, 100.0)


def test_while_nobody_is_heard_no_machine_is_given_up_for_ten_leases() -> None:
    ears, given_up_at = Ears(), None
    for second in range(1, 1200):
        ears = runners.listen(ears, 1.0, 0.0, LEASE_S)
        if given_up_at is None and runners.is_silent(ears, 0.0, LEASE_S):
            given_up_at = second
    assert given_up_at == 11 * LEASE_S + 1
