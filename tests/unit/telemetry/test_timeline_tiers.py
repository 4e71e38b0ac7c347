"""Which tier answers for which part of a span."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from telemetry.timeline.tiers import (
    MOST_ROWS,
    Known,
    Part,
    Tier,
    affordable,
    coarsest_for,
    parts,
)

HOUR, DAY = 3600.0, 86_400.0
#: On a full day.
NOW = 1_800_057_600.0
KNOWN = Known(
    minutes_until=NOW - 60,
    hours_until=NOW - HOUR,
    raw_from=NOW - 14 * DAY,
    minutes_from=NOW - 90 * DAY,
)


def test_a_tier_is_as_coarse_as_the_rows() -> None:
    found = [coarsest_for(step) for step in (1, 59, 60, 3599, 3600, DAY)]
    assert found == [
        Tier.RAW, Tier.RAW, Tier.MINUTE, Tier.MINUTE, Tier.HOUR, Tier.HOUR,
    ]  # fmt: skip


def test_what_is_not_rolled_up_yet_comes_from_finer_tiers() -> None:
    assert parts(Tier.HOUR, NOW - 30 * DAY, NOW, KNOWN) == [
        Part(Tier.HOUR, NOW - 30 * DAY, NOW - HOUR),
        Part(Tier.MINUTE, NOW - HOUR, NOW - 60),
        Part(Tier.RAW, NOW - 60, NOW),
    ]


def test_what_is_too_old_comes_from_coarser_tiers() -> None:
    assert parts(Tier.RAW, NOW - 100 * DAY, NOW - DAY, KNOWN) == [
        Part(Tier.HOUR, NOW - 100 * DAY, NOW - 90 * DAY),
        Part(Tier.MINUTE, NOW - 90 * DAY, NOW - 14 * DAY),
        Part(Tier.RAW, NOW - 14 * DAY, NOW - DAY),
    ]


def test_without_roll_ups_readings_answer_for_everything() -> None:
    none = Known(0.0, 0.0, KNOWN.raw_from, KNOWN.minutes_from)
    assert parts(Tier.HOUR, NOW - 100 * DAY, NOW, none) == [Part(Tier.RAW, NOW - 100 * DAY, NOW)]


_TIMES = st.floats(NOW - 200 * DAY, NOW + DAY)


@given(st.sampled_from(list(Tier)), _TIMES, st.floats(1, 366 * DAY), _TIMES, _TIMES, _TIMES)
def test_every_moment_has_one_tier(
    tier: Tier, start: float, length_s: float, minutes: float, raw: float, kept: float
) -> None:
    minutes_until = minutes // 60 * 60
    known = Known(minutes_until, (minutes_until - 60) // HOUR * HOUR, raw, kept)
    found = parts(tier, start, start + length_s, known)
    assert found[0].start == start
    assert found[-1].end == start + length_s
    for before, after in pairwise(found):
        assert before.end == after.start
        assert before.tier is not after.tier
        # No bucket of one reaches into the other.
        assert after.start % max(before.tier.width_s, after.tier.width_s, 1) == 0


def test_many_sources_are_read_from_a_coarser_tier() -> None:
    assert affordable(Tier.RAW, 1, DAY) is Tier.RAW
    assert affordable(Tier.RAW, 10_000, HOUR) is Tier.MINUTE
    assert affordable(Tier.MINUTE, 10_000, 3 * DAY) is Tier.HOUR
    assert affordable(Tier.HOUR, 100_000, 30 * DAY) is None
    assert MOST_ROWS > 64 * 366 * 24  # a rack over a year
