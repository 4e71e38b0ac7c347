"""The cycle where some GPUs are split: what is told of slices is true, and quotas count them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from admission.core.cycle.decide import decide
from admission.core.cycle.whatif import explain
from admission.core.reasons import ReasonToken
from admission.core.request import Request
from admission.core.snapshot import ProjectShare
from fleet.partitions import share_of
from tests.builders.promises import CLASSES, PROJECTS, RandomQueue
from tests.builders.queue_world import World, make_request
from tests.unit.admission.placement.partitioned import HALVES, MIXED, SEVEN, cluster_of, partitioned

SPLITS = [SEVEN, MIXED, HALVES]
ASKED = ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb", None]


def a_slice(key: str, profile: str = "1g.10gb", **values: Any) -> Request:
    share = share_of(profile, ("NVIDIA H100 80GB HBM3",))
    return make_request(key, slice=profile, gpu_share=share, **values)


def world_of(slices: dict[int, tuple[str, ...]], **given: Any) -> World:
    fleet = partitioned(slices)
    world = World(fleet, **given)
    world.cluster = cluster_of(fleet)
    return world


class SliceQueue(RandomQueue):
    """A small fleet, short of power, of which some GPUs are split, with a queue."""

    def begin_with(self, dice: random.Random) -> None:
        split = {row: dice.choice(SPLITS) for row in range(8) if dice.random() < 0.4}
        fleet = partitioned(split, budget_w=dice.choice([6_000.0, 9_000.0, 44_000.0]))
        self.world = World(fleet, classes=CLASSES, projects=PROJECTS)
        self.world.cluster = cluster_of(fleet)
        self.jobs = 0

    def come(self, dice: random.Random) -> None:
        self.jobs += 1
        profile, name = dice.choice(ASKED), f"j{self.jobs}/train"
        values: dict[str, Any] = {
            "project": dice.choice(sorted(PROJECTS)),
            "job_class": dice.choice(sorted(CLASSES)),
            "walltime_s": dice.choice([300.0, 1800.0, 7200.0]),
            "submitted_at": self.world.now - 1.0,
        }
        values["priority"] = CLASSES[values["job_class"]].priority
        gpus = dice.choice([1, 2, 4])
        request = (
            make_request(name, gpus=gpus, **values)
            if profile is None
            else a_slice(name, profile, **values)
        )
        self.world.submit(request)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_what_is_told_of_random_queues_for_slices_is_true(first: int) -> None:
    told = 0
    for seed in range(first, first + 10):
        dice, queue = random.Random(seed), SliceQueue()
        queue.begin_with(dice)
        for _ in range(4):
            for _ in range(dice.randint(1, 6)):
                queue.come(dice)
            decisions = queue.world.cycle()
            if queue.is_quiet(decisions):
                told += queue.changes_are_true(decisions, delays_s=(0.0,))
            queue.wait(dice.choice([60.0, 600.0]))
    assert told > 10


def test_who_waits_for_a_slice_is_told_of_a_larger_one_where_that_is_free() -> None:
    world = world_of({0: ("3g.40gb", "1g.10gb")})
    world.submit(a_slice("first/train"))
    world.submit(a_slice("second/train"))
    decisions = world.cycle()
    assert set(decisions.waiting) == {"second/train"}
    found = explain(decisions, "second/train")
    assert found.reasons[0].token is ReasonToken.GPU_SHORTAGE
    (now,) = [each for each in found.counterfactuals if each.starts_now]
    assert now.sentence == "starts now as 3g.40gb"
    assert now.change.as_json() == {"slice": "3g.40gb"}


def test_a_smaller_slice_is_offered_to_nobody() -> None:
    world = world_of({0: ("3g.40gb", "1g.10gb")})
    for name in ("first/train", "second/train"):
        world.submit(a_slice(name, "3g.40gb"))
    decisions = world.cycle()
    found = explain(decisions, "second/train")
    assert [each for each in found.counterfactuals if each.starts_now] == []


@pytest.mark.parametrize(("quota", "starts"), [(1, 7), (2, 14)])
def test_seven_slices_of_seven_are_one_gpu_of_a_quota(quota: int, starts: int) -> None:
    projects = {"vision": ProjectShare("vision", gpu_quota=quota)}
    world = world_of({0: SEVEN, 1: SEVEN, 2: SEVEN}, projects=projects)
    for number in range(18):
        world.submit(a_slice(f"j{number}/train"))
    decisions = world.cycle()
    assert len(decisions.admitted) == starts
    (token,) = {each.dominant.token for each in decisions.waiting.values()}
    assert token is ReasonToken.QUOTA_EXCEEDED


def test_a_job_that_counts_for_more_has_who_holds_a_slice_give_way_and_nobody_else() -> None:
    world = world_of({0: ("3g.40gb", "3g.40gb")}, classes=CLASSES)
    low = {"job_class": "training", "preemptible": True, "checkpoint_interval_s": 600.0}
    world.submit(a_slice("low/train", "3g.40gb", **low))
    world.submit(a_slice("lower/train", "3g.40gb", **low))
    world.submit(make_request("whole/train", gpus=1, **low))
    world.cycle()
    world.now += 3600.0
    world.running = {key: replace(each) for key, each in world.running.items()}
    urgent = a_slice("urgent/train", "3g.40gb", job_class="urgent", priority=20)
    world.submit(replace(urgent, submitted_at=world.now))
    decisions = decide(world.snapshot())
    (given_way,) = decisions.preempt
    assert given_way.key in {"low/train", "lower/train"}
