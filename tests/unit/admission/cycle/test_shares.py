"""Shares over a day: what backlogs come to, when newcomers start, and what holds nobody up.

All of it on the cycle itself, with jobs that end and a backlog without end behind them. The fleet,
the sizes and times of jobs and the seeds were chosen before the first run, and not after it: a
share of 0.25 is to be met within 0.02 (issue: "with weights 1:3 and endless backlogs").
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.core.sharing import PastUse
from admission.core.snapshot import ProjectShare, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request

CALM = Tuning(stagger_above=2.0)
DAY_S = 86_400.0
LONGEST_S = 5_400.0
SLOW = pytest.mark.slow


@dataclass
class Backlog:
    """The endless backlog of one account: so many jobs of it always wait."""

    project: str
    user: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (1, 2, 4, 8)
    runs_s: tuple[float, float] = (600.0, LONGEST_S)
    waiting: int = 12
    #: they say that they were submitted so long ago
    age_s: float = 0.0

    def fill(self, world: World, rng: random.Random, number: int) -> int:
        waits = sum(
            each.request.project == self.project and each.user == self.user
            for each in world.pending.values()
        )
        for _ in range(self.waiting - waits):
            number += 1
            runs_s = rng.uniform(*self.runs_s)
            gpus = rng.choice(self.sizes)
            request = make_request(
                f"{self.project}-{self.user}-{number}/train", project=self.project, gpus=gpus,
                submitted_at=world.now - self.age_s, walltime_s=2 * runs_s, **self.values,
            )  # fmt: skip
            world.submit(request, runs_s=runs_s, user=self.user)
        return number


def _world(projects: dict[str, ProjectShare]) -> World:
    # Two racks of four nodes of eight GPUs: 64.
    return World(make_arrays(racks=2, nodes=4), tuning=CALM, projects=projects, past_use=PastUse())


def _play(world: World, backlogs: list[Backlog], until: float, *, seed: int) -> dict[Any, float]:
    """Play on until then; return the GPU seconds that each project and user had."""
    rng, number = random.Random(seed), 1_000_000 * seed
    had: dict[Any, float] = defaultdict(float)
    while world.now < until:
        for backlog in backlogs:
            number = backlog.fill(world, rng, number)
        world.cycle()
        then = min(world.next_end, until)
        for each in world.running.values():
            had[each.request.project, each.user] += len(each.placement.gpus) * (then - world.now)
        world.now = then
        world.end_due()
    return had


def _share(had: dict[Any, float], project: str) -> float:
    return sum(v for (name, _), v in had.items() if name == project) / sum(had.values())


@pytest.mark.parametrize(
    ("light", "heavy"),
    [
        # Older, larger, longer and more urgent jobs get nobody a larger share.
        (Backlog("a", values={"priority": 10}, age_s=7200.0), Backlog("b", age_s=7200.0)),
        pytest.param(Backlog("a"), Backlog("b"), marks=SLOW),
        pytest.param(Backlog("a", age_s=36 * 3600.0), Backlog("b"), marks=SLOW),
        pytest.param(Backlog("a", sizes=(8,)), Backlog("b", sizes=(1,), waiting=40), marks=SLOW),
        pytest.param(
            Backlog("a", runs_s=(4000.0, 5400.0)), Backlog("b", runs_s=(300.0, 900.0)), marks=SLOW
        ),
    ],
    ids=["urgent", "alike", "older", "larger", "longer"],
)
def test_with_weights_of_one_to_three_a_quarter_of_the_day_is_had(
    light: Backlog, heavy: Backlog
) -> None:
    projects = {"a": ProjectShare("a", weight=1.0), "b": ProjectShare("b", weight=3.0)}
    had = _play(_world(projects), [light, heavy], NOW + DAY_S, seed=20261123)
    assert sum(had.values()) > 0.9 * 64 * DAY_S
    assert _share(had, "a") == pytest.approx(0.25, abs=0.02)


def test_organizations_share_by_their_weights_whatever_is_in_them() -> None:
    projects = {
        "lone": ProjectShare("lone", organization="products", organization_weight=1.0),
        **{
            name: ProjectShare(name, organization="research", organization_weight=1.0)
            for name in ("many-1", "many-2", "many-3")
        },
    }
    backlogs = [Backlog("lone"), *(Backlog(name, waiting=6) for name in projects if name != "lone")]
    had = _play(_world(projects), backlogs, NOW + DAY_S / 8, seed=7)
    assert _share(had, "lone") == pytest.approx(0.5, abs=0.05)


NEWCOMERS = {
    "project": ("new", "eve", {}),
    "user": ("hog", "bob", {}),
    "organization": (
        "new", "eve", {"new": ProjectShare("new", organization="products")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEWCOMERS)
def test_a_newcomer_begins_within_the_time_of_its_share(name: str) -> None:
    project, user, projects = NEWCOMERS[name]
    hog = ProjectShare("hog", organization="research" if name == "organization" else "")
    world = _world({"hog": hog, **projects})
    backlog = Backlog("hog", user="ada", waiting=40, age_s=36 * 3600.0)
    _play(world, [backlog], NOW + 4 * 3600.0, seed=11)
    submitted_at = world.now
    world.submit(
        make_request(f"first-{name}/train", project=project, gpus=8, submitted_at=submitted_at),
        user=user,
    )
    # Half of the fleet is due to it: so long until half of what ends comes to eight GPUs, by the
    # walltimes that are asked for, twice what jobs run. Room is kept for it by those.
    within_s = 8 / (0.5 * 64) * (600.0 + LONGEST_S)
    _play(world, [backlog], submitted_at + within_s, seed=12)
    assert f"first-{name}/train" in world.running


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=SLOW)])
def test_held_jobs_of_one_user_put_off_no_start_by_a_second(count: int) -> None:
    starts = []
    for held in (0, count):
        world = _world({"hog": ProjectShare("hog", weight=7.0)})
        for n in range(held):
            request = make_request(f"held{n}/train", project="hog", priority=100)
            world.submit(request, user="eve", held_by="eve")
        backlogs = [Backlog("hog", user="ada"), Backlog("vision", user="bob")]
        _play(world, backlogs, NOW + 3600.0, seed=3)
        starts.append([(each.request.key, each.started_at) for each in world.started])
    assert starts[0] == starts[1]
    assert len(starts[0]) > 30
