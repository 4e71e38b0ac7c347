"""GPUs placed beside the exact optimum: two hundred small fleets, other ones each day.

The optimum chooses who is let in. In an order nobody can have all of it: so the best that any
placement could have in that very order is told beside what the solver has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from admission.core.request import Request
from tests.unit.admission.placement.optimum import (
    Instance,
    best_in_order,
    greedy,
    make_instance,
    optimum,
)

_FLEETS = 200


def measure() -> dict[str, float]:
    """Return shares of the optimum, %, in the order of the queue and by watts for a GPU."""
    first = int(f"{datetime.now(UTC):%Y%m%d}") * 1000
    instances = [make_instance(seed) for seed in range(first, first + _FLEETS)]
    best = [optimum(each) for each in instances]
    orders = {
        "queue": [each.requests for each in instances],
        "own": [each.by_watts for each in instances],
    }
    found: dict[str, float] = {}
    for name, order in orders.items():
        pairs = list(zip(instances, order, strict=True))
        placed = [_placed(instance, each) for instance, each in pairs]
        most = [best_in_order(instance, each) for instance, each in pairs]
        found[f"placed_{name}_order_pct"] = _share(placed, best)
        found[f"placed_{name}_order_bound_pct"] = _share(most, best)
    return found


def _placed(instance: Instance, order: Sequence[Request]) -> int:
    return sum(len(each.gpus) for each in greedy(instance, order).values())


def _share(placed: Sequence[int], best: Sequence[int]) -> float:
    shares = [have / most if most else 1.0 for have, most in zip(placed, best, strict=True)]
    return round(100.0 * sum(shares) / len(shares), 2)
