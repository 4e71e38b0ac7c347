"""Which budget of a site leaves the least, and which is claimed to be exceeded next."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard import live, state, tightest
from dashboard.state import View
from dashboard.tightest import Tightest
from fleet.snapshot import FleetArrays
from policies.headroom import budgets
from policies.headroom.claims import Claims
from policies.headroom.evaluate import evaluate
from policies.headroom.inputs import Limits, Outlook, Past, Reservations
from policies.headroom.outlook import Record
from telemetry.summary import DIMENSIONS
from tests.builders.arrays import make_arrays, make_frame

NOW = 1_000_000.0
GPU = {"power_w": 500.0, "temp_c": 60.0}


def view_of(fleet: FleetArrays, *, past: Past | None = None, **given: Any) -> View:
    frame = make_frame(fleet, now=NOW, gpu=GPU, **given.get("frame", {}))
    reservations = given.get("reservations", Reservations.none(fleet))
    limits = given.get("limits", Limits.none(fleet))
    view = state.view_of(fleet, frame, NOW, reservations, limits)
    found = evaluate(fleet, frame, now=NOW, reservations=reservations, past=past)
    return replace(view, headroom=found)


def named(view: View) -> Tightest:
    found = tightest.at_site(view, 0)
    assert found is not None
    return found


def test_a_link_between_sites_counts_with_what_is_reserved_on_it() -> None:
    fleet = make_arrays(sites=2, racks=4)
    wan = fleet.links.rack < 0
    reserved = np.where(wan & (fleet.links.site == 0), 1.2e11, 0.0)
    sent = np.where(wan, 1e8, 0.0)
    view = view_of(
        fleet,
        frame={"link": {"tx_bytes_per_s": sent, "rx_bytes_per_s": sent}},
        reservations=replace(Reservations.none(fleet), link_bits_per_s=reserved),
    )
    name = str(fleet.links.names[wan][0])
    # 0.8 Gbit/s are sent and 120 reserved, of 100.
    assert (named(view).name, named(view).left) == (f"link {name}", "20.8 Gbit/s over")
    other = tightest.at_site(view, 1)
    assert other is not None
    assert not other.is_over


def test_what_is_over_now_comes_before_what_would_be_if_half_of_a_pair_failed() -> None:
    fleet = make_arrays(racks=4)
    feeds = np.char.startswith(fleet.domains.names.astype(str), "feed")
    fleet = replace(
        fleet,
        racks=replace(fleet.racks, budget_w=np.full(4, 1e9)),
        zones=replace(fleet.zones, capacity_w=np.full(len(fleet.zones), 1e9)),
        domains=replace(fleet.domains, capacity_w=np.where(feeds, 25_000.0, 1e9)),
    )
    found = named(view_of(fleet))
    assert (found.name, found.is_over, found.is_if) == ("feed-a", True, False)


def test_a_site_without_readings_of_links_and_storage_still_has_its_tightest() -> None:
    fleet = make_arrays(racks=4)
    assert named(replace(view_of(fleet), headroom=None)) == named(view_of(fleet))


@pytest.mark.parametrize("zone_w", [10_000.0, 1e9])
def test_a_rack_shows_the_tightest_of_its_own_and_of_what_it_shares(zone_w: float) -> None:
    fleet = make_arrays(racks=4, zone_w=zone_w)
    view = view_of(fleet)
    columns = live.heatmap(
        fleet, view.summary, tightest.shared(view), "tightest", stale_after_s=30.0
    )
    own, of_all = view.summary.racks.tightest * 100, np.array(columns["tightest"])
    assert (of_all <= np.ceil(own)).all()
    is_zone = len(DIMENSIONS) + live.SHARED.index("its cooling zone")
    assert (is_zone in columns["dimension"]) == (zone_w == 10_000.0)


def claiming(fleet: FleetArrays, from_s: float) -> Past:
    """All budgets are claimed to be exceeded after ``from_s``, eight times of ten rightly."""
    count = len(budgets.keys(fleet))
    claims = Claims.none(count)
    claims.from_[:], claims.upto[:], claims.sure[:] = NOW + from_s, NOW + 900.0, 0.8
    outlook = Outlook(NOW, Record.none(count), claims, np.zeros(count))
    return replace(Past.none(fleet), outlook=outlook)


def test_of_claims_the_soonest_is_told_with_its_page() -> None:
    fleet = make_arrays(racks=4, budget_w=20_000.0, zone_w=200_000.0)
    found = tightest.soonest_at(view_of(fleet, past=claiming(fleet, 60.0)), 0)
    assert found is not None
    assert found.claim.endswith("UTC (8 of 10)")
    assert found.href


def test_where_nothing_is_claimed_nothing_is_told() -> None:
    fleet = make_arrays(racks=4)
    assert tightest.soonest_at(view_of(fleet), 0) is None
    assert tightest.soonest_at(replace(view_of(fleet), headroom=None), 0) is None


def test_what_is_over_already_is_not_told_as_coming() -> None:
    fleet = make_arrays(racks=4, budget_w=1000.0, zone_w=1000.0)
    fleet = replace(fleet, domains=replace(fleet.domains, capacity_w=np.ones(len(fleet.domains))))
    assert tightest.soonest_at(view_of(fleet, past=claiming(fleet, 60.0)), 0) is None


def test_the_script_of_the_page_has_the_same_words() -> None:
    script = Path("static/js/fleet.js").read_text(encoding="utf-8")
    words = re.search(r"const DIMENSIONS = \[(.*?)\]", script, re.DOTALL)
    assert words is not None
    assert tuple(re.findall(r'"([^"]+)"', words[1])) == (*DIMENSIONS, *live.SHARED)
