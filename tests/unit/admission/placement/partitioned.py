"""Small fleets of which some GPUs are split into slices, and some nodes hand out cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from admission.core.placement.cluster import Cluster, beside_w
from admission.core.placement.topology import Bools
from admission.core.request import Placement, Request
from admission.core.slices import in_parts
from fleet.slicing import holdable
from fleet.tables import FleetArrays, GpuTable
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Reservations
from policies.restrictions.strictest import InForce
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import NOW, headroom_of

MODEL = "NVIDIA H100 80GB HBM3"
SEVEN = ("1g.10gb",) * 7
MIXED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
HALVES = ("3g.40gb", "3g.40gb")


def partitioned(
    slices: Mapping[int, Sequence[str]], *, gpus: int = 4, racks: int = 1, **given: Any
) -> FleetArrays:
    """Return a fleet of H100s, by default of two nodes with four, with ``slices`` by row."""
    fleet = make_arrays(racks=racks, gpus=gpus, rack_meters=False, **given)
    names = fleet.models.names.copy()
    names[0] = MODEL
    return replace(
        fleet,
        models=replace(fleet.models, names=names),
        slices={row: tuple(each) for row, each in slices.items()},
    )


def with_cores(fleet: FleetArrays, cores: Mapping[int, int]) -> FleetArrays:
    """Return ``fleet`` with cores in place of the GPUs of some nodes, by row."""
    stays = ~np.isin(fleet.gpus.node, list(cores))
    gpus = {each.name: getattr(fleet.gpus, each.name)[stays] for each in fields(GpuTable)}
    return replace(fleet, gpus=GpuTable(**gpus), cores=dict(cores))


def cluster_of(
    fleet: FleetArrays,
    gangs: Sequence[tuple[Request, Placement]] = (),
    *,
    host: Mapping[str, Any] | None = None,
    **gpu: Any,
) -> Cluster:
    """Return ``fleet`` as a cycle finds it with ``gangs`` on it, whose peaks are reserved."""
    held = held_by(fleet, gangs)
    headroom = in_parts(read(fleet, host=host, **gpu), held)
    return Cluster.of(
        reserved(headroom, gangs, held), InForce(datetime.fromtimestamp(NOW, UTC)), held, now=NOW
    )


def read(fleet: FleetArrays, *, host: Mapping[str, Any] | None = None, **gpu: Any) -> Headroom:
    """Return the headroom of ``fleet`` where NVML shows the slices that are stated.

    ``host``: what is read of hosts; None: nothing.
    """
    instances = np.zeros(len(fleet.gpus), dtype=np.int64)
    for row, profiles in fleet.slices.items():
        instances[row] = len(profiles)
    kinds: dict[str, Any] = {} if host is None else {"host": dict(host)}
    return headroom_of(fleet, gpu={"mig_instances": instances, **gpu}, **kinds)


def held_by(fleet: FleetArrays, gangs: Sequence[tuple[Request, Placement]]) -> Bools:
    """Say of each part whether a gang has it."""
    held = np.zeros(len(holdable(fleet).gpus), dtype=bool)
    for _, placement in gangs:
        held[list(placement.gpus)] = True
    return held


def reserved(
    headroom: Headroom, gangs: Sequence[tuple[Request, Placement]], held: Bools
) -> Headroom:
    """Return ``headroom`` with the peaks of gangs reserved, as the cycle does it."""
    node_w = np.zeros(len(headroom.fleet.nodes))
    for _, placement in gangs:
        node_w[list(placement.nodes)] += placement.peak_w
    node_w += np.where(node_w > 0, beside_w(headroom, held), 0.0)
    reservations = replace(Reservations.none(headroom.fleet), node_w=node_w)
    return replace(headroom, reservations=reservations)
