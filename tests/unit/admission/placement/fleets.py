"""Small fleets that are wired anyhow, and requests of any kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from admission.core.request import Locality, Request
from fleet.snapshot import FleetArrays
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import make_request

GPUS_PER_NODE = 4


def any_fleet(rng: np.random.Generator) -> FleetArrays:
    """Return a fleet of one to three sites with limits that some gangs reach.

    Some racks hang on one feed, or on no zone; nodes differ in their hosts.
    """
    racks = int(rng.integers(2, 7))
    fleet = make_arrays(
        sites=int(rng.integers(1, 4)),
        racks=racks,
        nodes=2,
        gpus=GPUS_PER_NODE,
        budget_w=float(rng.uniform(6_000.0, 17_000.0)),
        zone_w=float(rng.uniform(20_000.0, 60_000.0)),
        pdu_w=float(rng.uniform(15_000.0, 60_000.0)),
        derating=float(rng.choice([0.8, 1.0])),
        rack_meters=False,
    )
    return _rewired(fleet, rng)


def _rewired(fleet: FleetArrays, rng: np.random.Generator) -> FleetArrays:
    racks, nodes = len(fleet.racks), len(fleet.nodes)
    single, unzoned = rng.random(racks) < 0.2, rng.random(racks) < 0.15
    domains = np.array([f"leaf-{i}" if i else "" for i in rng.integers(0, 3, nodes)], object)
    stated = rng.random() < 0.5
    return replace(
        fleet,
        racks=replace(
            fleet.racks,
            feed_b=np.where(single, -1, fleet.racks.feed_b),
            zone=np.where(unzoned, -1, fleet.racks.zone),
        ),
        nodes=replace(
            fleet.nodes,
            host_idle_w=rng.uniform(200.0, 600.0, nodes),
            host_rated_w=rng.uniform(800.0, 2_000.0, nodes),
            switch_domain=domains if stated else fleet.nodes.switch_domain,
        ),
        sites=replace(
            fleet.sites, budget_w=rng.uniform(0.4, 1.0, len(fleet.sites)) * racks * 12_000.0
        ),
    )


def any_request(rng: np.random.Generator, number: int) -> Request:
    """Return a request that may or may not fit."""
    gpus = int(rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 20]))
    per_node = int(rng.choice([2, 4])) if gpus % 4 == 0 and rng.random() < 0.3 else None
    elastic = rng.random() < 0.3 and per_node is None
    return make_request(
        f"j{number}/train",
        gpus=gpus,
        min_gpus=int(rng.integers(1, gpus + 1)) if elastic else gpus,
        gpus_per_node=per_node,
        gpu_peak_w=None if rng.random() < 0.3 else float(rng.uniform(200.0, 700.0)),
        lowest_cap_w=300.0 if rng.random() < 0.4 else None,
        max_slowdown=0.3 if rng.random() < 0.7 else 0.0,
        thermal_margin_c=float(rng.choice([0.0, 5.0, 15.0])),
        required=Locality(int(rng.choice([0, 1, 2, 3, 4, 5, 5, 5]))),
        balanced=bool(rng.random() < 0.2),
    )
