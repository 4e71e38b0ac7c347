"""A GPU's energy is theirs who held it, for as long as they did; the rest is idle or unmanaged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.energy.amounts import total_by
from admission.core.energy.holders import (
    FIRST_JOB,
    IDLE,
    UNMANAGED,
    Buckets,
    Pieces,
    changing,
    pieces_of,
)
from tests.builders.arrays import make_arrays
from tests.builders.energy import HOUR_S, held, pieces, reading

FLEET = make_arrays(racks=1, nodes=1, gpus=3)
JOB, OTHER = FIRST_JOB, FIRST_JOB + 1


def joules(found: Pieces) -> dict[tuple[int, int], float]:
    """Return J by GPU and owner."""
    rows = zip(found.gpu.tolist(), found.owner.tolist(), found.mj.tolist(), strict=True)
    return {(gpu, owner): mj / 1000 for gpu, owner, mj in rows}


def test_a_gpu_that_was_held_all_hour_is_of_its_job_alone() -> None:
    found = pieces(FLEET, [100.0, 50.0, 60.0], held((0, 0, -100.0, 4000.0)))
    assert joules(found) == {(0, JOB): 100.0, (1, IDLE): 50.0, (2, IDLE): 60.0}
    assert found.ms.tolist() == [3_600_000] * 3


def test_work_of_nobody_is_unmanaged() -> None:
    found = pieces(FLEET, [9.0, 9.0, 9.0], held(), np.array([False, True, False]))
    assert joules(found) == {(0, IDLE): 9.0, (1, UNMANAGED): 9.0, (2, IDLE): 9.0}


def test_minutes_tell_two_holders_apart() -> None:
    """A quiet half, then a busy half: each job has its own."""
    starts = np.arange(60) * 60.0
    weight = np.where(starts < 1800.0, 1.0, 3.0)
    gpu = np.repeat(np.arange(3), 60)
    buckets = Buckets(
        gpu=gpu, start=np.tile(starts, 3), end=np.tile(starts + 60.0, 3), weight=np.tile(weight, 3)
    )
    spans = held((0, 0, 0.0, 1800.0), (0, 1, 1800.0, 3600.0))
    found = pieces_of(FLEET, reading([400.0, 0.0, 0.0]), buckets, spans, np.zeros(3, dtype=bool))
    assert joules(found)[0, JOB] == pytest.approx(100.0)
    assert joules(found)[0, OTHER] == pytest.approx(300.0)
    assert changing(spans, 0.0, HOUR_S, 3).tolist() == [True, False, False]


def test_who_holds_a_gpu_on_from_before_to_after_changes_nothing() -> None:
    spans = held((0, 0, -10.0, 3600.0), (1, 0, 0.0, 9999.0), (2, 0, -50.0, 0.0))
    assert not changing(spans, 0.0, HOUR_S, 3).any()


def test_two_who_claim_one_gpu_share_it() -> None:
    found = pieces(FLEET, [100.0, 0.0, 0.0], held((0, 0, 0.0, 3600.0), (0, 1, 0.0, 3600.0)))
    assert joules(found)[0, JOB] == joules(found)[0, OTHER] == 50.0
    assert found.ms[found.gpu == 0].tolist() == [1_800_000, 1_800_000]


def test_a_slice_has_its_share_of_rest_and_all_that_is_drawn_above_it() -> None:
    """Half of a GPU that rests at 70 W and draws 170 W: 35 W and 100 W."""
    split = replace(FLEET, slices={0: ("3g.40gb", "3g.40gb")})
    found = pieces(split, [170.0 * 3600, 0.0, 0.0], held((0, 0, 0.0, 3600.0, 0.5)))
    assert joules(found)[0, JOB] == pytest.approx(135.0 * 3600)
    assert joules(found)[0, IDLE] == pytest.approx(35.0 * 3600)


def test_what_is_not_split_is_divided_by_time() -> None:
    found = pieces(FLEET, [170.0, 0.0, 0.0], held((0, 0, 900.0, 1800.0)))
    assert joules(found)[0, JOB] == pytest.approx(170.0 / 4)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 3),
            st.floats(-4000, 4000),
            st.floats(0, 5000),
            st.sampled_from([0.5, 1.0]),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 10**9), min_size=3, max_size=3),
    st.booleans(),
)
def test_pieces_add_up_to_each_gpu_and_to_the_hour(
    spans: list[tuple[int, int, float, float, float]], mj: list[int], split: bool
) -> None:
    fleet = replace(FLEET, slices={1: ("3g.40gb", "3g.40gb")}) if split else FLEET
    made = [(gpu, job, start, start + length, share) for gpu, job, start, length, share in spans]
    found = pieces(fleet, [each / 1000 for each in mj], held(*made))
    assert total_by(found.mj, found.gpu, 3).tolist() == mj
    assert total_by(found.ms, found.gpu, 3).tolist() == [3_600_000] * 3
    assert (found.mj >= 0).all()
    assert (found.ms >= 0).all()
    seen: dict[int, set[int]] = defaultdict(set)
    for gpu, owner in zip(found.gpu.tolist(), found.owner.tolist(), strict=True):
        assert owner not in seen[gpu]
        seen[gpu].add(owner)
