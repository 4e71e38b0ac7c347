"""Each microsecond of a GPU that a job holds goes to one cause, and all add up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import LEVERS, PPM, Cause, GpuSpans, Shares, Whole, account, throttled
from headroom.contracts import ThrottleCause

S = 1_000_000
HEAT = throttled(ThrottleCause.HW_THERMAL, expected=False)
SLOWDOWN = throttled(ThrottleCause.HW_SLOWDOWN, expected=False)
CAP = throttled(ThrottleCause.SW_POWER_CAP, expected=True)
WHOLE = (Cause.PRODUCTIVE, Cause.REPEATED, Cause.STARTING, Cause.RESTARTING, Cause.PAUSED)
TOLD = (Cause.OUTSIDE_STEPS, Cause.DATA_WAIT, Cause.SYNCHRONIZATION)
Span = tuple[int, float, float]


def arrays(spans: Sequence[Span]) -> dict[str, np.ndarray]:
    """Spans as (GPU, start s, end s)."""
    rows = np.array([(gpu, start * S, end * S) for gpu, start, end in spans], np.int64)
    gpu, start_us, end_us = rows.reshape(-1, 3).T
    return {"gpu": gpu, "start_us": start_us, "end_us": end_us}


def whole(cause: Cause, *spans: Span) -> Whole:
    return Whole(cause=cause, **arrays(spans))


def share(cause: str, part: float, *spans: Span) -> Shares:
    return Shares(cause=cause, ppm=np.full(len(spans), round(part * PPM)), **arrays(spans))


def seconds(
    held: Sequence[Span], spans: Sequence[Whole] = (), shares: Sequence[Shares] = (), end: int = 100
) -> dict[str, float]:
    """Return the account of the first ``end`` seconds, without what is 0."""
    found = account(GpuSpans(**arrays(held)), spans, shares, start_us=0, end_us=end * S)
    return {cause: us / S for cause, us in found.items() if us}


def test_what_nothing_tells_of_is_unknown() -> None:
    assert seconds([(0, 10, 60), (1, 10, 70)]) == {Cause.UNKNOWN: 110.0}


def test_a_pause_goes_before_a_start_and_a_start_before_steps() -> None:
    spans = [
        whole(Cause.PRODUCTIVE, (0, 0, 100)),
        whole(Cause.STARTING, (0, 0, 20)),
        whole(Cause.PAUSED, (0, 10, 30)),
    ]
    found = seconds([(0, 0, 100)], spans)
    assert found == {Cause.STARTING: 10.0, Cause.PAUSED: 20.0, Cause.PRODUCTIVE: 70.0}


def test_shares_take_from_what_those_before_them_left() -> None:
    shares = [
        share(CAP, 0.5, (0, 0, 100)),
        share(Cause.DATA_WAIT, 0.5, (0, 0, 100)),
        share(Cause.OUTSIDE_STEPS, 0.2, (0, 0, 100)),
    ]
    found = seconds([(0, 0, 100)], [whole(Cause.PRODUCTIVE, (0, 0, 100))], shares)
    assert found == {
        Cause.OUTSIDE_STEPS: 20.0, Cause.DATA_WAIT: 40.0, CAP: 20.0, Cause.PRODUCTIVE: 20.0,
    }  # fmt: skip


def test_of_throttling_at_one_time_the_costliest_counts_alone() -> None:
    shares = [share(CAP, 0.1, (0, 0, 100)), share(HEAT, 0.3, (0, 50, 100))]
    found = seconds([(0, 0, 100)], [whole(Cause.PRODUCTIVE, (0, 0, 100))], shares)
    assert found == {CAP: 5.0, HEAT: 15.0, Cause.PRODUCTIVE: 80.0}


def test_heat_that_shows_as_a_slowdown_too_is_heat() -> None:
    shares = [share(HEAT, 0.3, (0, 0, 100)), share(SLOWDOWN, 0.3, (0, 0, 100))]
    assert seconds([(0, 0, 100)], [], shares) == {HEAT: 30.0, Cause.UNKNOWN: 70.0}


def test_what_a_loop_tells_takes_nothing_where_it_did_not_tell() -> None:
    shares = [share(Cause.DATA_WAIT, 0.5, (0, 0, 100))]
    assert seconds([(0, 0, 100)], [], shares) == {Cause.UNKNOWN: 100.0}


def test_work_that_is_lost_is_lost_whole() -> None:
    shares = [share(HEAT, 0.5, (0, 0, 100))]
    spans = [whole(Cause.REPEATED, (0, 0, 100))]
    assert seconds([(0, 0, 100)], spans, shares) == {Cause.REPEATED: 100.0}


def test_what_is_said_of_a_gpu_that_is_not_held_does_not_count() -> None:
    spans = [whole(Cause.PRODUCTIVE, (0, 0, 100), (1, 0, 100))]
    assert seconds([(1, 0, 40)], spans) == {Cause.PRODUCTIVE: 40.0}


def test_only_what_is_in_the_span_counts() -> None:
    assert seconds([(0, -50, 500)], end=60) == {Cause.UNKNOWN: 60.0}


def test_every_cause_says_what_brings_its_time_back() -> None:
    assert [cause for cause, lever in LEVERS.items() if not lever] == [Cause.PRODUCTIVE]
    assert len(LEVERS) == len(Cause) + 2 * len(ThrottleCause)


def test_a_span_without_length_and_a_share_above_all_are_refused() -> None:
    held = GpuSpans(**arrays([(0, 0, 1)]))
    with pytest.raises(ValueError, match="end_us"):
        account(held, [], [], start_us=5, end_us=5)
    with pytest.raises(ValueError, match="ppm"):
        account(held, [], [share(HEAT, 1.1, (0, 0, 1))], start_us=0, end_us=5)


_TIMES = st.integers(-20, 120)
_SPANS = st.lists(st.tuples(st.integers(0, 3), _TIMES, _TIMES), max_size=6)


@given(
    held=st.lists(st.tuples(_TIMES, _TIMES), min_size=1, max_size=4),
    spans=st.lists(st.tuples(st.sampled_from(WHOLE), _SPANS), max_size=5),
    shares=st.lists(
        st.tuples(st.sampled_from([*TOLD, HEAT, SLOWDOWN, CAP]), st.floats(0, 1), _SPANS),
        max_size=6,
    ),
)  # fmt: skip
def test_the_causes_add_up_to_the_time_that_was_held(
    held: list[tuple[int, int]],
    spans: list[tuple[Cause, list[Span]]],
    shares: list[tuple[str, float, list[Span]]],
) -> None:
    found = account(
        GpuSpans(**arrays([(gpu, start, end) for gpu, (start, end) in enumerate(held)])),
        [whole(cause, *where) for cause, where in spans],
        [share(cause, part, *where) for cause, part, where in shares],
        start_us=0,
        end_us=100 * S,
    )
    within = [min(max(end, 0), 100) - min(max(start, 0), 100) for start, end in held]
    assert sum(found.values()) == sum(max(each, 0) for each in within) * S
    assert min(found.values()) >= 0
