"""The fleet without one of its parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.tables import FleetArrays
from policies.headroom.outage import KINDS, without
from policies.scopes import Scope, ScopeKind, UnknownScope
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, all_read, column, headroom_of, with_mounts

DOMAIN, RACK, ZONE, SITE = (
    ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.ZONE, ScopeKind.SITE,
)  # fmt: skip


def on_one_feed(fleet: FleetArrays, *racks: int) -> FleetArrays:
    """Return a fleet of which some racks hang on feed A alone."""
    feed_b = fleet.racks.feed_b.copy()
    feed_b[list(racks)] = -1
    return replace(fleet, racks=replace(fleet.racks, feed_b=feed_b))


@given(racks=st.integers(1, 6), nodes=st.integers(1, 3), data=st.data())
def test_the_half_that_is_left_carries_what_was_said_it_would(
    racks: int, nodes: int, data: st.DataObject
) -> None:
    fleet = make_arrays(racks=racks, nodes=nodes)
    alone = data.draw(st.sets(st.integers(0, racks - 1), max_size=racks - 1))
    fleet = on_one_feed(fleet, *alone)
    before = headroom_of(fleet, all_read(fleet))
    said_w = column(before, DOMAIN, "failover_load_w")
    for row in np.flatnonzero(fleet.domains.pair >= 0).tolist():
        mate = int(fleet.domains.pair[row])
        after = without(before, Scope(DOMAIN, str(fleet.domains.paths[row]))).after
        assert column(after, DOMAIN, "power_load_w")[mate] == pytest.approx(said_w[mate])
        assert column(after, DOMAIN, "power_load_w")[row] == 0.0


def test_racks_on_the_feed_that_fails_alone_are_dark_and_draw_nothing() -> None:
    fleet = on_one_feed(make_arrays(racks=4, nodes=2), 0)
    before = headroom_of(fleet, all_read(fleet))
    outage = without(before, Scope(DOMAIN, "s1/feed-a"))
    assert outage.dark.tolist() == [True, False, False, False]
    assert outage.dark_gpus.sum() == 16
    load_w = column(outage.after, RACK, "power_load_w")
    assert load_w[0] == 0.0
    assert load_w[1:] == pytest.approx(column(before, RACK, "power_load_w")[1:])
    # What hangs below a feed fails with it.
    below = without(before, Scope(DOMAIN, "s1/pdu-A-a"))
    assert below.dark.tolist() == outage.dark.tolist()


def test_what_was_silent_and_has_no_power_is_not_taken_for_its_rating() -> None:
    fleet = on_one_feed(make_arrays(racks=2, nodes=1), 0)
    frame = all_read(fleet)
    frame.gpu["ts"][:] = 0.0
    before = headroom_of(fleet, frame)
    assert column(before, RACK, "power_load_w")[0] > 0.0
    after = without(before, Scope(DOMAIN, "s1/feed-a")).after
    assert column(after, RACK, "power_load_w")[0] == 0.0
    assert column(after, RACK, "power_load_w")[1] == column(before, RACK, "power_load_w")[1]


def test_a_zone_that_fails_carries_nothing_off_and_leaves_all_powered() -> None:
    fleet = make_arrays(racks=3)
    before = headroom_of(fleet, all_read(fleet))
    outage = without(before, Scope(ZONE, str(fleet.zones.paths[0])))
    assert not outage.dark.any()
    assert column(outage.after, ZONE, "cooling_capacity_w")[0] == 0.0
    heat_w = column(before, ZONE, "cooling_load_w")
    assert column(outage.after, ZONE, "cooling_load_w") == pytest.approx(heat_w)


def test_a_rack_or_a_site_that_fails_is_dark() -> None:
    fleet = make_arrays(racks=3)
    before = headroom_of(fleet, all_read(fleet))
    assert without(before, Scope(RACK, str(fleet.racks.paths[1]))).dark.tolist() == [
        False, True, False,
    ]  # fmt: skip
    site = without(before, Scope(SITE, "s1"))
    assert site.dark.all()
    assert column(site.after, SITE, "power_load_w") == [0.0]


def test_a_link_or_an_endpoint_that_fails_is_silent_and_the_power_stays() -> None:
    fleet = make_arrays(sites=2, racks=2)
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 400.0}, link={"tx_bytes_per_s": 1e9}, storage={"read_s": 1}
    )
    before = headroom_of(fleet, frame, past=with_mounts(fleet))
    link = without(before, Scope(ScopeKind.LINK, str(fleet.links.names[0])))
    assert not link.dark.any()
    assert np.flatnonzero(link.after.links["stale"]).tolist() == [0]
    # Nothing that falls silent has room.
    assert link.after.links["link_use"][0] == pytest.approx(1.0)
    endpoint = without(before, Scope(ScopeKind.STORAGE, "s2/nvme")).after
    assert column(endpoint, ScopeKind.STORAGE, "stale") == [False, True]
    for after in (link.after, endpoint):
        assert column(after, RACK, "power_load_w") == column(before, RACK, "power_load_w")


def test_the_links_of_a_site_without_power_are_silent_too() -> None:
    fleet = make_arrays(sites=2, racks=2)
    frame = make_frame(fleet, now=NOW, gpu={"power_w": 400.0}, link={"tx_bytes_per_s": 1e9})
    after = without(headroom_of(fleet, frame), Scope(SITE, "s1")).after
    gone = (fleet.links.site == 0) | (fleet.links.peer_site == 0)
    assert np.asarray(after.links["stale"]).tolist() == gone.tolist()


def test_the_fleet_itself_stays_as_it_is() -> None:
    fleet = on_one_feed(make_arrays(racks=2), 0)
    before = headroom_of(fleet, all_read(fleet))
    load_w = column(before, RACK, "power_load_w")
    outage = without(before, Scope(DOMAIN, "s1/feed-a"))
    assert outage.after.fleet.generation != fleet.generation
    assert column(before, RACK, "power_load_w") == load_w
    assert (fleet.racks.feed_a >= 0).all()


def test_what_is_not_there_or_cannot_fail_is_refused() -> None:
    fleet = make_arrays(racks=1)
    before = headroom_of(fleet, all_read(fleet))
    with pytest.raises(UnknownScope):
        without(before, Scope(DOMAIN, "s1/none"))
    others = set(ScopeKind) - set(KINDS)
    for kind in others:
        with pytest.raises(ValueError, match="is not known"):
            without(before, Scope(kind, "x"))
