"""Each microsecond of each GPU of a fleet goes to one cause, held or not, and all add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core import fleet_account as module
from admission.core.account import PPM, Cause, GpuSpans, throttled
from admission.core.fleet_account import (
    CAUSES,
    FLEET_LEVERS,
    FleetAccount,
    Gangs,
    Parts,
    Unheld,
    fleet_account,
    gang_accounts,
)
from headroom.contracts import ThrottleCause
from tests.unit.admission.test_account import CAP, HEAT, S, Span, arrays, share, whole

Holding = tuple[int, int, float, float]


def gangs(*held: Holding, **told: Any) -> Gangs:
    """Gangs that held parts, as (gang, part, start s, end s)."""
    spans = [(part, start, end) for _, part, start, end in held]
    gang = np.array([each[0] for each in held], dtype=np.int64)
    return Gangs(held=GpuSpans(**arrays(spans)), gang=gang, **told)


def fleet(
    parts: Parts,
    held: Gangs,
    busy: Sequence[Span] = (),
    idle: Sequence[Span] = (),
    drained: Sequence[Span] = (),
) -> FleetAccount:
    """Return the account of the first 100 s."""
    return fleet_account(
        parts, held, busy=GpuSpans(**arrays(busy)), idle=GpuSpans(**arrays(idle)),
        drained=GpuSpans(**arrays(drained)), start_us=0, end_us=100 * S,
    )  # fmt: skip


def seconds(found: FleetAccount) -> dict[tuple[int, int], dict[str, float]]:
    """Return what is not 0, by scope and gang."""
    return {
        (int(scope), int(gang)): {CAUSES[at]: us[at] / S for at in np.flatnonzero(us)}
        for scope, gang, us in zip(found.scope, found.gang, found.us, strict=True)
    }


def of_one(held: Gangs, **readings: Sequence[Span]) -> dict[str, float]:
    """Return the account of one GPU, whoever held it."""
    found = fleet(Parts.whole(np.zeros(1, dtype=np.int64)), held, **readings)
    total = found.us.sum(axis=0)
    return {CAUSES[at]: total[at] / S for at in np.flatnonzero(total)}


def test_what_no_reading_tells_of_and_nobody_holds_is_silent() -> None:
    assert of_one(gangs()) == {Unheld.SILENT: 100.0}


def test_free_is_what_is_read_and_does_nothing_and_work_of_nobody_is_unmanaged() -> None:
    found = of_one(gangs(), idle=[(0, 0, 60)], busy=[(0, 60, 90)])
    assert found == {Unheld.FREE: 60.0, Unheld.UNMANAGED: 30.0, Unheld.SILENT: 10.0}


def test_a_drain_says_more_than_silence_and_work_says_more_than_a_drain() -> None:
    found = of_one(gangs(), busy=[(0, 50, 60)], drained=[(0, 20, 100)])
    assert found == {Unheld.SILENT: 20.0, Unheld.DRAINED: 70.0, Unheld.UNMANAGED: 10.0}


def test_what_is_held_counts_for_its_gang_whatever_is_drained() -> None:
    found = of_one(gangs((0, 0, 10, 50)), drained=[(0, 0, 100)])
    assert found == {Unheld.DRAINED: 60.0, Cause.UNKNOWN: 40.0}


def test_a_gang_that_tells_nothing_is_busy_or_idle_by_its_readings() -> None:
    found = of_one(gangs((0, 0, 0, 100)), idle=[(0, 0, 30)], busy=[(0, 30, 80)])
    assert found == {Cause.IDLE: 30.0, Cause.BUSY: 50.0, Cause.UNKNOWN: 20.0}


def test_steps_that_a_loop_tells_of_say_more_than_readings() -> None:
    held = gangs((0, 0, 0, 100), spans=[whole(Cause.PRODUCTIVE, (0, 0, 70))])
    found = of_one(held, idle=[(0, 0, 100)])
    assert found == {Cause.PRODUCTIVE: 70.0, Cause.IDLE: 30.0}


def test_of_busy_time_a_draw_below_the_level_takes_its_share_before_throttling() -> None:
    held = gangs(
        (0, 0, 0, 100),
        spans=[whole(Cause.PRODUCTIVE, (0, 0, 20))],
        shares=[share(Cause.LOW_DRAW, 0.5, (0, 0, 100))],
        part_shares=[share(HEAT, 0.1, (0, 0, 100))],
    )
    found = of_one(held, idle=[(0, 0, 40)], busy=[(0, 40, 100)])
    # What a loop tells, and idle time, are not of it.
    assert found == {
        Cause.PRODUCTIVE: 18.0, Cause.IDLE: 20.0, Cause.LOW_DRAW: 30.0, Cause.BUSY: 27.0,
        HEAT: 5.0,
    }  # fmt: skip


def test_causes_that_came_later_are_the_last_columns() -> None:
    # Hours that are kept go by it.
    assert CAUSES[-2:] == (Unheld.UNMANAGED, Cause.LOW_DRAW)
    assert len(CAUSES) == len(set(CAUSES)) == len(FLEET_LEVERS)


def test_of_two_gangs_on_one_gpu_the_one_that_began_last_holds_it() -> None:
    held = gangs((0, 0, 0, 80), (1, 0, 50, 100))
    found = fleet(Parts.whole(np.zeros(1, dtype=np.int64)), held)
    assert seconds(found) == {(0, 0): {Cause.UNKNOWN: 50.0}, (0, 1): {Cause.UNKNOWN: 50.0}}


def test_what_is_told_of_a_gang_counts_for_each_of_its_gpus_in_the_scope_of_each() -> None:
    parts = Parts.whole(np.array([0, 0, 1]))
    held = gangs(*((7, part, 0, 100) for part in range(3)), spans=[whole(Cause.PAUSED, (7, 0, 25))])
    found = seconds(fleet(parts, held, busy=[(part, 0, 100) for part in range(3)]))
    assert found == {
        (0, 7): {Cause.PAUSED: 50.0, Cause.BUSY: 150.0},
        (1, 7): {Cause.PAUSED: 25.0, Cause.BUSY: 75.0},
    }


def test_a_gpu_that_is_throttled_is_told_apart_from_others_of_its_gang() -> None:
    held = gangs(
        *((0, part, 0, 100) for part in range(3)),
        spans=[whole(Cause.PRODUCTIVE, (0, 0, 100))],
        part_shares=[share(HEAT, 0.5, (1, 0, 100))],
    )
    found = seconds(fleet(Parts.whole(np.zeros(3, dtype=np.int64)), held))
    assert found == {(0, 0): {Cause.PRODUCTIVE: 250.0, HEAT: 50.0}}


def test_throttling_at_a_power_limit_is_ours_while_a_cap_of_ours_is_in_force() -> None:
    held = gangs(
        *((0, part, 0, 100) for part in range(2)),
        spans=[whole(Cause.PRODUCTIVE, (0, 0, 100))],
        part_shares=[share(CAP, 0.5, (0, 0, 100)), share(HEAT, 0.2, (1, 0, 100))],
        part_caps=[GpuSpans(**arrays([(0, 0, 40), (1, 0, 40)]))],
    )
    found = seconds(fleet(Parts.whole(np.zeros(2, dtype=np.int64)), held))
    assert found == {(0, 0): {Cause.PRODUCTIVE: 130.0, Cause.CAPPED: 20.0, CAP: 30.0, HEAT: 20.0}}


def test_what_a_job_was_capped_at_counts_for_all_of_its_gpus() -> None:
    held = gangs(
        (0, 0, 0, 100),
        caps=[GpuSpans(**arrays([(0, 0, 100)]))],
        part_shares=[share(CAP, 0.5, (0, 0, 100))],
    )
    assert of_one(held) == {Cause.CAPPED: 50.0, Cause.UNKNOWN: 50.0}


def test_a_slice_counts_for_its_share_of_its_gpu() -> None:
    parts = Parts(np.array([0, 0, 0]), np.array([333_333, 333_333, 333_334]), np.zeros(3, np.int64))
    held = gangs((4, 1, 0, 50), spans=[whole(Cause.PRODUCTIVE, (4, 0, 50))])
    found = fleet(parts, held, idle=[(part, 0, 100) for part in range(3)])
    assert int(found.us.sum()) == 100 * S
    by_gang = seconds(found)
    assert by_gang[0, 4] == {Cause.PRODUCTIVE: pytest.approx(16.66665)}
    assert by_gang[0, -1] == {Unheld.FREE: pytest.approx(83.33335)}


def test_the_accounts_of_gangs_alone_are_those_that_the_fleet_has() -> None:
    parts = Parts.whole(np.array([0, 1]))
    held = gangs((0, 0, 0, 60), (1, 1, 20, 100), spans=[whole(Cause.PRODUCTIVE, (1, 30, 90))])
    alone = gang_accounts(parts, held, start_us=0, end_us=100 * S)
    assert seconds(alone) == {
        (0, 0): {Cause.UNKNOWN: 60.0}, (1, 1): {Cause.UNKNOWN: 20.0, Cause.PRODUCTIVE: 60.0},
    }  # fmt: skip
    assert seconds(gang_accounts(parts, gangs(), start_us=0, end_us=S)) == {}


def test_every_cause_of_a_fleet_has_a_lever_but_productive_time() -> None:
    assert [cause for cause, lever in FLEET_LEVERS.items() if not lever] == [Cause.PRODUCTIVE]


# --- What holds for all of them ------------------------------------------------------------------

_TIMES = st.integers(-20, 120)
_PART = st.integers(0, 5)
_SPANS = st.lists(st.tuples(_PART, _TIMES, _TIMES), max_size=6)
#: GPU 1 is split in three, GPU 3 in two; parts have the scopes of their GPUs.
_SPLIT = Parts(
    np.array([0, 1, 1, 1, 2, 3, 3]),
    np.array([PPM, 142_857, 285_714, 571_429, PPM, 333_333, 666_667]),
    np.array([0, 0, 0, 0, 1, 1, 1]),
)
_WHOLE = [Cause.PRODUCTIVE, Cause.PAUSED, Cause.STARTING]
_EXPECTED = sorted(throttled(cause, expected=True) for cause in ThrottleCause)


@given(
    held=st.lists(st.tuples(st.integers(0, 2), _PART, _TIMES, _TIMES), max_size=8),
    spans=st.lists(st.tuples(st.sampled_from(_WHOLE), _SPANS), max_size=3),
    shares=st.lists(
        st.tuples(st.sampled_from([Cause.DATA_WAIT, *_EXPECTED]), st.floats(0, 1), _SPANS),
        max_size=4,
    ),
    readings=st.tuples(_SPANS, _SPANS, _SPANS),
    caps=_SPANS,
    at_once=st.sampled_from([1, 3, 1_000_000]),
)  # fmt: skip
def test_no_microsecond_is_missing_and_none_counts_twice(
    held: list[Holding],
    spans: list[tuple[Cause, list[Span]]],
    shares: list[tuple[str, float, list[Span]]],
    readings: tuple[list[Span], list[Span], list[Span]],
    caps: list[Span],
    at_once: int,
) -> None:
    told = [whole(cause, *where) for cause, where in spans]
    taken = [share(cause, part, *where) for cause, part, where in shares]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_ONCE", at_once)
        found = fleet(
            _SPLIT,
            gangs(
                *held, spans=told, shares=taken, part_shares=taken, part_spans=told,
                part_caps=[GpuSpans(**arrays(caps))],
            ),
            *readings,
        )  # fmt: skip
    # Two whole GPUs and two split ones.
    assert int(found.us.sum()) == 4 * 100 * S
    assert int(found.us.min()) >= 0
    for scope in (0, 1):
        assert int(found.us[found.scope == scope].sum()) == 2 * 100 * S
    is_held = found.gang >= 0
    unheld = [CAUSES.index(cause) for cause in Unheld]
    assert not found.us[is_held][:, unheld].any()
    assert found.us[~is_held].sum() == found.us[~is_held][:, unheld].sum()


@given(
    parts=st.integers(1, 5),
    spans=st.lists(st.tuples(st.integers(0, 4), _TIMES, _TIMES), max_size=6),
    shares=st.lists(st.tuples(st.integers(0, 4), _TIMES, _TIMES), max_size=6),
)
def test_a_gang_has_the_account_of_its_gpus_one_by_one(
    parts: int, spans: list[Span], shares: list[Span]
) -> None:
    every = np.arange(parts)
    told = {
        "part_spans": [whole(Cause.PRODUCTIVE, *(each for each in spans if each[0] < parts))],
        "part_shares": [share(HEAT, 0.3, *(each for each in shares if each[0] < parts))],
    }
    together = fleet(
        Parts.whole(np.zeros(parts, dtype=np.int64)),
        gangs(*((0, part, 0, 100) for part in range(parts)), **told),
    )
    apart = fleet(Parts.whole(every), gangs(*((0, part, 0, 100) for part in range(parts)), **told))
    assert together.us.sum(axis=0).tolist() == apart.us.sum(axis=0).tolist()
