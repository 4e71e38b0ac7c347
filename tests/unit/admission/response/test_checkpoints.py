"""What is known of checkpoints at sites, and what follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.response.checkpoints import (
    Known,
    KnownCheckpoint,
    basis,
    has_latest,
    is_elsewhere,
)

HOME = "oslo"
AT = 1_790_000_000.0


def found(step: int, epoch: int = 0, verified_at: float = AT) -> KnownCheckpoint:
    return KnownCheckpoint(epoch, step, verified_at)


@pytest.mark.parametrize(
    ("known", "is_there"),
    [
        ({}, None),
        ({HOME: found(9)}, None),
        ({"bergen": None}, False),
        ({HOME: found(9), "bergen": None}, False),
        ({"bergen": found(1)}, True),
        ({"bergen": None, "narvik": found(1)}, True),
    ],
)
def test_a_checkpoint_is_elsewhere_where_one_counts_there(
    known: Known, is_there: bool | None
) -> None:
    assert is_elsewhere(known, HOME) is is_there


@pytest.mark.parametrize(
    ("known", "has"),
    [
        ({}, True),
        ({"bergen": None}, True),
        ({"bergen": found(5)}, False),
        ({HOME: None, "bergen": found(5)}, False),
        ({HOME: found(5), "bergen": found(5, verified_at=AT + 9)}, True),
        ({HOME: found(4), "bergen": found(5)}, False),
        # More steps of an earlier start are not later.
        ({HOME: found(900, epoch=1), "bergen": found(5, epoch=2)}, False),
        ({HOME: found(5, epoch=2), "bergen": found(900, epoch=1)}, True),
    ],
)
def test_home_has_the_latest_where_no_other_site_has_a_later_one(known: Known, has: bool) -> None:
    assert has_latest(known, HOME) is has


_checkpoints = st.none() | st.builds(
    found, st.integers(0, 9), st.integers(0, 3), st.floats(AT, AT + 100)
)


@given(st.dictionaries(st.sampled_from(["oslo", "bergen", "narvik"]), _checkpoints, min_size=1))
def test_some_site_has_the_latest(known: Known) -> None:
    assert any(has_latest(known, site) for site in known)


def test_it_is_said_what_was_verified_and_when_and_what_was_only_declared() -> None:
    known = {HOME: found(90), "bergen": found(60), "narvik": found(70)}
    assert basis(known, HOME) == (
        "its checkpoint of step 70 is whole at narvik, verified 2026-09-21 14:13:20 UTC"
    )
    declared = "that its checkpoints are elsewhere is declared, not verified"
    assert basis({HOME: found(90)}, HOME) == basis({}, HOME) == declared
