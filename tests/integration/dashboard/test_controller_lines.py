"""What pages and API say of the controller: what it holds, and what it cannot, and who can."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from dashboard import controller
from fleet import snapshot
from policies.caps import status
from policies.caps.status import Heated, Held, Status
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.builders.policies import open_incident

pytestmark = pytest.mark.django_db


def publish(*budgets: Held, **given: Any) -> None:
    fields: dict[str, Any] = {
        "at": time.time(), "gpus": 96, "acting": 96, "capped": 8, "taken_w": 1_240.0, "units": 3,
        "waiting": 0, "starts_low": True, "unmanaged_capped": True,
    }  # fmt: skip
    status.publish(Status(**{**fields, **given}, budgets=budgets))


def held(scope: str, **given: Any) -> Held:
    fields: dict[str, Any] = {
        "is_failover": False, "level": 0.4, "gpus": 8, "taken_w": 1_240.0, "over_w": 0.0,
        "short_w": 0.0,
    }  # fmt: skip
    return Held(scope=scope, **{**fields, **given})


def test_the_fleet_page_says_how_many_gpus_are_held_and_what_that_takes(
    viewer: Client, small: SmallFleet
) -> None:
    publish(held("rack oslo/A01"), held("zone oslo/hall-1", level=0.2))
    page = viewer.get("/").content.decode()
    assert (
        "held by the controller: 8 GPUs capped, 1.2 kW taken, furthest below zone oslo/hall-1"
    ) in page


def test_the_rack_page_says_it_of_all_budgets_above_the_rack_and_of_no_other(
    viewer: Client, small: SmallFleet
) -> None:
    publish(
        held("rack oslo/A01", gives_way="agreed"),
        held("power_domain oslo/feed-a1", gives_way="all"),
        held("power_domain oslo/feed-b1", is_failover=True, gives_way="unmanaged"),
        held("rack oslo/A02"),
    )
    page = viewer.get(f"/racks/{small.racks['oslo/A01'].pk}/").content.decode()
    taken = "8 GPUs capped, 1.2 kW taken"
    for line in (
        f"rack oslo/A01: held by the controller, {taken}: jobs that agreed to be slower give way",
        f"power domain oslo/feed-a1: held by the controller, {taken}: all that runs gives way,"
        " also what agreed to nothing",
        f"power domain oslo/feed-b1: held by the controller for the case that its other half fails,"
        f" {taken}: load of no known owner gives way",
    ):
        assert line in page
    assert "rack oslo/A02" not in page


def test_what_is_over_is_not_said_to_be_held(small: SmallFleet) -> None:
    publish(held("rack oslo/A01", over_w=1_900.0))
    for lines in (controller.of_fleet()[1:], controller.of_scopes({"rack oslo/A01"})):
        (line,) = lines
        assert line.is_bad
        assert line.text == (
            "rack oslo/A01 is over its budget by 1.9 kW: the controller is lowering caps,"
            " 8 GPUs capped, 1.2 kW taken so far"
        )


def test_the_rack_page_says_which_gpu_is_held_for_its_heat_in_degrees(
    viewer: Client, small: SmallFleet
) -> None:
    hot = Heated(
        gpu="oslo-a01-n1/3", temp_c=83.4, slowdown_c=87.0, cap_w=412.0, gpus=8, taken_w=1_240.0,
        racks=("oslo/A01",),
    )  # fmt: skip
    publish(heated=(hot,))
    said = (
        "GPU oslo-a01-n1/3: 83 °C, slowdown at 87 °C: held by the controller at 412 W, 8 GPUs"
        " capped for it, 1.2 kW taken"
    )
    assert said in viewer.get(f"/racks/{small.racks['oslo/A01'].pk}/").content.decode()
    assert said not in viewer.get(f"/racks/{small.racks['oslo/A02'].pk}/").content.decode()
    (told,) = api_client().get("/api/v1/controller").json()["heated"]
    assert (told["gpu"], told["temp_c"], told["slowdown_c"]) == ("oslo-a01-n1/3", 83.4, 87.0)


def test_where_nothing_may_be_touched_it_is_said_whose_load_it_is_and_who_can(
    small: SmallFleet,
) -> None:
    over = held(
        "zone oslo/hall-1", gpus=0, taken_w=0.0, over_w=3_000.0, short_w=3_400.0, deaf=24,
        left_alone=16, left_alone_w=9_600.0,
    )  # fmt: skip
    publish(over, capped=0, unmanaged_capped=False)
    (line,) = controller.of_fleet()
    assert line.is_bad
    assert line.text == (
        "zone oslo/hall-1 is over its budget by 3.0 kW, and caps do not keep it: agents of 24 GPUs"
        " below it set no caps: whoever runs those nodes can let them; the admission policy leaves"
        " load of no known owner alone, 16 GPUs that draw 9.6 kW: whoever reviews policies can"
        " change that"
    )
    assert controller.of_scopes({"zone oslo/hall-1"}) == [line]
    assert controller.of_scopes({"zone bergen/hall-1"}) == []


def test_an_incident_says_it_of_all_places_that_fire_and_not_of_its_site_alone(
    viewer: Client, small: SmallFleet
) -> None:
    racks = ("rack oslo/A01", "rack oslo/A02")
    incident = open_incident(*racks, rule="rack-power")
    assert incident.scope_kind == "site"
    publish(
        held(racks[0], gives_way="agreed"),
        held(racks[1], gpus=0, taken_w=0.0, over_w=900.0, short_w=900.0, deaf=8),
        held("zone oslo/hall-1"),
    )
    page = viewer.get(f"/incidents/{incident.pk}/").content.decode()
    over = (
        "rack oslo/A02 is over its budget by 0.9 kW, and caps do not keep it: agents of 8 GPUs"
        " below it set no caps: whoever runs those nodes can let them"
    )
    held_line = "rack oslo/A01: held by the controller, 8 GPUs capped, 1.2 kW taken"
    # What somebody has to do something about comes first.
    assert 0 < page.index(over) < page.index(held_line)
    assert "zone oslo/hall-1" not in page


def test_of_many_places_that_fire_the_most_urgent_are_told_and_the_others_counted(
    small: SmallFleet,
) -> None:
    scopes = [f"rack oslo/A{n:02}" for n in range(1, 9)]
    publish(*(held(each, over_w=100.0 * n) for n, each in enumerate(scopes)))
    lines = controller.of_scopes(scopes, most=2)
    assert [line.text.partition(":")[0] for line in lines] == [
        "rack oslo/A08 is over its budget by 0.7 kW",
        "rack oslo/A07 is over its budget by 0.6 kW",
        "6 other budgets of places that it is about, 5 of them over",
    ]
    assert lines[-1].is_bad


def test_no_owner_is_blamed_where_all_caps_are_at_their_lowest(small: SmallFleet) -> None:
    publish(held("rack oslo/A01", over_w=900.0, short_w=1_100.0), unmanaged_capped=False)
    (line,) = controller.of_scopes({"rack oslo/A01"})
    assert line.text.endswith(
        "caps do not keep it: 1.1 kW are missing with all caps at their lowest"
    )


def test_what_would_be_over_comes_after_what_is(small: SmallFleet) -> None:
    publish(
        held("power_domain oslo/feed-a1", is_failover=True, over_w=5_000.0, short_w=1.0, deaf=1),
        held("rack oslo/A01", over_w=100.0),
    )
    _, now, would = controller.of_fleet()
    assert now.text.startswith("rack oslo/A01 is over its budget by 0.1 kW")
    assert would.text.startswith(
        "power domain oslo/feed-a1 would be over its budget by 5.0 kW if its other half failed,"
        " and caps do not keep it: agents of 1 GPU"
    )
    assert (now.is_bad, would.is_bad) == (True, False)


def test_the_page_of_one_site_tells_of_no_budget_of_another(small: SmallFleet) -> None:
    publish(held("rack bergen/A01", over_w=100.0), held("site oslo", over_w=200.0))
    told = [line.text for line in controller.of_fleet("oslo")]
    assert [text.partition(" is over")[0] for text in told[1:]] == ["site oslo"]


def test_without_a_controller_nothing_is_said(small: SmallFleet) -> None:
    status.publish(None)
    assert controller.of_fleet() == []
    assert api_client().get("/api/v1/controller").json()["at"] is None


def test_the_scopes_above_a_rack_are_all_whose_budgets_it_counts_against(
    small: SmallFleet,
) -> None:
    fleet = snapshot.current()
    row = fleet.racks.index_by_path["oslo/A01"]
    assert controller.above_rack(fleet, row) == {
        "rack oslo/A01", "power_domain oslo/feed-a1", "power_domain oslo/feed-b1",
        "power_domain oslo/utility", "zone oslo/hall-1", "site oslo",
    }  # fmt: skip


def test_the_api_answers_with_the_same_numbers(small: SmallFleet) -> None:
    publish(held("rack oslo/A01"))
    told = api_client().get("/api/v1/controller").json()
    assert (told["capped"], told["taken_w"]) == (8, 1_240.0)
    assert [(each["scope"], each["gpus"]) for each in told["budgets"]] == [("rack oslo/A01", 8)]
