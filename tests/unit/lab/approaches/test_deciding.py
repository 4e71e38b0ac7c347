from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from admission.core.cycle.decide import Decisions
from admission.core.request import Locality
from admission.core.snapshot import Tuning
from lab.approaches import APPROACHES, approach, deciding
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request

#: Two sites of two racks of 16 GPUs. Idle, a rack draws 7.4 kW; each busy GPU adds up to 0.8 kW.
FLEET: dict[str, Any] = {"sites": 2, "racks": 2, "nodes": 2, "gpus": 8}


def world(*, budget_w: float, **jobs: dict[str, Any]) -> World:
    made = World(make_arrays(**FLEET, budget_w=budget_w), tuning=Tuning(stagger_above=1e9))
    for key, values in jobs.items():
        made.submit(make_request(key, **values))
    return made


def racks_of(decisions: Decisions) -> list[str]:
    return [rack for each in decisions.admitted for rack in each.placement.racks]


MANY = {f"j{i}": {"gpus": 8, "gpu_peak_w": 650.0} for i in range(8)}


def test_the_single_queue_fills_the_gpus_whatever_they_draw() -> None:
    snapshot = world(budget_w=9_000.0, **MANY).snapshot()
    assert len(deciding.by_free_gpus(snapshot).admitted) == 8
    assert len(deciding.with_everything(snapshot).admitted) < 4


def test_it_still_gives_a_gpu_to_one_job_only() -> None:
    snapshot = world(budget_w=9_000.0, **MANY, more={"gpus": 1}).snapshot()
    decisions = deciding.by_free_gpus(snapshot)
    taken = [gpu for each in decisions.admitted for gpu in each.placement.gpus]
    assert len(taken) == len(set(taken)) == 64
    assert list(decisions.waiting) == ["more"]


def test_it_knows_no_heat_no_restrictions_and_no_caps() -> None:
    made = world(budget_w=1e6, hot={"gpus": 8, "thermal_margin_c": 500.0})
    assert not deciding.with_everything(made.snapshot()).admitted
    assert len(deciding.by_free_gpus(made.snapshot()).admitted) == 1
    capped = world(
        budget_w=9_000.0, one={"gpus": 8, "lowest_cap_w": 300.0, "max_slowdown": 0.5}
    ).snapshot()
    assert [e.placement.power_cap_w for e in deciding.by_free_gpus(capped).admitted] == [None]


def test_what_it_takes_is_left_as_it_was() -> None:
    snapshot = world(budget_w=9_000.0, **MANY).snapshot()
    room_w = snapshot.cluster.room_w.copy()
    deciding.by_free_gpus(snapshot)
    assert np.array_equal(snapshot.cluster.room_w, room_w)
    assert snapshot.cluster.gpu_free.all()


def test_by_margin_takes_the_rack_with_power_left_first() -> None:
    fleet = make_arrays(**FLEET, budget_w=20_000.0)
    budget_w = np.array([8_000.0, 8_000.0, 8_000.0, 20_000.0])
    fleet = replace(fleet, racks=replace(fleet.racks, budget_w=budget_w))
    made = World(fleet)
    made.submit(make_request("j", gpus=8, gpu_peak_w=650.0))
    assert racks_of(deciding.by_margin(made.snapshot())) == [str(fleet.racks.paths[3])]
    assert racks_of(deciding.by_free_gpus(made.snapshot())) == [str(fleet.racks.paths[0])]


def test_by_margin_holds_nobody_back() -> None:
    snapshot = world(budget_w=8_000.0, **MANY).snapshot()
    assert len(deciding.by_margin(snapshot).admitted) == 8


def test_under_caps_holds_those_who_accept_it_from_the_start() -> None:
    accepts: dict[str, Any] = {"gpus": 8, "gpu_peak_w": 700.0, "required": Locality.RACK}
    accepts |= {"lowest_cap_w": 350.0, "max_slowdown": 0.6}
    snapshot = world(budget_w=20_000.0, a=accepts, b={**accepts, "lowest_cap_w": None}).snapshot()
    admitted = {each.request.key: each.placement for each in deciding.under_caps(snapshot).admitted}
    assert admitted["a"].power_cap_w == 350.0
    assert admitted["b"].power_cap_w is None
    assert admitted["a"].total_w < admitted["b"].total_w
    plain = {e.request.key: e.placement for e in deciding.with_everything(snapshot).admitted}
    assert plain["a"].power_cap_w is None


def test_under_caps_goes_no_lower_than_half_of_the_rating() -> None:
    deep: dict[str, Any] = {"gpus": 8, "gpu_peak_w": 700.0, "lowest_cap_w": 150.0}
    snapshot = world(budget_w=20_000.0, a={**deep, "max_slowdown": 0.9}).snapshot()
    (one,) = deciding.under_caps(snapshot).admitted
    assert one.placement.power_cap_w == 350.0


def test_by_site_takes_the_site_with_power_left_first_and_holds_nobody_back() -> None:
    fleet = make_arrays(**FLEET, budget_w=20_000.0)
    budget_w = np.array([8_000.0, 20_000.0, 15_000.0, 15_000.0])
    fleet = replace(fleet, racks=replace(fleet.racks, budget_w=budget_w))
    made = World(fleet, tuning=Tuning(stagger_above=1e9))
    for key in MANY:
        made.submit(make_request(key, gpus=8, gpu_peak_w=650.0))
    placements = [each.placement for each in deciding.by_site(made.snapshot()).admitted]
    assert [each.sites for each in placements] == [("s2",)] * 4 + [("s1",)] * 4


def test_each_approach_has_mechanisms_of_its_own_and_the_last_has_all() -> None:
    acting = ("responds", "sheds", "moves", "caps", "follows_rules")
    flags = {each.name: {flag for flag in acting if getattr(each, flag)} for each in APPROACHES}
    assert flags == {
        "single-queue": set(),
        "site-aware": set(),
        "power-capped": {"caps"},
        "elastic-batch": {"responds"},
        "cross-site": {"sheds", "moves"},
        "all-together": set(acting),
        "tuned": set(acting),
    }


def test_an_approach_that_is_not_there_says_which_are() -> None:
    with pytest.raises(ValueError, match="'fast'; there are single-queue, site-aware"):
        approach("fast")
