"""When a job that moves makes its first step, and what is said of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.response.first_step import (
    Basis,
    Begin,
    Start,
    Stated,
    Stored,
    first_step,
    moves_to,
    sentence,
    way_to,
)

GB = 1e9
OWN = Start(60.0, 3, is_own=True)
NOTHING_STATED = Stated()
AT_LOOP = Stored(0, 1200, 5 * GB)
#: A store that has an earlier checkpoint, and lacks 3.2 GB of the latest.
BEHIND = Stored(0, 1000, 5 * GB, 3.2 * GB, 4e6)
LEVEL = Stored(0, 1200, 5 * GB, 0.0, 4e6)
NONE_THERE = Stored(lacking_bytes=5 * GB, sent_bytes_per_s=4e6)


def told(
    known: dict[str, Stored],
    *,
    start: Start | None = OWN,
    stated: Stated = NOTHING_STATED,
    saves: bool = True,
) -> str:
    """Return what is said of a first step at bergen."""
    found = first_step(known, ["bergen"], start, stated, saves=saves)
    assert found is not None
    return sentence(found)


def test_the_bytes_that_have_to_travel_go_by_what_was_measured() -> None:
    assert told({"oslo": AT_LOOP, "bergen": BEHIND}) == (
        "first step about 14 min after its start: 3.2 GB of its checkpoint of step 1,200 have to"
        " get to bergen, in 13 min at 4 MB/s, measured; 60 s from start to first step, measured at"
        " its own last 3 starts"
    )


def test_what_was_measured_counts_before_what_is_stated() -> None:
    stated = Stated(bytes_per_s=400e6)
    assert "in 13 min at 4 MB/s, measured" in told(
        {"oslo": AT_LOOP, "bergen": BEHIND}, stated=stated
    )
    assert "in 12 s at 400 MB/s, stated, not measured" in told({"oslo": AT_LOOP}, stated=stated)


def test_where_the_latest_is_whole_nothing_travels() -> None:
    assert told({"oslo": AT_LOOP, "bergen": LEVEL}) == (
        "first step about 60 s after its start: its checkpoint of step 1,200 is whole at bergen;"
        " 60 s from start to first step, measured at its own last 3 starts"
    )


@pytest.mark.parametrize(
    ("there", "left_bytes"),
    [
        # Where nobody has looked, and where nothing lies, all of it has to get there.
        (None, 5 * GB),
        (NONE_THERE, 5 * GB),
        # The store at the loop has not what was saved later elsewhere: how much nobody says.
        (Stored(0, 1100, 4 * GB), 5 * GB),
        # More steps of an earlier start are not later.
        (Stored(0, 9000, 5 * GB, 0.1 * GB), 0.1 * GB),
        (Stored(1, 1200, 5 * GB, 0.0), 0.0),
    ],
)
def test_what_is_missing_there_is_left(there: Stored | None, left_bytes: float) -> None:
    latest = Stored(1, 1200, 5 * GB)
    at_bergen = {} if there is None else {"bergen": there}
    way = way_to({"oslo": latest, **at_bergen}, "bergen", NOTHING_STATED, saves=True)
    assert (way.begin, way.step, way.left_bytes) == (Begin.CHECKPOINT, 1200, left_bytes)


def test_what_is_not_known_is_said() -> None:
    assert told({"oslo": AT_LOOP}) == (
        "first step 60 s after its start at the earliest: 5 GB of its checkpoint of step 1,200 have"
        " to get to bergen, and how fast they do is not known; 60 s from start to first step,"
        " measured at its own last 3 starts"
    )
    assert told({}, start=None) == (
        "when its first step is cannot be said: nobody tells how much of its checkpoint has to get"
        " to bergen; from start to first step nothing was measured"
    )


def test_where_nobody_has_told_what_is_stated_counts_and_is_called_so() -> None:
    said = told({}, stated=Stated(7 * GB, 70e6), start=Start(90.0, 1, is_own=False))
    assert said == (
        "first step about 3 min after its start: 7 GB of a checkpoint (stated, not measured) have"
        " to get to bergen, in 100 s at 70 MB/s, stated, not measured; 90 s from start to first"
        " step, measured at its project's last start"
    )


@pytest.mark.parametrize(("known", "saves"), [({"oslo": Stored()}, True), ({}, False)])
def test_without_a_checkpoint_it_begins_anew(known: dict[str, Stored], saves: bool) -> None:
    said = told(known, saves=saves)
    assert said.startswith(
        "first step about 60 s after its start: no checkpoint of it is known to be whole anywhere,"
        " and it begins anew"
    )


def test_it_moves_to_sites_that_are_new_to_it_once_it_has_run() -> None:
    assert moves_to(["oslo"], ["oslo", "bergen"]) == ("bergen",)
    assert moves_to(["oslo"], ["oslo"]) == ()
    assert moves_to([], ["bergen"]) == ()
    assert first_step({}, [], OWN, NOTHING_STATED, saves=True) is None


def test_of_several_sites_that_counts_which_has_to_wait_longest() -> None:
    known = {"oslo": AT_LOOP, "bergen": BEHIND, "narvik": LEVEL}
    found = first_step(known, ["narvik", "bergen"], OWN, NOTHING_STATED, saves=True)
    assert found is not None
    assert found.way.site == "bergen"
    # Hamar has never been sent anything: when it is there nobody knows.
    found = first_step(known, ["narvik", "bergen", "hamar"], OWN, NOTHING_STATED, saves=True)
    assert found is not None
    assert found.way.site == "hamar"


def test_a_size_that_takes_no_time_that_can_be_told_is_no_checkpoint_that_is_whole_there() -> None:
    # So small that its time is rounded to none.
    tiny = Stated(size_bytes=5e-324, bytes_per_s=1_000.0)
    assert "of a checkpoint (stated, not measured) have to get to bergen" in told({}, stated=tiny)


_bytes = st.floats(0.0, 1e15)
_rates = st.none() | st.floats(1e3, 1e11)


@st.composite
def _stored(draw: st.DrawFn) -> Stored:
    rate = draw(_rates)
    if draw(st.booleans()):
        return Stored(lacking_bytes=draw(st.none() | _bytes), sent_bytes_per_s=rate)
    size = draw(_bytes)
    lacking = draw(st.none() | st.floats(0.0, size))
    return Stored(draw(st.integers(0, 3)), draw(st.integers(0, 9)), size, lacking, rate)


_known = st.dictionaries(st.sampled_from(["oslo", "bergen", "narvik"]), _stored())
_stated = st.builds(Stated, st.just(0.0) | _bytes, st.just(0.0) | st.floats(1e3, 1e11))
_starts = st.none() | st.builds(Start, st.floats(0.0, 1e5), st.integers(1, 20), st.booleans())


@given(_known, _starts, _stated, st.booleans())
def test_no_more_travels_than_the_checkpoint_and_nothing_is_made_up(
    known: dict[str, Stored], start: Start | None, stated: Stated, saves: bool
) -> None:
    found = first_step(known, ["bergen"], start, stated, saves=saves)
    assert found is not None
    way = found.way
    sizes = [each.size_bytes or 0.0 for each in known.values()] or [stated.size_bytes]
    assert way.left_bytes is None or 0.0 <= way.left_bytes <= max(sizes)
    assert (way.left_bytes is None) == (way.left_basis is Basis.UNKNOWN)
    assert (way.bytes_per_s is None) == (way.rate_basis is Basis.UNKNOWN)
    # What is called measured was measured there, and by nobody else.
    there = known.get("bergen")
    if way.rate_basis is Basis.MEASURED:
        assert there is not None
        assert way.bytes_per_s == there.sent_bytes_per_s
    is_known = way.send_s is not None and start is not None
    assert (found.in_s is not None) == is_known
    if found.in_s is not None:
        assert found.in_s >= start.s if start else False
        assert math.isfinite(found.in_s)
    said = sentence(found)
    assert "None" not in said
    if stated == NOTHING_STATED:
        assert "stated" not in said


@given(_stored(), st.floats(0.0, 1.0), st.floats(1.0, 10.0))
def test_less_left_and_more_measured_is_never_later(
    stored: Stored, share: float, faster: float
) -> None:
    lacking, rate = stored.lacking_bytes or 0.0, stored.sent_bytes_per_s or 1e6
    latest = Stored(9, 99, 1e15)

    def send_s(lacking_bytes: float, bytes_per_s: float) -> float:
        there = Stored(0, 1, 1e15, lacking_bytes, bytes_per_s)
        known = {"oslo": latest, "bergen": there}
        found = way_to(known, "bergen", NOTHING_STATED, saves=True).send_s
        assert found is not None
        return found

    assert send_s(lacking * share, rate) <= send_s(lacking, rate)
    assert send_s(lacking, rate * faster) <= send_s(lacking, rate)
