"""What of free time was waited for: never more than was free, and never more than was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import GpuSpans
from admission.goodput.waiting import Waits, wanted_us
from tests.unit.admission.test_account import S, Span, arrays

Wait = tuple[int, int, int]


def wanted(waits: Sequence[Wait], free: Sequence[Span]) -> list[float]:
    """Return what is wanted by each wait, as (GPUs, start s, end s), s of GPUs."""
    gpus, start, end = np.array(waits, dtype=np.int64).reshape(-1, 3).T
    found = wanted_us(Waits(gpus, start * S, end * S), GpuSpans(**arrays(free)))
    return [round(each / S, 3) for each in found.tolist()]


def test_demand_counts_up_to_what_is_free() -> None:
    assert wanted([(4, 0, 100)], [(0, 0, 50), (1, 0, 100)]) == [150.0]
    assert wanted([(1, 0, 100)], [(0, 0, 50), (1, 0, 100)]) == [100.0]
    assert wanted([(1, 0, 100)], []) == [0.0]
    assert wanted([], [(0, 0, 50)]) == []


def test_waits_share_what_is_free_by_what_they_ask_for() -> None:
    assert wanted([(3, 0, 100), (1, 0, 100)], [(0, 0, 100)]) == [75.0, 25.0]


_TIME = st.integers(0, 50)
_SPAN = st.tuples(_TIME, _TIME).map(sorted)


@given(
    waits=st.lists(st.tuples(st.integers(1, 5), _SPAN), max_size=6),
    free=st.lists(_SPAN, max_size=5),
)
def test_no_free_second_is_wanted_twice(
    waits: list[tuple[int, list[int]]], free: list[list[int]]
) -> None:
    spans = [(gpu, begin, over) for gpu, (begin, over) in enumerate(free)]
    gpus = np.array([each for each, _ in waits], dtype=np.int64)
    start, end = (np.array([each[at] for _, each in waits], dtype=np.int64) * S for at in (0, 1))
    given_ = Waits(gpus, start, end)
    found = wanted_us(given_, GpuSpans(**arrays(spans)))
    assert (found >= 0).all()
    assert (found <= given_.demand_us).all()
    assert int(found.sum()) <= sum(over - begin for _, begin, over in spans) * S
