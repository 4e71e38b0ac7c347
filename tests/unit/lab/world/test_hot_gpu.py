"""A GPU of a world that loses its fan: the controller holds it, as on the server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lab.fleet import make_even_fleet
from lab.twin.conditions import Conditions
from lab.world import World
from lab.world.policy import Headroom, Policy
from tests.unit.lab.world.builders import make_arrival

_GPU, _FAILS_S, _MENDED_S = 3, 600.0, 1_100.0


def _failing_fan(now_s: float, conditions: Conditions) -> None:
    """Have a heat sink get twice as bad within minutes."""
    if _FAILS_S <= now_s < _MENDED_S:
        lost = min((now_s - _FAILS_S) / 240.0, 1.0)
        conditions.gpu_resistance_factor[_GPU] = 1.0 + 1.1 * lost


def _world(*, controls: bool) -> World:
    return World(
        make_even_fleet(gpus=16, sites=1, nodes_per_rack=2),
        [make_arrival(gpus=16, activity=1.0, runs_s=5_000.0)],
        seed=5,
        policy=Policy(approach=Headroom(controls=controls), rules=()),
        conditions_at=_failing_fan,
    )


def _temperatures(world: World, until_s: float) -> Iterator[float]:
    while world.twin.now_s < until_s - 1e-6:
        world.run(world.twin.now_s + 4.0)
        yield float(world.twin.temp_c[_GPU])


@pytest.fixture(scope="module")
def slowdown_c() -> float:
    return float(_world(controls=True).twin.parts.slowdown_c[_GPU])


def test_without_a_controller_it_throttles(slowdown_c: float) -> None:
    world = _world(controls=False)
    assert max(_temperatures(world, _MENDED_S)) >= slowdown_c
    assert world.run(_MENDED_S).unexpected_throttle_gpu_s > 0.0


def test_under_the_controller_it_stays_below_its_slowdown_and_is_let_go(slowdown_c: float) -> None:
    world = _world(controls=True)
    assert max(_temperatures(world, _MENDED_S)) < slowdown_c - 2.0
    held_w = float(world.twin.cap_w.max())
    assert held_w == world.twin.cap_w.min() < 550.0
    record = world.run(_MENDED_S + 300.0)
    assert record.unexpected_throttle_gpu_s == 0.0
    assert (np.minimum(world.twin.cap_w, 700.0) > held_w + 100.0).all()
