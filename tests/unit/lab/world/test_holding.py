"""The controller in a world: what it takes for whose load as jobs begin and end."""

from __future__ import annotations

import pytest

from admission.core import holding
from lab.world import World
from lab.world.policy import Headroom, Policy
from policies.controller.control import Kind
from tests.unit.lab.world.builders import make_arrival, tight_fleet


def test_gpus_of_jobs_that_have_ended_are_nobodys_load(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[holding.Holding] = []
    look = holding.look

    def noted(*args: object, **given: object) -> holding.Holding | None:
        found = look(*args, **given)  # type: ignore[arg-type]
        looked.extend([found] if found else [])
        return found

    monkeypatch.setattr(holding, "look", noted)
    jobs = [make_arrival(f"j{at}", gpus=4, runs_s=60.0, at_s=20.0 * at) for at in range(6)]
    policy = Policy(approach=Headroom(controls=True), rules=())
    world = World(tight_fleet(gpus=16, sites=1), jobs, policy, seed=1)

    record = world.run(400.0)

    assert sum(each.state == "done" for each in record.jobs) >= 4
    assert len(looked) > 100
    assert not any((each.units.kind == Kind.UNMANAGED).any() for each in looked)
