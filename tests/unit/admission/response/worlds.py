"""Fleets with loads on them, and jobs that stand there, for tests of who gives way."""

from __future__ import annotations

from typing import Any

import numpy as np

from admission.core.response.respond import Level, ResponseStatus, Subject, Throttling
from fleet.snapshot import FleetArrays
from policies.headroom.reach import Reach, Room
from tests.builders.arrays import make_arrays

#: As long as no budget is set, none is in the way.
PLENTY_W = 1e9


def make_fleet(**given: Any) -> FleetArrays:
    """Return one row of four racks with two nodes each."""
    return make_arrays(**{"sites": 1, "racks": 4, "nodes": 2, "gpus": 8, **given})


def make_room(reach: Reach, *, node_w: Any, budgets: dict[int, float] | None = None) -> Room:
    """Return what is left when nodes draw ``node_w``; ``budgets`` are by place of the reach."""
    budget_w = np.full(reach.count, PLENTY_W)
    for place, watts in (budgets or {}).items():
        budget_w[place] = watts
    loads = np.zeros(reach.count)
    nodes = np.arange(len(reach.fleet.nodes))
    places, carried_w = reach.carried(nodes.tolist(), np.asarray(node_w, dtype=float).tolist())
    loads[places] = carried_w
    return Room(budget_w, budget_w - loads)


def make_subject(key: str, node: int, **given: Any) -> Subject:
    """Return a job on one node that draws 8 kW of its 8 kW, and 1 kW while it is paused."""
    fields: dict[str, Any] = {
        "throttling": Throttling(shrink_below=0.10, pause_below=0.05, batch_scale=0.5),
        "status": ResponseStatus(),
        "gpus": 8,
        "nodes": (node,),
        "draw_w": (8000.0,),
        "floor_w": (1000.0,),
        "peak_w": (8000.0,),
    }
    return Subject(key=key, **{**fields, **given})


LOW_LONG_AGO = ResponseStatus(low_since=0.0)
__all__ = [
    "LOW_LONG_AGO", "PLENTY_W", "Level", "make_fleet", "make_room", "make_subject",
]  # fmt: skip
