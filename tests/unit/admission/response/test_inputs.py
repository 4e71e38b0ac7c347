"""What is known of a job's inputs at sites, and where it may move by that."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.response.fallback import Fallback, restricted
from admission.core.response.inputs import InputsSeen, KnownInputs, basis, differ_at
from admission.core.response.sites import Sites, facts_of
from fleet.tables import FleetArrays
from policies.headroom.evaluate import evaluate
from policies.restrictions.strictest import InForce
from tests.builders.arrays import make_arrays, make_frame
from tests.builders.jobs import make_request
from tests.unit.policies.headroom.scenes import NOW

AT = 1_790_000_000.0
SAME, LATER = InputsSeen(AT), InputsSeen(AT + 60)
OTHER = InputsSeen(AT, "input code differs")


@pytest.fixture(scope="module")
def fleet() -> FleetArrays:
    return make_arrays(sites=3)


def facts(
    fleet: FleetArrays,
    known: dict[int, InputsSeen],
    *,
    moves: bool = True,
    asks: tuple[int, ...] = (),
) -> tuple[float, float]:
    """Return whether a job of the first site may move, and whether another site is open to it."""
    names = fleet.sites.names.tolist()
    headroom = evaluate(fleet, make_frame(fleet, now=NOW, gpu={"power_w": 100.0}), now=NOW)
    found = facts_of(
        Sites(headroom, InForce(datetime.fromtimestamp(NOW, UTC), ())), names[0],
        make_request(sites=tuple(names[row] for row in asks)), 0, moves=moves, known={},
        inputs={names[row]: seen for row, seen in known.items()},
    )  # fmt: skip
    return found["may_move"], found["other_site_open"]


@pytest.mark.parametrize(
    ("known", "is_open"),
    [
        ({}, True),
        ({1: OTHER}, True),
        ({1: OTHER, 2: SAME}, True),
        ({1: OTHER, 2: OTHER}, False),
        # What differs at home keeps it from no other site.
        ({0: OTHER}, True),
    ],
)
def test_it_may_move_unless_its_inputs_differ_at_each_other_site(
    fleet: FleetArrays, known: dict[int, InputsSeen], is_open: bool
) -> None:
    assert facts(fleet, known) == (is_open, is_open)
    assert facts(fleet, known, moves=False)[0] == 0.0


def test_of_the_sites_that_it_asks_for_one_has_to_be_left(fleet: FleetArrays) -> None:
    assert facts(fleet, {1: OTHER}, asks=(0, 1)) == (0.0, 0.0)
    assert facts(fleet, {2: OTHER}, asks=(0, 1)) == (1.0, 1.0)
    # One that asked for its home alone takes any other.
    assert facts(fleet, {1: OTHER}, asks=(0,)) == (1.0, 1.0)


def test_it_is_said_where_they_were_verified_where_not_and_where_they_differ() -> None:
    assert basis({}, "oslo") == "that its inputs are there is declared, not verified"
    known = {"oslo": LATER, "bergen": SAME, "narvik": OTHER}
    assert basis(known, "oslo") == (
        "its inputs were verified at bergen, 2026-09-21 14:13:20 UTC; they differ at narvik"
    )
    assert basis({"narvik": OTHER}, "oslo") == (
        "that its inputs are there is declared, not verified; they differ at narvik"
    )


_SITES = ("oslo", "bergen", "narvik", "hamar")
_known = st.dictionaries(st.sampled_from(_SITES), st.sampled_from([SAME, OTHER]))


@given(_known, st.lists(st.sampled_from(_SITES), unique=True), st.sampled_from(list(Fallback)))
def test_a_job_that_is_away_is_kept_from_where_they_differ_and_never_let_everywhere(
    known: KnownInputs, asked: list[str], state: Fallback
) -> None:
    request, unfit = make_request(sites=tuple(asked)), differ_at(known)
    free = restricted(request, state, home="oslo", all_sites=_SITES)
    found = restricted(request, state, home="oslo", all_sites=_SITES, unfit=unfit)
    if state is not Fallback.REGIONAL:
        assert found == free
        return
    assert found.sites
    assert set(found.sites) <= set(free.sites)
    fit = set(free.sites) - unfit
    assert set(found.sites) == (fit or set(free.sites))
