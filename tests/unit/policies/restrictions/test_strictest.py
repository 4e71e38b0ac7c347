from __future__ import annotations

import math
import time
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.restrictions.kinds import HELD_BEFORE, RestrictionKind, gpus_in
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import nodes_in, racks_in
from tests.builders.arrays import make_arrays
from tests.unit.policies.restrictions.builders import (
    CAP,
    NOW,
    make_in_force,
    make_restriction,
    scope,
)

FLEET = make_arrays(sites=2)
DRAIN = RestrictionKind.DRAIN
PLACES = (
    *("site s1", "site s2", "zone s1/zone-A", "power_domain s1/feed-a", "power_domain s2/utility"),
    *("rack s1/A01", "rack s1/A02", "rack s2/A01", "node s1-A01-n1", "node s2-A04-n2"),
    *("gpu s1-A01-n1/0", "gpu s2-A04-n2/3", "rack s1/gone"),
)


def test_nothing_in_force_caps_nothing() -> None:
    nothing = make_in_force()
    assert np.isinf(nothing.power_cap_w_by_node(FLEET)).all()
    assert not nothing.nodes_under(FLEET, DRAIN).any()
    assert nothing.covering(FLEET, scope("rack s1/A01")) == ()


def test_the_strictest_counts_and_all_are_shown() -> None:
    loose, strict = make_restriction("site s1", value=600.0), make_restriction(value=450.0)
    drained = make_restriction(kind=DRAIN, value=None)
    in_force = make_in_force(loose, drained, strict)
    cap, drain = in_force.covering(FLEET, scope("rack s1/A01"))
    assert (cap.kind, cap.value, cap.strictest, cap.all) == (CAP, 450.0, strict, (strict, loose))
    assert (drain.kind, drain.value, drain.all) == (DRAIN, None, (drained,))
    (elsewhere,) = in_force.covering(FLEET, scope("rack s1/A02"))
    assert elsewhere.all == (loose,)
    caps = in_force.power_cap_w_by_node(FLEET)
    assert caps.tolist() == [450.0] * 2 + [600.0] * 6 + [math.inf] * 8


def test_of_equals_the_one_that_lasts_longer_counts() -> None:
    short, long = make_restriction(for_s=30.0), make_restriction(for_s=90.0)
    (cap,) = make_in_force(short, long).on(scope("rack s1/A01"))
    assert cap.strictest == long


def test_what_is_on_a_part_does_not_hold_for_the_whole() -> None:
    in_force = make_in_force(
        make_restriction("node s1-A01-n1"), make_restriction("gpu s1-A01-n2/0")
    )
    assert in_force.covering(FLEET, scope("rack s1/A01")) == ()
    assert len(in_force.covering(FLEET, scope("gpu s1-A01-n1/3"))) == 1
    assert len(in_force.covering(FLEET, scope("gpu s1-A01-n2/0"))) == 1
    assert in_force.covering(FLEET, scope("gpu s1-A01-n2/1")) == ()
    assert np.isfinite(in_force.by_rack(FLEET, CAP)).sum() == 0
    assert np.isfinite(in_force.power_cap_w_by_node(FLEET)).sum() == 1
    assert np.isfinite(in_force.power_cap_w_by_gpu(FLEET)).sum() == 8 + 1


def test_links_jobs_and_classes_are_covered_by_themselves_alone() -> None:
    shares = make_restriction("link s1/wan", kind=RestrictionKind.LINK_SHARE, value=0.5)
    in_force = make_in_force(shares, make_restriction("site s1"))
    (found,) = in_force.covering(FLEET, scope("link s1/wan"))
    assert found.all == (shares,)


def test_a_kind_without_a_value_has_no_array_of_values() -> None:
    with pytest.raises(ValueError, match="drain takes no value"):
        make_in_force().by_node(FLEET, DRAIN)


def test_a_lease_ends_by_itself() -> None:
    in_force = make_in_force(
        make_restriction(for_s=30.0), make_restriction(value=600.0, for_s=60.0)
    )
    assert in_force.later(NOW + timedelta(seconds=29)).power_cap_w_by_node(FLEET)[0] == 500.0
    assert in_force.later(NOW + timedelta(seconds=30)).power_cap_w_by_node(FLEET)[0] == 600.0
    assert in_force.later(NOW + timedelta(seconds=60)).restrictions == ()


def test_what_the_inventory_no_longer_has_holds_for_nothing() -> None:
    assert np.isinf(make_in_force(make_restriction("rack s1/gone")).power_cap_w_by_gpu(FLEET)).all()


restrictions = st.lists(
    st.builds(
        lambda on, value, for_s: make_restriction(on, value=value, for_s=for_s),
        st.sampled_from(PLACES),
        st.sampled_from([300.0, 400.0, 500.0, 600.0]),
        st.sampled_from([10.0, 60.0]),
    ),
    max_size=8,
)


def slowly(in_force: InForce, gpu: int) -> float:
    """The lowest cap of one GPU, found one by one."""
    here = [each for each in in_force.restrictions if not each.scope.name.endswith("gone")]
    return min((e.number for e in here if gpus_in(FLEET, e.scope)[gpu]), default=math.inf)


@settings(max_examples=60, deadline=None)
@given(restrictions)
def test_arrays_say_what_each_restriction_says(restrictions: list[ActiveRestriction]) -> None:
    in_force = make_in_force(*restrictions)
    by_gpu = in_force.power_cap_w_by_gpu(FLEET)
    assert by_gpu.tolist() == [slowly(in_force, gpu) for gpu in range(len(FLEET.gpus))]
    by_node, by_rack = in_force.power_cap_w_by_node(FLEET), in_force.by_rack(FLEET, CAP)
    assert (by_node[FLEET.gpus.node] >= by_gpu).all()
    assert (by_rack[FLEET.nodes.rack] >= by_node).all()


@settings(max_examples=60, deadline=None)
@given(restrictions, st.sampled_from(PLACES[:-1]))
def test_what_covers_a_scope_holds_for_every_gpu_in_it(
    restrictions: list[ActiveRestriction], on: str
) -> None:
    in_force = make_in_force(*restrictions)
    effective = in_force.covering(FLEET, scope(on))
    inside = in_force.power_cap_w_by_gpu(FLEET)[gpus_in(FLEET, scope(on))]
    for each in effective:
        assert [s.number for s in each.all] == sorted(s.number for s in each.all)
        assert (inside <= each.strictest.number).all()


@settings(max_examples=30, deadline=None)
@given(restrictions, st.sampled_from(PLACES[:-3]))
def test_one_more_restriction_never_raises_a_cap(
    restrictions: list[ActiveRestriction], on: str
) -> None:
    before = make_in_force(*restrictions).power_cap_w_by_gpu(FLEET)
    after = make_in_force(*restrictions, make_restriction(on, value=400.0)).power_cap_w_by_gpu(
        FLEET
    )
    assert (after <= before).all()


def test_flags_of_racks_and_nodes() -> None:
    in_force = make_in_force(
        make_restriction("zone s1/zone-A", kind=DRAIN, value=None),
        make_restriction("node s2-A01-n1", kind=DRAIN, value=None),
    )
    zone = scope("zone s1/zone-A")
    assert (in_force.racks_under(FLEET, DRAIN) == racks_in(FLEET, zone)).all()
    under = in_force.nodes_under(FLEET, DRAIN)
    assert under.sum() == nodes_in(FLEET, zone).sum() + 1


def test_a_large_fleet_takes_milliseconds() -> None:
    fleet = make_arrays(sites=20, racks=156, nodes=4, gpus=8)
    names = fleet.racks.paths.tolist()
    in_force = make_in_force(*(make_restriction(f"rack {name}") for name in names[:1000]))
    began = time.perf_counter()
    caps = in_force.power_cap_w_by_gpu(fleet)
    assert np.isfinite(caps).sum() == 1000 * 32
    assert time.perf_counter() - began < 30.0


def test_what_is_announced_is_held_from_a_little_before_it_has_to_be_met() -> None:
    starts_at = NOW + timedelta(seconds=300)
    budget = make_restriction(
        "site s1", kind=RestrictionKind.POWER_BUDGET_W, value=5e4, for_s=600, starts_at=starts_at
    )
    before = InForce.standing(NOW, [budget])
    assert (before.restrictions, before.announced) == ((), (budget,))
    held = before.later(starts_at - HELD_BEFORE)
    assert (held.restrictions, held.announced) == ((budget,), ())
    assert held.met_at(starts_at - HELD_BEFORE, RestrictionKind.POWER_BUDGET_W) == []
    assert held.met_at(starts_at, RestrictionKind.POWER_BUDGET_W) == [budget]
    assert before.later(NOW + timedelta(seconds=600)).announced == ()
