"""The controller in a world: what it takes for whose load as jobs begin and end."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from admission.core import holding
from admission.core.response.respond import Throttling
from lab.world import World
from lab.world.gangs import EPOCH_S
from lab.world.policy import Headroom, Policy
from policies.controller.control import Kind
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind
from tests.unit.lab.world.builders import make_arrival, tight_fleet


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[holding.Holding]:
    """Every look of the controller."""
    found: list[holding.Holding] = []
    look = holding.look

    def noted(*args: object, **given: object) -> holding.Holding | None:
        one = look(*args, **given)  # type: ignore[arg-type]
        found.extend([one] if one else [])
        return one

    monkeypatch.setattr(holding, "look", noted)
    return found


def test_gpus_of_jobs_that_have_ended_are_nobodys_load(looked: list[holding.Holding]) -> None:
    jobs = [make_arrival(f"j{at}", gpus=4, runs_s=60.0, at_s=20.0 * at) for at in range(6)]
    policy = Policy(approach=Headroom(controls=True), rules=())
    world = World(tight_fleet(gpus=16, sites=1), jobs, policy, seed=1)

    record = world.run(400.0)

    assert sum(each.state == "done" for each in record.jobs) >= 4
    assert len(looked) > 100
    assert not any((each.units.kind == Kind.UNMANAGED).any() for each in looked)


def test_what_was_learned_of_hosts_before_counts_from_the_first_look(
    looked: list[holding.Holding],
) -> None:
    jobs = [make_arrival(f"j{at}", gpus=4, runs_s=600.0) for at in range(6)]
    fleet, policy = tight_fleet(gpus=32, sites=1), Policy(approach=Headroom(controls=True))
    before = World(fleet, jobs, policy, seed=1)
    before.run(300.0)
    learned = looked[-1].headroom.host_share
    assert (learned < 0.9 * looked[0].headroom.host_share).all()

    looked.clear()
    World(fleet, jobs, policy, seed=1, hosts=before.hosts).run(10.0)

    assert looked[0].headroom.host_share == pytest.approx(learned, rel=0.05)


def test_caps_under_which_jobs_stand_still_are_nobody_elses_limits(
    looked: list[holding.Holding],
) -> None:
    agreed = {"throttling": Throttling(0.05, 0.02, 0.5), "lowest_cap_w": 350.0, "max_slowdown": 0.2}
    jobs = [make_arrival(f"j{at}", gpus=8, runs_s=2000.0, **agreed) for at in range(3)]
    world = World(tight_fleet(gpus=32, sites=1), jobs, Policy(), seed=1)
    world.run(200.0)
    site = looked[-1].headroom.fleet.sites
    ends_at = datetime.fromtimestamp(EPOCH_S + 600.0, UTC)
    cut = Wanted(
        RestrictionKind.POWER_BUDGET_W, Scope(ScopeKind.SITE, str(site.names[0])),
        0.4 * float(site.budget_w[0]), "the grid", "user:ada", "cut", ends_at,
    )  # fmt: skip
    world.restrict(cut)
    looked.clear()

    world.run(400.0)

    capped = [each.plant.limit_w < 690.0 for each in looked[20:]]
    held = [np.bincount(each.units.gpu, minlength=32) > 0 for each in looked[20:]]
    stands_still = [cap & ~mine for cap, mine in zip(capped, held, strict=True)]
    assert np.concatenate(stands_still).sum() > 32 * 20, "it is what the scene is about"
    assert not any(np.isfinite(each.found.memory.own_limit_w).any() for each in looked)


def test_what_a_job_draws_without_a_cap_is_known_while_caps_hold_it(
    looked: list[holding.Holding],
) -> None:
    agreed = {"lowest_cap_w": 350.0, "max_slowdown": 0.2, "min_gpus": 4}
    jobs = [make_arrival(f"j{at}", gpus=8, runs_s=2000.0, **agreed) for at in range(4)]
    roomy = tight_fleet(gpus=32, sites=1, power_share=2.0, feed_share=2.0)
    found = []
    for fleet in (roomy, tight_fleet(gpus=32, sites=1)):
        World(fleet, jobs, Policy(), seed=1).run(240.0)
        found.append(looked[-1].draws)
    free, held = found
    assert free.keys() == held.keys() == {each.request.key for each in jobs}
    now_w = [sum(each.now_w for each in draws.values()) for draws in found]
    assert now_w[1] < 0.8 * now_w[0], "it is what the scene is about"
    for key, each in held.items():
        assert each.full_w == pytest.approx(free[key].full_w, rel=0.1)
