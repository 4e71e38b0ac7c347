"""Greedy placement beside the exact optimum of the same fleet and requests, found by CP-SAT.

The optimum chooses which gangs to admit and where all of them stand at once. The solver places one
after the other and never moves one: those first that want the least watts for a GPU, the largest
of them before others. In a queue the order is a matter of priorities, so it is not what is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from ortools.sat.python import cp_model

from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.request import Locality, Placement, Request
from fleet.snapshot import FleetArrays
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import Loads, headroom_of, make_cluster, make_request

GPUS_PER_NODE = 4
#: Watts are whole numbers there; so many of them are one W.
SCALE = 10


@dataclass(frozen=True)
class Instance:
    fleet: FleetArrays
    requests: list[Request]

    @property
    def cluster(self) -> Cluster:
        return make_cluster(self.fleet)


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


def greedy(instance: Instance) -> dict[str, Placement]:
    """Place one gang after the other: the least watts for a GPU first, then the largest."""
    cluster, found = instance.cluster, {}
    for request in sorted(instance.requests, key=_by_watts):
        placement = place(cluster, request)
        if isinstance(placement, Placement):
            cluster.allocate(placement, request)
            found[request.key] = placement
    return found


def _by_watts(request: Request) -> tuple[float, int, str]:
    return request.gpu_peak_w or 0.0, -request.gpus, request.key


def optimum(instance: Instance) -> int:
    """Return the most GPUs that gangs can have at once."""
    model, cluster = cp_model.CpModel(), instance.cluster
    fleet, constants = instance.fleet, cluster.constants
    nodes = range(len(fleet.nodes))
    taken: list[list[Any]] = []
    admitted = []
    for request in instance.requests:
        mine = [model.new_int_var(0, GPUS_PER_NODE, "") for _ in nodes]
        is_in = model.new_bool_var("")
        model.add(sum(mine) == request.gpus * is_in)
        together(model, cluster, request, mine)
        taken.append(mine)
        admitted.append(is_in)
    for node in nodes:
        model.add(sum(mine[node] for mine in taken) <= GPUS_PER_NODE)
    added = []
    for node in nodes:
        each_w = [
            int(SCALE * constants.factor[node] * (request.gpu_peak_w - 70.0))
            for request in instance.requests
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
    model.maximize(
        sum(r.gpus * is_in for r, is_in in zip(instance.requests, admitted, strict=True))
    )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 20.0
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def together(
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


def check_feasible(instance: Instance, found: dict[str, Placement]) -> None:
    loads = Loads.of(
        instance.fleet, headroom_of(instance.fleet).summary.gpus.load_w, found.values()
    )
    assert loads.excess_w(range(len(instance.fleet.racks))) == {}
    for request in instance.requests:
        if request.key in found:
            assert len(found[request.key].gpus) == request.gpus
            assert found[request.key].locality <= request.required


def shares(seeds: range) -> list[float]:
    """Return which share of the optimum greedy placement has, for each instance."""
    found = []
    for seed in seeds:
        instance = make_instance(seed)
        placed = greedy(instance)
        check_feasible(instance, placed)
        best = optimum(instance)
        got = sum(len(each.gpus) for each in placed.values())
        assert got <= best
        found.append(got / best if best else 1.0)
    return found


def test_it_is_feasible_and_within_five_percent_on_average() -> None:
    found = shares(range(15))
    assert np.mean(found) >= 0.95, np.round(found, 2)


@pytest.mark.slow
def test_it_stays_so_over_many_instances() -> None:
    found = shares(range(1000, 1300))
    assert np.mean(found) >= 0.95, np.round(found, 2)
