"""What holds for any readings: rounds of any size, disorder, and a crash at any moment."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.throttle.events import EVENT, read_back
from telemetry.throttle.intervals import remembered
from telemetry.throttle.readings import Readings
from telemetry.throttle.tracker import Tracker
from tests.unit.telemetry.throttle.make import (
    BRAKE,
    CAP,
    RATINGS,
    Follower,
    make_readings,
    reading,
)

#: Time is not what is tested, and a busy machine may take long.
_SETTINGS = settings(max_examples=40, deadline=None)
_STEP = st.tuples(
    st.sampled_from([1.0, 10.0, 10.0, 35.0, 400.0]),  # s since the GPU's last reading
    st.sampled_from([0.0, 0.0, 0.003, 0.2, 1.0, -1.0]),  # share of brake; -1: the counter is reset
    st.sampled_from([0, int(CAP), int(BRAKE), None]),
    st.booleans(),  # whether the counter is read
    st.sampled_from([1980.0, 1500.0, None]),
)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Readings of three GPUs in order of time, each with counters and masks that may disagree."""
    found = []
    for gpu in (1, 2, 3):
        t, total = 0.0, 100.0
        for dt, share, mask, counted, mhz in draw(st.lists(_STEP, max_size=14)):
            t += dt
            total = 0.0 if share < 0 else total + dt * share
            counter = {"hw_power_brake": total} if counted else {}
            found.append(reading(t, gpu, mask, sm_mhz=mhz, util=90.0, power_w=500.0, **counter))
    return sorted(found, key=lambda r: (r["ts"], r["gpu_id"]))


def told(follower: Follower) -> list[dict[str, Any]]:
    events = [*follower.closed, *follower.now]
    return sorted(events, key=lambda e: (e["gpu"], e["cause"], e["opened"]))


@_SETTINGS
@given(histories(), st.integers(1, 9))
def test_rounds_of_any_size_give_the_same_events(history: list[dict[str, Any]], size: int) -> None:
    whole, parts = Follower().take(*history), Follower()
    for start in range(0, len(history), size):
        parts.take(*history[start : start + size])
    assert told(parts) == told(whole)


@_SETTINGS
@given(histories(), st.randoms())
def test_order_and_repetition_within_a_round_do_not_matter(
    history: list[dict[str, Any]], random: Any
) -> None:
    mixed = [*history, *history[::3]]
    random.shuffle(mixed)
    assert told(Follower().take(*mixed)) == told(Follower().take(*history))


@_SETTINGS
@given(histories())
def test_no_event_throttles_for_longer_than_it_was_seen(history: list[dict[str, Any]]) -> None:
    for event in told(Follower().take(*history)):
        assert 0.0 <= event["throttled_s"] <= event["observed_s"] + 1e-6
        assert event["capped_s"] <= event["throttled_s"] + 1e-6
        assert event["observed_s"] <= (event["updated"] - event["opened"]) + 1e-6
        assert event["closed"] in (None, event["updated"])


@_SETTINGS
@given(histories())
def test_events_of_one_cause_do_not_overlap(history: list[dict[str, Any]]) -> None:
    events = told(Follower().take(*history))
    for one, other in itertools.pairwise(events):
        if (one["gpu"], one["cause"]) == (other["gpu"], other["cause"]):
            assert one["closed"] is not None
            assert one["closed"] <= other["opened"]


def rebuilt(follower: Follower, history: list[dict[str, Any]]) -> Follower:
    """A follower made from what is stored alone: the events as last written, and the readings."""
    after = Follower()
    after.closed = list(follower.closed)
    after.open = dict(follower.open)
    stored = read_back(np.array(list(follower.open.values()), EVENT))
    last = Tracker().last
    if history:
        readings = make_readings(history)
        last = _latest(readings)
    after.tracker = Tracker(last, stored)
    since = {(int(e["gpu_id"]), int(e["cause"])): int(e["updated_us"]) for e in stored}
    if since:
        readings = make_readings(history)
        first = {gpu: min(us for (g, _), us in since.items() if g == gpu) for gpu, _ in since}
        chosen = [
            i
            for i, (gpu, us) in enumerate(zip(readings.gpu_id, readings.us, strict=True))
            if gpu in first and us >= first[gpu]
        ]
        after.store(after.tracker.catch_up(readings.take(np.array(chosen, "i8")), RATINGS))
    return after


def _latest(readings: Readings) -> Any:
    readings = readings.take(np.lexsort((readings.us, readings.gpu_id)))
    tracker = Tracker()
    tracker.advance(readings)
    last = tracker.last.copy()
    records = remembered(readings)
    for gpu in np.unique(readings.gpu_id):
        last[gpu] = records[readings.gpu_id == gpu][-1]
    return last


@_SETTINGS
@given(histories(), st.integers(1, 6), st.integers(0, 12))
def test_a_crash_after_any_round_changes_no_event(
    history: list[dict[str, Any]], size: int, crash: int
) -> None:
    """Usual clocks are learned anew after a crash, so lost clock may differ; nothing else may."""
    rounds = [history[i : i + size] for i in range(0, len(history), size)]
    through, crashed = Follower(), Follower()
    for i, some in enumerate(rounds):
        through.take(*some)
        crashed.take(*some)
        if i == crash:
            crashed = rebuilt(crashed, [r for each in rounds[: i + 1] for r in each])
    assert _without_clocks(told(crashed)) == _without_clocks(told(through))


def _without_clocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        del event["lost_mhz_s"], event["usual_mhz"]
        for name in ("throttled_s", "observed_s", "capped_s", "energy_j"):
            event[name] = None if event[name] is None else round(event[name], 6)
    return events
