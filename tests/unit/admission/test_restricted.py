"""What caps and drains took is shared out to the restrictions that held there, and no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import Cause, GpuSpans
from admission.core.fleet_account import CAUSES, FleetAccount, Parts, Unheld
from admission.core.restricted import Claims, Restricted, lost
from tests.unit.admission.test_account import S, Span, arrays

#: Four GPUs, two in each of two racks.
PARTS = Parts.whole(np.array([0, 0, 1, 1]))
#: (restriction, GPU, start s, end s)
Claim = tuple[int, int, float, float]


def account(**s: float) -> FleetAccount:
    """What was capped of gangs by rack (``capped_RACK_GANG``), and drained by rack, GPU-seconds."""
    us = np.zeros((len(s), len(CAUSES)), dtype=np.int64)
    scope, gang = np.zeros(len(s), dtype=np.int64), np.full(len(s), -1)
    for row, (name, value) in enumerate(s.items()):
        cause, *where = name.split("_")
        scope[row] = int(where[0])
        if cause == "capped":
            gang[row] = int(where[1])
        us[row, CAUSES.index(Cause.CAPPED if cause == "capped" else Unheld.DRAINED)] = value * S
    return FleetAccount(scope, gang, us)


def claims(found: Sequence[Claim]) -> Claims:
    number = np.array([each[0] for each in found], dtype=np.int64)
    return Claims(number=number, **arrays([each[1:] for each in found]))


def took(
    found: FleetAccount,
    *,
    held: Sequence[tuple[int, int, float, float]] = (),
    caps: Sequence[Claim] = (),
    beside_caps: Sequence[Span] = (),
    of_gangs: Sequence[Span] = (),
    drains: Sequence[Claim] = (),
    beside_drains: Sequence[Span] = (),
) -> dict[tuple[int, bool], float]:
    """Return GPU-seconds by restriction, and whether others asked for the same, over 100 s.

    ``held`` as (gang, GPU, start s, end s).
    """
    gone = lost(
        found, PARTS, GpuSpans(**arrays([each[1:] for each in held])),
        np.array([each[0] for each in held], dtype=np.int64), GpuSpans(**arrays(of_gangs)),
        Restricted(
            ids=range(9), caps=claims(caps), beside_caps=GpuSpans(**arrays(beside_caps)),
            drains=claims(drains), beside_drains=GpuSpans(**arrays(beside_drains)),
        ),
        start_us=0, end_us=100 * S,
    )  # fmt: skip
    total: dict[tuple[int, bool], float] = defaultdict(float)
    columns = (gone.number, gone.is_shared, gone.us)
    for number, is_shared, us in zip(*(each.tolist() for each in columns), strict=True):
        total[number, is_shared] += us / S
    return dict(total)


#: Gang 0 holds the first rack, gang 1 the second, all the time.
HELD = [(0, 0, 0.0, 100.0), (0, 1, 0.0, 100.0), (1, 2, 0.0, 100.0), (1, 3, 0.0, 100.0)]


def test_a_cap_has_all_that_was_capped_of_the_gang_that_it_is_on() -> None:
    found = account(capped_0_0=30.0, capped_1_1=7.0)
    assert took(found, held=HELD, caps=[(0, 0, 0.0, 50.0)]) == {(0, False): 30.0}


def test_caps_one_after_the_other_share_by_the_time_of_gpus_under_each() -> None:
    caps = [(0, 0, 0.0, 50.0), (0, 1, 0.0, 50.0), (1, 0, 50.0, 100.0)]
    found = took(account(capped_0_0=30.0), held=HELD, caps=caps)
    assert found == {(0, False): 20.0, (1, False): 10.0}


def test_of_two_caps_at_once_the_stricter_counts_alone() -> None:
    caps = [(0, 0, 0.0, 100.0), (1, 0, 0.0, 100.0)]
    assert took(account(capped_0_0=30.0), held=HELD, caps=caps) == {(1, False): 30.0}


def test_what_others_capped_is_no_restrictions_and_at_the_same_time_it_is_told() -> None:
    found = account(capped_0_0=30.0)
    # The controller holds the other GPU for twice as long; then a directive holds all of the gang.
    caps = [(0, 0, 0.0, 50.0)]
    apart = took(found, held=HELD, caps=caps, beside_caps=[(1, 0.0, 100.0)])
    assert apart == {(0, False): 10.0}
    assert took(found, held=HELD, caps=caps, of_gangs=[(0, 0.0, 50.0)]) == {(0, True): 15.0}


def test_a_cap_on_gpus_that_nobody_holds_takes_nothing() -> None:
    assert took(account(capped_1_1=7.0), held=HELD[2:], caps=[(0, 0, 0.0, 100.0)]) == {}


def test_a_drain_has_the_drained_time_that_no_booking_asked_for() -> None:
    found = account(drained_0=60.0)
    drains = [(0, 0, 0.0, 40.0)]
    assert took(found, drains=drains) == {(0, False): 60.0}
    assert took(found, drains=drains, beside_drains=[(1, 0.0, 20.0)]) == {(0, False): 40.0}
    assert took(found, drains=drains, beside_drains=[(0, 0.0, 40.0)]) == {(0, True): 60.0}


def test_of_a_drained_gpu_the_time_that_a_gang_holds_it_still_does_not_count() -> None:
    drains = [(0, 0, 0.0, 100.0), (1, 1, 0.0, 100.0)]
    found = took(account(drained_0=60.0), held=[(0, 0, 0.0, 50.0)], drains=drains)
    assert found == {(0, False): 20.0, (1, False): 40.0}


_CLAIMS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 60), st.integers(1, 40)),
    max_size=8,
)


@given(caps=_CLAIMS, drains=_CLAIMS, capped=st.integers(0, 200), drained=st.integers(0, 200))
def test_restrictions_never_have_more_than_the_account_tells(
    caps: list[tuple[int, int, int, int]],
    drains: list[tuple[int, int, int, int]],
    capped: int,
    drained: int,
) -> None:
    spans = [[(n, gpu, s, s + length) for n, gpu, s, length in each] for each in (caps, drains)]
    found = took(
        account(capped_0_0=capped, drained_1=drained), held=HELD[:2], caps=spans[0],
        drains=[(n + 4, gpu, start, end) for n, gpu, start, end in spans[1]],
    )  # fmt: skip
    of_caps = sum(s for (number, _), s in found.items() if number < 4)
    of_drains = sum(s for (number, _), s in found.items() if number >= 4)
    # Nobody else asked for it: of where one of them held they have all, to the microsecond.
    assert of_caps == pytest.approx(capped if any(each[1] < 2 for each in caps) else 0)
    assert of_drains == pytest.approx(drained if any(each[1] >= 2 for each in drains) else 0)
