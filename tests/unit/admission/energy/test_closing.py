"""Jobs, idle GPUs, unmanaged work and the residual add up to the meter, at every place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.energy.amounts import total_by
from admission.core.energy.closing import Account, Basis
from admission.core.energy.holders import FIRST_JOB
from fleet.tables import FleetArrays
from tests.builders.arrays import make_arrays
from tests.builders.energy import closed, held, pieces

#: One site: 2 racks of 2 nodes of 2 GPUs; domains feed-a, feed-b, pdu-A-a, pdu-A-b, utility.
FLEET = make_arrays(racks=2, nodes=2, gpus=2)
FEED_A, FEED_B, PDU_A, PDU_B, UTILITY = range(5)
HELD = held((0, 0, 0.0, 3600.0), (1, 0, 0.0, 3600.0), (4, 1, 0.0, 1800.0))
GPUS = [700.0, 650.0, 70.0, 71.0, 500.0, 72.0, 73.0, 74.0]
HOSTS = [300.0, 200.0, 250.0, 201.0]
Meters = Mapping[tuple[str, int], float | None]


def account(
    meters: Meters,
    *,
    fleet: FleetArrays = FLEET,
    hosts: list[float | None] | None = None,
    pue: list[float] | None = None,
) -> Account:
    made = pieces(fleet, GPUS, HELD)
    return closed(fleet, made, hosts if hosts is not None else [*HOSTS], meters, pue=pue)


def is_closed(found: Account, fleet: FleetArrays = FLEET) -> None:
    """Check that all levels and shares add up, to the millijoule."""
    for level in (found.nodes, found.racks):
        parts = level.jobs + level.idle + level.unmanaged + level.shared
        assert (parts + level.residual == level.total).all()
    sites = found.sites
    attributed = sites.jobs + sites.idle + sites.unmanaged
    site = fleet.racks.site[fleet.nodes.rack[fleet.gpus.node[found.pieces.gpu]]]
    mine = total_by(found.shares.whole, site, len(fleet.sites))
    has_gpus = total_by(np.ones(len(site), dtype=np.int64), site, len(fleet.sites)) > 0
    assert (mine == attributed)[has_gpus].all()
    assert (attributed + sites.residual == sites.total).all()


def test_without_meters_the_total_is_that_of_parts_and_nothing_is_left_over() -> None:
    found = account({})
    is_closed(found)
    assert found.sites.total.tolist() == [round(1000 * (sum(GPUS) + sum(HOSTS)))]
    assert found.sites.residual.tolist() == [0]
    assert not found.sites.it_metered.any()
    assert (found.sites.basis[0], np.isnan(found.sites.pue[0])) == (Basis.NONE, True)


def test_a_host_is_shared_out_by_gpu_time() -> None:
    """Job 0 has both GPUs of node 0; job 1 has one of node 2 for half of the hour."""
    found = account({})
    by_owner = total_by(found.shares.host, found.pieces.owner, FIRST_JOB + 2)
    assert by_owner[FIRST_JOB] == 300_000
    assert by_owner[FIRST_JOB + 1] == 250_000 // 4


def test_what_a_rack_draws_beside_its_nodes_is_its_residual() -> None:
    found = account({("node", 0): 1700.0, ("rack", 0): 2100.0})
    is_closed(found)
    # 700 + 650 + 300 in node 0; 70 + 71 + 200 in node 1.
    assert found.nodes.residual.tolist() == [50_000, 0, 0, 0]
    assert found.racks.residual.tolist() == [2_100_000 - 1_650_000 - 341_000, 0]
    assert found.racks.metered.tolist() == [True, False]
    assert found.sites.residual.tolist() == [109_000]


def test_parts_that_come_to_more_than_the_meter_leave_a_residual_below_zero() -> None:
    found = account({("rack", 0): 1900.0})
    is_closed(found)
    assert found.racks.residual.tolist() == [-91_000, 0]


def test_a_host_that_was_not_read_is_what_its_meter_leaves() -> None:
    found = account({("node", 0): 1700.0}, hosts=[None, 200.0, 250.0, 201.0])
    is_closed(found)
    assert found.by_difference.tolist() == [True, False, False, False]
    assert found.nodes.residual.tolist() == [0, 0, 0, 0]
    assert found.nodes.jobs[0] == 1_700_000


def test_a_made_fleet_with_pdu_and_facility_meters_shows_its_residual_to_the_joule() -> None:
    """34 J between PDUs and racks, 21 J in rack 1 beside its nodes, 600 J of cooling and losses."""
    rack_0, rack_1 = 1650.0 + 341.0, 822.0 + 348.0 + 21.0
    it = rack_0 + rack_1 + 34.0
    found = account(
        {
            ("rack", 0): rack_0, ("rack", 1): rack_1, ("power_domain", PDU_A): it / 2,
            ("power_domain", PDU_B): it / 2, ("power_domain", UTILITY): it + 600.0,
        }
    )  # fmt: skip
    is_closed(found)
    sites = found.sites
    assert found.racks.residual.tolist() == [0, 21_000]
    assert sites.residual.tolist() == [55_000]
    assert sites.total.tolist() == [round(1000 * (it + 600.0))]
    assert (sites.it_metered[0], sites.facility_metered[0]) == (True, True)
    assert sites.basis[0] == Basis.MEASURED
    assert sites.pue[0] == pytest.approx((it + 600.0) / it)
    assert found.shares.overhead.sum() == 600_000


def test_cooling_is_shared_out_by_energy() -> None:
    found = account({}, pue=[1.5])
    is_closed(found)
    parts = found.shares.gpu + found.shares.host
    assert found.sites.basis[0] == Basis.STATED
    assert np.abs(found.shares.overhead - parts / 2).max() <= 1.5


def test_the_meters_of_cooling_zones_tell_where_no_facility_meter_does() -> None:
    found = account({("cooling_zone", 0): 400.0}, pue=[1.5])
    is_closed(found)
    assert found.sites.basis[0] == Basis.COOLING
    assert found.sites.overhead.tolist() == [400_000]


def test_a_facility_meter_over_it_without_meters_measures_no_pue_and_hides_nothing() -> None:
    found = account({("power_domain", UTILITY): 4000.0})
    is_closed(found)
    assert found.sites.basis[0] == Basis.NONE
    assert found.sites.residual.tolist() == [4_000_000 - round(1000 * (sum(GPUS) + sum(HOSTS)))]


def test_a_facility_meter_below_its_it_is_told() -> None:
    found = account({("power_domain", UTILITY): 900.0, ("rack", 0): 2000.0, ("rack", 1): 1200.0})
    is_closed(found)
    assert found.sites.basis[0] == Basis.CONTRADICTED
    assert found.sites.total.tolist() == [900_000]
    assert found.sites.residual[0] < 0


def test_one_silent_half_of_a_pair_makes_no_meter_of_the_site() -> None:
    found = account({("power_domain", FEED_A): 1700.0, ("power_domain", FEED_B): None})
    is_closed(found)
    assert not found.sites.it_metered[0]
    assert found.sites.residual.tolist() == [0]


def test_switches_are_shared_out_by_energy_over_their_site() -> None:
    """Node 3 has no GPUs: it is a switch."""
    gpus = replace(
        FLEET.gpus,
        **{
            name: getattr(FLEET.gpus, name)[:6].copy()
            for name in ("ids", "node", "index", "model", "rated_w", "idle_w", "slowdown_c",
                         "slowdown_mem_c", "shutdown_c", "sm_max_mhz")
        },
    )  # fmt: skip
    fleet = replace(FLEET, gpus=gpus)
    made = pieces(fleet, GPUS[:6], HELD)
    found = closed(fleet, made, [*HOSTS], {})
    is_closed(found, fleet)
    assert found.nodes.shared.tolist() == [0, 0, 0, 201_000]
    assert found.shares.shared.sum() == 201_000
    direct = found.shares.gpu + found.shares.host
    assert np.abs(found.shares.shared - 201_000 * direct / direct.sum()).max() <= 1.5


def test_a_site_without_gpus_keeps_what_it_draws_as_unmanaged() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=0)
    found = closed(fleet, pieces(fleet, [], held()), [100.0], {}, pue=[1.2])
    is_closed(found, fleet)
    assert found.sites.unmanaged.tolist() == [120_000]


amounts = st.one_of(st.none(), st.integers(0, 10**7).map(lambda mj: mj / 1000))
KINDS = {"node": 8, "rack": 4, "power_domain": 10, "cooling_zone": 2}


@given(st.data())
def test_whatever_is_metered_all_adds_up(data: st.DataObject) -> None:
    fleet = make_arrays(sites=2, racks=2, nodes=2, gpus=2)
    gpus = data.draw(st.lists(amounts, min_size=16, max_size=16))
    hosts = data.draw(st.lists(amounts, min_size=8, max_size=8))
    things = [(kind, row) for kind, count in KINDS.items() for row in range(count)]
    metered = data.draw(st.dictionaries(st.sampled_from(things), amounts, max_size=20))
    spans = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 15), st.integers(0, 3), st.floats(-9, 3600), st.floats(0, 4000)
            ),
            max_size=10,
        )
    )
    pue = data.draw(st.lists(st.sampled_from([1.0, 1.13, np.nan]), min_size=2, max_size=2))
    made = pieces(fleet, gpus, held(*((g, j, a, a + n) for g, j, a, n in spans)))
    found = closed(fleet, made, hosts, metered, pue=pue)
    is_closed(found, fleet)
    sites = found.sites
    metered_total = sites.total[sites.facility_metered]
    read = [metered[("power_domain", 5 * site + UTILITY)] for site in range(2)
            if metered.get(("power_domain", 5 * site + UTILITY)) is not None]  # fmt: skip
    assert metered_total.tolist() == [round(1000 * (each or 0)) for each in read]
