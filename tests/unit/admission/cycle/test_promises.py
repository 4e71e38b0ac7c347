"""What a queue promises under any order of events.

Every job that waits has a dominant reason. Every change that is told of is true: the job starts
once it is applied, in a cycle at once and in the next one, or at the time that it tells, for the
price that is said. It is of a class that its project may use, and names nobody else. When nothing
happens nothing more starts. A gang is whole. And whoever fits an empty fleet, and may, starts in
the end.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from admission.core.grants import Grants
from admission.core.placement.place import fits_empty
from admission.core.request import Locality, Refusal
from tests.builders.promises import JOBS, WAITS_S, WORLDS, RandomQueue, Tally, play

jobs = st.fixed_dictionaries({name: st.sampled_from(of) for name, of in JOBS.items()})
worlds = st.fixed_dictionaries({name: st.sampled_from(of) for name, of in WORLDS.items()})


class QueueMachine(RandomQueue, RuleBasedStateMachine):
    """A random queue to which anything may happen at any time."""

    @initialize(values=worlds)
    def begin_anywhere(self, values: dict[str, Any]) -> None:
        self.begin(**values)

    @rule(some=st.lists(jobs, min_size=1, max_size=4))
    def some_come(self, some: list[dict[str, Any]]) -> None:
        self.submit(some)

    @precondition(lambda self: self.world.pending)
    @rule(pick=st.integers(0, 99), is_held=st.booleans())
    def one_is_held(self, pick: int, is_held: bool) -> None:
        self.hold(pick, is_held=is_held)

    @precondition(lambda self: self.world.running)
    @rule(pick=st.integers(0, 99))
    def one_fails(self, pick: int) -> None:
        self.fail(pick)

    @rule(seconds=st.sampled_from(WAITS_S))
    def time_passes(self, seconds: float) -> None:
        self.wait(seconds)

    @rule()
    def cycle_comes(self) -> None:
        self.cycle()

    def teardown(self) -> None:
        """Let nothing more come: all that can ever start does."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for _ in range(10 * (self.jobs + 1)):
            is_soon = bool(world.cycle().after.staggered) or not world.running
            world.now = world.now + 61.0 if is_soon else max(world.next_end, world.now)
            world.end_due()
        for each in world.pending.values():
            ever = fits_empty(world.cluster, each.request)
            over_quota = not isinstance(ever, Refusal) and (
                (each.request.project == "vision" and ever.total_w > 14_000.0)
                or (each.request.job_class == "small" and len(ever.gpus) > 12)
            )
            assert each.held_by or isinstance(ever, Refusal) or over_quota, each


_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))

QueueMachine.TestCase.settings = settings(_SETTINGS, max_examples=8, stateful_step_count=8)
TestQueue = QueueMachine.TestCase


def test_a_change_stands_where_the_next_cycle_will_place_the_job() -> None:
    """Others that start as soon as their zone can take more heat have taken of a cap meanwhile."""
    queue = QueueMachine()
    queue.begin(
        sites=1, racks=2, budget_w=9000.0, zone_w=30_000.0, capped=True, reservations=1,
        stagger_above=0.3, grants=Grants(),
    )  # fmt: skip
    asked = {
        "project": "speech", "job_class": "small", "walltime_s": 300.0,
        "required": Locality.NODE, "sites": (), "preemptible": False, "is_elastic": False,
        "is_capped": False, "checkpoint_interval_s": None,
    }  # fmt: skip
    queue.submit(
        [
            {**asked, "gpus": 1, "gpu_peak_w": 350.0},
            {**asked, "gpus": 8, "gpu_peak_w": 500.0},
            {**asked, "gpus": 1, "gpu_peak_w": 350.0},
        ]
    )
    queue.cycle()


def test_a_change_stands_where_what_started_with_it_is_expected_to_end_early() -> None:
    """Jobs of a project end long before their walltime, and what is kept for others is, too."""
    queue = QueueMachine()
    queue.begin(
        sites=1, racks=2, budget_w=44_000.0, zone_w=176_000.0, capped=False, reservations=1,
        stagger_above=2.0, grants=Grants(),
    )  # fmt: skip
    asked = {
        "project": "speech", "job_class": "training", "walltime_s": 7200.0, "gpu_peak_w": 350.0,
        "required": Locality.FLEET, "sites": (), "preemptible": False, "is_elastic": False,
        "is_capped": False, "checkpoint_interval_s": None,
    }  # fmt: skip
    queue.submit([{**asked, "gpus": 8}])
    queue.cycle()
    queue.wait(600.0)
    queue.fail(0)
    queue.submit([{**asked, "gpus": 8}])
    queue.submit([{**asked, "gpus": 16}, {**asked, "gpus": 8, "walltime_s": 1e5}])
    queue.cycle()
    assert set(queue.world.running) == {"j2/train"}


def test_fewer_gpus_stand_where_others_of_the_project_were_lost_early() -> None:
    """What the search found with seed 145468452817918036758519144904271406439."""
    queue = QueueMachine()
    queue.begin(
        sites=1, racks=2, budget_w=9000.0, zone_w=30_000.0, capped=False, reservations=1,
        stagger_above=0.8, grants=Grants(),
    )  # fmt: skip
    asked = {
        "project": "speech", "job_class": "serving", "walltime_s": 300.0, "gpu_peak_w": 350.0,
        "required": Locality.NODE, "sites": (), "preemptible": False, "is_elastic": False,
        "is_capped": False, "checkpoint_interval_s": None,
    }  # fmt: skip
    queue.submit([{**asked, "gpus": 1}])
    queue.cycle()
    queue.wait(2.0)
    queue.fail(0)
    queue.submit(
        [
            {**asked, "gpus": 8},
            {**asked, "gpus": 1, "job_class": "urgent"},
            {**asked, "gpus": 1, "job_class": "training"},
        ]
    )
    queue.submit(
        [
            {**asked, "gpus": 8, "gpu_peak_w": 700.0, "required": Locality.FLEET},
            {**asked, "gpus": 12},
        ]
    )
    queue.cycle()


def _play(seed: int) -> int:
    """Have the queue of a random world grow; return how many changes were told of, all true."""
    dice = random.Random(seed)

    def chosen(of: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: dice.choice(each) for name, each in of.items()}

    queue, told = QueueMachine(), 0
    queue.begin(**chosen(WORLDS))
    for _ in range(8):
        queue.submit([chosen(JOBS) for _ in range(dice.randint(1, 3))])
        for waits_s in (dice.choice(WAITS_S), 0.0):
            decisions = queue.world.cycle()
            # Where others start or are to give way in the next cycle, more than time has passed.
            if queue.is_quiet(decisions) and queue.is_still():
                told += queue.changes_are_true(decisions)
            queue.wait(waits_s)
    return told


def test_changes_are_true_in_the_next_cycle_of_random_worlds() -> None:
    # In the last two another class and other sites were told of, which were false 2 s later: who
    # had begun counted otherwise, and a run ended just when what it takes was kept for others.
    assert sum(map(_play, (1, 2, 1176, 1040))) > 20


def test_changes_are_true_beside_jobs_that_wait_for_others_heat() -> None:
    # Told of were places that one further back had moved what is kept away from, and such that one
    # further ahead gave up 2 s later: its run ended just when what it held was kept for others.
    tally = Tally()
    for seed in (1000501, 1000692, 1001046, 31820, 33540, 36278, 40169):
        play(seed, tally)
    assert tally.broken == []
    assert tally.counts["changes"] > 10


@pytest.mark.parametrize(
    "seed",
    [
        # One that was tried behind others who wait for heat found their places free a round later,
        # and asked others to give way in the next cycle only.
        1200587,
        # What one gave way for went to a job ahead of the one that had asked, which asked again.
        1300015,
        # A start in the first round moved a job that waited for heat to where it began in the next
        # round, which a dry run cannot foresee.
        1200077,
        # Asked for another place in the order, one that waits for heat was taken off a fleet to
        # come on which it did not stand.
        1300867,
        # A rack with a cap on jobs counted as full once one of them had left, too: who had asked
        # for that asked somebody else in the next cycle.
        1302361,
        # Two seconds later another had passed one ahead, and what it draws on was kept for that.
        1302794,
        # Whoever was to have the next place among so many jobs took the one that was made free for
        # somebody behind it, who then asked another to give way.
        1310044,
        # What started last held more than is due to its project, and somebody whose turn had been
        # before asked that back in the next cycle.
        1311951,
        # A change of class passed a job of its own project, and so did somebody of another one,
        # who took the heat that the zone takes up.
        1312317,
        # What all that may be asked leave together was more than the watts of its project are for,
        # so that nobody was asked for an elastic job before one of them was to leave for another.
        1320128,
        # Somebody for whom something is kept was behind the job, and is ahead of it in 2 s.
        3003318,
        3003703,
        3003932,
        # The watts of a project were for just so many GPUs, and one less was given in a dry run.
        48938,
        51205,
        # Whoever had nothing to ask back asked nobody again, though others had begun since: for it
        # nothing was kept, and in the next cycle it was.
        65930,
        # One that ended just when a quota is kept from begins 2 s later, and still has of it then.
        64465,
        # One ahead with fewer GPUs than it asks for took those that others gave back, too: who had
        # asked for these asked others a cycle later.
        49244,
        53333,
        # Where a rack may run one more job, and that is kept, another rack would have done: but
        # that was not looked for, and somebody else was asked.
        58472,
        # What was kept for one went to a rack where restrictions let no further job run by then,
        # others took its old place, and a cycle later somebody else was asked for it.
        50597,
        200422,
        # One that was asked to leave does so just when a quota is kept from; told of 2 s later it
        # does so after that, and fewer GPUs were left than a change was told to have.
        200372,
        # Whoever began 2 s later would still have of a quota when it is kept from, so it was kept
        # for one ahead by then.
        318392,
        323683,
        # In the order of 2 s later another passed as well, and took the GPU.
        333834,
        # Who fits once others have ended counted as having nothing, and its project asked back more
        # than is due to it.
        338309,
        # Nobody gave way while something was kept for one ahead; later in the cycle it was not.
        347448,
        # Others began after one had asked, and what was left to it was a place that its project has
        # watts for: somebody was asked a cycle later.
        400360,
        400340,
        # One ahead took of what came free on a rack that may run one more job: that was for it.
        509664,
    ],
)
def test_what_the_search_found_is_mended(seed: int) -> None:
    tally = Tally()
    play(seed, tally)
    assert tally.broken == []
    assert tally.counts["dry runs"] > 2


def test_nobody_gives_way_to_a_job_that_its_quota_holds_back() -> None:
    # Of 14 kW it would take 15.3 kW: one job ended for it, and another was asked a cycle later.
    _play(1202)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1300, 60))
def test_changes_are_true_in_the_next_cycle_of_many_random_worlds(first: int) -> None:
    assert sum(map(_play, range(first, first + 60))) > 300


@pytest.mark.slow
def test_promises_hold_for_longer() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(_SETTINGS, max_examples=150, stateful_step_count=20)
    )
