"""A machine stops by itself before the server may run its work elsewhere, in any order of events.

The server's count of silence and the machine's fence are the real ones. Between them are a network
that loses and delays, clocks that are set and drift, and processes that stand still, die and come
back. Time is what passes for all of them; what each of them reads of it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admission.executors import runners
from admission.executors.runners import Ears

LEASE_S = 60.0
#: How wrong a clock may run; quartz is a hundred times better.
DRIFT = 0.01
#: How long a shepherd that runs may take from the end of its time until all stands still, s.
REACTION_S = 2.0
_WRITE_S = runners._WRITE_AT * LEASE_S


@dataclass
class Server:
    """What the database holds, and a worker that looks at it while it is up."""

    ears: Ears = field(default_factory=Ears)
    looked_s: float = 0.0
    boot: int = 0
    row_boot: int = 0
    #: the machine's, as written down, and somebody's who is always heard
    heard_s: float | None = None
    is_up: bool = True
    gave_up: bool = False

    def hear(self) -> None:
        """Take a request of the machine, as ``runners.seen`` does."""
        if self.heard_s is None or self.heard_s < self.ears.listened_s - _WRITE_S:
            self.heard_s = self.ears.listened_s

    def look(self, uptime_s: float) -> None:
        passed_s = uptime_s - self.looked_s if self.boot == self.row_boot else None
        self.ears = runners.listen(self.ears, passed_s, self.ears.listened_s, LEASE_S)
        self.looked_s, self.row_boot = uptime_s, self.boot
        if runners.is_silent(self.ears, self.heard_s, LEASE_S):
            self.gave_up = True


class Fence(RuleBasedStateMachine):
    """One attempt: on one machine, and from when the server gives that up elsewhere, too."""

    @initialize(ours=st.floats(-DRIFT, DRIFT), theirs=st.floats(-DRIFT, DRIFT))
    def begin(self, ours: float, theirs: float) -> None:
        self.now = 0.0
        self.rates = (1.0 + ours, 1.0 + theirs)
        self.server = Server()
        self.until = 0.0
        self.runner_is_up = True
        self.due_at: float | None = None
        self.runs = False
        self.in_flight: list[tuple[float, bool]] = []
        self.ask(is_answered=True)

    @property
    def uptime_s(self) -> float:
        """The machine's CLOCK_BOOTTIME."""
        return self.now * self.rates[0]

    def confirm(self, asked_at: float, *, is_wanted: bool) -> None:
        """An answer has come: what it says to the shepherd."""
        if not is_wanted:
            self.runs = False
            return
        self.until = max(self.until, asked_at + runners.fence_s(LEASE_S))
        self.runs = self.uptime_s < self.until
        self.due_at = None

    @rule(is_answered=st.booleans())
    def ask(self, is_answered: bool) -> None:
        """The runner asks, and the answer comes at once, or is lost."""
        if self.runner_is_up and self.server.is_up:
            self.server.hear()
            if is_answered:
                self.confirm(self.uptime_s, is_wanted=not self.server.gave_up)

    @rule()
    def ask_and_have_the_answer_late(self) -> None:
        if self.runner_is_up and self.server.is_up:
            self.server.hear()
            self.in_flight.append((self.uptime_s, not self.server.gave_up))

    @rule()
    def a_late_answer_comes(self) -> None:
        """A runner that stood still meanwhile reads it now."""
        if self.in_flight and self.runner_is_up:
            asked_at, is_wanted = self.in_flight.pop(0)
            self.confirm(asked_at, is_wanted=is_wanted)

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

    @rule()
    def the_worker_moves_to_another_machine(self) -> None:
        self.server.boot += 1

    @rule(step_s=st.sampled_from([0.5, 2.0, 4.5, 5.5, 20.0]), times=st.integers(1, 6))
    def all_goes_well(self, step_s: float, times: int) -> None:
        """The runner asks between looks, as it does nearly always."""
        for _ in range(times):
            self.pass_time(step_s)
            self.ask(is_answered=True)

    @rule(step_s=st.sampled_from([0.5, 2.0, 5.5]))
    def the_network_is_cut_for_more_than_a_lease(self, step_s: float) -> None:
        for _ in range(int(1.3 * LEASE_S / step_s)):
            self.pass_time(step_s)

    @rule(step_s=st.sampled_from([0.5, 2.0, 4.5, 5.5, 20.0, 100.0]))
    def time_passes(self, step_s: float) -> None:
        self.pass_time(step_s)

    def pass_time(self, step_s: float) -> None:
        """The worker looks after each step; the shepherd acts when its time is up, or soon."""
        self.now += step_s
        if self.runs and self.uptime_s > self.until + REACTION_S:
            self.runs = False
        if self.server.is_up:
            self.server.look(self.now * self.rates[1])
        self.check()

    @rule()
    def the_machine_is_suspended_for_an_hour(self) -> None:
        self.now += 3600.0
        # It wakes up: the shepherd, which looks at CLOCK_BOOTTIME, has a moment.
        self.runs = self.runs and self.uptime_s <= self.until

    @invariant()
    def check(self) -> None:
        if hasattr(self, "server") and self.server.gave_up:
            assert not self.runs, "it runs here, and the server may have it run elsewhere"


TestFence = Fence.TestCase
TestFence.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("look_s", [0.5, 2.0, 5.9])
@pytest.mark.parametrize("later_s", [1.0, 5.5, 5.9, 11.0])
def test_the_worst_moments_to_be_cut_off_are_covered(look_s: float, later_s: float) -> None:
    """The last report was not written down, came just after a look, and the clocks disagree."""
    world = Fence()
    world.begin(-DRIFT, DRIFT)
    world.now += later_s / 2
    world.server.look(world.now * world.rates[1])
    world.now += later_s / 2
    world.ask(is_answered=True)
    while not world.server.gave_up:
        world.pass_time(look_s)
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
