"""A cycle that ran out of time is followed by one that tries fewer, and later by larger ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from admission.core.snapshot import Snapshot, Tuning
from admission.cycle.reach import Reach


@dataclass(frozen=True)
class Queued:
    """As much of a snapshot as is asked for."""

    pending: tuple[int, ...]
    tuning: Tuning


def depth_of(reach: Reach, jobs: int) -> int:
    taken = cast(Snapshot, Queued(tuple(range(jobs)), Tuning()))
    return reach.within(taken).tuning.depth


def test_as_long_as_there_is_time_the_policy_says_how_many_are_tried() -> None:
    reach = Reach()
    assert depth_of(reach, 9_000) == 10_000
    reach.done(30.0)
    reach.done(0.1)
    assert depth_of(reach, 9_000) == 10_000


def test_half_as_many_are_tried_until_there_is_time() -> None:
    reach = Reach()
    found = []
    for _ in range(8):
        found.append(depth_of(reach, 9_000))
        reach.ran_out()
    assert found == [10_000, 4_500, 2_250, 1_125, 562, 281, 140, 100]


def test_as_many_again_only_after_quick_ones() -> None:
    reach = Reach()
    depth_of(reach, 9_000)
    reach.ran_out()
    reach.done(30.0)
    assert depth_of(reach, 9_000) == 4_500
    reach.done(1.0)
    assert depth_of(reach, 9_000) == 9_000
    reach.done(1.0)
    assert depth_of(reach, 9_000) == 10_000
