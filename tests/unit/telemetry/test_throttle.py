"""Throttle events from readings."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import ThrottleCause
from telemetry import samples
from telemetry.samples import NULL_INT, Rows
from telemetry.throttle import Changes, Event, Tracker

CAP, HOT = int(ThrottleCause.SW_POWER_CAP), int(ThrottleCause.SW_THERMAL)


def make_rows(readings: list[tuple[float, int, int | None]], **more: list[float]) -> Rows:
    """Rows of (time, GPU id, mask)."""
    count = len(readings)
    columns: dict[str, Any] = {
        c.name: np.full(count, np.nan if c.dtype.kind == "f" else NULL_INT, c.dtype)
        for c in samples.GPU.columns
    }
    columns["ts"] = np.array([ts for ts, _, _ in readings], dtype="f8")
    columns["gpu_id"] = np.array([gpu for _, gpu, _ in readings], dtype="i8")
    columns["throttle"] = np.array(
        [NULL_INT if mask is None else mask for _, _, mask in readings], dtype="i8"
    )
    columns.update({name: np.array(values) for name, values in more.items()})
    return Rows(samples.GPU, columns)


def advance(tracker: Tracker, rows: Rows, known_until: float = 0.0) -> Changes:
    return tracker.advance(rows, np.full(len(rows), known_until))


def test_a_bit_opens_an_event() -> None:
    changes = advance(Tracker([]), make_rows([(1, 7, CAP)], temp_c=[60.0], sm_mhz=[1500.0]))
    assert changes.opened == [
        Event(7, CAP, opened_at=1, updated_at=1, peak_temp_c=60.0, min_sm_mhz=1500.0)
    ]
    assert not changes.updated
    assert not changes.closed


def test_idle_and_application_clocks_are_no_throttle() -> None:
    assert advance(Tracker([]), make_rows([(1, 7, 0x1 | 0x2)])).opened == []


def test_two_causes_are_two_events() -> None:
    changes = advance(Tracker([]), make_rows([(1, 7, CAP | HOT)]))
    assert {event.cause for event in changes.opened} == {CAP, HOT}


def test_an_open_event_is_updated_with_its_extremes() -> None:
    tracker = Tracker([Event(7, HOT, 1, 1, peak_temp_c=80.0)])
    rows = make_rows([(2, 7, HOT), (3, 7, HOT)], temp_c=[90.0, 85.0])
    (event,) = advance(tracker, rows).updated
    assert (event.opened_at, event.updated_at, event.readings) == (1, 3, 3)
    assert event.peak_temp_c == 90.0


def test_the_first_reading_without_the_bit_closes_the_event() -> None:
    tracker = Tracker([Event(7, HOT, 1, 1)])
    (event,) = advance(tracker, make_rows([(2, 7, HOT), (3, 7, 0), (4, 7, 0)])).closed
    assert (event.updated_at, event.closed_at) == (2, 3)


def test_an_event_may_close_and_open_again_in_one_round() -> None:
    tracker = Tracker([Event(7, HOT, 1, 1)])
    changes = advance(tracker, make_rows([(2, 7, 0), (3, 7, HOT)]))
    assert [(e.opened_at, e.closed_at) for e in changes.closed] == [(1, 2)]
    assert [(e.opened_at, e.closed_at) for e in changes.opened] == [(3, None)]


def test_a_reading_without_a_mask_changes_nothing() -> None:
    changes = advance(Tracker([Event(7, HOT, 1, 1)]), make_rows([(2, 7, None)]))
    assert changes == Changes()


def test_a_late_reading_changes_nothing() -> None:
    tracker = Tracker([Event(7, HOT, 1, 10)])
    changes = advance(tracker, make_rows([(5, 7, 0)]), known_until=10)
    assert not changes.closed


def test_readings_of_several_gpus_do_not_mix() -> None:
    tracker = Tracker([Event(7, HOT, 1, 1)])
    changes = advance(tracker, make_rows([(2, 8, 0), (2, 7, HOT), (3, 9, CAP)]))
    assert [e.gpu_id for e in changes.updated] == [7]
    assert [e.gpu_id for e in changes.opened] == [9]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, CAP, HOT, CAP | HOT, None]))),
    st.integers(1, 5),
)
def test_rounds_of_any_size_give_the_same_events(
    readings: list[tuple[int, int | None]], size: int
) -> None:
    timed = [(float(i + 1), gpu, mask) for i, (gpu, mask) in enumerate(readings)]

    def run(step: int) -> set[Event]:
        tracker, events = Tracker([]), {}
        for start in range(0, len(timed), step):
            changes = advance(tracker, make_rows(timed[start : start + step]))
            for event in changes.closed + changes.updated + changes.opened:
                events[event.key, event.opened_at] = event
        return set(events.values())

    assert run(size) == run(max(len(timed), 1))


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, CAP, HOT]))))
def test_a_gpu_has_at_most_one_open_event_of_a_cause(readings: list[tuple[int, int]]) -> None:
    rows = make_rows([(float(i + 1), gpu, mask) for i, (gpu, mask) in enumerate(readings)])
    opened = [e for e in advance(Tracker([]), rows).opened if e.closed_at is None]
    assert len({event.key for event in opened}) == len(opened)
