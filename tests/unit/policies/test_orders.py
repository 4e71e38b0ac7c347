"""Caps of the controller as limits of nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from fleet.tables import FleetArrays
from policies.caps.orders import Orders, by_gpu, by_node
from tests.builders.arrays import make_arrays

FLEET = make_arrays(racks=1, nodes=2, gpus=4)


def ordered(caps: Mapping[int, tuple[int, float]], fleet: FleetArrays = FLEET) -> Orders:
    """Return caps by row of a GPU: of which unit, and W."""
    rows = list(caps)
    return Orders(
        version="1",
        at=0.0,
        expires_at=600.0,
        gpu=fleet.gpus.ids[rows].astype("<i8").tobytes(),
        unit=np.array([unit for unit, _ in caps.values()], dtype="<i8").tobytes(),
        cap_w=np.array([watts for _, watts in caps.values()], dtype="<f8").tobytes(),
    )


def told(orders: Orders) -> list[tuple[str, str, int | None, float]]:
    return [(each.id, each.node, each.gpu, each.value) for _, each in by_node(orders, FLEET)]


def test_a_node_that_one_unit_has_as_a_whole_gets_one_limit() -> None:
    orders = ordered(dict.fromkeys([3, 1, 0, 2], (17, 450.0)))
    node = str(FLEET.nodes.names[0])
    assert told(orders) == [("controller-attempt-17", node, None, 450.0)]
    ((_, limit),) = by_node(orders, FLEET)
    assert limit.expires_at == 600.0


def test_gpus_of_a_node_that_differ_get_limits_of_their_own_with_ids_of_their_own() -> None:
    unmanaged = -1 - int(FLEET.nodes.ids[1])
    orders = ordered({4: (17, 450.0), 5: (17, 450.0), 7: (unmanaged, 300.0)})
    node = str(FLEET.nodes.names[1])
    assert told(orders) == [
        ("controller-attempt-17-gpu-0", node, 0, 450.0),
        ("controller-attempt-17-gpu-1", node, 1, 450.0),
        (f"controller-node-{FLEET.nodes.ids[1]}-gpu-3", node, 3, 300.0),
    ]


def test_gpus_that_have_left_the_inventory_are_left_out() -> None:
    orders = ordered({0: (17, 450.0)})
    gone = Orders("1", 0.0, 600.0, np.array([10**9], "<i8").tobytes(), orders.unit, orders.cap_w)
    assert told(gone) == []


def test_each_gpu_has_the_cap_that_was_ordered_for_it_and_others_none() -> None:
    found = by_gpu(ordered({6: (17, 450.0), 2: (3, 300.0)}), FLEET)
    assert found[[2, 6]].tolist() == [300.0, 450.0]
    assert np.isinf(np.delete(found, [2, 6])).all()


def test_a_hundred_thousand_gpus_are_cut_to_their_nodes_in_a_second() -> None:
    fleet = make_arrays(sites=10, racks=125, nodes=10, gpus=8)
    orders = ordered({row: (row // 64, 400.0 + row % 3) for row in range(100_000)}, fleet)
    began = time.process_time()
    assert len(list(by_node(orders, fleet))) == 100_000
    assert time.process_time() - began < 1.5
