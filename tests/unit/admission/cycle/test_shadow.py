"""Where another policy would have decided otherwise, on one look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.core.cycle.decide import decide
from admission.core.cycle.shadow import Difference, Otherwise, differences
from admission.core.grants import Grants
from admission.core.policy import AdmissionPolicy
from admission.core.preempting import PreemptionPolicy
from admission.core.snapshot import ClassRules, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request

CALM = Tuning(stagger_above=2.0)
SAME = AdmissionPolicy(tuning=CALM)


def compared(world: World, other: Tuning, policy: AdmissionPolicy = SAME) -> dict[str, Difference]:
    """Return the differences of one look by job; there is one of each."""
    look = world.snapshot()
    found = differences(decide(look), decide(replace(look, tuning=other)), policy)
    assert len({each.key for each in found}) == len(found)
    return {each.key.partition("/")[0]: each for each in found}


def waiting(*gpus: int, nodes: int = 2) -> World:
    world = World(make_arrays(racks=1, nodes=nodes), tuning=CALM)
    for number, count in enumerate(gpus):
        world.submit(make_request(f"job-{number}/train", gpus=count))
    return world


def test_the_same_policy_decides_the_same() -> None:
    assert compared(waiting(8, 8, 8, 400), CALM) == {}


def test_what_would_have_been_left_waiting_says_why() -> None:
    found = compared(waiting(8, 8), replace(CALM, depth=1))
    assert set(found) == {"job-1"}
    assert found["job-1"].kind is Otherwise.WAIT
    assert found["job-1"].decided.startswith("begins on 8 GPUs in ")
    assert found["job-1"].otherwise not in ("", "waits")


def test_what_would_have_begun_says_what_it_waited_for() -> None:
    world = waiting(8, 8)
    world.tuning = replace(CALM, depth=1)
    found = compared(world, CALM)
    assert {name: each.kind for name, each in found.items()} == {"job-1": Otherwise.START}
    assert found["job-1"].otherwise.startswith("begins on 8 GPUs in ")


def test_what_waits_for_another_reason_is_told() -> None:
    found = compared(waiting(12, 16, 16), replace(CALM, depth=1))
    assert {name: each.kind for name, each in found.items()} == {
        "job-1": Otherwise.REASON, "job-2": Otherwise.REASON,
    }  # fmt: skip
    assert found["job-1"].decided != found["job-1"].otherwise


@pytest.mark.parametrize(
    ("gap", "other_gap", "kind"), [(10, 1000, Otherwise.KEEP), (1000, 10, Otherwise.PREEMPT)]
)
def test_who_would_have_given_way_is_told(gap: int, other_gap: int, kind: Otherwise) -> None:
    classes = {"urgent": ClassRules("urgent", priority=50, preempts=True)}
    at_once = PreemptionPolicy(least_runtime_s=0.0)
    fleet = make_arrays(racks=1, nodes=1)
    world = World(fleet, tuning=CALM, classes=classes, preemption=at_once)
    world.submit(make_request("a/train", gpus=8, preemptible=True, walltime_s=1e5))
    world.cycle()
    world.tuning = replace(CALM, preemption_gap=gap)
    world.submit(make_request("urgent/train", gpus=8, job_class="urgent", priority=50))
    found = compared(world, replace(CALM, preemption_gap=other_gap))
    assert found["a"].kind is kind
    assert "goes on" in (found["a"].decided, found["a"].otherwise)


@pytest.mark.parametrize(("allowed", "count"), [({"other"}, 2), ({"other", "high"}, 0)])
def test_what_its_project_may_not_use_is_told_of_all_that_wait(
    allowed: set[str], count: int
) -> None:
    world = World(make_arrays(racks=1, nodes=2), tuning=CALM)
    world.submit(make_request("a/train", gpus=8, project="vision", job_class="high"))
    world.submit(make_request("b/train", gpus=400, project="vision", job_class="high"))
    world.submit(make_request("c/train", gpus=8, project="speech", job_class="high"))
    policy = replace(SAME, grants=Grants(confined={"vision": frozenset(allowed)}))
    found = compared(world, CALM, policy)
    assert len(found) == count
    assert all(each.kind is Otherwise.REFUSE for each in found.values())
