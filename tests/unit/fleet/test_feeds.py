"""What hangs on a power domain: which share of each rack's load it carries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet.feeds import carried_share
from fleet.tables import FleetArrays
from telemetry.summary import carried_w
from tests.builders.arrays import make_arrays

FLEET = make_arrays(sites=2, racks=6)
#: Domains that a feed may be, and none.
FEEDS = st.lists(
    st.integers(-1, len(FLEET.domains) - 1),
    min_size=len(FLEET.racks),
    max_size=len(FLEET.racks),
)


def wired(a: list[int], b: list[int]) -> FleetArrays:
    racks = replace(FLEET.racks, feed_a=np.array(a), feed_b=np.array(b))
    return replace(FLEET, racks=racks)


@given(FEEDS, FEEDS)
def test_shares_are_those_by_which_loads_are_carried_up_the_tree(
    a: list[int], b: list[int]
) -> None:
    fleet = wired(a, b)
    rack_w = np.arange(1.0, len(fleet.racks) + 1)
    carried = [float(carried_share(fleet, row) @ rack_w) for row in range(len(fleet.domains))]
    np.testing.assert_allclose(carried, carried_w(fleet, rack_w))


def test_a_rack_that_hangs_on_nothing_is_carried_by_nothing() -> None:
    none = [-1] * len(FLEET.racks)
    fleet = wired(none, none)
    assert not any(carried_share(fleet, row).any() for row in range(len(fleet.domains)))
