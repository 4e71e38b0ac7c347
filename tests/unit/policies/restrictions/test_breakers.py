from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.restrictions.breakers import BlastRadius, Taking
from policies.restrictions.kinds import RestrictionKind
from tests.builders.arrays import make_arrays
from tests.unit.policies.restrictions.builders import CAP, scope

#: Five racks at each of two sites.
FLEET = make_arrays(sites=2, racks=5)
DRAIN = RestrictionKind.DRAIN


def taking(on: str, kind: RestrictionKind = DRAIN, value: float | None = None) -> Taking:
    return kind, scope(on), value


def shares(*present: Taking) -> list[float]:
    return [round(float(share), 6) for share in BlastRadius(FLEET, present).share_by_site]


@pytest.mark.parametrize(
    ("each", "share"),
    [
        (taking("rack s1/A01"), 0.2),
        (taking("node s1-A01-n1"), 0.1),
        (taking("site s1", CAP, 560.0), 0.2),
        (taking("site s1", CAP, 900.0), 0.0),
        (taking("gpu s1-A01-n1/0", CAP, 350.0), 0.5 / 80),
        (taking("site s1", RestrictionKind.POWER_BUDGET_W, 0.75 * 80 * 700.0), 0.25),
        (taking("rack s1/A01", RestrictionKind.POWER_BUDGET_W, 0.5 * 16 * 700.0), 0.1),
        (taking("site s1", RestrictionKind.POWER_BUDGET_W, 1e6), 0.0),
        (taking("site s1", RestrictionKind.CLOCK_CAP_MHZ, 990.0), 0.5),
        (taking("site s1", RestrictionKind.MAX_BATCH_SCALE, 0.75), 0.25),
        (taking("site s1", RestrictionKind.PREFER_AWAY), 0.0),
        (taking("site s1", RestrictionKind.LOCAL_ONLY), 0.0),
        (taking("link s1/wan", RestrictionKind.LINK_SHARE, 0.1), 0.0),
        (taking("job llama-7", RestrictionKind.HOLD_FOR_REVIEW), 0.0),
        (taking("rack s1/gone"), 0.0),
    ],
)
def test_what_each_takes_of_a_site(each: Taking, share: float) -> None:
    assert shares(each) == pytest.approx([share, 0.0], abs=1e-6)


def test_what_is_taken_twice_is_taken_once() -> None:
    assert shares(taking("rack s1/A01"), taking("node s1-A01-n1"), taking("rack s1/A01")) == [
        0.2,
        0,
    ]
    assert shares(taking("rack s1/A01"), taking("site s1", CAP, 350.0)) == [0.6, 0.0]


def test_policies_may_take_so_much_and_no_more() -> None:
    radius = BlastRadius(FLEET, [])
    assert radius.admit(taking("rack s1/A01"), most=0.2) == ""
    assert radius.admit(taking("node s1-A02-n1"), most=0.2) == (
        "policies would take 30 % of site s1, and without a person they may take 20 %"
    )
    assert radius.admit(taking("node s1-A02-n1"), most=0.3) == ""
    assert radius.admit(taking("rack s2/A02"), most=0.2) == ""


def test_what_adds_nothing_is_let_through() -> None:
    radius = BlastRadius(FLEET, [taking("site s1")])
    assert radius.admit(taking("rack s1/A01"), most=0.2) == ""
    assert radius.admit(taking("rack s1/A01", CAP, 200.0), most=0.2) == ""


def test_what_was_not_admitted_takes_nothing() -> None:
    radius = BlastRadius(FLEET, [])
    assert radius.admit(taking("site s1"), most=0.2) != ""
    assert radius.share_by_site.tolist() == [0.0, 0.0]


_PLACES = ["site s1", "rack s1/A01", "rack s1/A02", "rack s2/A03", "node s1-A01-n1", "site s2"]
_takings = st.builds(
    taking,
    st.sampled_from(_PLACES),
    st.just(CAP),
    st.sampled_from([300.0, 500.0, 600.0, 680.0]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_takings, max_size=12))
def test_no_order_of_restrictions_gets_policies_over_the_share(wanted: list[Taking]) -> None:
    radius = BlastRadius(FLEET, [])
    admitted = [each for each in wanted if radius.admit(each, most=0.2) == ""]
    assert (radius.share_by_site <= 0.2 + 1e-6).all()
    assert shares(*admitted) == pytest.approx(radius.share_by_site.tolist(), abs=1e-5)
