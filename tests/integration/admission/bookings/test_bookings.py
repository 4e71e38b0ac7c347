"""Bookings: made where their start can be promised, held by the cycle, told to who waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.bookings.models import Booking
from admission.cycle import admit
from admission.cycle.loop import cycle_once
from admission.jobs.models import Project
from tests.builders.accounts import api_client, bearer, client_of, make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_project
from tests.html import html_of
from tests.integration.admission.cycle.conftest import clean_stores as clean_stores
from tests.integration.admission.cycle.scenes import (
    cycle,
    idle_fleet,
    phase_of,
    queued,
    start,
)


@pytest.fixture
def fleet(clean_stores: None) -> SmallFleet:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    return idle_fleet()


@pytest.fixture
def operator(fleet: SmallFleet) -> Client:
    return api_client(Role.OPERATOR)


def asked(
    begin_h: float = 1.0, end_h: float = 3.0, *, rack: str = "oslo/A01", **given: Any
) -> dict[str, Any]:
    now = timezone.now()
    place = {} if "gpus" in given else {"scope_kind": "rack", "scope_name": rack}
    return {
        "starts_at": (now + timedelta(hours=begin_h)).isoformat(),
        "ends_at": (now + timedelta(hours=end_h)).isoformat(),
        "reason": "new pumps", **place, **given,
    }  # fmt: skip


def post(client: Client, given: dict[str, Any]) -> Any:
    return client.post("/api/v1/bookings", given, content_type="application/json")


def nodes_of(name: str) -> set[str]:
    return set(phase_of(name).attempts.get().placement["nodes"])


def test_what_would_run_into_it_starts_elsewhere_or_waits_and_says_why(
    operator: Client, fleet: SmallFleet
) -> None:
    racks = sorted(fleet.racks)
    for rack in racks:
        assert post(operator, asked(rack=rack)).status_code == 201
    queued("long", asks={"walltime_s": 6 * 3600.0})
    queued("short", asks={"walltime_s": 1800.0})
    cycle()
    assert phase_of("short").state == "starting"
    long = phase_of("long")
    assert (long.state, long.reason) == ("queued", "Booked")


def test_the_hosts_of_a_project_are_for_its_jobs(operator: Client, fleet: SmallFleet) -> None:
    make_project("vision")
    make_project("speech")
    rack, other = sorted(fleet.racks)
    assert post(operator, asked(0, 3, rack=rack, project="speech")).status_code == 201
    assert post(operator, asked(0, 3, rack=other)).status_code == 201
    queued("ours", project="speech")
    queued("theirs", project="vision")
    cycle()
    assert nodes_of("ours") <= set(fleet.nodes_of(rack))
    assert phase_of("theirs").reason == "Booked"


def test_what_runs_there_beyond_the_start_has_it_refused_with_the_way_out(
    operator: Client, fleet: SmallFleet
) -> None:
    queued("long", asks={"walltime_s": 4 * 3600.0})
    cycle()
    start("long")
    (node,) = nodes_of("long")
    given = {"scope_kind": "node", "scope_name": node}
    answer = post(operator, {**asked(), **given})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "taken")
    assert f"{node} may be taken" in answer.json()["error"]["message"]
    assert "book from" in answer.json()["error"]["message"]
    assert not Booking.objects.exists()
    assert post(operator, {**asked(4.1, 5), **given}).status_code == 201


def test_two_bookings_do_not_overlap(operator: Client, fleet: SmallFleet) -> None:
    rack = sorted(fleet.racks)[0]
    assert post(operator, asked(1, 3, rack=rack)).status_code == 201
    assert post(operator, asked(2, 4, rack=rack)).status_code == 409
    assert post(operator, asked(3.1, 4, rack=rack)).status_code == 201
    assert post(operator, asked(0.1, 0.9, rack=rack)).status_code == 201


def test_so_many_gpus_are_found_where_they_are_free_by_then(
    operator: Client, fleet: SmallFleet
) -> None:
    make_project("vision")
    answer = post(operator, asked(gpus=6, project="vision")).json()
    assert (len(answer["nodes"]), answer["gpus"], answer["what"]) == (2, 8, "2 hosts")
    assert len({fleet.nodes[name].rack_id for name in answer["nodes"]}) == 1
    assert post(operator, asked(gpus=8, project="vision")).status_code == 201
    refused = post(operator, asked(gpus=4, project="vision"))
    assert refused.status_code == 409
    assert "hosts with 0 are free" in refused.json()["error"]["message"]


def test_a_cycle_that_has_not_seen_it_admits_nothing(
    operator: Client, fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued("long", asks={"walltime_s": 6 * 3600.0})
    made: list[int] = []
    real = admit.admit

    def late(*given: Any) -> Any:
        for rack in sorted(fleet.racks):
            made.append(post(operator, asked(rack=rack)).status_code)
        return real(*given)

    monkeypatch.setattr("admission.cycle.loop.admit.admit", late)
    done = cycle_once(timezone.now().timestamp())
    assert made == [201, 201]
    assert done is not None
    assert "admit" in done.failed
    assert phase_of("long").state == "queued"


def test_ended_before_its_time_its_hosts_are_for_all_again(
    operator: Client, fleet: SmallFleet
) -> None:
    numbers = [post(operator, asked(0, 3, rack=rack)).json()["id"] for rack in fleet.racks]
    queued("job")
    cycle()
    assert phase_of("job").reason == "Booked"
    for number in numbers:
        answer = operator.post(
            f"/api/v1/bookings/{number}/end", {"why": "done"}, content_type="application/json"
        )
        assert answer.json()["state"] == "ended"
    again = operator.post(f"/api/v1/bookings/{numbers[0]}/end", content_type="application/json")
    assert again.status_code == 409
    cycle()
    assert phase_of("job").state == "starting"
    assert set(AuditEntry.objects.values_list("action", flat=True)) >= {
        "booking.make", "booking.end",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"gpus": 4, "scope_kind": "rack", "scope_name": "oslo/A01", "project": "vision"}, "gpus"),
        ({"scope_kind": "", "scope_name": ""}, "gpus"),
        ({"gpus": 4}, "gpus"),
        ({"scope_name": "oslo/none"}, "scope_name"),
        ({"project": "none"}, "project"),
        ({"starts_at": "soon"}, "starts_at"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "ends_at"),
        ({"gpus": 4, "project": "vision", "model": "none"}, "model"),
    ],
)
def test_bad_ones_say_what_is_wrong(
    operator: Client, fleet: SmallFleet, given: dict[str, Any], field: str
) -> None:
    make_project("vision")
    usual = asked(gpus=4) if "gpus" in given else asked()
    answer = post(operator, {**usual, **given})
    assert answer.status_code == 400
    assert field in str(answer.json())
    assert not Booking.objects.exists()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_only_operators_book(fleet: SmallFleet, role: Role) -> None:
    assert post(api_client(role), asked()).status_code == 403


def test_whose_it_is_is_told_to_who_may_know(operator: Client, fleet: SmallFleet) -> None:
    ada = make_user(Role.ML_USER, username="ada")
    mine = make_project("vision")
    mine.members.add(ada)
    make_project("secret")
    first, second = sorted(fleet.racks)
    post(operator, asked(rack=first, project="secret", reason="model x"))
    post(operator, asked(rack=second, project="vision"))
    client = Client(headers=bearer(make_token(ada)))
    rows = client.get("/api/v1/bookings?live=1").json()["results"]
    assert {row["project"] for row in rows} == {None, "vision"}
    assert "model x" not in str(rows)
    page = Client()
    page.force_login(ada)
    html = html_of(page.get("/queue/"))
    assert "Booked" in html
    assert "another project" in html
    assert "secret" not in html
    assert "model x" not in html
    assert "secret" in html_of(client_of(Role.OPERATOR).get("/queue/"))
    assert Project.objects.count() == 2
