"""While a rollout soaks, jobs start where the mix on its arms stays alike."""

from __future__ import annotations

import time

import pytest
from django.utils import timezone

from admission.cycle import live
from admission.jobs.models import Attempt
from policies.rollouts.following import ROLLOUTS
from policies.rollouts.models import RolloutRun
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.rollouts import DRIVER, make_held
from tests.integration.admission.cycle.scenes import cycle, idle, queued

CHANGED, CONTROL = ["oslo/A01", "oslo/A02"], ["oslo/A03", "oslo/A04"]


@pytest.fixture
def fleet() -> SmallFleet:
    """Four racks of eight idle GPUs."""
    made = small_fleet(sites=("oslo",), racks_per_row=4, rows=("A",))
    idle(made)
    return made


def rollout(state: str = "soaking") -> RolloutRun:
    """Have a rollout be at its first step, on half of the racks."""
    run = make_held(put_in_force(ROLLOUTS, DRIVER))
    run.state, run.racks, run.control = state, [CHANGED], CONTROL
    run.save()
    return run


def on_changed(*names: str) -> list[bool]:
    """Say of jobs whether they run on what was changed."""
    placements = dict(Attempt.objects.values_list("phase__job__name", "placement"))
    return [set(placements[name]["racks"]) <= set(CHANGED) for name in names]


def test_without_a_rollout_jobs_go_where_the_others_are(fleet: SmallFleet) -> None:
    queued("first", gpus=8)
    queued("second", gpus=8)
    cycle()
    first, second = on_changed("first", "second")
    assert first == second


def test_jobs_of_a_class_go_to_both_arms(fleet: SmallFleet) -> None:
    rollout()
    queued("first", gpus=8)
    cycle()
    queued("second", gpus=8)
    cycle()
    assert sorted(on_changed("first", "second")) == [False, True]


def test_jobs_that_start_at_once_do_so_too(fleet: SmallFleet) -> None:
    rollout()
    queued("first", gpus=8)
    queued("second", gpus=8)
    cycle()
    assert sorted(on_changed("first", "second")) == [False, True]


@pytest.mark.parametrize("state", ["changing", "held", "rolling_back", "done"])
def test_a_rollout_that_does_not_soak_steers_nobody(fleet: SmallFleet, state: str) -> None:
    rollout(state)
    assert live.snapshot(time.time()).cluster.mix is None


def test_the_one_that_has_soaked_the_longest_steers(fleet: SmallFleet) -> None:
    rollout()
    text = DRIVER.replace("name: driver", "name: other")
    other = make_held(put_in_force(ROLLOUTS, text))
    other.state, other.control, other.soaking_since = "soaking", ["gone"], timezone.now()
    other.save()
    mix = live.snapshot(time.time()).cluster.mix
    assert mix is not None
    assert mix.arms.gpus.tolist() == [0, 16, 16]


def test_nobody_waits_for_the_other_arm(fleet: SmallFleet) -> None:
    rollout()
    for number in range(4):
        queued(f"job-{number}", gpus=8)
    cycle()
    assert Attempt.objects.count() == 4
