"""Slots of loads, shared by processes through Redis."""

from __future__ import annotations

import numpy as np
import pytest

from policies.headroom import tasks
from policies.headroom.history import History
from tests.builders.arrays import make_arrays

T = 1_700_000_000.0


def a_process() -> History:
    return History("test", ("sites", "racks"), every_s=20.0, slots=4)


def slot(value: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """One site and four racks."""
    return np.full(5, value, dtype=np.float32)


def test_what_one_process_notes_all_know() -> None:
    fleet, one, other = make_arrays(), a_process(), a_process()
    assert one.note(fleet, T, slot(1))
    assert other.note(fleet, T + 20, slot(2))
    assert one.note(fleet, T + 41, slot(3))
    for process in (one, other, a_process()):
        times, values = process.window(fleet)
        assert times.tolist() == [T, T + 20, T + 41]
        assert values[:, 0].tolist() == [1, 2, 3]


def test_a_slot_that_comes_too_soon_is_not_kept_whoever_brings_it() -> None:
    fleet, one, other = make_arrays(), a_process(), a_process()
    assert one.note(fleet, T, slot(1))
    assert not one.note(fleet, T + 19, slot(2))
    assert not other.note(fleet, T + 19, slot(2))
    assert len(other.window(fleet)[0]) == 1


def test_only_the_newest_slots_are_kept() -> None:
    fleet, one = make_arrays(), a_process()
    for step in range(9):
        assert one.note(fleet, T + 20 * step, slot(step))
    for process in (one, a_process()):
        assert process.window(fleet)[1][:, 0].tolist() == [5, 6, 7, 8]


def test_when_the_inventory_changes_what_stays_keeps_its_past() -> None:
    before, after = make_arrays(racks=4), make_arrays(racks=6, generation=2)
    one = a_process()
    one.note(before, T, np.array([10, 1, 2, 3, 4], dtype=np.float32))
    _, values = one.window(after)
    assert values[0, :5].tolist() == [10, 1, 2, 3, 4]
    assert np.isnan(values[0, 5:]).all()
    assert one.note(after, T + 20, np.zeros(7, dtype=np.float32))
    assert a_process().window(after)[1].shape == (1, 7)


def test_without_redis_data_there_is_no_window() -> None:
    times, values = a_process().window(make_arrays())
    assert (len(times), values.shape) == (0, (0, 5))


@pytest.mark.parametrize("task", [tasks.refit, tasks.score_forecasts])
def test_tasks_do_nothing_to_an_empty_fleet(task: object) -> None:
    task()  # type: ignore[operator]
