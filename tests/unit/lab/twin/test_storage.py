import numpy as np
import pytest

from lab.fleet import STORAGE_BYTES_PER_S, inventory
from lab.twin.conditions import Conditions
from lab.twin.storage import PART_BYTES, REQUESTS_AT_ONCE, Storage
from tests.unit.lab.twin.placed import make_racks

FLEET = make_racks(sites=2, racks=1)


def make_storage() -> tuple[Storage, Conditions]:
    conditions = Conditions(FLEET)
    return Storage(FLEET, conditions), conditions


def rates(storage: Storage, wanted: list[float], nodes: list[float], site: list[int]) -> np.ndarray:
    return storage.rates(
        wanted_bytes_per_s=np.array(wanted), nodes=np.array(nodes), site=np.array(site)
    )


def test_it_takes_what_the_inventory_says() -> None:
    (endpoint,) = inventory(FLEET)["sites"][0]["storage_endpoints"]
    storage, _ = make_storage()
    assert storage.capacity_bytes_per_s.tolist() == [endpoint["capacity_bytes_per_s"]] * 2


def test_those_who_write_where_there_is_room_get_what_they_want() -> None:
    storage, _ = make_storage()
    assert rates(storage, [0.0, 4e9, 32e9], [0, 1, 8], [0, 0, 1]).tolist() == [0.0, 4e9, 32e9]
    assert storage.used_bytes_per_s.tolist() == [4e9, 32e9]


def test_a_crowded_endpoint_gives_each_node_the_same() -> None:
    storage, conditions = make_storage()
    conditions.storage_share[0] = 0.06
    got = rates(storage, [4e9, 16e9, 4e9], [1, 4, 1], [0, 0, 1])
    assert got.tolist() == pytest.approx([2.4e9, 9.6e9, 4e9])
    assert storage.used_bytes_per_s[0] == pytest.approx(0.06 * STORAGE_BYTES_PER_S)


def test_an_endpoint_that_is_down_takes_nothing() -> None:
    storage, conditions = make_storage()
    conditions.storage_share[1] = 0.0
    assert rates(storage, [4e9, 4e9], [1, 1], [0, 1]).tolist() == [4e9, 0.0]


def test_latency_holds_a_node_to_its_requests_at_once() -> None:
    storage, conditions = make_storage()
    conditions.storage_latency_s[:] = 0.99
    got = rates(storage, [4e9, 32e9], [1, 8], [0, 0])
    assert got.tolist() == pytest.approx([REQUESTS_AT_ONCE * PART_BYTES, 8 * 16 * PART_BYTES])


def test_requests_that_fail_are_made_again_and_cost_their_share() -> None:
    storage, conditions = make_storage()
    conditions.storage_loss[0] = 0.25
    assert rates(storage, [4e9, 4e9], [1, 1], [0, 1]).tolist() == [3e9, 4e9]
    again = storage.retries(
        stored_bytes=np.array([300.0 * PART_BYTES, 300.0 * PART_BYTES]), site=np.array([0, 1])
    )
    # 400 requests for 300 parts.
    assert again.tolist() == pytest.approx([100.0, 0.0])


def test_even_a_storage_that_loses_all_ends_in_numbers() -> None:
    storage, conditions = make_storage()
    conditions.storage_loss[0] = 1.0
    assert 0.0 < rates(storage, [4e9], [1], [0])[0] < 4e9
    assert np.isfinite(storage.retries(stored_bytes=np.array([1e9]), site=np.array([0]))).all()
