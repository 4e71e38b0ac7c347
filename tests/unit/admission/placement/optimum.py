"""The exact optimum of a small fleet and of gangs that want to stand on it, found by CP-SAT.

The most GPUs that gangs can have at once, whoever of them that leaves out; and the most that they
can have in a given order, where each is let in that fits with all that were let in before it,
wherever all of these stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.request import Locality, Placement, Request
from fleet.snapshot import FleetArrays
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import make_cluster, make_request

GPUS_PER_NODE = 4
#: Watts are whole numbers there; so many of them are one W.
SCALE = 10
#: No question takes longer, s.
_SOLVES_S = 20.0


@dataclass(frozen=True)
class Instance:
    fleet: FleetArrays
    #: in the order of the queue
    requests: list[Request]

    @property
    def cluster(self) -> Cluster:
        return make_cluster(self.fleet)

    @property
    def by_watts(self) -> list[Request]:
        """The requests that want the least watts for a GPU first, the largest of them before."""
        return sorted(
            self.requests, key=lambda each: (each.gpu_peak_w or 0.0, -each.gpus, each.key)
        )


def make_instance(seed: int) -> Instance:
    """Return a small fleet with one or two tight limits, and more gangs than it takes."""
    rng = np.random.default_rng(seed)
    racks = int(rng.integers(2, 5))
    fleet = make_arrays(
        sites=1,
        racks=racks,
        nodes=int(rng.integers(2, 4)),
        gpus=GPUS_PER_NODE,
        budget_w=float(rng.choice([13_000.0, 17_000.0, 25_000.0])),
        pdu_w=float(rng.uniform(0.6, 1.2)) * racks * 16_000.0,
        zone_w=float(rng.uniform(0.6, 1.2)) * racks * 16_000.0,
    )
    requests = [
        make_request(
            f"j{number}/t",
            gpus=int(rng.choice([1, 2, 3, 4, 4, 6, 8, 8, 12])),
            gpu_peak_w=float(rng.choice([400.0, 550.0, 700.0])),
            required=Locality(int(rng.choice([1, 3, 5, 5]))),
        )
        for number in range(int(rng.integers(5, 10)))
    ]
    return Instance(fleet, requests)


def greedy(instance: Instance, order: Iterable[Request]) -> dict[str, Placement]:
    """Place one gang after the other, and never move one."""
    cluster, found = instance.cluster, {}
    for request in order:
        placement = place(cluster, request)
        if isinstance(placement, Placement):
            cluster.allocate(placement, request)
            found[request.key] = placement
    return found


def optimum(instance: Instance) -> int:
    """Return the most GPUs that gangs can have at once."""
    model, admitted = _model(instance, instance.requests)
    model.maximize(
        sum(r.gpus * is_in for r, is_in in zip(instance.requests, admitted, strict=True))
    )
    return round(_solved(model).objective_value)


def best_in_order(instance: Instance, order: Iterable[Request]) -> int:
    """Return the most GPUs that gangs can have if each is let in that fits with those before it."""
    kept: list[Request] = []
    for request in order:
        model, admitted = _model(instance, [*kept, request])
        for is_in in admitted:
            model.add(is_in == 1)
        if _solves(model):
            kept.append(request)
    return sum(each.gpus for each in kept)


def _model(instance: Instance, requests: Sequence[Request]) -> tuple[cp_model.CpModel, list[Any]]:
    """Return the limits of a fleet as constraints, and for each gang whether it is let in."""
    model, cluster = cp_model.CpModel(), instance.cluster
    fleet, constants = instance.fleet, cluster.constants
    nodes = range(len(fleet.nodes))
    taken: list[list[Any]] = []
    admitted = []
    for request in requests:
        mine = [model.new_int_var(0, GPUS_PER_NODE, "") for _ in nodes]
        is_in = model.new_bool_var("")
        model.add(sum(mine) == request.gpus * is_in)
        _together(model, cluster, request, mine)
        taken.append(mine)
        admitted.append(is_in)
    for node in nodes:
        model.add(sum(mine[node] for mine in taken) <= GPUS_PER_NODE)
    added = []
    for node in nodes:
        each_w = [
            int(SCALE * constants.factor[node] * (request.gpu_peak_w - 70.0))
            for request in requests
            if request.gpu_peak_w is not None
        ]
        added.append(sum(w * mine[node] for w, mine in zip(each_w, taken, strict=True)))
    for row, room_w in enumerate(cluster.room_w[:-1].tolist()):
        if np.isinf(room_w):
            continue
        shares = {
            rack: share
            for rack, terms in enumerate(cluster.topology.terms)
            for limit, share in terms
            if limit == row
        }
        # In halves of a W: a rack on two feeds draws half of its load from each.
        asked = [
            int(2 * shares[rack]) * added[node]
            for node in nodes
            if (rack := int(fleet.nodes.rack[node])) in shares
        ]
        model.add(sum(asked) <= int(2 * SCALE * room_w))
    return model, admitted


def _together(
    model: cp_model.CpModel, cluster: Cluster, request: Request, mine: Sequence[Any]
) -> None:
    """Have a gang stand in one group of the locality that it requires."""
    if request.required is Locality.FLEET:
        return
    group = cluster.topology.groups[request.required].tolist()
    chosen = {each: model.new_bool_var("") for each in set(group)}
    model.add_exactly_one(chosen.values())
    for node, count in enumerate(mine):
        model.add(count <= GPUS_PER_NODE * chosen[group[node]])


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = _SOLVES_S
    return solver


def _solved(model: cp_model.CpModel) -> cp_model.CpSolver:
    solver = _solver()
    if solver.solve(model) != cp_model.OPTIMAL:
        raise RuntimeError("the optimum was not found in time")
    return solver


def _solves(model: cp_model.CpModel) -> bool:
    found = _solver().solve(model)
    if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE):
        raise RuntimeError("whether all fit was not found out in time")
    return found != cp_model.INFEASIBLE
