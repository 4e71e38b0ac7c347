"""What a queue promises under any order of events.

Every job that waits has a dominant reason. Every change that is told of is true: the job starts
once it is applied, in a cycle at once and in the next one, or at the time that it tells, for the
price that is said. It is of a class that its project may use, and names nobody else. When nothing
happens nothing more starts. A gang is whole. And whoever fits an empty fleet, and may, starts in
the end.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

from admission.core.cycle.change import Counterfactual
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.order import order
from admission.core.cycle.whatif import explain
from admission.core.grants import Grants
from admission.core.placement.place import fits_empty
from admission.core.preempting import PreemptionPolicy
from admission.core.reasons import ReasonToken, dominant
from admission.core.request import Locality, Refusal
from admission.core.snapshot import ClassRules, ConcurrencyCap, ProjectShare, Tuning
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request

CLASSES = {
    "training": ClassRules("training", kind_of_work="training"),
    "urgent": ClassRules(
        "urgent", priority=20, preempts=True, max_running=3, kind_of_work="training"
    ),
    "small": ClassRules("small", priority=-5, max_gpus=12, kind_of_work="training"),
    "serving": ClassRules("serving", priority=5, max_running=2, kind_of_work="serving"),
}
GRANTS = [
    Grants(),
    Grants(granted={"vision": frozenset({"urgent"}), "speech": frozenset({"urgent"})}),
    Grants(open_classes=frozenset({"training", "serving"})),
    Grants(confined={"vision": frozenset({"training", "urgent"})}),
]
PROJECTS = {
    "vision": ProjectShare("vision", gpu_quota=16, power_quota_w=14_000.0),
    "speech": ProjectShare("speech", weight=3.0),
}
#: The next cycle comes so long after one.
CYCLE_S = 2.0
CAP = ConcurrencyCap(Scope(ScopeKind.RACK, "s1/A01"), 2, restriction_id=3, reason="hot")

#: What jobs ask for, …
JOBS: dict[str, Sequence[Any]] = {
    "gpus": [1, 1, 2, 4, 8, 12, 16],
    "project": sorted(PROJECTS),
    "job_class": sorted(CLASSES),
    "walltime_s": [300.0, 1800.0, 7200.0, 1e5],
    "gpu_peak_w": [350.0, 500.0, 700.0],
    "required": list(Locality),
    "sites": [(), ("s1",)],
    "preemptible": [False, True],
    "checkpoint_interval_s": [None, 600.0],
    "is_elastic": [False, True],
    "is_capped": [False, True],
}
#: … and on which fleets, under which rules.
WORLDS: dict[str, Sequence[Any]] = {
    "sites": [1, 2],
    "racks": [2, 4],
    "budget_w": [9_000.0, 13_000.0, 44_000.0],
    "zone_w": [30_000.0, 176_000.0],
    "capped": [False, True],
    "reservations": [1, 4],
    "stagger_above": [0.3, 0.8, 2.0],
    "grants": GRANTS,
    "least_runtime_s": [0.0, 600.0],
}
WAITS_S = [2.0, 60.0, 600.0, 4000.0]

jobs = st.fixed_dictionaries({name: st.sampled_from(of) for name, of in JOBS.items()})
worlds = st.fixed_dictionaries({name: st.sampled_from(of) for name, of in WORLDS.items()})


class QueueMachine(RuleBasedStateMachine):
    """A fleet that is short of power, with a queue, on a clock."""

    world: World

    @initialize(values=worlds)
    def begin_anywhere(self, values: dict[str, Any]) -> None:
        self.begin(**values)

    def begin(self, **values: Any) -> None:
        fleet = make_arrays(
            sites=values["sites"],
            racks=values["racks"],
            nodes=1,
            budget_w=values["budget_w"],
            zone_w=values["zone_w"],
        )
        self.world = World(
            fleet,
            classes=CLASSES,
            projects=PROJECTS,
            caps=(CAP,) if values["capped"] else (),
            grants=values["grants"],
            preemption=PreemptionPolicy(least_runtime_s=values.get("least_runtime_s", 0.0)),
            tuning=Tuning(
                reservations=values["reservations"], stagger_above=values["stagger_above"]
            ),
        )
        self.jobs = 0

    @rule(some=st.lists(jobs, min_size=1, max_size=4))
    def submit(self, some: list[dict[str, Any]]) -> None:
        for one in some:
            self.jobs += 1
            is_elastic, is_capped = one["is_elastic"], one["is_capped"]
            values = {k: v for k, v in one.items() if k not in ("is_elastic", "is_capped")}
            self.world.submit(
                make_request(
                    f"j{self.jobs}/train",
                    submitted_at=self.world.now,
                    priority=CLASSES[one["job_class"]].priority,
                    min_gpus=max(one["gpus"] // 2, 1) if is_elastic else one["gpus"],
                    lowest_cap_w=0.8 * one["gpu_peak_w"] if is_capped else None,
                    max_slowdown=0.1 if is_capped else 0.0,
                    **values,
                )
            )

    @precondition(lambda self: self.world.pending)
    @rule(pick=st.integers(0, 99), is_held=st.booleans())
    def hold(self, pick: int, is_held: bool) -> None:
        key = sorted(self.world.pending)[pick % len(self.world.pending)]
        held_by = "operator ann" if is_held else ""
        self.world.pending[key] = replace(self.world.pending[key], held_by=held_by)

    @precondition(lambda self: self.world.running)
    @rule(pick=st.integers(0, 99))
    def fail(self, pick: int) -> None:
        self.world.end(sorted(self.world.running)[pick % len(self.world.running)])

    @rule(seconds=st.sampled_from(WAITS_S))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.end_due()

    @rule()
    def cycle(self) -> None:
        decisions = self.world.cycle()
        assert set(decisions.waiting) == set(self.world.pending)
        for each in decisions.admitted:
            gpus = len(each.placement.gpus)
            assert each.request.min_gpus <= gpus <= each.request.gpus
        for waiting in decisions.waiting.values():
            assert waiting.dominant == dominant(waiting.reasons)
            assert waiting.dominant.sentence
            assert not waiting.trace[-1].passed or _is_next(waiting.dominant.token)
        if not any(_is_next(each.dominant.token) for each in decisions.waiting.values()):
            again = decide(self.world.snapshot())
            assert again.admitted == ()
            assert again.preempt == ()
            self.changes_are_true(decisions)

    def changes_are_true(self, decisions: Decisions) -> int:
        """Check all that is told of the queue as a cycle left it; return how many changes are."""
        told = 0
        for key in decisions.waiting:
            explanation = explain(decisions, key)
            self._names_nobody_else(key, [each.sentence for each in explanation.reasons])
            for each in explanation.counterfactuals:
                for after_s in (0.0, CYCLE_S) if each.starts_now else (0.0,):
                    then = self.world.applied(key, each, decisions, after_s=after_s)
                    started = {one.request.key: one.placement for one in then.admitted}
                    assert started.get(key) == each.placement, (key, each, after_s)
                self._price_is_right(key, each)
                self._is_within_its_rights(key, each)
                self._names_nobody_else(key, [each.sentence])
            told += len(explanation.counterfactuals)
        return told

    def _price_is_right(self, key: str, found: Counterfactual) -> None:
        old = self.world.pending[key].request
        new = found.change.apply(old, CLASSES)
        work = (1.0 - found.placement.slowdown) * min(new.gpus / old.gpus, 1.0)
        assert found.price.slower == pytest.approx(1.0 - work)
        assert found.price.less_work == pytest.approx(1.0 - new.walltime_s / old.walltime_s)
        later_s = 0.0 if found.starts_now else (found.change.begin_at or 0.0) - self.world.now
        assert found.price.later_s == later_s
        assert found.starts_now or new == old
        cap_w = found.placement.power_cap_w
        assert (
            cap_w is None
            or found.change.lowest_cap_w is None
            or (cap_w >= found.change.lowest_cap_w)
        )
        assert found.change.gpus in (None, len(found.placement.gpus))
        passed = self._passed(key, new.priority)
        assert passed == set(found.burden.passed if found.burden else ())

    def _passed(self, key: str, priority: int) -> set[str]:
        """Return whom a job goes ahead of with another priority, by the order anew."""
        snapshot, ahead = self.world.snapshot(), []
        for given in (self.world.pending[key].request.priority, priority):
            job = self.world.pending[key]
            changed = replace(job, request=replace(job.request, priority=given))
            pending = tuple({**self.world.pending, key: changed}.values())
            found = order(
                pending,
                snapshot.running,
                snapshot.projects,
                now=snapshot.now,
                tuning=snapshot.tuning,
            )
            keys = [each.request.key for each in found.pending]
            ahead.append(set(keys[: keys.index(key)]))
        return ahead[0] - ahead[1]

    def _is_within_its_rights(self, key: str, found: Counterfactual) -> None:
        name, request = found.change.job_class, self.world.pending[key].request
        if name is not None:
            assert self.world.grants.allows(request.project, CLASSES[name])
            assert CLASSES[name].kind_of_work == CLASSES[request.job_class].kind_of_work

    def _names_nobody_else(self, key: str, sentences: Iterable[str]) -> None:
        """No other job, and no other project, stands in what is told of a job."""
        everybody = {**self.world.pending, **self.world.running}
        hidden = {
            one for other in everybody if other != key for one in (other, other.split("/")[0])
        }
        hidden |= set(PROJECTS) - {self.world.pending[key].request.project}
        for sentence in sentences:
            assert hidden.isdisjoint(re.findall(r"[\w/-]+", sentence)), sentence

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


def _is_next(token: ReasonToken) -> bool:
    """Whether a job was found to fit in the last round, and starts with the next cycle."""
    return token is ReasonToken.BEHIND_HIGHER_PRIORITY


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
            later = queue.world.snapshot()
            later.cluster.now += CYCLE_S
            again = decide(replace(later, now=later.now + CYCLE_S))
            is_next = any(_is_next(each.dominant.token) for each in decisions.waiting.values())
            # Where others start or are to give way in the next cycle, more than time has passed.
            if not (is_next or again.admitted or again.preempt):
                told += queue.changes_are_true(decisions)
            queue.wait(waits_s)
    return told


def test_changes_are_true_in_the_next_cycle_of_random_worlds() -> None:
    # In the last two another class and other sites were told of, which were false 2 s later: who
    # had begun counted otherwise, and a run ended just when what it takes was kept for others.
    assert sum(map(_play, (1, 2, 1176, 1040))) > 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1300, 60))
def test_changes_are_true_in_the_next_cycle_of_many_random_worlds(first: int) -> None:
    assert sum(map(_play, range(first, first + 60))) > 300


@pytest.mark.slow
def test_promises_hold_for_longer() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(_SETTINGS, max_examples=150, stateful_step_count=20)
    )
