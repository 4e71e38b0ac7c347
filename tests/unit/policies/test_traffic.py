from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.traffic import TrafficClass
from policies.traffic import BUILT_IN, Share, TrafficPolicy, limits_on, most_of_jobs

_CONTROL, _CHECKPOINT = TrafficClass.CONTROL, TrafficClass.CHECKPOINT


def test_what_comes_with_headroom_guarantees_no_more_than_the_link() -> None:
    assert set(BUILT_IN) == set(TrafficClass)
    assert list(TrafficPolicy().overbooked()) == []


def test_the_narrowest_that_names_a_class_counts() -> None:
    policy = TrafficPolicy(
        kinds={"wan": {_CHECKPOINT: Share(0.2, 0.5)}},
        links={"oslo-bergen": {_CHECKPOINT: Share(0.1, 0.3)}},
    )
    assert policy.shares_of("another", "spine")[_CHECKPOINT] == BUILT_IN[_CHECKPOINT]
    assert policy.shares_of("another", "wan")[_CHECKPOINT] == Share(0.2, 0.5)
    assert policy.shares_of("oslo-bergen", "wan")[_CHECKPOINT] == Share(0.1, 0.3)


def test_control_is_sure_of_what_the_inventory_keeps_for_it() -> None:
    assert TrafficPolicy().shares_of("a", "wan", 0.3)[_CONTROL] == Share(0.3, 0.3)
    assert TrafficPolicy().shares_of("a", "wan", 0.01)[_CONTROL] == BUILT_IN[_CONTROL]


def test_jobs_have_what_nobody_else_is_sure_of() -> None:
    assert most_of_jobs(BUILT_IN) == pytest.approx(0.92)
    assert most_of_jobs({**BUILT_IN, _CONTROL: Share(1.0, 1.0)}) == 0.0


def test_more_guarantees_than_a_link_has_are_told_with_their_place() -> None:
    policy = TrafficPolicy(kinds={"wan": {_CHECKPOINT: Share(0.9, 1.0)}})
    ((place, sure),) = policy.overbooked()
    assert place == "kinds.wan"
    assert sure == pytest.approx(1.6)


@given(st.dictionaries(st.text(min_size=1), st.tuples(st.floats(0, 1), st.floats(0, 1e9))))
def test_each_restriction_is_a_lease_beside_the_policys(
    restricted: dict[str, tuple[float, float]],
) -> None:
    limits = limits_on("a", BUILT_IN, 1e9, restricted, key="", ends_at=7.0)
    told = {each.id: (each.share, each.expires_at) for each in limits}
    assert told == {"": (1.0, 7.0), **restricted}
