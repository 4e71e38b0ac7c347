"""Links and storage endpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.headroom.inputs import Limits, Past, Reservations
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, column, headroom_of, with_mounts

LINK, STORAGE = ScopeKind.LINK, ScopeKind.STORAGE


def test_a_link_has_its_capacity_less_percentile_and_reservations() -> None:
    fleet = make_arrays(sites=2, racks=1)  # two uplinks of 800 Gbit/s, two WAN links of 100
    frame = make_frame(fleet, now=NOW, link={"tx_bytes_per_s": 1e9, "rx_bytes_per_s": 2e9})
    past = replace(Past.none(fleet), link_bits_per_s=np.array([3e10, 1e9, np.nan, np.nan]))
    reserved = replace(Reservations.none(fleet), link_bits_per_s=np.array([0, 0, 5e9, 0.0]))
    headroom = headroom_of(fleet, frame, past=past, reservations=reserved)
    assert column(headroom, LINK, "link_load_bits_per_s") == [3e10, 1.6e10, 1.6e10, 1.6e10]
    assert column(headroom, LINK, "link_headroom_bits_per_s") == [7.7e11, 7.84e11, 7.9e10, 8.4e10]
    assert column(headroom, LINK, "is_wan") == [False, False, True, True]


def test_control_traffic_keeps_its_share_and_a_restriction_takes_more() -> None:
    fleet = make_arrays(sites=2, racks=1)
    frame = make_frame(fleet, now=NOW, link={"tx_bytes_per_s": 1e9, "rx_bytes_per_s": 0.0})
    limits = replace(Limits.none(fleet), link_share=np.array([1.0, 1.0, 1.0, 0.25]))
    headroom = headroom_of(fleet, frame, restrictions=limits)
    assert column(headroom, LINK, "link_control_bits_per_s")[2:] == [1e10, 1e10]
    bulk = column(headroom, LINK, "link_bulk_headroom_bits_per_s")
    assert bulk[2:] == pytest.approx([9e10 - 8e9, 2.5e10 - 8e9])


def test_a_link_that_fell_silent_is_full_and_one_never_heard_is_unknown() -> None:
    fleet = make_arrays(racks=1)
    values = {"tx_bytes_per_s": np.array([1e9, np.nan]), "ts": np.array([NOW - 99, 0.0])}
    headroom = headroom_of(fleet, make_frame(fleet, now=NOW, link=values))
    left = column(headroom, LINK, "link_headroom_bits_per_s")
    assert left[0] == 0.0
    assert np.isnan(left[1])
    assert column(headroom, LINK, "stale") == [True, True]
    assert column(headroom, LINK, "binding") == ["LinkHeadroom", ""]
    assert headroom.binding(Scope(LINK, "s1/wan")) is None


def test_latency_is_told_as_a_multiple_of_what_it_should_be() -> None:
    fleet = make_arrays(racks=1)
    frame = make_frame(
        fleet, now=NOW, link={"latency_s": np.array([2e-6, 2.4e-2]), "retransmits_per_s": 3.0}
    )
    headroom = headroom_of(fleet, frame)
    assert column(headroom, LINK, "latency_inflation") == pytest.approx([1.0, 3.0])
    assert column(headroom, LINK, "retransmits_per_s") == [3.0, 3.0]


def test_the_busiest_link_of_a_rack_binds_it() -> None:
    fleet = make_arrays(racks=2)
    sent = np.array([99e9, 1e9, 0.0])
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 80.0, "temp_c": 30.0, "throttle": 0},
        link={"tx_bytes_per_s": sent, "rx_bytes_per_s": 0.0},
    )  # fmt: skip
    headroom = headroom_of(fleet, frame)
    found = headroom.binding(Scope(ScopeKind.RACK, "s1/A01"))
    assert found is not None
    assert (found.token, found.where) == ("LinkHeadroom", Scope(LINK, "s1/A01/up"))
    assert found.left == pytest.approx(8e11 - 8 * 99e9)


def test_an_endpoint_is_as_slow_as_nearly_all_of_its_mounts() -> None:
    fleet = make_arrays(racks=4, nodes=10, gpus=1)  # 40 mounts
    fsync_s = np.arange(40) / 1000
    fsync_s[39] = 900.0  # one that hangs has no say
    frame = make_frame(fleet, now=NOW, storage={"fsync_s": fsync_s, "read_s": 0.001})
    headroom = headroom_of(fleet, frame, past=with_mounts(fleet))
    assert column(headroom, STORAGE, "fsync_s") == pytest.approx([0.037])
    assert column(headroom, STORAGE, "read_s") == pytest.approx([0.001])
    assert column(headroom, STORAGE, "mounts") == [40.0]
    assert column(headroom, STORAGE, "stale") == [False]


def test_the_load_of_an_endpoint_is_what_is_reserved() -> None:
    fleet = make_arrays(sites=2)
    reserved = replace(Reservations.none(fleet), storage_bytes_per_s=np.array([5e10, 0.0]))
    frame = make_frame(fleet, now=NOW, storage={"fsync_s": 0.01, "ts": NOW - 99})
    headroom = headroom_of(fleet, frame, past=with_mounts(fleet), reservations=reserved)
    left = column(headroom, STORAGE, "storage_headroom_bytes_per_s")
    assert left[0] == 1.5e11
    assert np.isnan(left[1])
    assert column(headroom, STORAGE, "stale") == [True, True]
    assert np.isnan(column(headroom, STORAGE, "fsync_s")).all()
