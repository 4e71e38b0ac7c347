"""Greedy placement beside the exact optimum of the same fleet and requests, found by CP-SAT.

The optimum chooses which gangs to admit and where all of them stand at once. The solver places one
after the other and never moves one. What it misses is lost to the order for the most part: so it is
also held against the best placement in that very order. In a queue the order is a matter of
priorities; by itself it would take those first that want the least watts for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from admission.core.request import Placement, Request
from tests.unit.admission.placement.optimum import (
    Instance,
    best_in_order,
    greedy,
    make_instance,
    optimum,
)
from tests.unit.admission.placement.scenes import Loads, headroom_of

Ordered = Callable[[Instance], Sequence[Request]]


def _own(instance: Instance) -> Sequence[Request]:
    return instance.by_watts


def _queue(instance: Instance) -> Sequence[Request]:
    return instance.requests


def check_feasible(instance: Instance, found: dict[str, Placement]) -> None:
    loads = Loads.of(
        instance.fleet, headroom_of(instance.fleet).summary.gpus.load_w, found.values()
    )
    assert loads.excess_w(range(len(instance.fleet.racks))) == {}
    for request in instance.requests:
        if request.key in found:
            assert len(found[request.key].gpus) == request.gpus
            assert found[request.key].locality <= request.required


def shares(seeds: range, ordered: Ordered, best_of: Callable[[Instance], int]) -> list[float]:
    """Return which share of the best greedy placement has in an order, for each instance."""
    found = []
    for seed in seeds:
        instance = make_instance(seed)
        placed = greedy(instance, ordered(instance))
        check_feasible(instance, placed)
        best = best_of(instance)
        found.append(sum(len(each.gpus) for each in placed.values()) / best if best else 1.0)
    return found


def test_it_is_feasible_and_within_five_percent_on_average() -> None:
    found = shares(range(15), _own, optimum)
    assert max(found) <= 1.0
    assert np.mean(found) >= 0.95, np.round(found, 2)


@pytest.mark.parametrize("ordered", [_own, _queue])
def test_in_an_order_it_misses_hardly_anything_of_what_that_lets_stand(ordered: Ordered) -> None:
    found = shares(range(10), ordered, lambda each: best_in_order(each, ordered(each)))
    assert np.mean(found) >= 0.98, np.round(found, 2)


@pytest.mark.slow
def test_it_stays_so_over_many_instances() -> None:
    found = shares(range(1000, 1300), _own, optimum)
    assert np.mean(found) >= 0.95, np.round(found, 2)
